"""The majority answer of a rollout group (R9)."""

from hypothesis import given, strategies as st

from olr_cli.answers import Vote, vote


def counted(judge, answers):
    keys = judge.keys(a for a in answers if a is not None)
    return vote(answers, keys), keys


def test_the_class_with_the_most_rollouts_is_the_majority(judge):
    result, keys = counted(judge, ["1/2", "0.5", "3", None, r"\frac12", "3", "4", None])
    half, three, four = (keys[answer] for answer in ("0.5", "3", "4"))
    counts, spelling = {half: 3, three: 2, four: 1}, {half: "0.5", three: "3", four: "4"}
    assert result == Vote(half, 3, rollouts=8, answered=6, counts=counts, spelling=spelling)


def test_a_tie_for_the_top_has_no_majority(judge):
    result, _ = counted(judge, ["1", "1.0", "2", "2", "3"])
    assert (result.majority, result.majority_count, result.answered) == (None, 0, 5)


def test_missing_answers_never_vote_but_count(judge):
    result, keys = counted(judge, [None, None, None, "7"])
    assert (result.majority, result.majority_count) == (keys["7"], 1)
    assert (result.rollouts, result.answered) == (4, 1)


def test_nobody_answered(judge):
    result, _ = counted(judge, [None] * 8)
    assert result == Vote(None, 0, 8, 0, {}, {})


def test_a_class_is_shown_by_its_most_frequent_spelling_ties_in_lexicographic_order(judge):
    result, keys = counted(judge, ["1/2", "1/2", "0.5", "4", "4.0", "2^2"])
    assert result.spelling[keys["0.5"]] == "1/2"
    assert result.spelling[keys["4"]] == "2^2"


@given(
    st.lists(st.sampled_from(["1", "1.0", "2", "4/2", "0.5", None]), max_size=10),
    st.randoms(),
)
def test_the_order_of_rollouts_never_matters(judge, answers, rng):
    result, _ = counted(judge, answers)
    again, _ = counted(judge, rng.sample(answers, len(answers)))
    assert result == again
    assert sum(result.counts.values()) == result.answered <= result.rollouts == len(answers)


@given(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=1, max_size=8), st.randoms())
def test_respelling_a_number_changes_no_count(judge, numbers, rng):
    spellings = [["{}", "{}.0", "{}/1", "+{}", "${}$", "{}00\\%"], ["{}"]]
    plain, respelled = (
        [rng.choice(each).format(n) for n in numbers] for each in reversed(spellings)
    )
    a, b = counted(judge, plain)[0], counted(judge, respelled)[0]
    assert sorted(a.counts.values()) == sorted(b.counts.values())
    assert (a.majority_count, a.answered) == (b.majority_count, b.answered)
