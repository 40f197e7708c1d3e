"""Where the time of a step goes: parts, machines, differences to GRPO, the printed table and the figure."""

import json
from itertools import pairwise

import pytest
from histories import arms_of, drawn, write_history
from rendered import rendered

from olr_cli import tables
from olr_cli.analysis.figures import cost
from olr_cli.analysis.frame import Lack
from olr_cli.analysis.step_times import PARTS, STEP, step_times, unit_of
from olr_cli.analysis.tables.cost_table import cost_table
from olr_cli.tables import Cell

TINY = {"prompts": 8, "prompts_per_step": 4, "epochs": 2, "store_rollouts": False}
OLR = {"name": "olr", "slope_threshold": 0.02, "warmup_epochs": 1}
GRPO = {"name": "grpo"}
LAPTOP = {"engine": "local", "device": "cpu", "threads": 1, "host": "vm"}
CLUSTER = {"engine": "openrlhf", "device": "8 x NVIDIA A100", "host": "node1"}


def write_timed(path, method=OLR, *, times=None, machine=LAPTOP, speed=None, **settings):
    """A run of four steps; `times` are lists of the seconds of each part, one a step, `speed` of other metrics."""
    run = write_history(path, method=method, **{**TINY, "seed": 1, **settings})
    times = times if times is not None else parts()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines[1:]):
        line |= {f"time/{part}": values[number] for part, values in times.items()}
        line |= {name: values[number] for name, values in (speed or {}).items()}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["attempts"] = [machine]
    (run / "manifest.json").write_text(json.dumps(manifest))
    return run


FAST = {
    "speed/generated_tokens": [1000.0, 2000.0, 3000.0, 4000.0],
    "memory/gpu_peak": [60.0, 61.0, 62.5, 62.0],
}


def parts(labels=0.01, evaluation=5.0, **others):
    """Four steps of 1 second and one of 10 s; the last is evaluated too."""
    times = {
        "rollouts": [0.5, 0.5, 0.5, 9.5],
        "verification": [0.02, 0.02, 0.04, 0.02],
        "labels": [labels] * 4,
        "update": [0.4] * 4,
        "store": [0.01] * 4,
    } | others
    whole = [sum(step) + 0.05 for step in zip(*times.values(), strict=True)]
    whole[3] += evaluation
    return times | {"evaluation": [0.0, 0.0, 0.0, evaluation], "step": whole}


def table_of(*places, **how):
    return cost_table(arms_of(*places), **how)


def sums(table):
    """What the table's last block shows of the first arm."""
    return table.blocks[-1].grid("terminal")[1][0][1]


def line_of(table, arm, part):
    (line,) = (line for line in table.data["rows"] if (line["arm"], line["part"]) == (arm, part))
    return line


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2):
        write_timed(folder / f"grpo{seed}", GRPO, times=parts(0.01 + 0.001 * seed), arm="grpo", seed=seed)
        write_timed(folder / f"olr{seed}", OLR, times=parts(0.02 + 0.002 * seed), arm="olr", seed=seed)
    return folder


def test_parts_and_what_is_left_add_up_to_the_step_without_evaluation(tmp_path):
    (found,) = step_times(arms_of(write_timed(tmp_path / "run")))
    assert found.parts == ["rollouts", "verification", "labels", "update", "store", "other", STEP]
    for step, seconds in zip(found.all_steps, (0.99, 0.99, 1.01, 9.99), strict=True):
        assert step[STEP] == pytest.approx(seconds)
        assert sum(step[part] for part in found.parts if part != STEP) == pytest.approx(step[STEP])
        assert step["other"] == pytest.approx(0.05)
    assert found.time("rollouts") == Cell(0.5, "s", ends=(0.5, 2.75), n=4), "one slow step moves no median"
    assert found.time("verification", "labels").value == pytest.approx(0.03)
    assert found.share("labels") == pytest.approx((0.01 / 0.99 + 0.01 / 1.01) / 2)


def test_what_a_step_takes_more_than_grpos_is_paired_by_seed(arms):
    table = table_of(arms)
    assert len(table.data["rows"]) == 2 * 7
    line = line_of(table, "olr", "labels")
    assert (line["steps"], line["median"], line["run"]) == (8, pytest.approx(0.023), pytest.approx(4 * 0.023))
    differences = {part: line_of(table, "olr", part)["difference"] for part in ("labels", STEP, "rollouts")}
    assert differences == {"labels": pytest.approx(0.0115), STEP: pytest.approx(0.0115), "rollouts": 0}
    relative = line_of(table, "olr", STEP)["relative"]
    assert relative == pytest.approx((0.011 / 1.001 + 0.012 / 1.002) / 2, rel=1e-3)
    assert line_of(table, "olr", "labels")["relative"] is None
    assert line_of(table, "grpo", STEP)["difference"] is None
    assert "Measured on: local, cpu, 1 thread, host vm." in table.notes


def test_grpo_on_another_machine_is_no_reference_and_a_note_says_who_ran_where(tmp_path):
    write_timed(tmp_path / "grpo", GRPO, arm="grpo", machine=CLUSTER)
    write_timed(tmp_path / "olr", OLR, arm="olr")
    table = table_of(tmp_path)
    assert all(line["relative"] is None for line in table.data["rows"])
    (note,) = (note for note in table.notes if "machines" in note)
    assert "grpo on openrlhf, 8 x NVIDIA A100, host node1" in note
    assert "olr on local, cpu, 1 thread, host vm" in note
    names = [
        label.get_text().replace("\n", " ")
        for label in drawn("cost", tmp_path).figure.axes[0].get_yticklabels()
    ]
    assert names == ["GRPO openrlhf, 8 x NVIDIA A100, host node1", "OLR local, cpu, 1 thread, host vm"]


def test_the_sums_over_a_run_are_the_papers_phases_and_need_finished_runs(tmp_path):
    write_timed(tmp_path / "run", arm="olr")
    table = table_of(tmp_path / "run")
    assert sums(table) == ["olr", "1", "12.9 s", "40.0 ms", "13.0 s"]
    assert line_of(table, "olr", STEP)["run"] == pytest.approx(12.98)
    write_timed(tmp_path / "stopped", arm="stopped", steps=2, times=parts())
    table = table_of(tmp_path / "stopped")
    assert sums(table) == ["stopped", "", "", "", ""]
    assert "No run of stopped is finished: no sums." in table.notes


def test_the_papers_times_stand_beside_on_request_as_printed(arms):
    assert "3.8" not in rendered(table_of(arms)) + json.dumps(table_of(arms).data)
    table = table_of(arms, with_published=True)
    (line,) = (line for line in rendered(table).splitlines() if line.startswith("paper"))
    assert line.split() == ["paper", "~3.8", "h", "negligible", "~3.8", "h"]
    published = {line["part"]: line["published"] for line in table.data["rows"] if line["published"]}
    assert published == {"RLVR training": "~3.8 h", "OLR update": "negligible", "Total": "~3.8 h"}


def test_the_terminal_table_fits_80_columns(tmp_path, arms):
    old = write_timed(tmp_path / "a", arm="an-arm-with-a-long-name")
    table = table_of(arms, old, with_published=True)
    grpo = next(line for line in rendered(table).splitlines() if line.startswith("grpo"))
    assert grpo.split()[:4] == ["grpo", "500", "20.0", "11.5"]


def test_markdown_has_quartiles_and_intervals(arms):
    text = tables.markdown(table_of(arms))
    assert "| grpo | 8 | 500 [500, 2,750] | 20.0 [20.0, 25.0] |" in text
    assert "label update to GRPO, ms [95 %]" in text
    (olr,) = (line for line in text.splitlines() if line.startswith("| olr | 8 |"))
    assert "| +11.5 [+5.1, +17.9] | +11.5 [+5.1, +17.9] |" in olr


def test_the_figure_stacks_the_medians_and_ends_in_numbers(arms):
    chart = drawn("cost", arms)
    (axes,) = chart.figure.axes
    assert [text.get_text() for text in axes.texts] == [
        "1,002 ms, label update 1.1%",
        "1,013 ms, label update 2.2%",
    ]
    first = [bars[0] for bars in axes.containers if hasattr(bars[0], "get_width")]
    assert first[0].get_width() == pytest.approx(500)
    for bar, after in pairwise(first):
        assert after.get_x() == pytest.approx(bar.get_x() + bar.get_width())
    assert set(chart.data["part"]) == {*PARTS, STEP} - {"weights"}


def test_steps_of_minutes_are_in_seconds(tmp_path):
    slow = parts(rollouts=[200.0] * 4, weights=[2.0] * 4)
    write_timed(tmp_path / "run", times=slow, machine=CLUSTER)
    found = step_times(arms_of(tmp_path))
    assert unit_of(found) == "s"
    assert [Cell(seconds, "s").brief for seconds in (202.4, 2.0, 0.01)] == ["202", "2.00", "0.0100"]
    assert "Rest: weights to vLLM, storing the records, metrics and all else." in table_of(tmp_path).notes


def test_runs_without_times_are_refused(tmp_path):
    write_history(tmp_path / "untimed", arm="untimed", **TINY)
    arms = arms_of(tmp_path)
    for show in (cost.charts, cost_table):
        with pytest.raises(Lack, match=r"runs whose metrics\.jsonl has the time of a step \(time/step\)"):
            show(arms)


def test_throughput_is_shown_where_it_was_measured_and_nothing_elsewhere(tmp_path):
    write_timed(tmp_path / "fast", arm="fast", machine=CLUSTER, speed=FAST)
    table = table_of(tmp_path / "fast", write_timed(tmp_path / "slow", arm="slow", seed=1))
    text = tables.markdown(table)
    assert "|  | generated tokens, tokens/s | GPU memory, peak, GB |" in text
    assert "| fast | 2,500 [1,750, 3,250] | 61.5 [60.8, 62.1] |" in text
    assert "| slow |  |  |" in text
    assert "fast" in rendered(table)
    line = line_of(table, "fast", "speed/generated_tokens")
    assert (line["unit"], line["median"], line["share"]) == ("tokens/s", 2500, None)
    assert {line["unit"] for line in table.data["rows"] if "/" not in line["part"]} == {"s"}
    fast, _ = (text.get_text() for text in drawn("cost", tmp_path).figure.axes[0].texts)
    assert fast.split("\n")[1:] == ["2,500 tokens/s", "61.5 GB"]
