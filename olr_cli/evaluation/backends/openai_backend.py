"""Generation by an OpenAI-compatible server: chat completions over HTTP, many at a time.

The server renders prompts and counts tokens. A request that fails for a while (429, 5xx, a timeout, a lost connection)
is sent again after a pause that doubles each time, or that the server names (Retry-After).
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue
from typing import Any

import httpx

from olr_cli.data.chat import Message
from olr_cli.engines import prompt_text
from olr_cli.engines.prompt_text import ChatFormat
from olr_cli.errors import UserError, did_you_mean, first_line
from olr_cli.evaluation.backends import Backend, GenerationRequest, Sampling
from olr_cli.supervision import Rollout

KEY = "OPENAI_API_KEY"
"""The environment variable with the server's key."""
ATTEMPTS = 8
"""How often a request is sent before the evaluation stops: with the pauses, about two minutes without an answer."""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds between two attempts; a server's own wish may be longer."""
TIMEOUT = httpx.Timeout(20.0, read=1800.0, pool=None)
"""Seconds to connect and to send; a long response may take long."""
_WAITED = 0.5
_TRANSIENT = {408, 409, 429, 500, 502, 503, 504, 529}


class OpenAIBackend(Backend):
    """Generation by a server that speaks the OpenAI API: vLLM's, SGLang's, llama.cpp's, OpenAI's own.

    A sample is a request with a seed of its own, which some servers ignore.

    Attributes:
        concurrency: the most requests at a time.
        headers: sent with every request.
    """

    def __init__(self, model: str, *, url: str, concurrency: int, chat: ChatFormat) -> None:
        """Ask the server for its models.

        Args:
            model: the server's name for it.
            url: the API's address, such as ``http://localhost:8000/v1``.
            concurrency: the most requests at a time.
            chat: variables for the server's chat template; its template cannot be replaced.

        Raises:
            UserError: the server cannot be reached, refuses the key, or has no such model.
        """
        if chat.template is not None:
            raise UserError("a server renders prompts by its own chat template; leave --chat-template out")
        self.model, self.tokenizer, self.context, self.chat = model, None, None, chat
        try:
            self._url = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise UserError(
                f"--url {url} is no URL ({first_line(error)}); give one like http://host:8000/v1"
            ) from None
        if self._url.scheme not in ("http", "https") or not self._url.host:
            raise UserError(f"--url {url} is no URL of a server; give one like http://host:8000/v1")
        self.concurrency = concurrency
        self._limit_name = "max_tokens"
        key = os.environ.get(KEY)
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.facts = {
            "name": "openai",
            "model_digest": f"server:{model}",
            "device": "server",
            "dtype": "unknown",
            "url": str(self._url),
            **self._served(),
        }

    @property
    def has_chat_template(self) -> bool:
        """Whether the model reads chat turns, which is the server's business."""
        return True

    def render(self, prompts: Sequence[Sequence[Message]]) -> list[str]:
        """The messages as plain text; only the server knows what the model reads."""
        return prompt_text.render_all(None, prompts, ChatFormat(template=""))

    def __exit__(self, *error: object) -> None:
        """Nothing to free: `stream` closes its connections."""

    def stream(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[Mapping[int, list[Rollout]], None, None]:
        """See `Backend`."""
        written: dict[int, dict[int, Rollout]] = defaultdict(dict)
        left = sum(len(request.seeds) for request in requests)
        yield {number: [] for number, request in enumerate(requests) if not request.seeds}
        with _Requests(self, requests, sampling) as arriving:
            while left:
                finished: dict[int, list[Rollout]] = {}
                for number, sample, rollout in arriving.next():
                    left -= 1
                    written[number][sample] = rollout
                    if len(written[number]) == len(requests[number].seeds):
                        samples = written.pop(number)
                        finished[number] = [samples[sample] for sample in range(len(samples))]
                yield finished

    async def ask(
        self, client: httpx.AsyncClient, request: GenerationRequest, seed: int, sampling: Sampling
    ) -> Rollout:
        """One sample of a request.

        Raises:
            UserError: the server refuses it, or does not answer for long.
        """
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": turn.role, "content": turn.content} for turn in request.messages],
            "temperature": sampling.temperature,
            self._limit_name: sampling.max_new_tokens,
        }
        if sampling.temperature:
            body["seed"] = seed & (2**63 - 1)
        if sampling.top_p != 1:
            body["top_p"] = sampling.top_p
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        # Not in OpenAI's own API; servers of open models know them.
        if sampling.top_k is not None:
            body["top_k"] = sampling.top_k
        if sampling.min_p:
            body["min_p"] = sampling.min_p
        if self.chat.variables:
            body["chat_template_kwargs"] = dict(self.chat.variables)
        reply = await self._post(client, body)
        if reply.status_code == 400 and "max_completion_tokens" in reply.text and "max_tokens" in body:
            # Newer models of OpenAI's know the limit by this name alone; another request may have found it out already.
            body["max_completion_tokens"] = body.pop("max_tokens")
            reply = await self._post(client, body)
            self._limit_name = "max_completion_tokens"
        if reply.status_code != 200:
            raise self._refusal(reply)
        return self._rollout(reply)

    async def _post(self, client: httpx.AsyncClient, body: Mapping[str, Any]) -> httpx.Response:
        """The server's answer, which says that the request is done or wrong."""
        for attempt in range(ATTEMPTS):
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1)
            try:
                reply = await client.post(f"{self._url}/chat/completions", json=body)
            except (httpx.TransportError, httpx.DecodingError) as error:
                reason = (
                    f"{type(error).__name__}: {first_line(error)}" if str(error) else type(error).__name__
                )
            else:
                if reply.status_code not in _TRANSIENT:
                    return reply
                reason = f"status {reply.status_code}{_said(reply)}"
                pause = _wished(reply) or pause
            if attempt + 1 < ATTEMPTS:
                await asyncio.sleep(pause)
        raise UserError(
            f"{self._url} did not answer a request in {ATTEMPTS} attempts ({reason}); see to the server, or lower"
            " --concurrency, and run the same command again"
        )

    def _rollout(self, reply: httpx.Response) -> Rollout:
        try:
            content = reply.json()
            choice = content["choices"][0]
            message, tokens = choice["message"], int(content["usage"]["completion_tokens"])
            text = message.get("content") or ""
            thought = message.get("reasoning_content") or message.get("reasoning")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            raise UserError(
                f"{self._url} answers otherwise than a chat completion with its usage ({reply.text[:80]!r}); check that"
                " --url names an OpenAI-compatible API"
            ) from None
        if thought:  # which some servers take out of the response
            text = f"<think>\n{thought}\n</think>\n\n{text}" if text else f"<think>\n{thought}"
        return Rollout(text, tokens, choice.get("finish_reason") == "length")

    def _served(self) -> dict[str, Any]:
        """What the server says about the model: the name behind it."""
        try:
            reply = httpx.get(f"{self._url}/models", headers=self.headers, timeout=20.0)
        except httpx.TransportError as error:
            raise UserError(
                f"no server answers at {self._url} ({first_line(error)}); start it, or mend --url"
            ) from None
        if reply.status_code in (401, 403):
            raise self._refusal(reply)
        try:
            models = {str(entry["id"]): entry for entry in reply.json()["data"]}
        except (ValueError, KeyError, TypeError):
            if reply.status_code == 404 and self._url.path.rstrip("/").rpartition("/")[2] != "v1":
                raise UserError(
                    f"{self._url} has no list of models; the API's address mostly ends in /v1 ({self._url}/v1?)"
                ) from None
            return {}  # it does not list them
        if models and self.model not in models:
            raise UserError(
                f"{self._url} has no model '{self.model}'{did_you_mean(self.model, models)}; it has"
                f" {', '.join(list(models)[:20])}"
            )
        root = models.get(self.model, {}).get("root")
        return {"served_model": str(root)} if root else {}

    def _refusal(self, reply: httpx.Response) -> UserError:
        said = _said(reply)
        if reply.status_code in (401, 403):
            key = f"the key in {KEY}" if self.headers else "a request without a key"
            return UserError(
                f"{self._url} refuses {key} (status {reply.status_code}{said}); set the environment variable {KEY}"
            )
        if any(word in reply.text for word in ("context length", "max_model_len", "context window")):
            return UserError(
                f"a prompt with its response does not fit the server's context{said}; give a smaller --max-new-tokens,"
                " or start the server with a longer context"
            )
        return UserError(
            f"{self._url} refuses a request (status {reply.status_code}{said}); mend what it names"
        )


class _Requests:
    """The samples of a stream on their way: an event loop in a thread of its own, which cancels them when it closes."""

    def __init__(
        self, backend: OpenAIBackend, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> None:
        self._backend, self._requests, self._sampling = backend, requests, sampling
        self._arrived: SimpleQueue[tuple[int, int, Rollout] | BaseException] = SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="olr-requests", daemon=True)

    def __enter__(self) -> _Requests:
        self._all = self._loop.create_task(self._ask_all())
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._all.cancel)
        self._thread.join()

    def next(self) -> Iterator[tuple[int, int, Rollout]]:
        """What has arrived: request, sample and rollout; after a moment there may be nothing.

        Raises:
            UserError: the server refuses a request, or does not answer.
        """
        with suppress(Empty):
            arrived = self._arrived.get(timeout=_WAITED)
            while True:
                if isinstance(arrived, BaseException):
                    raise arrived
                yield arrived
                arrived = self._arrived.get_nowait()

    def _run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._all)
        except Exception as error:
            self._arrived.put(error)
        finally:
            self._loop.close()

    async def _ask_all(self) -> None:
        coming = (
            (number, sample, seed)
            for number, request in enumerate(self._requests)
            for sample, seed in enumerate(request.seeds)
        )
        most = self._backend.concurrency
        limits = httpx.Limits(max_connections=most, max_keepalive_connections=most)
        async with httpx.AsyncClient(headers=self._backend.headers, timeout=TIMEOUT, limits=limits) as client:

            async def ask_on() -> None:
                for number, sample, seed in coming:
                    rollout = await self._backend.ask(client, self._requests[number], seed, self._sampling)
                    self._arrived.put((number, sample, rollout))

            workers = [asyncio.ensure_future(ask_on()) for _ in range(most)]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)


def _said(reply: httpx.Response) -> str:
    """The server's own words, as the end of a bracket."""
    try:
        content = reply.json()
        error = content.get("error", content)
        message = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        message = reply.text
    words = " ".join(str(message or "").split())[:200].rstrip(".")
    return f": {words}" if words else ""


def _wished(reply: httpx.Response) -> float | None:
    """The seconds that the server asks to wait; None if it does not say."""
    wish = reply.headers.get("retry-after", "")
    with suppress(ValueError):
        return max(0.0, float(wish))
    with suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(wish) - datetime.now(UTC)).total_seconds())
    return None
