"""What every backend is: a model, or a server, that responds to prompts."""

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
    """A prompt, and the samples that are wanted of it.

    Attributes:
        seeds: a sample each; 0 to 2**64 - 1, of which vLLM takes the lower 63 bits.
        prompt: the messages as the model reads them (`Backend.render`).
    """

    messages: Sequence[Message]
    seeds: Sequence[int]
    prompt: str


Sampled: TypeAlias = tuple[int, int, Rollout | None]
"""The number of a request, that of a sample of it, and the rollout; None if it is lost."""


def whole_requests(
    requests: Sequence[GenerationRequest], parts: Generator[Sequence[Sampled], None, None]
) -> Generator[dict[int, list[Rollout | None]], None, None]:
    """Yield after each part the requests that now have all their samples, as `Backend.stream` does.

    Closing the iterator closes `parts`, which are the samples in the order in which they finish.
    """
    written: defaultdict[int, dict[int, Rollout | None]] = defaultdict(dict)
    yield {number: [] for number, request in enumerate(requests) if not request.seeds}
    with closing(parts):
        for part in parts:
            finished = {}
            for number, sample, rollout in part:
                written[number][sample] = rollout
                if len(written[number]) == len(requests[number].seeds):
                    rollouts = written.pop(number)
                    finished[number] = [rollouts[sample] for sample in range(len(rollouts))]
            yield finished


def in_order(
    batches: Iterable[Sequence[GenerationRequest]],
    stream: Generator[Mapping[int, Sequence[Rollout | None]], None, None],
    report: Callable[[int, int], None],
) -> Generator[list[list[Rollout]], None, None]:
    """Yield the rollouts of each batch once it and all before it are complete; `stream` responds to all their requests.

    A batch that lacks a rollout is not yielded: the stream ends with the error that says why it is lost.
    """
    numbers = count()
    there: dict[int, Sequence[Rollout | None]] = {}
    with closing(stream):
        for requests in batches:
            sizes = {next(numbers): len(request.seeds) for request in requests}
            while sizes.keys() - there.keys():
                there |= next(stream)
                done = sum(sizes[number] for number in sizes.keys() & there.keys())
                report(done, sum(sizes.values()))
            responses = [there.pop(number) for number in sizes]
            if any(None in group for group in responses):
                deque(stream, maxlen=0)
            yield [[it for it in group if it is not None] for group in responses]


class Backend(AbstractContextManager["Backend"]):
    """A model that is ready to respond; leaving the context frees it.

    Attributes:
        model: folder or hub id, for errors.
        facts: the things that responses depend on: name, model_digest, device, dtype, versions.
        context: the most tokens, prompt and response together, that the model is made for; None if it doesn't say.
        notes: sentences about weights that the model's files have too many.
    """

    model: str
    facts: Mapping[str, Any]
    tokenizer: Any
    context: int | None
    notes: Sequence[str] = ()
    chat: ChatFormat = AS_THE_MODEL_HAS_IT

    @abstractmethod
    def stream(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[Mapping[int, Sequence[Rollout | None]], None, None]:
        """Respond to every request as often as it has seeds; they are begun in this order, as far as the backend can.

        A response ends where the model's context ends, if that comes before the length limit. Closing the iterator
        drops the requests that are not finished.

        Yields:
            The requests that have finished since the last time, by their number in `requests`: a rollout a seed, or
            None for one that is lost. While a backend works on long responses there may be none, so that the caller can
            look after something else.
        """

    def requests(
        self, prompts: Sequence[Sequence[Message]], seeds: Sequence[Sequence[int]]
    ) -> list[GenerationRequest]:
        """A request for every prompt, with its seeds."""
        parts = zip(prompts, seeds, self.render(prompts), strict=True)
        return [GenerationRequest(*request) for request in parts]

    def batches(
        self,
        batches: Iterable[Sequence[GenerationRequest]],
        sampling: Sampling,
        report: Callable[[int, int], None],
    ) -> Generator[list[list[Rollout]], None, None]:
        """Yield the rollouts of each batch of requests, in order, as soon as it is complete; errors as of `stream`.

        A batch is begun when the one before it is taken. `report` takes, now and then, how many rollouts of the batch
        in progress are there, and how many it has.
        """
        for requests in batches:
            yield from in_order([requests], self.stream(requests, sampling), report)

    @property
    def has_chat_template(self) -> bool:
        """Whether the model reads prompts as chat turns; if not, as plain text."""
        return prompt_text.has_chat_template(self.tokenizer, self.chat)

    def render(self, prompts: Sequence[Sequence[Message]]) -> list[str]:
        """Prompts as texts, exactly as the model will read them; many at once, since a call may fork this process."""
        return prompt_text.render_all(self.tokenizer, prompts, self.chat)

    def encode(
        self, prompts: Sequence[str], sampling: Sampling
    ) -> tuple[list[list[int]], list[int]]:
        """Token ids of rendered prompts, and the most tokens that each prompt's responses may have."""
        # Refuses one that would never be found
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
