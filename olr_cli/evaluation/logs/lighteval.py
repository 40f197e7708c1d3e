"""Sample logs of lighteval (``lighteval … --save-details --output-dir DIR``), as of version 0.13.

    DIR/results/<model>/results_<date>.json                   settings
    DIR/details/<model>/<date>/details_<task>_<date>.parquet  a row a problem: doc, metric, model_response

`doc.query` is the prompt before the chat template, `doc.choices[doc.gold_index]` the gold, `model_response.text` has a
text for each sample. `model_response.output_tokens` is padded, so lengths are not read from it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from olr_cli.data.rows import read_table
from olr_cli.errors import UserError
from olr_cli.evaluation.logs.log import (
    Log,
    LoggedSample,
    LoggedTask,
    damaged,
    gold_answer,
    latest,
    read_tasks,
    require_one_model,
)
from olr_cli.files import read_json

TOOL = "lighteval"
PATTERN = "details_*.parquet"

_MAX_NEW_TOKENS = 256
"""Where neither task nor command says."""


def read(files: list[Path]) -> Log:
    """The latest log of each task among some files; a file without generated text is an error only if it is alone.

    Raises:
        UserError: as `olr_cli.evaluation.logs.read_log`.
    """
    settings = {file: _settings(file) for file in files}
    models = {
        file: str(setting.get("model_name") or _model_folder(file)) for file, setting in settings.items()
    }
    model = require_one_model(models)
    tasks, left_out = read_tasks(
        latest(files, "details_"),
        lambda name, file: _task(name, file, settings[file].get("generation_parameters")),
    )
    dtype = settings[tasks[0].file].get("dtype")
    facts = {"dtype": str(dtype)} if dtype else {}
    return Log(TOOL, "", model, tasks, left_out, facts)


def _model_folder(file: Path) -> str:
    """The model as its folder is called: everything between ``details`` and the date."""
    above = file.parent.parent.parts
    return "/".join(above[above.index("details") + 1 :]) if "details" in above else file.parent.name


def _settings(file: Path) -> dict[str, Any]:
    """The model's configuration in the results file of the same date; empty if there is none."""
    date = file.stem.rpartition("_")[2]
    for above in file.parents:
        if above.name == "details":
            model = file.parent.parent.relative_to(above)
            place = above.parent / "results" / model / f"results_{date}.json"
            try:
                config = read_json(place)["config_general"]["model_config"]
            except (UserError, KeyError, TypeError):
                break
            return config if isinstance(config, dict) else {}
    return {}


def _task(name: str, file: Path, parameters: Any) -> LoggedTask | None:
    """A task; None if it has no generated text."""
    rows = read_table([file], ["doc", "metric", "model_response"]).to_pylist()
    if not rows:
        raise damaged(file, TOOL, "it is empty")
    samples, most = [], 0
    try:
        for number, row in enumerate(rows):
            doc, response = row["doc"], row["model_response"]
            if not response["text"]:
                return None
            samples.append(_sample(number, doc, response, row["metric"]))
            most = max(most, doc.get("generation_size") or 0)
    except (KeyError, TypeError, IndexError, AttributeError):
        raise damaged(file, TOOL, "its columns lack doc.query, doc.choices or model_response.text") from None
    given = parameters if isinstance(parameters, dict) else {}
    temperature = float(given.get("temperature") or 0)
    most = int(given.get("max_new_tokens") or most or _MAX_NEW_TOKENS)
    return LoggedTask(name, file, sorted(samples, key=_order), temperature, most)


def _sample(
    number: int, doc: dict[str, Any], response: dict[str, Any], metric: dict[str, Any] | None
) -> LoggedSample:
    gold = doc["gold_index"]
    prompt = response.get("input")
    texts = tuple(str(text) for text in response["text"])
    return LoggedSample(
        problem_id=str(doc.get("id") or number),
        texts=frozenset({doc["query"]}),
        prompt=prompt if isinstance(prompt, str) else doc["query"],
        gold=gold_answer(str(doc["choices"][gold[0] if isinstance(gold, list) else gold])),
        responses=texts,
        tokens=(None,) * len(texts),
        metrics={
            name: float(value)
            for name, value in (metric or {}).items()
            if isinstance(value, int | float) and math.isfinite(value)
        },
    )


def _order(sample: LoggedSample) -> tuple[int, str]:
    """Lighteval logs the longest prompts first; its ids are row numbers."""
    return (int(sample.problem_id) if sample.problem_id.isdecimal() else 0, sample.problem_id)
