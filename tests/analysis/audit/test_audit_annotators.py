"""The annotator model: its formulas against brute force, its order against simple rules."""

import math
import random
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from scipy.optimize import brentq
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


def votes_of(said, label):
    """Of models that answer once: what `tally_of` takes of a prompt."""
    given = sorted(set(said))
    counts = [[int(answer == one) for answer in given] for one in said]
    return (given.index(label) if label in given else UNSEEN, counts)


def brute_force(model, label, by_model):
    """Log odds that the label is wrong, from the words of the docstring: of one model."""
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
    return odds_of(weights, model, label, size, possible)


def odds_of(weights, model, label, size, possible):
    place = size if label == UNSEEN else label
    weights[place] *= model.label_accuracy * possible / (1 - model.label_accuracy)
    # There is no label that nobody gave
    others = weights.sum() - weights[place] - (label != UNSEEN) * weights[size]
    return math.log(others / weights[place])


def at(log_odds, difficulty):
    return 1 / (1 + np.exp(difficulty - log_odds))


def brute_force_of_several(model, label, by_model, possible):
    """The same of several models, as they answered: what is right, what is wrong, and from which urn."""
    size, votes = len(by_model[0]), np.array(by_model) > 0
    weights = np.zeros(size + 2)
    nodes, chances = np.polynomial.hermite_e.hermegauss(5 if model.spread else 1)
    difficulties = model.spread * nodes

    def above(log_odds, average):
        return np.average(at(log_odds, difficulties), weights=chances) - average

    middling = np.array([brentq(above, -9, 9, args=(rate,)) for rate in model.accuracies])
    for difficulty, chance in zip(difficulties, chances, strict=True):
        accuracies = np.clip(at(middling, difficulty), 1 / 3, 0.99)
        for truth in range(size + 2):
            weight = chance
            for accuracy, counts in zip(accuracies, by_model, strict=True):
                right, wrong = model.strength * accuracy, model.strength * (1 - accuracy)
                for place, n in enumerate(counts):
                    if n and place == truth:
                        weight *= gamma(right + n) / gamma(right) / gamma(n)
                    elif n:
                        weight *= wrong
            # The wrong answers, of as many models, one after the other from an urn of 30 balls.
            gave = [m for place, m in enumerate(votes.sum(axis=0)) if place != truth]
            for m in gave:
                weight *= math.prod(30 / possible + drawn for drawn in range(m))
            weights[truth] += weight / math.prod(30 + drawn for drawn in range(sum(gave)))
    return odds_of(weights, model, label, size, possible)


PROMPTS = [
    (0, [[5, 2, 1], [3, 0, 1]]),
    (1, [[5, 2, 1], [3, 0, 1]]),
    (UNSEEN, [[4, 4], [0, 2]]),
    (0, [[8], [4]]),
    (UNSEEN, [[1, 1, 1, 1], [1, 0, 0, 0]]),
]


def test_log_odds_are_the_sums_they_are_said_to_be():
    prompts = [(label, by_model[:1]) for label, by_model in PROMPTS]
    model = annotators.fit(tally_of(prompts))
    expected = [brute_force(model, label, by_model) for label, by_model in prompts]
    assert model.odds == pytest.approx(expected, abs=1e-4)


def test_the_odds_of_one_policy_are_those_of_all_versions():
    model = annotators.fit(tally_of([(label, by[:1]) for label, by in PROMPTS]))
    stored = [-3.6123873094, -2.0692541429, 0.2440938640, -5.2166674336, -0.4206050960]
    assert model.odds == pytest.approx(stored, abs=1e-9)


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_log_odds_of_several_models_are_the_sums_they_are_said_to_be(monkeypatch, spread):
    monkeypatch.setattr(annotators, "SPREADS", (spread,))
    prompts = [(label, [*by, by[1]]) for label, by in PROMPTS]
    model = annotators.fit(tally_of(prompts, models=3))
    sizes = [len(by[0]) + (label == UNSEEN) + 1 for label, by in prompts]
    expected = [
        brute_force_of_several(model, *prompt, np.mean(sizes)) for prompt in prompts
    ]
    assert model.odds == pytest.approx(expected, abs=1e-4)


def test_of_a_model_that_answers_once_it_is_the_model_of_dawid_and_skene():
    prompts = [(0, [[1, 0]]), (1, [[1, 0]]), (0, [[1, 0]])]
    model = annotators.fit(tally_of(prompts))
    rates = np.append(model.accuracies, model.label_accuracy)
    own, by_label = np.log(rates / (1 - rates)) + np.log(3)  # two answers, or none
    assert model.odds[:2] == pytest.approx(
        [
            np.logaddexp(0, 0) - own - by_label,
            np.logaddexp(own, 0) - by_label,
        ]
    )


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


@pytest.mark.parametrize("models", [1, 2, 3, 8])
def test_an_answer_of_a_weak_model_never_counts_against_the_label_that_it_agrees_with(
    models,
):
    rng, prompts, agreeing = np.random.default_rng(0), [], []
    for _ in range(300):
        said = [
            0 if rng.random() < 0.1 else int(rng.integers(1, 20)) for _ in range(models)
        ]
        prompts.append(votes_of(said, 0))
        agreeing.append(said.count(0))
    odds = annotators.fit(tally_of(prompts, models=models)).odds
    for more, fewer in pairwise(sorted({*agreeing}, reverse=True)):
        assert (
            odds[np.array(agreeing) == more].max() < odds[np.array(agreeing) == fewer].min()
        )


@pytest.mark.parametrize("models", [2, 8, 20])
@pytest.mark.parametrize("accuracy", [0.1, 0.6])
def test_one_more_answer_that_agrees_with_a_label_never_counts_against_it(models, accuracy):
    # All answers but the last are the same in both of the first prompts; the last model is silent, or agrees.
    rng = np.random.default_rng(models)
    for agreeing in range(models):
        said = [0] * agreeing + [1] * (models - 1 - agreeing)
        prompts = [
            (0, [[int(a == 0), int(a == 1)] for a in (*said, last)]) for last in (0, 2)
        ]
        for _ in range(200):
            said = [int(rng.random() > accuracy) for _ in range(models)]
            prompts.append((0, [[int(a == 0), int(a == 1)] for a in said]))
        agrees, is_silent = annotators.fit(tally_of(prompts, models=models)).odds[:2]
        assert agrees <= is_silent, "as likely where the model does not vote"


@pytest.mark.parametrize(
    "models, accuracy, lead",
    [(10, 0.6, 7), (10, 0.8, 7), (10, 0.6, 8), (20, 0.6, 15), (20, 0.8, 16)],
)
def test_unanimity_against_a_label_goes_before_a_majority_whose_dissent_scatters(
    models, accuracy, lead
):
    rng = np.random.default_rng(0)
    prompts = [
        votes_of([1] * models, 0),
        votes_of([*[1] * lead, *range(2, 2 + models - lead)], 0),
    ]
    for _ in range(298):
        said = [
            0 if rng.random() < accuracy else int(rng.integers(1, 10))
            for _ in range(models)
        ]
        prompts.append(votes_of(said, 0))
    unanimous, scattered = annotators.fit(tally_of(prompts, models=models)).odds[:2]
    assert unanimous > scattered


def of_two_kinds(rng, prompts=300):
    """Answers of eight models that are right 80 % of the time, and of four that are 20 %, to as many questions."""
    rates = (0.2, 0.2, *[0.8] * 8, 0.2, 0.2)
    for _ in range(prompts):
        yield [0 if rng.random() < rate else int(rng.integers(1, 6)) for rate in rates]


def test_of_many_models_only_the_best_vote():
    said = [*of_two_kinds(np.random.default_rng(0))]
    both = annotators.fit(tally_of([votes_of(one, 0) for one in said], models=12))
    alone = annotators.fit(tally_of([votes_of(one[2:10], 0) for one in said], models=8))
    assert both.is_voter.tolist() == [False] * 2 + [True] * 8 + [False] * 2
    assert (
        both.accuracies[both.is_voter].min() > 0.6 > 0.4 > both.accuracies[[0, 1, 10]].max()
    )
    assert both.odds == pytest.approx(alone.odds, abs=1e-3)
    assert alone.is_voter.all()


def test_leading_answers_of_the_best_models_are_named_by_their_numbers_among_all():
    said = [*of_two_kinds(np.random.default_rng(0)), [9, 9, *[4] * 8, 1, 1]]
    tally = tally_of([votes_of(one, 0) for one in said], models=12)
    leaders = annotators.fit(tally).leaders
    assert tally.answers["spelling"][int(leaders[-1])] == "1", "1, 4 and 9 are numbered"


@pytest.mark.filterwarnings("error")
def test_where_only_others_than_the_best_answered_nothing_leads():
    prompts = [votes_of(one, 0) for one in of_two_kinds(np.random.default_rng(0))]
    silent = (0, [*[[1]] * 2, *[[0]] * 8, *[[1]] * 2])
    model = annotators.fit(tally_of([silent, (MISSING, silent[1]), *prompts], models=12))
    assert model.leaders[:2].tolist() == [-1, -1] and not model.is_settled[:2].any()
    assert np.isfinite(model.odds[0]) and np.isnan(model.odds[1])


def test_questions_are_found_to_be_equally_hard_or_not():
    rng, spreads = np.random.default_rng(0), {}
    for spread in (0.0, 2.0):
        prompts = []
        for _ in range(500):
            rate = 1 / (1 + np.exp(-1 + spread * rng.normal()))
            said = [0 if rng.random() < rate else int(rng.integers(1, 6)) for _ in range(6)]
            prompts.append(votes_of(said, 0))
        spreads[spread] = annotators.fit(tally_of(prompts, models=6)).spread
    assert spreads[0.0] <= 0.5 < spreads[2.0]


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


def test_the_order_in_which_answers_come_does_not_change_the_odds():
    votes, draw = [24, 25, 9, 13, 46, 3, 6, 7, 16, 52], random.Random(8)
    orders = [draw.sample(votes, len(votes)) for _ in range(50)]
    prompts = [(order.index(24), [order]) for order in orders]
    model = annotators.fit(tally_of([*prompts, (0, [[8, 2]]), (1, [[7, 3]])]))
    assert len(set(model.odds[: len(orders)])) == 1
