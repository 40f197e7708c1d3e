"""Generation by an OpenAI-compatible server: chat completions over HTTP, many at a time.

The server renders prompts and counts tokens. Every setting is sent, even one that changes nothing, because servers
replace a missing setting by the model's default. A setting that the server refuses is left out and listed in `facts`.

A request that fails temporarily is sent again after a pause that doubles each time, or that the server names
(Retry-After). Such failures are 429, 5xx, a timeout, a lost connection, and a reply that is cut off. A reply of status
200 that holds an error or no completion is one too.

After `ATTEMPTS` the sample is lost, and the others continue. `MOST_LOST` lost samples in a row end the evaluation. An
error with status 200 whose code or type is permanent also ends it, after `ATTEMPTS`.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
from base64 import b64encode
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx

from olr_cli.data.chat import Message, message
from olr_cli.engines import prompt_text
from olr_cli.engines.backends.backend import (
    Backend,
    GenerationRequest,
    Sampled,
    in_order,
    whole_requests,
)
from olr_cli.engines.prompt_text import ChatFormat
from olr_cli.errors import UserError, did_you_mean, first_line, shortened
from olr_cli.files import storable
from olr_cli.recipe.sampling import Sampling
from olr_cli.supervision import Rollout

if TYPE_CHECKING:
    from olr_cli.engines.backends import BackendOptions

KEY = "OPENAI_API_KEY"
"""The environment variable that holds the server's key."""
ATTEMPTS = 8
"""How often a request is sent before its sample is lost. With the pauses this takes about two minutes."""
MOST_LOST = 8
"""Number of lost samples in a row that means that the server is gone."""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds between two attempts. A server may ask for more, up to the time limit of a reply."""
CONNECTING = 20.0
"""Seconds to connect and to send, and for the list of models."""
MOST_BYTES = 2**26
"""Largest size of a reply, decompressed."""
_NEUTRAL = {
    "top_p": 1.0,
    "top_k": -1,  # vLLM, SGLang and llama.cpp take it for all tokens; 0 is an error in some of their versions
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "repeat_penalty": 1.0,  # llama.cpp's name
}
"""Settings that change nothing.

If one is missing, vLLM and SGLang take it from the model's generation config, and llama.cpp has its own defaults (top_p
0.95, top_k 40, min_p 0.05).
"""
_CODINGS = {"", "identity", "gzip", "deflate"}
"""Encodings of replies that are accepted, and only one at a time: two nested ones make gigabytes from a few bytes."""
_POLL_SECONDS = 0.5
"""Seconds between two handovers of the replies that have arrived; the caller can do other work in between."""
_CUT = {
    "length",
    "max_length",
    "max_tokens",
    "max_new_tokens",
    "max_output_tokens",
    "model_length",
}
"""Servers' words for the limit on a response's length, in the spelling of `_end_of`."""
_FAILED = {
    "error", "abort", "aborted", "cancelled", "canceled", "failed", "timeout", "network_error",
    "insufficient_system_resource", "malformed_function_call",
}  # fmt: skip
"""Finish reasons of responses that the server broke off, which says nothing about the model."""
_WITHHELD = {
    **dict.fromkeys(
        (
            "content_filter",
            "safety",
            "recitation",
            "blocklist",
            "prohibited_content",
            "spii",
            "sensitive",
        ),
        "content_filter",
    ),
    "refusal": "refusal",
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use", "function_call"), "tool_calls"),
}
"""The word that is counted (`Rollout.ended_by`), by the finish reason of a response that was cut short."""
_TRANSIENT = {408, 409, 429, 500, 502, 503, 504, 529}
_PERMANENT = {
    "invalid_request_error", "badrequesterror", "authentication_error", "invalid_api_key", "permission_error",
    "permission_denied", "not_found_error", "model_not_found", "context_length_exceeded", "insufficient_quota",
    "billing_error", "invalid_argument",
}  # fmt: skip
"""Codes and types, in lower case, of errors that another attempt does not cure."""
_FAILURES = (httpx.TransportError, httpx.DecodingError, TimeoutError)
_Answer: TypeAlias = tuple[int, int, Rollout | str]
"""Number of the request, number of the sample, and the rollout or the reason of its loss."""
_NO_JSON = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError)


class _BadReply(Exception):
    """Raised for a reply that holds no usable completion; the message says why. Another attempt may succeed."""


class _Permanent(_BadReply):
    """Raised for a reply of status 200 that reports an error which another attempt cannot cure (`_is_permanent`).

    `OpenAIBackend.ask` still makes all its attempts, and raises UserError if the last one ends in this way.
    """


@dataclass
class _Losses:
    """Counts lost samples: all of them, and those since the last sample that arrived.

    A sample is lost if all attempts to request it fail. `reason` says why the last lost sample failed.
    """

    total: int = 0
    in_a_row: int = 0
    reason: str = ""

    def count(self, answer: Rollout | str) -> Rollout | None:
        """Return `answer` if it is a rollout. If it is the reason of a loss, count the loss and return None."""
        if isinstance(answer, Rollout):
            self.in_a_row = 0
            return answer
        self.total, self.in_a_row, self.reason = self.total + 1, self.in_a_row + 1, answer
        return None


class OpenAIBackend(Backend):
    """Generation by a server that speaks the OpenAI API: vLLM, SGLang, llama.cpp or OpenAI itself.

    Each sample is a chat completion of its own, requested with the sample's seed, which some servers ignore.
    """

    facts: dict[str, Any]

    def __init__(self, model: str, options: BackendOptions, chat: ChatFormat) -> None:
        """Check that the server at `options.url` has `model` in its list of models, if the server has such a list.

        The URL may contain a user, a password and a query. They are left out of `facts` and of messages. `chat` may set
        variables for the server's chat template but cannot replace the template.

        Raises:
            UserError: no server answers, it refuses the key, or it does not have the model.
        """
        if chat.template is not None:
            raise UserError(
                "a server renders prompts by its own chat template",
                "leave this out",
                "chat_template",
            )
        self.model, self.tokenizer, self.context, self.chat = model, None, None, chat
        self.concurrency, self.timeout = options.concurrency or 64, options.timeout or 600.0
        self._url = _url(options.url or "")
        path = self._url.path.rstrip("/")
        self._shown = str(
            self._url.copy_with(path=path, userinfo=b"", query=None, fragment=None)
        )
        self._refused: set[str] = set()
        # A key that was pasted into a shell often ends with a line break.
        key = os.environ.get(KEY, "").strip()
        # An HTTP header holds no other characters, and httpx's error would not name the variable.
        if not (key.isascii() and key.isprintable()):
            raise UserError(
                f"{KEY} has a character that no key has (a line break, or no ASCII)",
                "set it again",
            )
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._secrets = [key] * bool(key) + _secrets_in(self._url)
        self.facts = {
            "name": "openai",
            "model_digest": f"server:{model}",
            "device": "server",
            "dtype": "unknown",
            "url": self._shown,
            **asyncio.run(self._served()),
        }

    @property
    def has_chat_template(self) -> bool:
        """True: the server decides how the model reads chat turns."""
        return True

    def render(self, prompts: Sequence[Sequence[Message]]) -> list[str]:
        """Return each prompt's messages as plain text, because only the server knows the text that its model reads."""
        return prompt_text.render_all(None, prompts, ChatFormat(template=""))

    def __exit__(self, *error: object) -> None:
        """Free nothing: `stream` closes its connections."""

    def stream(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[Mapping[int, list[Rollout | None]], None, None]:
        """Generate one response per seed of every request, and yield requests as they finish (see `Backend.stream`).

        A sample is lost, and its rollout is None, if all `ATTEMPTS` attempts to request it fail.

        Raises:
            UserError: at the end, if samples are lost. At once, if `MOST_LOST` in a row are lost or the server refuses
                a request.
        """
        return whole_requests(requests, self._samples(requests, sampling))

    def batches(
        self,
        batches: Iterable[Sequence[GenerationRequest]],
        sampling: Sampling,
        report: Callable[[int, int], None],
    ) -> Generator[list[list[Rollout]], None, None]:
        """Generate all batches in one stream, and yield their rollouts in order (see `Backend.batches`).

        Requests of later batches start early, which keeps the server busy while the last responses of a batch are
        generated. But no request starts while an unfinished one is more than N places before it. N is the size of the
        largest batch or the concurrency, whichever is larger.

        After a lost sample no new request is sent. Requests in flight finish, and then a UserError is raised. The batch
        with the lost sample and all later batches are not yielded.
        """
        parts = list(batches)
        requests = list(chain.from_iterable(parts))
        ahead = max([self.concurrency, *map(len, parts)])
        samples = self._samples(requests, sampling, ahead)
        return in_order(parts, whole_requests(requests, samples), report)

    def _samples(
        self,
        requests: Sequence[GenerationRequest],
        sampling: Sampling,
        ahead: float = math.inf,
    ) -> Generator[list[Sampled], None, None]:
        """Request all samples, and yield those that have arrived or were lost, as one list every `_POLL_SECONDS`.

        A list has the samples since the list before it, and may be empty. No request starts while an unfinished one is
        more than `ahead` places before it in `requests`. By default there is no such limit.

        Raises:
            UserError: the server refuses a request, `MOST_LOST` samples in a row are lost, or all requests have ended
                and some samples are lost.
        """
        wanted = sum(len(request.seeds) for request in requests)
        again = (
            "run the same command again" if ahead == math.inf else "continue with --resume"
        )
        losses = _Losses()
        arrived: list[_Answer] = []
        loop = asyncio.new_event_loop()
        asking = loop.create_task(self._ask_all(requests, sampling, arrived.append, ahead))
        try:
            while not asking.done():
                loop.run_until_complete(asyncio.wait({asking}, timeout=_POLL_SECONDS))
                part = [
                    (number, sample, losses.count(it)) for number, sample, it in arrived
                ]
                arrived.clear()
                yield part
                if losses.in_a_row >= MOST_LOST:
                    raise UserError(
                        f"{self._shown} did not answer {losses.in_a_row} requests in a row, in {ATTEMPTS} attempts each"
                        f" ({losses.reason})",
                        f"see to the server, or lower the concurrency, and {again}",
                    )
                if asking.done() and (error := asking.exception()) is not None:
                    raise (
                        # A TaskGroup wraps its tasks' errors; the user gets the sentence of the first one.
                        error.exceptions[0] if isinstance(error, ExceptionGroup) else error
                    )
        finally:
            asking.cancel()
            loop.run_until_complete(asyncio.gather(asking, return_exceptions=True))
            loop.close()
        if losses.total:
            raise UserError(
                f"{losses.total} of {wanted} samples are lost: {self._shown} did not answer in {ATTEMPTS} attempts"
                f" ({losses.reason})",
                f"what is complete is stored; {again} to ask for these",
            )

    async def _ask_all(
        self,
        requests: Sequence[GenerationRequest],
        sampling: Sampling,
        put: Callable[[_Answer], None],
        ahead: float,
    ) -> None:
        """Request all samples, `concurrency` at a time, and call `put` with each answer as it arrives.

        An answer is the index of the request, the index of the sample, and the rollout or the reason why the sample is
        lost. No request starts while an unfinished one is more than `ahead` places before it in `requests`.

        If `ahead` is finite, no new request is sent after a lost sample, because the caller then uses no later
        responses. If `ahead` is infinite, the other samples are still requested.

        Raises:
            ExceptionGroup: `ask` raised a UserError, which is in the group. Requests in flight are cancelled.
        """
        begun: dict[tuple[int, int], None] = {}  # requests in flight, the oldest first
        coming = (
            (number, sample, seed)
            for number, request in enumerate(requests)
            for sample, seed in enumerate(request.seeds)
        )
        async with self.client() as client, asyncio.TaskGroup() as workers:

            async def ask_on() -> None:
                for number, sample, seed in coming:
                    # A dict keeps its order, so its first key is the oldest request in flight.
                    while begun and number > next(iter(begun))[0] + ahead:
                        await asyncio.sleep(_POLL_SECONDS)
                    begun[number, sample] = None
                    answer = await self.ask(client, requests[number], seed, sampling)
                    put((number, sample, answer))
                    del begun[number, sample]
                    if ahead < math.inf and isinstance(answer, str):
                        coming.close()

            for _ in range(self.concurrency):
                workers.create_task(ask_on())

    async def ask(
        self,
        client: httpx.AsyncClient,
        request: GenerationRequest,
        seed: int,
        sampling: Sampling,
    ) -> Rollout | str:
        """Request one sample, in up to `ATTEMPTS` attempts; return the rollout, or the reason why the sample is lost.

        It is lost if the last attempt fails, too: no connection, a timeout, an unusable reply or a `_TRANSIENT` status.

        Raises:
            UserError: at once for any other status but 200; after the last attempt, if it ends in `_Permanent`.
        """
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [
                {"role": turn.role, "content": turn.content} for turn in request.messages
            ],
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_new_tokens,
            **_NEUTRAL,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
        }
        optional = {
            "top_k": sampling.top_k,
            # The API's seed is a signed 64-bit integer. A greedy request draws nothing and has none.
            "seed": seed & (2**63 - 1) if sampling.temperature else None,
            "stop": list(sampling.stop) or None,
            "chat_template_kwargs": dict(self.chat.variables) or None,
        }
        body |= {name: value for name, value in optional.items() if value is not None}
        pause, reason, is_refused = 0.0, "", False
        for attempt in range(ATTEMPTS):
            await asyncio.sleep(pause)
            # The random factor keeps requests that failed together from coming back together.
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1)
            try:
                reply = await self._complete(client, body)
                if reply.status_code == 200:
                    return self._rollout(reply)
            except (*_FAILURES, _BadReply) as error:
                reason, is_refused = self._reason(error), isinstance(error, _Permanent)
                continue
            is_refused = False
            if reply.status_code in _TRANSIENT:
                reason = f"status {reply.status_code}{self._error_text(reply)}"
                pause = _retry_after(reply, self.timeout) or pause
            else:
                raise self._refusal(reply)
        if is_refused:
            raise UserError(
                f"{self._shown} refuses a request in {ATTEMPTS} attempts ({reason})",
                "fix what it names",
            )
        return reason

    async def _complete(
        self, client: httpx.AsyncClient, body: Mapping[str, Any]
    ) -> httpx.Response:
        """Request a chat completion with the settings in `body`, and return the reply, whatever its status.

        If the server refuses a setting that can be left out (`_refused_setting`), the request is repeated without it.
        Later requests leave it out too.
        """
        while True:
            sent = {
                name: value for name, value in body.items() if name not in self._refused
            }
            if "max_tokens" not in sent:
                # OpenAI's newer models accept the limit only under this name.
                sent["max_completion_tokens"] = body["max_tokens"]
            reply = await self._send(client, "POST", "chat/completions", self.timeout, sent)
            if (name := _refused_setting(reply, sent)) is None:
                return reply
            # A refusal names one setting at a time, so repeat the request until the server accepts it.
            self._refused.add(name)
            if own := sorted(self._refused - {"max_tokens"}):
                self.facts["sampling"] = dict.fromkeys(own, "the server's")

    async def _send(
        self,
        client: httpx.AsyncClient,
        method: str,
        name: str,
        timeout: float,
        body: Any = None,
    ) -> httpx.Response:
        """Send an HTTP request to the server, and return the whole reply, decompressed, whatever its status.

        Args:
            client: an open client that `OpenAIBackend.client` made.
            method: the HTTP method, such as ``GET``.
            name: the path below the server's URL, such as ``chat/completions``.
            timeout: seconds after which the request is given up.
            body: is sent as JSON; None for no body.

        Raises:
            _BadReply: the reply is too large, or compressed in a way that was not asked for.
            httpx.TransportError: the connection fails.
            httpx.DecodingError: the reply cannot be decompressed.
            TimeoutError: the reply took more than `timeout` seconds.
        """
        content = bytearray()
        url = self._url.copy_with(path=f"{self._url.path.rstrip('/')}/{name}")
        async with asyncio.timeout(timeout), client.stream(method, url, json=body) as reply:
            coding = reply.headers.get("content-encoding", "").lower()
            if coding not in _CODINGS:
                raise _BadReply(
                    f"its reply is encoded as {shortened(coding)!r}, which was not asked for"
                )
            async for chunk in reply.aiter_bytes():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise _BadReply(f"its reply has more than {MOST_BYTES >> 20} MiB")
        reply.headers.pop("content-encoding", None)  # `content` is decoded already
        return httpx.Response(
            reply.status_code, headers=reply.headers, content=bytes(content)
        )

    def client(self) -> httpx.AsyncClient:
        """Return an HTTP client that sends the server's key, with at most `concurrency` connections."""
        limits = httpx.Limits(
            max_connections=self.concurrency, max_keepalive_connections=self.concurrency
        )
        # There is no limit on a single read: `_send` limits the time of the whole reply, which may be silent for long.
        timeout = httpx.Timeout(CONNECTING, read=None, pool=None)
        headers = {"Accept-Encoding": "gzip, deflate", **self.headers}
        return httpx.AsyncClient(headers=headers, timeout=timeout, limits=limits)

    async def _served(self) -> dict[str, Any]:
        """Check that the server has the model, and look up its real name, because the given one may be an alias.

        Returns:
            A mapping whose only key is ``served_model``, with the real name. It is empty if the server does not give
            that name or has no list of models.

        Raises:
            UserError: no server answers, it refuses the key, or its list lacks the model.
        """
        try:
            async with self.client() as client:
                reply = await self._send(
                    client, "GET", "models", min(CONNECTING, self.timeout)
                )
        except (*_FAILURES, _BadReply) as error:
            raise UserError(
                f"no server answers at {self._shown} ({self._reason(error)})",
                "start it, or fix the URL",
                "url",
            ) from None
        if reply.status_code in (401, 403):
            raise self._refusal(reply)
        try:
            models = {str(entry["id"]): entry for entry in reply.json()["data"]}
            root = models.get(self.model, {}).get("root")
        except _NO_JSON:
            # A URL without /v1 is the usual mistake, and a request to it fails with 404.
            if reply.status_code == 404 and not self._shown.endswith("/v1"):
                raise UserError(
                    f"{self._shown} has no list of models",
                    f"the API's address mostly ends in /v1 ({self._shown}/v1?)",
                ) from None
            return {}  # some servers have no list of models
        if models and self.model not in models:
            raise UserError(
                f"{self._shown} has no model '{self.model}'{did_you_mean(self.model, models)}",
                "it has"
                f" {', '.join(shortened(self._without_secrets(model)) for model in list(models)[:20])}",
            )
        return {"served_model": storable(str(root))} if root else {}

    def _refusal(self, reply: httpx.Response) -> UserError:
        """Return the error for a reply that refuses a request. At status 401 or 403, the error is about the key."""
        said = self._error_text(reply)
        if reply.status_code in (401, 403):
            key = f"the key in {KEY}" if self.headers else "a request without a key"
            return UserError(
                f"{self._shown} refuses {key} (status {reply.status_code}{said})",
                f"set the environment variable {KEY}",
            )
        return UserError(
            f"{self._shown} refuses a request (status {reply.status_code}{said})",
            "fix what it names",
        )

    def _error_text(self, reply: httpx.Response, error: Any = None) -> str:
        """Return ": " and the error message of a reply, for the end of a sentence; empty if the reply has no message.

        The message is cut to 200 characters and holds no secrets. `error` is the error that `reply` reports, or None to
        look it up there.
        """
        try:
            content = reply.json()
            error = error or content.get("error", content)
            words = (
                error.get("message") or error.get("detail")
                if isinstance(error, dict)
                else error
            )
        except _NO_JSON:
            words = reply.text
        text = self._without_secrets(" ".join(storable(str(words or "")).split()))[
            :200
        ].rstrip(".")
        return f": {text}" if text else ""

    def _without_secrets(self, text: str) -> str:
        """Replace the key and the secret parts of the URL by `…`, because some servers repeat them in their texts."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text

    def _reason(self, error: Exception) -> str:
        """Return why a request failed, in a few words and without secrets."""
        if isinstance(error, TimeoutError):
            return "no reply before the timeout"
        kind = "" if isinstance(error, _BadReply) else type(error).__name__
        return self._without_secrets(": ".join(filter(None, (kind, first_line(error)))))

    def _rollout(self, reply: httpx.Response) -> Rollout:
        """Return the rollout in the reply to a chat completion; raise `_BadReply` if it has none.

        If the server sends the model's thought in a field of its own, the rollout's text begins with the thought, after
        the mark <think>. The token count is None if the server gives none or an impossible one.
        """
        try:
            content = reply.json()
            choice = _first_choice(content)
            end = _end_of(choice)
            error = _error_of(content) or choice.get("error")
            if error or end in _FAILED:
                detail = f", finish reason '{end}'" if end else ""
                raise (_Permanent if _is_permanent(error) else _BadReply)(
                    f"its reply of status 200 is an error{detail}{self._error_text(reply, error)}"
                )
            reply_message = choice["message"]
            thought = _text(
                reply_message.get("reasoning_content") or reply_message.get("reasoning")
            )
            text = _text(reply_message.get("content"))
            tokens = (content.get("usage") or {}).get("completion_tokens")
            ended_by = _ended_by(end, reply_message)
        except _NO_JSON:
            text = shortened(self._without_secrets(reply.text))
            raise _BadReply(
                f"it answers otherwise than a chat completion, {text!r}; is the URL that of an OpenAI-compatible API?"
            ) from None
        # Some servers move the thought out of the response. Put it back, so that answers are read as from a
        # model that olr loads.
        if thought:
            text = (
                f"<think>\n{thought}\n</think>\n\n{text}" if text else f"<think>\n{thought}"
            )
        # Compare types, because a bool is an int too.
        is_count = type(tokens) is int and 0 <= tokens < 2**31
        return Rollout(
            storable(text), tokens if is_count else None, end in _CUT, ended_by=ended_by
        )


def _first_choice(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first choice of a reply to a chat completion, or an empty mapping if the reply reports an error.

    olr asks for one choice, but a server may send several, in any order. The first is the one with the lowest `index`.

    Raises:
        KeyError: the reply has neither an error nor choices.
        ValueError: the list of choices is empty.
    """
    if _error_of(content):
        return {}
    choices: Sequence[Mapping[str, Any]] = content["choices"]
    return min(choices, key=lambda it: it.get("index") or 0)


def _error_of(content: Mapping[str, Any]) -> Any:
    """Return the error that a reply reports, or None if it reports none.

    The error is usually the value under the reply's key `error`. The server FastChat instead sends a reply whose
    `object` is "error". That whole reply is then the error.
    """
    return content.get("error") or (content if content.get("object") == "error" else None)


def _is_permanent(error: Any) -> bool:
    """Whether `error`, as `_error_of` returns it, says that another attempt cannot succeed.

    Its entries `code`, `status` and `type` decide. If it has none of them, the result is False.
    """
    if not isinstance(error, dict):
        return False
    marks = [str(error.get(name)).lower() for name in ("code", "status", "type")]
    is_status = any(
        it.isdecimal() and 400 <= int(it) < 500 and int(it) not in _TRANSIENT
        for it in marks
    )
    return is_status or not _PERMANENT.isdisjoint(marks)


def _url(text: str) -> httpx.URL:
    """Parse the address of a server; raise UserError unless it is an http or https URL with a host."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535:
        raise UserError(
            "this is no URL of a server", "give one like http://host:8000/v1", "url"
        )
    return url


def _secrets_in(url: httpx.URL) -> list[str]:
    """Return the parts of a URL that may be secret, so that they can be replaced in messages.

    The parts are the login (user and password), the password alone, the query, and the query's values. The login is
    returned as written and in base64, and the password as written and decoded. Parts of up to three characters are left
    out.
    """
    login, query = url.userinfo.decode(), url.query.decode()
    basic = b64encode(f"{url.username}:{url.password}".encode()).decode()
    written, password = login.partition(":")[2], url.password
    parts = (basic, login, written, password, query, *url.params.values())
    # Shorter ones occur inside ordinary words, and replacing them would garble a message.
    return [part for part in parts if len(part) > 3]


def _end_of(choice: Mapping[str, Any]) -> str:
    """Return a choice's finish reason in lower case, with underscores and without a prefix.

    For example, `FinishReason.MAX_TOKENS` becomes `max_tokens`. The result is empty if there is no finish reason.
    """
    reason = str(choice.get("finish_reason") or "").rpartition(".")[2]
    return reason.lower().replace("-", "_").replace(" ", "_")


def _ended_by(end: str, reply_message: Mapping[str, Any]) -> str | None:
    """Return what cut a response short, as `Rollout.ended_by` stores it; None if nothing or only the length limit did.

    The result is ``content_filter``, ``refusal`` or ``tool_calls``. It follows from the finish reason `end`
    (`_end_of`), or else from a key `refusal` or `tool_calls` in the message.
    """
    marks = [
        _WITHHELD.get(end),
        *(name for name in ("refusal", "tool_calls") if reply_message.get(name)),
    ]
    return next(filter(None, marks), None)


def _refused_setting(reply: httpx.Response, sent: Mapping[str, Any]) -> str | None:
    """Return the name of the setting to leave out after a refusal, or None if leaving one out would not help.

    `sent` has the settings of the request. If the reply's status is neither 400 nor 422, the result is None. If the
    reply mentions `max_completion_tokens`, it is `max_tokens`, because the server wants the limit under the other name.
    Otherwise it is the first setting in the reply's text that can be left out: the seed, or a setting whose value has
    no effect (`_NEUTRAL`).
    """
    if reply.status_code not in (400, 422):
        return None
    if "max_tokens" in sent and "max_completion_tokens" in reply.text:
        return "max_tokens"
    optional = [name for name, value in _NEUTRAL.items() if sent.get(name) == value]
    # xAI writes presencePenalty, so compare without underscores.
    named = {name.replace("_", ""): name for name in (*optional, "seed") if name in sent}
    # Take the first: after it, a refusal may suggest another setting or repeat the whole request.
    words = (word[0].replace("_", "").lower() for word in re.finditer(r"\w+", reply.text))
    return next((named[word] for word in words if word in named), None)


def _text(content: Any) -> str:
    """Return the text of a message's content, which is a text or a list of parts; raise TypeError for anything else."""
    turn = message({"role": "assistant", "content": content})
    if turn is None:
        raise TypeError("content")
    return turn.content


def _retry_after(reply: httpx.Response, most: float) -> float | None:
    """Return the seconds in a reply's Retry-After header, limited to the range from 0 to `most`.

    Return None if there is no such header, or if it does not hold a finite number but, for example, a date.
    """
    try:
        seconds = float(reply.headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, min(most, seconds)) if math.isfinite(seconds) else None
