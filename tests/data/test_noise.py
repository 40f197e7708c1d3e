"""Noise is exact, nested, seeded (R1), and only ever put on labels that are there and unmarked (R5)."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olr_cli.data.chat import Message
from olr_cli.data.noise import NoiseKind, default_target, describe_counts, examples, inject, marked_count
from olr_cli.data.prompt_files import interchange_table, read_prompts
from olr_cli.data.prompts import SENTINEL, NoiseType, Prompt, PromptSet
from olr_cli.errors import UserError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
needs_shared = pytest.mark.skipif(
    not SHARED.exists(), reason="the larger data sets are not beside this clone"
)

ratios = st.decimals(min_value=0, max_value=1, places=3)
kinds = st.sampled_from(["inactive", "active", "mixed"])
seeds = st.integers(0, 5)
no_deadline = settings(deadline=None)


def labelled(size: int) -> PromptSet:
    prompts = tuple(
        Prompt(str(n), (Message("user", f"{n}+1"),), str(n + 1), None, None, "sums") for n in range(size)
    )
    return PromptSet(prompts, interchange_table(pa.table({"n": list(range(size))}), prompts, "train"), "sums")


def of_type(prompts: PromptSet, *types: NoiseType) -> set[str]:
    return {p.prompt_id for p in prompts.prompts if p.noise_type in types}


def marked(prompts: PromptSet) -> set[str]:
    return {p.prompt_id for p in prompts.prompts if p.is_marked}


@no_deadline
@given(st.integers(1, 60), ratios, kinds, seeds)
def test_exactly_the_rounded_share_is_marked(size: int, ratio: Decimal, kind: NoiseKind, seed: int) -> None:
    noisy = inject(labelled(size), type=kind, ratio=ratio, seed=seed)
    count = len(marked(noisy))
    assert abs(count - Fraction(ratio) * size) <= Fraction(1, 2)
    assert count == marked_count(Fraction(ratio), size)


@no_deadline
@given(st.integers(1, 60), ratios, ratios, kinds, seeds)
def test_a_larger_ratio_marks_what_a_smaller_one_marks_type_by_type(
    size: int, one: Decimal, other: Decimal, kind: NoiseKind, seed: int
) -> None:
    few, many = (inject(labelled(size), type=kind, ratio=ratio, seed=seed) for ratio in sorted((one, other)))
    assert of_type(few, "inactive") <= of_type(many, "inactive")
    assert of_type(few, "active") <= of_type(many, "active")


@no_deadline
@given(st.integers(1, 60), ratios, ratios, seeds)
def test_mixed_noise_has_the_exact_share_of_active_prompts(
    size: int, ratio: Decimal, share: Decimal, seed: int
) -> None:
    noisy = inject(labelled(size), type="mixed", ratio=ratio, seed=seed, active_share=share)
    assert len(of_type(noisy, "active")) == marked_count(Fraction(share), len(marked(noisy)))


@no_deadline
@given(st.integers(1, 60), ratios, seeds)
def test_every_type_marks_the_same_prompts(size: int, ratio: Decimal, seed: int) -> None:
    sets = [
        marked(inject(labelled(size), type=kind, ratio=ratio, seed=seed))
        for kind in ("inactive", "active", "mixed")
    ]
    assert sets[0] == sets[1] == sets[2]


@no_deadline
@given(ratios, kinds, seeds)
def test_injection_is_a_function_of_its_arguments(ratio: Decimal, kind: NoiseKind, seed: int) -> None:
    first, second = (inject(labelled(20), type=kind, ratio=ratio, seed=seed) for _ in range(2))
    assert first.prompts == second.prompts and first.digest == second.digest and first.facts == second.facts


def test_another_seed_marks_other_prompts() -> None:
    assert (
        len({frozenset(marked(inject(labelled(40), type="active", ratio=0.5, seed=s))) for s in range(5)})
        == 5
    )


@pytest.mark.parametrize(
    ("ratio", "size", "count"),
    [
        ("0.5", 7, 4),
        ("0.5", 5, 3),
        ("0.3", 5, 2),
        ("0.15", 10, 2),
        ("0.285", 200, 57),
        ("0.145", 100, 15),
        ("1", 9, 9),
    ],
)
def test_halves_round_up_and_the_ratio_counts_as_written(ratio: str, size: int, count: int) -> None:
    """0.145 * 100 is 14.499... in doubles."""
    assert len(marked(inject(labelled(size), type="active", ratio=ratio, seed=0))) == count
    assert len(marked(inject(labelled(size), type="active", ratio=float(ratio), seed=0))) == count


def test_marking_declares_the_old_labels_true() -> None:
    clean = labelled(10)
    noisy = inject(clean, type="mixed", ratio="0.4", seed=3)
    for before, after in zip(clean.prompts, noisy.prompts, strict=True):
        assert after.true_answer == before.given_label
        assert after.given_label == (SENTINEL if after.is_marked else before.given_label)
        assert after.noise_type is not None
        assert (after.prompt_id, after.messages) == (before.prompt_id, before.messages)
    assert describe_counts(noisy) == "2 inactive, 2 active, 6 clean"


@pytest.mark.parametrize("ratio", ["1.5", "-0.1", "nan", "inf", "half", "", 1.0001])
@pytest.mark.parametrize("which", ["ratio", "active_share"])
def test_a_share_outside_its_range_is_refused(ratio: str | float, which: str) -> None:
    shares = {"ratio": "0.5", "active_share": "0.5"} | {which: ratio}
    with pytest.raises(UserError, match=which.replace("_", " ")):
        inject(labelled(4), type="mixed", ratio=shares["ratio"], active_share=shares["active_share"], seed=0)


def test_marked_prompts_get_no_second_noise() -> None:
    """R1."""
    once = inject(labelled(10), type="active", ratio="0.2", seed=0)
    with pytest.raises(UserError, match=r"sums is marked already \(2 active, 8 clean\)"):
        inject(once, type="active", ratio="0.4", seed=0)


def test_a_file_with_ratio_zero_carries_no_marks() -> None:
    clean = inject(labelled(10), type="active", ratio="0", seed=0)
    assert len(marked(inject(clean, type="active", ratio="0.2", seed=0))) == 2


def test_prompts_without_a_label_get_no_noise() -> None:
    """R5."""
    some = labelled(3)
    holed = some.with_prompts([some.prompts[0], *(replaced(p) for p in some.prompts[1:])], {})
    with pytest.raises(UserError, match="injecting noise needs the label of every prompt"):
        inject(holed, type="inactive", ratio="0.5", seed=0)


def replaced(prompt: Prompt) -> Prompt:
    return Prompt(prompt.prompt_id, prompt.messages, None, None, None)


@no_deadline
@given(ratios, seeds)
def test_frozen_noise_writes_a_wrong_answer_of_the_prompts_own(ratio: Decimal, seed: int) -> None:
    """R4."""
    clean = labelled(20)
    wrong = {p.prompt_id: [f"{p.prompt_id}/{n}" for n in range(3)] for p in clean.prompts[:12]}
    wrong["3"] += ["4", SENTINEL]  # its truth and no answer at all, which can't be wrong answers
    on_policy = inject(clean, type="active", ratio=ratio, seed=seed)
    frozen = inject(clean, type="active", ratio=ratio, seed=seed, wrong_answers=wrong)
    assert marked(frozen) == marked(on_policy)
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


def test_frozen_labels_are_drawn_uniformly_and_in_no_order_of_the_rollouts() -> None:
    clean = labelled(600)
    wrong = {p.prompt_id: ["x", "y", "z"] for p in clean.prompts}
    frozen = inject(clean, type="active", ratio=1, seed=0, wrong_answers=wrong)
    labels = [p.given_label for p in frozen.prompts]
    assert all(150 < labels.count(name) < 250 for name in "xyz")
    backwards = {name: ["z", "x", "y", "y"] for name in wrong}
    assert inject(clean, type="active", ratio=1, seed=0, wrong_answers=backwards).prompts == frozen.prompts


def test_mixed_frozen_noise_keeps_its_inactive_part() -> None:
    clean = labelled(20)
    wrong = {p.prompt_id: ["x"] for p in clean.prompts}
    frozen = inject(clean, type="mixed", ratio="0.5", seed=0, wrong_answers=wrong)
    assert describe_counts(frozen) == "5 inactive, 5 active_frozen, 10 clean"
    assert frozen.facts["noise.without_wrong_answer"] == "0"
    with pytest.raises(UserError, match="not inactive"):
        inject(clean, type="inactive", ratio="0.5", seed=0, wrong_answers=wrong)


def test_examples_show_every_type_that_marks() -> None:
    noisy = inject(labelled(40), type="mixed", ratio="0.5", seed=0, active_share="0.05")
    assert describe_counts(noisy) == "19 inactive, 1 active, 20 clean"
    shown = [p.noise_type for p in examples(noisy, 3)]
    assert sorted(map(str, shown)) == ["active", "inactive", "inactive"]
    assert [p.noise_type for p in examples(inject(labelled(9), type="active", ratio=0, seed=0), 3)] == [
        "clean"
    ] * 3


@pytest.mark.parametrize(
    ("source", "kind", "ratio", "name"),
    [
        ("arithmetic", "active", "0.50", "arithmetic-active-0.5.parquet"),
        ("arithmetic:subtraction", "mixed", ".3", "arithmetic-subtraction-mixed-0.3.parquet"),
        ("my maths.jsonl", "inactive", "1", "my-maths-inactive-1.parquet"),
        ("org/name@v1.2", "active", "1e-1", "org-name-v1.2-active-0.1.parquet"),
    ],
)
def test_the_default_file_is_named_by_source_type_and_ratio(
    source: str, kind: str, ratio: str, name: str
) -> None:
    assert default_target(source, kind, ratio) == Path("data") / name


@needs_shared
def test_the_paper_set_is_marked_exactly_and_nested() -> None:
    prompts = read_prompts(SHARED / "dapo_800.parquet")
    sets = [
        marked(inject(prompts, type="active", ratio=r, seed=0)) for r in ("0.1", "0.3", "0.5", "0.7", "0.9")
    ]
    assert [len(ids) for ids in sets] == [80, 240, 400, 560, 720]
    assert all(few < many for few, many in pairwise(sets))


@needs_shared
def test_the_authors_marked_file_gets_no_second_noise() -> None:
    with pytest.raises(UserError, match=r"marked already \(387 inactive, 413 clean\)"):
        inject(read_prompts(SHARED / "dapo_800_noise_0.5.parquet"), type="active", ratio="0.5", seed=0)
