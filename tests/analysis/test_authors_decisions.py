"""Where our decisions and those of the paper's published code part, a numbered rule says why.

The observed decisions are in tests/fixtures/authors_decisions.parquet. A disagreement that no rule explains is a
failure; so is a kind of answer on which agreement falls.
"""

from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest
from histories import replayed

from olr_cli.analysis.histories import read_history
from olr_cli.answers import extract
from olr_cli.supervision import Past

FIXTURE = Path(__file__).parents[1] / "fixtures" / "authors_decisions.parquet"
NO_MAJORITY = "__NoMajorityAnswer__"

AGREEMENT = {  # visits that agree, of all visits
    "int": (65, 67), "negative": (30, 37), "bigint": (24, 38), "frac_vs_decimal": (56, 59),
    "frac_vs_slash": (43, 45), "units": (46, 51), "interval_tuple_set": (47, 57), "expr": (53, 71),
    "equation": (41, 49), "thousands_sci": (41, 46), "text_letter": (51, 55), "matrix": (29, 31),
    "unparseable": (59, 66), "style_missing": (54, 54), "style_nobox": (48, 55), "style_odd": (45, 52),
    "vote_tie": (100, 148), "history_tie": (179, 181), "slope_exact": (221, 266), "sentinel_history": (48, 80),
    "rep_spelling": (45, 80), "static_wrong": (39, 40),
}  # fmt: skip


@pytest.fixture(scope="module")
def ours(judge, tmp_path_factory):
    """Our label record of every (case, visit), through `olr replay`'s own path."""
    observed = pl.read_parquet(FIXTURE)
    table = observed.select(
        prompt_id=pl.col("case").cast(pl.String), visit="visit", response="responses", given_label="given_label",
        true_answer="true_answer", noise_type=pl.col("noise_type").replace("inactive_static", "inactive"),
        warmup_epochs="warmup_epochs", slope_threshold="slope_threshold",
    ).explode("response")  # fmt: skip
    folder = tmp_path_factory.mktemp("tables")
    found = {}
    for (warmup, threshold), rows in table.group_by(["warmup_epochs", "slope_threshold"]):
        file = folder / f"{warmup}-{threshold}.parquet"
        rows.write_parquet(file)
        settings = [f"method.warmup_epochs={warmup}", f"method.slope_threshold={threshold}"]
        labels = replayed(read_history(file, settings), judge)
        found |= {(int(label.prompt_id), label.visit): label for label in labels}
    return found


def reading_rule(judge, row):
    """The rule by which our votes of this visit differ from theirs, or None."""
    answers = [extract(response) for response in row["responses"]]
    keys = judge.keys(a for a in (*answers, *row["extracted"]) if a is not None)
    pairs = list(zip(answers, row["extracted"], strict=True))
    if any(
        (a is None) != (b is None) or (a is not None and keys[a] != keys[b])
        for a, b in pairs
    ):
        return "R6 (they take numbers of the prose, merge boxes, cut units off)"
    ours = Counter(keys[a] for a in answers if a is not None)
    if sorted(ours.values(), reverse=True) != row["votes"]:
        return "R7 (their classes depend on the order of the rollouts)"
    if row["votes"][:1] == [1] and None in answers:
        return "R9 (they let missing answers vote)"
    return None


def agrees(judge, label, row):
    if label.is_selected != row["selected"]:
        return False
    if not label.is_selected:
        return True
    if row["majority"] == NO_MAJORITY:
        return False
    keys = judge.keys([label.majority_answer, row["majority"]])
    return keys[label.majority_answer] == keys[row["majority"]]


def rule(judge, label, row, earlier):
    """The rule that explains a disagreement, or None. `earlier`: rules that changed a vote at some visit so far."""
    if row["selected"] and row["majority"] == NO_MAJORITY:
        return "R14 (they select prompts without a majority)"
    if earlier:
        return earlier[0]
    if Fraction(label.slope).limit_denominator(10_000) == Fraction(row["slope_threshold"]):
        return "R14 (they select at a slope equal to the threshold)"
    return history_rule(judge, label, row)


def history_rule(judge, label, row):
    """R7 and R11 for the historical majority: counted by class, visits without majority left out, it is ours."""
    counted = [
        text
        for text, n in zip(row["history"], row["history_counts"], strict=True)
        for _ in range(n)
    ]
    answers = [text for text in counted if text != NO_MAJORITY]
    keys = judge.keys([*answers, label.historical_majority or label.majority_answer])
    times = Counter(keys[text] for text in answers)
    merged = Past(majorities={key: {"": n} for key, n in times.items()}).historical_majority
    expected = (
        None if label.historical_majority is None else keys[label.historical_majority]
    )
    if merged != expected:
        return None
    if len(answers) < len(counted):
        return "R11 (they count visits without a majority as a candidate)"
    return "R7 (they count spellings of one answer apart in the history)"


def test_every_disagreement_with_the_authors_code_has_a_rule(judge, ours):
    total, agreed = Counter(), Counter()
    unexplained = []
    changed = defaultdict(list)
    for row in pl.read_parquet(FIXTURE).sort("case", "visit").iter_rows(named=True):
        label = ours[row["case"], row["visit"]]
        reading = reading_rule(judge, row)
        if reading is not None:
            changed[row["case"]].append(reading)
        total[row["kind"]] += 1
        if agrees(judge, label, row):
            agreed[row["kind"]] += 1
            continue
        if rule(judge, label, row, changed[row["case"]]) is None:
            unexplained.append((row["case"], row["visit"]))
    assert unexplained == []
    assert {kind: (agreed[kind], total[kind]) for kind in total} == AGREEMENT
