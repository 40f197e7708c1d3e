"""What every engine does around a step."""

import itertools

from olr_cli.engines import steps
from olr_cli.engines.steps import Stopwatch


def test_a_stopwatch_adds_up_what_is_measured_in_several_goes(monkeypatch):
    monkeypatch.setattr(
        steps.time, "perf_counter", itertools.count().__next__
    )  # a second a look at the clock
    clock = Stopwatch()
    for part in ("verification", "labels", "verification"):
        with clock.measure(part):
            pass
    assert clock.metrics() == {"time/verification": 2, "time/labels": 1, "time/step": 7}
