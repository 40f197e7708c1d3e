"""Unpack JSON objects into rollouts, for trainers and programs that do not store one object per rollout.

Each `_of_…` function reads the objects of one program, which `log_formats.py` lists with its sources.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, takewhile
from typing import Any, TypeAlias

from olr_cli.data.chat import prompt_messages, response_text
from olr_cli.data.labels import golds_of
from olr_cli.data.rows import walk
from olr_cli.files import storable

_Row: TypeAlias = dict[str, Any]

_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""inspect_ai's scores that are letters: correct, partial, incorrect, no answer (inspect_ai/scorer/_metric.py)."""

_CUT = {
    "length",
    "max_turns",
    "max_input_tokens",
    "max_output_tokens",
    "max_total_tokens",
    "context_length",
}
"""Reasons why a trace of verifiers, or a reply in it, has stopped at a limit (`Trace.is_truncated`)."""


def unpacked(row: _Row) -> list[_Row]:
    """Return the rollouts in one object of a JSON log; most objects are one rollout and are returned unchanged.

    In an object of ms-swift or NeMo-RL, lists have one item per rollout. Objects of verifiers, inspect_ai, OpenCompass,
    evalscope, NeMo Gym and lm-eval each have a function that converts them (`_PACKED`).
    """
    for marks, rollouts in _PACKED:
        if marks <= row.keys():
            # An object with the right keys and another structure is not of that program. It then stays as it is,
            # and the error about its missing columns names them.
            with suppress(
                TypeError,
                ValueError,
                LookupError,
                AttributeError,
                StopIteration,
                RecursionError,
            ):
                return rollouts(row)
    texts = row.get("completion", row.get("content"))
    is_packed = {"step", "advantages"} <= row.keys() or "rewards" in row
    if not isinstance(texts, list) or not is_packed:
        return [row]
    lists = {
        key: items
        for key, items in row.items()
        if isinstance(items, list) and len(items) == len(texts)
    }
    return [
        _with_response({**row, **{key: items[place] for key, items in lists.items()}})
        for place in range(len(texts))
    ]


def _with_response(row: _Row) -> _Row:
    """Return a rollout with prompt and response in place of NeMo-RL's `content`; without `content`, it stays unchanged.

    In training, `content` holds the texts of all turns, and the last one is the response. In validation, it holds the
    turns as messages.
    """
    turns = row.get("content")
    if not isinstance(turns, list) or not turns:
        return row
    others = {key: value for key, value in row.items() if key != "content"}
    if all(isinstance(it, str) for it in turns):
        return others | {"prompt": "\n".join(turns[:-1]), "response": turns[-1]}
    with suppress(TypeError, LookupError, ValueError):
        return others | _last_reply(turns)
    return row


def _last_reply(turns: Sequence[Mapping[str, Any]]) -> _Row:
    """Split a dialogue into `response`, which is the assistant's last turn, and `prompt`, the turns before it.

    Raises:
        ValueError: the assistant has no turn.
    """
    last = max(at for at, turn in enumerate(turns) if turn["role"] == "assistant")
    return {"prompt": turns[:last], "response": [turns[last]]}


def _of_episode(row: _Row) -> list[_Row]:
    """Return a rollout for each trace in an episode of verifiers; `row` may also be a single trace.

    A trace is the record of one conversation, and an episode holds the traces of one attempt at a task. A failed
    episode without traces gives a rollout without a response.
    """
    # An episode without traces has failed: it is a rollout without a response.
    return [_of_trace(it, row) for it in row.get("traces", [row]) or [{"ok": False}]]


def _of_trace(trace: Mapping[str, Any], episode: Mapping[str, Any]) -> _Row:
    """Return the rollout of a trace, which is the record of one conversation in an episode of verifiers.

    If the trace or the episode failed, the response is None. The field `rewards.NAME` is one reward without its weight,
    and `reward` is the weighted sum of all rewards. For a trace without an episode, `episode` is the trace itself.
    """
    data = walk(trace, ["task", "data"]) or episode["task"]["data"]
    nodes = trace.get("nodes", [])
    opening = takewhile(lambda node: not node.get("sampled"), nodes)
    replies = [node["message"] for node in nodes if node.get("sampled", True)]
    # `ok` before `errors`: a trace that succeeded at the second attempt still has the errors of the first.
    is_ok = all(it.get("ok", not it.get("errors")) for it in (episode, trace))
    rewards = _rewards(trace.get("rewards", {}))
    ends = [
        trace.get("stop_condition"),
        *(it.get("finish_reason") for it in trace.get("calls", [])),
    ]
    return {
        "trace": trace.get("id"),
        "step": walk(episode, ["run", "work", "step"]),
        "group": walk(episode, ["group", "id"]),
        "prompt": data.get("prompt") or [node["message"] for node in opening] or None,
        "response": response_text(replies) if is_ok else None,
        "reward": sum(score * weight for score, weight in rewards.values())
        if rewards
        else None,
        "truncated": not _CUT.isdisjoint(ends),
        **{f"rewards.{name}": score for name, (score, _) in rewards.items()},
        **{f"task.data.{name}": value for name, value in data.items()},
    }


def _rewards(rewards: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return name -> (score, weight) for the rewards of a trace, without rewards that are None."""
    given = {name: it for name, it in rewards.items() if it is not None}
    whole = {
        name: it if isinstance(it, dict) else {"score": it} for name, it in given.items()
    }
    return {
        name: (float(it["score"] if "score" in it else it["value"]), it.get("weight", 1.0))
        for name, it in whole.items()
    }


def _of_inspect(row: _Row) -> list[_Row]:
    """Return a list with the rollout of a sample of inspect_ai; a sample that ended in an error has no response.

    A sample is the record of one question in an evaluation. The options of a multiple-choice question become lines
    below it, and its target letters become one right answer, such as ``A, C``. For any other question with several
    targets, each target is right. `scores.NAME` is the score by the scorer NAME, as a number.
    """
    prompt, target, output = row["input"], row["target"], row["output"]
    if options := row.get("choices"):
        lines = [f"{chr(ord('A') + at)}) {text}" for at, text in enumerate(options)]
        *before, asked = prompt_messages(prompt) or ()
        text = "\n".join([asked.content, *lines])
        prompt = [*prompt[:-1], {"role": asked.role, "content": text}] if before else text
        target = ", ".join(target) if isinstance(target, list) else target
    reply = output.get("completion") or walk(output, ["choices", "0", "message", "content"])
    others = {name: it for name, it in row.items() if name not in ("input", "scores")}
    facts = {
        "prompt": prompt,
        "response": None
        if row.get("error")
        else response_text([{"role": "assistant", "content": reply}]),
        "target": _target(target),
        "output": output.get("model"),
        "truncated": walk(output, ["choices", "0", "stop_reason"])
        in ("max_tokens", "model_length"),
    }
    scores = row.get("scores") or {}
    return [
        others | facts | _as_numbers({name: it["value"] for name, it in scores.items()})
    ]


def _as_numbers(scores: Mapping[str, Any]) -> _Row:
    """Return the scores of a sample as ``scores.NAME`` -> number, where NAME is the scorer; `scores` is NAME -> score.

    If a score is an object, each of its parts gives a number (``scores.NAME.PART``). The letters by which inspect_ai
    grades become numbers, such as 1 for C. Any other text is left out.
    """
    parts = {
        f"scores.{name}" + f".{part}" * bool(part): value
        for name, score in scores.items()
        for part, value in (score if isinstance(score, dict) else {"": score}).items()
    }
    numbers = {
        name: _GRADES.get(it, it) if isinstance(it, str) else it
        for name, it in parts.items()
    }
    return {name: float(it) for name, it in numbers.items() if isinstance(it, int | float)}


def _of_opencompass(row: _Row) -> list[_Row]:
    """Return a list with the rollout of a prediction of OpenCompass.

    The list is empty if the model wrote no response, because it only compared the likelihoods of given answers.
    """
    if any(name.startswith("label: ") for name in row) or "choices" in row:
        return []
    asked = row["origin_prompt"]
    if not isinstance(asked, str):
        roles = {"HUMAN": "user", "BOT": "assistant", "SYSTEM": "system"}
        asked = [{"role": roles[it["role"]], "content": it["prompt"]} for it in asked]
    return [row | {"prompt": asked, "gold": _target(row.get("gold"))}]


def _of_evalscope(row: _Row) -> list[_Row]:
    """Return a list with the rollout of a review of evalscope.

    A review has the dialogue or, in older versions, only the input and the prediction.
    """
    score, turns = row["sample_score"]["score"], row.get("messages")
    exchange = {"prompt": row.get("input"), "response": score.get("prediction")}
    others = {name: it for name, it in row.items() if name not in ("input", "messages")}
    return [
        others | (_last_reply(turns) if turns else exchange) | _as_numbers(score["value"])
    ]


def _of_gym(row: _Row) -> list[_Row]:
    """Return a list with the rollout of a request and its reply, as NeMo Gym stores them in one object."""
    reply = response_text(row["response"]["output"])
    return [row | {"prompt": row["responses_create_params"]["input"], "response": reply}]


def _of_lm_eval(row: _Row) -> list[_Row]:
    """Return a rollout for each response to a problem of lm-eval.

    The list is empty if the model wrote no response, because it only compared the likelihoods of given answers.
    """
    replies = chain(*(part if isinstance(part, list) else [part] for part in row["resps"]))
    # null is an API's reply without text, so it counts as an empty response and not as a failed rollout.
    texts = [storable(it or "") if isinstance(it, str | None) else it for it in replies]
    if any(isinstance(text, list | float) for text in texts):
        return []
    request = next(iter(row["arguments"].values()))
    prompt = request["arg_0"]
    # With the hash, because every task of a folder numbers its problems from 0.
    name = (str(row["doc_id"]), row.get("doc_hash", "")[:8])
    facts = {
        "prompt_id": "-".join(map(str, filter(None, name))),
        "prompt": storable(
            prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)
        ),
        "target": _target(row["target"]),
        "doc": json.dumps([*_texts(row["doc"])]),
        "request": json.dumps(request.get("arg_1")),
    }
    return [{**row, **facts, "response": text} for text in texts]


def _target(target: Any) -> Any:
    """Return the right answer of a problem as a value for one cell; a list of right answers becomes a text in JSON."""
    if isinstance(target, list):
        # Leave a list that holds no answers as it is: reading the labels raises the error, with the row's name.
        with suppress(ValueError):
            target = json.dumps(golds_of(target))
    return storable(target) if isinstance(target, str) else target


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value of JSON, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


_PACKED: Sequence[tuple[frozenset[str], Callable[[_Row], list[_Row]]]] = (
    (frozenset({"doc_id", "resps"}), _of_lm_eval),
    (frozenset({"task", "traces"}), _of_episode),
    (frozenset({"task", "nodes"}), _of_episode),
    (frozenset({"epoch", "input", "target", "output"}), _of_inspect),
    (frozenset({"origin_prompt", "prediction"}), _of_opencompass),
    (frozenset({"target", "sample_score"}), _of_evalscope),
    (frozenset({"responses_create_params", "response", "reward"}), _of_gym),
)
"""Pairs of the keys by which a program's objects are recognised, and the function that unpacks them."""
