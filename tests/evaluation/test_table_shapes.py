"""Cells of a table stay cells, whatever is in them."""

import csv
import io

from olr_cli.evaluation.table_shapes import comma_separated, markdown_table


def test_a_bar_in_a_cell_ends_no_markdown_cell():
    assert markdown_table(["arm", "n"], [["a|b", "1"]]) == ["| arm | n |", "|---|---|", "| a\\|b | 1 |"]


def test_commas_quotes_and_line_breaks_come_back_from_csv():
    lines = [{"arm": 'a,"b"\nc', "n": 1}, {"arm": "d", "n": None}]
    text = comma_separated(["arm", "n"], lines)
    assert list(csv.reader(io.StringIO(text))) == [["arm", "n"], ['a,"b"\nc', "1"], ["d", ""]]
