"""Accuracy on prompts that never train."""

import pytest

from olr_cli.answers import Judge
from olr_cli.data.prompts import Prompt
from olr_cli.engines.held_out import held_out_accuracy


def test_accuracy_is_measured_by_the_truth_else_by_a_label_that_is_no_noise():
    prompts = [
        Prompt("marked", (), "7", "12", "active_frozen"),
        Prompt("unknown", (), "1/2", None, None),
    ]
    responses = [["\\boxed{12}", "\\boxed{12}", "\\boxed{7}"], ["\\boxed{0.5}", "none", "\\boxed{3}"]]
    with Judge(workers=1) as judge:
        found = held_out_accuracy(prompts, responses, judge)
        # Shares 2/3 and 1/3: their standard deviation is 1/(3 sqrt 2), over sqrt 2 for two prompts.
        assert found == {"avg": 3 / 6, "majority": 1 / 2, "avg_stderr": pytest.approx(1 / 6)}
