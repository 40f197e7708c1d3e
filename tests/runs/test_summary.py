"""The last lines of a run say what its tables know, and nothing they don't."""

import json
from pathlib import Path

import pytest
from cases import each
from histories import SMALL, write_history
from samples import json_lines

from olr_cli.runs.metrics import accuracy_fall
from olr_cli.runs.progress import TRAINING
from olr_cli.runs.summary import run_summary


@pytest.mark.parametrize("knows_noise", [True, False])
def test_how_many_labels_were_marked_is_told_where_it_is_known(tmp_path, knows_noise):
    # It ends in the middle of its third epoch, of which less is marked.
    run = write_history(tmp_path / "run", knows_noise=knows_noise, epochs=3, steps=5)
    (line,) = (line for line in run_summary(run).parts if "wrong labels" in line)
    assert ("(initially marked: 50.0%)" in line) == knows_noise


def test_the_page_that_a_summary_names_explains_every_column(tmp_path):
    run = write_history(tmp_path / "run", **SMALL)
    page, _, anchor = run_summary(run).parts[-1].split()[-1].partition("#")
    text = (Path(__file__).parents[2] / page).read_text("utf-8")
    (section,) = (
        part
        for part in text.split("\n## ")
        if part.splitlines()[0].lower().replace(" ", "-") == anchor
    )
    for column in TRAINING.columns:
        assert f"{column.heading}" in section, column


def test_a_summary_is_this_text(tmp_path):
    run = write_history(tmp_path / "run", **SMALL)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines[0] |= {"eval/avg": 0.25, "eval/majority": 0.5}
    lines[-1] |= {"eval/avg": 0.9, "eval/majority": 0.75, "eval/avg_stderr": 0.1}
    lines[-1] |= {"speed/samples": 1234.5, "time/weights": 0.25}
    json_lines(run / "metrics.jsonl", *lines)
    answer = run_summary(run)
    assert answer.parts == [
        "",
        f"Finished {run} (run)",
        "  held-out accuracy (avg)           25.0% -> 90.0% (95 % over prompts: [70.4%, 100.0%])",
        "  held-out accuracy (majority)      50.0% -> 75.0%",
        "  labels replaced by the majority   15 times, right in 86.7%",
        "  wrong labels, last epoch          30.0% (initially marked: 50.0%)",
        "  samples                           1,234 samples/s",
        "  waiting for weights               0.250 s",
        "  what the columns above mean       docs/concepts.md#columns-of-the-terminal-and-the-figures",
    ]
    assert answer.next == {f"olr analyze {run} --figure dynamics": ""}
    assert (answer.result["run"], answer.result["name"]) == (str(run), "run")
    assert answer.result["metrics"]["eval/avg"] == 0.9 and answer.result["collapse"] == []


def test_a_sign_of_collapse_is_told_with_its_step(tmp_path):
    run = write_history(tmp_path / "run", epochs=2)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines[0] |= {"eval/avg": 0.8, "eval/avg_stderr": 0.01}
    lines[-1] |= {"eval/avg": 0.2, "eval/avg_stderr": 0.01}
    json_lines(run / "metrics.jsonl", *lines)
    told = f"sign of collapse after step {lines[-1]['step']}: held-out accuracy fell to 20% (80% at its best)"
    assert any(told in line for line in run_summary(run).parts)


def test_held_out_accuracy_counts_from_its_best_and_by_its_standard_error():
    def fall(to, error):
        return accuracy_fall(
            {"step": step, "eval/avg": avg, "eval/avg_stderr": error}
            for step, avg in enumerate((0.4, 0.7, to, 0.1))
        )

    assert fall(0.66, 0.001) == (3, "held-out accuracy fell to 10% (70% at its best)")
    assert fall(0.6, 0.03)[0] == 3
    assert fall(0.6, 0.01) == (2, "held-out accuracy fell to 60% (70% at its best)")


def test_throughput_is_told_in_medians_with_units_and_only_what_is_known(tmp_path):
    run = write_history(tmp_path / "run", epochs=2)
    assert not any("tokens/s" in line for line in run_summary(run).parts)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines[1:]):
        line |= {
            "speed/generated_tokens": 1000.0 + number,
            "speed/samples": 0.5,
            "memory/gpu_peak": None,
        }
    json_lines(run / "metrics.jsonl", *lines)
    shown = [
        line.split("  ")[-1].strip() for line in run_summary(run).parts if "/s" in line
    ]
    assert shown == ["1,002 tokens/s", "0.500 samples/s"]
    assert not any("GPU memory" in line for line in run_summary(run).parts)


@each(
    "errors, falls", ((0.001, 0.03), False), ((0.03, 0.001), False), ((0.001, 0.001), True)
)
def test_a_fall_is_judged_by_the_larger_standard_error(errors, falls):
    lines = [
        {"step": step, "eval/avg": avg, "eval/avg_stderr": error}
        for step, (avg, error) in enumerate(zip((0.7, 0.6), errors, strict=True))
    ]
    assert (accuracy_fall(lines) is not None) is falls


def test_a_line_without_a_standard_error_says_nothing_of_a_fall():
    lines = [
        {"step": 1, "eval/avg": 0.9, "eval/avg_stderr": 0.01},
        {"step": 2, "eval/avg": 0.1},
        {"step": 3, "eval/avg": 0.2, "eval/avg_stderr": 0.01},
    ]
    assert accuracy_fall(lines)[0] == 3
