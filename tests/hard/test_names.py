"""Names of runs and files that mean something to a library, a shell or a terminal: they stay names."""

import os
import shlex
import shutil
from pathlib import Path

import pytest
from outcomes import reopen
from samples import json_lines

MAGIC = ("x[12]", "-- it's arm=2", "x\x1b[31m")
"""Patterns, a partition, a shell's words, an escape of terminals."""


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
    [command] = [
        line.removeprefix("Next")
        for line in said.out.splitlines()
        if line.startswith("Next")
    ]
    assert "\x1b" in name or str(out) in shlex.split(command), command
    reopen(out)
    for shard in (out / "labels", out / "rollouts"):
        max(shard.iterdir()).unlink()
    status, said = workshop.olr(*workshop.words("train", out), "--resume")
    assert (
        status == 2
        and "shards or the line in metrics.jsonl of step" in said.err
        and name.partition("\x1b")[0] in said.err
    )


@pytest.mark.parametrize("name", ["t[1].jsonl", "t[1].parquet", "t*.jsonl"])
def test_a_table_of_any_name_is_read(name, workshop, tmp_path):
    import polars as pl

    rows = pl.DataFrame(
        [
            {
                "prompt_id": str(prompt),
                "visit": visit,
                "response": rf"\boxed{{{prompt}}}",
                "given_label": "1",
            }
            for prompt in range(2)
            for visit in (1, 2)
            for _ in range(4)
        ]
    )
    file = tmp_path / name
    if file.suffix == ".parquet":
        rows.write_parquet(file)
    else:
        json_lines(file, *rows.to_dicts())
    for command in ("replay", "audit"):
        status, said = workshop.olr(
            command, file, *(["--json"] if command == "audit" else [])
        )
        assert status == 0, said.err


def test_a_name_that_is_not_utf8_is_refused_before_anything_is_written(workshop, tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xff"))
    for words in (workshop.words("train", folder), ["replay", folder], ["analyze", folder]):
        status, said = workshop.olr(*words)
        assert status == 2 and said.err.splitlines()[-1].endswith(
            "is not UTF-8; rename it"
        ), said.err
    assert not list(tmp_path.iterdir())
