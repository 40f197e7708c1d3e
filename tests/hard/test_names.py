"""Names of runs and files that mean something to a library, a shell or a terminal: they stay names."""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
from pathlib import Path

import pytest
from forks import ROOT
from outcomes import reopen

MAGIC = ("x[12]", "-- it's arm=2", "x\x1b[31m")
"""Patterns, a partition, a shell's words, an escape of terminals."""
READERS = (
    "read_parquet",
    "scan_parquet",
    "read_csv",
    "scan_csv",
    "read_ndjson",
    "scan_ndjson",
    "read_ipc",
    "scan_ipc",
    "scan_lines",
    "scan_delta",
    "scan_iceberg",
)
ARROW_READERS = (
    "ParquetFile",
    "ParquetDataset",
    "read_table",
    "open_csv",
    "read_json",
    "open_json",
)
"""Readers of pyarrow, which take part of a path for columns of a partitioned data set."""


def test_foreign_parquet_is_read_in_one_place():
    """Which reads some rows at a time, up to a limit; `store.py` reads shards, which are checked by their marks."""
    readers = {
        file.relative_to(ROOT / "olr_cli").as_posix()
        for file in (ROOT / "olr_cli").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in (*READERS, *ARROW_READERS)
    }
    assert readers == {"data/rows.py", "runs/store.py", "analysis/replay/replay.py"}


def test_every_reader_of_polars_takes_paths_literally():
    """By default it expands patterns, and reads another run whose name fits."""
    calls = [
        (file.name, call)
        for file in (ROOT / "olr_cli").rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in READERS
    ]
    assert len(calls) >= 3
    for name, call in calls:
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        assert "glob" in given and ast.literal_eval(given["glob"]) is False, f"{name}, line {call.lineno}"


@pytest.fixture
def beside(workshop, tmp_path):
    """A folder with runs `x1` and `x2` of other seeds than the run that is put beside them."""
    for name in ("x1", "x2"):
        out = tmp_path / name
        shutil.copytree(workshop.whole("train"), out)
        for shard in (out / "labels").iterdir():
            shard.unlink()
    return tmp_path


@pytest.mark.parametrize("name", MAGIC)
def test_a_run_of_any_name_is_read_and_resumed_as_itself(name, workshop, beside):
    out = beside / name
    shutil.copytree(workshop.whole("train"), out)
    for words in (["replay", out], ["analyze", out, "--table", "arms"], ["audit", out]):
        status, said = workshop.olr(*words)
        assert status == 0 and "\x1b[31m" not in said.out + said.err, said.err
    [command] = [line.removeprefix("Next") for line in said.out.splitlines() if line.startswith("Next")]
    assert "\x1b" in name or str(out) in shlex.split(command), command
    reopen(out)
    for shard in (out / "labels", out / "rollouts"):
        max(shard.iterdir()).unlink()
    status, said = workshop.olr(*workshop.words("train", out), "--resume")
    assert status == 2 and "no shards of step" in said.err and name.partition("\x1b")[0] in said.err


@pytest.mark.parametrize("name", ["t[1].jsonl", "t[1].parquet", "t*.jsonl"])
def test_a_table_of_any_name_is_read(name, workshop, tmp_path):
    import polars as pl

    rows = pl.DataFrame(
        [
            {"prompt_id": str(prompt), "visit": visit, "response": rf"\boxed{{{prompt}}}", "given_label": "1"}
            for prompt in range(2)
            for visit in (1, 2)
            for _ in range(4)
        ]
    )
    file = tmp_path / name
    if file.suffix == ".parquet":
        rows.write_parquet(file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows.to_dicts()))
    for command in ("replay", "audit"):
        status, said = workshop.olr(command, file, *(["--json"] if command == "audit" else []))
        assert status == 0, said.err


def test_a_name_that_is_not_utf8_is_refused_before_anything_is_written(workshop, tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xff"))
    for words in (workshop.words("train", folder), ["replay", folder], ["analyze", folder]):
        status, said = workshop.olr(*words)
        assert status == 2 and said.err.splitlines()[-1].endswith("is not UTF-8; rename it"), said.err
    assert not list(tmp_path.iterdir())
