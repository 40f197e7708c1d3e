"""Chat templates that never end or make too much: a sentence, and the process that renders goes on."""

import pytest
from transformers import AutoTokenizer

from olr_cli.data.chat import Message
from olr_cli.engines.limits import LimitExceeded, limited
from olr_cli.engines.models import policy_path
from olr_cli.engines.prompt_text import ChatFormat, render_all
from olr_cli.errors import UserError

LIMITS = {"seconds": 5.0, "memory": 1 << 30, "most_bytes": 1 << 20}
LOOP = "{% for a in range(99999) %}"
PROMPTS = [(Message("system", "Add."), Message("user", question)) for question in ("1+1=", "é\u2028{{ 1 }}")]


def render(template):
    return render_all(
        AutoTokenizer.from_pretrained(policy_path("addition-easier")), PROMPTS, ChatFormat(template)
    )


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ 'a' * 10 ** 11 }}", "the chat template takes more than 1 GiB of memory for 2 prompts; mend"),
        ("{{ '%9999999999d' % 1 }}", "takes more than 1 GiB of memory"),
        (
            "{% set n = namespace(x='ab') %}" + LOOP + "{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
            "takes more than 1 GiB of memory",
        ),
        ("{{ 'a' * 5000000 }}", "makes 5,000,000 characters of a prompt of 8, of roles system, user; mend"),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "RecursionError"),
        ("{{ '\\ud800' }}", "makes no text"),
        pytest.param(
            LOOP * 3 + "{% endfor %}" * 3, "takes more than 10 s of processor time", marks=pytest.mark.slow
        ),
    ],
)
def test_a_template_that_is_beyond_its_limits_is_named_in_a_sentence(template, expected):
    with pytest.raises(UserError, match=expected):
        render(template)


def test_texts_come_back_as_they_are():
    assert render("{{ messages[1].content }}\n") == [messages[1].content for messages in PROMPTS]


def endless():
    yield "begun"
    while True:
        pass


@pytest.mark.parametrize(
    ("texts", "limits", "expected"),
    [
        (endless(), {"seconds": 0.2}, "0.2 s of processor time"),
        (("a" * 1000 for _ in range(10**9)), {}, "1 MiB of text"),
        ((chr(97) * 10**10 for _ in range(2)), {}, "1 GiB of memory"),
    ],
)
def test_a_fork_ends_at_its_limits(texts, limits, expected):
    with pytest.raises(LimitExceeded, match=expected):
        list(limited(texts, **LIMITS | limits))
