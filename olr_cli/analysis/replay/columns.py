"""A replay's decisions for all visits at once: what `Supervisor` decides, in columns instead of a visit at a time.

Rollouts are read in chunks and counted by visit and class; of a visit there remain some numbers. Then one pass over the
visits gives slopes, historical majorities and labels. Tests hold the rows equal to the supervisor's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import polars as pl

from olr_cli import seeding
from olr_cli.analysis.histories import chunks
from olr_cli.answers import PLAIN_NUMBER, Judge, is_read
from olr_cli.data.prompts import SENTINEL, Prompt
from olr_cli.recipe.schema import NoiseDraw, OlrMethod, Recipe
from olr_cli.supervision import Method, Past, Visit, arrow_schema
from olr_cli.supervision.metrics import selected_under
from olr_cli.supervision.rewards import verifier_reward
from olr_cli.supervision.supervisor import draw_wrong_answer
from olr_cli.supervision.types import LabelRecord

_SLICE = 50_000
"""Visits of a table that is handed out."""
_EXACT = 2**53
"""Whole numbers below are doubles."""


def is_columnar(method: Method) -> bool:
    """Whether labels and rewards depend on answers alone, and on no order of them."""
    return (
        method.reward is verifier_reward
        and method.rank is None
        and not method.calibrates
        and method.views == ("original",)
        and not method.orders_rollouts
    )


def decide(
    steps: Iterable[pl.DataFrame],
    prompts: Mapping[str, Prompt],
    recipe: Recipe,
    draw: NoiseDraw,
    judge: Judge,
) -> Iterator[pl.DataFrame]:
    """The labels table of all visits, some of its rows at a time, in the order in which the visits come.

    Args:
        steps: rollouts of the original view with prompt_id, visit, step and answer, a table a step.
        prompts: by prompt_id.
        recipe: its method is one of `is_columnar`.
        draw: how an active noisy label is drawn from the wrong answers (R3).
        judge: decides which answers mean the same, and which match a label.

    Raises:
        ValueError: a visit is missing or comes twice.
    """
    labels = _label_columns(prompts)
    visits, classes, counted = [], [], 0
    for chunk in chunks(steps, ["prompt_id", "visit", "step", "answer"]):
        counts = _Counts(chunk, labels, judge, recipe.seed, draw, counted)
        visits.append(counts.visits)
        classes.append(counts.classes)
        counted += len(counts.visits)
    if not visits:
        return
    whole = pl.concat(visits)
    visits.clear()
    _require_all_visits(whole)
    whole = whole.with_columns(_slopes(whole)).join(
        _historical(whole, pl.concat(classes)), on="visit_id", how="left", maintain_order="left"
    )
    classes.clear()
    for start in range(0, len(whole), _SLICE):
        yield _decided(whole.slice(start, _SLICE), labels, recipe)


def _label_columns(prompts: Mapping[str, Prompt]) -> pl.DataFrame:
    columns = dict.fromkeys(("prompt_id", "given_label", "true_answer", "noise_type"), pl.String)
    kinds = {**columns, "is_trusted": pl.Boolean}
    rows = {name: [getattr(prompt, name) for prompt in prompts.values()] for name in kinds}
    return pl.DataFrame(rows, kinds).with_columns(
        prompt=pl.int_range(pl.len(), dtype=pl.UInt32),
        is_marked=pl.col("noise_type").fill_null("clean") != "clean",
    )


def _standing() -> pl.Expr:
    """The label that counts unless the method replaces it (R15)."""
    marked = pl.when("is_marked").then("noisy_label").otherwise("given_label")
    return pl.when("is_trusted").then("true_answer").otherwise(marked)


class _Counts:
    """A chunk's rollouts, counted.

    Attributes:
        visits: a row a visit, in the order in which they first come.
        classes: a row a class of a visit: visit_id, key and spelling (R7).
    """

    def __init__(
        self,
        chunk: pl.DataFrame,
        labels: pl.DataFrame,
        judge: Judge,
        seed: int,
        draw: NoiseDraw,
        first: int,
    ) -> None:
        self._judge, self._seed, self._draw = judge, seed, draw
        # A policy that writes the sentinel itself has given no answer (R16).
        chunk = chunk.with_columns(answer=pl.when(pl.col("answer") != SENTINEL).then("answer"))
        visits = (
            chunk.group_by("prompt_id", "visit", maintain_order=True)
            .agg(pl.col("step").first(), rollouts=pl.len(), answered=pl.col("answer").count())
            .with_row_index("visit_id", offset=first)
            .join(labels, on="prompt_id", how="left", maintain_order="left")
        )
        # Most frequent spelling first, ties in lexicographic order (R7).
        spellings = (
            chunk.drop_nulls("answer")
            .group_by("prompt_id", "visit", "answer")
            .len("count")
            .join(
                visits.select(
                    "prompt_id", "visit", "visit_id", "prompt", "given_label", "true_answer", "is_marked"
                ),
                on=["prompt_id", "visit"],
            )
            .drop("prompt_id", "visit")
            .sort("visit_id", -pl.col("count").cast(pl.Int64), "answer")
        )
        spellings = spellings.join(self._keys(spellings["answer"]), on="answer", maintain_order="left")
        spellings = self._matching(spellings, "true_answer", "is_true")
        spellings = self._matching(spellings, "given_label", "is_given")
        classes = spellings.group_by("visit_id", "key", maintain_order=True).agg(
            pl.col("count").sum(), pl.col("answer", "is_true", "is_read").first()
        )
        noisy = self._noisy_labels(visits, classes)
        visits = visits.join(noisy, on="visit_id", how="left", maintain_order="left")
        spellings = spellings.join(noisy, on="visit_id", how="left", maintain_order="left")
        spellings = self._matching(spellings, "noisy_label", "is_noisy")
        top = (
            classes.filter(pl.col("count") == pl.col("count").max().over("visit_id"))
            .filter(pl.len().over("visit_id") == 1)
            .select("visit_id", "key", majority_answer="answer", majority_count="count")
        )
        top = top.join(
            spellings.select("visit_id", "is_true", "is_noisy", majority_answer="answer"),
            on=["visit_id", "majority_answer"],
        )
        counts = spellings.group_by("visit_id").agg(
            pl.col("count").filter(pl.col(name)).sum().alias(f"{name}_count")
            for name in ("is_true", "is_given", "is_noisy")
        )
        visits = visits.join(counts, on="visit_id", how="left", maintain_order="left")
        visits = visits.join(top, on="visit_id", how="left", maintain_order="left")
        standing = _standing()
        visits = self._matching(visits.with_columns(answer=standing), "true_answer", "is_standing_true")
        self.classes = classes.select("visit_id", "key", spelling="answer")
        self.visits = visits.select(
            "visit_id",
            "prompt",
            "visit",
            "step",
            "rollouts",
            "answered",
            "key",
            "majority_answer",
            pl.col("majority_count").fill_null(0),
            "noisy_label",
            "is_true",
            "is_noisy",
            "is_true_count",
            "is_given_count",
            "is_noisy_count",
            "is_standing_true",
        )

    def _keys(self, answers: pl.Series) -> pl.DataFrame:
        """The key of the class of each answer, and whether it could be read."""
        keys = self._judge.keys(answers.unique().to_list())
        columns = {"answer": list(keys), "key": list(keys.values()), "is_read": map(is_read, keys.values())}
        return pl.DataFrame(columns, {"answer": pl.String, "key": pl.String, "is_read": pl.Boolean})

    def _matching(self, rows: pl.DataFrame, label: str, name: str) -> pl.DataFrame:
        """The rows with a column that says whether `answer` matches the label; null where that is not known."""
        is_plain = pl.col(label).str.contains(PLAIN_NUMBER) & pl.col("answer").str.contains(PLAIN_NUMBER)
        is_same = pl.col(label) == pl.col("answer")
        asked = (
            rows.filter(~is_plain & ~is_same & (pl.col(label) != SENTINEL) & (pl.col("answer") != SENTINEL))
            .select(label, "answer")
            .unique()
        )
        verdicts = self._judge.matches(asked.iter_rows())
        table = pl.DataFrame(
            [(gold, answer, verdict) for (gold, answer), verdict in verdicts.items()],
            {label: pl.String, "answer": pl.String, name: pl.Boolean},
            orient="row",
        )
        is_known = (is_plain | is_same) & (pl.col(label) != SENTINEL)
        return rows.join(table, on=[label, "answer"], how="left", maintain_order="left").with_columns(
            pl.when(is_known).then(is_same).otherwise(name).alias(name)
        )

    def _noisy_labels(self, visits: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
        """This visit's wrong label of each marked prompt (R2 to R4)."""
        marked = visits.filter("is_marked")
        drawn = marked.filter((pl.col("noise_type") == "active") & pl.col("true_answer").is_not_null())
        constant = marked.join(drawn, on="visit_id", how="anti").select(
            "visit_id",
            noisy_label=pl.when(pl.col("noise_type") == "active")
            .then(pl.lit(SENTINEL))
            .otherwise("given_label"),
        )
        wrong = (
            classes.join(drawn.select("visit_id"), on="visit_id", how="semi")
            .filter(~pl.col("is_true") & pl.col("is_read"))
            .sort("visit_id", "answer")
            .group_by("visit_id")
            .agg("answer", "count")
        )
        ids, names = [], []
        for visit_id, prompt_id, visit, answers, counts in (
            drawn.select("visit_id", "prompt_id", "visit").join(wrong, on="visit_id", how="left").iter_rows()
        ):
            label = SENTINEL
            if answers:
                u = seeding.uniform("noisy label", self._seed, prompt_id, visit)
                label = draw_wrong_answer(list(zip(answers, counts, strict=True)), self._draw, u)
            ids.append(visit_id)
            names.append(label)
        kinds = {"visit_id": pl.UInt32, "noisy_label": pl.String}
        return pl.concat([constant, pl.DataFrame({"visit_id": ids, "noisy_label": names}, kinds)])


def _require_all_visits(visits: pl.DataFrame) -> None:
    due = pl.int_range(1, pl.len() + 1).over("prompt")
    strange = visits.with_columns(due=due).filter(pl.col("visit") != pl.col("due"))
    if not strange.is_empty():
        prompt, visit, expected = strange.select("prompt", "visit", "due").row(0)
        raise ValueError(f"prompt number {prompt}: visit {visit} where visit {expected} is due")


def _slopes(visits: pl.DataFrame) -> pl.Series:
    """The slope of each visit (R12), the correctly rounded double of the exact fraction, as `Past.slope`."""
    sizes, last = visits["rollouts"].unique().to_list(), int(visits["visit"].max())  # type: ignore[arg-type]
    scale = math.lcm(*sizes)
    if 6 * scale * last**3 >= _EXACT:
        return _slopes_one_by_one(visits)
    t = pl.col("visit").cast(pl.Int64)
    rate = pl.col("majority_count").cast(pl.Int64) * (scale // pl.col("rollouts").cast(pl.Int64))
    total, moment = rate.cum_sum().over("prompt"), (t * rate).cum_sum().over("prompt")
    rise = 2 * moment - (t + 1) * total
    slope = (6 * rise).cast(pl.Float64) / (scale * t * (t * t - 1)).cast(pl.Float64)
    return visits.select(slope=pl.when(t > 1).then(slope).otherwise(0.0)).to_series()


def _slopes_one_by_one(visits: pl.DataFrame) -> pl.Series:
    """The same where the numbers of rollouts have no small common multiple."""
    pasts: dict[int, Past] = {}
    slopes = []
    for prompt, count, size in visits.select("prompt", "majority_count", "rollouts").iter_rows():
        pasts[prompt] = pasts.get(prompt, Past()).after(Visit(None, None, count, size))
        slopes.append(float(pasts[prompt].slope))
    return pl.Series("slope", slopes, dtype=pl.Float64)


def _historical(visits: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """The historical majority of each visit that has one (R13), and as what it is spelled.

    A class leads alone from when it has been the majority more often than any, until another has been as often.
    """
    voted = visits.select(
        "visit_id", "prompt", "key", "majority_answer", times=pl.col("key").cum_count().over("prompt", "key")
    ).with_columns(times=pl.when(pl.col("key").is_not_null()).then("times").otherwise(0))
    led = voted.with_columns(most=pl.col("times").cum_max().over("prompt"))
    is_top = (pl.col("times") == pl.col("most")) & pl.col("key").is_not_null()
    led = led.with_columns(is_top=is_top).with_columns(
        leaders=pl.col("is_top").cast(pl.UInt32).cum_sum().over("prompt", "most"),
        leader=pl.when("is_top").then("key").forward_fill().over("prompt", "most"),
    )
    alone = led.filter((pl.col("leaders") == 1) & (pl.col("most") > 0)).select(
        "visit_id", "prompt", historical="leader"
    )
    alone = alone.join(
        classes, left_on=["visit_id", "historical"], right_on=["visit_id", "key"], how="left"
    ).sort("visit_id")
    absent = alone.filter(pl.col("spelling").is_null())
    past = (
        voted.join(absent.select("prompt", key="historical").unique(), on=["prompt", "key"], how="semi")
        .group_by("prompt", "key")
        # One spelling is the usual case; of several, the most frequent up to the visit counts.
        .agg(spelling=pl.col("majority_answer"), at=pl.col("visit_id"))
    )
    spelled = absent.drop("spelling").join(
        past, left_on=["prompt", "historical"], right_on=["prompt", "key"], how="left"
    )
    spellings = [
        _most_frequent([text for text, when in zip(texts, times, strict=True) if when <= visit])
        for visit, texts, times in spelled.select("visit_id", "spelling", "at").iter_rows()
    ]
    known = spelled.select("visit_id", past=pl.Series(spellings, dtype=pl.String))
    return alone.join(known, on="visit_id", how="left").select(
        "visit_id", "historical", historical_majority=pl.coalesce("spelling", "past")
    )


def _most_frequent(texts: list[str]) -> str:
    """The most frequent text, ties in lexicographic order."""
    return min(set(texts), key=lambda text: (-texts.count(text), text))


def _decided(visits: pl.DataFrame, labels: pl.DataFrame, recipe: Recipe) -> pl.DataFrame:
    """Rows of the labels table, from what was counted of these visits and the criteria (R14 to R16)."""
    method = recipe.method
    standing = _standing()
    source = (
        pl.when("is_trusted")
        .then(pl.lit("trusted"))
        .when(standing.is_null())
        .then(pl.lit("none"))
        .when(standing == SENTINEL)
        .then(pl.lit("sentinel"))
        .when("is_marked")
        .then(pl.lit("noisy"))
        .otherwise(pl.lit("given"))
    )
    rows = visits.join(labels, on="prompt", how="left", maintain_order="left").with_columns(
        standing=standing,
        label_source=source,
        is_consistent=pl.col("key").eq(pl.col("historical")).fill_null(False),
        pass_rate=pl.col("majority_count") / pl.col("rollouts"),
    )
    selected = pl.lit(False)
    if isinstance(method, OlrMethod):
        selected = selected_under(method.criteria, method.slope_threshold, method.warmup_epochs)
    knows = pl.col("true_answer").is_not_null()
    rows = rows.with_columns(is_selected=selected).with_columns(
        majority_is_correct=pl.when(knows).then(pl.col("is_true").fill_null(False)),
        majority_is_noisy_label=pl.when("is_marked").then(pl.col("is_noisy").fill_null(False)),
        effective_label=pl.when("is_selected").then("majority_answer").otherwise("standing"),
    )
    counts = {name: pl.col(f"is_{name}_count").fill_null(0) for name in ("true", "given", "noisy")}
    rewarded = (
        pl.when("is_selected")
        .then("majority_count")
        .when("is_trusted")
        .then(counts["true"])
        .when("is_marked")
        .then(counts["noisy"])
        .otherwise(counts["given"])
    )
    is_right = (
        pl.when(pl.col("effective_label") == SENTINEL)
        .then(pl.lit(False))
        .when(knows & pl.col("effective_label").is_not_null())
        .then(
            pl.when("is_selected")
            .then("majority_is_correct")
            .otherwise(pl.col("is_standing_true").fill_null(False))
        )
    )
    rows = rows.with_columns(
        label_source=pl.when("is_selected").then(pl.lit("majority")).otherwise("label_source"),
        rewarded=rewarded,
        effective_label_is_correct=is_right,
        noisy_label_count=pl.when(pl.col("noisy_label").is_not_null()).then(counts["noisy"]),
        true_answer_count=pl.when(knows).then(counts["true"]),
        given_label_count=pl.when(pl.col("given_label").is_not_null()).then(counts["given"]),
    )
    is_uniform = (pl.col("rewarded") == 0) | (pl.col("rewarded") == pl.col("rollouts"))
    rows = rows.with_columns(
        reward_mean=pl.col("rewarded") / pl.col("rollouts"),
        has_zero_variance=is_uniform,
        trains=pl.lit(True),
    )
    schema = pl.Schema(arrow_schema(LabelRecord))
    return rows.select(pl.col(name).cast(kind) for name, kind in schema.items())
