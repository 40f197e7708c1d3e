"""`olr replay` never overwrites what it did not make."""

import json

import polars as pl
import pytest
from histories import write_history
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
        assert f"{out} exists already; choose another --out" in refused.stderr
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


@pytest.fixture
def run(tmp_path):
    return write_history(tmp_path / "run", prompts=12, epochs=4)


@pytest.mark.parametrize(
    "command", [["replay"], ["replay", "--grid", "method.slope_threshold=0,0.1"], ["audit"], ["analyze"]]
)
def test_a_run_of_the_first_rules_is_read_and_says_so(run, command):
    def told():
        return " ".join(CliRunner().invoke(app, [command[0], str(run), *command[1:]]).output.split())

    assert "by other rules" not in told()
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["answer_rules"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert "was started by an olr that read answers by other rules (R6, R7)" in told()


def test_a_grid_over_a_run_is_shown_and_drawn_below_it(run):
    done = replay(run, "--grid", "method.slope_threshold=0,0.05", "--grid", "method.warmup_epochs=1,2")
    assert done.exit_code == 0, done.output
    files = sorted((run / "replay").iterdir())
    assert [file.suffix for file in files] == [".csv", ".pdf", ".png"]
    assert f"Wrote {files[2]}, .pdf and .csv" in done.output
    assert "4 settings over 48 visits;" in done.output
    assert "Accuracy of selected" in done.output
    assert f"Next: olr replay {run} --set" in done.output


def test_a_grid_over_a_table_lies_beside_it_or_where_out_says(tmp_path, table):
    assert replay(table, "--grid", "default").exit_code == 0
    assert {file.suffix for file in tmp_path.glob("log-grid-*")} == {".csv", ".pdf", ".png"}
    assert replay(table, "--grid", "default", "--out", tmp_path / "deep" / "maps").exit_code == 0
    assert len(list((tmp_path / "deep" / "maps").iterdir())) == 3
    refused = replay(table, "--grid", "default", "--out", table)
    assert refused.exit_code == 2
    assert "is a file, and the heat map of a grid goes into a folder" in refused.stderr


def test_a_grid_as_json_is_one_object(run):
    done = replay(run, "--grid", "default", "--json")
    found = json.loads(done.stdout)
    assert {"cells", "notes", "written"} < set(found)
    assert {cell["criteria"] for cell in found["cells"]} == {"slope+consistency", "consistency", "slope"}
    assert all(
        isinstance(cell["slope_threshold"], float) for cell in found["cells"] if "slope" in cell["criteria"]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--grid", "method.warmup_epochs=4"], "leaves none of the history's 4 visits"),
        (["--grid", "method.slope_threshold=0"], "method.warmup_epochs 5 leaves none"),
        (["--grid", "default", "--set", "method.name=grpo"], "--grid is of the settings of olr"),
        (["--grid", "default", "--set", "train.epochs=3"], "the stored rollouts are as they are"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_and_nothing_is_written(tmp_path, options, message):
    run = write_history(tmp_path / "run", prompts=12, epochs=4, method={"name": "olr", "warmup_epochs": 5})
    refused = replay(run, *options)
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert not (run / "replay").exists()


def test_a_grid_over_nothing_is_refused(tmp_path):
    refused = replay(tmp_path / "nowhere", "--grid", "default")
    assert refused.exit_code == 2
    assert "does not exist" in refused.stderr


def test_a_csv_file_holds_what_the_parquet_file_does(tmp_path, run):
    for name in ("labels.parquet", "labels.csv"):
        done = replay(run, "--set", "method.warmup_epochs=1", "--out", tmp_path / name)
        assert done.exit_code == 0, done.output
    labels = pl.read_parquet(tmp_path / "labels.parquet")
    assert pl.read_csv(tmp_path / "labels.csv", schema=labels.schema).equals(labels)
    assert labels["is_selected"].any()
    assert "Selected: 0" not in done.output
