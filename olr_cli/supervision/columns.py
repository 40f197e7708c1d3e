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
    """Return whether the fast `ColumnSupervisor` can decide the labels under a recipe.

    If not, use the slower `Supervisor`. `ColumnSupervisor` cannot decide the labels in three cases:

    - The label rule is a user's Python function, which must be called at every visit.
    - The decision needs more than the answers: an intrinsic reward, a verifier's errors, a second wording of each
      prompt, or the order of the rollouts, by which some methods break ties.
    - The method compares the prompts of a step to choose which of them train.
    """
    method = recipe.method
    return (
        method.row.label in ("given", "refined")
        and method.row.reward == "verifier"
        and method.prompts == "all"
        and recipe.verifier is None
    )


class ColumnSupervisor:
    """Decides the labels of stored rollouts in bulk. The labels are the same as those of `Supervisor`.

    A visit is all rollouts of one prompt in one epoch. Pass the rollouts to `decide` in blocks of steps, oldest first.
    Between blocks, the object keeps only sums over each prompt's visits.

    Args:
        recipe: a recipe that `decides_in_columns` accepts.
        prompts: prompt_id -> prompt.
        judge: decides which answers mean the same, and which match a label.
    """

    def __init__(self, recipe: Recipe, prompts: Mapping[str, Prompt], judge: Judge) -> None:
        self._recipe, self._judge = recipe, judge
        columns = {
            name: [getattr(prompt, name) for prompt in prompts.values()] for name in _PROMPT
        }
        self._prompts = pl.DataFrame(columns, _PROMPT).with_row_index("prompt")
        self._past = _PAST.to_frame()

    def decide(self, rollouts: pl.DataFrame) -> pl.DataFrame:
        """Decide the labels of all visits in a block of steps, and add these visits to the history.

        Args:
            rollouts: one row per rollout of the prompts' original wording, oldest step first, with the columns
                prompt_id, visit, step and answer (null for none).

        Returns:
            The labels table (the columns of `LabelRecord`). It has one row per visit, in the order in which the visits
            first appear in `rollouts`.

        Raises:
            KeyError: `prompts` lacks a rollout's prompt_id.
            ValueError: the visits of a prompt do not continue its earlier ones as 1, 2, 3, …

        After an error, the history is as it was before the call.
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
        rows = pl.concat([past, _past_rows(visits)])
        visits = _with_history(visits, rows, texts, self._recipe)
        visits = _with_historical_majority(visits, classes)
        visits = self._with_noisy_labels(visits, classes)
        visits = self._with_verdicts(visits, spellings)
        labels = _labels(self._with_labels(visits))
        # Last, so that a block that raises leaves the history unchanged.
        other_prompts = self._past.join(visits, on="prompt", how="anti")
        sums = rows.group_by("prompt", "text", "rollouts").sum()
        self._past = pl.concat([other_prompts, sums])
        return labels

    def _texts(self, answers: pl.Series) -> pl.DataFrame:
        """Give a number to each distinct answer, and one to each class of answers that mean the same (R7).

        Both count from 0. Nulls in `answers` are left out.

        Returns:
            One row per distinct answer, sorted by text. The columns are:

            - text: the answer as text.
            - answer: number of the answer.
            - key: number of its class.
            - is_read: whether the grader could parse the text.
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
        """Return for each row of `pairs` whether its answer matches its label (R7).

        The value is null if the judge cannot decide, if the answer or the label is null, or if the label is a
        placeholder such as ``N/A``.

        Args:
            pairs: one row per pair of label and answer. Its Boolean column in_percent says whether the question asks
                for a percentage.
            gold: name of the column with the labels. A true answer counts as a label here.
            answer: name of the column with the answers.
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
        """Add the column noisy_label: the wrong label that the prompt's noise sets at this visit (R2 to R4).

        - Active noise draws the label from the visit's answers that are proved wrong. If no answer is proved wrong,
          the label is the sentinel, a text that no answer matches.
        - Any other noise is already in the training file, so the label is the file's.
        - For a prompt without noise, the value is null.

        Args:
            visits: one row per visit.
            classes: one row per visit and class of answers that mean the same. The columns are text (the class's
                spelling), votes and is_read (whether the grader could parse the text).
        """
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
        """Add how many rollouts match each label of a visit, and three verdicts about its majority and labels (R7).

        Args:
            visits: one row per visit, with its majority and its labels.
            spellings: one row per visit and distinct answer, with the number of rollouts that gave the answer.

        Returns:
            `visits` with six more columns:

            - true_answer_count, given_label_count and noisy_label_count: numbers of matching rollouts; null if the
              visit has no such label.
            - majority_is_right: whether the majority matches the true answer.
            - given_is_right: whether the given label matches the true answer.
            - majority_is_noisy_label: whether the majority matches the noisy label.

            A verdict is null if the judge cannot decide, or if one of the two texts is missing.
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

    def _with_labels(self, visits: pl.DataFrame) -> pl.DataFrame:
        """Add each visit's label before any replacement, and whether the majority then replaces it (R14, R15).

        Returns:
            `visits` with three more columns:

            - label: the label before any replacement; null for none.
            - label_source: ``verified`` for a verified true answer, ``noisy`` for a noisy label, ``given`` for the
              file's label, ``sentinel`` for the sentinel (a text that no answer matches), ``none`` for no label.
            - is_selected: whether the majority replaces this label.
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
    """Group rollouts by prompt and visit, and list the answers of each group.

    Args:
        rollouts: one row per rollout, with the columns prompt_id, visit, step and answer.
        prompts: one row per prompt, with the column prompt (its number) and the columns of `_PROMPT`.

    Returns:
        Two frames:

        - One row per visit, in the order of `rollouts`. The columns are group (number of the row), visit, step,
          rollouts (K), answered (number of rollouts with an answer) and all columns of `prompts`.
        - One row per rollout with an answer. The columns are group (as in the first frame) and text (the answer).

    Raises:
        KeyError: a prompt_id is not in `prompts`.
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


def _rank(count: Any, answer: Any, limit: int) -> Any:
    """Return one rank per answer: the more votes, the higher the rank.

    Of answers with equal votes, the one whose text sorts first has the highest rank.

    Args:
        count: votes of each answer, as an integer array or a polars expression.
        answer: number of each answer, of the same type as `count`. Answers are numbered from 0 in the order of their
            texts.
        limit: any integer above all answers' numbers.

    Returns:
        The ranks, all different, of the same type as `count`.
    """
    # One number in place of two sort keys: 3 answers with counts 2, 2, 1 get 8, 7, 3.
    return count * limit + (limit - 1 - answer)


def _classes(spellings: pl.DataFrame, texts: pl.DataFrame) -> pl.DataFrame:
    """Return one row per visit and class of answers, with the class's votes and its most frequent spelling (R7).

    A class holds the answers that mean the same. Of equally frequent spellings, the one that sorts first is taken.

    Args:
        spellings: one row per visit and distinct answer, with the number of rollouts that gave the answer.
        texts: one row per distinct answer, with its number and that of its class (`ColumnSupervisor._texts`).
    """
    answer = pl.col("answer").cast(pl.Int64)
    rows = spellings.with_columns(
        votes=pl.col("count").sum().over("group", "key"),
        rank=_rank(pl.col("count"), answer, len(texts)),
    )
    return rows.filter(pl.col("rank") == pl.col("rank").max().over("group", "key"))


def _with_majorities(visits: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """Add each visit's majority, the one class of answers with the most rollouts (R9), and its pass rate (R10).

    `classes` has a row per class of answers of a visit: the visit (`group`), the class's number (`key`), its most
    frequent spelling (`text`) and its number of rollouts (`votes`).

    Returns:
        `visits` with four more columns:

        - majority_answer: the most frequent spelling of the majority's class.
        - majority_key: the number of the class.
        - majority_count: number of rollouts in the class.
        - pass_rate: majority_count divided by the number of the visit's rollouts.

        On a tie, or if no rollout has an answer, majority_answer and majority_key are null, and the other two are 0.
    """
    leaders = classes.filter(pl.col("votes") == pl.col("votes").max().over("group"))
    majorities = leaders.filter(pl.len().over("group") == 1).select(
        "group", majority_answer="text", majority_key="key", majority_count="votes"
    )
    visits = visits.join(majorities, on="group", how="left", maintain_order="left")
    count = pl.col("majority_count").fill_null(0)
    return visits.with_columns(count, pass_rate=count / pl.col("rollouts"))


def _past_rows(visits: pl.DataFrame) -> pl.DataFrame:
    """Return one row per visit, in the form in which the history keeps earlier visits (`_PAST`).

    `visits` needs the columns prompt, visit, rollouts, majority_answer and majority_count.

    Returns:
        A table with these columns:

        - prompt: number of the prompt.
        - text: the majority answer; null without a majority.
        - rollouts: number of rollouts, K.
        - visits: number of visits in the row, here 1.
        - count: number of rollouts in the majority's class.
        - moment: the visit's number times count. Slopes are computed from the sums of moments.
    """
    count = pl.col("majority_count")
    sums = {"visits": pl.lit(1), "count": count, "moment": pl.col("visit") * count}
    rows = visits.select("prompt", "rollouts", text="majority_answer", **sums)
    return rows.select(_PAST.names()).cast(_PAST)


class _Running:
    """Computes running sums and maxima within groups of rows.

    The result for a row covers this row and the earlier rows of its group.

    Args:
        groups: for each row the number of its group, at least 0. The rows of a group need not be neighbours.
    """

    def __init__(self, groups: NDArray[np.int64]) -> None:
        # For many small groups, polars' `over` takes ten times as long.
        # A stable sort makes each group contiguous and keeps its rows in order.
        self._order = np.argsort(groups, kind="stable")
        self._begins = np.diff(groups[self._order], prepend=-1) != 0
        self._group = self._begins.cumsum() - 1

    def sum(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each row the sum of `values` over this row and the rows of its group that come before it.

        `values` and the result have one item per row, in the same order as the `groups` of the constructor.
        """
        ordered = values[self._order]
        sums = ordered.cumsum()
        before = (sums - ordered)[self._begins]
        return self._in_row_order(sums - before[self._group])

    def max(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each row the largest of `values` in this row and the earlier rows of its group.

        No value may be negative.
        """
        # Lift every group above all values of the one before, so that one running maximum restarts at each group.
        base = self._group * (1 + values.max(initial=0))
        return self._in_row_order(np.maximum.accumulate(values[self._order] + base) - base)

    def _in_row_order(self, ordered: NDArray[np.int64]) -> NDArray[np.int64]:
        """Put values that are sorted by group back into the original order of the rows."""
        values = np.empty_like(ordered)
        values[self._order] = ordered
        return values


def _with_history(
    visits: pl.DataFrame, rows: pl.DataFrame, texts: pl.DataFrame, recipe: Recipe
) -> pl.DataFrame:
    """Add to each visit its slope and its prompt's historical majority (R11 to R13).

    The historical majority is the class of answers that was the prompt's majority most often. Both results cover the
    prompt's visits up to and including this one.

    Args:
        visits: one row per visit, with its majority.
        rows: rows with the columns of `_PAST`. The first rows are sums over the visits of earlier calls of
            `ColumnSupervisor.decide`; they are not in the result. Then follows one row for each row of `visits`, in the
            same order.
        texts: one row per distinct answer, with its number and that of its class (`ColumnSupervisor._texts`).
        recipe: has the slope threshold, for is_steep.

    Returns:
        `visits` with four more columns:

        - slope: by how much the majority's pass rate rises per visit.
        - is_steep: whether the slope exceeds the threshold.
        - historical_key: the number of the historical majority's class.
        - spelled_before: the spelling of this class that was most often the majority answer of a visit.

        historical_key and spelled_before are null on a tie, or before the first majority.

    Raises:
        ValueError: the visits of a prompt are not numbered 1, 2, 3, … without gap or repetition.
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


def _with_historical_majority(visits: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """Add the text of each visit's historical majority, and whether it is the visit's own majority too (R13).

    The historical majority is the class of answers that was the prompt's majority most often so far.

    Args:
        visits: one row per visit, with its majority and the columns that `_with_history` adds.
        classes: one row per visit and class of answers.

    Returns:
        `visits` with two more columns:

        - is_consistent: whether the visit's majority is the historical majority; false if one of them is missing.
        - historical_majority: the historical majority's most frequent spelling at this visit. If no rollout of the
          visit is in its class, this is the value of spelled_before, which may be null.
    """
    here = classes.select("group", historical_key="key", spelled_here="text")
    keys = ["group", "historical_key"]
    visits = visits.join(here, on=keys, how="left", maintain_order="left")
    is_consistent = pl.col("majority_key") == pl.col("historical_key")
    return visits.with_columns(
        is_consistent=is_consistent.fill_null(False),
        historical_majority=pl.coalesce("spelled_here", "spelled_before"),
    )


def _integers(values: pl.Series) -> NDArray[np.int64]:
    """Return a column of integers as an int64 array. The column must not have nulls."""
    return values.cast(pl.Int64).to_numpy()


def _historical_majorities(
    rows: pl.DataFrame, of_prompt: _Running, texts: pl.DataFrame
) -> pl.DataFrame:
    """Find for each row the class of answers that was its prompt's majority most often up to this row (R13).

    Args:
        rows: rows in the form of `_PAST`: first the sums over the visits of earlier blocks, then one row per visit of
            the current block, oldest first.
        of_prompt: computes running sums and maxima over the rows of each prompt.
        texts: one row per distinct answer, with its number and that of its class (`ColumnSupervisor._texts`).

    Returns:
        One row for each row of `rows`, with two columns:

        - historical_key: the number of the class.
        - spelled_before: the spelling of this class that was most often the majority answer of a visit. Of equally
          frequent spellings, the one that sorts first is taken.

        Both are null on a tie of classes, or before the first majority.
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
    """Return for each row the slope of the majority's pass rate over its prompt's visits up to this row.

    Each slope is a pair (numerator, denominator). It is the exact least-squares slope, or (0, 1) with fewer than two
    visits. The result covers all rows; the caller needs only the slopes of the current visits.

    Args:
        rows: rows with the columns of `_PAST`. The first rows are sums over the visits of earlier calls of
            `ColumnSupervisor.decide`. Then follows one row per visit of the current call, oldest first. The extra
            column ``number`` counts the prompt's visits up to the row.
        of_prompt: computes running sums over the rows of each prompt.
    """
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
    """Build the labels table, with one row per visit and the columns of `LabelRecord`.

    `visits` is the frame that `ColumnSupervisor.decide` has built so far. The columns that it still lacks, such as the
    effective label and the mean reward, are computed here (R15, R16).
    """
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
