"""Sample logs of lm-evaluation-harness (``lm_eval --log_samples --output_path DIR``), as of version 0.4.13.

    DIR/<model>/results_<date>.json            scores, settings, versions
    DIR/<model>/samples_<task>_<date>.jsonl    a line a problem and filter: doc_id, doc, target, resps, filter, …

`resps` holds the responses as generated, `filtered_resps` what a filter made of them. A task with several filters has a
line for each, with the same responses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from olr_cli.answers.extraction import boxed
from olr_cli.errors import UserError, no_path
from olr_cli.files import read_json, read_lines

TOOL = "lm-eval"
PATTERN = "samples_*.jsonl"

_MAX_NEW_TOKENS = 256
"""Where a task doesn't say, lm-eval generates at most so many tokens."""


@dataclass(frozen=True)
class LoggedSample:
    """A problem and a model's responses to it.

    Attributes:
        problem_id: unique in its task.
        texts: every text of the problem's record, one of them usually the bare question.
        prompt: as the model read it, as far as the log says.
        gold: what the log gives as the right answer; of a worked solution, what it ends with.
        responses: at least one.
        metrics: the tool's own scores of the problem, by name.
    """

    problem_id: str
    texts: frozenset[str]
    prompt: str
    gold: str
    responses: tuple[str, ...]
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class LoggedTask:
    """A task of a log.

    Attributes:
        name: as the tool calls it.
        file: where it was read from.
        temperature: 0 where the most likely token was taken.
        max_new_tokens: length limit of a response.
    """

    name: str
    file: Path
    samples: Sequence[LoggedSample]
    temperature: float
    max_new_tokens: int

    @property
    def metrics(self) -> dict[str, float]:
        """The tool's own scores: the mean over problems of each metric that every problem has."""
        names = [name for name in self.samples[0].metrics if all(name in s.metrics for s in self.samples)]
        return {
            name: sum(sample.metrics[name] for sample in self.samples) / len(self.samples) for name in names
        }


@dataclass(frozen=True)
class Log:
    """A model's responses to the tasks of lm-eval.

    Attributes:
        version: of the tool; empty if the log doesn't say.
        model: as the log calls it: a hub id or a folder.
        left_out: tasks without generated text.
        facts: what else is known of how the responses were made.
    """

    version: str
    model: str
    tasks: Sequence[LoggedTask]
    left_out: Sequence[str]
    facts: Mapping[str, str]


def read_log(path: Path) -> Log:
    """The log at a place: a file, or a folder that is searched; of a task that was run several times the latest run.

    A file without generated text is an error only if it is alone.

    Raises:
        UserError: there is no log, it is damaged, of several models, or has no generated text.
    """
    if not path.exists():
        raise no_path(path, "name a sample log, or the folder that lm-eval wrote")
    files = [path] if path.is_file() else sorted(path.rglob(PATTERN))
    if not files or files[0].suffix != ".jsonl":
        raise UserError(f"{path} has no sample log ({PATTERN}, which lm_eval --log_samples writes)")
    results = {file: _results(file) for file in files}
    models = {
        file: str(result.get("model_name") or file.parent.name.replace("__", "/"))
        for file, result in results.items()
    }
    if len(set(models.values())) > 1:
        names, folders = (
            ", ".join(sorted(set(texts)))
            for texts in (models.values(), (str(file.parent) for file in models))
        )
        raise UserError(
            f"there are logs of {len(set(models.values()))} models ({names}); name one of {folders}"
        )
    read = {name: _task(name, file) for name, file in _latest(files).items()}
    tasks = [task for task in read.values() if task is not None]
    if not tasks:
        raise UserError(
            f"{files[0]} has likelihoods of given answers and no generated text, so there is nothing to grade again;"
            " import a task that generates"
        )
    result = results[tasks[0].file]
    config = result.get("config")
    facts = {
        key: str(value)
        for key, value in {
            "backend": result.get("model_source"),
            "dtype": config.get("model_dtype") if isinstance(config, dict) else None,
            "transformers": result.get("transformers_version"),
        }.items()
        if value
    }
    left_out = [name for name, task in read.items() if task is None]
    return Log(str(result.get("lm_eval_version") or ""), models[files[0]], tasks, left_out, facts)


def _results(file: Path) -> dict[str, Any]:
    """The results file of the same date; empty if there is none."""
    date = file.stem.rpartition("_")[2]
    beside = file.with_name(f"results_{date}.json")
    try:
        plain = read_json(beside)
    except UserError:
        return {}
    return plain if isinstance(plain, dict) else {}


def _task(name: str, file: Path) -> LoggedTask | None:
    """A task; None if it has no generated text."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for line in _lines(file):
        lines.setdefault(str(line["doc_id"]), []).append(line)
    if not lines:
        raise _damaged(file, "it is empty")
    samples, settings = [], dict[str, Any]()
    for problem_id, filtered in lines.items():
        first = filtered[0]
        try:
            responses = _responses(first["resps"])
            prompt, settings = _arguments(first["arguments"])
        except (TypeError, AttributeError):
            raise _damaged(file, f"resps or arguments of problem {problem_id} are wrong") from None
        if responses is None:
            return None
        samples.append(
            LoggedSample(
                problem_id,
                frozenset(_texts(first["doc"])),
                prompt,
                _gold_answer(_readable(str(first["target"]))),
                responses,
                _metrics(filtered),
            )
        )
    greedy = settings.get("do_sample") is False or not settings.get("temperature", 1)
    try:
        temperature = 0.0 if greedy else float(settings.get("temperature", 1))
        most = int(settings.get("max_gen_toks") or settings.get("max_tokens") or _MAX_NEW_TOKENS)
    except (TypeError, ValueError):
        raise _damaged(file, "its generation settings are no numbers") from None
    return LoggedTask(name, file, samples, temperature, most)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        for number, text in enumerate(read_lines(file), start=1):
            line = json.loads(text)
            missing = {"doc_id", "doc", "target", "arguments", "resps"} - set(line)
            if missing:
                raise _damaged(file, f"line {number} has no {min(missing)}")
            yield line
    except UserError:
        raise
    except (ValueError, TypeError, AttributeError):
        raise _damaged(file, "not a line of JSON for each sample") from None


def _responses(resps: Any) -> tuple[str, ...] | None:
    """The generated texts; None if they are likelihoods."""
    flat = [text for part in resps for text in (part if isinstance(part, list) else [part])] if resps else []
    return tuple(map(_readable, flat)) if flat and all(isinstance(text, str) for text in flat) else None


def _arguments(arguments: Any) -> tuple[str, dict[str, Any]]:
    """The prompt, and how the response was drawn; version 0.4.4 and before wrote lists."""
    request = next(iter(arguments.values() if isinstance(arguments, dict) else arguments), ())
    parts = list(request.values() if isinstance(request, dict) else request)
    settings = parts[1] if len(parts) > 1 and isinstance(parts[1], dict) else {}
    prompt = parts[0] if parts else ""
    text = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)
    return _readable(text), settings


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


def _metrics(lines: list[dict[str, Any]]) -> dict[str, float]:
    """``metric,filter`` -> score; the filter only where there are several."""
    metrics = {}
    for line in lines:
        names = line.get("metrics")
        for name in names if isinstance(names, list) else ():
            value = line.get(name)
            if isinstance(value, int | float) and math.isfinite(value):
                metrics[f"{name},{line.get('filter')}" if len(lines) > 1 else str(name)] = float(value)
    return metrics


def _gold_answer(text: str) -> str:
    r"""The answer that a gold ends with: of a worked solution what its last ``\boxed{}``, or ``####``, holds."""
    last = text.rpartition("####")[2].strip()
    return boxed(last) or last.removeprefix("ANSWER:").strip()


def _readable(text: str) -> str:
    """A text without halves of surrogate pairs, which JSON allows and no file of generations can hold."""
    return text.encode(errors="replace").decode()


def _latest(files: Iterable[Path]) -> dict[str, Path]:
    """Task -> its latest file, of names such as ``samples_gsm8k_2026-01-31T12-00-00.123456.jsonl``.

    A file without a date, which was renamed, is a task of its own.
    """
    newest: dict[str, tuple[str, Path]] = {}
    for file in files:
        task, _, date = file.stem.removeprefix("samples_").rpartition("_")
        if not task:
            task, date = date, ""
        if task not in newest or date > newest[task][0]:
            newest[task] = (date, file)
    return {task: file for task, (_, file) in newest.items()}


def _damaged(file: Path, detail: str) -> UserError:
    return UserError(f"{file} is no sample log of {TOOL} ({detail}); name another, or write it again")
