"""Chat templates: what goes wrong in them is a sentence, and what they make comes back as it is."""

import pytest
from transformers import AutoTokenizer

from olr_cli.data.chat import Message
from olr_cli.engines.models import policy_path
from olr_cli.engines.prompt_text import ChatFormat, render_all
from olr_cli.errors import UserError

PROMPTS = [(Message("system", "Add."), Message("user", question)) for question in ("1+1=", "é\u2028{{ 1 }}")]


def render(template):
    return render_all(
        AutoTokenizer.from_pretrained(policy_path("addition-easier")), PROMPTS, ChatFormat(template)
    )


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ raise_exception('no system') }}", "fails on a prompt of roles system, user .*no system"),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "RecursionError"),
        ("{{ messages.__class__.__mro__ }}", "SecurityError"),
        ("{{ 1 / 0 }}", "the chat template fails on a prompt of roles system, user .*ZeroDivisionError"),
        ("{{ '\\ud800' }}", "fails on a prompt .*UnicodeEncodeError"),
    ],
)
def test_what_goes_wrong_in_a_template_is_a_sentence(template, expected):
    with pytest.raises(UserError, match=expected):
        render(template)


def test_texts_come_back_as_they_are():
    assert render("{{ messages[1].content }}\n") == [messages[1].content for messages in PROMPTS]
