"""A benchmark of sums, and a backend that answers them without a model, so that an evaluation takes no time."""

import json
from pathlib import Path

from samples import json_lines

from olr_cli.evaluation.benchmark import Benchmark, read_benchmark
from olr_cli.evaluation.evaluate import evaluate
from olr_cli.evaluation.plan import Evaluation, EvaluationRequest
from olr_cli.evaluation.record import Generation
from olr_cli.evaluation.store import Target
from olr_cli.supervision import Rollout

PROBLEMS = 12
SAMPLES = 16
CHUNK = 4
"""Problems that `Backend` finishes at a time; their samples are stored together."""
FACTS = {
    "name": "transformers",
    "model_digest": "sha256:1234",
    "device": "cpu",
    "dtype": "float32",
}


class Backend:
    """A backend that answers sums without a model: wrongly if the sample's seed is divisible by 3.

    `asked` collects the questions, a list for each chunk of problems. `before_chunk` is called with the chunk's number,
    from 1. `facts` replace entries of `FACTS`.
    """

    def __init__(
        self, before_chunk=lambda number: None, *, has_chat_template=True, **facts
    ):
        self.facts, self.notes = FACTS | facts, ()
        self.has_chat_template = has_chat_template
        self.asked = []
        self._before_chunk = before_chunk

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def render(self, prompts):
        """Return each prompt's messages, joined by line breaks."""
        return ["\n".join(message.content for message in messages) for messages in prompts]

    def stream(self, requests, sampling):
        """Yield for each chunk of requests a dict: number of the request -> its rollouts, one per seed."""
        for first in range(0, len(requests), CHUNK):
            self._before_chunk(len(self.asked) + 1)
            chunk = range(first, min(first + CHUNK, len(requests)))
            self.asked.append([requests[number].messages[-1].content for number in chunk])
            yield {
                number: [
                    self._answer(requests[number].messages[-1].content, seed)
                    for seed in requests[number].seeds
                ]
                for number in chunk
            }

    def _answer(self, question, seed):
        """Return a rollout that answers ``a + b = ?``; the seed decides its tokens, truncation and rightness."""
        value = sum(map(int, question.removesuffix(" = ?").split(" + "))) + (seed % 3 == 0)
        return Rollout(f"It is \\boxed{{{value}}}.", 5 + seed % 7, seed % 11 == 0)


class Silent:
    """A progress display that shows nothing; `told` collects its calls as tuples, name first."""

    def __init__(self):
        self.told = []

    def start(self, name, samples, done, *, is_served=False):
        self.told.append(("start", samples, done))

    def generating(self, titles):
        self.told.append(("generating", titles))

    def advance(self, samples):
        self.told.append(("advance", samples))

    def say(self, sentence):
        self.told.append(("say", sentence))

    def stop(self):
        pass


def sample(
    response: str, gold: str, choices: int | None = None, problem_id: str = ""
) -> Generation:
    """Return a generation with this response, ready to be graded against `gold`.

    The problem's id is by default ``with gold <gold>``. `choices` is the number of choices of a multiple-choice
    problem.
    """
    return Generation(
        benchmark="sums", problem_id=problem_id or f"with gold {gold}", sample=0, prompt="", response=response,
        gold=gold, choices=choices, tokens=1, truncated=False, seed=0,
    )  # fmt: skip


def write_sums(
    folder: Path, name: str = "sums", problems: int = PROBLEMS, first: int = 0, **keys
) -> Path:
    """Write a benchmark of sums, `first` + 7 and so on: its YAML file, which is returned, and its problems.

    `keys` are further or other entries of the YAML file.
    """
    rows = [
        {"question": f"{number} + 7 = ?", "answer": str(number + 7)}
        for number in range(first, first + problems)
    ]
    json_lines(folder / f"{name}.jsonl", *rows)
    entries = {"name": name, "samples": SAMPLES, "source": {"file": f"{name}.jsonl"}} | keys
    file = folder / f"{name}.yaml"
    file.write_text(
        "".join(f"{key}: {json.dumps(value)}\n" for key, value in entries.items())
    )
    return file


def sums(folder: Path, name: str = "sums", **keys) -> Benchmark:
    """Write a benchmark of sums as `write_sums` does, and return it as read by olr."""
    return read_benchmark(write_sums(folder, name, **keys))


def run(
    folder, benchmarks, backend=None, *, model="someone/model", progress=None, **settings
):
    """Evaluate some benchmarks in `folder` and return a score for each, without showing progress unless asked to.

    `backend` answers. Without one, everything must be stored already: loading a model would fail the test. `settings`
    are those of an `EvaluationRequest`.
    """

    def no_model():
        # An evaluation whose samples are all stored must not need its model.
        raise AssertionError("the model was loaded")

    # Without a backend, everything has to come from the store.
    request = EvaluationRequest(**settings)
    evaluation = Evaluation(
        Target(str(model), folder, "some model", {}), request.tasks(benchmarks), request
    )
    return evaluate(
        evaluation, progress or Silent(), no_model if backend is None else lambda: backend
    )
