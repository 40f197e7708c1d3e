"""Hostile recipes: whatever a file, a setting or a sweep holds, it is refused in a sentence, or means something."""

import functools
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from cases import each, tenth_or_whole
from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import BaseModel
from sentences import cases, olr, refusal, sentence, write as write_file

from olr_cli.errors import UserError
from olr_cli.recipe.layers import find_recipe, load_recipe, validate
from olr_cli.recipe.plain import MOST_BYTES, MOST_LEVELS, dump_yaml, parse_yaml, read_yaml
from olr_cli.recipe.schema import KINDS, Recipe
from olr_cli.recipe.sweep import expand_sweep
from olr_cli.runs.directory import recipe_yaml

MINE = "mine.yaml"
write = functools.partial(write_file, name=MINE)


def test_what_is_too_large_or_too_deep_is_refused(tmp_path):
    assert "KiB that" in refusal(
        lambda: load_recipe(write(tmp_path, "# " + "x" * MOST_BYTES))
    )
    assert "nested too deeply" in refusal(
        lambda: load_recipe(write(tmp_path, "a: " + "[" * 400 + "]" * 400))
    )
    assert "leads back" in refusal(lambda: load_recipe(write(tmp_path, "base: mine.yaml")))
    deep = "{a: " * (MOST_LEVELS - 3) + "1" + "}" * (MOST_LEVELS - 3)
    assert load_recipe(write(tmp_path, f"engine: {{name: openrlhf, flags: {deep}}}"))


@each(
    "content, expected",
    *cases('recipes'),
    ("seed: " + "9" * 5000, "a number that cannot be read"),
    (b"name: \xff", "is not UTF-8 text (invalid start byte at byte 6); save it"),
    ("seed: 3".encode("utf-16")[:-1], "is not UTF-8 text (truncated data"),
    (bytes(range(256)) * 20, "is not UTF-8 text"),
    (b"name: a\0b", "unacceptable character #x0000"),
    (b"PK\x03\x04", "unacceptable character #x0003"),
    ("x" * 5000 + ": 1", "is not valid YAML"),
    ("? " + "x" * 5000 + "\n: 1", "unknown key 'xxxx"),
    ("name: " + "x" * 5000, "string should have at most 100 characters"),
    ("method: {name: " + "x" * 5000 + "}", "xxx...; known: 'grpo'"),
)  # fmt: skip
def test_a_hostile_file_is_refused_in_a_sentence(tmp_path, content, expected):
    path = write(tmp_path, content)
    message = refusal(lambda: load_recipe(path))
    assert expected in message and "mine.yaml" in message
    assert not Path("hacked").exists()


@each(
    "text, seed",
    ("seed: 010", 10), ("seed: 0x1f", 31), ("seed: 0o17", 15), ("seed: 1_000", 1000), ("seed: -0.0", 0),
    ("seed: 1e3", 1000), ("seed: '5'", 5), ("\ufeffseed: 6", 6), ("seed: 7\r\n", 7),
    ("%YAML 1.1\n---\nseed: 010\n", 8), ("{seed: 9}", 9), ("", 0), ("# nothing", 0),
    (f"seed: {2**63 - 1}", 2**63 - 1),
)  # fmt: skip
def test_what_is_odd_but_means_something_is_read(tmp_path, text, seed):
    assert load_recipe(write(tmp_path, text)).seed == seed


def test_what_is_no_file_is_told(here):
    os.mkfifo(here / "pipe.yaml")
    (here / "loop.yaml").symlink_to("loop.yaml")
    for expected, *names in (
        ("is neither a file nor a folder", f"{here}/pipe.yaml", "/dev/zero"),
        ("is a folder, which cannot be used here", str(here)),
        ("is a link that leads nowhere", f"{here}/loop.yaml"),
        ("does not exist", f"{here}/none.yaml", "../pyproject.toml", "../README.md"),
        ("does not exist", "a" * 500),
    ):  # fmt: skip
        for name in names:
            assert expected in refusal(lambda name=name: find_recipe(name))


@each(
    "base",
    "/dev/zero", "'../../nowhere'", "[a, b]", "{a: b}", "3", "true", "''", ".", "../README",
    "x" * 5000, '"a\\0b"', "laptop", "../../main/recipes/laptop/quickstart",
)  # fmt: skip
def test_a_base_is_a_recipe_and_nothing_else(tmp_path, base):
    message = refusal(lambda: load_recipe(write(tmp_path, f"base: {base}")))
    assert "its base" in message and "is neither a file" in message


def test_a_file_that_is_no_recipe_is_not_shown(tmp_path):
    secret = write(tmp_path, "root:x:0:0\nadmin:secret", name="passwd")
    message = refusal(lambda: load_recipe(write(tmp_path, f"base: {secret}")))
    assert "holds text, not the keys of a recipe" in message and "secret" not in message


@each(
    "setting, expected",
    *cases('settings'),
    ("train.epochs=" + "[" * 400 + "]" * 400, "is nested too deeply"),
    ("engine.flags=" + "{a: " * 40 + "}" * 40, "is more than 32 levels deep"),
    (".".join("a" * 3000) + "=1", "levels deep; check its dots"),
    ("x" * 9000 + "=1", "unknown key 'xxx"),
    ("seed=" + "1" * 4000, "seed is 111"),
    ("seed=" + "1" * 9000, "a number that cannot be read"),
)  # fmt: skip
def test_a_hostile_setting_is_refused_in_a_sentence(setting, expected):
    assert expected in refusal(lambda: load_recipe("laptop/quickstart", [setting]))


@pytest.mark.parametrize(("sweep", "expected"), cases("sweeps"))
def test_a_hostile_sweep_is_refused_in_a_sentence(tmp_path, sweep, expected):
    assert expected in refusal(lambda: expand_sweep(write(tmp_path, f"sweep: {sweep}")))


def test_a_key_that_an_arm_adds_to_a_section_reaches_no_other_arm(tmp_path):
    shared = "{name: openrlhf, flags: {a: {b: 1}}}"
    arms = f"{{x: {{engine: {shared}, engine.flags.a.c: 2}}, y: {{engine: {shared}}}}}"
    x, y = expand_sweep(write(tmp_path, f"sweep: {{arms: {arms}}}"))
    assert (x.recipe.engine.flags, y.recipe.engine.flags) == (
        {"a": {"b": 1, "c": 2}},
        {"a": {"b": 1}},
    )


@each(
    "name",
    "a/b", "..", ".", "../../x", "/etc", "a\\0b", "a\\nb", "-a", "~", "a b", "", " ", "a" * 300, "ünï", "a:b",
    "\\u202e", "%s", "$HOME", "*",
)  # fmt: skip
def test_no_name_leads_out_of_the_folder_of_runs(tmp_path, name):
    assert "name" in refusal(lambda: load_recipe(write(tmp_path, f'name: "{name}"')))


@given(arm=st.text(min_size=1, max_size=60), value=st.text(max_size=40))
def test_no_arm_or_value_leads_out_of_the_sweeps_folder(arm, value):
    from olr_cli.recipe.sweep import _sweep_runs

    tree = {"sweep": {"arms": {arm: {}}, "grid": {"data.train": [value]}}}
    try:
        sweep = validate(tree, "x").sweep
        assert sweep is not None
        (run,) = _sweep_runs({}, sweep, "x", [])
    except UserError as error:
        sentence(error)
        return
    assert Path(run.place).name == run.place and run.place not in (".", "..")
    assert Path("runs", run.place).resolve().parent == Path("runs").resolve()


# Every field, from the schema ------------------------------------------------------------------------------------

WRONG: list[Any] = [
    None, True, False, "", "  ", "x", "no", "-", "a\nb", "'", "🦠", "x" * 400, -1, 0, 1, 2, 1.5, -0.0, 1e-320, 1e308,
    math.nan, math.inf, -math.inf, 10**30, 10**400, -(10**400), "nan", "inf", "1e999", "1e-999", "0x10", "1_000", "٣",
    [], {}, [None], [[]], [1, "a"], {"a": 1}, {"name": "olr"}, {1: 2}, ("a",), {"a": {"b": {"c": None}}},
]  # fmt: skip


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The sections that an annotation allows."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for part in get_args(annotation) for model in models_in(part)]


def fields() -> Iterator[tuple[str, str, tuple[tuple[str, str], ...]]]:
    """Every field of every section of every kind: the section's key, the field's, and the kind."""
    for name, field in Recipe.model_fields.items():
        yield "", name, ()
        tag, kinds = KINDS.get(name, ("", {}))
        for kind, section in kinds.items() or (
            ("", model) for model in models_in(field.annotation)
        ):
            for key in section.model_fields:
                yield name, key, ((tag, kind),) if tag else ()


FIELDS = list(fields())


@tenth_or_whole
@pytest.mark.parametrize(
    "number", range(len(FIELDS)), ids=lambda number: ".".join(FIELDS[number][:2])
)
def test_every_field_takes_what_it_means_and_refuses_all_else(number, nth):
    section, key, also = FIELDS[number]
    for value in WRONG[number % nth :: nth]:
        inner = {**dict(also), key: value}
        tree = {section: inner} if section else inner
        try:
            recipe = validate(tree, "mine.yaml")
        except UserError as error:
            message = sentence(error)
            assert message.startswith("mine.yaml: ")
            assert key in message or section in message
            continue
        holder = getattr(recipe, section) if section else recipe
        found = getattr(holder, key)
        if isinstance(found, float):
            assert math.isfinite(found) and not isinstance(value, bool)
        if isinstance(found, int) and not isinstance(found, bool):
            assert not isinstance(value, bool) and -(2**63) <= found < 2**63
        if isinstance(found, str):
            assert found.strip() and isinstance(value, str)
        again = validate(recipe.plain(), "again")
        assert again == recipe and again.digest() == recipe.digest()


# Any text ---------------------------------------------------------------------------------------------------------


@given(
    rate=st.floats(0, 1, exclude_min=True),
    temperature=st.floats(0.001, 1e308),
    threshold=st.decimals(-999999, 999999, places=20).map(str) | st.floats(-9, 9),
    text=st.text(min_size=1)
    | st.sampled_from(["a: b", "#x", "2020-01-01", "0o7", "~", "=", "<<", "y", "1e5"]),
    flags=st.dictionaries(
        st.text(max_size=8), st.none() | st.integers() | st.floats() | st.text(), max_size=3
    ),
)
def test_what_is_accepted_comes_back_from_a_file(
    tmp_path_factory, flags, text, threshold, **numbers
):
    tree = {
        "train": {"learning_rate": numbers["rate"], "temperature": numbers["temperature"]},
        "method": {"name": "olr", "slope_threshold": threshold},
        "data": {"train": text},
        "engine": {"name": "openrlhf", "flags": flags},
    }
    require_law(write(tmp_path_factory.getbasetemp(), dump_yaml(tree)))


def require_law(path: Path) -> bool:
    """`load_recipe` refuses in a sentence, or what it reads, written and read again, is the same."""
    try:
        recipe = load_recipe(path)
    except UserError as error:
        sentence(error)
        return False
    again = load_recipe(write(path.parent, recipe_yaml(recipe), name="again.yaml"))
    assert again == recipe and again.digest() == recipe.digest()
    return True


def test_any_bytes_are_a_recipe_or_are_refused(tmp_path_factory, is_long, sampled):
    """Text that begins as a recipe, with parts of it replaced, cut and repeated."""
    folder = tmp_path_factory.mktemp("bytes")
    seedling = (
        find_recipe("laptop/quickstart").read_bytes()
        + b"sweep: {grid: {seed: [1, 2]}, arms: {a: {}}}\n"
    )
    marks = [
        b"&a ",
        b"*a",
        b"<<: ",
        b"{",
        b"]",
        b"? ",
        b"!!",
        b"\t",
        b"%",
        b": ",
        b"- ",
        b"|",
        b"#",
    ]
    junk = st.binary(max_size=4) | st.sampled_from(marks)

    @settings(
        max_examples=5_000 if is_long else sampled(100),
        suppress_health_check=list(HealthCheck),
    )
    @given(
        edits=st.lists(
            st.tuples(st.integers(0, len(seedling)), st.integers(0, 30), junk), max_size=6
        )
    )
    def law(edits: list[tuple[int, int, bytes]]) -> None:
        text = seedling
        for at, cut, new in edits:
            text = text[:at] + new + text[at + cut :]
        path = write(folder, text)
        # Its sections, parsed one by one, are those of the whole text
        if require_law(path):
            assert read_yaml(path) == parse_yaml(path.read_text("utf-8-sig"))

    law()


# The command ------------------------------------------------------------------------------------------------------


def test_every_command_that_takes_a_recipe_ends_with_status_2(tmp_path):
    copy = tmp_path / "copy.yaml"
    for content in ("a: [", b"\xff\xfea", "x: !!python/name:os.system", "base: base"):
        path = write(tmp_path, content)
        train = [("train", path), ("train", path, "--dry-run"), ("train", path, "--sweep")]
        shown = ("recipes", "show", path, "--resolved")
        for words in (
            ("recipes", "validate", path),
            shown,
            ("recipes", "cp", path, copy),
            *train,
        ):
            status, output = olr(*words)
            assert status == 2, (content[:40], words[:2], output[:300])
            assert sentence(output.strip()).startswith("Error: ")
        assert not copy.exists()
