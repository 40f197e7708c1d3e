"""The end of a step, of either engine: what is done, in which order, and what of it survives a stop or a divergence."""

from types import SimpleNamespace

import pytest

from olr_cli.engines import step as step_module
from olr_cli.engines.run import LOGITS, Diverged, NonFinite
from olr_cli.engines.step import StepEnd
from olr_cli.recipe.layers import validate
from olr_cli.runs.metrics import Stopwatch
from olr_cli.runs.schedule import Schedule

PROMPTS = 8
RECIPE = validate(
    {
        "train": {
            "epochs": 3,
            "prompts_per_step": 4,
            "checkpoint_every": 2,
            "evaluate_every": 3,
        }
    },
    "test",
)


class Asked(Exception):
    """Somebody asked for a stop."""


@pytest.fixture
def done(tmp_path, monkeypatch):
    """What was done, in its order."""
    monkeypatch.setattr(step_module, "step_metrics", lambda *_: {"rollout/reward": 0.5})
    return []


def ends(done, path, stop=lambda: None, held_out=None):
    """A `StepEnd` whose parts note what they do."""

    def noting(deed, result=None):
        def note(step, *_):
            done.append((deed, step))
            return result

        return note

    writer = SimpleNamespace(
        path=path,
        recipe=RECIPE,
        store=noting("store", ((), ())),
        log=lambda step, epoch, metrics: done.append(("log", step, epoch, [*metrics])),
        drop_after=noting("drop after"),
    )
    held_out = held_out or (lambda: done.append(("held out",)) or {"eval/avg": 0.25})
    schedule = Schedule.of(RECIPE, PROMPTS)
    return StepEnd(writer, schedule, held_out, noting("save"), stop, noting("report"))


def complete(end, step):
    decided = SimpleNamespace(labels={}, rollouts={}, timeouts=0, undecided=0)
    end.complete(
        step,
        decided,
        Stopwatch(),
        {"policy/kl": 0.0},
        lambda metrics: {"speed/samples": None},
    )


def test_a_step_is_stored_measured_logged_and_saved_in_this_order(done, tmp_path):
    end = ends(done, tmp_path)
    end.before_training()
    complete(end, 1)
    complete(end, 6)
    line = ["policy/kl", "rollout/reward", "time/store", "time/step", "speed/samples"]
    last = [*line[:2], "eval/avg", "time/store", "time/evaluation", *line[3:]]
    assert done == [
        ("held out",), ("log", 0, 0, ["eval/avg"]), ("report", 0), ("store", 1), ("log", 1, 1, line), ("report", 1),
        ("store", 6), ("held out",), ("log", 6, 3, last), ("report", 6), ("save", 6),
    ]  # fmt: skip


def test_a_stop_is_asked_for_once_a_step_and_saves_it_first(done, tmp_path):
    answers = iter([None, Asked()])
    end = ends(done, tmp_path, stop=lambda: next(answers))
    complete(end, 1)
    with pytest.raises(Asked):
        complete(end, 3)
    assert [deed for deed in done if deed[0] == "save"] == [("save", 3)]


def test_a_stop_in_the_last_step_comes_too_late_to_interrupt(done, tmp_path):
    complete(ends(done, tmp_path, stop=Asked), 6)
    assert done[-1] == ("save", 6)


def test_a_stored_step_whose_policy_cannot_answer_is_dropped(done, tmp_path):
    def held_out():
        raise NonFinite(LOGITS)

    with pytest.raises(Diverged, match="at step 3 its logits are not finite"):
        complete(ends(done, tmp_path, held_out=held_out), 3)
    assert done == [("store", 3), ("drop after", 2), ("log", 3, 2, ["policy/nonfinite"])]


def test_a_step_that_diverges_before_it_is_stored_removes_nothing(done, tmp_path):
    """Another process may have taken over the run; the writer's check of that comes with the line of metrics."""
    with pytest.raises(Diverged), ends(done, tmp_path).stopping_if_diverged(4, failed=3):
        raise NonFinite(LOGITS)
    assert done == [("log", 4, 2, ["policy/nonfinite"])]
