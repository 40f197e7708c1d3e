"""A replay decides all visits at once, in columns: row for row what the supervisor decides visit by visit."""

import random
from dataclasses import replace

import polars as pl
import pytest

from olr_cli.analysis.replay.columns import decide
from olr_cli.answers import PLAIN_NUMBER
from olr_cli.data.prompts import SENTINEL, Prompt
from olr_cli.recipe.layers import validate
from olr_cli.runs.store import arrow_table
from olr_cli.supervision import Rollout, RolloutGroup, Supervisor, compose

ANSWERS = [
    None,
    "",
    "1/2",
    "0.5",
    "\\frac{1}{2}",
    "7",
    "07",
    "7.0",
    "50\\%",
    "x+1",
    "1+x",
    "((",
    SENTINEL,
    "12",
]
LABELS = [None, SENTINEL, "0.5", "7", "12", "x+1", "8"]


def made_up(seed, sizes):
    """Prompts of every kind, and the answers to each at four visits, a table a step."""
    rng = random.Random(seed)
    kinds = [None, "clean", "active", "inactive"]
    prompts = [
        Prompt(f"p{number}", (), rng.choice(LABELS), rng.choice([None, "7", "0.5", "12"]), rng.choice(kinds))
        for number in range(40)
    ]
    prompts = [
        replace(prompt, is_trusted=prompt.true_answer is not None and rng.random() < 0.2)
        for prompt in prompts
    ]
    steps = []
    for visit in range(1, 5):
        favourites = [rng.sample(ANSWERS, 3) for _ in prompts]
        steps.append(
            [
                RolloutGroup(prompt, visit, visit, (Rollout(""),) * len(answers), tuple(answers))
                for prompt, few in rng.sample(list(zip(prompts, favourites, strict=True)), len(prompts))
                for answers in [rng.choices(few, k=rng.choice(sizes))]
            ]
        )
    return prompts, steps


@pytest.mark.parametrize("sizes", [[4], [3, 4, 5], [1, 53, 59, 61, 67, 71, 73, 79, 83]], ids=str)
@pytest.mark.parametrize("draw", ["uniform", "frequency", "most_frequent"])
@pytest.mark.parametrize(
    "settings",
    [
        {"method": {"name": "olr", "slope_threshold": "0", "warmup_epochs": 1}},
        {"method": {"name": "olr", "slope_threshold": "-1", "warmup_epochs": 0, "criteria": []}},
        {"method": {"name": "grpo"}},
    ],
    ids=["olr", "every majority", "grpo"],
)
def test_columns_decide_what_the_supervisor_decides(judge, sizes, draw, settings):
    recipe = validate({"seed": 3, **settings}, "test")
    prompts, steps = made_up(f"{sizes} {draw}", sizes)
    supervisor = Supervisor(compose(recipe.method), judge, seed=3, draw=draw)
    expected = [one.label for groups in steps for one in supervisor.supervise(groups)]
    tables = [
        pl.DataFrame(
            [
                (group.prompt.prompt_id, group.visit, group.step, answer)
                for group in groups
                for answer in group.answers
            ],
            schema={"prompt_id": pl.String, "visit": pl.Int32, "step": pl.Int32, "answer": pl.String},
            orient="row",
        )
        for groups in steps
    ]
    decided = pl.concat(decide(tables, {p.prompt_id: p for p in prompts}, recipe, draw, judge))
    assert decided.equals(pl.DataFrame(arrow_table("labels", expected)))


def test_plain_numbers_match_if_they_are_the_same_text(judge):
    numbers = ["0", "1", "7", "10", "70", "100", "1000", "999999999999999", "2024"]
    assert pl.Series(numbers).str.contains(PLAIN_NUMBER).all()
    assert not pl.Series(["07", "1/2", "7\n", "-7", "", "٣", "1" * 16]).str.contains(PLAIN_NUMBER).any()
    pairs = [(one, other) for one in numbers for other in numbers]
    assert judge.matches(pairs) == {(one, other): one == other for one, other in pairs}
