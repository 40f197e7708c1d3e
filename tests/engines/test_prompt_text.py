"""Chat templates: what goes wrong in them is a sentence, and what they make comes back as it is."""

from datetime import date

import pytest
from cases import each
from tokenizers.processors import TemplateProcessing
from transformers import AddedToken, AutoTokenizer

from olr_cli.data.chat import Message
from olr_cli.data.prompts import SYSTEM_PROMPT
from olr_cli.engines.models import policy_path
from olr_cli.engines.prompt_text import (
    ChatFormat,
    render_all,
    stop_ids,
    template_lines,
    tokenize,
    turn_end,
)
from olr_cli.errors import UserError

PROMPTS = [
    (Message("system", "Add."), Message("user", question))
    for question in ("1+1=", "é\u2028{{ 1 }}")
]


def render(template):
    return render_all(
        AutoTokenizer.from_pretrained(policy_path("addition-easier")),
        PROMPTS,
        ChatFormat(template),
    )


@each(
    "template, expected",
    (
        "{{ raise_exception('no system') }}",
        "fails on a prompt of roles system, user .*no system",
    ),
    ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "RecursionError"),
    ("{{ messages.__class__.__mro__ }}", "SecurityError"),
    (
        "{{ 1 / 0 }}",
        "the chat template fails on a prompt of roles system, user .*ZeroDivisionError",
    ),
    ("{{ '\\ud800' }}", "fails on a prompt .*UnicodeEncodeError"),
)
def test_what_goes_wrong_in_a_template_is_a_sentence(template, expected):
    with pytest.raises(UserError, match=expected):
        render(template)


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def base_model():
    """The tokenizer of a base model: it knows the tokens of ChatML, and its end token is another."""
    tokenizer = AutoTokenizer.from_pretrained(policy_path("addition-easier"))
    tokenizer.add_special_tokens(
        {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}
    )
    tokenizer.add_tokens([AddedToken("<|eot|>", special=True)])
    tokenizer.chat_template = CHATML
    return tokenizer


@each(
    "template, closing",
    (None, "<|im_end|>"),
    (CHATML.replace("<|im_end|>", " <|eot|>"), "<|eot|>"),
    (CHATML.replace("<|im_end|>", "<eos>"), "<eos>"),
    (CHATML.replace("<|im_end|>", "###"), None),
    ("{{ messages[-1].content }}", None),
    ("{{ messages[0].content }}<|im_end|>", None),  # of prompts alone
    ("{% if messages | length > 1 %}{{ 1 / 0 }}{% endif %}", None),
    ("", None),
)
def test_the_special_token_after_an_assistants_turn_is_what_closes_it(
    base_model, template, closing
):
    found = turn_end(base_model, ChatFormat(template))
    assert found == (closing and base_model.convert_tokens_to_ids(closing))


def test_a_token_that_decoding_keeps_is_no_token_of_its_own_to_a_stop_text(base_model):
    base_model.add_tokens([AddedToken("<answer>", special=False)])
    assert stop_ids(base_model, ["<answer>", "so <answer>", "x"]) == []
    ends = ["<|eot|>", "<eos>"]
    assert stop_ids(base_model, ends) == base_model.convert_tokens_to_ids(ends)
    assert stop_ids(base_model, []) == []
    with pytest.raises(UserError, match=r"contains the special token <\|eot\|>"):
        stop_ids(base_model, ["so <|eot|>"])


DATED = "Today is {{ strftime_now('%d %b %Y') }}. {{ messages[-1].content }}"


def test_a_template_that_writes_the_date_is_given_the_day_of_the_format():
    tokenizer = AutoTokenizer.from_pretrained(policy_path("addition-easier"))
    for chat in (
        ChatFormat(DATED, day=date(2025, 3, 9)),
        ChatFormat(DATED, {"x": 1}, date(2025, 3, 9)),
    ):
        assert render_all(tokenizer, PROMPTS[:1], chat) == ["Today is 09 Mar 2025. 1+1="]
    assert render_all(tokenizer, PROMPTS[:1], ChatFormat(DATED)) != [
        "Today is 09 Mar 2025. 1+1="
    ]
    tokenizer.chat_template = DATED.replace("'%d %b %Y'", ' "%Y-%m-%d" ')
    assert render_all(tokenizer, PROMPTS[:1], ChatFormat(day=date(2025, 3, 9))) == [
        "Today is 2025-03-09. 1+1="
    ]


def test_a_dry_run_says_that_a_template_writes_the_date(base_model):
    said = "the chat template writes the date, which remains that of a run's start"
    assert not any(said in line for line in template_lines(base_model))
    base_model.chat_template = DATED
    assert any(said in line for line in template_lines(base_model))


def test_a_dry_run_says_where_a_turn_ends_unless_every_response_of_the_model_ends_there(
    base_model,
):
    assert template_lines(base_model) == [
        "a response ends at <|im_end|>, which closes a turn in the chat template"
    ]
    base_model.chat_template = CHATML.replace("<|im_end|>", "<eos>")
    assert template_lines(base_model) == []


@pytest.mark.parametrize("around", ["$A", "$A <eos>", "<bos> $A <eos>", "<bos> $A"])
def test_a_prompt_of_plain_text_does_not_end_with_what_the_tokenizer_appends_to_texts(
    base_model, around
):
    special = [
        (token, base_model.convert_tokens_to_ids(token)) for token in ("<bos>", "<eos>")
    ]
    base_model.backend_tokenizer.post_processor = TemplateProcessing(
        single=around, special_tokens=special
    )
    beginning = [special[0][1]] * around.startswith("<bos>")
    bare = base_model("1+2=", add_special_tokens=False)["input_ids"]
    assert tokenize(base_model, ["1+2="], ChatFormat("")) == [[*beginning, *bare]]


def test_a_template_without_system_role_is_told_apart_by_whose_the_system_message_is():
    tokenizer = AutoTokenizer.from_pretrained(policy_path("addition-easier"))
    chat = ChatFormat(
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    )
    for text, said in (
        (SYSTEM_PROMPT, "set this to none"),
        ("Add.", "change the prompt's messages"),
    ):
        with pytest.raises(
            UserError, match=f"System role not supported.*{said}"
        ) as refused:
            render_all(
                tokenizer, [(Message("system", text), Message("user", "1+1="))], chat
            )
        assert refused.value.place == (
            "data.system_prompt" if text == SYSTEM_PROMPT else ""
        )


def test_texts_come_back_as_they_are():
    assert render("{{ messages[1].content }}\n") == [
        messages[1].content for messages in PROMPTS
    ]
