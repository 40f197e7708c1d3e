"""YAML is read in parts, which recipes of a sweep share; it means what a reading of the whole gives."""

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


def test_what_is_read_can_be_changed_without_changing_the_next_reading(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("data:\n  columns: {answer: a}\n  limit: 3\n")
    read_yaml(file)["data"]["columns"]["answer"] = "b"
    assert read_yaml(file) == {"data": {"columns": {"answer": "a"}, "limit": 3}}
