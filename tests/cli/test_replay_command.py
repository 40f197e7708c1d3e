"""`olr replay` never overwrites what it did not make."""

import json

import pytest
from typer.testing import CliRunner

from olr_cli.cli import app


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps({"prompt_id": "a", "visit": 1, "response": "\\boxed{1}"}))
    return file


def replay(*arguments):
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def test_a_new_file_is_written_where_out_says(tmp_path, table):
    out = tmp_path / "deep" / "labels.parquet"
    done = replay(table, "--out", out)
    assert done.exit_code == 0, done.output
    assert f"Wrote {out}" in done.output
    assert out.read_bytes()[:4] == b"PAR1"


def test_what_is_there_is_never_overwritten(tmp_path, table):
    before = table.read_bytes()
    for out in (table, tmp_path):
        refused = replay(table, "--out", out)
        assert refused.exit_code == 2
        assert f"{out} exists already; choose another name with --out" in refused.stderr
    assert table.read_bytes() == before


def test_out_and_json_exclude_each_other(tmp_path, table):
    refused = replay(table, "--json", "--out", tmp_path / "labels.parquet")
    assert refused.exit_code == 2
    assert "choose one of them" in refused.stderr
    assert list(tmp_path.iterdir()) == [table]


def test_a_folder_in_the_way_of_the_labels_is_said(tmp_path, table):
    name = replay(table).output.split("Wrote ")[1].strip()
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    refused = replay(table)
    assert refused.exit_code == 2
    assert "could not be written" in refused.stderr
