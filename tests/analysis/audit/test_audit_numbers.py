"""The numbers behind an audit: bounds, and what fits of hand-made logs find.

Fits and maps are compared with `fixtures/numbers`; `pytest tests/analysis/audit/test_audit_numbers.py --rewrite` writes
those anew.
"""

from dataclasses import fields
from decimal import Decimal
from itertools import permutations

import numpy as np
import polars as pl
import pytest
from cases import each
from test_audit_annotators import PROMPTS, of_two_kinds, tally_of, votes_of

from olr_cli.analysis.audit import (
    annotators,
    answer,
    rewards,
    verifier_rules,
)
from olr_cli.analysis.audit.calibration import Verified, calibrate, noise_ratio
from olr_cli.analysis.audit.export import Choice
from olr_cli.analysis.audit.request import Request
from olr_cli.analysis.audit.reward_rates import by_grader
from olr_cli.analysis.audit.tally import UNSEEN
from olr_cli.tables import Cell


def test_what_is_not_asked_of_an_audit_is_not_done():
    unset = dict.fromkeys(field.name for field in fields(Request))
    unset |= {
        "history": [],
        "set_": (),
        "verified": (),
        "rewards": False,
        "choice": Choice(),
    }
    assert vars(Request([])) == unset
    assert Choice() == Choice((), (), None, None, 0, None, False)


# The fit ---------------------------------------------------------------------------------------------------------


def shown(model):
    lines = [f"strength {model.strength:g}, spread {model.spread:g}"]
    lines.append(
        f"labels {model.label_accuracy:.5g}, voters {''.join(map(str, model.is_voter.astype(int)))}"
    )
    for name in ("accuracies", "odds", "agreement", "leaders"):
        values = " ".join(f"{value:.5g}" for value in getattr(model, name))
        lines.append(f"{name} {values}")
    return "\n".join(lines)


def alike(prompts=40):
    """A policy that gives one answer to a question, always: the right one to three in four."""
    return [(0, [[8, 0]] if number % 4 else [[0, 8]]) for number in range(prompts)]


def apart(prompts=40):
    """A policy that is right six times in eight, whatever the question."""
    return [(0, [[6, 1, 1]])] * prompts


def hard_and_easy():
    """Six models, all of which are right on easy questions, and few on hard ones, where they scatter."""
    easy = [votes_of([0] * 6, 0)] * 20
    return [
        *easy,
        *[votes_of([0, 1, 2, 3, 4, 5], 0), votes_of([0, 0, 2, 3, 4, 5], UNSEEN)] * 10,
    ]


@each(
    "name, prompts, models",
    ("one", [(label, by_model[:1]) for label, by_model in PROMPTS], 1),
    ("two", PROMPTS, 2),
    ("alike", alike(), 1),
    ("apart", apart(), 1),
    ("hard", hard_and_easy(), 6),
    ("twelve", [votes_of(one, 0) for one in of_two_kinds(np.random.default_rng(0), 60)], 12),
    ids=["one", "two", "alike", "apart", "hard", "twelve"],
)  # fmt: skip
def test_a_fit_finds_the_numbers_that_it_always_found(name, prompts, models, is_as_stored):
    model = annotators.fit(tally_of(prompts, models=models))
    is_as_stored(f"numbers/{name}.txt", shown(model) + "\n")


def test_the_likeliest_strength_says_whether_a_policys_answers_to_one_question_are_alike():
    assert annotators.fit(tally_of(alike())).strength == min(annotators.STRENGTHS)
    assert annotators.fit(tally_of(apart())).strength == max(annotators.STRENGTHS)


def test_the_likeliest_spread_says_whether_some_questions_are_hard_for_all():
    same = [votes_of([0, 0, 0, 0, 1, 2], 0), votes_of([1, 2, 0, 0, 0, 0], 0)] * 20
    assert annotators.fit(tally_of(same, models=6)).spread == 0
    assert annotators.fit(tally_of(hard_and_easy(), models=6)).spread > 0


@each("order", *[*permutations(range(4))][1::5])
def test_the_order_of_prompts_and_of_models_decides_nothing(order):
    said = [*of_two_kinds(np.random.default_rng(1), 40)]
    prompts = [votes_of([one[place] for place in (0, 3, 5, 9)], 0) for one in said]
    model = annotators.fit(tally_of(prompts, models=4))
    moved = [(label, [by[place] for place in order]) for label, by in reversed(prompts)]
    other = annotators.fit(tally_of(moved, models=4))
    assert other.odds[::-1] == pytest.approx(model.odds, abs=1e-5)
    assert other.accuracies == pytest.approx(model.accuracies[list(order)], abs=1e-5)
    assert other.strength == model.strength and other.spread == model.spread


def test_more_answers_against_a_label_never_make_it_less_doubtful_and_agreement_never_more():
    counts = [[[4, given]] for given in range(9)]
    odds = annotators.fit(
        tally_of([*((0, by) for by in counts), *[(0, [[6, 2]])] * 20])
    ).odds
    assert (np.diff(odds[:9]) > 0).all()
    counts = [[[given, 4]] for given in range(1, 9)]
    odds = annotators.fit(
        tally_of([*((0, by) for by in counts), *[(0, [[6, 2]])] * 20])
    ).odds
    assert (np.diff(odds[:8]) < 0).all()


# What is verified ------------------------------------------------------------------------------------------------


def known(wrong, right, others, *, drawn=True):
    """What is known of labels: so many wrong ones, right ones, and ones of which nothing is known."""
    is_wrong = np.array([1.0] * wrong + [0.0] * right + [np.nan] * others)
    return Verified((None,) * len(is_wrong), is_wrong, ~np.isnan(is_wrong) & drawn)


@each(
    "wrong, right, others, ratio",
    (3, 22, 75, (0.12, 0.04, 0.26)),
    (0, 25, 975, (0.0, 0.0, 0.135)),
    (25, 0, 975, (1.0, 0.865, 1.0)),
    (1, 0, 3, (1.0, 0.25, 1.0)),
    (2, 2, 0, (0.5, 0.5, 0.5)),
)
def test_a_noise_ratio_has_jeffreys_interval_and_an_open_end_where_all_are_alike(
    wrong, right, others, ratio
):
    labels = np.ones(wrong + right + others, dtype=bool)
    found = noise_ratio(known(wrong, right, others), labels)
    assert (found.value, found.low, found.high) == pytest.approx(ratio, abs=1e-9)
    assert noise_ratio(known(wrong, right, others, drawn=False), labels) is None


def test_maps_of_verified_labels_give_the_chances_and_gains_that_they_always_gave(
    is_as_stored,
):
    odds = np.linspace(-6, 6, 25)
    is_wrong = np.where(np.arange(25) % 2, np.nan, (odds > 0.5).astype(float))
    lines = []
    for right in (1.0, 0.0, np.nan):
        maps = calibrate(odds, is_wrong, np.full(25, right))
        chances = maps.chances(np.array([-30.0, -3, -1, 0, 1, 3, 30]))
        changed, gain = maps.changes(odds, np.isnan(is_wrong))
        lines.append(
            f"proposals {right}: chances {' '.join(f'{it:.3f}' for it in chances)}"
        )
        lines.append(
            f"  changed {''.join(map(str, changed.astype(int)))}, gain {gain and gain.full}"
        )
        lines.append(f"  of all above 0: {maps.gain(odds[odds > 0]).full}")
    is_as_stored("numbers/maps.txt", "\n".join(lines) + "\n")


@each(
    "chance, text",
    (None, ""),
    (1.0, ">.99"),
    (0.9951, ">.99"),
    (0.995, "0.99"),
    (0.5, "0.50"),
    (0.126, "0.13"),
    (0.005, "0.01"),
    (0.0049, "<.01"),
    (0.0, "<.01"),
)
def test_a_chance_has_two_digits_and_is_never_said_to_be_certain(chance, text):
    assert answer._chance_text(chance) == text


@each(
    "values, text",
    ([1, 1], "1 visit"),
    ([2, 2], "2 visits"),
    ([0], "0 visits"),
    ([3, 1, 2], "1 to 3 visits"),
    ([0, 1], "0 to 1 visit"),
)
def test_counts_of_all_prompts_are_a_number_or_a_range(values, text):
    assert answer._count_range(pl.Series(values), "visit") == text


@each(
    "text, width, is_end, cut",
    ("1234567", 7, False, "1234567"),
    ("1234567", 6, False, "12345…"),
    ("1234567", 6, True, "…34567"),
    ("数学数学", 5, False, "数学…"),
)
def test_long_texts_keep_their_beginning_and_ids_their_end(text, width, is_end, cut):
    assert answer._cut(text, width, is_end=is_end) == cut


def test_columns_of_texts_share_the_room_and_the_widest_gives_way_first():
    texts = {"a": ["x" * 40], "long head": ["y"], "b": ["z" * 20]}
    assert answer._text_widths(texts, 80) == {"a": 30, "long head": 9, "b": 20}
    assert answer._text_widths(texts, 40) == {"a": 15, "long head": 9, "b": 16}


# Rewards ---------------------------------------------------------------------------------------------------------


@each(
    "answer_, label, kind",
    ("10", "11", "near value"),
    ("9", "10", "other value"),
    ("9.01", "10", "near value"),
    ("-1", "1", "other value"),
    ("20", "20", "same text"),
    ("5 cm", "5", "words or unit"),
    ("50%", "0.5", "words or unit"),
    ("x+1", "1+x", "spelling"),
    ("3", "x", "spelling"),
)
def test_a_contradiction_is_of_the_kind_that_its_texts_show(answer_, label, kind):
    assert rewards._kind(answer_, label) == kind


@each(
    "answer_, label, distance",
    ("5", "5", (None, None)),
    ("5", "x", (None, None)),
    ("x", "5", (None, None)),
    ("101", "100", ("1", 0.02)),
    ("100.05", "100", ("0.05", 0.001)),
    ("120", "100", ("20", None)),
    ("119.9", "100", ("19.9", 0.2)),
    ("1/3", "1", (None, None)),
    ("-98", "-100", ("2", 0.05)),
    ("1000000", "0", (None, None)),
    ("999999", "0", ("999999", None)),
)
def test_the_distance_of_a_number_from_its_label_is_exact_or_unknown(
    answer_, label, distance
):
    assert verifier_rules._apart(answer_, label) == distance


@each("rate, text", (0.12345, "0.123"), (0, "0.000"), (None, "0.000"), (float("nan"), "0"))
def test_a_rate_of_a_recipe_has_three_digits(rate, text):
    assert verifier_rules.rounded(rate) == Decimal(text)


@each(
    "misjudged, comes_back",
    ([7, 0], False),
    ([8, 0], True),
    ([10, 0], True),
    ([5, 5], False),
    ([10, 10], False),
    ([0, 0], False),
)
def test_errors_come_back_if_more_than_halfway_from_what_draws_would_give(
    misjudged, comes_back
):
    """Of two answers with ten rollouts each; the bar of [7, 0] is at 85.05 / 2 pairs, and 42 come back."""
    rows = [{"bad": float(bad), "of": 10.0, "verdict": True} for bad in misjudged]
    assert verifier_rules._errors_repeat(pl.DataFrame(rows)) is comes_back


def cases(prompts, *, is_rewarded, verdict=True):
    """A rollout for each prompt."""
    columns = {"is_rewarded": is_rewarded, "verdict": verdict, "label": "1", "answer": "1"}
    return [{"prompt_id": str(number), **columns} for number in range(prompts)]


def test_a_rate_of_0_or_1_has_the_exact_interval_of_its_prompts():
    rows = [*cases(10, is_rewarded=True), *cases(5, is_rewarded=True, verdict=False)]
    found = by_grader(pl.DataFrame(rows))
    missed, passed = found.false_negative_rate, found.false_positive_rate
    assert (missed.value, missed.ends) == (0, (0, pytest.approx(1 - 0.05 ** (1 / 10))))
    assert (passed.value, passed.ends) == (1, (pytest.approx(0.05 ** (1 / 5)), 1))
    assert found.youden == 0


def test_a_rate_of_which_nothing_is_known_is_unknown_and_so_is_their_sum():
    found = by_grader(pl.DataFrame(cases(10, is_rewarded=False)))
    assert found.false_negative_rate.value == 1
    assert found.false_positive_rate == Cell(kind="percent")
    assert found.youden is None
