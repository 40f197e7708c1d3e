"""What a notebook asks for in one call, and the notebook of examples/."""

import shutil
from pathlib import Path

import polars as pl
import pytest
from cases import refusal
from commands import done
from histories import write_history
from samples import json_lines

from olr_cli.notebook import audit, figure, replay, table

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "find-and-repair.ipynb"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_history(tmp_path_factory.mktemp("runs") / "mine", prompts=20, epochs=4)


def test_an_audit_is_its_queue_with_the_questions(tmp_path):
    rows = [
        {
            "question": f"{number} + 0?",
            "given_label": label,
            "response": rf"\boxed{{{answer}}}",
        }
        for number, label in ((1, "1"), (2, "9"), (3, "3"))
        for answer in [number] * 4
    ]
    queue = audit(json_lines(tmp_path / "log.jsonl", rows))
    assert queue["question"][0] == "2 + 0?"
    assert queue["rank"].to_list() == [1, 2, 3]
    assert queue["given_label"][0] == "9"


def test_a_replay_is_what_the_command_writes(run, tmp_path):
    done(
        "replay",
        run,
        "--set",
        "method.slope_threshold=0.1",
        "--out",
        tmp_path / "x.parquet",
    )
    replayed = replay(run, "method.slope_threshold=0.1")
    assert replayed.equals(pl.read_parquet(tmp_path / "x.parquet"))
    assert replayed["is_selected"].any()


def test_figures_and_tables_are_those_of_the_command(run):
    drawn = figure("dynamics", run)
    assert drawn.axes[0].get_title(loc="left").endswith("Majority accuracy")
    assert "eval/avg" in table("arms", run)["metric"].to_list()


def test_what_cannot_be_shown_is_refused(run, tmp_path):
    other = write_history(tmp_path / "other", prompts=20, epochs=4, ratio=0.3)
    assert "there is no 'nix'" in refusal(lambda: figure("nix", run))
    assert "'nix'" in refusal(lambda: table("nix", run))
    assert "name runs of one arm" in refusal(lambda: figure("dynamics", run, other))
    assert "this needs training runs" in refusal(
        lambda: table(
            "noise_ratios", write_history(tmp_path / "r", prompts=20, kind="rollouts")
        )
    )


@pytest.mark.slow
def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    stored = [cell.get("outputs") for cell in notebook.cells]
    client = NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": tmp_path / "examples"}}
    )
    client.execute()
    made = [cell.get("outputs") for cell in notebook.cells]
    kinds = [
        [[output.output_type for output in cell or []] for cell in of]
        for of in (stored, made)
    ]
    assert kinds[0] == kinds[1]
    queue = next(
        place for place, cell in enumerate(made) if cell and "gsm8k-test" in str(cell)
    )
    assert made[queue] == stored[queue], "run the notebook again and keep its outputs"
    labels = pl.read_parquet(tmp_path / "runs" / "notebook" / "labels" / "*.parquet")
    assert labels["is_selected"].sum() > 1000
