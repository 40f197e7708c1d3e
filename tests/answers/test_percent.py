"""A bare gold accepts the percent sign where its question asks for a percentage, and only there (R7)."""

from cases import each

from olr_cli.answers import Gold


@each(
    "gold, answer, verdict",
    ("30", r"30\%", True), ("30", "30 percent", True), ("30", "30", True),
    (r"\frac{200}{3}", r"66\frac23 \%", True), ("(10, 40)", r"(10\%, 40\%)", True), ("30", r"x = 30\%", True),
    ("30", r"3\%", False), ("30", "0.3", False), (r"30\%", "30", True), ("0.3", r"30\%", True),
)  # fmt: skip
def test_a_bare_gold_accepts_the_sign_where_it_is_asked_for(match, gold, answer, verdict):
    assert match(Gold(gold, in_percent=True), answer) is verdict


def test_a_bare_gold_refuses_the_sign_where_it_is_not_asked_for(match):
    assert match(Gold("30"), r"30\%") is False
