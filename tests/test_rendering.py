"""Cells of a table stay cells, whatever is in them, in every format."""

import csv
import io
import itertools
import textwrap
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest
from cases import each
from rendered import rendered

from olr_cli import tables
from olr_cli.tables import Block, Cell, Column, Line, Row, Table
from olr_cli.tables.html import element, html, table_elements


def table(*shown, columns=("arm", "n"), **kwargs):
    return Table([Block([*map(Column, columns)], [*shown])], **kwargs)


def test_a_bar_in_a_cell_ends_no_markdown_cell_and_a_name_is_no_markup():
    text = tables.markdown(table(Row(["`a` *b* <i> $x$ | \\", "1"])))
    assert text.splitlines() == [
        "| arm | n |",
        "|---|---|",
        r"| \`a\` \*b\* \<i> \$x\$ \| \\ | 1 |",
    ]


@each(
    "kinds, rules",
    (["", "compared", "compared", ""], 2),
    (["compared", "compared", ""], 1),
    (["compared", "compared"], 1),
    (["", "compared", "", "compared"], 3),
    (["title", "compared", "title"], 3),
)
def test_latex_has_a_rule_below_the_heads_and_above_each_comparison_and_later_title(
    kinds, rules
):
    shown = [Row(["arm"] if kind == "title" else ["arm", "1"], kind) for kind in kinds]
    lines = tables.latex(table(*shown)).splitlines()
    found = [number for number, line in enumerate(lines) if line == "\\midrule"]
    assert len(found) == rules
    assert all(b - a > 1 for a, b in itertools.pairwise(found))


def test_commas_quotes_and_line_breaks_come_back_from_csv():
    rows = [{"arm": 'a,"b"\nc', "n": 1}, {"arm": "d", "n": None}]
    text = tables.comma_separated(table(rows=rows))
    assert list(csv.reader(io.StringIO(text))) == [
        ["arm", "n"],
        ['a,"b"\nc', "1"],
        ["d", ""],
    ]


def test_csv_without_rows_has_the_names_of_its_columns():
    assert tables.comma_separated(table(fields=("arm", "n"))) == "arm,n"


def test_latex_escapes_names_and_sets_numbers_in_math_mode():
    text = tables.latex(
        table(Row(["50% a_b", "1.0 ± 0.5 [+0.1, +2.0]"]), Row(["none", "–"]))
    )
    assert r"50\% a\_b & $1.0 \pm 0.5\;[+0.1, +2.0]$ \\" in text
    assert r"none & – \\" in text


def test_a_medium_shows_its_own_columns_and_texts():
    columns = [
        Column("arm"),
        Column("to\nGRPO", "to GRPO, %"),
        Column("steps", only="document"),
    ]
    shown = Table(
        [Block(columns, [Row(["a", Cell(0.01, "points", ends=(0.0, 0.02)), "7"])])]
    )
    assert "| a | +1.0 [+0.0, +2.0] | 7 |" in tables.markdown(shown)
    assert [column.head for column in shown.blocks[0].grid("terminal")[0]] == [
        "arm",
        "to\nGRPO",
    ]
    assert shown.blocks[0].grid("terminal")[1][0][1] == ["a", "+1.0"]


def test_a_title_spans_the_row_in_every_document():
    shown = table(Row(["Active noise"], "title"), Row(["GRPO", "3"]))
    assert "| **Active noise** |  |" in tables.markdown(shown)
    assert r"\multicolumn{2}{l}{\emph{Active noise}}" in tables.latex(shown)
    (element,) = table_elements(shown, "Table")
    assert element.find(".//th[@scope='rowgroup']").get("colspan") == "2"


def test_a_note_stands_below_its_row_in_a_terminal_and_nowhere_else(capsys):
    shown = table(
        Row(["GRPO", "3"]), Row(["Every label counts as given."], "note"), Row(["OLR", "5"])
    )
    tables.print_table(shown, "terminal")
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["arm  n", "GRPO 3", "    Every label counts as given.", "OLR  5"]
    assert "counts" not in tables.markdown(shown) + tables.latex(shown)
    assert "counts" not in html(table_elements(shown, "Table"))


def test_words_are_aligned_to_the_left_in_a_terminal_and_numbers_to_the_right(capsys):
    columns = [Column("key"), Column("value", is_text=True), Column("n")]
    tables.print_table(
        Table([Block(columns, [Row(["a", "b", "1"]), Row(["c", "dddddd", "10"])])]),
        "terminal",
    )
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()][
        1
    ] == "a   b       1"


def test_no_text_becomes_html():
    assert "<bdi>&lt;script&gt;</bdi>" in html(
        table_elements(table(Row(["<script>", "1"])), "Table")
    )


def test_blocks_stay_apart_in_html_each_under_its_title_with_its_notes_below():
    first = Block([Column("arm"), Column("n")], [Row(["a|b", ""])], "A step")
    second = Block(
        [Column(""), Column("h", is_text=True)],
        [Row(["b", "2"])] * 41,
        "A run",
        notes=["Block's."],
    )
    step, run, *notes = table_elements(Table([first, second], notes=["Table's."]), "Cost")
    assert [element.find(".//caption").text for element in (step, run)] == [
        "Cost: A step",
        "Cost: A run",
    ]
    assert [note.find("bdi").text for note in notes] == ["Block's.", "Table's."]
    assert [element.get("class") for element in (step, run)] == ["scroll", "scroll long"]
    assert [element.find(".//td").get("class") for element in (step, run)] == [
        "number",
        None,
    ]
    (nothing,) = table_elements(Table([], nothing="No runs."), "Cost")
    assert nothing.find("bdi").text == "No runs."


@each(
    "cell, brief, full",
    (Cell(0.45, sd=0.012, n=3), "45.0", "45.0 ± 1.2"),
    (Cell(0.45, ends=(0.4, 0.5)), "45.0", "45.0 [40.0, 50.0]"),
    (Cell(-0.031, "points", ends=(-0.05, 0.001)), "-3.1", "-3.1 [-5.0, +0.1]"),
    (Cell(0.25, "percent"), "25.0%", "25.0%"),
    (Cell(13000.0, "seconds"), "3.61 h", "3.61 h"),
    (Cell(0.022, short="2.2%"), "2.2%", "2.2"),
    (Cell(), "–", "–"),
)
def test_a_cell_says_how_sure_its_value_is_where_there_is_room(cell, brief, full):
    assert (cell.brief, cell.full) == (brief, full)


def test_a_cell_is_flat_in_csv_whether_its_interval_is_known_or_not():
    assert Cell(0.5, ends=(0.4, 0.6)).flat("avg", "low", "high") == {
        "avg": 0.5,
        "low": 0.4,
        "high": 0.6,
    }
    assert Cell(0.5).flat("avg", "low", "high") == {"avg": 0.5, "low": None, "high": None}


# As a whole ------------------------------------------------------------------------------------------------------


GAIN = Cell(0.1251, "points", ends=(0.02, 0.2))
EVERYTHING = Table(
    [
        Block(
            [
                Column("arm"),
                Column("n"),
                Column("held-out\n%", "held-out, %", group="ours"),
                Column("to\nGRPO", has_ends=True, group="ours"),
                Column("time", group="cost", is_dim=True),
                Column("said", is_text=True),
                Column("steps", only="document"),
                Column("run", only="terminal"),
            ],
            [
                Row(["Active noise"], "title"),
                Row(["GRPO", "3", Cell(0.5, sd=0.01), Cell(), Cell(59.96, "seconds"), "a|b", "1,200", "x"]),
                Row(["OLR_1 & more", "3", Cell(0.625), GAIN, Cell(0.0123, "seconds"), "~1e5 <5%^", "7", "y"]),
                Row(["A sentence about the row above, which is so long that a terminal breaks it."], "note"),
                Row(["paper", "", Cell(0.4), "+3.1", "", "", "", ""], "published"),
                Row(["Both"], "title"),
                Row(["mean", "6", Cell(0.5625), "–", Cell(5400.0, "seconds"), "", "-", ""], "average"),
                Row(["GRPO again", "3", Cell(0.55), "+1.2 ± 0.1", Cell(90.0, "seconds"), "", "-", ""], "compared"),
                Row(["OLR again", "3", Cell(0.65), "+2.2", Cell(4.0, "seconds"), "", "-", ""], "compared"),
            ],
            "A step",
            notes=["A note on this block: 12 steps of 3 runs, in words that are more than eighty columns wide."],
        ),
        Block(
            [Column("a name that is longer than anything"), *(Column(f"column {n}" * 2) for n in range(5))],
            [Row(["name " * 6, *"12345"])],
        ),
        Block([Column("`code`"), Column("n")], [Row(["*b* | c", "1"])], only="document", is_markdown=True),
        Block([Column("only"), Column("here")], [Row(["in a", "terminal"])], only="terminal"),
    ],
    rows=[{"arm": "GRPO", "mean": 0.5, "low": None}, {"arm": "OLR, 1", "mean": 0.625, "low": 0.02}],
    notes=["Means of 3 runs.", "Intervals of 95 %."],
    footnotes=["Below: 3 [b] runs and 'words'.", "Formats have more."],
)  # fmt: skip


def on_terminal(table, capsys, monkeypatch, *, coloured):
    monkeypatch.setenv("COLUMNS", "80")
    if coloured:
        monkeypatch.delenv("NO_COLOR", raising=False)
        for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm-256color")):
            monkeypatch.setenv(name, value)
    tables.print_table(table, "terminal")
    lines = capsys.readouterr().out.splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


@each(
    "medium, render",
    ("md", tables.markdown),
    ("tex", tables.latex),
    ("csv", tables.comma_separated),
    ("html", lambda table: html(table_elements(table, "Cost"))),
    ids=["md", "tex", "csv", "html"],
)
def test_a_document_has_everything_in_its_place(medium, render, is_as_stored):
    is_as_stored(f"renderings/everything.{medium}", render(EVERYTHING) + "\n")


def test_a_terminal_shows_everything_in_80_columns_and_kinds_of_rows_in_their_styles(
    capsys, monkeypatch, is_as_stored
):
    plain = on_terminal(EVERYTHING, capsys, monkeypatch, coloured=False)
    is_as_stored("renderings/everything.txt", plain)
    coloured = on_terminal(EVERYTHING, capsys, monkeypatch, coloured=True)
    is_as_stored("renderings/coloured.txt", coloured.replace("\x1b", "ESC"))


@each("numbers, width", (20, 30), (66, 12), (67, 24), ids=["room", "least", "too little"])
def test_names_get_the_room_that_numbers_leave_of_80_columns(numbers, width):
    block = Block([Column("name"), Column("n")], [Row(["x" * 30, "1" * numbers])])
    _, *lines = rendered(Table([block]), width=120).splitlines()
    assert " ".join(lines).split() == [*textwrap.wrap("x" * 30, width), "1" * numbers]


@each(
    "seconds, shown",
    (0.0, "0.00 ms"),
    (0.0001, "0.100 ms"),
    (0.99, "990 ms"),
    (1.0, "1.00 s"),
    (59.9, "59.9 s"),
    (60.0, "1.00 min"),
    (3599.0, "60.0 min"),
    (3600.0, "1.00 h"),
    (360000.0, "100 h"),
)
def test_times_are_in_the_unit_in_which_they_are_easiest_to_read(seconds, shown):
    assert Cell(seconds, "seconds").brief == shown


@each(
    "number, shown",
    (99.9, "99.9"),
    (99.95, "100"),
    (1234.5, "1,234"),
    (0.012345, "0.0123"),
    (2.0, "2.00"),
)
def test_numbers_have_three_digits_or_are_whole(number, shown):
    assert Cell(number, "number").brief == shown


@each(
    "value, json",
    (float("nan"), None),
    (float("-inf"), None),
    (True, True),
    (3, 3),
    ((1, (2.5, None)), [1, [2.5, None]]),
    ({1: Cell(0.5)}, {"1": {"mean": 0.5, "low": None, "high": None}}),
    (
        table(Row(["a"]), rows=[{"n": 1}], notes=["Note."], fields=("n",)),
        {"rows": [{"n": 1}], "notes": ["Note."]},
    ),
    (Line("a", "b"), {"head": "a", "text": "b", "style": "", "is_wrapped": False}),
)
def test_results_are_json_without_what_their_repr_leaves_out(value, json):
    assert tables.as_json(value) == json


@each(
    "value",
    Cell(0.5),
    Column("n"),
    Row(["a"]),
    Block([], []),
    Table([]),
    Line("a"),
    tables.File(Path("a")),
    tables.Answer(),
    ids=lambda value: type(value).__name__,
)
def test_what_is_printed_is_never_changed_on_the_way(value):
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, None)


def test_what_is_not_said_of_a_table_is_nothing():
    assert Cell() == Cell(None, "share", None, None, 0, None, None, "")
    assert Column("a") == Column("a", "", None, "", False, False, False)
    assert tables.Answer() == tables.Answer((), {}, (), (), {}, 0)
    assert (Line("a").is_wrapped, tables.File(Path("a")).is_new) == (False, True)
    assert (Block([], []).is_markdown, Table([]).shown("terminal")) == (False, [])


@each("is_new, text", (True, " (a row)"), (False, " is already there with these bytes"))
def test_a_file_that_was_there_says_so_in_place_of_what_it_is(is_new, text):
    assert tables.File.written(Path("a"), " (a row)", is_new=is_new) == tables.File(
        Path("a"), text, is_new
    )


def test_an_answers_own_keys_win_and_what_there_is_none_of_is_left_out():
    answer = tables.Answer(
        ["line", EVERYTHING], {"notes": "own"}, ["a note"], next={"olr": ""}
    )
    assert answer.plain() == {"schema": 1, "notes": "own", "next": ["olr"]}
    assert answer.tables == [EVERYTHING]


@each(
    "text, width, line",
    (None, None, "–"),
    ("a \n\t b", None, "a b"),
    ("a\x1b[31m", None, "a\ufffd[31m"),
    ("12345", 5, "12345"),
    ("123456", 5, "1234…"),
)
def test_text_of_a_data_set_stands_on_one_line(text, width, line):
    assert tables.one_line(text, width) == line


def test_an_element_has_texts_and_elements_in_their_order_and_none_are_left_out():
    made = element(
        "p", "a", None, "b", element("i", "c"), "d", "e", element("b"), None, "f",
        class_="x", aria_label="\x00",
    )  # fmt: skip
    assert html([made, made]) == "\n".join(
        ['<p class="x" aria-label="\ufffd">ab<i>c</i>de<b></b>f</p>'] * 2
    )
