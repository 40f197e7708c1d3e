"""A recipe's data sets: whose noise it is (R1), what is measured (R2, R5), and which labels are verified (R23)."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cases import each, refusal
from samples import json_lines

from olr_cli.answers.graded import SENTINEL
from olr_cli.api import OnlineLabelRefinement
from olr_cli.data.prompt_files import Reading, read_prompts
from olr_cli.data.sets import held_out_prompts, training_data, training_prompts
from olr_cli.data.verified import VerifiedLabels
from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate
from olr_cli.recipe.schema import Recipe


def table(folder: Path, *marks: dict[str, Any]) -> str:
    """Rows that ask for 12; `marks` may change label, true answer and noise type."""
    rows = []
    for number, mark in enumerate(marks):
        label = {"ground_truth": mark.get("label", "12")}
        extra = {
            "index": number,
            "original_ground_truth": mark.get("truth"),
            "noise_type": mark.get("type"),
        }
        rows.append({"question": f"{number}?", "reward_model": label, "extra_info": extra})
    return str(json_lines(folder / "rows.jsonl", *rows))


CLEAN = {"truth": "12", "type": "clean"}
INACTIVE = {"label": SENTINEL, "truth": "12", "type": "inactive"}
ACTIVE = {"label": SENTINEL, "truth": "12", "type": "active"}
FROZEN = {"label": "7", "truth": "12", "type": "active_frozen"}
UNTYPED = {"label": SENTINEL, "truth": "12"}


def types(source: str, noise: str | None) -> Counter[str | None]:
    section = None if noise is None else {"type": noise}
    prompts = training_prompts(
        Recipe.model_validate({"data": {"train": source}, "noise": section})
    )
    return Counter(prompt.noise_type for prompt in prompts.prompts)


@each(
    "noise, marks, found",
    ("inactive", [CLEAN, INACTIVE, UNTYPED], {"clean": 1, "inactive": 2}),
    ("active", [CLEAN, ACTIVE, UNTYPED], {"clean": 1, "active": 2}),
    ("active", [CLEAN, FROZEN], {"clean": 1, "active_frozen": 1}),
    ("mixed", [CLEAN, INACTIVE, ACTIVE], {"clean": 1, "inactive": 1, "active": 1}),
    ("mixed", [FROZEN, UNTYPED], {"active_frozen": 1, "inactive": 1}),
    (None, [INACTIVE, ACTIVE, UNTYPED], {"inactive": 2, "active": 1}),
)
def test_marks_of_a_file_are_the_recipes_noise(tmp_path, noise, marks, found):
    assert types(table(tmp_path, *marks), noise) == found


@each(
    "noise, marks, message",
    (
        "active",
        [CLEAN, INACTIVE],
        "noise.type is active, but the marks of rows.jsonl are inactive",
    ),
    (
        "inactive",
        [CLEAN, ACTIVE],
        "are active: 1 active, 1 clean; set noise.type to active, or noise to",
    ),
    ("inactive", [INACTIVE, FROZEN], "are mixed: 1 inactive, 1 active_frozen"),
    (
        "mixed",
        [CLEAN, UNTYPED],
        "are inactive: 1 inactive, 1 clean (sentinels without a noise type",
    ),
    ("active", [CLEAN], "carries no marks"),
)
def test_marks_of_another_type_than_the_recipes_are_refused(
    tmp_path, noise, marks, message
):
    assert message in refusal(types, table(tmp_path, *marks), noise)


def test_held_out_prompts_are_measured_by_what_is_not_noise(tmp_path):
    prompts = held_out_prompts(
        Recipe(), table(tmp_path, {}, CLEAN, FROZEN, INACTIVE), "test"
    ).prompts
    assert [prompt.gold for prompt in prompts] == ["12"] * 4


@each(
    "mark",
    {"label": None},
    {"label": SENTINEL},
    INACTIVE | {"truth": None},
    FROZEN | {"truth": None},
)
def test_held_out_prompts_without_a_gold_answer_are_refused(tmp_path, mark):
    with pytest.raises(
        UserError, match=r"1 held-out prompts have neither a true answer.*\(first: 1\)"
    ):
        held_out_prompts(Recipe(), table(tmp_path, {"truth": "12"}, mark), "test")


# Verified labels --------------------------------------------------------------------------------------------------


def recipe(verified, train="arithmetic", **noise):
    data = {"train": str(train), "verified": verified}
    limit = {"limit": 40} if train == "arithmetic" else {}
    return validate({"data": data | limit, "noise": noise or None}, "test")


def verified_ids(prompts):
    return {prompt.prompt_id for prompt in prompts.prompts if prompt.is_verified}


@pytest.fixture
def unknown(tmp_path):
    """Three questions with labels of unknown quality."""
    rows = ({"id": name, "question": f"What is {name}?", "answer": "1"} for name in "abc")
    return json_lines(tmp_path / "mine.jsonl", *rows)


def test_a_larger_draw_contains_a_smaller_one_and_noise_stays_where_it_was():
    noise = {"type": "active", "ratio": 0.5}
    few, many = (training_prompts(recipe(size, **noise)) for size in (5, 20))
    assert len(verified_ids(few)) == 5
    assert verified_ids(few) < verified_ids(many)
    assert sum(p.is_marked for p in few.prompts) == 20
    assert few.digest != many.digest


def test_a_file_gives_the_true_answers_of_its_prompts(unknown, tmp_path):
    selection = tmp_path / "selection.json"
    rows = [
        {"prompt_id": "a", "verdict": "kept", "given_label": "1", "true_answer": None},
        {"prompt_id": "b", "verdict": "wrong", "given_label": "1", "true_answer": "2"},
        {"prompt_id": "c", "verdict": "wrong", "given_label": "1", "true_answer": None},
    ]
    selection.write_text(json.dumps(rows))
    prompts = training_prompts(recipe(str(selection), unknown)).prompts
    assert {p.given_label for p in prompts} == {"1"}
    assert [(p.true_answer, p.is_verified) for p in prompts] == [
        ("1", True),
        ("2", True),
        (None, False),
    ]


@each(
    "rows, message",
    ([{"prompt_id": "z", "true_answer": "1"}], "none of its prompts is among"),
    (
        [{"prompt_id": "a", "true_answer": None, "verdict": "wrong"}],
        "has no true answer in any row",
    ),
    ([{"prompt_id": "a"}], "has a column prompt_id and no true_answer"),
    (
        [{"prompt_id": "a", "verdict": "maybe"}],
        "verdict on prompt a is 'maybe'; known: kept, wrong",
    ),
    (
        [{"prompt_id": "a", "true_answer": answer} for answer in "12"],
        "several true answers",
    ),
    (
        [{"prompt_id": "a", "verdict": "kept", "true_answer": None}],
        "the label of prompt a is kept, and the row does not say which it is",
    ),
)
def test_files_that_verify_nothing_are_errors(unknown, tmp_path, rows, message):
    file = json_lines(tmp_path / "verified.jsonl", *rows)
    assert message in refusal(training_prompts, recipe(str(file), unknown))


@each(
    "verdict",
    {"verdict": "kept", "true_answer": "9"},
    {"verdict": "kept"},
    {"verdict": "wrong"},
    ids=str,
)
def test_a_verdict_on_a_label_that_the_prompt_has_not_is_refused(
    unknown, tmp_path, verdict
):
    """The label was mended since, or the rows were mixed up: nothing follows for the label that stands there now."""
    rows = [
        {"prompt_id": "a", "given_label": "9", **verdict},
        {"prompt_id": "b", "true_answer": "1"},
    ]
    file = json_lines(tmp_path / "selection.jsonl", *rows)
    expected = "a verdict on the label 9 of prompt a, whose label here is 1; judge it again"
    assert expected in refusal(training_prompts, recipe(str(file), unknown))


def test_a_verdict_that_contradicts_itself_is_no_verified_label_and_the_note_says_so(
    unknown, tmp_path
):
    rows = [
        {"prompt_id": "a", "verdict": "kept", "given_label": "1", "true_answer": "2"},
        {"prompt_id": "b", "true_answer": "1"},
    ]
    file = json_lines(tmp_path / "selection.jsonl", *rows)
    prompts = training_prompts(recipe(str(file), unknown))
    assert verified_ids(prompts) == {"b"}
    assert prompts.notes == [
        f"1 of 1 verified labels in {file} are for 1 prompt here, 0 for none; skipped 1 row whose verdict contradicts"
        " its true answer: prompt a is 'kept', with the label 1 and the true answer 2"
    ]


def test_no_more_can_be_drawn_than_are_known(unknown, tmp_path):
    with pytest.raises(
        UserError, match=r"the true answer is known of 0 prompts of mine\.jsonl"
    ):
        training_prompts(recipe(2, unknown))
    with pytest.raises(
        UserError, match=r"data\.verified: .* is no file; name a Parquet or JSON table"
    ):
        training_prompts(recipe(str(tmp_path / "nowhere.json"), unknown))


def test_an_id_that_stands_for_two_questions_is_an_error_that_shows_both(tmp_path):
    """R23: two files with row numbers as ids; "What is 0+0?" had the verified label of another question."""

    def sums(name, other):
        rows = (
            {"id": n, "question": f"What is {n}+{other or n}?", "answer": n + 7}
            for n in range(3)
        )
        return json_lines(tmp_path / f"{name}.jsonl", *rows)

    train, verified = sums("train", None), sums("verified", 7)
    both = r"prompt_id 0 for 'What is 0\+7\?', and here it is 'What is 0\+0\?'; fix the ids"
    with pytest.raises(UserError, match=both):
        training_prompts(recipe(str(verified), train))
    labels = VerifiedLabels.read(verified)
    with pytest.raises(UserError, match=both):
        labels.mark(read_prompts(train).prompts)
    row = {"prompt_id": 0, "question": "What is 0+7?", "true_answer": "7"}
    table = json_lines(tmp_path / "table.jsonl", row)
    with pytest.raises(UserError, match=both):
        training_prompts(recipe(str(table), train))


def test_labels_are_counted_by_id_and_by_question_and_those_of_no_prompt_are_said(
    unknown, tmp_path
):
    asks = {"a": "what is A?", "other": "What is b", "z": "z"}
    rows = (
        {"id": name, "question": question, "answer": "5"} for name, question in asks.items()
    )
    verified = json_lines(tmp_path / "verified.jsonl", *rows)
    prompts = training_prompts(recipe(str(verified), unknown))
    assert verified_ids(prompts) == {"a", "b"}
    assert prompts.notes == [
        f"2 of 3 verified labels in {verified} are for 2 prompts here, 1 for none"
    ]


def asked(path, **answers):
    """A data set of questions and answers without ids."""
    rows = (
        {"question": question, "answer": answer} for question, answer in answers.items()
    )
    return json_lines(path, *rows)


def test_a_question_counts_whole_and_a_longer_one_is_another(tmp_path):
    train = asked(
        tmp_path / "train.jsonl", **{"3+4=": "1", "12-3+4=": "1", "Is it? And why?": "1"}
    )
    verified = asked(tmp_path / "verified.jsonl", **{"3+4=": "7", "And why?": "7"})
    prompts = training_prompts(recipe(str(verified), train)).prompts
    assert [p.is_verified for p in prompts] == [True, False, False]


def test_of_questions_that_differ_in_case_that_with_the_same_text_counts(tmp_path):
    train = asked(tmp_path / "train.jsonl", **{"Next to A": "1", "next to a": "1"})
    verified = asked(tmp_path / "verified.jsonl", **{"next to a": "B", "Next to A": "C"})
    prompts = training_prompts(recipe(str(verified), train)).prompts
    found = {p.messages[-1].content: p.true_answer for p in prompts}
    assert found == {"Next to A": "C", "next to a": "B"}
    other = asked(tmp_path / "other.jsonl", **{"NEXT to A": "1"})
    expected = "has the verified answers B and C for one question, 'NEXT to A'; leave"
    assert expected in refusal(training_prompts, recipe(str(verified), other))


def test_labels_of_no_prompt_are_logged_where_another_trainer_runs(tmp_path, caplog):
    file = json_lines(
        tmp_path / "verified.jsonl", *({"prompt_id": n, "true_answer": "7"} for n in "ab")
    )
    with OnlineLabelRefinement(recipe={"data": {"verified": str(file)}}) as olr:
        step = olr(["q"] * 2, [r"\boxed{7}", r"\boxed{8}"], ["8"] * 2, prompt_ids=["a"] * 2)
    assert step.rewards == (1.0, 0.0)
    (record,) = caplog.records
    assert record.getMessage().endswith(
        f"1 of 2 verified labels in {file} are for 1 prompt here, 1 for none"
    )


def shared(file: Path, **settings: Any) -> tuple[list[str], list[str]]:
    """The questions that train, and those of the share that is held out."""
    data = {"train": str(file), "held_out": 0.2} | settings.pop("data", {})
    recipe = Recipe.model_validate({"data": data, **settings})
    train, test = training_data(recipe)
    return tuple(
        [prompt.messages[-1].content for prompt in each.prompts] for each in (train, test)
    )


def test_a_share_of_the_questions_is_held_out_for_good(tmp_path):
    rows = [{"question": f"{n}+{n}?", "answer": str(2 * n)} for n in range(40)]
    file = json_lines(tmp_path / "rows.jsonl", *rows)
    train, held_out = shared(file)
    assert len(held_out) == 8 and sorted(train + held_out) == sorted(
        row["question"] for row in rows
    )
    assert shared(file) == (train, held_out), "and so at every resume"
    assert shared(file, seed=1)[1] != held_out
    noisy = shared(file, noise={"type": "inactive", "ratio": 0.5})
    assert noisy == (train, held_out), "noise is put on what trains"
    more = shared(
        json_lines(tmp_path / "more.jsonl", *rows, {"question": "new?", "answer": "1"})
    )[1]
    assert len(set(held_out) - set(more)) <= 1, "a row more moves one question at most"
    alone = Recipe.model_validate(
        {"data": {"train": str(file), "held_out": 0.2, "test": str(file)}}
    )
    whole, nothing = training_data(alone)
    assert nothing is None and len(whole) == 40


def test_a_question_is_held_out_with_all_its_rows_and_only_with_an_answer(tmp_path):
    rows = [
        {"question": f"{n % 10}?", "answer": "1" if n % 10 else None} for n in range(40)
    ]
    train, held_out = shared(json_lines(tmp_path / "rows.jsonl", *rows))
    assert not set(train) & set(held_out) and len(held_out) == 8 and "0?" in train
    for few in (rows[:1], rows[:1] + rows[10:11], rows[1:2]):
        with pytest.raises(
            UserError, match=r"data\.held_out is 0\.2, and .* set data\.held_out=null"
        ):
            shared(json_lines(tmp_path / "few.jsonl", *few))


def test_a_verified_label_measures_what_is_held_out(tmp_path):
    rows = [{"question": f"{n}?", "answer": "0"} for n in range(10)]
    file = json_lines(tmp_path / "rows.jsonl", *rows)
    verified = json_lines(tmp_path / "v.jsonl", *({**row, "answer": "5"} for row in rows))
    data = {"train": str(file), "held_out": 0.2, "verified": str(verified)}
    train, held_out = training_data(Recipe.model_validate({"data": data}))
    assert held_out is not None and [prompt.gold for prompt in held_out.prompts] == [
        "5",
        "5",
    ]
    assert train.notes == [
        f"10 of 10 verified labels in {verified} are for 10 prompts here, 0 for none"
    ]


def test_a_placeholder_measures_nothing(tmp_path):
    rows = [
        {"question": f"{at}?", "answer": "notfound" if at % 2 else str(at)}
        for at in range(10)
    ]
    file = str(json_lines(tmp_path / "x.jsonl", *rows))
    _, held_out = training_data(
        validate({"data": {"train": file, "held_out": 0.5}}, "recipe")
    )
    assert {prompt.given_label for prompt in held_out.prompts} == {"0", "2", "4", "6", "8"}
    said = refusal(
        held_out_prompts, validate({"data": {"test": file}}, "recipe"), file, "test"
    )
    assert (
        "5 held-out prompts have neither a true answer nor a clean label (first: line 2)"
        in said
    )


def test_a_setting_says_that_labels_have_decimal_commas(tmp_path):
    (tmp_path / "mine.csv").write_text(
        "question;answer\nA?;23,5\nB?;1.234,5\nC?;7\n".replace(";", "\t")
    )
    (tmp_path / "mine.csv").rename(tmp_path / "mine.tsv")
    labels = {}
    for comma in (False, True):
        reading = Reading(decimal_comma=comma)
        labels[comma] = [
            one.given_label
            for one in read_prompts(tmp_path / "mine.tsv", reading=reading).prompts
        ]
    assert labels == {False: ["23,5", "1.234,5", "7"], True: ["23.5", "1234.5", "7"]}
