"""The reference of recipe keys says what the schema does."""

import json
from pathlib import Path

import pytest
from cases import each, refusal
from commands import olr, refused

from olr_cli.recipe.layers import load_recipe, validate
from olr_cli.recipe.reference import key_page, key_table
from olr_cli.recipe.schema import KINDS, Recipe
from olr_cli.recipe.sections import SweepSection

PAGE = Path(__file__).parents[2] / "docs" / "recipe-keys.md"
ROWS = key_table().rows


def tree(row, value):
    """The keys of a recipe in which one key has a value, and its section is of the key's kind."""
    section, _, key = row["key"].rpartition(".")
    if not section:
        return {key: value}
    kind = {KINDS[section][0]: row["kind"]} if row["kind"] else {}
    return {section: kind | {key: value}}


def test_the_page_is_the_one_that_the_code_writes():
    command = "olr recipes keys --format markdown > docs/recipe-keys.md"
    assert PAGE.read_text("utf-8") == key_page() + "\n", (
        f"docs/recipe-keys.md is out of date; run: {command}"
    )


def described(section, kind):
    return {
        row["key"].rpartition(".")[2]
        for row in ROWS
        if row["key"].rpartition(".")[0] == section and row["kind"] in (None, kind)
    }


def test_every_key_of_every_kind_is_described():
    assert described("", None) == {"name", "seed"}
    for section in ("data", "model", "train", "logging"):
        assert described(section, None) == getattr(Recipe(), section).model_dump().keys()
    assert described("sweep", None) == SweepSection.model_fields.keys()
    for section, (_, kinds) in KINDS.items():
        for kind, model in kinds.items():
            assert described(section, kind) == model.model_fields.keys()
    assert {row["key"].partition(".")[0] for row in ROWS} == Recipe.model_fields.keys()
    assert all(row["description"].endswith(".") and row["type"] for row in ROWS)


def name_of(row):
    return f"{row['key']} {row['kind'] or ''}".strip()


@pytest.mark.parametrize(
    "row", [row for row in ROWS if not row["key"].startswith("sweep.")], ids=name_of
)
def test_a_default_is_what_a_recipe_has_without_the_key(row):
    section, _, key = row["key"].rpartition(".")
    written, without = tree(row, row["default"]), tree(row, row["default"])
    del (without[section] if section else without)[key]
    assert validate(written, "x") == validate(without, "x")


@each(
    "key, kind, type_, range_",
    ("seed", None, "whole number", ""),
    ("train.mini_batch_prompts", None, "whole number or null", "at least 1"),
    ("train.clip", None, "number", "above 0, below 1"),
    ("noise.ratio", None, "number or null", "0 to 1"),
    ("method.penalty_weight", "confidence_penalty", "number", "above 0"),
    ("method.criteria", "olr", "list", "list of slope, consistency"),
    ("engine.threads", "local", "whole number or null", "1 to 1024"),
    ("engine.zero_stage", "openrlhf", "choice", "1, 2, 3"),
    ("engine.flags", "openrlhf", "keys and values", ""),
)
def test_types_and_ranges_are_those_of_the_schema(key, kind, type_, range_):
    (row,) = (row for row in ROWS if (row["key"], row["kind"]) == (key, kind))
    assert (row["type"], row["range"]) == (type_, range_)


BOUNDED = [
    row
    for row in ROWS
    if any(sign.isdigit() for sign in row["range"]) and "number" in row["type"]
]


@pytest.mark.parametrize("row", BOUNDED, ids=name_of)
def test_a_value_beyond_a_bound_is_refused_and_the_bound_itself_if_it_is_outside(row):
    if row["key"] == "method.keep_fraction":
        row = {**row, "kind": "random_selection"}
    least, to, most = row["range"].partition(" to ")
    for word in (
        (f"at least {least}", f"at most {most}") if to else row["range"].split(", ")
    ):
        word, _, bound = word.rpartition(" ")
        beyond = int(bound) + (-1 if word in ("at least", "above") else 1)
        outside = [beyond, int(bound)] if word in ("above", "below") else [beyond]
        for value in outside:
            assert "input should be" in refusal(validate, tree(row, value), "x")
        if int(bound) not in outside:
            assert validate(tree(row, int(bound)), "x")


def test_a_prefix_chooses_keys():
    rows = json.loads(olr("recipes", "keys", "method.s", "--json").stdout)["rows"]
    assert [(row["key"], row["kind"]) for row in rows] == [
        ("method.smoothing", None),
        ("method.slope_threshold", "olr"),
        ("method.score_reduction", "token_entropy"),
        ("method.score_reduction", "sequence_entropy"),
        ("method.smoothing", "label_smoothing"),
    ]
    words = "begins with 'train.epoks' (did you mean 'train.epochs'?)"
    assert words in refused("recipes", "keys", "train.epoks")


def test_the_terminal_shows_each_key_with_its_meaning_below_in_80_columns():
    lines = olr("recipes", "keys", "train").stdout.splitlines()
    at = next(
        number
        for number, line in enumerate(lines)
        if line.startswith("train.learning_rate ")
    )
    assert lines[at].split() == [
        "train.learning_rate",
        "number,",
        "above",
        "0,",
        "at",
        "most",
        "1",
        "1e-06",
    ]
    assert lines[at + 1].startswith("    Adam's learning rate")
    lines = olr("recipes", "keys").stdout.splitlines()
    # Titles of kinds are sentences
    assert max(len(line.rstrip()) for line in lines if "=" not in line) <= 80


def test_a_resolved_recipe_shows_what_is_not_set(tmp_path):
    text = olr("recipes", "show", "laptop/quickstart", "--resolved").stdout
    assert "  evaluation_samples:\n" in text and "\nsweep:" in text
    copy = tmp_path / "copy.yaml"
    copy.write_text(text, "utf-8")
    assert load_recipe(copy) == load_recipe("laptop/quickstart")


def test_only_keys_names_and_values_stand_in_a_terminal_and_values_begin_on_the_left():
    for block in key_table().blocks:
        assert [(it.head, it.is_text, it.only) for it in block.columns[1:]] == [
            ("value", True, None),
            ("default", True, None),
            ("meaning", False, "document"),
        ]
