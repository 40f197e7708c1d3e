"""`olr audit --rewards`: how often rewards contradict the grader, and whose errors that are."""

import json
import random
import runpy
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cases import each
from commands import answered, done, olr, refused

from olr_cli.answers import is_match
from olr_cli.answers.graded import SENTINEL
from olr_cli.api import OnlineLabelRefinement
from olr_cli.data.prompts import Prompt
from olr_cli.recipe.layers import find_recipe, read_tree, validate
from olr_cli.recipe.plain import parse_yaml
from olr_cli.recipe.sweep import expand_sweep
from olr_cli.runs.directory import create_run
from olr_cli.runs.store import RunStore
from olr_cli.supervision import Rollout, RolloutGroup, Step, make_supervisor


def log_of(file, rows):
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


def rollout(prompt, answer, label, reward, step=1):
    response = "no idea" if answer is None else f"So \\boxed{{{answer}}}."
    return {
        "prompt": f"What is {prompt}?",
        "response": response,
        "label": label,
        "reward": reward,
        "step": step,
    }


@pytest.fixture
def log(tmp_path):
    """150 prompts of 20 rollouts: 3 in 10 right answers rejected at random, and 30 always accepted."""
    draw = np.random.default_rng(0)
    rows = []
    for prompt in range(150):
        for answer in ["20"] * 10 + ["30"] * 4 + ["22"] * 4 + [None] * 2:
            right = answer == "20" and draw.random() > 0.3
            rows.append(rollout(prompt, answer, "20", float(right or answer == "30")))
    return log_of(tmp_path / "log.jsonl", rows)


def audited(*words):
    return answered("audit", *words, "--rewards")[0]


def test_both_rates_are_found_with_their_intervals_and_nothing_is_blamed_where_no_answer_is_read(
    log,
):
    found = audited(log)
    missed, accepted = (
        found["rates"]["false_negative_rate"],
        found["rates"]["false_positive_rate"],
    )
    assert missed["low"] < 0.3 < missed["high"] < missed["low"] + 0.06
    assert accepted["mean"] == 0.5
    assert found["rates"]["youden"] == pytest.approx(1 - missed["mean"] - 0.5)
    assert (found["rewards"], found["without_answer"], found["undecided"]) == (3000, 300, 0)
    assert {row["kind"] for row in found["queue"]} == {"other value", "same text"}
    assert (
        sum(row["rollouts"] for row in found["queue"] if row["kind"] == "other value")
        == 600
    )
    first = found["queue"][0]
    assert {name: first[name] for name in ("answer", "label", "is_rewarded", "kind")} == {
        "answer": "20", "label": "20", "is_rewarded": False, "kind": "same text",
    }  # fmt: skip


@pytest.mark.parametrize(("is_drawn", "low", "high"), [(True, 0.2, 0.4), (False, 1, 1)])
def test_drawn_errors_are_told_from_systematic_ones(tmp_path, is_drawn, low, high):
    draw = np.random.default_rng(0)
    rows = [
        rollout(
            prompt, "20", "20", float(draw.random() > 0.3 if is_drawn else prompt % 3 > 0)
        )
        for prompt in range(60)
        for _ in range(10)
    ]
    assert (
        low <= audited(log_of(tmp_path / "log.jsonl", rows))["contradicted_again"] <= high
    )


def test_an_extractor_that_is_not_the_verifiers_is_said_first(tmp_path):
    rows = [
        {"prompt": f"{n}?", "response": f"It is {n}", "label": str(n), "reward": 1.0}
        for n in range(20)
    ] + [rollout("x", "3", "4", 0.0)]
    log = log_of(tmp_path / "log.jsonl", rows)
    said = done("audit", log, "--rewards").stdout
    assert said.index("in 100% of the rewarded rollouts olr reads no answer") < said.index(
        "Audited"
    )
    better = done("audit", log, "--rewards", "--set", "data.extractor=last_number").stdout
    assert "Warning" not in better


def test_an_extractor_that_reads_another_answer_than_the_verifier_is_said_first(tmp_path):
    rows = [rollout(n, str(n), str(n), 1.0) for n in range(10, 30)]
    for row in rows:
        row["response"] += " That took 3 steps."
    log = log_of(tmp_path / "log.jsonl", rows)
    said = done("audit", log, "--rewards", "--set", "data.extractor=last_number").stdout
    assert said.index("100% of the rewarded responses whose answer is wrong") < said.index(
        "Audited"
    )
    assert (
        "--set data.extractor=boxed" in said
        and "Warning" not in done("audit", log, "--rewards").stdout
    )


@each("size, right, is_said", (4, 4, False), (5, 5, True), (6, 3, False), (6, 4, True))
def test_an_extractor_is_proposed_from_five_responses_on_most_of_which_it_reads_right(
    tmp_path, size, right, is_said
):
    rows = [rollout(n, str(n) if n < right else "50", str(n), 1.0) for n in range(size)]
    for row in rows:
        row["response"] += " That took 99 steps."
    log = log_of(tmp_path / "log.jsonl", [*rows, rollout("x", "7", "8", 0.0)])
    found = audited(log, "--set", "data.extractor=last_number")["extractor"]
    assert found == (["boxed", right / size] if is_said else None)


@each("steps, parts", (1, []), (2, [(1, 1), (2, 2)]), (7, [(1, 2), (3, 4), (5, 6), (7, 7)]))
def test_rates_are_told_of_up_to_six_parts_of_the_visits(tmp_path, steps, parts):
    rows = [
        rollout("x", answer, "1", float(answer == "1"), step)
        for step in range(1, steps + 1)
        for answer in "12"
    ]
    found = audited(log_of(tmp_path / "log.jsonl", rows))["by_visit"]
    assert [(part["first"], part["last"], part["rewards"]) for part in found] == [
        (first, last, 2 * (last - first + 1)) for first, last in parts
    ]


def test_peoples_verdicts_tell_the_verifiers_errors_from_the_graders(log, tmp_path):
    """People say that 30 is right too, so the verifier was right to accept it, and the grader was not to refuse it."""
    queue = tmp_path / "queue.csv"
    done("audit", log, "--rewards", "--out", queue)
    table = pl.read_csv(queue, infer_schema=False)
    assert set(table["verdict"]) <= {"", None}
    table.with_columns(verdict=pl.lit("right")).write_csv(tmp_path / "judged.csv")
    audit = audited(log, "--verified", tmp_path / "judged.csv")
    found, missed = audit["verified"], audit["rates"]["false_negative_rate"]
    rejected = sum(
        row["rollouts"] for row in audited(log)["queue"] if not row["is_rewarded"]
    )
    assert found["verifier"]["false_negative_rate"]["mean"] == pytest.approx(
        rejected / 2100
    )
    assert found["verifier"]["false_positive_rate"]["mean"] == 0
    width = (
        found["verifier"]["false_negative_rate"]["high"]
        - found["verifier"]["false_negative_rate"]["low"]
    )
    # No surer than the rewards are many
    assert width > 0.5 * (missed["high"] - missed["low"])
    assert found["grader"]["false_negative_rate"]["mean"] == pytest.approx(600 / 2100)


@each(
    "change, said",
    (
        {"verdict": pl.when("is_rewarded").then(pl.lit("")).otherwise(pl.lit("right"))},
        "none of the 600 rollouts in the queue with reward 1 has an answer that people call right or wrong",
    ),
    (
        {"verdict": pl.lit("perhaps")},
        "verdict 'perhaps' is none of right, wrong, cannot be scored",
    ),
    (
        {"prompt_id": pl.lit("other"), "verdict": pl.lit("right")},
        "judge some in the table that --out writes for this history",
    ),
    (
        {
            "answer": pl.lit("20"),
            "prompt_id": pl.lit("p"),
            "verdict": pl.when("is_rewarded")
            .then(pl.lit("wrong"))
            .otherwise(pl.lit("right")),
        },
        "the answer 20 to prompt p, whose label is 20, has several verdicts; leave one",
    ),
)
def test_verdicts_that_say_nothing_of_it_are_refused(log, tmp_path, change, said):
    done("audit", log, "--rewards", "--out", tmp_path / "queue.csv")
    pl.read_csv(
        tmp_path / "queue.csv", schema_overrides={"prompt_id": pl.String}
    ).with_columns(**change).write_csv(tmp_path / "judged.csv")
    assert said in refused("audit", log, "--rewards", "--verified", tmp_path / "judged.csv")


def test_a_verdict_is_about_an_answer_and_a_label_which_may_change_from_visit_to_visit(
    tmp_path,
):
    verifier = {"false_negative_rate": 0.3, "false_positive_rate": 0.3}
    with OnlineLabelRefinement(
        tmp_path / "run", {"method": {"name": "grpo"}, "verifier": verifier}
    ) as olr:
        prompts = [Prompt(str(n), (), SENTINEL, "1", "active") for n in range(40)]
        for _ in range(3):
            olr.supervise(
                [
                    (prompt, [rf"\boxed{{{1 + k % 3}}}" for k in range(9)])
                    for prompt in prompts
                ]
            )
    done("audit", tmp_path / "run", "--rewards", "--out", tmp_path / "queue.csv")
    queue = pl.read_csv(tmp_path / "queue.csv", schema_overrides={"prompt_id": pl.String})
    by_label = pl.when("is_rewarded").then(pl.lit("wrong")).otherwise(pl.lit("right"))
    queue.with_columns(verdict=by_label).write_csv(tmp_path / "judged.csv")
    found = audited(tmp_path / "run", "--verified", tmp_path / "judged.csv")
    assert found["verified"]["verifier"]["youden"] == pytest.approx(
        found["rates"]["youden"]
    )
    assert found["verified"]["grader"]["youden"] == 1
    assert (
        f"{len(queue)} of {len(queue)} verdicts are about answers here, 0 about none."
        in found["notes"]
    )
    assert not any(note.startswith("They judge") for note in found["notes"])
    part = queue.with_columns(verdict=by_label).sample(fraction=0.5, seed=0)
    part.write_csv(tmp_path / "part.csv")
    found = audited(tmp_path / "run", "--verified", tmp_path / "part.csv")
    judged, contradicted = part["rollouts"].sum(), queue["rollouts"].sum()
    assert any(
        note.startswith(f"They judge {judged} of {contradicted} contradicted")
        for note in found["notes"]
    )


def test_what_few_prompts_show_is_as_unsure_with_verdicts_and_nothing_to_judge_is_a_sentence(
    tmp_path,
):
    rows = [rollout(n, "1", "1", float(k > 0)) for n in range(40) for k in range(4)]
    log = log_of(tmp_path / "log.jsonl", [*rows, rollout(0, "2", "1", 0.0)])
    done("audit", log, "--rewards", "--out", tmp_path / "queue.csv")
    judged = pl.read_csv(tmp_path / "queue.csv").with_columns(verdict=pl.lit("right"))
    judged.write_csv(tmp_path / "judged.csv")
    found = audited(log, "--verified", tmp_path / "judged.csv")
    assert (
        found["verified"]["verifier"]["false_positive_rate"]
        == found["rates"]["false_positive_rate"]
    )
    agreed = log_of(tmp_path / "agreed.jsonl", [rollout("other", "1", "1", 1.0)])
    said = refused("audit", agreed, "--rewards", "--verified", tmp_path / "judged.csv")
    assert "people call no answer here right or wrong" in said


def test_a_log_without_rewards_or_labels_has_nothing_to_audit(tmp_path):
    for left_out in ("label", "reward"):
        rows = [rollout(n, "1", "1", float(n % 2)) for n in range(4)]
        log = log_of(
            tmp_path / f"{left_out}.jsonl",
            [{k: v for k, v in r.items() if k != left_out} for r in rows],
        )
        assert "has no rewards of 0 and 1 beside labels" in refused(
            "audit", log, "--rewards"
        )


def test_it_takes_nothing_that_is_about_labels(log):
    assert "--rewards takes --columns" in refused(
        "audit", log, "--rewards", "--export", "x.jsonl"
    )


@pytest.mark.parametrize(("graded_by", "rewards"), [("class", 1600), ("verifier", 4800)])
def test_a_runs_own_rewards_give_the_rates_of_its_verifier_and_majorities_count_if_it_grades_them(
    tmp_path, graded_by, rewards
):
    method = {"criteria": [], "warmup_epochs": 1, "majority_graded_by": graded_by}
    verifier = {"false_negative_rate": 0.3, "false_positive_rate": 0.1}
    with OnlineLabelRefinement(
        tmp_path / "run", recipe={"method": method, "verifier": verifier}
    ) as olr:
        prompts = [Prompt(str(n), (), "1", "1", "clean") for n in range(100)]
        for _ in range(3):  # from the second visit on the majority counts
            olr.supervise(
                [(prompt, [r"\boxed{2}"] * 9 + [r"\boxed{1}"] * 7) for prompt in prompts]
            )
    found = audited(tmp_path / "run")
    assert (found["rewards"], found["left_out"]) == (rewards, 4800 - rewards)
    for name, rate in (("false_negative_rate", 0.3), ("false_positive_rate", 0.1)):
        assert (
            found["rates"][name]["low"] < rate < found["rates"][name]["high"] < rate + 0.06
        )


def test_a_reward_counts_once_and_not_where_the_data_has_several_labels_for_its_question(
    tmp_path,
):
    rows = [
        rollout(n, answer, "1", float(answer == 1)) for n in range(4) for answer in (1, 2)
    ]
    bare = [{k: v for k, v in row.items() if k != "label"} for row in rows]
    log = log_of(tmp_path / "log.jsonl", bare)
    labels = {0: "1", 1: "1", 2: "2"}  # of rows that repeat the questions
    data = [{"question": row["prompt"], "answer": "1"} for row in bare[::2]]
    data += [
        {"question": bare[2 * n]["prompt"], "answer": label} for n, label in labels.items()
    ]
    # Nobody in the log
    data += [{"question": "Who asks this?", "answer": label} for label in "12"]
    found = audited(log, "--data", log_of(tmp_path / "data.jsonl", data))
    assert (found["rewards"], found["left_out"], found["rates"]["youden"]) == (6, 2, 1)
    assert any(
        note.startswith("2 rows of ") and "ask questions that have several labels" in note
        for note in found["notes"]
    )


def test_labels_of_a_data_set_count_though_the_log_has_none(tmp_path):
    rows = [
        rollout(n, answer, "1", float(answer == 1)) for n in range(4) for answer in (1, 2)
    ]
    bare = log_of(
        tmp_path / "log.jsonl",
        [{k: v for k, v in row.items() if k != "label"} for row in rows],
    )
    data = log_of(
        tmp_path / "data.jsonl",
        [{"question": row["prompt"], "answer": "1"} for row in rows[::2]],
    )
    assert audited(bare, "--data", data)["rates"]["youden"] == 1


def test_rewards_by_the_majority_of_another_view_are_left_out_for_their_label_is_not_stored(
    tmp_path, judge
):
    run, method = tmp_path / "run", {"name": "co_reward", "majority_graded_by": "verifier"}
    recipe = validate({"method": method, "verifier": {"draw": "rollout"}}, "test")
    run.mkdir()
    create_run(run, recipe)
    answers = {"original": "1112", "rephrased": "2221"}
    rollouts = [
        Rollout(rf"\boxed{{{answer}}}", view=view)
        for view in answers
        for answer in answers[view]
    ]
    group = RolloutGroup(Prompt("p", (), "1", "1", "clean"), 1, 1, tuple(rollouts))
    decided = make_supervisor(recipe, Fraction(1), judge, None).supervise(Step.of([group]))
    RunStore(run).append(1, decided.labels, decided.rollouts)
    found = audited(run)
    assert (found["rewards"], found["rates"]["youden"]) == (4, 1)


def test_rates_are_given_by_visit_where_the_policy_drifts_to_what_is_wrongly_accepted(
    tmp_path,
):
    """Of eight visits, in parts of two: the wrong answer that is accepted comes the more often, the later."""
    rows = [
        rollout(prompt, "30" if k < visit else "22", "20", float(k < visit), visit)
        for visit in range(1, 9)
        for prompt in range(10)
        for k in range(8)
    ]
    log = log_of(tmp_path / "log.jsonl", rows)
    parts = audited(log)["by_visit"]
    assert [(part["first"], part["last"], part["rewards"]) for part in parts] == [
        (1, 2, 160), (3, 4, 160), (5, 6, 160), (7, 8, 160),
    ]  # fmt: skip
    accepted = [part["rates"]["false_positive_rate"]["mean"] for part in parts]
    assert accepted == [1.5 / 8, 3.5 / 8, 5.5 / 8, 7.5 / 8]
    shown = done("audit", log, "--rewards").stdout
    assert "\n7 to 8     160" in shown
    of_one = log_of(tmp_path / "one.jsonl", rows[:80])
    assert audited(of_one)["by_visit"] == []
    assert "visits" not in done("audit", of_one, "--rewards").stdout


def test_what_was_paid_most_and_is_wrong_stands_first_with_its_response(tmp_path):
    rows = [
        {
            "prompt": f"{n}?",
            "completion": f"Very {'sure' * (k + 1)}: \\boxed{{{n + k}}}",
            "solution": str(n),
            "accuracy_reward": float(k < 3),
            "style_reward": (n + k) / 10,
            "step": 1,
            "advantage": 0.0,
        }
        for n in range(6)
        for k in range(4)
    ]
    log = log_of(tmp_path / "log.jsonl", rows)
    paid = audited(log)["paid_most"]
    assert [row["paid"] for row in paid[:3]] == pytest.approx([1.7, 1.6, 1.6])
    assert paid[0]["response"] == "Very suresuresure: \\boxed{7}"
    # The right ones, though paid, and the wrong ones that were not, are no part of it
    assert len(paid) == 12 and all(row["is_rewarded"] for row in paid)
    lines = done("audit", log, "--rewards", "--top", "1").stdout.splitlines()
    assert "1.7" in lines[-3] and lines[-2].strip() == "Very suresuresure: \\boxed{7}"
    assert len(audited(log, "--top", "1")["paid_most"]) == 1
    assert "Paid most" not in done("audit", log, "--rewards").stdout


@each(
    "verdict, columns",
    (lambda is_right: {"judge": int(is_right)}, "is_correct=judge"),
    (lambda is_right: {"judge": is_right}, "is_correct=judge"),
    (lambda is_right: {"judge": {"correct": is_right}}, "is_correct=judge.correct"),
    (lambda is_right: {"judge": {"score": float(is_right)}}, "is_correct=judge.score"),
)
def test_a_judges_column_beside_the_reward_is_audited_in_its_place(
    tmp_path, verdict, columns
):
    verl = [
        {"input": f"{n}?", "output": r"\boxed{1}", "gts": "1", "score": n / 40, "step": 1}
        | verdict(n % 4 > 0)
        for n in range(40)
    ]
    log = log_of(tmp_path / "log.jsonl", verl)
    found = audited(log, "--columns", columns)
    assert found["rates"]["false_negative_rate"]["mean"] == 0.25
    table = [
        {"prompt": row["input"], "response": row["output"], "label": "1"} | row
        for row in verl
    ]
    table = [
        {name: row[name] for name in ("prompt", "response", "label", "judge")}
        for row in table
    ]
    found = audited(
        log_of(tmp_path / "table.jsonl", table),
        "--columns",
        columns.replace("is_correct", "reward"),
    )
    assert found["rates"]["false_negative_rate"]["mean"] == 0.25


# As a recipe ------------------------------------------------------------------------------------------------------


def run_of(path, judge, verifier, prompts=60):
    """A run of the quickstart's recipe with this verifier: three visits, half of the answers right, others near."""
    keys = read_tree(find_recipe("laptop/quickstart"))
    recipe = validate(
        keys | {"method": {"name": "grpo"}, "noise": None, "verifier": verifier}, "test"
    )
    path.mkdir()
    create_run(path, recipe)
    supervisor = make_supervisor(recipe, Fraction(1), judge, None)
    answers = ["200"] * 8 + ["190", "300", "201", "250"] * 2
    rollouts = tuple(Rollout(rf"\boxed{{{answer}}}") for answer in answers)
    for visit in (1, 2, 3):
        groups = [
            RolloutGroup(Prompt(f"p{n}", (), "200", "200", "clean"), visit, visit, rollouts)
            for n in range(prompts)
        ]
        decided = supervisor.supervise(Step.of(groups))
        RunStore(path).append(visit, decided.labels, decided.rollouts)
    return path


def test_a_verifier_of_rates_comes_back_as_its_section(tmp_path, judge):
    verifier = {"false_negative_rate": 0.3, "false_positive_rate": 0.1}
    run = run_of(tmp_path / "run", judge, verifier)
    printed = done("audit", run, "--rewards", "--as-recipe").stdout
    section = validate(parse_yaml(printed), "test").verifier
    assert float(section.false_negative_rate) == pytest.approx(0.3, abs=0.04)
    assert float(section.false_positive_rate) == pytest.approx(0.1, abs=0.03)
    assert (section.draw, section.where) == ("rollout", ())
    # The place of the option does not matter, and a program gets the same.
    assert done("audit", "--rewards", "--as-recipe", run).stdout == printed
    assert audited(run, "--as-recipe")["verifier"] == parse_yaml(printed)["verifier"]
    assert printed.startswith("# Measured in 2,880 rewards of 60 prompts")


def test_a_recipe_trains_a_runs_data_with_the_measured_verifier_and_without(
    tmp_path, judge
):
    near = {"where": [{"error": [10, 100], "false_positive_rate": 1}]}
    run, file = run_of(tmp_path / "run", judge, near), tmp_path / "there" / "cost.yaml"
    answer, _ = answered("audit", run, "--rewards", "--as-recipe", file)
    assert answer["next"] == [f"olr train {file} --sweep"]
    exact, measured = expand_sweep(file)
    assert (exact.arm, exact.recipe.verifier) == ("exact", None)
    (rule,) = measured.recipe.verifier.where
    assert (rule.error, rule.false_positive_rate) == ((10, 100), 1)
    own = validate(read_tree(run / "recipe.yaml"), "test")
    for recipe in (exact.recipe, measured.recipe):
        assert recipe.data == own.data and recipe.model == own.model
    assert "all 2 runs" in done("train", file, "--sweep", "--dry-run").stdout
    # Given twice it is there, and no other file is overwritten
    assert "Unchanged" in done("audit", run, "--rewards", "--as-recipe", file).stdout
    file.write_text("name: mine\n")
    said = refused("audit", run, "--rewards", "--as-recipe", file)
    assert "exists already, with other content" in said
    assert file.read_text() == "name: mine\n"


def test_a_logs_recipe_trains_the_data_set_that_is_named(log, tmp_path):
    data = log_of(
        tmp_path / "data.jsonl",
        [{"question": f"What is {n}?", "answer": "20"} for n in range(150)],
    )
    file = tmp_path / "cost.yaml"
    said = refused("audit", log, "--rewards", "--as-recipe", file)
    assert said.endswith(
        "log.jsonl does not say which data set its prompts are from; name it with --data DATA"
    )
    words = ("--data", data, "--set", "data.extractor=boxed")
    answer, _ = answered("audit", log, *words, "--rewards", "--as-recipe", file)
    assert answer["next"] == [f"olr train {file} --sweep --set model.path=MODEL"]
    exact, measured = expand_sweep(file, ["model.path=builtin:addition-easier"])
    assert exact.recipe.data.train == str(data) and exact.recipe.data.extractor == "boxed"
    section = measured.recipe.verifier
    assert [float(rate) for rate in (section.false_negative_rate,)] == pytest.approx(
        [0.3], abs=0.05
    )
    (rule,) = section.where  # 30 for 20 is off by 10, and 22 is not
    assert (rule.error, rule.false_positive_rate) == ((10,), 1)


def test_by_peoples_verdicts_the_recipe_has_their_rates_and_no_rules(log, tmp_path):
    queue = tmp_path / "queue.csv"
    done("audit", log, "--rewards", "--out", queue)
    pl.read_csv(queue, infer_schema=False).with_columns(verdict=pl.lit("right")).write_csv(
        tmp_path / "judged.csv"
    )
    audit = audited(log, "--verified", tmp_path / "judged.csv", "--as-recipe")
    rate = audit["verified"]["verifier"]["false_negative_rate"]["mean"]
    assert audit["verifier"] == {
        "false_negative_rate": round(rate, 3), "false_positive_rate": 0, "draw": "rollout", "where": [],
    }  # fmt: skip


def test_what_was_never_seen_is_said_beside_its_0(tmp_path):
    log = log_of(tmp_path / "log.jsonl", [rollout(n, "1", "1", 1.0) for n in range(9)])
    printed = done("audit", log, "--rewards", "--as-recipe").stdout
    assert "wrong, rewarded: nothing to measure, so 0" in printed
    assert "no reward of" in refused(
        "audit", log, "--data", log, "--rewards", "--as-recipe", tmp_path / "x.yaml"
    )


@each(
    "words, said",
    (["--as-recipe"], "--as-recipe is for what an audit of rewards finds; add --rewards"),
    (["--rewards", "--as-recipe=x.json"], "a recipe is YAML; give it the ending .yaml"),
    (["--rewards", "--as-recipe", "--export", "x.jsonl"], "--rewards takes --columns"),
)
def test_as_recipe_that_makes_no_sense_is_refused(log, words, said):
    assert said in refused("audit", log, *words)


def test_a_warning_about_the_extractor_stands_beside_the_section(tmp_path):
    rows = [
        {"prompt": f"{n}?", "response": f"It is {n}", "label": str(n), "reward": 1.0}
        for n in range(20)
    ] + [rollout("x", "3", "4", 0.0)]
    log = log_of(tmp_path / "log.jsonl", rows)
    ended = done("audit", log, "--rewards", "--as-recipe")
    assert "its extractor is not the verifier's" in ended.stderr
    assert "extractor" not in ended.stdout


EXAMPLES = Path(__file__).parents[2] / "examples"


def people(queue):
    """Verdicts on 12 rows with reward 1 and 13 with reward 0, at random, as the re-annotation of GSM8K has them."""
    truth = pl.read_parquet(EXAMPLES / "gsm8k_truth.parquet").rows_by_key("prompt_id")
    verdicts, draw = [], random.Random(0)
    for reward, size in (("true", 12), ("false", 13)):
        rows = queue.filter(is_rewarded=reward).rows(named=True)
        for row in draw.sample(rows, size):
            [(_, status, answer)] = truth[row["prompt_id"]]
            said = "right" if answer and is_match(answer, row["answer"]) else "wrong"
            verdict = "cannot be scored" if status == "rejected" else said
            verdicts.append({**row, "verdict": verdict})
    return pl.DataFrame(verdicts)


@pytest.mark.slow
def test_the_page_on_a_judges_verdicts_shows_what_its_commands_print(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "judge.py"))
    text = (EXAMPLES.parent / "docs" / "audit.md").read_text("utf-8")
    page = " ".join(text.split("### A judge's verdicts")[1].split("\n### ")[0].split())
    audit = ("audit", "judged.parquet", "--rewards", "--columns", "reward=judge")
    done(*audit, "--out", "queue.csv")
    queue = pl.read_csv("queue.csv", infer_schema_length=0)
    assert f"25 of its {len(queue)} rows" in page
    people(queue).write_csv("checked.csv")
    lines = done(*audit, "--verified", "checked.csv", "--top", 0).stdout.split("\n\n")[0]
    assert " ".join(lines.split()) in page
    section = done(*audit, "--verified", "checked.csv", "--as-recipe").stdout
    assert "false_negative_rate: 0.03\n  false_positive_rate: 0.02\n" in section


@pytest.mark.parametrize("words", [[], ["--rewards"]], ids=["labels", "rewards"])
def test_a_table_that_cannot_be_written_comes_after_the_result(
    log, tmp_path, monkeypatch, words
):
    def fails(*_):
        raise PermissionError("Permission denied (os error 13): q.csv")

    monkeypatch.setattr(pl.DataFrame, "write_csv", fails)
    result = olr("audit", log, *words, "--out", tmp_path / "q.csv")
    assert result.exit_code == 2
    assert "Error: --out: " in result.stderr and "you may not write there" in result.stderr
    assert result.stdout.strip()
    assert not list(tmp_path.glob("q.csv"))
