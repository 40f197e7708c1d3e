"""Noise is exact, nested, seeded (R1), and only ever put on labels that are there and unmarked (R5)."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from cases import each, refusal
from hypothesis import given, strategies as st

from olr_cli.answers.graded import SENTINEL
from olr_cli.data.chat import Message
from olr_cli.data.interchange import prompt_set
from olr_cli.data.noise import (
    NoiseKind,
    default_target,
    describe_counts,
    examples,
    inject,
    marked_count,
)
from olr_cli.data.prompts import NoiseType, Prompt, PromptSet
from olr_cli.errors import UserError

sizes, seeds = st.integers(1, 60), st.integers(0, 5)
ratios = st.decimals(min_value=0, max_value=1, places=3)
kinds = st.sampled_from(["inactive", "active", "mixed"])


def labelled(size: int) -> PromptSet:
    prompts = (
        Prompt(str(n), (Message("user", f"{n}+1"),), str(n + 1), None, None, "sums")
        for n in range(size)
    )
    return prompt_set(tuple(prompts), "sums")


def noisy(
    size: int, type: NoiseKind = "active", ratio: Any = "0.5", seed: int = 0, **more: Any
) -> PromptSet:
    return inject(labelled(size), type=type, ratio=ratio, seed=seed, **more)


def of_type(prompts: PromptSet, *types: NoiseType) -> set[str]:
    return {p.prompt_id for p in prompts.prompts if p.noise_type in types}


def marked(prompts: PromptSet) -> set[str]:
    return {p.prompt_id for p in prompts.prompts if p.is_marked}


@given(sizes, ratios, kinds, seeds)
def test_exactly_the_rounded_share_is_marked_and_every_type_marks_the_same_prompts(
    size, ratio, kind, seed
):
    found = noisy(size, kind, ratio, seed)
    assert abs(len(marked(found)) - Fraction(ratio) * size) <= Fraction(1, 2)
    assert len(marked(found)) == marked_count(Fraction(ratio), size)
    assert marked(found) == marked(noisy(size, "active", ratio, seed))
    again = noisy(size, kind, ratio, seed)
    assert (again.prompts, again.digest, again.facts) == (
        found.prompts,
        found.digest,
        found.facts,
    )


@given(sizes, ratios, ratios, kinds, seeds)
def test_a_larger_ratio_marks_what_a_smaller_one_marks_type_by_type(
    size, one, other, kind, seed
):
    few, many = (noisy(size, kind, ratio, seed) for ratio in sorted((one, other)))
    assert of_type(few, "inactive") <= of_type(many, "inactive")
    assert of_type(few, "active") <= of_type(many, "active")


@given(sizes, ratios, ratios, seeds)
def test_mixed_noise_has_the_exact_share_of_active_prompts(size, ratio, share, seed):
    mixed = noisy(size, "mixed", ratio, seed, active_share=share)
    assert len(of_type(mixed, "active")) == marked_count(
        Fraction(share), len(marked(mixed))
    )


@each(
    "ratio, size, count",
    ("0.5", 7, 4), ("0.5", 5, 3), ("0.3", 5, 2), ("0.285", 200, 57), ("0.145", 100, 15), ("1", 9, 9),
)  # fmt: skip
def test_halves_round_up_and_the_ratio_counts_as_written(ratio, size, count):
    """0.145 * 100 is 14.499... in doubles."""
    assert (
        len(marked(noisy(size, ratio=ratio)))
        == len(marked(noisy(size, ratio=float(ratio))))
        == count
    )


def test_marking_declares_the_old_labels_true():
    clean, changed = labelled(10), noisy(10, "mixed", "0.4", 3)
    for before, after in zip(clean.prompts, changed.prompts, strict=True):
        label = SENTINEL if after.is_marked else before.given_label
        assert after.noise_type is not None
        assert after == replace(
            before,
            given_label=label,
            true_answer=before.given_label,
            noise_type=after.noise_type,
        )
    assert describe_counts(changed) == "2 inactive, 2 active, 6 clean"


@pytest.mark.parametrize("share", ["1.5", "-0.1", "nan", "inf", "half", "", 1.0001])
@pytest.mark.parametrize("which", ["ratio", "active_share"])
def test_a_share_outside_its_range_is_refused(share, which):
    with pytest.raises(UserError, match=which.replace("_", " ")):
        noisy(4, "mixed", **{which: share})


def test_noise_is_put_on_labels_that_are_there_and_unmarked():
    """R1, R5."""
    with pytest.raises(UserError, match=r"sums is marked already \(2 active, 8 clean\)"):
        inject(noisy(10, ratio="0.2"), type="active", ratio="0.4", seed=0)
    assert len(marked(inject(noisy(10, ratio=0), type="active", ratio="0.2", seed=0))) == 2
    some = labelled(3)
    holed = some.with_prompts(
        [replace(prompt, given_label=None) for prompt in some.prompts], {}
    )
    with pytest.raises(UserError, match="injecting noise needs the label of every prompt"):
        inject(holed, type="inactive", ratio="0.5", seed=0)


@given(ratios, seeds)
def test_frozen_noise_writes_a_wrong_answer_of_the_prompts_own(ratio, seed):
    """R4."""
    wrong = {
        p.prompt_id: [f"{p.prompt_id}/{n}" for n in range(3)] for p in labelled(12).prompts
    }
    # Its truth and no answer at all, which can't be wrong answers
    wrong["3"] += [
        "4",
        SENTINEL,
    ]
    frozen = noisy(20, "active", ratio, seed, wrong_answers=wrong)
    assert marked(frozen) == marked(noisy(20, "active", ratio, seed))
    without = 0
    for prompt in frozen.prompts:
        if prompt.noise_type == "active_frozen":
            assert prompt.given_label in wrong[prompt.prompt_id][:3]
            assert prompt.true_answer == str(int(prompt.prompt_id) + 1)
        elif prompt.is_marked:
            without += 1
            assert prompt.prompt_id not in wrong
            assert (prompt.noise_type, prompt.given_label) == ("inactive", SENTINEL)
    assert frozen.facts["noise.without_wrong_answer"] == str(without)


def test_frozen_labels_are_drawn_uniformly_and_in_no_order_of_the_rollouts():
    names = [p.prompt_id for p in labelled(600).prompts]
    frozen = noisy(600, ratio=1, wrong_answers={key: ["x", "y", "z"] for key in names})
    labels = [p.given_label for p in frozen.prompts]
    assert all(150 < labels.count(name) < 250 for name in "xyz")
    backwards = noisy(
        600, ratio=1, wrong_answers={key: ["z", "x", "y", "y"] for key in names}
    )
    assert backwards.prompts == frozen.prompts


def test_mixed_frozen_noise_keeps_its_inactive_part():
    wrong = {p.prompt_id: ["x"] for p in labelled(20).prompts}
    frozen = noisy(20, "mixed", wrong_answers=wrong)
    assert describe_counts(frozen) == "5 inactive, 5 active_frozen, 10 clean"
    assert frozen.facts["noise.without_wrong_answer"] == "0"
    assert "not inactive" in refusal(noisy, 20, "inactive", wrong_answers=wrong)


def test_examples_show_every_type_that_marks():
    mixed = noisy(40, "mixed", active_share="0.05")
    assert describe_counts(mixed) == "19 inactive, 1 active, 20 clean"
    assert sorted(str(p.noise_type) for p in examples(mixed, 3)) == [
        "active",
        "inactive",
        "inactive",
    ]
    assert [p.noise_type for p in examples(noisy(9, ratio=0), 3)] == ["clean"] * 3


@each(
    "source, kind, ratio, name",
    ("arithmetic:subtraction", "mixed", ".30", "arithmetic-subtraction-mixed-0.3.parquet"),
    ("my maths.jsonl", "inactive", "1", "my-maths-inactive-1.parquet"),
    ("org/name@v1.2", "active", "1e-1", "org-name-v1.2-active-0.1.parquet"),
)
def test_the_default_file_is_named_by_source_type_and_ratio(source, kind, ratio, name):
    assert default_target(source, kind, ratio) == Path("data") / name
