"""The paper's tables as text: what stands where, on a terminal, in Markdown, LaTeX and CSV."""

import csv
import io
import re
from pathlib import Path

import pytest
from paper_runs import NINE, row, table_of, write_evaluated, write_grid, write_run
from rich.console import Console

from olr_cli import tables

GOLDEN = Path(__file__).parents[2] / "fixtures" / "tables" / "baselines.md"
"""Written by `write_golden` below; look at the change before you keep it."""


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return write_grid(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def table(grid):
    return table_of(grid)


def shown(table, width=80):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(tables.terminal(table.table()))
    return console.export_text()


def test_the_terminal_table_fits_80_columns_without_cutting_anything(table):
    text = shown(table)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    (line,) = (
        line for line in text.splitlines() if line.startswith("Small-loss Selection") and "-17.4" in line
    )
    cell = row(table, "Small-loss Selection", "Active noise 0.5").cells["eval/avg"]
    assert line.split()[2:] == [
        "2", f"{100 * cell.mean:.1f}", "±", f"{100 * cell.sd:.1f}",
        f"{100 * cell.difference.mean:+.1f}", "±", f"{100 * (cell.difference.high - cell.difference.mean):.1f}",
        "2/2", "18.1", "-17.4", "22.9", "-26.2",
    ]  # fmt: skip


def test_with_nine_benchmarks_the_papers_line_is_below_ours(tmp_path):
    run = write_run(tmp_path / "run")
    write_evaluated(run / "evaluation" / "step-000001", NINE, step=1)
    table = table_of(tmp_path)
    assert Console(width=1000).measure(tables.terminal(table.table())).maximum > 80
    lines = shown(table, 200).splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("Active noise")) + 1
    assert lines[place].split()[:5] == ["GRPO", "1", "20.0", "25.0", "30.0"]
    assert lines[place + 1].split()[:4] == ["paper", "10.4", "8.8", "45.8"]
    text = tables.markdown(table.table())
    assert (
        "| GRPO | 1 | 20.0 | 25.0 | 30.0 | 35.0 | 40.0 | 45.0 | 32.5 |  | 50.0 | 55.0 | 60.0 | 55.0 |  |"
        in text
    )
    assert "| *paper* |  | *20.4* | *15.4* |" in text
    assert "-" not in row(table, "GRPO", "Active noise 0.5").cells["in"].plain()


def golden(folder):
    return tables.markdown((table_of(folder)).table()) + "\n"


def write_golden(folder):
    """For a developer, when the layout is to change: from the made-up grid, written to an empty folder."""
    GOLDEN.write_text(golden(write_grid(folder)), encoding="utf-8")


def test_the_markdown_table_is_laid_out_as_the_golden_one(grid):
    assert golden(grid) == GOLDEN.read_text(encoding="utf-8")


def test_latex_has_the_same_cells_and_balanced_braces(table):
    text = tables.latex(table.table())
    assert r"\multicolumn{9}{l}{\emph{Unsupervised methods}} \\" in text
    assert text.count("{") == text.count("}")
    (line,) = (line for line in text.splitlines() if line.startswith("Small-loss") and "-17.4" in line)
    assert re.fullmatch(
        r"Small-loss Selection & \$2\$ & \$\d+\.\d \\pm \d\.\d\$ & \$-\d+\.\d\\;\[.*\]\$ & \$2/2\$ & \$18.1\$ & "
        r"\$-17.4\$ & \$22.9\$ & \$-26.2\$ \\\\",
        line,
    )
    assert all(
        line.count("&") == 8
        for line in text.splitlines()
        if line.endswith(r"\\") and "multicolumn" not in line
    )


def test_csv_has_a_line_a_row_and_column(table):
    lines = list(csv.DictReader(io.StringIO(tables.comma_separated(table.table()))))
    assert len(lines) == 3 * len(table.rows)
    (line,) = (
        x for x in lines if (x["method"], x["noise"], x["column"]) == ("olr", "active 0.5", "eval/avg")
    )
    cell = row(table, "OLR", "Active noise 0.5").cells["eval/avg"]
    assert (float(line["mean"]), float(line["low"])) == (cell.mean, cell.difference.low)
    assert (line["n"], line["published"], line["below_start"]) == ("2", "", "0")
    (line,) = (x for x in lines if (x["method"], x["noise"], x["column"]) == ("olr", "active 0.5", "in"))
    assert (line["n"], line["mean"], round(100 * float(line["published"]), 1)) == ("0", "", 41.9)
