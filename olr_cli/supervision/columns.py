"""Decide the labels of many visits at once, in columns; the `Supervisor` decides them group by group.

    rollouts ──► spellings ──► classes ──► majorities ──► history ──► labels
                     └─ verdicts  └─ noisy labels

A replay has all rollouts before it begins, so no group has to be decided alone. The rules are the same and take a fifth
of the time. tests/supervision/test_columns.py compares both on random histories.

| frame | a row is | identified by |
|---|---|---|
| visits | a prompt's visit, in the order of the rollouts | group, its row number |
| spellings | an answer as rollouts of a visit spell it | group, answer |
| classes | a class of answers at a visit (R7) | group, key |
| past | all earlier visits of a prompt with the same majority and K, as sums | prompt, text, rollouts |

``answer`` and ``key`` are numbers that hold within one block of rollouts. Answers are numbered in the order of their
texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olr_cli.answers import Gold, Judge, is_placeholder, is_read
from olr_cli.answers.graded import SENTINEL
from olr_cli.answers.matching import PLAIN_NUMBER
from olr_cli.data.prompts import Prompt
from olr_cli.data.sets import noise_draw
from olr_cli.recipe.methods import OlrMethod
from olr_cli.recipe.schema import Recipe
from olr_cli.supervision.metrics import selected_under
from olr_cli.supervision.noisy import drawn_label
from olr_cli.supervision.types import LabelRecord, arrow_schema

ROLLOUT_COLUMNS = ("prompt_id", "visit", "step", "view", "answer")
"""Columns of rollouts that these decisions depend on."""

_PROMPT = pl.Schema({
    "prompt_id": pl.String,
    "noise_type": pl.String,
    "true_answer": pl.String,
    "given_label": pl.String,
    "is_verified": pl.Boolean,
    "in_percent": pl.Boolean,
})  # fmt: skip
"""Attributes of a `Prompt` that these decisions depend on."""

_PAST = pl.Schema({
    "prompt": pl.UInt32,
    "text": pl.String,
    "rollouts": pl.Int64,
    "visits": pl.Int64,
    "count": pl.Int64,
    "moment": pl.Int64,
})  # fmt: skip
"""Sums over the visits of a prompt that have the same majority (null for none) and the same K.

`visits` is their number, `count` the sum of their majority counts, and `moment` the sum of visit number times majority
count.
"""


def decides_in_columns(recipe: Recipe) -> bool:
    """Return whether columns can decide the labels of a recipe; the `Supervisor` always can.

    They cannot in three cases:

    - Python is called at every visit (a user's rule).
    - A rollout counts for more than its answer (scores, a verifier's errors, views, the first of a tie).
    - The prompts of a step are compared (which of them train).
    """
    method = recipe.method
    return (
        method.row.label in ("given", "refined")
        and method.row.reward == "verifier"
        and method.prompts == "all"
        and recipe.verifier is None
    )


class ColumnSupervisor:
    """Decides the labels of a history, block by block; only the history is kept from block to block.

    Args:
        recipe: a recipe that `decides_in_columns` accepts.
        prompts: prompts by prompt_id.
        judge: decides which answers mean the same.
    """

    def __init__(self, recipe: Recipe, prompts: Mapping[str, Prompt], judge: Judge) -> None:
        self._recipe, self._judge = recipe, judge
        columns = {
            name: [getattr(prompt, name) for prompt in prompts.values()] for name in _PROMPT
        }
        self._prompts = pl.DataFrame(columns, _PROMPT).with_row_index("prompt")
        self._past = _PAST.to_frame()

    def decide(self, rollouts: pl.DataFrame) -> pl.DataFrame:
        """Decide the labels of all visits of some steps, and add the visits to the history.

        Args:
            rollouts: the original view's rollouts, with `ROLLOUT_COLUMNS`, oldest step first.

        Returns:
            The labels table, one row per visit, in the order of the rollouts.

        Raises:
            KeyError: rollouts of an unknown prompt.
            ValueError: a visit of a prompt is missing, or comes twice.
        """
        # Rechunk, because every stored step is a chunk of its own, and some expressions are slow on many chunks.
        visits, answers = _visits(rollouts.rechunk(), self._prompts)
        past = self._past.join(visits, on="prompt", how="semi")
        texts = self._texts(pl.concat([answers["text"], past["text"]]))
        spellings = (
            answers.join(texts, on="text")
            .group_by("group", *texts.columns)
            .agg(count=pl.len().cast(pl.Int64))
        )
        classes = _classes(spellings, texts)
        visits = _with_majorities(visits, classes)
        rows = pl.concat([past, _past_of(visits)])
        visits = _with_history(visits, rows, texts, self._recipe)
        visits = _with_spelling(visits, classes)
        visits = self._with_noisy_labels(visits, classes)
        visits = self._with_verdicts(visits, spellings)
        labels = _labels(self._selected(visits))
        # Last, so that a block that raises leaves the history unchanged.
        other_prompts = self._past.join(visits, on="prompt", how="anti")
        sums = rows.group_by("prompt", "text", "rollouts").sum()
        self._past = pl.concat([other_prompts, sums])
        return labels

    def _texts(self, answers: pl.Series) -> pl.DataFrame:
        """Assign numbers to the answers, in the order of their texts, and to their classes (R7).

        Returns:
            Columns text, answer, key and is_read, one row per distinct text.
        """
        texts = answers.drop_nulls().unique().sort()
        keys = self._judge.keys(texts.to_list())
        names = [keys[text] for text in texts]
        columns = {
            "text": texts,
            "key": pl.Series(names, dtype=pl.String).rank("dense") - 1,
            "is_read": pl.Series(map(is_read, names), dtype=pl.Boolean),
        }
        return pl.DataFrame(columns).with_row_index("answer")

    def _matches(self, pairs: pl.DataFrame, gold: str, answer: str) -> pl.Series:
        """Return whether each answer matches the gold beside it (R7); null if undecided, or if one of them is missing.

        Args:
            pairs: a frame with the column in_percent.
            gold: name of its column of labels or true answers.
            answer: name of its column of answers.
        """
        pairs = pairs.select("in_percent", gold=gold, answer=answer)
        # Compare plain numbers as texts, as the judge does first: most pairs never reach the judge.
        are_plain = pl.all_horizontal(pl.col("gold", "answer").str.contains(PLAIN_NUMBER))
        equal = pairs.select(pl.when(are_plain).then(pl.col("gold") == pl.col("answer")))
        rest = pairs.filter(~are_plain).drop_nulls().unique(maintain_order=True)
        # No answer matches a placeholder for a missing label (R16), so don't ask.
        has_gold = [not is_placeholder(text) for text in rest["gold"]]
        rest = rest.filter(pl.Series(has_gold, dtype=pl.Boolean))
        if rest.is_empty():
            return equal.to_series()
        verdicts = self._judge.matches(
            (Gold(text, in_percent), answer_text)
            for in_percent, text, answer_text in rest.iter_rows()
        )
        rest = rest.with_columns(verdict=pl.Series(verdicts, dtype=pl.Boolean))
        judged = pairs.join(rest, on=pairs.columns, how="left", maintain_order="left")
        return judged.select(pl.coalesce(equal.to_series(), "verdict")).to_series()

    def _with_noisy_labels(
        self, visits: pl.DataFrame, classes: pl.DataFrame
    ) -> pl.DataFrame:
        """Add noisy_label, the wrong label of each visit (R2 to R4); null for prompts without noise."""
        is_active = pl.col("noise_type") == "active"
        active = visits.filter(is_active).select(
            "group", "prompt_id", "visit", "true_answer", "in_percent"
        )
        # Never draw an answer that the grader cannot read: it may be right (R3).
        wrong = classes.filter("is_read").join(active, on="group")
        wrong = wrong.filter(~self._matches(wrong, "true_answer", "text"))
        visit = ("group", "prompt_id", "visit")
        # Sort by text, as the `Supervisor` does, or the draw would pick another class (R18).
        by_visit = wrong.sort("group", "answer").group_by(visit, maintain_order=True)
        wrong = by_visit.agg("text", "votes")
        draw, seed = noise_draw(self._recipe), self._recipe.seed
        labels = [
            drawn_label(list(zip(texts, votes, strict=True)), draw, (seed, name, visit))
            for _, name, visit, texts, votes in wrong.iter_rows()
        ]
        drawn = wrong.select("group", drawn=pl.Series(labels, dtype=pl.String))
        visits = visits.join(drawn, on="group", how="left", maintain_order="left")
        return visits.with_columns(
            noisy_label=pl.when(is_active)
            .then(pl.coalesce("drawn", pl.lit(SENTINEL)))
            .when(pl.col("noise_type") != "clean")
            .then("given_label")
        )

    def _with_verdicts(self, visits: pl.DataFrame, spellings: pl.DataFrame) -> pl.DataFrame:
        """Add how many rollouts match each label of a visit (R7), and which of its labels and answers match.

        Returns:
            `visits` with true_answer_count, given_label_count, noisy_label_count, majority_is_right,
            majority_is_noisy_label and given_is_right. A count is null without that label; a verdict is null if
            undecided, or without one of its two sides.
        """
        labels = ["true_answer", "given_label", "noisy_label"]
        pairs = visits.select(*labels, "in_percent")[spellings["group"]]
        pairs = pairs.hstack(spellings.select("group", "count", "text"))
        matching = {
            f"{label}_count": pl.col("count") * self._matches(pairs, label, "text")
            for label in labels
        }
        counts = pairs.select("group", **matching).group_by("group").sum()
        visits = visits.join(counts, on="group", how="left", maintain_order="left")
        # The sentinel in a file stands for a missing label, so it needs no verdict.
        given = visits.with_columns(pl.col("given_label").replace(SENTINEL, None))
        return visits.with_columns(
            *(
                pl.when(pl.col(label).is_not_null()).then(
                    pl.col(f"{label}_count").fill_null(0)
                )
                for label in labels
            ),
            majority_is_right=self._matches(visits, "true_answer", "majority_answer"),
            majority_is_noisy_label=self._matches(visits, "noisy_label", "majority_answer"),
            given_is_right=self._matches(given, "true_answer", "given_label"),
        )

    def _selected(self, visits: pl.DataFrame) -> pl.DataFrame:
        """Add the label unless a majority replaces it, its source, and whether a majority does (R14, R15).

        Returns:
            `visits` with label, label_source and is_selected.
        """
        is_marked = pl.col("noise_type") != "clean"
        label = pl.when(is_marked).then("noisy_label").otherwise("given_label")
        source = pl.when(is_marked).then(pl.lit("noisy")).otherwise(pl.lit("given"))
        visits = visits.with_columns(
            label=pl.when("is_verified").then("true_answer").otherwise(label)
        )
        visits = visits.with_columns(
            label_source=pl.when("is_verified")
            .then(pl.lit("verified"))
            .when(pl.col("label").is_null())
            .then(pl.lit("none"))
            .when(pl.col("label") == SENTINEL)
            .then(pl.lit("sentinel"))
            .otherwise(source)
        )
        is_selected = pl.lit(False)
        if isinstance(method := self._recipe.method, OlrMethod):
            is_selected = selected_under(
                method.criteria, pl.col("is_steep"), method.warmup_epochs
            )
        return visits.with_columns(is_selected=is_selected)


def _visits(
    rollouts: pl.DataFrame, prompts: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split rollouts into their visits and their answers.

    Returns:
        The visits, with group, visit, step, rollouts (K), answered and the columns of `prompts`. The answers, with
        group and text, one row for each rollout that has an answer.
    """
    prompt = pl.col("prompt_id").replace_strict(
        prompts["prompt_id"], prompts["prompt"], default=None
    )
    text = pl.when(pl.col("answer") != SENTINEL).then("answer")
    rows = rollouts.select("visit", "step", prompt=prompt, text=text)
    for unknown in rollouts["prompt_id"].filter(rows["prompt"].is_null()).head(1):
        # A join would lose these rollouts without an error.
        raise KeyError(unknown)
    visits = rows.group_by("prompt", "visit", maintain_order=True).agg(
        pl.col("step").first(),
        rollouts=pl.len().cast(pl.Int64),
        answered=pl.col("text").count(),
    )
    visits = visits.with_row_index("group")
    answers = rows.drop_nulls("text").join(visits, on=["prompt", "visit"])
    visits = visits.hstack(prompts.drop("prompt")[visits["prompt"]])
    return visits, answers.select("group", "text")


def _rank(count: Any, answer: Any, answers: int) -> Any:
    """Return a number that is larger for more votes and, at equal votes, for the answer whose text sorts first."""
    # One number in place of two sort keys: 3 answers with counts 2, 2, 1 get 8, 7, 3.
    return count * answers + (answers - 1 - answer)


def _classes(spellings: pl.DataFrame, texts: pl.DataFrame) -> pl.DataFrame:
    """Return the row of each class's most frequent spelling, ties by text, with the class's votes (R7)."""
    answer = pl.col("answer").cast(pl.Int64)
    rows = spellings.with_columns(
        votes=pl.col("count").sum().over("group", "key"),
        rank=_rank(pl.col("count"), answer, len(texts)),
    )
    return rows.filter(pl.col("rank") == pl.col("rank").max().over("group", "key"))


def _with_majorities(visits: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """Add the one class with the most rollouts of each visit (R9), and its pass rate (R10).

    Returns:
        `visits` with majority_answer, majority_key (null on a tie), majority_count and pass_rate.
    """
    leaders = classes.filter(pl.col("votes") == pl.col("votes").max().over("group"))
    majorities = leaders.filter(pl.len().over("group") == 1).select(
        "group", majority_answer="text", majority_key="key", majority_count="votes"
    )
    visits = visits.join(majorities, on="group", how="left", maintain_order="left")
    count = pl.col("majority_count").fill_null(0)
    return visits.with_columns(count, pass_rate=count / pl.col("rollouts"))


def _past_of(visits: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of `_PAST`, where each row is the sum over one visit."""
    count = pl.col("majority_count")
    sums = {"visits": pl.lit(1), "count": count, "moment": pl.col("visit") * count}
    rows = visits.select("prompt", "rollouts", text="majority_answer", **sums)
    return rows.select(_PAST.names()).cast(_PAST)


class _Running:
    """Running sums and maxima: up to each row, over the rows of the same group.

    The results are those of polars' `over`, in a tenth of the time if groups are many and small.

    Args:
        groups: the group of each row, not negative.
    """

    def __init__(self, groups: NDArray[np.int64]) -> None:
        # A stable sort makes each group contiguous and keeps its rows in order.
        self._order = np.argsort(groups, kind="stable")
        self._begins = np.diff(groups[self._order], prepend=-1) != 0
        self._group = self._begins.cumsum() - 1

    def sum(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum of the values up to and including each row."""
        ordered = values[self._order]
        sums = ordered.cumsum()
        before = (sums - ordered)[self._begins]
        return self._in_place(sums - before[self._group])

    def max(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the largest value up to and including each row; values are not negative."""
        # Lift every group above all values of the one before, so that one running maximum restarts at each group.
        base = self._group * (1 + values.max(initial=0))
        return self._in_place(np.maximum.accumulate(values[self._order] + base) - base)

    def _in_place(self, ordered: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the values in the order of the rows."""
        values = np.empty_like(ordered)
        values[self._order] = ordered
        return values


def _with_history(
    visits: pl.DataFrame, rows: pl.DataFrame, texts: pl.DataFrame, recipe: Recipe
) -> pl.DataFrame:
    """Add the slope and the historical majority at each visit (R11 to R13).

    Args:
        visits: visits with their majorities.
        rows: the past of their prompts, and below it `_past_of` the visits themselves.
        texts: texts and keys of all majorities in `rows`.
        recipe: sets the slope threshold.

    Returns:
        `visits` with slope, is_steep, historical_key, spelled_before.

    Raises:
        ValueError: a visit of a prompt is missing, or comes twice.
    """
    of_prompt = _Running(_integers(rows["prompt"]))
    rows = rows.with_columns(number=of_prompt.sum(_integers(rows["visits"])))
    misnumbered = visits.with_columns(rows["number"].tail(len(visits)))
    misnumbered = misnumbered.filter(pl.col("visit") != pl.col("number")).head(1)
    for name, visit, due in misnumbered.select("prompt_id", "visit", "number").iter_rows():
        raise ValueError(f"prompt {name}: visit {visit} where visit {due} is due")
    history = _historical_majorities(rows, of_prompt, texts).tail(len(visits))
    ratios = _slope_ratios(rows, of_prompt)[len(rows) - len(visits) :]
    method = recipe.method
    delta = Fraction(method.slope_threshold if isinstance(method, OlrMethod) else 0)
    # Python's integers compare exactly, and their quotient is rounded once (R12).
    slope = [rise / run for rise, run in ratios]
    is_steep = [rise * delta.denominator > delta.numerator * run for rise, run in ratios]
    return visits.hstack(history).with_columns(
        pl.Series("slope", slope, dtype=pl.Float64),
        pl.Series("is_steep", is_steep, dtype=pl.Boolean),
    )


def _with_spelling(visits: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """Add is_consistent and historical_majority, spelled as at this visit, else as most often before (R13)."""
    here = classes.select("group", historical_key="key", spelled_here="text")
    keys = ["group", "historical_key"]
    visits = visits.join(here, on=keys, how="left", maintain_order="left")
    is_consistent = pl.col("majority_key") == pl.col("historical_key")
    return visits.with_columns(
        is_consistent=is_consistent.fill_null(False),
        historical_majority=pl.coalesce("spelled_here", "spelled_before"),
    )


def _integers(values: pl.Series) -> NDArray[np.int64]:
    """Return a column as an int64 array."""
    return values.cast(pl.Int64).to_numpy()


def _historical_majorities(
    rows: pl.DataFrame, of_prompt: _Running, texts: pl.DataFrame
) -> pl.DataFrame:
    """Find the class that was the majority most often up to each row (R13), and its most frequent spelling.

    Returns:
        historical_key and spelled_before; both null on a tie, or before the first majority.
    """
    # Rows without a majority get a number of their own, above those of all answers and keys.
    none = len(texts)
    rows = rows.join(texts, on="text", how="left", maintain_order="left")
    prompt, visits = _integers(rows["prompt"]), _integers(rows["visits"])
    answer, key = (_integers(rows[name].fill_null(none)) for name in ("answer", "key"))
    of_class = _Running(prompt * (none + 1) + key)
    of_spelling = _Running(prompt * (none + 1) + answer)
    times = np.where(key < none, of_class.sum(visits), 0)
    leads = (key < none) & (times == of_prompt.max(times))
    # Count the classes that have reached each number of visits: a class reaches it at most once.
    of_times = _Running(prompt * (1 + times.max(initial=0)) + times)
    leaders = of_times.sum(np.ones_like(times))
    # Counts only grow, so the largest rank so far belongs to the spelling that is most frequent now.
    best = of_class.max(_rank(of_spelling.sum(visits), answer, none + 1))
    # Only a row whose class leads can change the leader; every other row keeps the leader of the latest such row.
    latest = of_prompt.max(np.where(leads, 1 + np.arange(len(rows)), 0))
    leading = pl.DataFrame({"key": key, "answer": none - best % (none + 1)})[latest - 1]
    is_alone = pl.Series((latest > 0) & (leaders[latest - 1] == 1))
    leading = leading.select(pl.when(is_alone).then(pl.all()))
    return pl.DataFrame(
        {
            "historical_key": leading["key"].cast(texts["key"].dtype),
            "spelled_before": texts["text"].gather(leading["answer"]),
        }
    )


def _slope_ratios(rows: pl.DataFrame, of_prompt: _Running) -> list[tuple[int, int]]:
    """Return `Past.slope_ratio` up to each row."""
    scale = math.lcm(*rows["rollouts"].unique())
    latest = int(rows["number"].max() or 0)  # type: ignore[arg-type]  # a number
    # The common multiple of many different K may exceed int64; Python's integers are exact at any size.
    dtype = np.int64 if 6 * scale * latest**3 < 2**63 else object
    number, rollouts, count, moment = (
        _integers(rows[name]).astype(dtype)
        for name in ("number", "rollouts", "count", "moment")
    )
    unit = scale // rollouts
    total, moment = of_prompt.sum(count * unit), of_prompt.sum(moment * unit)
    # The same formula as `Past.slope_ratio`, which derives it.
    rise = np.where(number < 2, 0, 6 * (2 * moment - (number + 1) * total))
    run = np.where(number < 2, 1, scale * number * (number * number - 1))
    return list(zip(rise.tolist(), run.tolist(), strict=True))


def _labels(visits: pl.DataFrame) -> pl.DataFrame:
    """Build the labels table: the decisions in `visits`, and the columns that follow from them (R15, R16)."""
    is_marked = pl.col("noise_type") != "clean"
    has_truth = pl.col("true_answer").is_not_null()
    matching = pl.when(is_marked).then("noisy_label_count").otherwise("given_label_count")
    # Number of rollouts that are rewarded: those in the majority's class, or those that match the label.
    rewarded = (
        pl.when("is_selected")
        .then("majority_count")
        .when("is_verified")
        .then("true_answer_count")
        .otherwise(matching)
        .fill_null(0)
    )
    visits = visits.with_columns(
        effective_label=pl.when("is_selected").then("majority_answer").otherwise("label"),
        label_source=pl.when("is_selected")
        .then(pl.lit("majority"))
        .otherwise("label_source"),
        majority_is_correct=pl.when(has_truth).then(
            pl.col("majority_is_right").fill_null(False)
        ),
        majority_is_noisy_label=pl.when(is_marked).then(
            pl.col("majority_is_noisy_label").fill_null(False)
        ),
        rewarded=rewarded,
    )
    is_right = (
        pl.when("is_verified")
        .then(True)
        .when("is_selected")
        .then("majority_is_correct")
        # An active label was drawn from answers that are proved wrong, so it needs no verdict.
        .when(pl.col("noise_type") == "active")
        .then(False)
        .otherwise(pl.col("given_is_right").fill_null(False))
    )
    labels = visits.with_columns(
        effective_label_is_correct=pl.when(pl.col("effective_label") == SENTINEL)
        .then(False)
        .when(has_truth & pl.col("effective_label").is_not_null())
        .then(is_right),
        reward_mean=pl.col("rewarded") / pl.col("rollouts"),
        has_zero_variance=(pl.col("rewarded") == 0)
        | (pl.col("rewarded") == pl.col("rollouts")),
        trains=True,
        in_percent=pl.when("in_percent").then(True),
    )
    schema = pl.DataFrame(arrow_schema(LabelRecord).empty_table()).schema
    return labels.select(schema.names()).cast(schema)
