"""Sample logs of lm-evaluation-harness (``lm_eval --log_samples --output_path DIR``), as of version 0.4.13.

    DIR/<model>/results_<date>.json            scores, settings, versions
    DIR/<model>/samples_<task>_<date>.jsonl    a line a problem and filter: doc_id, doc, target, resps, filter, …

`resps` holds the responses as generated, `filtered_resps` what a filter made of them. A task with several filters has a
line for each, with the same responses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from olr_cli.errors import UserError
from olr_cli.evaluation.logs.log import (
    Log,
    LoggedSample,
    LoggedTask,
    damaged,
    gold_answer,
    latest,
    read_tasks,
    readable,
    require_one_model,
)
from olr_cli.files import read_json, read_lines

TOOL = "lm-eval"
PATTERN = "samples_*.jsonl"

_MAX_NEW_TOKENS = 256
"""Where a task doesn't say, lm-eval generates at most so many tokens."""


def read(files: list[Path]) -> Log:
    """The latest log of each task among some files; a file without generated text is an error only if it is alone.

    Raises:
        UserError: as `olr_cli.evaluation.logs.read_log`.
    """
    results = {file: _results(file) for file in files}
    models = {
        file: str(result.get("model_name") or file.parent.name.replace("__", "/"))
        for file, result in results.items()
    }
    model = require_one_model(models)
    tasks, left_out = read_tasks(latest(files, "samples_"), _task)
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
    version = str(result.get("lm_eval_version") or "")
    return Log(TOOL, version, model, tasks, left_out, facts)


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
        raise damaged(file, TOOL, "it is empty")
    samples, settings = [], dict[str, Any]()
    for problem_id, filtered in lines.items():
        first = filtered[0]
        try:
            responses = _responses(first["resps"])
            prompt, settings = _arguments(first["arguments"])
        except (TypeError, AttributeError):
            raise damaged(file, TOOL, f"resps or arguments of problem {problem_id} are wrong") from None
        if responses is None:
            return None
        samples.append(
            LoggedSample(
                problem_id,
                frozenset(_texts(first["doc"])),
                prompt,
                gold_answer(readable(str(first["target"]))),
                responses,
                (None,) * len(responses),
                _metrics(filtered),
            )
        )
    greedy = settings.get("do_sample") is False or not settings.get("temperature", 1)
    try:
        temperature = 0.0 if greedy else float(settings.get("temperature", 1))
        most = int(settings.get("max_gen_toks") or settings.get("max_tokens") or _MAX_NEW_TOKENS)
    except (TypeError, ValueError):
        raise damaged(file, TOOL, "its generation settings are no numbers") from None
    return LoggedTask(name, file, samples, temperature, most)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        for number, text in enumerate(read_lines(file), start=1):
            line = json.loads(text)
            missing = {"doc_id", "doc", "target", "arguments", "resps"} - set(line)
            if missing:
                raise damaged(file, TOOL, f"line {number} has no {min(missing)}")
            yield line
    except UserError:
        raise
    except (ValueError, TypeError, AttributeError):
        raise damaged(file, TOOL, "not a line of JSON for each sample") from None


def _responses(resps: Any) -> tuple[str, ...] | None:
    """The generated texts; None if they are likelihoods."""
    flat = [text for part in resps for text in (part if isinstance(part, list) else [part])] if resps else []
    return tuple(map(readable, flat)) if flat and all(isinstance(text, str) for text in flat) else None


def _arguments(arguments: Any) -> tuple[str, dict[str, Any]]:
    """The prompt, and how the response was drawn; version 0.4.4 and before wrote lists."""
    request = next(iter(arguments.values() if isinstance(arguments, dict) else arguments), ())
    parts = list(request.values() if isinstance(request, dict) else request)
    settings = parts[1] if len(parts) > 1 and isinstance(parts[1], dict) else {}
    prompt = parts[0] if parts else ""
    text = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)
    return readable(text), settings


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
