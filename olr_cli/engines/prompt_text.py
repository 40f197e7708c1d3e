"""Prompts as a policy reads them: chat turns to text, text to tokens, and whether they fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from olr_cli.data.prompts import Message, Prompt, View
from olr_cli.errors import UserError, first_line
from olr_cli.recipe.schema import Recipe

NO_TEMPLATE = "{} has no chat template: prompts are given to it as plain text, roles left out"


def has_chat_template(tokenizer: Any) -> bool:
    """Whether prompts are rendered as chat turns; if not, as plain text."""
    return getattr(tokenizer, "chat_template", None) is not None


def render(tokenizer: Any, messages: Sequence[Message]) -> str:
    """A prompt as text, exactly as the policy will read it.

    A chat template is a program that comes with the model. transformers runs it in jinja's sandbox, where it can do no
    more than make text; but how long it takes, and how much it makes, is up to it.

    Raises:
        UserError: the chat template refuses the prompt's roles, fails, or makes something else than text.
    """
    if not has_chat_template(tokenizer):
        return "\n\n".join(message.content for message in messages)
    turns = [{"role": message.role, "content": message.content} for message in messages]
    roles = ", ".join(message.role for message in messages)
    try:
        text: object = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    except (TemplateError, MemoryError, RecursionError) as error:
        raise UserError(
            f"the model's chat template refuses a prompt of roles {roles} ({_reason(error)}); change the prompt's "
            "messages or the template"
        ) from error
    except Exception as error:  # whatever Python raises for an expression in a template
        raise UserError(
            f"the model's chat template fails on a prompt of roles {roles} ({_reason(error)}); mend the template"
        ) from error
    if not isinstance(text, str) or not _is_unicode(text):
        raise UserError(
            f"the model's chat template makes no text of a prompt of roles {roles}; mend the template"
        )
    return text


def _is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair, which a tokenizer cannot read."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}" if str(error) else type(error).__name__


def encode(tokenizer: Any, prompts: Sequence[Sequence[Message]]) -> list[list[int]]:
    """Token ids of every prompt. A chat template writes its special tokens itself.

    Raises:
        UserError: a prompt has no token at all.
    """
    texts = [render(tokenizer, messages) for messages in prompts]
    ids: list[list[int]] = tokenizer(
        texts, add_special_tokens=not has_chat_template(tokenizer), verbose=False
    )["input_ids"]
    for number, tokens in enumerate(ids, start=1):
        if not tokens:
            raise UserError(f"prompt {number} of {len(ids)} is empty; the policy needs at least one token")
    return ids


def before_stop(text: str, stop: Sequence[str]) -> str:
    """A response up to the first of the stop texts in it; all of it without one."""
    places = [place for place in (text.find(ending) for ending in stop) if place >= 0]
    return text[: min(places)] if places else text


def require_room(
    prompts: Sequence[Prompt],
    token_ids: Sequence[Sequence[int]],
    recipe: Recipe,
    context: int | None,
    view: View = "original",
) -> None:
    """Make sure that every prompt, and a response to it, fits into the recipe's limits and the model's context.

    Raises:
        UserError: prompts are longer than the recipe allows, or leave no room for a response; says how many.
    """
    limit = recipe.train.max_prompt_tokens
    what = "prompts" if view == "original" else "rephrased prompts"
    long = [
        prompt.prompt_id for prompt, tokens in zip(prompts, token_ids, strict=True) if len(tokens) > limit
    ]
    if long:
        raise UserError(
            f"{len(long)} of {len(prompts)} {what} are longer than train.max_prompt_tokens {limit} (the first:"
            f" {long[0]}); raise the limit or remove them"
        )
    longest = max(map(len, token_ids), default=0)
    if context is not None and longest + recipe.train.max_new_tokens > context:
        raise UserError(
            f"the longest of the {what} has {longest} tokens, and with train.max_new_tokens"
            f" {recipe.train.max_new_tokens} that is more than the {context} tokens that {recipe.model.path} can read;"
            f" lower the limit or remove long {what}"
        )
