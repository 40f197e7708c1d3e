r"""How often verdicts about judged pairs of a gold and an answer are right: ours, and math-verify's own.

A file has one row per pair: gold, response (or answer), right (true, false; null where people would differ) and kind.
Counted are right answers that are missed and wrong ones that are accepted, each answer alone, and the verdicts that
are others when all answers to a gold are asked together, in any order. math-verify gets the gold first, both in boxes.

    python benchmarks/grading.py                                      # the pairs of tests/fixtures
    python benchmarks/grading.py ../shared/grading/cases.jsonl --amiss    # others, and what is graded amiss
    python benchmarks/grading.py --speed                              # processor time of a pair, olr and math-verify
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from olr_cli.answers import Judge, Pair, extract
from olr_cli.answers.matching import decide
from olr_cli.answers.reading import NeedsAlgebra

JUDGED = Path(__file__).parents[1] / "tests" / "fixtures" / "judged_answers.jsonl"

Grader = Callable[[Sequence[Pair]], Sequence[bool]]
"""Whether each answer is right, in order; asked for all pairs that are given together."""


@dataclass(frozen=True)
class Case:
    """A judged pair.

    Attributes:
        gold: as its benchmark spells it.
        response: with a box or none.
        right: the judgement.
        kind: of answer.
    """

    gold: str
    response: str
    right: bool
    kind: str


def read(file: Path) -> list[Case]:
    """The pairs of a file that have a judgement."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        Case(
            row["gold"],
            row.get("response") or f"\\boxed{{{row['answer']}}}",
            row["right"],
            row.get("kind", ""),
        )
        for row in rows
        if row["right"] is not None
    ]


def ours(judge: Judge) -> Grader:
    """This project's verdicts (R7)."""

    def grade(pairs: Sequence[Pair]) -> list[bool]:
        answers = [extract(response) for _, response in pairs]
        asked = [
            (gold, answer)
            for (gold, _), answer in zip(pairs, answers, strict=True)
            if answer is not None
        ]
        judge.keys(answer for _, answer in asked)
        verdicts = iter(judge.matches(asked))
        return [answer is not None and next(verdicts) is True for answer in answers]

    return grade


def math_verify(pairs: Iterable[Pair]) -> list[bool]:
    """The verdicts of math-verify as it is, gold first."""
    from math_verify import parse, verify

    return [
        bool(verify(parse(f"\\boxed{{{gold}}}"), parse(response)))
        for gold, response in pairs
    ]


def figures(cases: Sequence[Case], grade: Grader) -> tuple[dict[str, int], list[Case]]:
    """The three counts, with how many pairs there are of each kind, and the cases that are graded amiss."""
    alone = [grade([(case.gold, case.response)])[0] for case in cases]
    together: dict[Pair, bool] = {}
    for gold in dict.fromkeys(case.gold for case in cases):
        company = [(case.gold, case.response) for case in cases if case.gold == gold]
        random.Random(gold).shuffle(company)
        together |= dict(zip(company, grade(company), strict=True))
    amiss = [
        case for case, verdict in zip(cases, alone, strict=True) if verdict != case.right
    ]
    changed = sum(
        together[case.gold, case.response] != own
        for case, own in zip(cases, alone, strict=True)
    )
    return {
        "right": sum(case.right for case in cases),
        "missed": sum(case.right for case in amiss),
        "wrong": sum(not case.right for case in cases),
        "accepted": sum(not case.right for case in amiss),
        "changed_by_siblings": changed,
    }, amiss


PAIRS = 200


def speed(cases: Sequence[Case]) -> None:
    """Print the processor milliseconds that each grader takes for a pair: median and mean.

    Integers, and forms that need algebra. Both graders take turns in this process, in which olr does with a form what
    its workers do: read gold and answer, and compare them, each text as if it was new.
    """
    one_by_one = ours(Judge())  # in this process, as integers need no worker
    integers = [(str(n), f"\\boxed{{{n + n % 2}}}") for n in range(1000, 1000 + PAIRS)]
    distinct = list(dict.fromkeys((case.gold, case.response) for case in cases))
    forms = [
        (gold, response) for gold, response in distinct if _needs_algebra(gold, response)
    ]
    random.Random(0).shuffle(forms)
    graders: dict[str, Callable[[Pair], object]] = {
        "olr": lambda pair: one_by_one([pair]),
        "math-verify": lambda pair: math_verify([pair]),
    }
    for kind, pairs in (("integers", integers), ("forms", forms[:PAIRS])):
        graders["olr"] = _work if kind == "forms" else graders["olr"]
        for grade in graders.values():
            grade(integers[0])  # what is imported first is no pair's time
        times: dict[str, list[float]] = {name: [] for name in graders}
        for pair in pairs:
            for name, grade in graders.items():
                start = time.process_time()
                grade(pair)
                times[name].append(1000 * (time.process_time() - start))
        found = {
            name: (round(median(values), 3), round(fmean(values), 3))
            for name, values in times.items()
        }
        print(json.dumps({"pairs": kind, "of": len(pairs), **found}), flush=True)


def _work(pair: Pair) -> None:
    from olr_cli.answers.algebra import clear_caches, leaf, math_verify_proof, proof

    gold, answer = pair[0], extract(pair[1]) or ""
    for task in (("key", gold), ("key", answer), ("matches", gold, answer)):
        clear_caches()
        decide(*task, leaf=leaf, proof=proof, math_verify_proof=math_verify_proof)


def _needs_algebra(gold: str, response: str) -> bool:
    try:
        decide("matches", gold, extract(response) or "")
    except NeedsAlgebra:
        return True
    return False


def main() -> None:
    """Print a JSON line a grader."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, default=[JUDGED])
    parser.add_argument(
        "--amiss", action="store_true", help="also print what ours grades amiss"
    )
    parser.add_argument("--speed", action="store_true", help="only how long they take")
    arguments = parser.parse_args()
    cases = [case for file in arguments.files for case in read(file)]
    if arguments.speed:
        return speed(cases)
    with Judge(time_limit=20.0) as judge:
        for name, grade in (("olr", ours(judge)), ("math-verify", math_verify)):
            counts, amiss = figures(cases, grade)
            print(json.dumps({"grader": name, **counts}), flush=True)
            for case in amiss if arguments.amiss and name == "olr" else ():
                verdict = "missed" if case.right else "accepted"
                print(
                    f"  {verdict:8} {case.kind:12} {case.gold}   {extract(case.response)}"
                )


if __name__ == "__main__":
    main()
