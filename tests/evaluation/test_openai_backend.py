"""The backend for OpenAI-compatible servers, against a small one in this process that answers sums."""

import gzip
import json
import time
from pathlib import Path

import pytest
from cases import each
from commands import contents, done, refused
from served import MODEL
from sums import PROBLEMS, SAMPLES, sums

from olr_cli.data.chat import Message
from olr_cli.engines.backends import BackendOptions, openai_backend
from olr_cli.engines.backends.backend import GenerationRequest
from olr_cli.engines.prompt_text import AS_THE_MODEL_HAS_IT, ChatFormat
from olr_cli.errors import UserError
from olr_cli.recipe.sampling import Sampling
from olr_cli.supervision import Rollout

SAMPLING = Sampling(max_new_tokens=16)


def requests(seeds, count=1):
    return [
        GenerationRequest((Message("user", f"{number} + 7 = ?"),), seeds, "")
        for number in range(count)
    ]


def ask(server, wanted, sampling=SAMPLING, chat=AS_THE_MODEL_HAS_IT, **options):
    rollouts = {}
    with BackendOptions(url=server.url, **options).open(MODEL, chat) as backend:
        for finished in backend.stream(wanted, sampling):
            rollouts |= finished
    return rollouts


def test_every_sample_is_a_request_and_returned_in_its_place(server):
    rollouts = ask(server, [*requests([1, 2, 3, 11], count=20), *requests([])])
    assert rollouts[4][0] == Rollout("It is \\boxed{11}.", 6, False)
    assert [rollout.truncated for rollout in rollouts[19]] == [False, False, False, True]
    assert rollouts[19][2].response == "It is \\boxed{27}."
    assert rollouts[20] == []
    assert sorted(body["seed"] for body in server.asked) == sorted([1, 2, 3, 11] * 20)
    plain = {
        "model": MODEL,
        "temperature": 0.6,
        "max_tokens": 16,
        "top_p": 1,
        "top_k": -1,
        "min_p": 0,
    }
    plain |= {
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "repetition_penalty": 1,
        "repeat_penalty": 1,
    }
    assert all(plain.items() <= body.items() for body in server.asked)
    assert not {"stop", "chat_template_kwargs"} & set(server.asked[0])


def test_what_is_set_is_passed_on(server):
    sampling = Sampling(0, 8, top_p=0.9, top_k=5, min_p=0.1, stop=("Q:",))
    ask(
        server,
        requests([1]),
        sampling,
        chat=ChatFormat(variables={"enable_thinking": False}),
    )
    [body] = server.asked
    wanted = {"temperature": 0, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "stop": ["Q:"]}
    assert wanted.items() <= body.items()
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert "seed" not in body


def refusing(status, wording, *names):
    """A server's refusal of the first of these settings that a request has."""

    def refusal(body):
        name = next((name for name in names if name in body), None)
        return None if name is None else (status, wording(name))

    return refusal


@each(
    "refusal",
    refusing(
        400,
        lambda name: {"error": {"message": f"Unknown parameter: '{name}'."}},
        "top_k",
        "top_p",
    ),
    refusing(
        422,
        lambda name: {"detail": [{"loc": ["body", name], "msg": "no"}]},
        "top_k",
        "top_p",
    ),
    refusing(
        400, lambda name: {"error": f"no '{name}', did you mean 'min_p'?"}, "top_p", "top_k"
    ),
    refusing(
        400,
        lambda name: [{"error": f"no {name.title().replace('_', '')}"}],
        "top_p",
        "top_k",
    ),
)
def test_a_neutral_setting_that_a_server_refuses_is_the_servers_in_all_that_is_stored_and_shown(
    server, here, monkeypatch, refusal
):
    monkeypatch.setattr(openai_backend, "ATTEMPTS", 1)
    sums(here)
    server.refusal = refusal
    options = (
        f"--url {server.url} --benchmarks sums.yaml --out o --samples 2 --concurrency 2"
    )
    words = ["evaluate", MODEL, *options.split()]
    for is_first in (True, False):
        result = done(*words)
        assert "Sampled at temperature 0.6; the server's: top_k, top_p." in result.stdout
        assert ("the server refuses top_k, top_p, and" in result.stderr) == is_first
    assert "min_p" in server.asked[-1] and not {"top_k", "top_p"} & server.asked[-1].keys()
    scores, record = (
        json.loads(Path("o", f"{name}.json").read_text())
        for name in ("scores", "evaluation")
    )
    drawn = {
        "temperature": 0.6,
        "top_p": "the server's",
        "top_k": "the server's",
        "min_p": 0.0,
    }
    assert drawn.items() <= scores["sampling"].items()
    [made] = record["generated_by"]
    assert made["sampling"] == {"top_k": "the server's", "top_p": "the server's"}


def test_a_server_that_takes_no_seeds_draws_by_its_own(server):
    server.refusal = refusing(
        422, lambda name: {"detail": [{"loc": ["body", name]}]}, "seed"
    )
    with BackendOptions(url=server.url).open(MODEL) as backend:
        assert len(list(backend.stream(requests([1, 2]), SAMPLING))[-1][0]) == 2
        assert backend.facts["sampling"] == {"seed": "the server's"}


@pytest.mark.parametrize("name", ["top_k", "min_p", "temperature"])
def test_a_setting_that_the_user_chose_is_not_left_out(server, name):
    server.refusal = refusing(400, lambda name: {"error": f"no {name}"}, name)
    with pytest.raises(UserError, match=f"refuses a request .*no {name}"):
        ask(server, requests([1]), Sampling(0.5, 8, top_k=5, min_p=0.1))


@pytest.mark.parametrize("most", [1, 5])
def test_no_more_requests_at_a_time_than_allowed(server, most):
    server.pause = 0.02
    ask(server, requests([1, 2], count=10), concurrency=most)
    assert server.most_at_once == most


@each(
    "trouble",
    (429, {"error": {"message": "slow down"}}),
    (500, b"oh"),
    (503, b"loading", {"Retry_After": "0.01"}),
    *(
        (503, b"", {"Retry_After": wish})
        for wish in ("inf", "nan", "-1", "soon", "Mon, 01 Jan 1990 01:02:03 GMT")
    ),
    "hang up",
    "cut",
    (200, b"<html>"),
    (200, b"[" * 100_000),
    (200, b'{"choices": [{"message": {"content": ' + b"9" * 5000 + b"}}]}"),
    (200, {"choices": [{"message": {"content": 7}}]}),
    (200, {"choices": []}),
    (200, {"error": {"message": "engine died"}}),
    (
        200,
        {"error": {"message": "overloaded"}, "choices": [{"message": {"content": "41"}}]},
    ),
    (200, {"choices": [{"message": {"content": "41"}, "error": {"code": 502}}]}),
    *(
        (
            200,
            {"choices": [{"message": {"content": "\\boxed{41}"}, "finish_reason": reason}]},
        )
        for reason in ("error", "abort", "ABORTED", "FinishReason.ERROR", "cancelled")
    ),
    (200, b" " * (1 << 20) + b"{}"),
    (200, gzip.compress(b" " * (1 << 21)), {"Content_Encoding": "gzip"}),
    (
        200,
        gzip.compress(gzip.compress(b" " * (1 << 24))),
        {"Content_Encoding": "gzip, gzip"},
    ),
    (200, b"no gzip", {"Content_Encoding": "gzip"}),
)
def test_what_passes_is_tried_again(server, monkeypatch, trouble):
    monkeypatch.setattr(openai_backend, "MOST_BYTES", 1 << 20)
    server.troubles = [trouble, trouble]
    assert ask(server, requests([1])) == {0: [Rollout("It is \\boxed{7}.", 6, False)]}
    assert len(server.asked) == 3


def test_a_compressed_reply_is_read(server):
    reply = {"choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]}
    server.troubles = [
        (200, gzip.compress(json.dumps(reply).encode()), {"Content_Encoding": "gzip"})
    ]
    assert ask(server, requests([1])) == {0: [Rollout("42", None, False)]}
    assert len(server.asked) == 1


@each(
    "reason, is_cut, ended_by",
    *(
        (reason, True, None)
        for reason in ("length", "max_tokens", "MAX_TOKENS", "FinishReason.MAX_TOKENS")
    ),
    *((reason, False, None) for reason in ("stop", "STOP", "eos", None)),
    ("content_filter", False, "content_filter"),
    ("SAFETY", False, "content_filter"),
    ("refusal", False, "refusal"),
    ("tool_calls", False, "tool_calls"),
    ("function_call", False, "tool_calls"),
)
def test_why_a_response_ended_is_read_in_every_spelling(server, reason, is_cut, ended_by):
    server.troubles = [
        lambda reply: (reply["choices"][0].update(finish_reason=reason), reply)[1]
    ]
    [[rollout]] = ask(server, requests([1])).values()
    assert (rollout.response, rollout.truncated, rollout.ended_by) == (
        "It is \\boxed{7}.",
        is_cut,
        ended_by,
    )


@each(
    "message, ended_by",
    ({"content": None, "refusal": "I cannot."}, "refusal"),
    ({"content": None, "tool_calls": [{"function": {"name": "add"}}]}, "tool_calls"),
    ({"content": "4", "refusal": None, "tool_calls": []}, None),
)
def test_a_refusal_and_a_tool_call_are_known_by_the_message_too(server, message, ended_by):
    server.troubles = [lambda reply: (said(**message)(reply), reply)[1]]
    [[rollout]] = ask(server, requests([1])).values()
    assert rollout.ended_by == ended_by


def test_of_several_choices_the_first_by_its_index_is_taken(server):
    choices = [
        {"index": n, "message": {"content": str(n)}, "finish_reason": "stop"}
        for n in (2, 0, 1)
    ]
    server.troubles = [(200, {"choices": choices})]
    [[rollout]] = ask(server, requests([1])).values()
    assert rollout.response == "0"


def test_the_error_of_a_reply_with_status_200_is_said_where_its_sample_is_lost(server):
    server.troubles = [(200, {"error": {"message": "engine died"}})] * 8
    with pytest.raises(
        UserError, match=r"its reply of status 200 is an error: engine died\)"
    ):
        ask(server, requests([1]), concurrency=1)


@each(
    "reply, told",
    ({"error": {"message": "no credits", "code": 402}}, "no credits"),
    ({"error": {"message": "no credits", "code": "402"}}, "no credits"),
    ({"error": {"message": "too long", "type": "invalid_request_error"}}, "too long"),
    ({"error": {"message": "no quota", "code": "insufficient_quota"}}, "no quota"),
    ({"error": {"message": "no key", "status": "INVALID_ARGUMENT"}}, "no key"),
    ({"object": "error", "message": "too long", "type": "BadRequestError"}, "too long"),
    (
        {
            "choices": [
                {"message": {"content": "4"}, "error": {"code": 403, "message": "no"}}
            ]
        },
        "no",
    ),
)
def test_a_permanent_error_of_status_200_ends_it_after_the_attempts_of_one_request(
    server, reply, told
):
    server.troubles = [(200, reply)] * 99
    sentence = (
        rf"refuses a request in 8 attempts \(its reply of status 200 is an error: {told}\)"
    )
    with pytest.raises(UserError, match=sentence):
        ask(server, requests([1, 2, 3], count=5), concurrency=1)
    assert len(server.asked) == 8


@each(
    "error",
    "engine died",
    {"message": "upstream", "code": 502},
    {"message": "slow down", "code": "429", "type": "rate_limit_error"},
    {"message": "overloaded", "type": "overloaded_error"},
    {"code": None},
)
def test_an_error_of_status_200_that_may_pass_costs_its_sample_alone(server, error):
    server.troubles = [(200, {"error": error})] * 8
    with pytest.raises(UserError, match="1 of 15 samples are lost"):
        ask(server, requests([1, 2, 3], count=5), concurrency=1)
    assert len(server.asked) == 8 + 14


def test_responses_that_something_else_ended_are_counted_in_table_and_json(server, here):
    sums(here)
    reasons = iter(["content_filter", "tool_calls", "content_filter"])

    def ended(reply):
        reply["choices"][0].update(finish_reason=next(reasons))
        return reply

    server.troubles = [ended] * 3
    words = [
        "evaluate",
        MODEL,
        "--url",
        server.url,
        "--benchmarks",
        "sums.yaml",
        "--concurrency",
        "1",
    ]
    sentence = "the server ended 3 responses otherwise (content_filter 2, tool_calls 1)"
    assert sentence in " ".join(done(*words).stdout.split())
    found = json.loads(done(*words, "--json").stdout)  # from what is stored
    assert found["evaluations"][0]["scores"][0]["ended_by"] == {
        "content_filter": 2,
        "tool_calls": 1,
    }
    assert any(sentence in note for note in found["notes"])


def said(**message):
    """A change of a reply's message."""
    return lambda reply: reply["choices"][0]["message"].update(message)


@each(
    "change, tokens, response",
    (lambda reply: reply.pop("usage"), None, "It is \\boxed{7}."),
    *(
        (lambda reply, usage=usage: reply.update(usage=usage), None, "It is \\boxed{7}.")
        for usage in (None, *({"completion_tokens": n} for n in (10**30, -1, "6", True)))
    ),
    (said(content=[{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]), 6, "42"),
    (said(content="4\ud8002"), 6, "4?2"),
    (said(content=None), 6, ""),
    (said(content="4", reasoning_content="hm"), 6, "<think>\nhm\n</think>\n\n4"),
    (said(content=None, reasoning_content="hm"), 6, "<think>\nhm"),
)
def test_a_reply_may_say_less_or_otherwise(server, change, tokens, response):
    server.troubles = [lambda reply: (change(reply), reply)[1]]
    [[rollout]] = ask(server, requests([1])).values()
    assert (rollout.tokens, rollout.response, len(server.asked)) == (tokens, response, 1)


@each(
    "trouble, pause, timeout, least, most",
    # A limit that a busy machine can keep to: opening the server is under it, too.
    ((429, b"", {"Retry_After": "1e9"}), 0, 2, 2, 60),
    (None, 30, 2, 2, 30),
    ((429, b"", {"Retry_After": "0.7"}), 0, None, 0.7, 60),
)
def test_waits_are_as_long_as_the_server_asks_and_never_longer_than_the_time_limit(
    server, trouble, pause, timeout, least, most
):
    server.troubles, server.pauses = [trouble], [pause]
    began = time.monotonic()
    ask(server, requests([1]), timeout=timeout)
    assert len(server.asked) == 2 and least <= time.monotonic() - began < most


@each(
    "troubles, told",
    (
        [(400, {"error": {"message": "bad thing\nhere."}})],
        "refuses a request (status 400: bad thing",
    ),
    (
        [(401, {"error": {"message": "no key"}})],
        "set the environment variable OPENAI_API_KEY",
    ),
    ([(400, b"[" * 100_000)], "refuses a request (status 400: [["),
    (
        [(401, {"error": "wrong key: top-secret"})],
        "refuses the key in OPENAI_API_KEY (status 401: wrong",
    ),
    (
        [(200, b"<html>")] * 99,
        "otherwise than a chat completion, '<html>'; is the URL that of an OpenAI",
    ),
    (
        [(500, {"detail": "engine died"})] * 99,
        " requests in a row, in 8 attempts each (status 500",
    ),
    (["cut"] * 8, "1 of 15 samples are lost: "),
)
def test_what_does_not_pass_is_one_sentence(server, monkeypatch, troubles, told):
    if "the key" in told:
        monkeypatch.setenv("OPENAI_API_KEY", "top-secret")
    server.troubles = troubles
    with pytest.raises(UserError) as caught:
        ask(server, requests([1, 2, 3], count=5), concurrency=1)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_a_limit_by_its_newer_name_also_for_requests_that_run_when_it_is_found_out(server):
    # Both are sent before the first reply; the second one's comes after the switch
    server.pauses = [
        0.1,
        0.6,
    ]
    server.troubles = [
        (400, {"error": {"message": "use 'max_completion_tokens' instead"}})
    ] * 2
    ask(server, requests([1, 2, 3]), concurrency=2)
    names = [
        sorted({"max_tokens", "max_completion_tokens"} & set(body)) for body in server.asked
    ]
    assert sorted(names) == [["max_completion_tokens"]] * 3 + [["max_tokens"]] * 2


def test_the_key_comes_from_the_environment(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret\n")
    ask(server, requests([1]))
    assert set(server.keys) == {"Bearer secret"}


@pytest.mark.parametrize("key", ["sec\nret", "s\u00e9cret", "sec\0ret"])
def test_a_key_that_cannot_be_sent_is_not_shown(server, monkeypatch, key):
    with pytest.raises(
        UserError, match="OPENAI_API_KEY has a character that no key has"
    ) as caught:
        monkeypatch.setattr(openai_backend.os, "environ", {"OPENAI_API_KEY": key})
        ask(server, requests([1]))
    assert "ret" not in str(caught.value).removeprefix("OPENAI_API_KEY")


def test_user_password_and_query_of_the_address_are_sent_and_neither_stored_nor_shown(
    server,
):
    address = server.url.replace("//", "//me:pass@") + "?token=hidden"
    with BackendOptions(url=address).open(MODEL) as backend:
        assert backend.facts["url"] == server.url
        list(backend.stream(requests([1]), SAMPLING))
        server.troubles = [
            (400, {"error": "no: POST /v1?token=hidden, Basic bWU6cGFzcw==, pass"})
        ]
        with pytest.raises(
            UserError, match=rf"^{server.url} refuses.*: no: POST /v1\?…, Basic …, …\)"
        ):
            list(backend.stream(requests([1]), SAMPLING))
    assert set(server.keys) == {"Basic bWU6cGFzcw=="}
    assert set(server.paths) == {
        "/v1/models?token=hidden",
        "/v1/chat/completions?token=hidden",
    }


@each(
    "model, change, told",
    ("org/ader", {}, "has no model 'org/ader' (did you mean 'org/adder'?)"),
    (MODEL, {"url": "http://127.0.0.1:9/v1"}, "no server answers at http://127.0.0.1:9/v1"),
    *(
        (MODEL, {"url": url}, "url: this is no URL of a server")
        for url in ("localhost", "http://me:pass@h:port", "http://h:99999999", "")
    ),
    (
        MODEL,
        {"chat": ChatFormat(template="{{ messages }}")},
        "chat_template: a server renders",
    ),
    (MODEL, {"name": "vllm"}, "url: the backend openai is a server"),
)
def test_what_cannot_be_opened_is_one_sentence(server, model, change, told):
    options = {"name": "openai", "url": server.url, "chat": AS_THE_MODEL_HAS_IT} | change
    chat = options.pop("chat")
    with pytest.raises(UserError) as caught:
        BackendOptions(**options).open(model, chat)
    assert told in str(caught.value)


@pytest.mark.slow
def test_an_evaluation_that_the_server_ends_goes_on_with_the_same_bytes(
    server, here, monkeypatch
):
    sums(here)
    words = [
        "evaluate",
        MODEL,
        "--url",
        server.url,
        "--benchmarks",
        "sums.yaml",
        "--concurrency",
        "4",
    ]

    done(*words)
    assert len(server.asked) == PROBLEMS * SAMPLES
    server.asked.clear()
    server.troubles = [None] * 100 + [(403, {"error": "the key has expired"})]
    assert "refuses a request without a key" in refused(*words, "--out", "again")
    asked = len(server.asked)
    server.troubles = []
    monkeypatch.setattr(openai_backend, "ATTEMPTS", 1)
    server.troubles = ["cut"]
    assert (
        "1 of" in (told := refused(*words, "--out", "again")) and "samples are lost" in told
    )
    assert len(server.asked) - asked <= PROBLEMS * SAMPLES - 96
    asked = len(server.asked)
    server.troubles = []
    done(*words, "--out", "again")
    assert len(server.asked) - asked == 1
    assert contents(here / "again") == contents(here / "evaluations" / "org-adder")
