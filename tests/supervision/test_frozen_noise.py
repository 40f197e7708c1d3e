"""Stored answers that may become frozen noise (R4): what could be drawn during training (R3)."""

from olr_cli.answers import Judge
from olr_cli.data.prompts import Prompt
from olr_cli.supervision.frozen_noise import proved_wrong


def test_only_one_spelling_of_each_class_proved_different_may_serve():
    answers = {"a": ["7", "0.5", "1/2", "50\\%", "[1, 2", "12.0", "14/2"], "b": ["12"], "elsewhere": ["1"]}
    prompts = [
        Prompt("a", (), "12", None, None),
        Prompt("b", (), "12", None, None),
        Prompt("c", (), "12", None, None),
    ]
    with Judge(workers=1) as judge:
        assert proved_wrong(answers, prompts, judge) == {"a": ["0.5", "14/2"], "b": []}
