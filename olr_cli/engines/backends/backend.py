"""The interface of every backend: a model, or a server, that responds to prompts."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

from olr_cli.data.chat import Message
from olr_cli.engines import prompt_text
from olr_cli.engines.prompt_text import AS_THE_MODEL_HAS_IT, ChatFormat
from olr_cli.errors import UserError
from olr_cli.recipe.sampling import Sampling
from olr_cli.supervision import Rollout


@dataclass(frozen=True)
class GenerationRequest:
    """A prompt, as chat messages and as the text that the model reads, with a seed for each response to generate.

    `Backend.requests` makes it.
    """

    messages: Sequence[Message]
    seeds: Sequence[int]
    """One per sample, from 0 to 2**64 - 1. vLLM takes the lower 63 bits."""

    prompt: str
    """The messages as the model reads them (`Backend.render`)."""


Sampled: TypeAlias = tuple[int, int, Rollout | None]
"""The index of a request, the index of one of its samples, and the rollout, or None if the sample is lost."""


def whole_requests(
    requests: Sequence[GenerationRequest], parts: Generator[Sequence[Sampled], None, None]
) -> Generator[dict[int, list[Rollout | None]], None, None]:
    """Collect samples, and yield the rollouts of a request as soon as its last sample has arrived or is lost.

    Args:
        requests: all requests.
        parts: yields lists of the samples that have come since the last list. A sample is the index of its request, its
            own index within the request, and its rollout, or None if a server did not deliver it. Closing this
            generator closes `parts` too.

    Yields:
        A mapping from the index of a request in `requests` to its rollouts, one per seed, with None for a lost one. The
        first mapping has the requests without seeds, each with an empty list. Each later mapping has the requests that
        a list in `parts` has completed. Any mapping may be empty.
    """
    received: defaultdict[int, dict[int, Rollout | None]] = defaultdict(dict)
    # No part will ever name a request without seeds, so it would stay unfinished.
    yield {number: [] for number, request in enumerate(requests) if not request.seeds}
    with closing(parts):
        for part in parts:
            finished = {}
            for number, sample, rollout in part:
                received[number][sample] = rollout
                if len(received[number]) == len(requests[number].seeds):
                    rollouts = received.pop(number)
                    finished[number] = [rollouts[sample] for sample in range(len(rollouts))]
            yield finished


def in_order(
    batches: Iterable[Sequence[GenerationRequest]],
    stream: Generator[Mapping[int, Sequence[Rollout | None]], None, None],
    report: Callable[[int, int], None],
) -> Generator[list[list[Rollout]], None, None]:
    """Yield the rollouts of each batch, a list per request, once this batch and all earlier ones are complete.

    If a rollout of a batch is None (lost), neither this batch nor a later one is yielded. `stream` is read to its end,
    where it must raise an error, which reaches the caller.

    Args:
        batches: the requests of each batch.
        stream: yields mappings from the number of a request to its rollouts. Requests are numbered from 0 through all
            batches.
        report: is called each time that `stream` yields. The first argument is the number of rollouts in the complete
            requests of the current batch. The second is the number of all rollouts of the batch.
    """
    # The stream numbers the requests of all batches in one sequence.
    numbers = count()
    arrived: dict[int, Sequence[Rollout | None]] = {}
    with closing(stream):
        for requests in batches:
            sizes = {next(numbers): len(request.seeds) for request in requests}
            while sizes.keys() - arrived.keys():
                arrived |= next(stream)
                done = sum(sizes[number] for number in sizes.keys() & arrived.keys())
                report(done, sum(sizes.values()))
            responses = [arrived.pop(number) for number in sizes]
            if any(None in group for group in responses):
                # Read the stream to its end, where it raises: the reason of a lost rollout is known only after all
                # others.
                deque(stream, maxlen=0)
            yield [[it for it in group if it is not None] for group in responses]


class Backend(AbstractContextManager["Backend"]):
    """A model that generates responses to prompts, loaded in this process or held by a server.

    `BackendOptions.open` makes it. It is a context manager, and leaving the context frees what it holds.
    """

    model: str
    """Folder or hub id, for error messages."""

    facts: Mapping[str, Any]
    """Everything that responses depend on: name, model_digest, device, dtype, versions."""

    tokenizer: Any
    context: int | None
    """Largest number of tokens, prompt and response together, that the model is made for, or None if it is unknown."""

    notes: Sequence[str] = ()
    """Sentences about weights that the files hold but the model lacks."""

    chat: ChatFormat = AS_THE_MODEL_HAS_IT

    @abstractmethod
    def stream(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[Mapping[int, Sequence[Rollout | None]], None, None]:
        """Generate one response per seed of every request, and yield the requests as they finish.

        Requests are started in the given order as far as the backend can. A response is cut off at the length limit, or
        where the model's context ends if that comes first. Closing the generator drops unfinished requests.

        Yields:
            A mapping from the index of a request in `requests` to its rollouts, one per seed, for the requests that
            have finished since the last mapping. It may be empty, so that the caller can do other work in the meantime.
            A rollout is None if a server did not deliver it; the stream then ends with an error.

        Raises:
            UserError: a prompt leaves no room for a response, vLLM fails, or a server refuses or does not deliver a
                response.
        """

    def requests(
        self, prompts: Sequence[Sequence[Message]], seeds: Sequence[Sequence[int]]
    ) -> list[GenerationRequest]:
        """Return one request per prompt; `seeds` has, for each prompt, a seed for each response to generate."""
        parts = zip(prompts, seeds, self.render(prompts), strict=True)
        return [GenerationRequest(*request) for request in parts]

    def batches(
        self,
        batches: Iterable[Sequence[GenerationRequest]],
        sampling: Sampling,
        report: Callable[[int, int], None],
    ) -> Generator[list[list[Rollout]], None, None]:
        """Yield the rollouts of each batch, a list per request, as soon as the batch is complete.

        A batch starts when the caller asks for it, unless a subclass starts it earlier. `report` is called while a
        batch is in progress. Its arguments are the number of rollouts in complete requests of the batch, and the number
        of all its rollouts. Errors of `stream` reach the caller.
        """
        for requests in batches:
            yield from in_order([requests], self.stream(requests, sampling), report)

    @property
    def has_chat_template(self) -> bool:
        """Whether the model reads prompts as chat turns; if not, it reads plain text."""
        return prompt_text.has_chat_template(self.tokenizer, self.chat)

    def render(self, prompts: Sequence[Sequence[Message]]) -> list[str]:
        """Return each prompt, a list of chat messages, as the text that the model will read."""
        return prompt_text.render_all(self.tokenizer, prompts, self.chat)

    def encode(
        self, prompts: Sequence[str], sampling: Sampling
    ) -> tuple[list[list[int]], list[int]]:
        """Return the token ids of each rendered prompt, and for each prompt the most tokens that its response may have.

        The limit is `sampling.max_new_tokens`, or less if the prompt leaves less room in the model's context.

        Raises:
            UserError: a prompt leaves no room for a response, or a stop text can never occur in a response.
        """
        # For its error alone: a stop text that no decoded response can contain would never be found.
        prompt_text.stop_ids(self.tokenizer, sampling.stop)
        tokens = prompt_text.tokenize(self.tokenizer, prompts, self.chat)
        if self.context is None:
            return tokens, [sampling.max_new_tokens] * len(tokens)
        too_long = [len(prompt) for prompt in tokens if len(prompt) >= self.context]
        if too_long:
            raise UserError(
                f"{len(too_long)} of {len(tokens)} prompts leave no room for a response (the longest has"
                f" {max(too_long)} tokens, and {self.model} can read {self.context})",
                "use a model with a longer context",
            )
        return tokens, [
            min(sampling.max_new_tokens, self.context - len(prompt)) for prompt in tokens
        ]
