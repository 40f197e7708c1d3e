"""What a judge asks of its workers, what it remembers, and what it says where they give up (R7, R8)."""

import json
import os

import pytest
from cases import each

from olr_cli.answers import Gold, Judge, graded, judge
from olr_cli.answers.classes import Vote, first_majority, is_read, vote
from olr_cli.answers.golds import is_placeholder
from olr_cli.answers.graded import any_of, right_answers
from olr_cli.answers.pool import GAVE_UP, WorkerPool

RIGHT = {("key", "x+1"): "value 1", ("key", "1+x"): "value 1", ("key", "y"): "value 2"}


class Workers:
    """Workers that know some keys, find every pair right, and note what they are asked."""

    def __init__(self, gives_up=()):
        self.asked, self.gives_up, self.prepared = [], gives_up, 0

    def run(self, tasks):
        self.asked += tasks
        return [
            GAVE_UP if task in self.gives_up else RIGHT.get(task, True) for task in tasks
        ]

    def prepare(self):
        self.prepared += 1

    def close(self):
        pass


def judge_with(workers, **named):
    judge = Judge(**named)
    judge._pool = workers
    return judge


def test_each_task_is_asked_once_and_texts_before_their_pairs():
    workers = Workers()
    judge = judge_with(workers)
    pairs = [("x+1", "1+x"), ("x+1", "1+x"), ("5", "5.0"), ("5", "6"), ("x+1", "x+1")]
    assert judge.matches(pairs) == judge.matches(pairs) == [True, True, True, False, True]
    assert workers.asked == [("key", "x+1"), ("key", "1+x"), ("matches", "x+1", "1+x")]
    assert judge.keys(["x+1", "5"]) == {"x+1": "value 1", "5": "number 5"}
    assert len(workers.asked) == 3 and judge.timeouts == 0


@each(
    "named, tolerance, task",
    ({}, None, ("matches", "x+1", "1+x")),
    ({"tolerance": 0.5}, None, ("matches", "x+1", "1+x", "0.5")),
    ({"tolerance": 0.5}, 0, ("matches", "x+1", "1+x")),
    ({}, 0.25, ("matches", "x+1", "1+x", "0.25")),
)
def test_a_pair_is_asked_with_its_tolerance(named, tolerance, task):
    workers = Workers()
    judge_with(workers, **named).matches([("x+1", "1+x")], tolerance)
    assert workers.asked[-1] == task


def test_a_question_in_percent_counts_for_verdicts_alone():
    workers = Workers()
    judge, pair = judge_with(workers, tolerance=0.5), (Gold("x+1", True), "1+x")
    judge.matches([pair])
    assert workers.asked[-1] == ("matches", "x+1", "1+x", "0.5", "in percent")
    assert judge.may_match([pair]) == [True]
    assert workers.asked[-1] == ("may match", "x+1", "1+x")
    judge.reason(pair)
    assert workers.asked[-1] == ("reason", "x+1", "1+x")


@each(
    "gives_up, keys, verdict, asked",
    (("key", "x+1"), False, None, 2), (("matches", "x+1", "1+x"), True, None, 3), (("key", "y"), True, True, 3),
)  # fmt: skip
def test_a_pair_is_undecided_where_it_or_one_of_its_texts_is_given_up(
    tmp_path, gives_up, keys, verdict, asked
):
    workers, ledger = Workers([gives_up]), tmp_path / "ledger"
    judge = judge_with(workers, ledger=ledger)
    assert judge.matches([("x+1", "1+x")]) == [verdict]
    assert is_read(judge.keys(["x+1"])["x+1"]) is keys
    assert len(workers.asked) == asked and judge.timeouts == (verdict is None)
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    assert [*map(json.loads, lines)] == ([] if verdict else [[*gives_up]])
    assert judge.reason(("x+1", "1+x")) == (True if verdict else "TOO_MUCH_WORK")
    # Another judge reads it, and one that keeps nothing writes nothing.
    other = judge_with(Workers(), ledger=ledger, keep=False)
    assert other.matches([("x+1", "1+x")]) == [verdict] and other.timeouts == 0
    careless = judge_with(Workers([("key", "z+1")]), ledger=ledger, keep=False)
    assert careless.matches([("z+1", "1+x")]) == [None] and careless.timeouts == 1
    assert len(ledger.read_text().splitlines() if lines else []) == len(lines)


def test_a_pair_that_was_given_up_may_match_and_a_reason_that_is_given_up_is_one():
    gives_up = [("may match", "x+1", "y"), ("reason", "x+1", "y")]
    judge = judge_with(Workers(gives_up))
    assert judge.may_match([("x+1", "y"), ("5", "6"), ("5", "5")]) == [True, False, True]
    assert judge.reason(("x+1", "y")) == "TOO_MUCH_WORK"


def test_workers_are_prepared_for_answers_that_need_them_and_for_no_others():
    workers = Workers()
    judge_with(workers).expect(["5", r"\frac12", "(1, 2)"])
    assert workers.prepared == 0
    judge_with(workers).expect(["5", "x+1", "y"])
    assert workers.prepared == 1 and workers.asked == []


def test_there_are_as_many_workers_as_cores_up_to_four(monkeypatch):
    for cores, workers in ((1, 1), (3, 3), (4, 4), (5, 4), (64, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: {*range(n)})
        assert Judge()._pool.size == workers
        assert Judge(workers=7)._pool.size == 7
    assert Judge()._pool.time_limit == 2


def test_what_is_remembered_is_named_by_a_digest_where_it_is_long():
    assert judge._memo_key(("key", "x" * 120)) == ("key", "x" * 120)
    assert all(len(part) < 50 for part in judge._memo_key(("key", "x" * 121)))


@each(
    "waiting, there, alone, started",
    (1, 0, False, 1), (32, 0, False, 1), (33, 0, False, 2), (999, 0, False, 3), (999, 2, False, 1), (0, 0, False, 0),
    (1, 0, True, 1), (2, 0, True, 2), (9, 1, True, 2), (0, 1, True, 0),
)  # fmt: skip
def test_a_worker_is_started_for_each_task_alone_or_for_many(
    monkeypatch, waiting, there, alone, started
):
    monkeypatch.setattr(WorkerPool, "_start_worker", lambda _: "a new one")
    workers = ["an old one"] * there
    WorkerPool(3, 1.0)._start_workers(workers, waiting, is_alone=alone)
    assert workers.count("a new one") == started


def test_progress_counts_what_is_neither_waiting_nor_at_work():
    class Busy:
        tasks = (1, 2)

    said = []
    WorkerPool(1, 1.0, said.append)._report(2000, 10, [Busy(), Busy()])
    WorkerPool(1, 1.0)._report(5, 2, [])
    assert said == ["Verified 1,986 of 2,000 answers that need computer algebra"]


@each(
    "answers, first",
    (["a", "b", "b", "a"], "b"), (["a", "b", "a", "b"], "a"), (["a", None, "b"], "a"), ([None, "b"], "b"),
    ([None], None), ([], None), (["a", "b", "b", "c", "c"], "b"),
)  # fmt: skip
def test_of_tied_classes_the_first_to_have_all_its_rollouts_leads(answers, first):
    keys = {letter: letter.upper() for letter in "abc"}
    assert first_majority(answers, vote(answers, keys), keys) == (first and first.upper())


def test_a_stored_vote_is_its_majority_alone():
    assert Vote.stored("k", "5", 3, 8) == Vote("k", 3, 8, 3, {"k": 3}, {"k": "5"})
    for majority, answer in ((None, None), (None, "5"), ("k", None)):
        stored = Vote.stored(majority, answer, 0, 8)
        assert stored == Vote(None, 0, 8, 0, {}, {}) and stored.majority_answer is None


@each(
    "golds, text",
    (["7"], "7"), (["7", "8"], '["7", "8"]'), (["é", "8"], '["é", "8"]'), (['["7"]'], '["7"]'),
)  # fmt: skip
def test_several_golds_are_one_text(golds, text):
    assert any_of(golds) == text
    assert right_answers(any_of(golds)) == (["7"] if text == '["7"]' else golds)


@each(
    "text, golds",
    ("7", ["7"]), ("[7, 8]", ["[7, 8]"]), ('["7", "N/A"]', ["7"]), ("N/A", []), ('["7"', ['["7"']),
    ('["' + "[" * 9999, ['["' + "[" * 9999]), ('["7", 8]', ["7", "8"]),
)  # fmt: skip
def test_a_text_of_several_golds_is_read_without_placeholders(text, golds):
    assert right_answers(text) == golds


def test_placeholders_have_at_most_sixty_characters():
    assert is_placeholder("-" * 60) and is_placeholder(" " + "-" * 60)
    assert not is_placeholder("-" * 61)


def test_what_nobody_asked_for_is_neither_right_nor_wrong():
    with Judge(workers=1) as of_numbers:
        grading = graded.Grading([["5", None, "6"], ["7"]], of_numbers)
        gold = Gold("5")
        assert not grading.right(gold) and not grading.wrong(gold)
        grading.ask([[gold], []])
        assert (grading.right(gold), grading.wrong(gold)) == ({"5"}, {"6"})
        assert [tally.answered for tally in grading.votes()] == [2, 1]


def test_a_ledger_that_is_damaged_or_missing_gives_nothing_up(tmp_path):
    file = tmp_path / "ledger"
    assert judge._read_ledger(None) == judge._read_ledger(file) == set()
    file.write_text('["key", "x"]\n7\n["key", [1]]\n{}\n["key", "y', "ascii")
    assert ("key", "x") in judge._read_ledger(file)
    assert all(isinstance(task, tuple) for task in judge._read_ledger(file))


@pytest.mark.parametrize(
    "pair, spelled", [((7, 8.5), ("7", False, "8.5")), ((Gold("7", True), 8), ("7", True, "8"))]
)  # fmt: skip
def test_callers_may_have_numbers(pair, spelled):
    assert judge._spelled(pair) == spelled
