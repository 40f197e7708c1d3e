"""Multiple choice as it is published: which options a question is asked with, and which letter is its label."""

import csv
import json
from typing import Any

from cases import each, refusal
from commands import olr
from samples import json_lines

from olr_cli.data.choices import options_in
from olr_cli.data.prompt_files import Reading, read_prompts
from olr_cli.data.prompts import PromptSet
from olr_cli.data.sets import held_out_prompts
from olr_cli.data.writers import write_prompts
from olr_cli.evaluation.benchmark import find_benchmark, held_out_benchmark, registry
from olr_cli.evaluation.problems import load_problems
from olr_cli.runs.directory import read_recipe

TEXTS = ["Venus", "Mars", "the Sun", "Io"]
ASKED = "Which one is a star?\n\nA) Venus\nB) Mars\nC) the Sun\nD) Io\n"
STAR = {"question": "Which one is a star?"}


def read(folder, *rows: object, **settings: Any) -> PromptSet:
    return read_prompts(
        json_lines(folder / "rows.jsonl", *rows), reading=Reading(**settings)
    )


def asked(prompts: PromptSet) -> list[str]:
    return [prompt.messages[-1].content for prompt in prompts.prompts]


def labels(prompts: PromptSet) -> list[str | None]:
    return [prompt.given_label for prompt in prompts.prompts]


def lettered(texts: list[str], names: str = "ABCD") -> dict[str, str]:
    return dict(zip(names, texts, strict=True))


PUBLISHED = {
    "MMLU": lambda right: {"choices": TEXTS, "answer": right},
    "MMLU-Pro": lambda right: {"options": TEXTS, "answer": "ABCD"[right], "answer_index": right},
    "MMLU's CSV": lambda right: {**lettered(TEXTS), "answer": "ABCD"[right]},
    "AGIEval": lambda right: {
        "options": [f"({name}){text}" for name, text in lettered(TEXTS).items()], "answer": "ABCD"[right],
    },
    "ARC": lambda right: {"choices": {"text": TEXTS, "label": ["1", "2", "3", "4"]}, "answerKey": f"{right + 1}"},
    "MedQA": lambda right: {"options": lettered(TEXTS), "answer": TEXTS[right]},
    "MedMCQA": lambda right: {f"op{name}": text for name, text in lettered(TEXTS, "abcd").items()} | {"cop": right},
    "AQuA-RAT": lambda right: {
        "options": [f"{name}){text}" for name, text in lettered(TEXTS).items()], "correct": "ABCD"[right],
    },
    "MathQA": lambda right: {"options": "a ) Venus , b ) Mars , c ) the Sun , d ) Io", "correct": "abcd"[right]},
    "a list in a text": lambda right: {"choices": json.dumps(TEXTS), "answer": f"{'ABCD'[right]}) {TEXTS[right]}"},
    "option_a": lambda right: {f"option_{name}": text for name, text in lettered(TEXTS, "abcd").items()}
    | {"answer": "abcd"[right]},
    "HellaSwag": lambda right: {"endings": TEXTS, "label": str(right)},
}  # fmt: skip


@each("row", *PUBLISHED.values(), ids=[*PUBLISHED])
def test_options_stand_below_the_question_and_the_label_is_a_letter(tmp_path, row):
    prompts = read(tmp_path, *(STAR | row(right) for right in (2, 0, 3, 1)))
    assert asked(prompts) == [ASKED] * 4
    assert labels(prompts) == [*"CADB"]


def test_a_question_is_asked_as_in_mmlu_pro(tmp_path):
    [prompt] = read(tmp_path, STAR | {"options": TEXTS, "answer": "C"}).prompts
    lines = "A) Venus\nB) Mars\nC) the Sun\nD) Io"
    benchmark = registry()["mmlu_pro"]
    assert prompt.messages[-1].content == benchmark.ask(STAR["question"], lines)


def test_a_benchmark_of_ones_own_shows_the_options_beside_its_questions(tmp_path):
    row = {"Q": STAR["question"], **lettered(TEXTS), "right": "C"}
    json_lines(tmp_path / "mine.jsonl", row)
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nsource: {file: mine.jsonl}\nfields: {problem: Q, answer: right}\n"
    )
    [problem] = load_problems(find_benchmark(str(tmp_path / "mine.yaml")))
    assert (problem.messages[-1].content, problem.gold) == (ASKED, "C")


@each("first, numbers", (0, [0, 1, 3]), (1, [1, 2, 4]), ("0", ["0", "2"]))
def test_the_range_of_a_column_says_from_where_its_numbers_count(tmp_path, first, numbers):
    rows = [
        {"question": f"Which {number}?", "choices": TEXTS, "answer": number}
        for number in numbers
    ]
    prompts = read(tmp_path, *rows)
    assert labels(prompts) == ["ABCD"[int(number) - int(first)] for number in numbers]
    assert prompts.notes[-1].endswith(f"read as numbers of options counted from {first}")


def test_numbers_that_may_count_from_0_or_from_1_are_refused(tmp_path):
    rows = [{"question": f"Which {n}?", "choices": TEXTS, "answer": n} for n in (1, 2, 3)]
    sentence = refusal(read, tmp_path, *rows)
    assert (
        "may be numbers of options counted from 0 or numbers of options counted from 1"
        in sentence
    )
    assert "write letters" in sentence


@each("first", 0, 1)
def test_from_where_numbers_count_can_be_said(tmp_path, first):
    row = STAR | {"choices": TEXTS, "answer": 2}
    prompts = read(tmp_path, row, columns={"choices": f"choices from {first}"})
    assert labels(prompts) == ["CB"[first]]
    assert asked(prompts) == [ASKED]


def test_the_text_of_an_option_among_letters_is_its_letter(tmp_path):
    rows = [
        STAR | {"choices": TEXTS, "answer": label}
        for label in ("C", "A", "the sun", "Moon")
    ]
    assert labels(read(tmp_path, *rows)) == ["C", "A", "C", "Moon"]


def test_options_of_which_one_is_always_right_are_said(tmp_path):
    rows = [{"question": f"{n}?", "choices": TEXTS, "answer": "A"} for n in range(3)]
    notes = read(tmp_path, *rows).notes
    assert "the labels in 'answer' are read as letters of options; all are A" in notes
    rows.append({"question": "Or?", "choices": TEXTS, "answer": "B"})
    assert not any("all are" in note for note in read(tmp_path, *rows).notes)


def test_options_that_are_numbers_are_named_by_their_values(tmp_path):
    rows = [
        {"question": f"{n}+{n}?", "choices": [2 * n - 1, 2 * n, 2 * n + 1], "answer": 2 * n}
        for n in range(9)
    ]
    assert labels(read(tmp_path, *rows)) == ["B"] * 9


def test_a_row_without_options_and_one_with_several_right_ones(tmp_path):
    rows = [
        STAR | {"options": TEXTS, "answer": "B"},
        {"question": "What is 1+1?", "options": None, "answer": ["2", "2.0"]},
        {"question": "Which are round?", "options": TEXTS, "answer": ["A", "C"]},
        {"question": "Which are hot?", "options": TEXTS, "answer": "AC"},
    ]
    prompts = read(tmp_path, *rows)
    assert labels(prompts) == ["B", "2", "A, C", "A, C"]
    assert asked(prompts)[1] == "What is 1+1?"
    assert list(prompts.notes) == [
        "the options in 'options' are shown below 3 of 4 questions; 1 without options (the first: line 2 of"
        f" {tmp_path / 'rows.jsonl'})",
        "the labels in 'answer' are read as letters of options",
    ]


def test_a_question_that_shows_its_options_stays_as_it_is(tmp_path):
    question = "Which one is a star? (A) Venus (B) Mars (C) the Sun (D) Io"
    row = {"question": question, "options": TEXTS, "answer": "C"}
    prompts = read(tmp_path, row)
    assert asked(prompts) == [question]
    assert prompts.notes[0].endswith(
        "below 0 of 1 questions; 1 already had them in the text"
    )


def test_one_stem_with_other_options_is_another_question(tmp_path):
    rows = [STAR | {"choices": [*TEXTS[:3], f"{n}"], "answer": n % 4} for n in range(8)]
    assert len({prompt.prompt_id for prompt in read(tmp_path, *rows).prompts}) == 8
    found = json.loads(olr("check", tmp_path / "rows.jsonl", "--json").stdout)["findings"]
    assert found == []


def test_what_is_written_in_the_interchange_format_is_read_as_it_was(tmp_path):
    rows = [
        {"question": f"Which {n}?", "choices": TEXTS, "answer": n % 4, "rephrased_prompt": "Or?"}
        for n in range(8)
    ]  # fmt: skip
    before = read(tmp_path, *rows)
    write_prompts(before, tmp_path / "again.jsonl")
    after = read_prompts(tmp_path / "again.jsonl")
    assert [(p.messages, p.given_label, p.rephrased) for p in after.prompts] == [
        (p.messages, p.given_label, p.rephrased) for p in before.prompts
    ]
    assert before.prompts[0].rephrased[-1].content == ASKED.replace(STAR["question"], "Or?")


def test_options_go_into_the_last_question_of_a_chat(tmp_path):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": STAR["question"]}]  # fmt: skip
    prompts = read(tmp_path, {"prompt": chat, "choices": TEXTS, "answer": "C"})
    assert [turn.content for turn in prompts.prompts[0].messages] == ["Be brief.", ASKED]


def test_the_columns_of_options_can_be_named_or_left_aside(tmp_path):
    row = STAR | {"one": "Venus", "two": "the Sun", "choices": TEXTS, "answer": "B"}
    named = read(tmp_path, row, columns={"choices": "one+two"})
    assert asked(named) == [f"{STAR['question']}\n\nA) Venus\nB) the Sun\n"]
    without = read(tmp_path, row, columns={"choices": "none"})
    assert asked(without) == [STAR["question"]] and not without.notes
    assert "has no 'tow' (did you mean 'two'?)" in refusal(
        read, tmp_path, row, columns={"choices": "one+tow"}
    )


def test_a_column_of_that_name_without_options_is_left_aside_and_said(tmp_path):
    prompts = read(tmp_path, STAR | {"options": "--fast", "answer": "the Sun"})
    assert asked(prompts) == [STAR["question"]]
    assert list(prompts.notes) == [
        "the column 'options' holds no options that can be read, and is left aside"
    ]


def test_two_columns_of_numbers_are_no_options(tmp_path):
    prompts = read(tmp_path, {"question": "What is A+B?", "A": 3, "B": 5, "answer": 8})
    assert asked(prompts) == ["What is A+B?"] and not prompts.notes


@each(
    "cell", None, ["Venus"], [["a"], ["b"]], ["a", "", "b"], {"source": "x", "split": "y"}, "Venus or Mars",
    [f"number {place}" for place in range(27)], [{"label": "A", "text": "Venus"}, {"label": "B", "text": "Mars"}],
    "Take e.g. a. and b",
)  # fmt: skip
def test_what_holds_no_options(cell):
    assert options_in(cell) is None


def test_check_says_how_it_reads_and_judges_labels_by_the_options(tmp_path):
    path = tmp_path / "mc.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["question", "A", "B", "C", "answer"])
        rows.writerows([f"Which {n}?", "x", "y", "z", "ABC"[n % 3]] for n in range(20))
        rows.writerow(["Which one?", "x", "y", "", "C"])
    ended = olr("check", path, "--json")
    report = json.loads(ended.stdout)
    assert report["columns"]["choices"] == "A+B+C"
    assert report["notes"] == [
        "the options in 'A+B+C' are shown below 21 of 21 questions.",
        "the labels in 'answer' are read as letters of options.",
    ]
    assert [(it["kind"], it["rows"]) for it in report["findings"]] == [("option", [20])]
    assert "read as letters of options" in olr("check", path).stderr


def test_letters_in_any_marks_are_one_label_and_none_is_cut(tmp_path):
    question = "What is {}+1? A) 2 B) 3"
    rows = [
        {"question": question.format(n // 4), "answer": ["A)", "(A)", "A", "a"][n % 4]}
        for n in range(80)
    ]
    json_lines(tmp_path / "mc.jsonl", *rows)
    found = json.loads(olr("check", tmp_path / "mc.jsonl", "--json").stdout)["findings"]
    assert [finding["kind"] for finding in found] == ["repeat"]


@each("width", 2, 26)
def test_as_many_options_as_there_are_letters(tmp_path, width):
    texts = [f"number {place}" for place in range(width)]
    prompts = read(tmp_path, *(STAR | {"choices": texts, "answer": text} for text in texts))
    assert labels(prompts) == [chr(ord("A") + place) for place in range(width)]
    several = read(tmp_path, STAR | {"choices": texts, "answer": "AB"})
    assert labels(several) == ["A, B"]


def test_held_out_questions_are_measured_as_they_are_asked_in_training(tmp_path):
    rows = [
        {"Q": f"{n}?", "options": ["3", "5", "7"], "A": n % 3, "right": "ABC"[n % 3]}
        for n in range(6)
    ]
    file = json_lines(tmp_path / "rows.jsonl", *rows)
    settings = {
        "data.train": str(file),
        "data.test": str(file),
        "data.held_out": "null",
        "data.columns": "{question: Q, answer: A}",
        "data.system_prompt": "none",
        "model.path": "builtin:addition-easier",
        "train.epochs": "1",
        "train.max_new_tokens": "1",
    }
    words = [f"--set={key}={value}" for key, value in settings.items()]
    olr("train", "own-data", *words, "--run-dir", tmp_path / "run")
    benchmark = held_out_benchmark(tmp_path / "run")
    trained = held_out_prompts(read_recipe(tmp_path / "run"), str(file), "test").prompts
    measured = load_problems(benchmark)
    assert [(p.messages, p.gold) for p in measured] == [
        (p.messages, p.gold) for p in trained
    ]
    assert [p.gold for p in measured] == [row["right"] for row in rows]
    assert measured[0].messages[-1].content == "0?\n\nA) 3\nB) 5\nC) 7\n"
