r"""How the paper's printed scores were made, and what was done otherwise in an evaluation beside them.

The facts are those of the authors' files and scripts (https://github.com/ShenzhiYang2000/OLR, `data/` and
`eval_scripts/`), which depart from the paper's text:

- AIME and AMC: avg@8, not avg@32. Their file repeats each problem 8 times, and each row is sampled once. Of the 68
  settings in the paper's tables, 67 AIME24 and 68 AIME25 scores are multiples of 1/240 (28 % would be by chance), and
  67 AMC scores multiples of 1/664 (66 % would be).
- Qwen models read ChatML with R21's system message, as their own chat template writes it. DeepSeek-R1-Distill-Llama
  read the system message and the question joined without a separator, without a chat template.
- GPQA's options stand in an order of their own, and 187 of 198 questions end without a line break (ARC's all have it).
- Of multiple-choice answers, a box with more than the letter, such as ``B) Planets`` or ``B.``, counts as wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from olr_cli.data.prompts import SYSTEM_PROMPT
from olr_cli.engines.prompt_text import ChatFormat
from olr_cli.errors import UserError
from olr_cli.evaluation.backends import Sampling
from olr_cli.evaluation.benchmark import Benchmark
from olr_cli.evaluation.evaluate import Settings
from olr_cli.evaluation.folder import Protocol, Target, finished, read_evaluation
from olr_cli.evaluation.published import PublishedRow
from olr_cli.evaluation.scores import is_evaluation

SAMPLES = {"aime24": 8, "aime25": 8, "amc": 8}
"""Samples of a problem behind the printed scores; 1 for the other benchmarks."""

SAMPLING = Sampling(temperature=0.6, max_new_tokens=4096)

JOINED = "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}"
"""Messages without anything between them, as a chat template."""

_WITHOUT_TEMPLATE = frozenset({"DeepSeek-R1-Distill-Llama-8B"})

_CHATML = f"<|im_start|>system\n{SYSTEM_PROMPT}<|im_end|>\n<|im_start|>user\n"
_CHATML_END = "<|im_end|>\n<|im_start|>assistant\n"

_START = re.compile(r"^<[^<>\s]{1,40}>")
"""The token that begins a text."""
_TURN = re.compile(r"<[|｜](?:User|im_start|start_header_id)[|｜]>")
"""A chat template's mark of a turn."""

_LETTER_ALONE = re.compile(
    r"\s*\$?\s*(?:\\(?:text|textbf|mathbf|mathrm)\s*\{)?\s*[(\[{]?\s*[A-Za-z0-9]\s*[)\]}]?\s*\}?\s*\$?\s*"
)


def protocol_of(named: str | None, compare: str | None, targets: Sequence[Target]) -> Protocol:
    """The protocol of a command: as named; else that of the evaluation it goes on with; else what fits `--compare`.

    Raises:
        UserError: none is named, and evaluations that were begun have different ones.
    """
    if named is not None:
        return "paper" if named == "paper" else "standard"
    begun = {read_evaluation(it.folder).protocol for it in targets if is_evaluation(it.folder)}
    if len(begun) > 1:
        raise UserError(
            "these evaluations were begun under different protocols; name one with --protocol, or evaluate them one at"
            " a time"
        )
    return begun.pop() if begun else "paper" if compare == "paper" else "standard"


def follow(
    protocol: Protocol, benchmarks: Sequence[Benchmark], settings: Settings, model: str
) -> tuple[list[Benchmark], Settings]:
    """Benchmarks and settings under a protocol; what the command line sets stays.

    Args:
        protocol: ``standard`` changes nothing.
        benchmarks: as they are defined.
        settings: of the command.
        model: as the paper's tables call it: one of theirs is asked as its row was.
    """
    if protocol == "standard":
        return list(benchmarks), settings
    prompting = settings.prompting
    if model in _WITHOUT_TEMPLATE and prompting.chat.template is None:
        prompting = replace(prompting, chat=ChatFormat(JOINED, prompting.chat.variables))
    settings = replace(settings, prompting=prompting, protocol=protocol)
    return [of_the_paper(benchmark) for benchmark in benchmarks], settings


def of_the_paper(benchmark: Benchmark) -> Benchmark:
    """A benchmark as the printed scores were made: its samples, and GPQA's questions without the last line break."""
    changes: dict[str, object] = {"samples": SAMPLES.get(benchmark.name, 1)}
    if benchmark.name == "gpqa_diamond":
        changes["prompt"] = benchmark.prompt.rstrip("\n")
    return benchmark.model_copy(update=changes)


def differences(target: Target, row: PublishedRow) -> Iterator[str]:
    """What was done otherwise in an evaluation than for the paper's row beside it, a sentence each."""
    record = read_evaluation(target.folder)
    names = [name for name in finished(target.folder) if name in row.scores]
    tasks = {name: record.benchmarks[name] for name in names}
    titles = {name: task.definition.title for name, task in tasks.items()}
    by_samples: dict[tuple[int, int], list[str]] = {}
    for name, task in tasks.items():
        if task.samples != (theirs := SAMPLES.get(name, 1)):
            by_samples.setdefault((task.samples, theirs), []).append(titles[name])
    for (ours, theirs), which in by_samples.items():
        yield f"{', '.join(which)}: avg@{ours} here, avg@{theirs} in the paper's tables."
    for key, value in vars(SAMPLING).items():
        if (ours := getattr(record.sampling, key)) != value:
            yield f"Sampled with {key} {ours}; the paper with {value}."
    otherwise = [
        name
        for name in names
        if not all(
            _is_framed(prompt, row.setting.model)
            for prompt in target.store(name).read(["problem_id", "prompt"])["prompt"].unique()
        )
    ]
    if otherwise:
        how = (
            "system message and question joined, without a chat template"
            if row.setting.model in _WITHOUT_TEMPLATE
            else "ChatML with R21's system message"
        )
        yield f"The paper's prompts were {how}; {_listed(otherwise, titles)} were asked otherwise."
    from_hub = [name for name, task in tasks.items() if task.definition.source.hub and not task.data]
    if from_hub:
        order = " and GPQA's options in another order" if "gpqa_diamond" in from_hub else ""
        yield (
            f"{_listed(from_hub, titles)} came from the hub; the authors' files (data/valid.*.parquet of"
            f" github.com/ShenzhiYang2000/OLR, --data) have other white space{order}."
        )
    for name, task in tasks.items():
        if task.definition.grader == "choice":
            yield from _choice_grading(target, name, titles[name])
    mathematics = [name for name, task in tasks.items() if task.definition.grader == "math"]
    if mathematics:
        yield f"{_listed(mathematics, titles)}: graded by olr's rules (R7), not by the authors' grader."
    old = [name for name in record.old_grades if name in tasks]
    if old:
        yield f"{_listed(old, titles)}: graded by an older olr; --regrade grades again."
    if row.setting.method != "base":
        chosen = target.origin.get("chosen", "named")
        yield (
            "The paper's trained models are the best of several checkpoints on data with some of these benchmarks;"
            f" this checkpoint: {chosen} (R22)."
        )


def _listed(names: Sequence[str], titles: dict[str, str]) -> str:
    return ", ".join(titles[name] for name in names)


def _is_framed(prompt: str, model: str) -> bool:
    """Whether a prompt stands in the authors' frame for a model."""
    if model not in _WITHOUT_TEMPLATE:
        return prompt.startswith(_CHATML) and prompt.endswith(_CHATML_END)
    text = _START.sub("", prompt)
    question = text.removeprefix(SYSTEM_PROMPT)
    return question != text and not question.startswith("\n") and _TURN.search(question) is None


def _choice_grading(target: Target, name: str, title: str) -> Iterator[str]:
    """How many right answers of a multiple-choice benchmark the authors' grader would not take."""
    rows = target.store(name).read(["problem_id", "answer", "is_correct"])
    right = rows.filter(rows["is_correct"])["answer"].to_list()
    longer = sum(_LETTER_ALONE.fullmatch(answer or "") is None for answer in right)
    if longer:
        points = 100 * longer / rows.height
        yield (
            f"{title}: {longer:,} of {len(right):,} right answers have more than the letter in the box, as in"
            f" `B) Planets`; the authors' grader counts these as wrong, {points:.1f} points in all."
        )
