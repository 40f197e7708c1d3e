"""What a run shows while it works: a row an epoch, in 80 columns."""

import io
import json

from olr_cli.runs.progress import HEADER, EpochRows, JsonProgress, LineProgress, clock, headline

STEPS = [
    {"rollout/reward": 0.2, "label/effective_noise": 0.5},
    {"rollout/reward": 0.4, "label/effective_noise": 0.3, "eval/avg": 0.6},
    {"rollout/reward": 0.6, "label/effective_noise": 0.1, "eval/avg": 0.8},
]


def test_a_row_is_the_mean_of_the_epochs_steps_and_the_latest_held_out_accuracy():
    rows = EpochRows(steps=3, steps_per_epoch=3)
    assert [rows.add(step, metrics) for step, metrics in enumerate(STEPS, 1)][:2] == [None, None]
    rows = EpochRows(steps=6, steps_per_epoch=3)
    row = [rows.add(step, metrics) for step, metrics in enumerate(STEPS, 1)][-1]
    assert row.split() == ["1", "40%", "30%", "80%"]
    assert len(row) == len(HEADER[1])


def test_the_last_epoch_may_be_cut_short_and_earlier_epochs_do_not_count_in_it():
    rows = EpochRows(steps=4, steps_per_epoch=3)
    shown = [rows.add(step, metrics) for step, metrics in enumerate([*STEPS, {"rollout/reward": 1.0}], 1)]
    assert shown[-1].split() == ["2", "100%"]


def test_a_run_resumed_in_mid_epoch_shows_the_whole_epochs_mean():
    rows = EpochRows(steps=6, steps_per_epoch=3, seen=STEPS[:2])
    assert rows.add(3, STEPS[2]).split() == ["1", "40%", "30%", "80%"]


def test_lines_fit_80_columns():
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.start(steps=3, done=0, steps_per_epoch=1)
    for step in (1, 2, 3):
        names = (
            "rollout/reward",
            "majority/accuracy_clean",
            "majority/accuracy_noisy",
            "label/selection_ratio",
        )
        metrics = dict.fromkeys((*names, "label/selected_accuracy", "label/effective_noise", "eval/avg"), 1.0)
        progress.step(step, metrics)
    assert len(stream.getvalue().splitlines()) == 5
    assert max(map(len, stream.getvalue().splitlines())) <= 80


def test_the_headline_is_of_the_last_epoch():
    lines = [{"step": i, "epoch": 2, **metrics} for i, metrics in enumerate(STEPS)]
    earlier = {"step": 0, "epoch": 1, "label/effective_noise": 1.0}
    assert headline([earlier, *lines]) == "held-out accuracy 80%  wrong labels 30%"


def test_json_progress_is_one_object_a_line(capsys):
    progress = JsonProgress()
    progress.start(steps=1, done=0, steps_per_epoch=1)
    progress.step(1, STEPS[0])
    progress.say("a note")
    progress.stop()
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["start", "step", "note"]


def test_durations_are_readable():
    assert [clock(s) for s in (0.2, 61, 3600 + 125)] == ["0:00", "1:01", "1:02:05"]
