"""Each metric on tables small enough to count by hand."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import polars as pl
import pytest
from cases import each
from decisions import LABEL as CLEAN, ROLLOUT, table_of
from histories import write_history
from hypothesis import given, strategies as st

from olr_cli.answers import Vote
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.prompts import Prompt
from olr_cli.recipe.methods import OlrMethod
from olr_cli.runs.store import arrow_table, scan_labels
from olr_cli.supervision import (
    Past,
    Rollout,
    RolloutGroup,
    Step,
    Supervisor,
    compose,
)
from olr_cli.supervision.metrics import (
    COMPOSITION,
    LABEL_METRICS,
    accuracy_among,
    by_visit,
    label_metrics,
    rollout_metrics,
    selected_under,
)

NOISY = replace(
    CLEAN, prompt_id="noisy", noise_type="active", given_label=SENTINEL, given_label_count=0, noisy_label="2",
    noisy_label_count=1, effective_label="2", label_source="noisy", majority_is_noisy_label=False,
    effective_label_is_correct=False, reward_mean=0.25,
)  # fmt: skip
UNKNOWN = replace(
    CLEAN, prompt_id="unknown", noise_type=None, true_answer=None, true_answer_count=None,
    majority_is_correct=None, effective_label_is_correct=None,
)  # fmt: skip
KNOWN = {
    "majority/differs_from_label": 0.0,
    "label/selection_ratio": 0.0,
    "slope/unselected": 0.25,
}
"""What is known of `UNKNOWN`."""


def labels(*records):
    return pl.from_arrow(table_of("labels", records))


def rollouts(*records):
    return pl.from_arrow(table_of("rollouts", records))


def selected(record):
    found = {
        "effective_label": record.majority_answer,
        "effective_label_is_correct": record.majority_is_correct,
    }
    return replace(record, is_selected=True, label_source="majority", **found)


MIXED = (
    CLEAN,
    replace(CLEAN, majority_answer="7", majority_is_correct=False, slope=-0.25),
    selected(replace(CLEAN, majority_answer="7", majority_is_correct=False, slope=0.5)),
    NOISY,
    replace(
        NOISY,
        noise_type="inactive",
        noisy_label_count=0,
        majority_is_correct=False,
        slope=0.0,
    ),
    selected(replace(NOISY, slope=0.75)),
    replace(
        NOISY,
        majority_answer="2",
        majority_is_correct=False,
        majority_is_noisy_label=True,
        slope=0.5,
    ),
)


def test_every_metric_of_a_mixed_step_is_what_one_counts_by_hand():
    assert label_metrics(labels(*MIXED)) == pytest.approx({
        "majority/accuracy": 3 / 7, "majority/differs_from_label": 4 / 7, "majority/accuracy_clean": 1 / 3,
        "majority/accuracy_noisy": 2 / 4, "majority/accuracy_selected": 1 / 2, "majority/accuracy_unselected": 2 / 5,
        "label/selection_ratio": 2 / 7, "label/selection_ratio_clean": 1 / 3, "label/selection_ratio_noisy": 1 / 4,
        "label/selected_accuracy": 1 / 2, "label/effective_noise": 4 / 7, "label/initial_noise": 4 / 7,
        "label/noise_realised": 3 / 4, "slope/clean": 0.5 / 3, "slope/noisy": 1.5 / 4, "slope/selected": 1.25 / 2,
        "slope/unselected": 0.75 / 5,
    })  # fmt: skip


def test_verified_prompts_are_counted_apart():
    verified = replace(
        NOISY, label_source="verified", effective_label="1", effective_label_is_correct=True
    )
    wrong = replace(verified, majority_answer="7", majority_is_correct=False, slope=1.0)
    metrics = label_metrics(labels(*MIXED, verified, wrong, wrong))
    assert metrics.pop("majority/accuracy_verified") == pytest.approx(1 / 3)
    assert metrics == label_metrics(labels(*MIXED))
    everything = selected_under((), Decimal(0), 0)
    assert labels(verified, NOISY).select(selected=everything)["selected"].to_list() == [
        False,
        True,
    ]


def test_prompts_of_unknown_quality_are_neither_clean_nor_noisy_and_no_truth_is_no_value():
    metrics = label_metrics(labels(UNKNOWN, UNKNOWN))
    assert metrics == KNOWN
    assert label_metrics(labels(CLEAN, UNKNOWN))["majority/accuracy"] == 1.0
    assert label_metrics(labels(CLEAN, UNKNOWN))["label/initial_noise"] == 0.0


def test_an_empty_group_gives_no_value():
    metrics = label_metrics(labels(CLEAN))
    groups = ("noisy", "_selected", "/selected", "realised", "selected_accuracy")
    assert not [name for name in metrics if name.endswith(groups)]
    assert metrics["label/effective_noise"] == 0.0
    assert label_metrics(labels()) == {}


def test_tables_without_any_known_value_in_a_column_are_read_too():
    frame = labels(UNKNOWN).with_columns(
        pl.lit(None).alias(name)
        for name in (
            "noise_type",
            "majority_is_correct",
            "effective_label_is_correct",
            "noisy_label_count",
        )
    )
    assert label_metrics(frame) == KNOWN


def test_rollout_metrics_are_means_over_rollouts_and_groups():
    step = rollouts(
        ROLLOUT,
        replace(ROLLOUT, reward=0.0, answer=None, tokens=8, truncated=True),
        replace(ROLLOUT, reward=0.0, tokens=None, truncated=None),
    )
    groups = labels(CLEAN, replace(NOISY, has_zero_variance=True))
    assert rollout_metrics(groups, step) == pytest.approx({
        "rollout/reward": 1 / 3, "rollout/length": 7.0, "rollout/truncated": 0.5, "rollout/missing_answers": 1 / 3,
        "rollout/zero_variance_groups": 0.5, "reward/tpr": 1 / 3,
    })  # fmt: skip
    assert "rollout/length" not in rollout_metrics(
        groups, rollouts(replace(ROLLOUT, tokens=None))
    )
    assert rollout_metrics(labels(), rollouts()) == {}


def test_rewards_are_measured_against_the_truth_and_against_a_verifier_without_errors():
    """One label is wrong, which costs three right answers their reward; the verifier errs on two of five rollouts."""
    step = rollouts(
        *[replace(ROLLOUT, reward=reward, oracle_reward=1.0) for reward in (1.0, 0.0)],
        *[replace(ROLLOUT, reward=0.0, oracle_reward=0.0)] * 2,
        replace(ROLLOUT, is_correct=False, reward=1.0, oracle_reward=0.0),
    )
    found = rollout_metrics(labels(CLEAN), step)
    expected = {"reward/tpr": 1 / 4, "reward/fpr": 1, "reward/youden": -3 / 4}
    expected |= {"verifier/tpr": 1 / 2, "verifier/fpr": 1 / 3}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    certain = rollouts(
        replace(ROLLOUT, reward=-0.3), replace(ROLLOUT, reward=0.5, is_correct=None)
    )
    metrics = rollout_metrics(labels(CLEAN), certain)
    assert not [name for name in metrics if name.startswith(("reward/", "verifier/"))]


def test_an_epoch_has_the_metrics_of_its_rows(tmp_path):
    stored = scan_labels(write_history(tmp_path / "run"))
    epochs = by_visit(stored)
    assert epochs["visit"].to_list() == list(range(1, 9))
    assert set(epochs["prompts"]) == {40}
    for row in epochs.iter_rows(named=True):
        own = stored.filter(pl.col("visit") == row["visit"]).collect()
        known = {name: row[name] for name in LABEL_METRICS if row[name] is not None}
        assert known == pytest.approx(label_metrics(own))


def test_the_parts_of_the_composition_add_up(tmp_path):
    visits = by_visit(scan_labels(write_history(tmp_path / "run")), COMPOSITION)
    for prompts in ("clean", "noisy"):
        total = visits.select(
            pl.sum_horizontal(pl.col(f"^composition/{prompts}_.*$"))
        ).to_series()
        assert total.to_list() == pytest.approx([1.0] * 8)


def test_the_composition_of_a_mixed_step():
    assert labels(*MIXED).select(x.alias(name) for name, x in COMPOSITION.items()).row(
        0, named=True
    ) == {
        "composition/clean_right": 1 / 3,
        "composition/clean_wrong": 2 / 3,
        "composition/noisy_right": 2 / 4,
        "composition/noisy_equal": 1 / 4,
        "composition/noisy_neither": 1 / 4,
    }
    unknown = labels(replace(NOISY, majority_is_correct=None))
    assert (
        unknown.select(x.alias(name) for name, x in COMPOSITION.items()).row(0)
        == (None,) * 5
    )


@each(
    "record, criteria, expected",
    (CLEAN, ("slope", "consistency"), True),
    (replace(CLEAN, visit=1), ("slope", "consistency"), False),
    (replace(CLEAN, slope=0.05), ("slope",), False),
    (replace(CLEAN, slope=0.05), ("consistency",), True),
    (replace(CLEAN, is_consistent=False), ("consistency",), False),
    (replace(CLEAN, is_consistent=False), ("slope",), True),
    (replace(CLEAN, is_consistent=False, slope=-1.0), (), True),
    (replace(CLEAN, majority_answer=None, majority_count=0), (), False),
)
def test_what_a_criterion_would_select(record, criteria, expected):
    assert (
        labels(record).select(selected_under(criteria, Decimal("0.05"), 1)).item()
        is expected
    )


def test_the_accuracy_of_a_selection_is_the_share_of_right_majorities():
    rows = labels(
        CLEAN, CLEAN, replace(CLEAN, majority_is_correct=False), replace(CLEAN, slope=-1.0)
    )
    assert rows.select(
        accuracy_among(selected_under(("slope",), 0.05, 1))
    ).item() == pytest.approx(2 / 3)


@given(
    st.lists(st.integers(0, 8), min_size=2, max_size=12),
    st.decimals("-0.3", "0.3", places=3),
)
def test_comparing_doubles_decides_as_comparing_exact_slopes_does(counts, threshold):
    exact = Fraction(
        *Past.of([Vote.stored("1", "1", count, 8) for count in counts]).slope_ratio
    )
    row = labels(replace(CLEAN, slope=float(exact)))
    nearest = Decimal(f"{float(exact):.3f}")  # often a tie
    for delta in (threshold, nearest):
        decided = row.select(selected_under(("slope",), delta, 0)).item()
        assert decided == (exact > Fraction(delta))


ANSWERS = st.lists(st.sampled_from(["1", "2", "3", None]), min_size=2, max_size=5)


@given(
    visits=st.lists(st.tuples(ANSWERS, ANSWERS, ANSWERS), min_size=1, max_size=5),
    criteria=st.sets(st.sampled_from(["slope", "consistency"])),
    threshold=st.sampled_from(["-0.1", "0", "0.05", "0.25"]),
    warmup=st.integers(0, 2),
)
def test_the_columns_select_what_the_supervisor_selects_also_beside_verified_prompts(
    judge, visits, criteria, threshold, warmup
):
    section = OlrMethod(
        criteria=tuple(sorted(criteria)), slope_threshold=threshold, warmup_epochs=warmup
    )
    supervisor = Supervisor(compose(section), judge, seed=0)
    prompts = [
        Prompt(name, (), SENTINEL, "1", "inactive", is_verified=name == "b")
        for name in "abc"
    ]
    for visit, answers_PG in enumerate(visits, 1):
        groups = [
            RolloutGroup(
                prompt, visit, visit, tuple(Rollout("") for _ in answers), tuple(answers)
            )
            for prompt, answers in zip(prompts, answers_PG, strict=True)
        ]
        rows = pl.from_arrow(
            arrow_table("labels", supervisor.supervise(Step.of(groups)).labels)
        )
        selected = rows.select(
            selected_under(sorted(criteria), Decimal(threshold), warmup)
        ).to_series()
        assert selected.to_list() == rows["is_selected"].to_list()
        assert not selected[1]
        assert label_metrics(rows)["label/initial_noise"] == 1.0
        assert label_metrics(rows.filter(pl.col("prompt_id") == "b")).keys() <= {
            "majority/accuracy_verified"
        }
