"""Cells of a table stay cells, whatever is in them, in every format."""

import csv
import io

from cases import each

from olr_cli import tables
from olr_cli.tables import Block, Cell, Column, Row, Table
from olr_cli.tables.html import html, table_elements


def table(*shown, columns=("arm", "n"), **kwargs):
    return Table([Block([*map(Column, columns)], [*shown])], **kwargs)


def test_a_bar_in_a_cell_ends_no_markdown_cell_and_a_name_is_no_markup():
    text = tables.markdown(table(Row(["`a` *b* <i> $x$ | \\", "1"])))
    assert text.splitlines() == [
        "| arm | n |",
        "|---|---|",
        r"| \`a\` \*b\* \<i> \$x\$ \| \\ | 1 |",
    ]


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
