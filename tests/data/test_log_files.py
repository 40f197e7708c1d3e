"""Where logs lie: folders above them, several runs, held-out files, and what is said of those left out."""

import json

import pytest
from cases import each, refusal
from samples import json_lines

from olr_cli.analysis.histories import read_history
from olr_cli.data.log_files import is_log, log_files
from olr_cli.data.logs import read_log

ROW = {"input": "3+4", "output": r"\boxed{7}", "gts": "7", "score": 1.0}
TABLE = {"prompt": "3+4", "response": r"\boxed{7}", "step": 1}


def put(folder, *names):
    for name in names:
        json_lines(folder / name, ROW)


def found(folder, place="."):
    files, notes = log_files([folder / place])
    return [str(file.relative_to(folder)) for file in files], notes


@each(
    "names, read, left_out",
    (["exp_001/train_data_step2.jsonl", "exp_001/train_data_step10.jsonl", "exp_001/val_data_step2.jsonl"], 2, 1),
    (["train_data_step1.jsonl", "val_data_step1.jsonl", "val_data_step2.jsonl"], 1, 2),
    (["p/e/rollout_data/1.jsonl", "p/e/rollout_data/2.jsonl", "p/e/validation_data/2.jsonl"], 2, 1),
    (["v0-2026/completions.jsonl"], 1, 0),
    (["2026-08-01/reviews/m/math.jsonl", "2026-08-01/reviews/m/sums.jsonl", "2026-08-01/reports/m/math.json"], 2, 0),
    (["2026-08-01/predictions/m/math.json", "2026-08-01/results/m/math.json", "summary.csv"], 1, 0),
    (["out/rollouts/step_1/train/all/traces.jsonl", "out/rollouts/step_2/train/all/traces.jsonl"], 2, 0),
    (["val_data_step1.jsonl", "val_data_step2.jsonl"], 2, 0),
)  # fmt: skip
def test_the_folder_above_a_log_is_looked_into_and_held_out_files_are_named(
    tmp_path, names, read, left_out
):
    put(tmp_path, *names)
    files, notes = found(tmp_path)
    assert is_log(tmp_path)
    assert files == names[:read]
    kept = [note for note in notes if "held-out rollouts" in note]
    assert len(kept) == bool(left_out) and (
        left_out < 2 or f"{left_out} files (" in notes[0]
    )


def test_held_out_files_beside_others_are_left_out_of_a_pattern_and_of_files_by_name(
    tmp_path,
):
    put(tmp_path, "train_1.jsonl", "val_1.jsonl")
    places = sorted(tmp_path.iterdir())
    for given in (places, [tmp_path / "*.jsonl"]):
        files, [note] = log_files(given)
        assert [file.name for file in files] == ["train_1.jsonl"] and "val_1.jsonl" in note
    assert log_files([tmp_path / "val_1.jsonl"]) == ([tmp_path / "val_1.jsonl"], [])


@each(
    "names",
    ["exp_001/train_data_step1.jsonl", "exp_002/train_data_step1.jsonl"],
    ["a/dump/1.jsonl", "b/dump/1.jsonl"],
    [
        "a/rollouts/step_1/train/all/traces.jsonl",
        "b/rollouts/step_1/train/all/traces.jsonl",
    ],
)
def test_logs_of_several_runs_are_refused_with_their_folders(tmp_path, names):
    put(tmp_path, *names)
    assert is_log(tmp_path), "so that the error is about the runs"
    sentence = refusal(log_files, [tmp_path])
    assert "holds the logs of 2 runs; name one of them, such as" in sentence
    assert str(tmp_path / names[0].split("/")[0]) in sentence


def test_a_folder_whose_rows_lie_elsewhere_is_refused_with_what_was_looked_for(tmp_path):
    json_lines(tmp_path / "mine" / "deep" / "some_rows.jsonl", TABLE)
    sentence = refusal(read_history, tmp_path)
    assert "where trainers write rollouts (.parquet, .jsonl) it holds none" in sentence
    assert sentence.endswith("name a folder or files of rollouts")


@pytest.mark.parametrize("place", [".", "run-1/files/media/table"])
def test_tables_of_wandb_are_logs(tmp_path, place):
    columns = ["step", "prompt", "completion", "math_reward", "advantage"]
    for step in (1, 2):
        data = [[step, "3+4", rf"\boxed{{{n}}}", float(n == 7), 0.5] for n in (step, 7)]
        file = tmp_path / f"run-1/files/media/table/completions_{step}_ab.table.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            json.dumps({"columns": columns, "data": data, "ncols": 5, "nrows": 2})
        )
    log = read_log([tmp_path / place])
    assert (log.trainer, log.rows["answer"].to_list()) == ("TRL", ["1", "7", "2", "7"])
    assert log.rows["is_rewarded"].to_list() == [False, True] * 2
