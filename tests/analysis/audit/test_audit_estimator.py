"""The mixture model of labels: its formulas against brute force, its estimates against synthetic labels."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from olr_cli.analysis.audit import estimator
from olr_cli.analysis.audit.estimator import Model, Noise, Votes
from olr_cli.analysis.audit.tally import MISSING, UNSEEN, Tally


def votes_of(*counts, sharpness=3.0):
    """Votes of prompts, each a list of counts of its answers."""
    prompts = np.repeat(np.arange(len(counts)), [len(own) for own in counts])
    flat = np.array([n for own in counts for n in own], dtype=float)
    return Votes(prompts, flat, np.full(len(counts), sharpness))


def brute_force(counts, label, sharpness, draw):
    """right(L) and wrong(L) of one prompt, from the words of the docstring; `label` None: nobody gave it."""
    total = sum(n**sharpness for n in counts) + 1
    prior = [n**sharpness / total for n in counts]
    if label is None:
        return 1 / total, 1.0
    share = [n**draw / sum(m**draw for m in counts) for n in counts]
    wrong = sum(prior[c] * share[label] / (1 - share[c]) for c in range(len(counts)) if c != label)
    return prior[label], wrong + 1 / total * share[label]  # the last: the truth is one that nobody gave


@pytest.mark.parametrize("sharpness", [2.0, 3.0])
@pytest.mark.parametrize("draw", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("label", [0, 1, 2, None])
def test_likelihoods_are_the_sums_they_are_said_to_be(sharpness, draw, label):
    counts = [5.0, 2.0, 0.7]
    labels = np.array([0, UNSEEN if label is None else 2 + label])
    model = Model.of(votes_of([1.0, 1.0], counts, sharpness=sharpness), labels, Noise(0.5, 0.5, draw))
    assert (model.right[1], model.wrong[1]) == pytest.approx(brute_force(counts, label, sharpness, draw))


def test_the_chances_of_the_answers_and_of_nobodys_answer_add_up_to_one():
    votes, labels, noise = votes_of([5.0, 2.0, 1.0], [4.0, 3.0]), np.array([1, UNSEEN]), Noise(0.4, 0.7, 1.0)
    model = Model.of(votes, labels, noise)
    chances = votes.summed(model.answer_chances())
    wrong = 1 / (1 + np.exp(-model.wrong_log_odds()))
    # The truth may also be an answer that nobody gave: then the first prompt's label is a wrong rollout, and the
    # second's, if it is right.
    total = 0.4 * np.array([0.7, 0.3]) * model.wrong + 0.6 * model.right
    unseen = 1 / (np.array([5.0**3 + 2**3 + 1, 4.0**3 + 3**3]) + 1)
    nobodys = np.array([0.4 * 0.7 * 2 / 8, 0.4 * 0.3 + 0.6]) * unseen / total
    assert chances + nobodys == pytest.approx(np.ones(2))
    assert model.answer_chances()[1] == pytest.approx(1 - wrong[0])


def test_without_a_label_an_answers_chance_is_its_prior():
    model = estimator.fit(votes_of([3.0, 1.0]), np.array([MISSING]))
    assert not model.is_known.any() and np.isnan(model.wrong_log_odds()).all()
    assert model.answer_chances() == pytest.approx([27 / 29, 1 / 29])


def tally_of(*visits):
    """Of one prompt whose label is the first answer; a visit is a list of counts of its answers."""
    rows = [
        {"prompt": 0, "visit": v, "answer": answer, "count": n}
        for v, counts in enumerate(visits, 1)
        for answer, n in enumerate(counts)
        if n
    ]
    numbers = range(1, len(visits) + 1)
    totals = [sum(counts) for counts in visits]
    return Tally(
        ("a",),
        pl.DataFrame({"prompt": 0, "visit": numbers, "rollouts": totals, "answered": totals}),
        pl.DataFrame(rows),
        pl.DataFrame({"prompt": 0, "spelling": [str(n) for n in range(len(visits[0]))]}),
        ("0",),
        np.array([0]),
    )


def test_a_visit_weighs_as_much_as_its_rollouts_agree_with_those_of_the_others():
    tally = tally_of([4, 0, 0], [0, 4, 0], [0, 3, 1])
    # How many of the eight other rollouts agree with one of the first visit, of the second, of the third.
    weights = np.array([0, 3 / 8, 3 / 4 * 4 / 8])
    weights /= weights.max()
    expected = [4 * weights[0], 4 * weights[1] + 3 * weights[2], weights[2]]
    assert estimator.pooled_votes(tally, is_training=True).counts == pytest.approx(expected)


def test_the_only_visit_and_visits_that_nobody_agrees_with_count_full():
    assert estimator.pooled_votes(tally_of([3, 1]), is_training=True).counts == pytest.approx([3, 1])
    assert estimator.pooled_votes(tally_of([4, 0], [0, 4]), is_training=True).counts == pytest.approx([4, 4])


def test_visits_make_votes_sharper_only_if_the_policy_changed_between_them():
    once, often = tally_of([3, 1]), tally_of(*[[3, 1]] * 9)
    for is_training, ratio in ((True, 3), (False, 1)):
        sharpness = [estimator.pooled_votes(t, is_training=is_training).sharpness[0] for t in (once, often)]
        assert sharpness[0] > 1 and sharpness[1] == pytest.approx(ratio * sharpness[0])


def synthetic(ratio, *, size=2000, seen=0.8, draw=1.0, seed=0):
    """Votes, labels and which are wrong, drawn from the model itself at sharpness 3."""
    rng = np.random.default_rng(seed)
    counts = 1.0 + rng.integers(0, 9, (size, 4))
    labels, wrong = np.empty(size, dtype=np.int64), rng.random(size) < ratio
    for p in range(size):
        prior = np.append(counts[p] ** 3, 1)
        truth = rng.choice(5, p=prior / prior.sum())
        if not wrong[p]:
            labels[p] = UNSEEN if truth == 4 else 4 * p + truth
        elif rng.random() > seen:
            labels[p] = UNSEEN
        else:
            share = counts[p] ** draw * (np.arange(4) != truth)
            labels[p] = 4 * p + rng.choice(4, p=share / share.sum())
    return votes_of(*counts.tolist()), labels, wrong


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("draw", [0.0, 1.0])
def test_em_finds_the_noise_that_labels_were_drawn_with(ratio, draw):
    votes, labels, wrong = synthetic(ratio, draw=draw)
    model = estimator.fit(votes, labels)
    assert model.noise.ratio == pytest.approx(wrong.mean(), abs=0.06)
    assert model.noise.seen_share == pytest.approx(0.8, abs=0.12)
    assert abs(model.noise.draw - draw) <= 0.5
    chance = 1 / (1 + np.exp(-model.wrong_log_odds()))
    doubted = chance > 0.5
    assert chance[doubted].mean() == pytest.approx(wrong[doubted].mean(), abs=0.06)


def test_no_other_noise_makes_the_labels_likelier():
    votes, labels, _ = synthetic(0.3, size=300)
    best = estimator.fit(votes, labels)
    for ratio, seen in ((-0.05, 0), (0.05, 0), (0, -0.1), (0, 0.1)):
        noise = Noise(best.noise.ratio + ratio, best.noise.seen_share + seen, best.noise.draw)
        assert replace(best, noise=noise).log_likelihood() < best.log_likelihood()


def test_clean_labels_are_not_doubted():
    votes, labels, _ = synthetic(0.0)
    model = estimator.fit(votes, labels)
    assert model.noise.ratio < 0.02
    assert (model.wrong_log_odds() > 0).mean() < 0.01


def test_known_labels_count_as_they_are():
    votes, labels, wrong = synthetic(0.3, size=200)
    noise = estimator.fit(votes, labels, known_wrong=wrong.astype(float)).noise
    assert noise.ratio == pytest.approx((wrong.sum() + 0.5) / 201)


def test_prompts_of_which_nothing_can_be_said_change_nothing():
    votes, labels, _ = synthetic(0.3, size=200)
    more = Votes(votes.prompts, votes.counts, np.full(votes.size + 2, 3.0))
    noise = estimator.fit(more, np.append(labels, [UNSEEN, MISSING])).noise
    assert noise == estimator.fit(votes, labels).noise


@pytest.mark.parametrize(
    ("ratio", "seen_share", "can"), [(0.3, 1.0, True), (0.55, 1.0, False), (0.7, 0.1, True)]
)
def test_the_guard_compares_right_labels_with_wrong_ones_that_rollouts_gave(ratio, seen_share, can):
    assert Noise(ratio, seen_share, 1.0).can_be_told is can


def test_an_answer_that_everybody_gives_is_not_drawn_as_a_wrong_one():
    model = Model.of(votes_of([8.0]), np.array([0]), Noise(0.5, 0.5, 1.0))
    assert math.isclose(model.right[0], 512 / 513)
    assert math.isclose(model.wrong[0], 1 / 513)  # only if the truth is an answer that nobody gave
