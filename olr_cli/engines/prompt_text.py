"""Prompts as a policy reads them: chat turns to text, text to tokens, and whether the tokens fit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from olr_cli.data.chat import Message
from olr_cli.data.prompts import SYSTEM_PROMPT, Prompt, PromptSet, View
from olr_cli.errors import UserError, at, did_you_mean, first_line, no_path
from olr_cli.files import read_text
from olr_cli.recipe.schema import Recipe

NONE = "none"
"""The word in a recipe for no chat template, and for no system message."""

_MOST_TEMPLATE_BYTES = 256 * 1024


@dataclass(frozen=True)
class ChatFormat:
    """How chat messages become the text that a model reads: the chat template, values for its variables, and the date.

    `of` makes it from a recipe, and `read` from a user's choice of template. The default is the model's own template.
    """

    template: str | None = None
    """A chat template (Jinja) that replaces the model's own. Empty: no template, plain text. None: the model's own."""

    variables: Mapping[str, Any] = field(default_factory=dict)
    """Values for the template's variables besides the messages, such as ``enable_thinking``."""

    day: date | None = None
    """Date for templates that write one: the day on which the run or evaluation started. None: today."""

    @classmethod
    def read(
        cls, template: str | None, variables: Mapping[str, Any] | None = None
    ) -> ChatFormat:
        """Return the format that a user's choice of template asks for; raise UserError if its file cannot be used.

        Args:
            template: path of a file with a chat template (Jinja); ``none`` for plain text; None for the model's own
                template.
            variables: values for the template's variables.
        """
        text = template
        if template == NONE:
            text = ""
        elif template is not None:
            if not os.path.isfile(template):
                raise no_path(
                    template, "give a file with a chat template, or none for plain text"
                )
            text = read_text(Path(template), at_most=_MOST_TEMPLATE_BYTES)
            if not text.strip():
                raise UserError(
                    f"{template} is empty", "give a chat template, or none for plain text"
                )
        return cls(text, variables or {})

    @classmethod
    def of(cls, recipe: Recipe, day: date | None = None) -> ChatFormat:
        """Return the format that a recipe's `model.chat_template` asks for.

        `day` is when the run started, for templates that write the date; None for today.
        """
        with at("model.chat_template"):
            return replace(cls.read(recipe.model.chat_template), day=day)

    def put_into(self, tokenizer: Any) -> None:
        """Store the template in a tokenizer; a checkpoint with this tokenizer is then prompted as in training.

        For plain text, the tokenizer's own template is removed. If the format keeps that template, nothing changes.
        """
        if self.template is not None:
            tokenizer.chat_template = self.template or None

    def template_of(self, tokenizer: Any) -> Any:
        """Return the template that renders prompts for this tokenizer, or None if prompts are plain text."""
        if self.template is not None:
            return self.template or None
        return getattr(tokenizer, "chat_template", None)

    def check(self, tokenizer: Any) -> None:
        """Raise UserError unless the tokenizer's template mentions every variable of this format.

        Jinja would silently ignore a misspelled variable.
        """
        template = self.template_of(tokenizer)
        # Every word of the template counts as a variable. That catches misspellings without parsing Jinja.
        words = set(re.findall(r"[^\W\d]\w*", str(template)))
        for name in self.variables:
            if template is None:
                raise UserError(
                    "there is no chat template to take it",
                    "leave it out",
                    f"template {name}",
                )
            if name == "messages" or name not in words:
                raise UserError(
                    f"the chat template has no such variable{did_you_mean(name, words)}",
                    "leave it out, or fix the name",
                    f"template {name}",
                )


AS_THE_MODEL_HAS_IT = ChatFormat()


def has_chat_template(tokenizer: Any, chat: ChatFormat = AS_THE_MODEL_HAS_IT) -> bool:
    """Whether prompts are rendered as chat turns; if not, they are plain text."""
    return chat.template_of(tokenizer) is not None


def template_warnings(tokenizer: Any, recipe: Recipe) -> list[str]:
    """Return a list with a warning if neither the model nor the recipe has a chat template; otherwise an empty list.

    The value ``none`` in the recipe, which asks for plain text, counts as a template here.
    """
    if recipe.model.chat_template is not None or has_chat_template(tokenizer):
        return []
    return [no_template(recipe.model.path)]


def no_template(model: str) -> str:
    """Return the text of a warning that the model of this name has no chat template."""
    return f"{model} has no chat template: prompts are given to it as plain text, roles left out"


def render(
    tokenizer: Any, messages: Sequence[Message], chat: ChatFormat = AS_THE_MODEL_HAS_IT
) -> str:
    """Return a prompt as text, exactly as the policy will read it (see `render_all`)."""
    return render_all(tokenizer, [messages], chat)[0]


def render_all(
    tokenizer: Any,
    prompts: Sequence[Sequence[Message]],
    chat: ChatFormat = AS_THE_MODEL_HAS_IT,
) -> list[str]:
    """Return prompts as texts, exactly as the policy will read them.

    Without a chat template, a blank line separates messages, and one space separates an assistant's turn from the
    question before it.

    Raises:
        UserError: the chat template fails on a prompt.
    """
    if not has_chat_template(tokenizer, chat):
        return [_plain(messages) for messages in prompts]
    return [_by_template(tokenizer, messages, chat) for messages in prompts]


def _by_template(tokenizer: Any, messages: Sequence[Message], chat: ChatFormat) -> str:
    """Render one prompt with the chat template; raise UserError if the template fails on it."""
    turns = [{"role": message.role, "content": message.content} for message in messages]
    settings: dict[str, Any] = {
        "add_generation_prompt": True,
        **chat.variables,
        # Last, so that no variable of the user can turn the text into tokens.
        "tokenize": False,
    }
    if chat.template is not None:
        settings["chat_template"] = chat.template
    if chat.day is not None and (dated := _dated(chat.template_of(tokenizer), chat.day)):
        settings["chat_template"] = dated
    try:
        # A template is a program that comes with the model. transformers runs it in jinja's sandbox, where it can only
        # make text.
        text: object = tokenizer.apply_chat_template(turns, **settings)
        if not isinstance(text, str):
            raise TypeError("it makes no text")
        text.encode()  # raises for half of a surrogate pair, which a tokenizer cannot read
    # An expression in a template may raise any of Python's errors.
    except Exception as error:
        roles = ", ".join(message.role for message in messages)
        problem = f"the chat template fails on a prompt of roles {roles} ({type(error).__name__}: {first_line(error)})"
        # Gemma's templates, for example, have no system role. The user did not write this message, so say where it
        # comes from.
        if Message("system", SYSTEM_PROMPT) in messages:
            raise UserError(
                f"{problem}, and the system message is olr's own",
                "set this to none, or change the template",
                "data.system_prompt",
            ) from error
        raise UserError(problem, "change the prompt's messages or the template") from error
    return text


_TODAY = re.compile(r"""strftime_now\(\s*(["'])((?:(?!\1).)*)\1\s*\)""")
"""A template's call that writes today's date: `strftime_now("%d %b %Y")`."""


def _dated(template: Any, day: date) -> str | None:
    """Return a chat template with the date `day` in place of every call that writes today's date.

    Return None if the template has no such call.
    """
    # The text is changed because newer transformers accept no function of ours in a template. A tokenizer may hold
    # several templates by name.
    text = template.get("default") if isinstance(template, Mapping) else template
    if not isinstance(text, str) or not _TODAY.search(text):
        return None
    return _TODAY.sub(lambda call: repr(day.strftime(call[2])), text)


def _plain(messages: Sequence[Message]) -> str:
    """Join messages into plain text, with a space before an assistant's turn and a blank line before others."""
    text = ""
    for message in messages:
        separator = " " if message.role == "assistant" else "\n\n"
        text += (separator if text else "") + message.content
    return text


def tokenize(
    tokenizer: Any, texts: Sequence[str], chat: ChatFormat = AS_THE_MODEL_HAS_IT
) -> list[list[int]]:
    """Return the token ids of rendered prompts; raise UserError if one of them is empty.

    With a chat template no special tokens are added, because the template has written them. Without one, the tokenizer
    adds the tokens that it puts before a text, such as a start token.
    """
    ids: list[list[int]]
    if has_chat_template(tokenizer, chat):
        ids = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    else:
        ids = _without_end(tokenizer, tokenizer(list(texts), verbose=False)["input_ids"])
    for number, tokens in enumerate(ids, start=1):
        if not tokens:
            raise UserError(
                f"prompt {number} of {len(ids)} is empty, and a policy needs at least one token",
                "leave it out",
            )
    return ids


def token_ids_of(
    tokenizer: Any,
    prompts: Iterable[Prompt],
    chat: ChatFormat = AS_THE_MODEL_HAS_IT,
    view: View = "original",
) -> list[list[int]]:
    """Return the token ids of each prompt, exactly as the policy will read it.

    `view` says in which wording: the original one, or the rephrased one.
    """
    texts = render_all(tokenizer, [prompt.turns(view) for prompt in prompts], chat)
    return tokenize(tokenizer, texts, chat)


_EXAMPLE_ANSWER = "The answer is 4."


def turn_end(tokenizer: Any, chat: ChatFormat = AS_THE_MODEL_HAS_IT) -> int | None:
    """Return the id of the special token with which the chat template closes an assistant's turn.

    Return None if there is no template or no such token. Responses have to end at this token too. Otherwise a model
    that does not list it as an end would go on and write the user's next turn.
    """
    if not has_chat_template(tokenizer, chat):
        return None
    turns = Message("user", "What is 2 + 2?"), Message("assistant", _EXAMPLE_ANSWER)
    as_answered = replace(
        chat, variables={**chat.variables, "add_generation_prompt": False}
    )
    try:
        text = _by_template(tokenizer, turns, as_answered)
    except UserError:  # the template accepts only other turns than these
        return None
    _, answer, rest = text.rpartition(_EXAMPLE_ANSWER)
    special = _special_tokens(tokenizer)
    # One special token may be the beginning of another, so the longest match is the right one.
    closing = [token for token in special if answer and rest.lstrip().startswith(token)]
    return special[max(closing, key=len)] if closing else None


def _special_tokens(tokenizer: Any) -> dict[str, int]:
    """Return the ids of the special tokens, by their text; decoding leaves these tokens out."""
    special = dict(
        zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
    )
    # Llama 3 lists its <|eot_id|> only here.
    return special | {
        token.content: id
        for id, token in tokenizer.added_tokens_decoder.items()
        if token.special
    }


def stop_ids(tokenizer: Any, stop: Sequence[str]) -> list[int]:
    """Return the ids of the stop texts that are special tokens.

    Decoded responses leave special tokens out, so these texts have to be found by their ids.

    Raises:
        UserError: a stop text contains a special token besides other text, so it could never be found.
    """
    special = _special_tokens(tokenizer) if stop else {}
    for text in stop:
        # A special token of one character does not count: ordinary tokens may decode to that character.
        inside = [token for token in special if token in text and len(token) > 1]
        if text not in special and inside:
            raise UserError(
                f"the stop text {text!r} is never found: it contains the special token {inside[0]}, which responses are"
                " decoded without",
                "let the token alone be a stop text",
            )
    return [special[text] for text in stop if text in special]


def template_lines(tokenizer: Any, chat: ChatFormat = AS_THE_MODEL_HAS_IT) -> list[str]:
    """Return lines for a dry run about the chat template; an empty list if there is nothing to say.

    There is a line if the template writes the date. There is another if the template closes an assistant's turn with a
    token other than the tokenizer's end token, because a response then ends at that token too.
    """
    lines, token = [], turn_end(tokenizer, chat)
    if "strftime_now" in str(chat.template_of(tokenizer)):
        lines.append(
            "the chat template writes the date, which remains that of a run's start when it is resumed"
        )
    if token not in (None, tokenizer.eos_token_id):
        name = tokenizer.convert_ids_to_tokens(token)
        lines.append(f"a response ends at {name}, which closes a turn in the chat template")
    return lines


def _without_end(tokenizer: Any, ids: list[list[int]]) -> list[list[int]]:
    """Remove from lists of token ids the tokens that the tokenizer appends to every text, such as an end token.

    A prompt must not end with such tokens, because a response follows.
    """
    # Compare one text with and without special tokens. `after` is how many of the added tokens follow the text; the
    # others, such as a start token, stay.
    bare, whole = (
        tokenizer("1", add_special_tokens=adds)["input_ids"] for adds in (False, True)
    )
    added = len(whole) - len(bare)
    after = next(
        (n for n in range(added, 0, -1) if whole[added - n : len(whole) - n] == bare), 0
    )
    return [tokens[: len(tokens) - after] for tokens in ids]


def before_stop(text: str, stop: Sequence[str]) -> str:
    """Return a response up to the first stop text in it, or all of it if there is none."""
    places = [place for place in (text.find(ending) for ending in stop) if place >= 0]
    return text[: min(places)] if places else text


def without_long(
    tokenizer: Any,
    recipe: Recipe,
    chat: ChatFormat,
    prompts: PromptSet,
    views: Sequence[View] = ("original",),
) -> PromptSet:
    """Return the prompts that have at most `train.max_prompt_tokens` tokens in each of the views (wordings).

    If prompts are left out, the new set lists their ids in `left_out`, and `notes` gets a sentence with their number.

    Raises:
        UserError: no prompt is left.
    """
    limit = recipe.train.max_prompt_tokens
    encoded = [token_ids_of(tokenizer, prompts.prompts, chat, view) for view in views]
    long = [
        row
        for row, ids in enumerate(zip(*encoded, strict=True))
        if max(map(len, ids)) > limit
    ]
    if not long:
        return prompts
    what = (
        f"{len(long):,} of {len(prompts):,} prompts of {prompts.source} longer than train.max_prompt_tokens {limit}"
        f" left out (the first: {prompts.place(long[0])})"
    )
    kept = sorted({*range(len(prompts))}.difference(long))
    if not kept:
        raise UserError(what, "raise the limit")
    return replace(
        prompts.subset(kept),
        notes=[*prompts.notes, what],
        left_out=[prompts.prompts[row].prompt_id for row in long],
    )


def require_room(
    prompts: PromptSet,
    token_ids: Sequence[Sequence[int]],
    recipe: Recipe,
    context: int | None,
    view: View = "original",
) -> None:
    """Raise UserError if a prompt is longer than the recipe allows, or leaves too little context for a full response.

    Args:
        prompts: the prompts, for the error.
        token_ids: the token ids of each prompt.
        recipe: sets the limits `train.max_prompt_tokens` and `train.max_new_tokens`.
        context: the most tokens that the model can read. If it is None (unknown), only the length is checked.
        view: the wording of the prompts in `token_ids`.
    """
    limit = recipe.train.max_prompt_tokens
    what = "prompts" if view == "original" else "rephrased prompts"
    lengths = [*map(len, token_ids)]
    if long := [row for row, length in enumerate(lengths) if length > limit]:
        raise UserError(
            f"{len(long)} of {len(prompts)} {what} are longer than train.max_prompt_tokens {limit} (the first:"
            f" {prompts.place(long[0])})",
            "raise the limit, or leave them out with data.drop_long=true",
        )
    longest = max(lengths, default=0)
    if context is not None and longest + recipe.train.max_new_tokens > context:
        raise UserError(
            f"the longest of the {what} ({prompts.place(lengths.index(longest))}) has {longest} tokens, and with"
            f" train.max_new_tokens {recipe.train.max_new_tokens} that is more than the {context} tokens that"
            f" {recipe.model.path} can read",
            "lower that limit, or train.max_prompt_tokens with data.drop_long=true",
        )
