"""The example of the README: what an audit of GSM8K's test set puts first is what people found defective."""

import json
from pathlib import Path

import polars as pl
from typer.testing import CliRunner

from olr_cli.cli import app

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_first_rows_of_the_example_are_defective():
    ended = CliRunner().invoke(app, ["audit", str(EXAMPLES / "gsm8k.parquet"), "--top", "20", "--json"])
    assert ended.exit_code == 0, ended.output
    queue = [row["prompt_id"] for row in json.loads(ended.stdout)["ranked"]]
    truth = pl.read_parquet(EXAMPLES / "gsm8k_truth.parquet").filter(
        pl.col("status").is_in(["revised", "rejected"])
    )
    assert len(set(queue) & set(truth["prompt_id"])) == 17
