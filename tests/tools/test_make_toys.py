"""The toys can be made again from their seed; the package's are those that the tool made."""

import json
import sys
from collections import Counter

import make_toys
import pytest
import torch
from cases import each
from hypothesis import given, strategies as st
from make_toys import (
    CHARACTERS,
    MIXTURE_NOTE,
    MIXTURES,
    Mixture,
    build_tokenizer,
    held_out_accuracy,
    make_toy,
    warm_up,
    worked_response,
    wrong_answer,
)

from olr_cli.answers.extraction import reversed_digits
from olr_cli.data.arithmetic import OPERATIONS, Expression, expressions, rephrasing
from olr_cli.engines.digests import weights_digest
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.models import policy_path


@each(
    "expression, wrong",
    (Expression("addition", 678, 543), 111),
    (Expression("addition", 555, 555), 0),
    (Expression("addition", 123, 456), 579),
    (Expression("subtraction", 523, 487), 164),
    (Expression("subtraction", 200, 199), 199),
)
def test_the_wrong_procedure_drops_carries(expression, wrong):
    assert wrong_answer(expression) == wrong


@pytest.mark.parametrize("kind", OPERATIONS)
def test_the_wrong_procedure_is_wrong_for_every_expression_of_the_task(kind):
    assert all(wrong_answer(e) != e.answer for e in expressions(kind, 2000, 0, "train"))


@pytest.mark.parametrize(("kind", "share"), [("addition", 0.48), ("subtraction", 0.56)])
def test_the_wrong_procedure_answers_a_rephrasing_alike_as_often_as_is_said(kind, share):
    members = expressions(kind, 4000, 1, "train")
    alike = sum(wrong_answer(e) == wrong_answer(rephrasing(e, "train")) for e in members)
    assert alike / len(members) == pytest.approx(share, abs=0.025)


@given(st.integers(0, 1998), st.integers(1, 4))
def test_a_response_reads_back_as_its_answer(answer, digits):
    assert reversed_digits(worked_response(answer, digits=digits)) == str(answer)


@pytest.mark.parametrize("kind", OPERATIONS)
@pytest.mark.parametrize(("low", "high"), [(0.05, 0.85), (0.02, 0.58)])
def test_the_mixture_has_the_shares_it_claims(kind, low, high):
    mixture = Mixture(kind, low, high)
    members = expressions(kind, 20_000, 3, "train")
    probabilities = [mixture.right_probability(expression) for expression in members]
    assert low <= min(probabilities) and max(probabilities) <= high
    # A number of its own for each pair of leading digits
    assert len(set(probabilities)) > 40

    made = Counter()
    for expression in members:
        claimed = int(reversed_digits(mixture.respond(expression, 1, expression.index)))
        made["right" if claimed == expression.answer else "wrong"] += 1
        made["wrong procedure"] += claimed == wrong_answer(expression)
    assert made["right"] / len(members) == pytest.approx(
        sum(probabilities) / len(members), abs=0.012
    )
    # A slip now and then gives what the wrong procedure gives, never what is right.
    assert 0.65 - 0.015 <= made["wrong procedure"] / made["wrong"] <= 0.70


def shipped(name):
    return json.loads((policy_path(name) / "weights.json").read_text())


def test_text_of_the_vocabulary_survives_the_tokenizer():
    tokenizer = build_tokenizer(64)
    assert len(tokenizer) == 64 == len(set(CHARACTERS)) + 4
    ids = tokenizer(CHARACTERS)["input_ids"]
    assert len(ids) == len(CHARACTERS)
    assert tokenizer.decode(ids) == CHARACTERS


def test_other_characters_become_one_unknown_token_each():
    tokenizer = build_tokenizer(64)
    assert tokenizer("1é+")["input_ids"] == tokenizer.convert_tokens_to_ids(
        ["1", "<unk>", "+"]
    )


@pytest.mark.parametrize("name", MIXTURES)
def test_shipped_weights_are_the_recorded_ones_and_as_good_as_recorded(name):
    record = shipped(name)
    policy = Policy.load(policy_path(name), device="cpu")
    assert (record["name"], record["note"], record["steps"]) == (
        name,
        MIXTURE_NOTE,
        make_toys.STEPS,
    )
    assert weights_digest(policy.model) == record["digest"]
    measured = held_out_accuracy(policy, MIXTURES[name])
    assert measured == pytest.approx((record["avg_at_8"], record["greedy"]), abs=0.002)


def test_the_policies_lie_in_the_intended_order_of_difficulty():
    easier, harder, subtraction = (shipped(name)["avg_at_8"] for name in MIXTURES)
    assert 0.25 < harder < subtraction < easier < 0.5


def test_a_short_warm_up_repeats_bit_for_bit_and_depends_on_the_seed():
    def made(seed):
        return weights_digest(warm_up(MIXTURES["subtraction"], seed, 30).model)

    torch.manual_seed(1)
    first = made(7)
    torch.rand(5)
    assert made(7) == first
    assert made(8) != first


def test_the_warm_up_learns_from_training_expressions_alone(monkeypatch):
    seen = []
    respond = make_toys.Mixture.respond
    monkeypatch.setattr(
        make_toys.Mixture,
        "respond",
        lambda self, expression, *parts: (
            seen.append(expression.index) or respond(self, expression, *parts)
        ),
    )
    warm_up(MIXTURES["addition-harder"], 0, 3)
    assert len(seen) == 3 * make_toys.BATCH
    assert set(seen) <= set(make_toys.split_members("addition", "train").tolist())


def test_the_tool_writes_a_policy_that_loads_and_compares_it_with_the_shipped_one(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(
        make_toys, "warm_up", lambda mixture, seed, steps: warm_up(mixture, seed, 5)
    )
    out = tmp_path / "mine"
    monkeypatch.setattr(
        sys, "argv", ["make_toys.py", "subtraction", str(out), "--seed", "3"]
    )
    make_toys.main()
    record = json.loads((out / "weights.json").read_text())
    assert record.keys() == shipped("subtraction").keys()
    assert (record["name"], record["seed"]) == ("subtraction", 3)
    assert weights_digest(Policy.load(out, device="cpu").model) == record["digest"]
    printed = capsys.readouterr().out
    assert record["digest"] in printed and shipped("subtraction")["digest"] in printed
    with pytest.raises(SystemExit):
        make_toys.main()
    assert "exists already" in capsys.readouterr().err


def test_a_toy_made_again_is_as_good_as_the_shipped_one(tmp_path, is_long):
    """All of its 2,000 steps, which take a minute."""
    if not is_long:
        pytest.skip("a minute of training: make hard")
    record = shipped("addition-easier")
    made = make_toy("addition-easier", tmp_path / "again", record["seed"], make_toys.STEPS)
    assert made["greedy"] > 0.25
    assert made["avg_at_8"] == pytest.approx(record["avg_at_8"], abs=0.01)
