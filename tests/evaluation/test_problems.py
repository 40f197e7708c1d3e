"""The problems of a benchmark, from every kind of source. A stand-in plays the part of the hub."""

import re
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import each, refusal
from samples import SAME_QUESTION, SHARED, json_lines, needs_shared, questions

from olr_cli.data.chat import Message
from olr_cli.data.hub import HubId
from olr_cli.data.prompts import SYSTEM_PROMPT
from olr_cli.errors import UserError
from olr_cli.evaluation import problems
from olr_cli.evaluation.benchmark import PAPER, find_benchmark, registry
from olr_cli.evaluation.problems import _label, _labels, digest, load_problems


class Hub(dict):
    """The rows of data sets by name; `asked` is the last one that was loaded."""

    asked = None

    def load(self, hub_id, split):
        self.asked = hub_id
        if hub_id.name not in self:
            raise UserError(f"Couldn't reach '{hub_id.name}'", "try again")
        return pa.Table.from_pylist(self[hub_id.name]), None


@pytest.fixture
def hub(monkeypatch):
    shelf = Hub()
    monkeypatch.setattr(problems, "load_hub_table", shelf.load)
    return shelf


def row(question, gold, source="aime", system=True, **extra):
    turns = [{"role": "system", "content": "Think."}] * system + [
        {"role": "user", "content": question}
    ]
    return {
        "data_source": source,
        "prompt": turns,
        "ability": "math",
        "reward_model": {"ground_truth": gold, "style": "rule"},
        "extra_info": {"index": 0, "split": "valid", **extra},
    }


def write(path, rows):
    if path.suffix == ".jsonl":
        return json_lines(path, *rows)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def own(tmp_path, text, rows):
    """A benchmark of one's own with its file beside it."""
    write(tmp_path / "rows.jsonl", rows)
    file = tmp_path / "own.yaml"
    file.write_text(f"name: own\nsource: {{file: rows.jsonl}}\n{text}")
    return find_benchmark(str(file))


def options(problem):
    """Label -> text of the options in a problem's prompt."""
    return dict(re.findall(r"^(\w+)\) (.*)$", problem.messages[-1].content, re.MULTILINE))


# ---- interchange files -------------------------------------------------------------------------------------------


def test_repeated_rows_are_one_problem_in_the_order_of_their_first_appearance(tmp_path):
    rows = [row(f"q{n}", str(n), index=n) for n in (5, 3, 5, 4, 3, 5)]
    problems = load_problems(
        find_benchmark("aime24"), data=write(tmp_path / "a.parquet", rows), limit=9
    )
    assert [(p.prompt_id, p.gold, p.choices) for p in problems] == [
        (n, n, None) for n in "534"
    ]
    assert problems[0].messages == (Message("system", "Think."), Message("user", "q5"))


def test_a_problem_in_another_form_is_a_repeat(tmp_path):
    """R24."""
    forms = zip(SAME_QUESTION.values(), questions(len(SAME_QUESTION)), strict=True)
    file = write(
        tmp_path / "a.jsonl", [row(text, "1") for form, q in forms for text in (q, form(q))]
    )
    problems = load_problems(find_benchmark("aime24"), data=file, limit=99)
    assert [problem.messages[-1].content for problem in problems] == questions(
        len(SAME_QUESTION)
    )


def test_the_same_question_with_another_gold_is_another_problem(tmp_path):
    rows = [row("q", "1"), row("q", "2"), row("q", "1")]
    problems = load_problems(
        find_benchmark("aime24"), data=write(tmp_path / "a.jsonl", rows), limit=9
    )
    assert [p.gold for p in problems] == ["1", "2"]
    assert len({p.prompt_id for p in problems}) == 2


def test_as_many_rows_as_problems_are_no_repeats(tmp_path):
    text = "problems: 3\n"
    assert (
        len(
            load_problems(
                own(tmp_path, text, [row("q", "1"), row("q", "1"), row("r", "2")])
            )
        )
        == 3
    )


def test_a_folder_is_searched_and_other_data_sources_and_files_are_passed_over(tmp_path):
    write(
        tmp_path / "a.parquet", [row("other", "1", "amc"), row("q1", "1", "aime", index=1)]
    )
    write(tmp_path / "b.jsonl", [row("q2", "2", "aime24", index=2)])
    write(tmp_path / "c.jsonl", [{"question": "1+1", "answer": 2}])
    problems = load_problems(find_benchmark("aime24"), data=tmp_path, limit=9)
    assert [p.messages[-1].content for p in problems] == ["q1", "q2"]


def test_a_rows_own_system_message_wins_and_one_without_gets_the_benchmarks(tmp_path):
    rows = [row("q1", "1"), row("q2", "2", system=False)]
    first, second = load_problems(
        find_benchmark("aime24"), data=write(tmp_path / "a.jsonl", rows), limit=9
    )
    assert first.messages[0] == Message("system", "Think.")
    assert second.messages == (Message("system", SYSTEM_PROMPT), Message("user", "q2"))


QUESTION = "Which?\n\nA) a\nB) b\nC) c\n"


@each(
    "name, rows, expected",
    (
        "aime24",
        [row("q", "1", "amc"), row("q", "1", "minerva")],
        "is aime24 or aime (it has amc",
    ),
    (
        "aime24",
        [row(f"q{n}", "1", index=n) for n in range(29)],
        "aime24 has 30 problems, and 29 were",
    ),
    *(
        (
            "aime24",
            [row("q1", "1", index=1), row("q2", gold, index=2)],
            "1 of 2 problems have no true",
        )
        for gold in (None, "  ", "__NoCorrectAnswer__")
    ),
    (
        "arc_c",
        [row(QUESTION, "D", "arc_c", index="Mercury_7")],
        "answer to problem Mercury_7 is 'D'",
    ),
)
def test_data_that_are_not_the_benchmark_are_refused_in_a_sentence(
    tmp_path, name, rows, expected
):
    assert expected in refusal(
        load_problems, find_benchmark(name), data=write(tmp_path / "a.jsonl", rows)
    )


def test_the_first_problems_are_not_counted(tmp_path):
    data = write(tmp_path / "a.jsonl", [row(f"q{n}", "1", index=n) for n in range(29)])
    assert [
        p.prompt_id for p in load_problems(find_benchmark("aime24"), data=data, limit=2)
    ] == ["0", "1"]


def test_a_marked_rows_gold_is_its_true_answer(tmp_path):
    data = write(
        tmp_path / "a.jsonl", [row("q1", "__NoCorrectAnswer__", original_ground_truth="7")]
    )
    assert load_problems(find_benchmark("aime24"), data=data, limit=1)[0].gold == "7"


@each(
    "lines, gold, expected",
    (["A) slower", "B) faster", "C) the same"], "C", (3, "C")),
    (["A) a", "B) b", "C) c", "D) d", "E) e"], "(e)", (5, "E")),
    (["1) a", "2) b", "3) c"], "3", (3, "3")),
    (["A) a", "B) b", "C) c"], "2", (3, "2")),
    (["A) 1) heat 2) cool", "B) 1. heat", "2. cool", "C) none"], "B", (3, "B")),
    (["I) yes", "II) no"], "B", (None, "B")),
)
def test_the_options_of_a_multiple_choice_row_are_counted(tmp_path, lines, gold, expected):
    question = "Which? A) is no option here.\n\n" + "\n".join(lines) + "\n"
    data = write(tmp_path / "a.jsonl", [row(question, gold, "arc_c")])
    [problem] = load_problems(find_benchmark("arc_c"), data=data, limit=1)
    assert (problem.choices, problem.gold) == expected


# ---- the hub -----------------------------------------------------------------------------------------------------


@each(
    "name, hub_id, row, gold",
    (
        "aime24",
        "HuggingFaceH4/aime_2024",
        {"id": 60, "problem": "p", "answer": "025"},
        "025",
    ),
    ("aime25", "math-ai/aime25", {"id": "0", "problem": "p", "answer": "70"}, "70"),
    ("amc", "AI-MO/aimo-validation-amc", {"id": 0, "problem": "p", "answer": -4.0}, "-4"),
    (
        "math500",
        "HuggingFaceH4/MATH-500",
        {"unique_id": "a/7", "problem": "p", "answer": "x^2"},
        "x^2",
    ),
    ("minerva", "math-ai/minervamath", {"question": "p", "answer": "4.5e33"}, "4.5e33"),
    (
        "olympiad",
        "zwhe99/simplerl-OlympiadBench",
        {"question": "p", "final_answer": ["$2n$"]},
        "$2n$",
    ),
)
def test_hub_rows_of_mathematics_become_problems(hub, name, hub_id, row, gold):
    hub[hub_id] = [row]
    benchmark = find_benchmark(name)
    [problem] = load_problems(benchmark, limit=9)
    assert problem.gold == gold
    assert problem.messages == (Message("system", SYSTEM_PROMPT), Message("user", "p"))
    source = benchmark.source
    assert hub.asked == HubId(hub_id, source.config, source.split, source.revision)


def test_arc_keeps_the_labels_of_its_options_letters_or_numbers_three_or_five(hub):
    of_three, of_five = (
        {"text": list(texts), "label": list(labels)}
        for texts, labels in (("xyz", "123"), ("vwxyz", "ABCDE"))
    )
    hub["allenai/ai2_arc"] = [
        {"id": "a", "question": "Which?", "choices": of_three, "answerKey": "2"},
        {"id": "b", "question": "Who?", "choices": of_five, "answerKey": "E"},
    ]
    first, second = load_problems(find_benchmark("arc_c"), limit=9)
    assert first.messages[-1].content == "Which?\n\n1) x\n2) y\n3) z\n"
    assert (first.prompt_id, first.gold, first.choices) == ("a", "2", 3)
    assert (second.prompt_id, second.gold, second.choices) == ("b", "E", 5)


def gpqa_row(number):
    right = {
        "Record ID": f"rec{number}",
        "Question": f"Q{number}?\n",
        "Correct Answer": f"right of {number}",
    }
    return right | {f"Incorrect Answer {n}": f"wrong {n} of {number}\n" for n in (1, 2, 3)}


def test_gpqas_right_option_lies_at_a_drawn_place_that_never_changes(hub):
    hub["Idavidrein/gpqa"] = [gpqa_row(n) for n in range(198)]
    problems = load_problems(find_benchmark("gpqa_diamond"))
    assert all(
        options(p)[p.gold].startswith("right of") and p.choices == 4 for p in problems
    )
    assert all(len(set(options(p).values())) == 4 for p in problems)
    assert problems[0].messages[-1].content.startswith("Q0?\n\nA) ")
    places = Counter(p.gold for p in problems)
    assert set(places) == set("ABCD") and min(places.values()) > 198 / 8
    hub["Idavidrein/gpqa"] = [gpqa_row(n) for n in reversed(range(198))]
    again = {p.prompt_id: p for p in load_problems(find_benchmark("gpqa_diamond"))}
    assert all(again[p.prompt_id] == p for p in problems)
    assert [p.gold for p in problems[:12]] == list("DABCBAADBBBD")


def test_mmlu_pro_has_as_many_letters_as_options(hub):
    hub["TIGER-Lab/MMLU-Pro"] = [
        {
            "question_id": 70,
            "question": "Q?",
            "options": [f"o{n}" for n in range(10)],
            "answer": "J",
        },
        {
            "question_id": 71,
            "question": "Q?",
            "options": ["yes", "no", "both"],
            "answer": "B",
        },
    ]
    ten, three = load_problems(find_benchmark("mmlu_pro"), limit=9)
    assert (ten.gold, ten.choices, options(ten)["J"]) == ("J", 10, "o9")
    assert (three.prompt_id, three.gold, options(three)) == (
        "71",
        "B",
        {"A": "yes", "B": "no", "C": "both"},
    )


THIRTY_ONE = [{"id": str(n), "problem": f"p{n}", "answer": "1"} for n in range(31)]


@each(
    "name, rows, expected",
    ("math500", None, "Couldn't reach 'HuggingFaceH4/MATH-500'"),
    ("math500", None, "give a file that has its problems"),
    (
        "gpqa_diamond",
        None,
        "accept its terms at https://huggingface.co/datasets/Idavidrein/gpqa and set",
    ),
    ("aime25", THIRTY_ONE, "aime25 has 30 problems, and 31 were found in math-ai/aime25"),
    (
        "aime25",
        [{"question": "p", "answer": "1"}],
        "math-ai/aime25 has no column 'problem'; its columns",
    ),
)
def test_what_the_hub_does_not_have_is_one_sentence(hub, name, rows, expected):
    if rows is not None:
        hub[find_benchmark(name).source.hub] = rows
    said = refusal(load_problems, find_benchmark(name))
    assert expected in said and not said.startswith("data: ")


# ---- built-in sets and benchmarks of one's own -------------------------------------------------------------------


def test_the_arithmetic_benchmark_is_the_tasks_test_split():
    problems = load_problems(find_benchmark("arithmetic"))
    assert len(problems) == 400
    assert load_problems(find_benchmark("arithmetic"), limit=5) == problems[:5]
    left, right = map(int, problems[0].messages[0].content.rstrip("=").split("+"))
    assert problems[0].gold == str(left + right)
    assert [m.role for m in problems[0].messages] == ["user"]
    assert (
        "-"
        in load_problems(find_benchmark("arithmetic:subtraction"), limit=1)[0]
        .messages[0]
        .content
    )


def test_a_benchmark_with_a_source_of_its_own_keeps_it_where_the_data_has_none_of_its_rows(
    tmp_path,
):
    data = write(tmp_path / "a.jsonl", [row("q", "1", "amc")])
    assert len(load_problems(find_benchmark("arithmetic"), data=data)) == 400
    held = write(
        tmp_path / "b.jsonl", [row("123+456=", "579", "arithmetic-addition", system=False)]
    )
    problems = load_problems(find_benchmark("arithmetic"), data=held, limit=9)
    assert [(p.messages, p.gold) for p in problems] == [
        ((Message("user", "123+456="),), "579")
    ]


def test_plain_questions_of_ones_own_get_the_benchmarks_prompt_and_system_message(tmp_path):
    rows = [
        {"question": "1+1?", "answer": "one and one #### 2"},
        {"question": "2+2?", "answer": "4"},
    ]
    first, second = load_problems(
        own(tmp_path, "prompt: 'Q: {problem}'\nsystem: Be brief.\n", rows)
    )
    assert first.messages == (Message("system", "Be brief."), Message("user", "Q: 1+1?"))
    assert (first.gold, second.gold) == ("2", "4")


def test_options_of_ones_own_may_lie_in_columns_with_the_index_of_the_right_one(tmp_path):
    text = (
        "grader: choice\nprompt: '{problem}: {choices}'\nsystem: null\n"
        "fields: {problem: q, answer: right, choices: [a, b, c], answer_form: index}\n"
    )
    rows = [
        {"q": "Which", "a": "x", "b": "y", "c": "z", "right": 2},
        {"q": " ", "a": "s", "b": "k", "c": "ipped", "right": 1},
        {"q": "Who", "a": "x", "b": "y", "c": None, "right": 0},
    ]
    three, two = load_problems(own(tmp_path, text, rows))
    assert three.messages == (Message("user", "Which: A) x\nB) y\nC) z"),)
    assert (three.gold, three.choices, two.gold, two.choices) == ("C", 3, "A", 2)


CHOICE = "grader: choice\nprompt: '{problem} {choices}'\n"


@each(
    "fields, change, expected",
    (
        "answer: right, choices: o",
        {"right": "D"},
        "'D' in right is not the label of an option (A, B, C)",
    ),
    ("answer: right, choices: o", {"right": None}, "1 of 1 problems have no true answer"),
    ("answer: right, choices: o", {"o": ["x"]}, "needs 2 to 10 options"),
    ("answer: right, choices: o", {"o": ["x", None, "z"]}, "needs 2 to 10 options"),
    ("answer: right, choices: o", {"o": None}, "needs 2 to 10 options"),
    ("answer: right, choices: o", {"q": " "}, "has no 'problem'"),
    (
        "answer: b, choices: [a, c, b]",
        {"a": "x", "c": "y", "b": None},
        "has no b, the right option",
    ),
)
def test_what_is_wrong_with_a_row_is_one_sentence(tmp_path, fields, change, expected):
    text = f"{CHOICE}fields: {{problem: q, {fields}}}\n"
    benchmark = own(
        tmp_path, text, [{"q": "Which", "o": ["x", "y", "z"], "right": "A"} | change]
    )
    assert expected in refusal(load_problems, benchmark)


def test_the_digest_changes_with_what_is_asked_or_right(tmp_path):
    rows = [{"question": "1+1?", "answer": "2"}]
    before = digest(load_problems(own(tmp_path, "", rows)))
    assert digest(load_problems(own(tmp_path, "", rows))) == before
    assert digest(load_problems(own(tmp_path, "system: null\n", rows))) != before
    assert digest(load_problems(own(tmp_path, "", [rows[0] | {"answer": "3"}]))) != before


# ---- the real files ----------------------------------------------------------------------------------------------


@needs_shared
def test_the_seven_benchmarks_with_files_have_as_many_problems_as_the_paper_says():
    counts = {name: len(load_problems(registry()[name], data=SHARED)) for name in PAPER[:7]}
    assert counts == {name: registry()[name].problems for name in PAPER[:7]}


@each(
    "question, labels",
    ("Which?\nA) x\nB) y", ["A", "B"]),
    ("Which?\n(A) x\n(B) y\n(C) z", ["A", "B", "C"]),
    ("Which?\n1) x\n2) y", ["1", "2"]),
    ("Which?\nA) x", []),
    ("Which?\nA) x\nC) y", []),
    ("Which?\nB) x\nC) y", []),
    ("Which?", []),
    ("A) x B) y", []),
    ("A) one\nB) two\nWhich of them?\nA) x\nB) y\nC) z", ["A", "B", "C"]),
    ("Which?\nA) 1) a\n2) b\nB) y", ["A", "B"]),
    ("Which?\n" + "\n".join(f"{n}) x" for n in range(1, 11)), [str(n) for n in range(1, 11)]),
)  # fmt: skip
def test_the_options_of_a_question_are_the_last_lines_that_begin_a_series(question, labels):
    assert _labels(question) == labels


@each(
    "gold, labels, label",
    ("B", "ABC", "B"), (" (b). ", "ABC", "B"), ("2", "ABC", "2"), ("3", "123", "3"), ("4", "ABC", None),
    ("D", "ABC", None), ("0", "123", None), ("BC", "ABC", None),
)  # fmt: skip
def test_a_gold_names_an_option_by_its_label_or_its_place(gold, labels, label):
    labels = list(labels)
    if label is None:
        assert refusal(_label, gold, labels, "p", "x.jsonl") == (
            f"x.jsonl: the answer to problem p is '{gold}', and its options are {', '.join(labels)}; fix it"
        )
    else:
        assert _label(gold, labels, "p", "x.jsonl") == label
