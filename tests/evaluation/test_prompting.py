"""What `olr evaluate` can change in a prompt: system message and chat template; seen with `olr benchmarks`."""

from pathlib import Path

import pytest
from cases import each, refusal
from commands import done, refused
from make_toys import build_tokenizer
from samples import json_lines
from sums import Backend, run, sums

from olr_cli.data.chat import Message
from olr_cli.engines.prompt_text import ChatFormat, render, render_all, tokenize
from olr_cli.evaluation.prompting import Prompting, read_prompting

MODEL = "builtin:addition-easier"
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if not deep %}<quick>{% endif %}"


@pytest.fixture(autouse=True)
def somewhere(here):
    Path("t.jinja").write_text(TEMPLATE)
    json_lines(Path("mine.jsonl"), {"question": "1+1=", "answer": "2"})
    Path("mine.yaml").write_text("name: mine\nsystem: Think.\nsource: {file: mine.jsonl}\n")


WORDS = ("benchmarks", "mine.yaml", MODEL)


@each(
    "words, prompt",
    ([], "1+1="),  # the built-in policy's template shows the question alone
    (["--system", "none", "--chat-template", "none"], "1+1="),
    (["--system", "Be quick.", "--chat-template", "none"], "Be quick.\n\n1+1="),
    (["--chat-template", "none"], "Think.\n\n1+1="),
    (["--chat-template", "t.jinja"], "<system>Think.<user>1+1=<quick>"),
    (["--chat-template", "t.jinja", "--template", "deep=true"], "<system>Think.<user>1+1="),
    (
        ["--chat-template", "t.jinja", "--template", "deep=false"],
        "<system>Think.<user>1+1=<quick>",
    ),
)
def test_a_prompt_is_shown_as_the_settings_make_it(words, prompt):
    assert done(*WORDS, *words).stdout == f"{prompt}\ngold: 2\n"


@each(
    "words, sentence",
    (["--system", " "], "--system: the text is empty"),
    (["--chat-template", "nowhere.jinja"], "nowhere.jinja does not exist"),
    (
        ["--chat-template", "none", "--template", "deep=true"],
        "there is no chat template to take it",
    ),
    (
        ["--chat-template", "t.jinja", "--template", "deap=true"],
        "no such variable (did you mean",
    ),
    (["--chat-template", "t.jinja", "--template", "messages=1"], "no such variable"),
    (
        ["--chat-template", "t.jinja", "--template", "deep"],
        "--template: deep is no setting; write it as key=value",
    ),
    (
        ["--chat-template", "t.jinja", "--template", "deep=[1"],
        "--template: deep: the value [1 is not",
    ),
)
def test_a_wrong_setting_is_one_sentence(words, sentence):
    assert sentence in refused(*WORDS, *words)


def test_values_of_the_template_are_typed_as_in_yaml():
    words = ["a=false", "b=3", "c=high", "d=null", "e=x=y"]
    assert read_prompting(None, None, words).chat.variables == {
        "a": False, "b": 3, "c": "high", "d": None, "e": "x=y",
    }  # fmt: skip


def test_a_template_in_place_of_the_models_own_writes_the_special_tokens_itself():
    tokenizer = build_tokenizer(32)
    tokenizer.chat_template = "never"
    turns = [Message("user", "1+1=")]
    chat = ChatFormat("{{ bos_token }}{{ messages[0].content }}")
    assert render(tokenizer, turns, chat) == f"{tokenizer.bos_token or ''}1+1="
    assert render(tokenizer, turns, ChatFormat("")) == "1+1="
    plain = tokenize(
        tokenizer, render_all(tokenizer, [turns], ChatFormat("")), ChatFormat("")
    )
    assert plain == [tokenizer("1+1=")["input_ids"]]


def test_a_response_among_the_turns_of_plain_text_follows_its_question():
    turns = [
        Message("system", "Add."),
        Message("user", "1+1="),
        Message("assistant", "2"),
        Message("user", "2+2="),
    ]
    assert render(build_tokenizer(32), turns, ChatFormat("")) == "Add.\n\n1+1= 2\n\n2+2="


def test_an_evaluation_goes_on_with_the_prompts_that_it_began_with(tmp_path):
    benchmark, folder = sums(tmp_path), tmp_path / "evaluation"
    prompting = Prompting("Add.", ChatFormat(TEMPLATE, {"deep": True}))
    run(folder, [benchmark], Backend(), prompting=prompting)
    run(folder, [benchmark], prompting=prompting)
    said = refusal(run, folder, [benchmark], prompting=Prompting("", ChatFormat("")))
    assert "(system: Add. -> none; chat_template: sha256:" in said
    assert "-> none; template: {'deep': True} -> default); ask as before" in said
