"""YAML is read in parts, which recipes of a sweep share; it means what a reading of the whole gives."""

from cases import each, refusal
from hypothesis import given, strategies as st

from olr_cli.recipe import plain
from olr_cli.recipe.plain import parse_yaml, read_yaml

VALUES = st.sampled_from(
    (
        *("1", "x", "'x'", "1e-6", "'1e-6'", "true", "null", "~", "", "0x1F", "2020-01-01"),
        *(
            "[1, 2]",
            "{b: 1}",
            "[a,",
            "# c",
            "x # c",
            '"a\\n"',
            "x:",
            "&a 1",
            "!!int 3",
            "@",
        ),
        *("|\n    text\n    more", ">-\n    a", "|2\n    x", "x\n    y", "'x\n    y'"),
        *('"x\n  b: 1"', "\n    f: 1\n    g: 2", "\n  - x\n  - y", "\n    - x"),
    )
)
ODD_LINES = st.sampled_from(
    (
        *(
            "",
            "# c",
            "  # c",
            "Foo: 1",
            "  Foo: 1",
            '  "a": 1',
            "  <<: {z: 1}",
            "  }",
            "---",
        ),
        *(
            "...",
            " a: 1",
            "  ? a",
            "  : b",
            "  - x",
            "- a",
            "   x",
            "    f: 1",
            "\t",
            "a: 1",
        ),
    )
)
ENTRIES = st.builds("  {}: {}".format, st.sampled_from("abcdefg"), VALUES)
NAMES = st.sampled_from(("data", "noise", "train", "null", "x-1"))
SECTIONS = st.builds(
    lambda name, lines: "\n".join([f"{name}:", *lines]),
    NAMES,
    st.lists(st.one_of(*[ENTRIES] * 12, ODD_LINES), min_size=1, max_size=5),
)
KEYS = st.builds("{}: {}".format, st.sampled_from("pqr"), VALUES)


@given(st.lists(SECTIONS | KEYS, max_size=4), st.sampled_from(("", "\n", "\n...\n")))
def test_parts_of_a_file_mean_what_the_whole_means(lines, end):
    text = "\n".join(lines) + end
    in_parts = plain._parse_sections(text)
    if in_parts is not None:
        whole = parse_yaml(text)
        assert (in_parts, repr(in_parts)) == (whole, repr(whole))


def test_recipes_that_differ_in_one_key_are_parsed_but_for_that_key(tmp_path, monkeypatch):
    parsed = []
    monkeypatch.setattr(
        plain, "parse_yaml", lambda text: parsed.append(text) or parse_yaml(text)
    )
    plain._parse_section.cache_clear()
    plain._parse_part.cache_clear()
    file = tmp_path / "recipe.yaml"
    for rate in ("1e-6", "2e-6"):
        file.write_text(
            f"---\nseed: 1\ntrain:\n  epochs: 3\n  learning_rate: {rate}\n...\n"
        )
        assert read_yaml(file)["train"] == {"epochs": 3, "learning_rate": float(rate)}
    assert parsed[3:] == ["train:\n  learning_rate: 2e-6\n...\n"]


@each(
    "text, line",
    ("a: {b: 1}\ntrain: {epochs: 1}\na: {b: 2}\n", 3),
    ("a: 1\nb: 2\na: 1\n", 3),
    ("train:\n  epochs: 1\n  clip: 0.2\n  epochs: 1\n", 4),
    ("train:\n  epochs: 1\ndata:\n  limit: 3\ntrain:\n  clip: 0.2\n", 5),
    ("train:\n  epochs: 1\ntrain:\n  epochs: 1\n", 3),
)
def test_a_section_or_a_key_of_one_that_comes_twice_is_refused_at_its_line(
    tmp_path, text, line
):
    file = tmp_path / "recipe.yaml"
    file.write_text(text)
    assert f"(line {line}, column" in refusal(read_yaml, file)
    for parts in (["a: 1\n", "a: 1\n"], ["a: 1\n", "b: 1\nc: 2\n"], ["a: 1\n", "[]"]):
        assert plain._merged(map(parse_yaml, parts)) is None
    assert plain._merged(map(parse_yaml, ["a: 1", "b: 2"])) == {"a": 1, "b": 2}


@each(
    "text, value",
    ("a: 1\n---\nb: 2\n", None), ("a: 1\n...\nb: 2\n", None), ("a: 1\n...\n", {"a": 1}), ("# c\na: 1\n", {"a": 1}),
    ("---\na: 1\n", {"a": 1}), ("%YAML 1.2\n---\na: 1\n", {"a": 1}), ("", None), ("[1]", [1]), ("x", "x"),
    ("a: 2020-01-01", {"a": "2020-01-01"}), ("a: '2020-01-01'", {"a": "2020-01-01"}), ("A: 1\nb: 2", {"A": 1, "b": 2}),
)  # fmt: skip
def test_a_file_is_one_document_of_plain_values(tmp_path, text, value):
    file = tmp_path / "recipe.yaml"
    file.write_text(text)
    if value is None and text:
        assert "is not valid YAML: but found another document" in refusal(read_yaml, file)
    else:
        assert read_yaml(file) == value


@each(
    "text, said",
    ("a: &x 1", "has an anchor, an alias or a type (line 1); write the value out"),
    ("b: 1\na: *x", "has an anchor, an alias or a type (line 2); write the value out"),
    ("b: 1\n\na: !!int 3", "has an anchor, an alias or a type (line 3); write the value out"),
    ("a: [", "is not valid YAML: expected the node content, but found '<stream end>' (line 1, column 5); correct it"),
    (f"a: {'1' * 5000}", "has a number that cannot be read (Exceeds the limit"),
    ("a: \x01", "is not valid YAML: unacceptable character #x0001"),
    ("[" * 600, "is nested too deeply; check what it is"),
)  # fmt: skip
def test_what_is_not_plain_is_refused_at_its_line(tmp_path, text, said):
    file = tmp_path / "recipe.yaml"
    file.write_text(text)
    assert f"{file} {said}" in refusal(read_yaml, file)


@each(
    "tree, said",
    ({"a": {"b": float("inf")}}, "x: a.b is inf, and numbers must be finite; correct it"),
    ({"a": [0, float("nan")]}, "x: a.1 is nan, and numbers must be finite; correct it"),
    ({"a": ({1: 2},)}, "x: a.0 has a key that is no text; write it in quotes"),
    ({1: 2}, "x: the recipe has a key that is no text; write it in quotes"),
    ({"a": "\0"}, "x: a has a character that no file can hold (NUL, or half of a surrogate pair); remove it"),
    ({"a\ud800": 1}, "x: a\\ud800 has a character that no file can hold (NUL, or half of a surrogate pair); remove it"),
)  # fmt: skip
def test_a_tree_that_no_file_can_hold_is_refused(tree, said):
    assert refusal(plain.require_plain, tree, "x") == said


def test_a_tree_of_plain_values_is_taken():
    plain.require_plain({"a": [1.5, -0.0, True, None, "\n", {"b": ()}]}, "x")


def test_a_tree_has_at_most_32_levels():
    def nested(levels):
        return {"k": nested(levels - 1)} if levels else 1

    plain.require_plain(nested(32), "x")
    said = refusal(plain.require_plain, nested(33), "x")
    assert "... is more than 32 levels deep; check its dots" in said


def test_what_is_read_can_be_changed_without_changing_the_next_reading(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("data:\n  columns: {answer: a}\n  limit: 3\n")
    read_yaml(file)["data"]["columns"]["answer"] = "b"
    assert read_yaml(file) == {"data": {"columns": {"answer": "a"}, "limit": 3}}
