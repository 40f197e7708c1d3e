"""The paper's scores, and which row belongs to a run."""

import csv
import hashlib
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from cases import each
from histories import write_history

from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import PAPER
from olr_cli.evaluation.published import (
    RESULTS,
    Setting,
    model_name,
    published_row,
    published_rows,
    setting_of,
)
from olr_cli.recipe.layers import validate
from olr_cli.runs.directory import recipe_yaml
from olr_cli.runs.store import scan_labels
from olr_cli.runs.stored import marked_noise

SHARED = Path(__file__).parents[3] / "shared" / "paper" / "results.csv"


def test_every_row_has_the_papers_nine_benchmarks_in_its_order():
    assert len(published_rows()) == 68
    for row in published_rows().values():
        assert tuple(row.scores) == PAPER
        assert all(0 < score < 1 for score in row.scores.values())


def test_tables_that_print_the_same_setting_print_the_same_scores():
    printed = defaultdict(set)
    with RESULTS.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        setting = tuple(
            row[key] for key in row if key not in ("table", "score", "published_T")
        )
        printed[setting].add(row["score"])
    assert len(rows) == 765
    assert all(len(scores) == 1 for scores in printed.values())


@pytest.mark.skipif(not SHARED.is_file(), reason="no ../shared/paper")
def test_the_packaged_scores_are_the_published_ones():
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (RESULTS, SHARED)]
    assert digests[0] == digests[1]


def test_a_row_is_found_by_what_was_trained():
    base = published_row(Setting("Qwen3-4B-Base"))
    assert base.scores["aime24"] == pytest.approx(0.096)
    olr = published_row(
        Setting("Qwen3-4B-Base", "olr", "active", Decimal("0.50"), 800, Decimal("0.05"), 5)
    )
    assert olr.scores["mmlu_pro"] == pytest.approx(0.548)
    assert olr.tables == (
        "noise_ratios",
        "baselines",
        "slope_sensitivity",
        "warmup_sensitivity",
        "ablation",
    )


def test_means_follow_from_the_scores():
    shares = published_row(Setting("Qwen3-4B-Base", "ttrl")).shares
    assert shares["in"] == pytest.approx((12.1 + 8.3 + 48.2 + 76.4 + 36.0 + 40.3) / 600)
    assert shares["out"] == pytest.approx((86.9 + 30.3 + 56.0) / 300)
    assert shares["amc"] == pytest.approx(0.482)


@each(
    "setting, words",
    (
        ("Qwen3-4B-Bas",),
        r"no scores of 'Qwen3-4B-Bas' \(did you mean 'Qwen3-4B-Base'\?\); it has",
    ),
    (
        ("Qwen3-8B-Base", "grpo"),
        "no row for Qwen3-8B-Base, grpo; the nearest are Qwen3-8B-Base; ",
    ),
)
def test_what_was_not_published_is_one_sentence_with_what_was(setting, words):
    with pytest.raises(UserError, match=words):
        published_row(Setting(*setting))


@each(
    "model, name",
    ("Qwen/Qwen3-4B-Base", "Qwen3-4B-Base"),
    ("/models/Qwen3-8B-Base/", "Qwen3-8B-Base"),
    ("own", "own"),
)
def test_a_model_is_called_what_the_tables_call_it(model, name):
    assert model_name(model) == name


OLR = {"name": "olr", "slope_threshold": 0.05, "warmup_epochs": 5}
SMALL = {"prompts": 20, "prompts_per_step": 20, "epochs": 1, "store_rollouts": False}


@each(
    "changes, expected",
    (
        {"noise": "inactive", "ratio": 0.3, "method": OLR},
        ("olr", "inactive", "0.3", "0.05", 5),
    ),
    ({"method": {"name": "grpo"}}, ("grpo", "active", "0.5", None, None)),
    ({"noise": None, "method": {"name": "grpo"}}, ("grpo", None, None, None, None)),
    (
        {"method": {**OLR, "criteria": ["consistency"]}},
        ("olr_without_slope", "active", "0.5", None, 5),
    ),
    (
        {"method": {**OLR, "criteria": ["slope"]}},
        ("olr_without_consistency", "active", "0.5", "0.05", 5),
    ),
)
def test_a_run_is_called_what_the_paper_calls_its_setting(tmp_path, changes, expected):
    found = setting_of(write_history(tmp_path / "run", **{**SMALL, **changes}))
    method, kind, ratio, threshold, warmup = expected
    assert (found.method, found.noise_type, found.warmup_epochs) == (method, kind, warmup)
    assert found.noise_ratio == (ratio and Decimal(ratio))
    assert found.slope_threshold == (threshold and Decimal(threshold))
    assert found.train_prompts == 20


@each(
    "sections, words",
    ({"verifier": {"false_negative_rate": 0.3}}, "olr, active noise 0.5, verifier FN 0.3"),
    (
        {"verifier": {"where": [{"answer": "5$", "false_negative_rate": 1}]}},
        "olr, .*, verifier rule on answer",
    ),
    (
        {
            "verifier": {"false_positive_rate": 0.1},
            "method": {**OLR, "majority_graded_by": "verifier"},
        },
        r"olr\+graded_by_verifier, active noise 0.5, verifier FP 0.1",
    ),
    ({"data": {"verified": 10}}, "olr, active noise 0.5, verified labels"),
    (
        {"data": {"verified": 10}, "method": {**OLR, "prompts": "verified"}},
        r"olr\+verified_only, .*, verified labels",
    ),
    (
        {"noise": {"type": "active", "ratio": 0.5, "draw": "frequency"}},
        "olr, .*, labels drawn by frequency",
    ),
    ({"noise": {"type": "mixed", "ratio": 0.5}}, "olr, mixed noise 0.5"),
    ({"method": {"name": "mine.py:olr"}}, "mine.py:olr, active noise 0.5"),
    (
        {"method": {"name": "token_entropy", "score_reduction": "sum"}},
        r"token_entropy\+sum",
    ),
)
def test_a_run_with_other_labels_or_rewards_is_no_row_of_the_paper(
    tmp_path, sections, words
):
    of_paper = {
        "data": {"limit": 800},
        "model": {"path": "Qwen/Qwen3-4B-Base"},
        "method": OLR,
    }
    run = write_history(tmp_path / "run", **{**SMALL, "prompts": 800})
    noise = {"noise": {"type": "active", "ratio": 0.5}}
    (run / "recipe.yaml").write_text(recipe_yaml(validate({**of_paper, **noise}, "")))
    assert published_row(setting_of(run)).tables[0] == "noise_ratios"
    (run / "recipe.yaml").write_text(
        recipe_yaml(validate({**of_paper, **noise, **sections}, ""))
    )
    with pytest.raises(
        UserError,
        match=f"the paper has no row for Qwen3-4B-Base, {words}; the nearest are Qwen3",
    ):
        published_row(setting_of(run))


def test_a_verifier_without_errors_changes_nothing(tmp_path):
    method = {**OLR, "majority_graded_by": "verifier"}
    runs = [
        write_history(tmp_path / name, **SMALL, method=it)
        for name, it in (("a", OLR), ("b", method))
    ]
    none = write_history(
        tmp_path / "c", **SMALL, method=OLR, verifier={"false_negative_rate": 0}
    )
    assert len({setting_of(run) for run in (*runs, none)}) == 1


def test_marks_in_the_file_come_to_a_ratio_of_one_decimal(tmp_path):
    run = write_history(
        tmp_path / "run", **{**SMALL, "ratio": 0.46, "prompts": 50, "prompts_per_step": 50}
    )
    recipe = run / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("  ratio: 0.46\n", ""))
    found = setting_of(run)
    assert (found.noise_type, found.noise_ratio, found.train_prompts) == (
        "active",
        Decimal("0.5"),
        50,
    )


def test_a_verified_label_is_no_noise_among_marks(tmp_path):
    labels = scan_labels(write_history(tmp_path / "run", **SMALL))
    assert marked_noise(labels) == ("active", 0.5)
    verified = (
        pl.when(pl.col("noise_type") != "clean")
        .then(pl.lit("verified"))
        .otherwise("label_source")
    )
    assert marked_noise(labels.with_columns(label_source=verified)) is None
