"""The last lines of a run say what its tables know, and nothing they don't."""

import pytest
from histories import write_history

from olr_cli.runs.summary import run_summary


@pytest.mark.parametrize("knows_noise", [True, False])
def test_how_many_labels_were_marked_is_told_where_it_is_known(tmp_path, knows_noise):
    run = write_history(tmp_path / "run", knows_noise=knows_noise, epochs=2)
    (line,) = (line for line in run_summary(run) if "wrong labels" in line)
    assert ("(initially marked: 50.0%)" in line) == knows_noise
