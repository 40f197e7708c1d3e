"""An evaluation in the file formats of other tools, below its folder.

    export/lm-eval/<model>/results_<date>.json             as lm-evaluation-harness 0.4.13 writes them with
    export/lm-eval/<model>/samples_<task>_<date>.jsonl     --output_path and --log_samples
    export/leaderboard/<model>/results_<date>.json         as Hugging Face's leaderboard template reads it

Scores and grades are olr's; their metric is called ``acc``, the share of samples that are right.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from math import sqrt
from pathlib import Path
from statistics import stdev
from typing import Any

from olr_cli.errors import UserError
from olr_cli.evaluation.folder import EvaluationRecord, finished, read_evaluation, read_scores
from olr_cli.evaluation.generations import Generation, GenerationStore
from olr_cli.evaluation.scores import Score
from olr_cli.files import write_text

_METRIC = "acc"
_FILTER = "none"


def export(folder: Path, shape: str) -> list[Path]:
    """Write the finished benchmarks of an evaluation in another tool's format.

    Args:
        folder: of the evaluation.
        shape: a key of `FORMATS`.

    Returns:
        The files, each of them new: their names hold the time.

    Raises:
        UserError: no benchmark is done yet, or the files can't be written.
    """
    record = read_evaluation(folder)
    if not finished(folder):
        raise UserError(f"{folder}: no benchmark is done yet, so there is nothing to export; finish it first")
    now = datetime.now()
    model = re.sub(r'["<>:/|\\?*\[\]]+', "__", record.model)
    files = []
    for name, text in FORMATS[shape](folder, record, now):
        file = folder / "export" / shape / model / name
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text)
        files.append(file)
    return files


def _lm_eval(folder: Path, record: EvaluationRecord, now: datetime) -> Iterator[tuple[str, str]]:
    """Names and contents of lm-eval's files."""
    scores = {score.benchmark: score for score in read_scores(folder)}
    date = _date(now)
    hashes = {}
    for name in scores:
        lines = [
            _lm_eval_sample(number, samples, record)
            for number, samples in enumerate(_by_problem(GenerationStore(folder, name).generations()))
        ]
        hashes[name] = _sha256(
            "".join(line["doc_hash"] + line["prompt_hash"] + line["target_hash"] for line in lines)
        )
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        yield f"samples_{_task(name)}_{date}.jsonl", text
    made_with = record.generated_by[-1] if record.generated_by else {}
    plain: dict[str, Any] = {
        "results": {
            _task(name): {
                "alias": score.title,
                "sample_len": score.problems,
                f"{_METRIC},{_FILTER}": score.avg,
                f"{_METRIC}_stderr,{_FILTER}": _standard_error(score),
            }
            for name, score in scores.items()
        },
        "group_subtasks": {_task(name): [] for name in scores},
        "configs": {_task(name): _lm_eval_config(name, record) for name in scores},
        "versions": {_task(name): record.benchmarks[name].answer_rules for name in scores},
        "n-shot": {_task(name): 0 for name in scores},
        "higher_is_better": {_task(name): {_METRIC: True} for name in scores},
        "n-samples": {
            _task(name): {"original": score.whole or score.problems, "effective": score.problems}
            for name, score in scores.items()
        },
        "config": {
            "model": made_with.get("name"),
            "model_args": {"pretrained": record.model},
            "model_dtype": _dtype(record),
            "model_sha": made_with.get("model_digest", ""),
            "device": made_with.get("device"),
            "gen_kwargs": {},
            "random_seed": record.seed,
        },
        "git_hash": None,
        "date": now.timestamp(),
        "task_hashes": {_task(name): value for name, value in hashes.items()},
        "model_source": made_with.get("name"),
        "model_name": record.model,
        "model_name_sanitized": re.sub(r'["<>:/|\\?*\[\]]+', "__", record.model),
        "olr_version": made_with.get("olr"),
    }
    yield f"results_{date}.json", json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def _lm_eval_config(name: str, record: EvaluationRecord) -> dict[str, Any]:
    task = record.benchmarks[name]
    return {
        "task": _task(name),
        "dataset_path": task.definition.source.place,
        "output_type": "generate_until",
        "doc_to_target": "{{gold}}",
        "repeats": task.samples,
        "num_fewshot": 0,
        "generation_kwargs": _generation_settings(record),
        "metric_list": [{"metric": _METRIC, "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": task.answer_rules},
    }


def _generation_settings(record: EvaluationRecord) -> dict[str, Any]:
    return {
        "until": [],
        "do_sample": record.sampling.temperature > 0,
        "temperature": record.sampling.temperature,
        "max_gen_toks": record.sampling.max_new_tokens,
    }


def _lm_eval_sample(number: int, samples: Sequence[Generation], record: EvaluationRecord) -> dict[str, Any]:
    """The line of one problem."""
    first = samples[0]
    doc = {"problem_id": first.problem_id, "prompt": first.prompt, "gold": first.gold}
    return {
        "doc_id": number,
        "doc": doc,
        "target": first.gold,
        "arguments": {"gen_args_0": {"arg_0": first.prompt, "arg_1": _generation_settings(record)}},
        "resps": [[sample.response for sample in samples]],
        "filtered_resps": [sample.answer or "" for sample in samples],
        "filter": _FILTER,
        "metrics": [_METRIC],
        "doc_hash": _sha256(json.dumps(doc, indent=2, ensure_ascii=False)),
        "prompt_hash": _sha256(first.prompt),
        "target_hash": _sha256(first.gold),
        _METRIC: sum(sample.is_correct for sample in samples) / len(samples),
    }


def _by_problem(rows: Sequence[Generation]) -> Iterator[list[Generation]]:
    """All samples of each problem; they stand together."""
    for _, samples in groupby(rows, key=lambda row: row.problem_id):
        yield list(samples)


def _standard_error(score: Score) -> float | str:
    """Of the mean over problems, as lm-eval computes it for means."""
    shares = list(score.by_problem.values())
    return stdev(shares) / sqrt(len(shares)) if len(shares) > 1 else "N/A"


def _leaderboard(folder: Path, record: EvaluationRecord, now: datetime) -> Iterator[tuple[str, str]]:
    """Name and content of a leaderboard's file."""
    made_with = record.generated_by[-1] if record.generated_by else {}
    plain = {
        "config": {
            "model_dtype": _dtype(record),
            "model_name": record.model,
            "model_sha": made_with.get("model_digest", ""),
        },
        "results": {_task(score.benchmark): {_METRIC: score.avg} for score in read_scores(folder)},
    }
    yield f"results_{_date(now)}.json", json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


FORMATS: dict[str, Callable[[Path, EvaluationRecord, datetime], Iterator[tuple[str, str]]]] = {
    "lm-eval": _lm_eval,
    "leaderboard": _leaderboard,
}
"""What `--export` takes -> the names and contents of its files."""


def _date(now: datetime) -> str:
    """As in lm-eval's file names: 2026-01-31T12-00-00.123456."""
    return now.isoformat(timespec="microseconds").replace(":", "-")


def _task(benchmark: str) -> str:
    """A benchmark's name in file names."""
    return benchmark.replace(":", "_")


def _dtype(record: EvaluationRecord) -> str:
    dtype = str(record.generated_by[-1].get("dtype", "")) if record.generated_by else ""
    return dtype if not dtype or "." in dtype else f"torch.{dtype}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
