"""What a run shows while it works: one row per epoch, in 80 columns."""

import io
import json
import re
import time

import pytest
from cases import each
from rich.console import Console

from olr_cli.runs.progress import (
    ROLLOUTS,
    TRAINING,
    JsonProgress,
    LineProgress,
    LiveProgress,
    choose_progress,
    clock,
    headline,
    of_epoch,
    rough_duration,
)

STEPS = [
    {"rollout/reward": 0.2, "label/effective_noise": 0.5},
    {"rollout/reward": 0.4, "label/effective_noise": 0.3, "eval/avg": 0.6},
    {"rollout/reward": 0.6, "label/effective_noise": 0.1, "eval/avg": 0.8},
]


def rows(steps, *, per_epoch, seen=(), total=None):
    """What is printed below the header for these steps' metrics."""
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.start(total or len(seen) + len(steps), len(seen), per_epoch, seen)
    for step, metrics in enumerate(steps, len(seen) + 1):
        progress.step(step, metrics)
    return [line.split()[:-1] for line in stream.getvalue().splitlines()[2:]]


def test_a_row_is_the_mean_of_the_epochs_steps_and_the_latest_held_out_accuracy():
    assert rows(STEPS[:2], per_epoch=3, total=3) == []
    assert rows(STEPS, per_epoch=3, total=6) == [["1", "0.40", "30%", "80%"]]


def test_the_last_epoch_may_be_cut_short_and_earlier_epochs_do_not_count_in_it():
    assert rows([*STEPS, {"rollout/reward": 1.0}], per_epoch=3)[-1] == ["2", "1.00"]


def test_a_run_resumed_in_mid_epoch_shows_the_whole_epochs_mean():
    assert rows(STEPS[2:], seen=STEPS[:2], per_epoch=3, total=6) == [
        ["1", "0.40", "30%", "80%"]
    ]


def test_an_epoch_is_the_mean_over_its_prompts_not_over_its_steps():
    steps = [
        {"label/effective_noise": 0.5, "rollout/groups": 80},
        {"label/effective_noise": 0.4, "rollout/groups": 20},
    ]
    assert rows(steps, per_epoch=2) == [["1", "48%"]]


def test_what_is_known_of_some_prompts_counts_by_how_many_they_are():
    """9 noisy prompts of 10 and 3 of 30; 5 and 15 replaced labels."""
    steps = [
        {"rollout/groups": 10, "label/initial_noise": 0.9, "label/selection_ratio": 0.5,
         "majority/accuracy_clean": 1.0, "majority/accuracy_noisy": 2 / 3, "label/selected_accuracy": 0.2},
        {"rollout/groups": 30, "label/initial_noise": 0.1, "label/selection_ratio": 0.5,
         "majority/accuracy_clean": 2 / 3, "majority/accuracy_noisy": 0.0, "label/selected_accuracy": 0.4},
        {"rollout/groups": 10, "label/initial_noise": 0.0, "label/selection_ratio": 0.0,
         "majority/accuracy_clean": 0.8},
    ]  # fmt: skip
    assert of_epoch("majority/accuracy_clean", steps) == pytest.approx(
        (1 + 18 + 8) / (1 + 27 + 10)
    )
    assert of_epoch("majority/accuracy_noisy", steps) == pytest.approx((6 + 0) / (9 + 3))
    assert of_epoch("label/selected_accuracy", steps) == pytest.approx((1 + 6) / 20)


EXTREME = {
    "rollout/reward": -12.34, "majority/accuracy_clean": 1.0, "majority/accuracy_noisy": 1.0,
    "label/selection_ratio": 1.0, "label/selected_accuracy": 1.0, "label/effective_noise": 1.0, "eval/avg": 1.0,
    "policy/entropy": 10.25, "rollout/length": 4096.0, "rollout/zero_variance_groups": 1.0,
}  # fmt: skip


def test_lines_fit_80_columns_and_cells_end_where_their_headings_end():
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.start(steps=1000, done=0, steps_per_epoch=1)
    progress._began -= 86_400  # a day for the first step: time left has four characters
    for step in (1, 2, 3):
        progress.step(step, EXTREME)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80
    assert lines[-1].split()[1:-1] == ["-12.34", *["100%"] * 6, "10.25", "4096", "100%"]
    ends = [
        {i for i in range(80) if (line + " ")[i] != " " and (line + "  ")[i + 1] == " "}
        for line in lines
    ]
    assert ends[1] == ends[2] == ends[4]


def test_rollouts_have_a_table_of_their_own():
    stream = io.StringIO()
    progress = LineProgress(stream, ROLLOUTS)
    progress.start(steps=1, done=0, steps_per_epoch=1)
    progress.step(
        1, EXTREME | {"majority/differs_from_label": 0.25, "rollout/missing_answers": 1.0}
    )
    *header, row = stream.getvalue().splitlines()
    assert max(map(len, [*header, row])) <= 80
    assert row.split()[:4] == ["1", "25%", "100%", "100%"]
    assert {len(line) for line in (*header, row)} == {len(row)}


@pytest.mark.parametrize(("layout", "blank"), [(TRAINING, "clean"), (ROLLOUTS, "right")])
def test_without_true_answers_no_column_stays_blank(layout, blank):
    stream = io.StringIO()
    progress = LineProgress(stream, layout)
    progress.know(truth=False, held_out=True)
    progress.start(steps=1, done=0, steps_per_epoch=1)
    known = {
        "majority/differs_from_label": 0.25,
        "rollout/missing_answers": 1.0,
        "rollout/truncated": 1.0,
    }
    progress.step(
        1,
        {k: v for k, v in EXTREME.items() if not k.startswith("majority/accuracy")} | known,
    )
    above, heads, row = stream.getvalue().splitlines()
    assert max(map(len, (above, heads, row))) <= 80
    assert blank not in heads and "differs" in heads
    columns = [column for column in layout.columns if not column.needs_truth]
    assert len(row.split()) == 1 + len(columns) + 1, (
        "the epoch, a value a column, the time left"
    )


def test_without_a_test_set_nothing_is_shown_of_it_and_no_row_before_training():
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.know(truth=False, held_out=False)
    progress.start(steps=1, done=0, steps_per_epoch=1)
    progress.step(0, {})
    progress.step(1, {"rollout/reward": 0.5})
    assert "held-out" not in stream.getvalue() and len(stream.getvalue().splitlines()) == 3


@each(
    "reward, shown",
    (14.3467, "14.35"),
    (0.5, "0.50"),
    (-123.456, "-123.5"),
    (-1500.2, "-1500"),
)
def test_rewards_are_plain_numbers_because_not_all_are_shares(reward, shown):
    assert rows([{"rollout/reward": reward}], per_epoch=1) == [["1", shown]]


def shown_live(progress):
    """What is shown below the rows of a terminal of 80 columns."""
    line = Console(width=80, file=io.StringIO(), record=True)
    line.print(progress._bar.get_renderable())
    return line.export_text().splitlines()


@pytest.fixture
def live():
    progress = LiveProgress()
    progress._bar.live.console = progress._console = Console(
        file=io.StringIO(), width=80, force_terminal=True
    )
    progress.start(steps=9999, done=9990, steps_per_epoch=100)
    yield progress
    progress.stop()


def test_the_heads_of_the_columns_stand_above_the_live_line(live):
    shown = live._console.file.getvalue()
    assert "majority right" in shown and "epoch reward clean noisy" in shown


def test_the_kind_of_a_sentence_above_the_live_line_is_in_colour(live, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    live._console = Console(file=io.StringIO(), width=80, force_terminal=True)
    live.say("Warning: the run is long")
    shown = live._console.file.getvalue()
    assert re.search(r"\x1b\[[\d;]+mWarning\x1b\[0m: the run", shown), shown


def test_the_live_line_has_the_time_left_from_the_first_step_on_and_80_columns(live):
    (line,) = shown_live(live)
    assert "9990/9999" in line and "left" not in line
    live._began -= (
        3600  # rich's own estimate knows nothing of steps that take half a minute
    )
    live.step(9991, EXTREME)
    (line,) = shown_live(live)
    assert (
        "9991/9999" in line and "8.0h left" in line and line.rstrip().endswith("equal 100%")
    )


def test_rollouts_that_are_done_show_within_a_step(live):
    live._said -= 60
    live.within(128, 256)
    (line,) = shown_live(live)
    assert line.rstrip().endswith("128/256 rollouts")
    live.within(129, 256)
    assert "128/256" in shown_live(live)[0], "not at every token"


def test_a_log_says_once_a_minute_how_far_a_long_step_is():
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.start(steps=4, done=0, steps_per_epoch=4)
    for done in (1, 2):
        progress.within(done, 256, "held-out rollouts")
    progress._began, progress._said = progress._began - 100, progress._said - 100
    progress.within(3, 256, "held-out rollouts")
    progress.step(1, EXTREME)
    progress._said -= 100
    progress.within(1000, 2560)
    lines = stream.getvalue().splitlines()[2:]
    assert lines == [
        "step 1: 3 of 256 held-out rollouts",
        "step 2: 1,000 of 2,560 rollouts, 5m left",
    ]


def test_the_minute_of_a_log_begins_anew_with_each_line(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = LineProgress(stream := io.StringIO())
    progress.start(steps=4, done=0, steps_per_epoch=4)
    for now[0], shows in ((59, False), (60, True), (119, False), (120, True)):
        before = stream.getvalue()
        progress.within(3, 256)
        assert (stream.getvalue() != before) is shows
    now[0] = 179
    progress.say("a note")
    before = stream.getvalue()
    now[0] = 238
    progress.within(4, 256)
    assert stream.getvalue() == before, "a note is a line, too"


def test_the_headline_is_of_the_last_epoch():
    lines = [{"step": i, "epoch": 2, **metrics} for i, metrics in enumerate(STEPS)]
    earlier = {"step": 0, "epoch": 1, "label/effective_noise": 1.0}
    assert headline([earlier, *lines]) == "held-out accuracy 80%  wrong labels 30%"


def test_json_progress_is_one_object_a_line(capsys):
    progress = JsonProgress()
    progress.start(steps=9, done=6, steps_per_epoch=3)
    progress.step(7, STEPS[0])
    progress.within(1, 2)
    progress.say("a note")
    progress.say("")
    progress.stop()
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"event": "start", "steps": 9, "done": 6, "steps_per_epoch": 3},
        {"event": "step", "step": 7, **STEPS[0]},
        {"event": "note", "text": "a note"},
    ]


@each(
    "done, step, epochs",
    (0, 1, "1 1"),
    (99, 100, "1 1"),
    (100, 101, "2 2"),
    (199, 200, "2 2"),
    (0, 0, "1 1"),
)
def test_the_live_line_names_the_epoch_of_the_step_in_progress(done, step, epochs):
    progress = LiveProgress()
    progress._bar.live.console = progress._console = Console(file=io.StringIO())
    progress.start(steps=200, done=done, steps_per_epoch=100)
    before = shown_live(progress)[0].split()[:2]
    progress.step(step, {})
    after = shown_live(progress)[0].split()[:2]
    progress.stop()
    assert [before, after] == [["epoch", epoch] for epoch in epochs.split()]


TABLES = {
    (TRAINING, True): """\
          majority right   ----- labels ----- held-out               groups time
epoch reward clean noisy replaced right wrong accuracy entropy length equal left
    1   0.25   25%   25%      25%   25%   25%      25%    0.25    0.2   25%   2m""",
    (TRAINING, False): """\
             majority   labels                         no groups time
epoch reward  differs replaced entropy length  cut answer  equal left
    1   0.25      25%      25%    0.25    0.2  25%    25%    25%   2m""",
    (ROLLOUTS, True): """\
      ------ majority answer ------ ------------ responses ----------- time
visit  differs  right  clean  noisy  as label  no answer   cut  length left
    1      25%    25%    25%    25%       25%        25%   25%     0.2   2m""",
    (ROLLOUTS, False): """\
      majority ------------ responses ----------- time
visit  differs  as label  no answer   cut  length left
    1      25%       25%        25%   25%     0.2   2m""",
}


@pytest.mark.parametrize(("layout", "is_known"), TABLES)
def test_a_table_is_this_text(layout, is_known, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = LineProgress(stream := io.StringIO(), layout)
    progress.know(truth=is_known, held_out=is_known)
    progress.start(steps=3, done=0, steps_per_epoch=1)
    now[0] = 60.0
    progress.step(1, {column.metric: 0.25 for column in layout.columns})
    assert stream.getvalue() == TABLES[layout, is_known] + "\n"


def test_durations_are_readable():
    seconds = (0.2, 59, 59.6, 61, 3599, 3600, 3600 + 125)
    shown = ["0:00", "0:59", "1:00", "1:01", "59:59", "1:00:00", "1:02:05"]
    assert [clock(s) for s in seconds] == shown


@each(
    "seconds, shown",
    (99.4, "99s"), (99.6, "2m"), (99.4 * 60, "99m"), (99.6 * 60, "1.7h"), (9.94 * 3600, "9.9h"), (9.96 * 3600, "10h"),
    (47.4 * 3600, "47h"), (47.6 * 3600, "2d"), (1.9499 * 3600, "1.9h"), (9.949 * 3600, "9.9h"), (46.4999 * 3600, "46h"),
)  # fmt: skip
def test_a_rough_duration_has_the_smallest_unit_that_has_room(seconds, shown):
    assert rough_duration(seconds) == shown


def test_a_rough_duration_has_four_characters_at_most():
    seconds = (0.2, 99, 100, 5900, 6000, 36_000, 47 * 3600, 48 * 3600, 900 * 86_400)
    shown = ["0s", "99s", "2m", "98m", "1.7h", "10h", "47h", "2d", "900d"]
    assert [rough_duration(s) for s in seconds] == shown


@each(
    "as_json, is_terminal, kind",
    (True, True, JsonProgress), (True, False, JsonProgress), (False, True, LiveProgress), (False, False, LineProgress),
)  # fmt: skip
def test_a_terminal_has_a_bar_and_a_pipe_lines(monkeypatch, as_json, is_terminal, kind):
    monkeypatch.setattr("sys.stdout", stream := io.StringIO())
    stream.isatty = lambda: is_terminal
    assert type(choose_progress(as_json=as_json)) is kind
