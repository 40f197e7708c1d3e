r"""Which part of a response is its answer (R6)."""

import time

import pytest
from cases import each
from hypothesis import given, strategies as st

from olr_cli.answers import (
    EXTRACTORS,
    default_extractor,
    extract,
    extraction,
    own_extractors,
    reading_more,
)
from olr_cli.errors import UserError


@each(
    "response, answer",
    (r"so \boxed{42}.", "42"), (r"\boxed{1} or rather \boxed{2}", "2"), (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\boxed {7}", "7"), ("\\boxed\n{7}", "7"), (r"\boxed{ 7 }", "7"), (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
    (r"\boxed{\left\{ x : x > 0 \right\}}", r"\left\{ x : x > 0 \right\}"), (r"\boxed{[0, 1\}}", r"[0, 1\}"),
    (r"\boxed{a \\{b}}", r"a \\{b}"), (r"\\boxed{5}", "5"), (r"\\boxed{5} then \boxed{34", "5"),
    (r"\boxed{a \\boxed{b} c} \boxed{", "b"), (r"$\boxed{\boxed{5}}$", "5"),
    (r"\boxed{first} and \boxed{second \boxed{third}", "third"), (r"\boxed{12} then \boxed{34", "12"),
    (r"\frac{1}{ \boxed{3}", "3"), (r"} \boxed{3} }", "3"), ("\\boxed{\ud800}", "\ud800"),
)  # fmt: skip
def test_the_answer_is_the_content_of_the_last_complete_box(response, answer):
    assert extract(response) == answer


@each(
    "response, extractor, answer",
    (r"<think>\boxed{1}?</think> \boxed{2}", "boxed", "2"),
    (r"\boxed{1}? </think> It is \boxed{2}.", "boxed", "2"),  # the prompt ends with <think>
    (r"<think>\boxed{1}</think> That is it.", "boxed", None),
    (r"<think>\boxed{1}", "boxed", None),
    (r"<think>1</think>\boxed{2} <think>No, \boxed{3}", "boxed", None),
    (r"<think>1</think>\boxed{2} <think>No.</think> \boxed{3}", "boxed", "3"),
    ("<think>7 or 8</think> 9", "last_number", "9"),
    ("<think>7 or 8</think>", "last_number", None),
    ("<think>…</think>\n975", "reversed_digits", "579"),
)
def test_what_a_model_thinks_is_no_answer(response, extractor, answer):
    assert extract(response, extractor) == answer


@each(
    "response, answer",
    (r"\boxed{7}, so #### 8", "7"),
    ("12 + 5 = 17\n#### 17", "17"),
    ("<think>8?</think>\n<answer>\n17 m\n</answer>", "17 m"),
    ("<answer>The answer is **17**.</answer> I hope the answer is of use.", "17"),
    ("#### 17\nThat is what was asked for.", "17"),
    ("#### Step 1\nAdd.\n#### Step 2\nTogether they have **17**.", "17"),
    ("**Step 1** Add. **Answer: 17 m**", "17 m"),
    ("**Final Answer:** $\\frac{1}{2}$. I hope it is correct.", "$\\frac{1}{2}$"),
    ("The answer is 5? No, the answer is 6.5.", "6.5"),
    ("Answer:\n\n**17**\n\nLet me know.", "17"),
    ("答案：17。", "17"),
    ("答案是：17。", "17"),
    ("It prints\n```text\n17\n```\nas expected", "17"),
    ("```python\nx = 8\nprint(x)\n```", None),
    ("<think>8? No.</think>\nI added.\n\nThere are 17.", "There are 17."),
    ("<think>**8**</think>", None),
    ("I think there are 17", None),
    ("####", None),
    ("## Final Answer\n\nThe ratio is 3:2.", "The ratio is 3:2."),
    ("So 5.\n\n**Final Answer**\n\nThe answer is 17.", "17"),
    (r"So \fbox{17}.", "17"),
    (r"\[Answer: 009\]", "009"),
    ("Answer: 17<|im_end|>\n<|im_start|>user\nAnswer: 8", "17"),
    ("The answer is 17.\n\nQuestion: 4 + 4?\nThe answer is 8.", "17"),
)
def test_the_last_answer_is_read_in_the_layouts_of_other_trainers_logs(response, answer):
    assert extract(response, "last_answer") == answer


@each(
    "response",
    "", "no box", r"\boxed", r"\boxed 5", r"\boxed{", r"\boxed{}", "\\boxed{ \n }", r"\fbox{5}", "The answer is 42.",
    r"\boxed{5} no: \boxed{}",
)  # fmt: skip
def test_a_response_whose_last_box_is_not_filled_has_no_answer(response):
    assert extract(response) is None


@given(st.text(alphabet="\\{}bx ", max_size=30), st.text(alphabet="ab \\{}", max_size=30))
def test_what_follows_a_closed_box_without_another_box_changes_nothing(before, after):
    assert extract(f"{before} \\boxed{{5}} {after}") == "5"


@each(
    "response, answer",
    ("975", "579"), ("5-", "-5"), ("0", "0"), ("0-", "0"), ("021", "120"), ("970", "79"), (" 975\n", "579"),
)  # fmt: skip
def test_arithmetic_answers_are_read_from_the_least_significant_digit(response, answer):
    assert extract(response, "reversed_digits") == answer


@pytest.mark.parametrize("response", ["", "-", "-5", "5-1", "9 7", "97a", "5.", "٣", "--5"])
def test_anything_but_digits_is_no_arithmetic_answer(response):
    assert extract(response, "reversed_digits") is None


def test_logs_may_hold_the_answer_itself():
    assert extract(" 42 \n", "text") == "42"
    assert extract(" \n", "text") is None


@each(
    "source, extractor",
    ("arithmetic", "reversed_digits"), ("arithmetic-addition", "reversed_digits"),
    ("arithmetic-subtraction", "reversed_digits"), ("arithmetic-word-problems", "boxed"), ("arithmetics", "boxed"),
    ("local/arithmetic", "boxed"), ("aime", "boxed"), ("", "boxed"),
)  # fmt: skip
def test_the_arithmetic_task_has_its_own_extractor(source, extractor):
    assert default_extractor(source) == extractor


@each(
    "response, extractor",
    ("6 * 12 = 72\n#### 72", "after:####"),
    (r"\boxed{7}", "boxed"),
    ("it is 7", "last_number"),
    ("dunno", None),
)
def test_the_extractor_that_reads_a_sample_is_named(response, extractor):
    sentence = reading_more([response] * 98 + [""] * 2)
    assert sentence == (
        extractor and f"The extractor {extractor} reads 98 of 100 responses."
    )


def test_an_unknown_extractor_is_named():
    with pytest.raises(UserError, match=r"'boxd'.*did you mean 'boxed'"):
        extract("5", "boxd")


@each(
    "extractor, response, answer",
    ("first_integer", "-1,234 apples, not 5", "-1234"),
    ("first_integer", "3.5 then 7", "7"),
    ("first_integer", "x2 or 3.5", None),
    ("last_number", "so 2 * 3 = $1,234.50.", "1234.50"),
    ("last_number", "12 - 5", "5"),
    ("last_number", "it is -3/4", "-3/4"),
    ("last_number", "no 2nd", "2"),
    ("choice", r"so \boxed{\text{(b)}}", "B"),
    ("choice", r"The answer is A. \boxed{B) Planets}", "B"),
    ("choice", "The answer is (C). No, the **answer is: D**.", "D"),
    ("choice", "The answer is a planet", None),
    ("choice", "It orbits\nB. Planets", "B"),
    ("last_number", "so $9{,}500$", "9500"),
    ("last_number", r"10\,000 m", "10000"),
    ("last_number", "x = 1.5e-3.", "1.5e-3"),
    ("last_number", "it takes 1 1/2 hours", "1 1/2"),
    ("last_number", "so it is 2^{10}.", "2^{10}"),
    ("last_number", "it is 6.02×10²³.", "6.02×10²³"),
    ("choice", "A: 3, B: 4. The answer is 4.", None),
    ("last_number", "at -3 × 10^8 m/s", "-3 × 10^8"),
    ("last_number", r"about 6.02 \times 10^{23}", r"6.02 \times 10^{23}"),
    ("last_number", "thus x^2 and y^{-3}", None),
    ("last_number", "There are 18.\nQuestion: How many are 4 + 4?\nThere are 8.", "18"),
    ("choice", "故选：C", "C"),
    ("choice", "選項B正確", "B"),
    ("choice", "Réponse finale : B", "B"),
    ("choice", "My answer: c", "C"),
    ("choice", "My answer: a planet", None),
    ("choice", "The answer is B. Note that option A is close.", "B"),
    ("choice", "The correct option is C, for option A is wrong.", "C"),
    ("choice", "Option A is wrong", None),
    ("choice", "Option A is wrong, so option B.", "B"),
    ("choice", "Answer seems to be Sodium.\nAnswer: B", "B"),
    ("choice", "The answer is for sure D, it can't be A or B", "D"),
    ("choice", "I would pick B (a safe choice)", "B"),
    ("choice", "C is correct", "C"),
    ("choice", "The answer is A or B", None),
    ("choice", "It is either option A or option B.", None),
    ("choice", "Answer: A, C", None),
    ("choice", "The answer is not B", None),
    ("choice", r"\boxed{A \gg B}. **Answer: D**", "D"),
    ("choice", r"Answer: D. \boxed{planet}", None),
    ("choice", "The answer is A planet", None),
    ("choice", "Answer: I think so", None),
    ("choice", "The answer is A because it orbits", "A"),
    ("choice", "答案：B", "B"),
    ("choice", "Die Antwort ist C.", "C"),
    ("choice", "Réponse : C", "C"),
    ("choice", "B。", "B"),
    ("after:####", "7 + 1\n#### 8\n", "8"),
    ("after:Answer:", "Answer: 1. Answer:\n$\\boxed{5}$\nQuestion:", "5"),
    ("after:####", "8", None),
    ("tag:answer", "<answer>1</answer><answer> 5 </answer> </answer>", "5"),
    ("tag:answer", r"<answer>so \boxed{5}</answer>", "5"),
    ("tag:answer", "<answer>5", None),
    (r"regex:answer is (-?\d+)", "the answer is 4, no, the answer is 55", "55"),
    (r"regex:\d+", "#### 7 \ud800", "7"),
    (r"regex:é (\w)", "é a é b", "b"),
    (r"regex:answer is (\d*)", "the answer is five", None),
    (r"regex:is (?:(\d+)|(\w+))", "it is five", "five"),
)
def test_an_extractor_with_a_setting_reads_what_it_says(extractor, response, answer):
    assert extract(response, extractor) == answer


@each(
    "response",
    "answer" + " " * 500_000 + "?",
    "answer is " * 50_000,
    "1," * 200_000,
    "-" * 500_000,
    "<answer>" * 100_000,
    "\\boxed{" * 40_000 + "5}",
    "\\boxed{5}" + "\\boxed{" * 40_000,
    "\\" * 500_000,
    "{}" * 250_000,
    ids=lambda response: response[:16],
)
def test_half_a_megabyte_takes_every_extractor_little_time(response):
    started = time.process_time()
    for extractor in [*EXTRACTORS, "after:is", "tag:answer"]:
        extract(response, extractor)
    assert time.process_time() - started < 5


@each(
    "pattern, response, answer",
    ("((?:a+)+)$", "a" * 100_000 + "b", None),
    ("(?:1|11)+$", "1" * 100_000 + "2", None),
    ("(?:1|11)+$", "2" + "1" * 5_000, "1" * 5_000),
    ("x[^y]*y|x|z", "x" * 20_000 + "z", "z"),
)
def test_a_regular_expression_takes_time_in_proportion_to_its_response(
    monkeypatch, pattern, response, answer
):
    monkeypatch.setattr(own_extractors, "_MOST_SEARCHED", 1 << 25)
    monkeypatch.setattr(own_extractors, "_TAIL", 1 << 12)
    started = time.process_time()
    assert extract(response, f"regex:{pattern}") == answer
    assert time.process_time() - started < 5


@each(
    "extractor, message",
    ("regex:(", r"'\(' is not valid \(missing \): \("),
    (
        r"regex:(?<=#### )\d+",
        r"is not valid \(invalid perl .*look-around .* do not exist in RE2.*take a group",
    ),
    ("regex:(a)\\1", "back-references do not exist"),
    ("regex: ", "nothing follows the colon"),
    ("tag:<answer>", "without brackets, as in tag:answer"),
    (
        "no_such_module:read",
        "importing no_such_module from .* raised ModuleNotFoundError: No module named 'no_such_module'; fix it",
    ),
    ("numpy:read", "has no function read"),
    ("os:system", "give package.module:function, of a module of your own"),
    ("olr_cli.errors:shown", "give package.module:function, of a module of your own"),
    (
        "broken:read",
        r"importing broken from .* raised ZeroDivisionError: .*broken\.py line 1; fix it",
    ),
    (
        "mine:fails",
        r"mine:fails, on a response, raised ValueError: no answer, .*mine\.py line 6; fix it",
    ),
    ("mine:counts", "returns a int; it must return text, or None"),
)
def test_a_mistake_in_an_extractor_is_named(here, extractor, message):
    (here / "broken.py").write_text("1 / 0\n")
    (here / "mine.py").write_text(OWN)
    with pytest.raises(UserError, match=message):
        extract("so 5", extractor)


OWN = """\
def read(response):
    return response.rpartition("so")[2]


def fails(response):
    raise ValueError("no answer")


counts = len
"""


def test_a_function_of_a_module_in_the_working_folder_reads_answers(here):
    (here / "readers_of_mine.py").write_text(OWN)
    assert extract("so 5\n", "readers_of_mine:read") == "5"
    assert extract(" so ", "readers_of_mine:read") is None


BOXES = (
    "\\boxed",
    "\\boxed{",
    "\\boxed {",
    "{",
    "}",
    "\\{",
    "\\}",
    "\\\\",
    "\\",
    "7",
    " ",
    "\n",
    r"\frac{1}{2}",
    r"\x",
)


@given(st.lists(st.sampled_from(BOXES), max_size=14).map("".join))
def test_a_simple_box_holds_what_counting_its_braces_finds(response):
    start = response.rfind("\\boxed")
    last = extraction._last_box(response, start) if start >= 0 else None
    span = last or extraction._last_box(response, 0)
    counted = None if span is None else response[slice(*span)].strip() or None
    assert extract(response, "boxed") == counted


@given(st.characters(max_codepoint=0x250), st.integers(1, 26), st.booleans())
def test_a_letter_alone_names_the_option_that_a_letter_in_brackets_names(
    letter, options, numbered
):
    alone, bracketed = (
        extraction.option_letter(text, options, numbered=numbered)
        for text in (letter, f"({letter})")
    )
    assert alone == bracketed or not letter.isalnum()


@each(
    "read, response, answer",
    ("first_integer", "−7 of them", "-7"), ("first_integer", "1{,}234", "1234"), ("first_integer", "1,23 and 4", "1"),
    ("first_integer", "v1.2", None), ("last_number", "from 3 to 7", "7"), ("last_number", "10 - 3", "3"),
    ("last_number", "(-3)", "-3"), ("last_number", "3 -4", "-4"), ("last_number", ".5", ".5"),
    ("last_number", "2**3", "2**3"),
    ("text", "a\nb", "a\nb"), ("after:####", "#### 1\n#### 2 m\nmore", "2 m"), ("after:x", "x", None),
    ("tag:a", "<a>1</a> <a>2", "1"), ("tag:a", "</a><a>2", None), ("tag:a", "</a>", None), ("tag:a", "<a></a>", None),
    ("last_answer", "#### A word\nmore", None), ("last_answer", "#### 5\nmore", "5"),
    ("last_answer", "```\n7\n```", "7"), ("last_answer", "```\n7\n```\nand ```", None),
    ("last_answer", "a ``` b", None),
    ("last_answer", "```py\n7\n```\nthen\n```py\n8\n```", "8"), ("last_answer", r"Answer: \(7\)", r"\(7\)"),
    ("last_answer", r"\[x\] Answer: 7 \]", "7"), ("last_answer", "</think>", None),
    ("last_answer", "<think>1</think>\n\nOdd.", "Odd."),
    ("boxed", "<think>1</think>\n\nOdd.", None), ("last_answer", "## Final Answer\n\n", None),
    ("last_answer", "**Final Answer**\n\n**7**\n\nbecause", "7"), ("last_answer", "**7**.", "7"),
    ("last_answer", "**7** so", None),
)  # fmt: skip
def test_what_an_extractor_reads_at_the_edges_of_its_rule(read, response, answer):
    assert extract(response, read) == answer


def test_the_most_specific_extractor_that_reads_more_than_half_is_named():
    boxes, hashes = [r"\boxed{7}"] * 3, ["#### 7"] * 3
    assert (
        reading_more([*boxes, *hashes])
        == "The extractor last_answer reads 6 of 6 responses."
    )
    assert (
        reading_more([*boxes, "", *hashes[:2]])
        == "The extractor last_answer reads 5 of 6 responses."
    )
    assert reading_more([*boxes, "", ""]) == "The extractor boxed reads 3 of 5 responses."
    assert reading_more([*boxes, "", "", ""]) is reading_more([]) is None


@each(
    "label, options, numbered, letter",
    ("A", 1, False, "A"), ("B", 1, False, None), ("D", 4, False, "D"), ("E", 4, False, None), ("z", 26, False, "Z"),
    ("1", 4, True, "A"), ("4", 4, True, "D"), ("5", 4, True, None), ("0", 4, True, None), ("1", 4, False, None),
    ("b", 4, True, "B"), ("12", 12, True, "L"), ("(2) text", 4, True, "B"), ("(2) and (3)", 4, True, None),
    ("(2) and (9)", 4, True, "B"), ("A) x, B) y", 1, False, "A"), ("A) x, B) y", 2, False, None),
)  # fmt: skip
def test_a_letter_or_a_number_names_one_of_the_options(label, options, numbered, letter):
    assert extraction.option_letter(label, options, numbered=numbered) == letter


def test_an_option_is_looked_for_in_the_first_thousand_characters():
    assert extraction.option_letter("B) " + "x" * 993 + ", A) y", 4) is None
    assert extraction.option_letter("B) " + "x" * 994 + ", A) y", 4) == "B"


@each(
    "text, blank, line",
    ("#### 7", None, "7"), ("a #### 7 \nx", None, "7"), ("#### Step\nmore", None, None), ("#### Step", None, "Step"),
    ("7", None, None), ("####", None, None), ("#### \n7", None, "7"), ("#### \n7", " ", None), ("####  7", " ", "7"),
    ("#### 1\n#### 2", None, "2"), ("#### 5 apples\nmore", None, None),
)  # fmt: skip
def test_what_follows_hashes_is_an_answer_unless_it_heads_more(text, blank, line):
    assert extraction.after_hashes(text, blank) == line


def test_of_very_many_matches_only_those_at_the_end_are_searched(monkeypatch):
    monkeypatch.setattr(own_extractors, "_TAIL", 4)
    text = "1 2 3 4 5 6 7 8"  # 8 searches of 15, 13, … 1 characters: 64
    for most, found in ((64, "8"), (20, "8"), (5, "8"), (3, "8")):
        monkeypatch.setattr(own_extractors, "_MOST_SEARCHED", most)
        assert extract(text, r"regex:\d") == found
    monkeypatch.setattr(own_extractors, "_MOST_SEARCHED", 20)
    assert extract("a1 2 3 4 5 6 7 x", r"regex:a|\d$") == "a"
    monkeypatch.setattr(own_extractors, "_MOST_SEARCHED", 1)
    assert extract("a1 2 3 4 5 6 7 x", r"regex:a|\d$") is None


@each(
    "pattern, text, is_found",
    ("a+b", "caab", True),
    ("^b", "ab", False),
    ("é", "é", True),
    (r"\?", "\ud800", True),
)
def test_a_pattern_is_found_in_a_text(pattern, text, is_found):
    assert own_extractors.found_by(pattern)(text) is is_found
