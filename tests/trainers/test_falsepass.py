"""The probes of falsepass on the plain reward: completions known to be bad earn nothing, those known to be good 1."""

import json
from collections import Counter

import pytest
from samples import json_lines

pytest.importorskip("falsepass")

BOXED = r" Put your final answer in \boxed{}."
QUESTIONS = {
    "Compute 17 + 25.": "42",
    "Compute 120 + 45.": "165",
    "What is one half of three quarters?": r"\frac{3}{8}",
    "Solve x^2 = 2 for x > 0.": r"\sqrt{2}",
    "For which x is x > 1 and x - 5 at most 0?": "(1,5]",
    "Simplify (x + i)(x - i).": "x^2+1",
    "What does a quarter of 50 dollars cost?": "12.5",
    "Where do the lines meet?": "(2,-3)",
    "Name the capital of France.": "Paris",
    "What is the area of a circle of radius 3?": r"9\pi",
}


@pytest.mark.slow
def test_no_probe_is_paid_and_only_an_empty_box_after_the_answer_is_not(here):
    from falsepass import runner

    rows = [
        {"prompt": question + BOXED, "answer": answer}
        for question, answer in QUESTIONS.items()
    ]
    json_lines(here / "data.jsonl", *rows)
    audit = here / "audit"
    audit.mkdir()
    settings = {
        "id": "local/olr", "framework": "reward", "task": "olr_cli.trainers.grading",
        "dataset": str(here / "data.jsonl"), "functions": ["accuracy_reward"],
    }  # fmt: skip
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    (audit / "env.toml").write_text("\n".join(["[env]", *lines]))
    results = runner.run(audit, n=len(rows), jobs=1)["results"]
    counted = Counter(result["expected"] for result in results)
    assert counted["zero"] > 20 * len(rows) and counted["full"] > 5 * len(rows)
    failed = Counter(result["variant"] for result in results if result["passed"] is False)
    # The last box counts, and one that is empty holds no answer: a decision (docs/grading.md).
    assert failed == {"empty_box_named_after": len(rows)}
