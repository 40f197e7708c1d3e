"""Write judged.parquet: answers to GSM8K with the 0 and 1 of a judge that knows no labels (docs/audit.md).

The judge solved each question once, as gpt-4o-mini with a chain of thought, and accepts the answers that equal its own.
"""

from pathlib import Path

import polars as pl

number = pl.col("response").str.replace_all(",", "").str.extract(r"(-?\d+(?:\.\d+)?)")
rollouts = pl.read_parquet(Path(__file__).with_name("gsm8k.parquet"))
rollouts = rollouts.with_columns(number=number.cast(pl.Float64))
judge = rollouts.filter(model="gpt-4o-mini, chain of thought")
others = rollouts.filter(~pl.col("model").str.starts_with("gpt-4o-mini"))
judged = others.join(judge.select("prompt_id", solution="number"), on="prompt_id")
accepts = (pl.col("number") == pl.col("solution")).fill_null(False)
judged = judged.with_columns(judge=accepts.cast(int))
columns = ("prompt_id", "question", "given_label", "response", "judge")
judged.select(columns).write_parquet("judged.parquet")
