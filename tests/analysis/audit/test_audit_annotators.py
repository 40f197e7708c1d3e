"""The annotator model: its formulas against brute force, its order against simple rules."""

import math
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from scipy.special import gamma

from olr_cli.analysis.audit import annotators
from olr_cli.analysis.audit.tally import MISSING, UNSEEN, Tally


def tally_of(prompts, models=1):
    """Of prompts, each a pair: the label's answer, and the counts of the answers by each model."""
    answers, counts, labels, first = [], [], [], 0
    for prompt, (label, by_model) in enumerate(prompts):
        size = len(by_model[0])
        answers += [{"prompt": prompt, "spelling": str(n)} for n in range(size)]
        counts += [
            {"prompt": prompt, "model": model, "answer": first + n, "count": count}
            for model, own in enumerate(by_model)
            for n, count in enumerate(own)
            if count
        ]
        labels.append(first + label if label >= 0 else label)
        first += size
    return Tally(
        tuple(map(str, range(len(prompts)))),
        tuple(map(str, range(models))),
        pl.DataFrame(
            {"prompt": range(len(prompts)), "visits": 2, "rollouts": 8, "answered": 8}
        ),
        pl.DataFrame(counts),
        pl.DataFrame(answers, schema={"prompt": pl.Int32, "spelling": pl.String}),
        tuple("x" for _ in prompts),
        np.array(labels),
    )


def brute_force(model, label, by_model):
    """Log odds that the label is wrong, from the words of the docstring."""
    size = len(by_model[0])
    possible = max(size + (label == UNSEEN) + 1, 2)
    weights = np.ones(size + 2)  # the answers, a label that nobody gave, none of them
    for accuracy, counts in zip(model.accuracies, by_model, strict=True):
        right, wrong = model.strength * accuracy, model.strength * (1 - accuracy)
        for place, n in enumerate(counts):
            if n:
                weights[place] *= (
                    gamma(right + n) / gamma(right) / gamma(n) * possible / wrong
                )
    place = size if label == UNSEEN else label
    weights[place] *= model.label_accuracy * possible / (1 - model.label_accuracy)
    # There is no label that nobody gave
    others = weights.sum() - weights[place] - (label != UNSEEN)
    return math.log(others / weights[place])


PROMPTS = [
    (0, [[5, 2, 1], [3, 0, 1]]),
    (1, [[5, 2, 1], [3, 0, 1]]),
    (UNSEEN, [[4, 4], [0, 2]]),
    (0, [[8], [4]]),
    (UNSEEN, [[1, 1, 1, 1], [1, 0, 0, 0]]),
]


def test_log_odds_are_the_sums_they_are_said_to_be():
    model = annotators.fit(tally_of(PROMPTS, models=2))
    expected = [brute_force(model, label, by_model) for label, by_model in PROMPTS]
    assert model.odds == pytest.approx(expected, abs=1e-4)


def test_of_annotators_that_answer_once_it_is_the_model_of_dawid_and_skene():
    prompts = [
        (0, [[1, 0], [0, 1], [1, 0]]),
        (0, [[0, 1], [0, 1], [0, 1]]),
        (0, [[1, 0]] * 3),
    ]
    model = annotators.fit(tally_of(prompts, models=3))
    rates = np.append(model.accuracies, model.label_accuracy)
    weights = np.log(rates / (1 - rates)) + np.log(3)  # two answers, or none of them
    for (_, by_model), odds in zip(prompts[:2], model.odds, strict=False):
        for_label = (
            sum(w for w, own in zip(weights, by_model, strict=False) if own[0])
            + weights[-1]
        )
        for_other = sum(w for w, own in zip(weights, by_model, strict=False) if own[1])
        assert odds == pytest.approx(np.logaddexp(for_other, 0) - for_label)


def test_models_count_as_much_as_they_are_right_and_so_do_labels():
    rng = np.random.default_rng(0)
    rates, prompts = (0.9, 0.6, 0.4), []
    for _ in range(500):
        said = [
            0 if rng.random() < rate else int(rng.integers(1, 6)) for rate in (*rates, 0.85)
        ]
        counts = np.eye(6, dtype=int)[said[:3]].tolist()
        prompts.append((said[3], counts))
    model = annotators.fit(tally_of(prompts, models=3))
    assert model.accuracies == pytest.approx(rates, abs=0.06)
    assert model.label_accuracy == pytest.approx(0.85, abs=0.05)
    wrong = np.array([label != 0 for label, _ in prompts])
    assert np.median(model.odds[wrong]) > 1 > -1 > np.median(model.odds[~wrong])


@pytest.mark.parametrize("models", [1, 2, 3])
def test_an_answer_of_a_weak_model_never_counts_against_the_label_that_it_agrees_with(
    models,
):
    rng, prompts, agreeing = np.random.default_rng(0), [], []
    for _ in range(300):
        said = [
            0 if rng.random() < 0.1 else int(rng.integers(1, 20)) for _ in range(models)
        ]
        given = sorted(set(said))
        counts = [[int(answer == one) for answer in given] for one in said]
        prompts.append((0 if 0 in said else UNSEEN, counts))
        agreeing.append(said.count(0))
    odds = annotators.fit(tally_of(prompts, models=models)).odds
    for more, fewer in pairwise(sorted({*agreeing}, reverse=True)):
        assert (
            odds[np.array(agreeing) == more].max() < odds[np.array(agreeing) == fewer].min()
        )


def test_a_label_that_nobody_gives_goes_before_one_that_somebody_gives_and_scatter_before_agreement():
    order = [
        (1, [[7, 0]]),
        (1, [[7, 1]]),
        (1, [[6, 2]]),
        (0, [[2, 2, 2, 2]]),
        (0, [[5, 3]]),
        (0, [[8, 0]]),
    ]
    model = annotators.fit(tally_of([*order, *[(0, [[6, 2]])] * 20]))
    assert (np.diff(model.odds[: len(order)]) < 0).all()


def test_without_a_label_there_are_no_odds_and_without_answers_no_leader():
    model = annotators.fit(tally_of([(MISSING, [[3, 1]]), (UNSEEN, [[]]), (0, [[2, 2]])]))
    assert np.isnan(model.odds).tolist() == [True, False, False]
    assert model.leaders.tolist() == [0, -1, -1]
    assert model.is_settled.tolist() == [True, False, False]
    assert np.isnan(annotators.fit(tally_of([(MISSING, [[3, 1]])])).label_accuracy)


def test_answers_scatter_where_no_half_of_them_agrees():
    model = annotators.fit(tally_of([(0, [[4, 3, 1]]), (0, [[3, 2, 2]]), (0, [[3, 3, 1]])]))
    assert model.is_settled.tolist() == [True, False, False]
