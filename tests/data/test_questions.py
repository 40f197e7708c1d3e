"""When two prompts ask the same question (R24), and everything that this decides."""

import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from cases import each
from commands import done
from hypothesis import given, strategies as st
from samples import SAME_QUESTION, json_lines, questions

from olr_cli.api import OnlineLabelRefinement
from olr_cli.data.chat import Message
from olr_cli.data.check import repeat_notes
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.prompts import Prompt
from olr_cli.data.questions import QuestionIds, asks_the_same, normal_question, same_prompts
from olr_cli.data.sets import training_data
from olr_cli.data.verified import VerifiedLabels
from olr_cli.recipe.schema import Recipe

Form = Callable[[str], str]
forms = pytest.mark.parametrize("form", SAME_QUESTION.values(), ids=SAME_QUESTION)

texts = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cn"])
    | st.sampled_from(" \n\t?$\\(1+a\u00e9\u200b=.:")
)
spaces = st.text(st.sampled_from(" \t\n\r\u00a0\u2003\u2028"), min_size=1)
unseen = st.text(st.sampled_from("\u200b\u200d\u00ad\ufeff\u2060\u202e\U000e0041"))


def normal(text: str) -> str:
    return normal_question([Message("user", text)])


# Laws -------------------------------------------------------------------------------------------------------------


@given(texts, st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_the_unicode_form_makes_no_other_question(text, form):
    assert normal(unicodedata.normalize(form, text)) == normal(text)


@given(texts, spaces, spaces, spaces)
def test_spaces_and_line_breaks_make_no_other_question(text, before, between, after):
    assert normal(before + between.join(text.split()) + after) == normal(
        " ".join(text.split())
    )


@given(texts, unseen, st.integers(min_value=0))
def test_format_characters_make_no_other_question(text, characters, place):
    place %= len(text) + 1
    assert normal(text[:place] + characters + text[place:]) == normal(text)


@given(
    st.text(
        st.characters(
            categories=["L", "N", "P", "Zs"], max_codepoint=0x24F, exclude_characters="ıſŉ"
        )
    )
)
def test_case_makes_no_other_question(text):
    assert normal(text.upper()) == normal(text) == normal(text.lower())


@given(st.lists(st.text("abc 1+", min_size=1).filter(str.strip), min_size=1))
def test_question_marks_make_no_other_question(sentences):
    assert normal("? ".join(sentences) + "?") == normal(" ".join(sentences))


@given(st.text("abcxyz0123456789", min_size=1), st.text("abcxyz0123456789", min_size=1))
def test_other_words_are_another_question(one, other):
    assert (normal(one) == normal(other)) is (one == other)
    assert (normal(f"{one} {other}") == normal(one + other)) is False


@given(texts, texts, st.sampled_from(["system", "assistant"]))
def test_what_the_user_says_is_the_question_whatever_others_say(text, said, role):
    assert normal_question([Message(role, said), Message("user", text)]) == normal(text)


def test_every_turn_of_the_user_counts():
    examples = [Message("user", "1+1"), Message("assistant", "2"), Message("user", "2+2")]
    assert normal_question(examples) == normal("1+1\n2+2") != normal("2+2")


@each(
    "question, text, prompt_id",
    ("What is 3 + 4?", "what is 3+4", "q-2fecce3a5a2a"),
    ("If $x = 2$, find \\( x^2 \\).", "if x=2,find x^2", "q-83ea9915ea6f"),
)
def test_ids_of_plain_questions_are_those_of_every_earlier_version(
    question, text, prompt_id
):
    assert normal(question) == text
    assert QuestionIds().next([Message("user", question)]) == prompt_id


# What it decides --------------------------------------------------------------------------------------------------


def rows(path: Path, asked: list[str], **answers: str) -> Path:
    return json_lines(
        path, *({"question": question, "answer": "1"} | answers for question in asked)
    )


@forms
def test_ids_and_repetitions(tmp_path, form):
    once = questions(3)
    prompts = read_prompts(
        rows(tmp_path / "rows.jsonl", once + [form(question) for question in once])
    )
    names = [prompt.prompt_id.removesuffix("-2") for prompt in prompts.prompts]
    assert names[:3] == names[3:] and len(set(names)) == 3
    assert len({prompt.prompt_id for prompt in prompts.prompts}) == 6
    (note,) = repeat_notes(prompts)
    assert note.startswith("3 questions are in rows.jsonl more than once")


@forms
def test_ids_in_a_loop_of_ones_own(form):
    asked = [
        text
        for question in questions(2)
        for text in dict.fromkeys((question, form(question)))
    ]
    with OnlineLabelRefinement() as olr:
        step = olr(
            [text for text in asked for _ in range(2)],
            [r"\boxed{1}"] * len(asked) * 2,
            ["1"] * len(asked) * 2,
        )
    names = [label.prompt_id for label in step.labels]
    assert len(set(names)) == len(asked)
    assert len({name.removesuffix("-2") for name in names}) == 2


@forms
def test_a_share_that_is_held_out(tmp_path, form):
    once = questions(40)
    file = rows(tmp_path / "rows.jsonl", once + [form(question) for question in once])
    train, held_out = training_data(
        Recipe.model_validate({"data": {"train": str(file), "held_out": 0.1}})
    )
    assert held_out is not None and (len(train), len(held_out)) == (72, 8)

    def numbers(prompts: tuple[Prompt, ...]) -> set[str]:
        texts = (
            unicodedata.normalize("NFKC", prompt.messages[-1].content) for prompt in prompts
        )
        return {
            found[1]
            for text in texts
            if (found := re.search(r"(\d+)\W+pl", text, re.IGNORECASE))
        }

    assert len(numbers(held_out.prompts)) == 4
    assert not numbers(train.prompts) & numbers(held_out.prompts)


@forms
def test_verified_labels(tmp_path, form):
    asked = questions(3)
    prompts = read_prompts(rows(tmp_path / "train.jsonl", asked)).prompts
    file = rows(
        tmp_path / "verified.jsonl", [form(question) for question in asked[:2]], answer="7"
    )
    assert [prompt.true_answer for prompt in VerifiedLabels.read(file).mark(prompts)] == [
        "7",
        "7",
        None,
    ]
    turns = [
        (Message("user", text),) for text in (asked[0], form(asked[0]), form(asked[1]))
    ]
    assert asks_the_same(turns[0], turns[1]) and not asks_the_same(turns[0], turns[2])


@forms
def test_logs_that_are_matched_by_text(form):
    data = [
        Prompt(f"p{at}", (Message("user", text),), "1", None, None)
        for at, text in enumerate(questions(12))
    ]
    logged = {
        prompt.prompt_id[1:]: Prompt(
            "", (Message("user", form(prompt.messages[0].content)),), "1", None, None
        )
        for prompt in data
    }
    same = same_prompts(logged, data)
    assert {f"p{name}": prompt.prompt_id for name, prompt in same.items()} == {
        p.prompt_id: p.prompt_id for p in data
    }


@pytest.mark.parametrize(
    "form", ["case", "space", "no-break space", "decomposed", "zero-width space"]
)
def test_a_question_that_stands_in_a_longer_text_of_a_log(form):
    data = [
        Prompt(f"p{at}", (Message("user", text),), "1", None, None)
        for at, text in enumerate(questions(12))
    ]
    longer = f"Solve this. {SAME_QUESTION[form](questions(12)[1])} Think first."
    same = same_prompts(
        {"logged": Prompt("", (Message("user", longer),), "1", None, None)}, data
    )
    assert same["logged"].prompt_id == "p1"


@forms
def test_check(tmp_path, form):
    (question,) = questions(1)
    file = tmp_path / "x.jsonl"
    for label, kind in (("1", "repeat"), ("2", "conflict")):
        json_lines(
            file,
            {"question": question, "answer": "1"},
            {"question": form(question), "answer": label},
        )
        found = json.loads(done("check", file, "--json").stdout)["findings"]
        assert [it["kind"] for it in found if it["kind"] != "template"] == [kind]
