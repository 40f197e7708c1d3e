"""What a question and its label give away by themselves, and what is sound."""

import time

import pytest
from cases import each
from commands import olr
from hypothesis import given, strategies as st
from samples import json_lines

from olr_cli.data import check, doubts as patterns
from olr_cli.data.chat import Message
from olr_cli.data.doubts import DOUBTS, boxes, doubts, is_changed
from olr_cli.data.questions import has_template

OPTIONS = "Which is prime? (A) 4 (B) 9 (C) 11 (D) 15"
DOUBTFUL = [
    ("backslash", "Half?", "\frac{1}{2}"), ("backslash", "Is it in the form \frac{m}{n}?", "3"),
    ("backslash", "Is it even?", "\text{even}"), ("invisible", "How many?", "5\u200b"),
    ("invisible", "How \x07 many?", "5"), ("encoding", "Wie groÃ\x9f?", "5"),
    ("encoding", "How far?", "5Â\xa0km"), ("html", "What is <b>it</b>?", "5"),
    ("html", "What is it?", "x &lt; 5"), ("cut", "What is it?", r"\frac{1}{2"), ("cut", "What is it?", "x ="),
    ("cut", "What is it?", r"$\frac{1}{2}"), ("cut", "What is it?", r"\begin{pmatrix} 1 \\ 2"),
    ("marks", "What is it?", "[28]"), ("marks", "What is it?", "55\\\\"), ("marks", "What is it?", '["a", 1]'),
    ("words", "What is it?", "78 (mod 100)"), ("words", "What is it?", "The answer is 12."),
    ("words", "What is it?", "That depends on what is given at the start."),
    ("nothing", "What is 3/0?", "undefined"), ("nothing", "Solve it.", r"\emptyset"),
    ("several", "Find them.", "a=1, b=2 or a=2, b=1"), ("several", "What is it?", "1/2 = 0.5"),
    ("several", "What is it?", r"\approx 3.1"), ("several", "Which are right?", "A and C"),
    ("several", "How many?", "10 apples or 11"), ("several", "What is it?", "10 to 20"),
    ("several", "What is 1/3?", "0.333..."), ("number_word", "What is it?", "sixty-six"),
    ("number_word", "How many?", "Twelve apples"), ("letter", "Find x if 2x = 10.", "y=5"),
    ("letter", "Of n coins, k are heads?", r"\binom{m}{r}p^r"), ("option", OPTIONS, "11"),
    ("option", OPTIONS, "E"), ("option", "Which is prime?", "B"), ("option", "Which is prime?", "Option C"),
    ("unit", "How far, in km?", "5 miles"), ("form", "Round it to two decimals.", "3.1416"),
    ("form", "Round to the nearest tenth.", "0.25"), ("form", "Give a simplified fraction.", r"\frac{2}{4}"),
    ("form", "Express it as a percentage.", "0.25"), ("form", "Write it as a common fraction.", "0.5"),
    ("form", "Write it as a decimal.", "1/2"), ("form", "What is the angle in degrees?", r"\frac{\pi}{2}"),
    ("form", "There are apples. How many apples?", "yes"), ("form", "How many are there?", "-3"),
    ("to_prove", "Prove that 6 divides n^3 - n.", "6"), ("form", "Take 7. Is it prime?", "7"),
    ("date_or_score", "On which date did it happen?", "2021-03-05"), ("date_or_score", "When was it?", "3/4/2021"),
    ("date_or_score", "When was it?", "5 March 2021"), ("date_or_score", "What was the score?", "3-2"),
    ("date_or_score", "How much is it?", "$5 - $10"), ("date_or_score", "When does it start?", "3:45 PM"),
    ("float_noise", "What is 2.9*2?", "5.800000000000001"), ("float_noise", "What is it?", "-19.999999999999996"),
    ("several", "Which? A) 1 B) 2 C) 3", "ABC"), ("several", "Which? A) 1 B) 2 C) 3", "A, B, C"),
    ("words", "How many?", "8 apples\nDone."), ("told", "Is 3 + 4 = 7?", "7"),
    ("told", "What is 2+2? The answer is 4.", "4"),
]  # fmt: skip
SOUND = [
    ("Find the code with four digits.", "1042"),
    ("What does it cost?", "$108"), ("What does it cost?", "-$1,108.50"), ("Find x if 2x = 10.", "x=5"),
    ("Write the line through A and B.", "y = 2x + 3"), ("Solve it.", r"x = \frac{\pi}{2} + k\pi"),
    ("Where is f positive?", "[0, 1)"),
    ("Write it as cases.", r"\left\{ \begin{array}{l} 1 \\ 2 \end{array} \right."), (OPTIONS, "(C) 11"),
    ("Which point is it, B or C?", "B"), ("How far is it in km?", "5 km"),
    ("How many minutes is it?", r"5 \text{ min}"), ("Round it to two decimals.", "3.10"),
    ("Give a simplified fraction.", r"\frac{1}{2}"), ("What percent is it?", "25"),
    ("How many are there?", "infinitely many"), ("Is it 3 or 5?", "3"),
    ("Show that it is prime. What is it?", "3"), ("What is the slope?", "-3"), ("Is it even?", r"\text{yes}"),
    ("What is 7 + 8? Put it within \\boxed{}.", "15"), ("What is 7 + 8? Answer:", "15"),
    ("What is it?", "45752"), ("How much is it?", "45700"), ("How many atoms are in a mole?", "6.022E+23"),
    ("What part of the 90000 apples? Give the sum of numerator and denominator.", "45752"),
    ("In which month is it?", "May"), ("What is the ratio?", "3:2"), ("What is it?", "3 - x"), ("What is it?", "3, -3"),
    ("How many four-digit codes are there?", "42"), ("What is pi?", "3.14159265358979"), ("Which gas is it?", "CO"),
    ("Which triangle is it?", "ABC"), ("Write it.", "\\begin{pmatrix}\n1\nab\n\\end{pmatrix}"),
    ("Name the right triangle with legs 5 and 12.", "5-12-13"), ("What are its angles?", "30-60-90"),
    ("How many ways are there to choose a code of four digits?", "24"),
    ("What is $a \\times b$?\nThe neighbours\tthink so.", "-7"), ("Was ist größer?", "5°"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "question", "label"), DOUBTFUL)
def test_what_is_doubtful(kind, question, label):
    assert kind in doubts(question, label)


def test_every_doubt_is_tried():
    assert {kind for kind, _, _ in DOUBTFUL} == DOUBTS


@pytest.mark.parametrize(("question", "label"), SOUND)
def test_what_is_sound(question, label):
    assert doubts(question, label) == set() and not is_changed(question, label)


CHANGED = [
    ("What fraction is left?", "2-Jan"), ("In what ratio, a to b?", "Mar-05"),
    ("What part is it?", "02. Jan"), ("Compute it.", "3-mars"),
    ("Compute it.", "12-Dec-24"), ("What is 1/3?", "03/01/2026"),
    ("Find n.", "2026-03-01 00:00:00"), ("What fraction is left?", "45752"),
    ("What is the ratio a to b?", "3:45:00"), ("What is 2^60?", "1.15292E+18"),
    ("What is 2^60?", "1,15292E+18"), ("Find the code with four digits.", "42"),
    ("Compute 3/4 of 1/2.", "8-Mar"), (" " * 9000, "2-Jan"),
]  # fmt: skip


@pytest.mark.parametrize(("question", "label"), CHANGED)
def test_what_a_spreadsheet_may_have_changed(question, label):
    assert is_changed(question, label)


def test_a_code_in_words_has_lost_no_zero():
    assert not is_changed("Find the code with four digits.", "none of them")


def test_letters_of_which_one_names_no_option_are_one_finding():
    assert doubts(OPTIONS, "A, D") == doubts(OPTIONS, "AD") == {"several"}
    assert doubts(OPTIONS, "A, E") == doubts(OPTIONS, "AE") == {"option"}


def test_the_boxes_of_a_solution_that_differ():
    assert boxes(r"$t=\boxed{3}$ or $t=\boxed{-3}$, so \boxed{ 3 } and 3") == ["3", "-3"]
    assert boxes(r"\boxed{\frac{1}{2}}") == [r"\frac{1}{2}"] and boxes("3") == []


def test_a_long_label_is_read_at_its_ends_and_its_brackets_are_all_counted():
    middle = "+1" * 2000
    assert doubts("What is it?", f"({middle})") == set()
    assert (
        doubts("What is it?", f"({middle}")
        == doubts("What is it?", f"1{middle}({middle}+1")
        == {"cut"}
    )
    assert "cut" in doubts("What is it?", f"1{middle}=") and "marks" in doubts(
        "What is it?", f"[{'28' * 800}]"
    )
    assert "words" in doubts(
        "What is it?", "First we add what was given at the start. " * 100
    )
    assert "backslash" in doubts("What is it?", f"{middle}\frac{{1}}{{2}}{middle}")
    assert boxes(r"\boxed{1}" * 1000) == ["1"]


SHAPES = [
    "9", "a word ", "12 ", "1,", "x=1 ", r"\frac{1}{2}", "1 (ab ", " ", "'\"", "how many ", ". Is ", "[asy]", "-", "[",
    "{", "a ", "\\\\", "First we add 3 and 4 to get 7, so x = 7. ", r"\boxed{1}", r"\boxed{", "(a)", "(i)", "1) ", "![",
    r"\text{", "answer: ", "#### ", "\n", "$", "twenty ", "5 cm ", "A) B) ", "٣", "1/", "2^", "a\u0301", "&lt;", "a; ",
    "as required ", "<|im_start|>user\n", "[INST] ", "<|user|>\n", "user\n", "User: ",
]  # fmt: skip


def processor_seconds(text):
    """The least of three measurements, which no other process can lengthen."""
    seconds = []
    for _ in range(3):
        began = time.process_time()
        _ = [
            *doubts("What is x?", text),
            *doubts(text, "7"),
            boxes(text),
            has_template([Message("user", text)]),
        ]
        seconds.append(time.process_time() - began)
    return min(seconds)


@each("shape", *SHAPES)
def test_four_times_as_long_a_text_takes_at_most_six_times_as_long(shape):
    once, four_times = (
        processor_seconds((shape * size)[:size]) for size in (10_000, 40_000)
    )
    assert four_times < 6 * max(once, 0.01)


def test_labels_and_questions_of_a_million_characters_are_checked(tmp_path):
    texts = [
        (shape * 1_000_000)[:1_000_000]
        for shape in ("9", "a word ", "[", "x=1 ", r"\boxed{", "(a)", "#### ")
    ]
    rows = [
        *(
            {"question": f"What is it, {at}?", "answer": text}
            for at, text in enumerate(texts)
        ),
        *({"question": text, "answer": "7"} for text in texts),
    ]
    began = time.process_time()
    ended = olr("check", json_lines(tmp_path / "x.jsonl", *rows))
    assert ended.exit_code == 0 and "14 rows" in ended.output
    assert time.process_time() - began < 60  # by patterns of quadratic time it was hours


PIECES = (
    *(
        "What",
        "is it?",
        "Is ",
        "4 ",
        "in km",
        "A) 1",
        "\nB) 2 ",
        " C. 3",
        "prove that",
        "= 7?",
        "answer is 7.",
    ),
    *(
        "\neq",
        "\nabla",
        "\t",
        "\text",
        "\x0crac",
        "\x07",
        "<b>",
        "</b>",
        "&lt;",
        "<br>",
        "é",
        "Ã\x9f",
        "\r",
        "\x7f",
    ),
    *(
        "1",
        "7",
        "07",
        "٣",
        "100000",
        "0.5",
        "1/2",
        "-3",
        "x",
        "$",
        "\\frac{1}{2}",
        "y=5",
        "5 miles",
        "B",
    ),
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@given(TEXTS, TEXTS | st.integers(0).map(str))
def test_whole_numbers_and_plain_texts_have_the_doubts_that_every_pattern_finds(
    question, label
):
    found = {kind for kind, find in patterns._IN_EITHER if find(label) or find(question)}
    found |= {"cut"} if patterns._is_unbalanced(label) else set()
    found |= {
        kind
        for kind, in_label, in_question in patterns._IN_BOTH
        if in_label(label) and in_question(question)
    }
    found |= {kind for kind, is_so in patterns._OTHERS if is_so(question, label)}
    if "option" in found:
        found -= {"several", "letter"}
    assert doubts(question, label) == found


FIGURES = (
    *(
        "In the ",
        "see the bar ",
        "Figure",
        "fıgure",
        "graph ",
        "below",
        " shown",
        "fig. 3",
        "in ",
    ),
    *("![a](", "<image>", "[asy]", "DIAGRAM ", "ſhown"),
)


@given(st.lists(st.sampled_from(FIGURES), max_size=5).map("".join))
def test_a_figure_is_looked_for_only_where_a_question_may_name_one(question):
    is_named = check._FIGURE.search(question) and not check._DRAWN.search(question)
    assert check._lacks_figure(question) == bool(is_named)
