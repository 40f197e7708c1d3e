"""The paper's table of training time: sums over finished runs, machines, and the published times beside."""

import json

import pytest
from histories import arms_of, write_history
from rendered import in_full, rendered
from samples import json_lines

from olr_cli import tables
from olr_cli.analysis.frame import Lack
from olr_cli.analysis.tables.cost_table import cost_table

TINY = {"prompts": 8, "prompts_per_step": 4, "epochs": 2, "store_rollouts": False}
OLR = {"name": "olr", "slope_threshold": 0.02, "warmup_epochs": 1}
GRPO = {"name": "grpo"}
LAPTOP = {"engine": "local", "device": "cpu", "threads": 1, "host": "vm"}
CLUSTER = {"engine": "openrlhf", "device": "8 x NVIDIA A100", "host": "node1"}


def write_timed(path, method=OLR, *, labels=0.01, machine=LAPTOP, **settings):
    """A run of four steps: three of a second and one of ten, after which it is evaluated for 5 seconds."""
    run = write_history(path, method=method, **{**TINY, "seed": 1, **settings})
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line, others in zip(lines[1:], (0.98, 0.98, 1.0, 9.98), strict=False):
        line |= {"time/labels": labels, "time/step": others + labels}
    if len(lines) > 4:
        lines[4] |= {"time/evaluation": 5.0, "time/step": lines[4]["time/step"] + 5.0}
    json_lines(run / "metrics.jsonl", *lines)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["attempts"] = [machine]
    (run / "manifest.json").write_text(json.dumps(manifest))
    return run


def table_of(*places, **how):
    return cost_table(arms_of(*places), **how)


def sums(table):
    """What the table shows of the first arm."""
    return table.blocks[-1].grid("terminal")[1][0][1]


def line_of(table, arm, phase):
    (line,) = (line for line in table.rows if (line["arm"], line["phase"]) == (arm, phase))
    return line


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2):
        write_timed(
            folder / f"grpo{seed}", GRPO, labels=0.01 + 0.001 * seed, arm="grpo", seed=seed
        )
        write_timed(
            folder / f"olr{seed}", OLR, labels=0.02 + 0.002 * seed, arm="olr", seed=seed
        )
    return folder


def test_the_sums_over_a_run_are_the_papers_phases_and_leave_evaluation_out(tmp_path):
    table = table_of(write_timed(tmp_path / "run", arm="olr"))
    assert sums(table) == ["olr", "1", "12.9 s", "40.0 ms", "13.0 s"]
    line = line_of(table, "olr", "Total")
    assert line == {"arm": "olr", "phase": "Total", "n": 1, "seconds": pytest.approx(12.98)}


def test_the_sums_are_medians_over_the_finished_runs_of_an_arm(arms, tmp_path):
    assert line_of(table_of(arms), "olr", "OLR update")["seconds"] == pytest.approx(
        4 * 0.023
    )
    table = table_of(write_timed(tmp_path / "stopped", arm="stopped", steps=2))
    assert sums(table) == ["stopped", "", "", "", ""]
    assert line_of(table, "stopped", "Total")["seconds"] is None
    assert "No run of stopped is finished: no sums." in table.notes


def test_a_note_says_which_arm_ran_on_which_machine(arms, tmp_path):
    assert "Measured on: local, cpu, 1 thread, host vm." in table_of(arms).notes
    write_timed(tmp_path / "grpo", GRPO, arm="grpo", machine=CLUSTER)
    write_timed(tmp_path / "olr", OLR, arm="olr")
    (note,) = (note for note in table_of(tmp_path).notes if "machines" in note)
    assert "grpo on openrlhf, 8 x NVIDIA A100, host node1" in note
    assert "olr on local, cpu, 1 thread, host vm" in note


def test_the_papers_times_stand_beside_on_request_as_printed(arms):
    assert "3.8" not in rendered(table_of(arms)) + json.dumps(table_of(arms).rows)
    table = table_of(arms, with_published=True)
    (line,) = (line for line in rendered(table).splitlines() if line.startswith("paper"))
    assert line.split() == ["paper", "~3.8", "h", "negligible", "~3.8", "h"]
    published = {
        line["phase"]: line["published"] for line in table.rows if line["published"]
    }
    assert published == {
        "RLVR training": "~3.8 h",
        "OLR update": "negligible",
        "Total": "~3.8 h",
    }
    assert "paper,Total,,,~3.8 h" in tables.comma_separated(table)


def test_runs_without_times_are_refused(tmp_path):
    write_history(tmp_path / "untimed", arm="untimed", **TINY)
    with pytest.raises(
        Lack, match=r"runs whose metrics\.jsonl has the time of a step \(time/step\)"
    ):
        table_of(tmp_path)


def test_times_are_said_in_every_format_as_they_always_were(arms, is_as_stored):
    """`--rewrite` writes them anew; look at the change before you keep it."""
    is_as_stored("tables/cost.txt", in_full(table_of(arms, with_published=True)))
