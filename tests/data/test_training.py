"""A recipe's data sets: whose noise it is (R1), and what held-out prompts are measured by (R2, R5)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from olr_cli.data.prompts import SENTINEL
from olr_cli.data.sets import held_out_prompts, training_prompts
from olr_cli.errors import UserError
from olr_cli.recipe.schema import Recipe


def table(folder: Path, *marks: dict[str, Any]) -> str:
    """Rows that ask for 12; `marks` may change label, true answer and noise type."""
    rows = []
    for number, mark in enumerate(marks):
        label = {"ground_truth": mark.get("label", "12")}
        extra = {"index": number, "original_ground_truth": mark.get("truth"), "noise_type": mark.get("type")}
        rows.append({"question": f"{number}?", "reward_model": label, "extra_info": extra})
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


CLEAN = {"truth": "12", "type": "clean"}
INACTIVE = {"label": SENTINEL, "truth": "12", "type": "inactive"}
ACTIVE = {"label": SENTINEL, "truth": "12", "type": "active"}
FROZEN = {"label": "7", "truth": "12", "type": "active_frozen"}
UNTYPED = {"label": SENTINEL, "truth": "12"}


def types(source: str, noise: str | None) -> Counter[str | None]:
    section = None if noise is None else {"type": noise}
    prompts = training_prompts(Recipe.model_validate({"data": {"train": source}, "noise": section}))
    return Counter(prompt.noise_type for prompt in prompts.prompts)


@pytest.mark.parametrize(
    ("noise", "marks", "found"),
    [
        ("inactive", [CLEAN, INACTIVE, UNTYPED], {"clean": 1, "inactive": 2}),
        ("active", [CLEAN, ACTIVE, UNTYPED], {"clean": 1, "active": 2}),
        ("active", [CLEAN, FROZEN], {"clean": 1, "active_frozen": 1}),
        ("mixed", [CLEAN, INACTIVE, ACTIVE], {"clean": 1, "inactive": 1, "active": 1}),
        ("mixed", [FROZEN, UNTYPED], {"active_frozen": 1, "inactive": 1}),
        (None, [INACTIVE, ACTIVE, UNTYPED], {"inactive": 2, "active": 1}),
    ],
)
def test_marks_of_a_file_are_the_recipes_noise(tmp_path: Path, noise: Any, marks: Any, found: Any) -> None:
    assert types(table(tmp_path, *marks), noise) == found


@pytest.mark.parametrize(
    ("noise", "marks", "message"),
    [
        (
            "active",
            [CLEAN, INACTIVE],
            "noise.type is active, but the marks of rows.jsonl are inactive: 1 inactive, 1",
        ),
        (
            "inactive",
            [CLEAN, ACTIVE],
            "are active: 1 active, 1 clean; set noise.type to active, or noise to null",
        ),
        ("inactive", [FROZEN, CLEAN], "are active: 1 active_frozen"),
        ("inactive", [INACTIVE, ACTIVE], "are mixed: 1 inactive, 1 active"),
        ("mixed", [CLEAN, ACTIVE], "are active"),
        (
            "mixed",
            [CLEAN, UNTYPED],
            "are inactive: 1 inactive, 1 clean (sentinels without a noise type count as",
        ),
        ("active", [CLEAN], "carries no marks"),
    ],
)
def test_marks_of_another_type_than_the_recipes_are_refused(
    tmp_path: Path, noise: Any, marks: Any, message: str
) -> None:
    with pytest.raises(UserError) as error:
        types(table(tmp_path, *marks), noise)
    assert message in str(error.value)


def test_held_out_prompts_are_measured_by_what_is_not_noise(tmp_path: Path) -> None:
    prompts = held_out_prompts(Recipe(), table(tmp_path, {}, CLEAN, FROZEN, INACTIVE), "test").prompts
    assert [prompt.gold for prompt in prompts] == ["12"] * 4


@pytest.mark.parametrize(
    "mark",
    [{"label": None}, {"label": SENTINEL}, INACTIVE | {"truth": None}, FROZEN | {"truth": None}],
)
def test_held_out_prompts_without_a_gold_answer_are_refused(tmp_path: Path, mark: Any) -> None:
    with pytest.raises(UserError, match=r"1 held-out prompts have neither a true answer.*\(first: 1\)"):
        held_out_prompts(Recipe(), table(tmp_path, {"truth": "12"}, mark), "test")
