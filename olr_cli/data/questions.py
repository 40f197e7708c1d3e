"""When two prompts ask the same question (R24), the ids made from it, and finding a question in other prompts."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from olr_cli.answers.thinking import THOUGHT_MARKS
from olr_cli.data.chat import Message, pairs
from olr_cli.data.prompts import Prompt

_OPENINGS, _CLOSINGS = (
    f"(?:{'|'.join(map(re.escape, marks))})"
    for marks in (THOUGHT_MARKS, THOUGHT_MARKS.values())
)
_TEMPLATES = tuple(
    # A question does not hold what begins it, or a text of nothing but beginnings would take quadratic time.
    re.compile(f".*{start}((?:(?!{start}).)*?){end}", re.DOTALL)
    for start, end in (
        (r"<\|im_start\|>user\n", r"<\|im_end\|>"),
        (r"<\|start_header_id\|>user<\|end_header_id\|>\n\n", r"<\|eot_id\|>"),
        (r"<start_of_turn>user\n", "<end_of_turn>"),
        (r"\[INST\]", r"\[/INST\]"),
        ("<｜User｜>", "<｜Assistant｜>"),
        (r"<\|[Uu]ser\|>\n?", r"(?:<\|end\|>|<\|[Aa]ssistant\|>|</s>)"),
        # In verl, without special tokens.
        (r"(?<![^\n])user\n", rf"\nassistant\n(?:{_OPENINGS}\n*)?(?:{_CLOSINGS}\n*)?$"),
        (r"\bUser: ?", rf"\s*Assistant:(?:.*{_OPENINGS})?\s*$"),
    )
)
"""What chat templates put around the last question of the user."""

_UNSPOKEN = re.compile(r"[$?]|\\[()\[\],;: ]|\\(?:left|right)(?![a-zA-Z])")
_OUTER_SPACE = re.compile(r" (?:(?!\w)|(?<!\w ))")


def normal_question(messages: Iterable[Message]) -> str:
    """The normal text of what the user asks in all turns, without chat templates.

    Two prompts ask the same question if and only if these texts are equal (R24).
    """
    turns = list(messages)
    asked = [turn.content for turn in turns if turn.role == "user"] or [
        turn.content for turn in turns
    ]
    return _normal("\n".join(map(_without_template, asked)))


def _normal(text: str) -> str:
    """A text without what hardly makes another question: Unicode form, case, space (`_folded`, `_spaced`), question
    marks, LaTeX's dollar signs and spaces, space beside symbols, marks at the end.
    """
    folded = _folded(text)
    spoken = (
        _UNSPOKEN.sub(" ", _spaced(folded))
        if "\\" in folded
        else folded.replace("$", " ").replace("?", " ")  # the same, ten times as fast
    )
    return _OUTER_SPACE.sub("", _spaced(spoken)).rstrip(".:;,=") or _spaced(folded)


def _folded(text: str) -> str:
    """A text in one Unicode form (NFKC) and one case, without format characters (Cf)."""
    if text.isascii():
        return text.lower()
    unseen = [
        ord(character) for character in set(text) if unicodedata.category(character) == "Cf"
    ]
    text = unicodedata.normalize("NFKC", text.translate(dict.fromkeys(unseen)))
    # Folding can take a letter apart again
    return unicodedata.normalize("NFKC", text.casefold())


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _plain(text: str) -> str:
    return _spaced(_folded(text))


def question_of(messages: Sequence[Message]) -> str:
    """The user's last question, without other turns and without what a chat template put around it."""
    return _without_template(_last_asked(messages))


def has_template(messages: Sequence[Message]) -> bool:
    """Whether a chat template stands around the question: a text that is formatted already."""
    return question_of(messages) != _last_asked(messages)


def _last_asked(messages: Sequence[Message]) -> str:
    asked = [message.content for message in messages if message.role == "user"]
    return asked[-1] if asked else "\n\n".join(message.content for message in messages)


def _without_template(text: str) -> str:
    if not ("user" in text or "User" in text or "[INST]" in text):  # as in every template
        return text
    matches = (template.match(text) for template in _TEMPLATES)
    return next((match[1].strip() for match in matches if match is not None), text)


class QuestionIds:
    """Ids of the prompts of one source that come without: digests of `normal_question`, so that a prompt has the same
    id in a file, a log and another trainer, whatever its system message and label.
    """

    def __init__(self) -> None:
        self._prompts: Counter[str] = Counter()

    def next(self, messages: Iterable[Message]) -> str:
        """The id of one more prompt; from the second that asks the same question on, it ends in a number."""
        name = f"q-{hashlib.sha256(normal_question(messages).encode()).hexdigest()[:12]}"
        self._prompts[name] += 1
        return name if self._prompts[name] == 1 else f"{name}-{self._prompts[name]}"


def question_ids(prompts: Iterable[Sequence[Message]]) -> list[str]:
    """The ids (`QuestionIds`) of all prompts of a source, which do not depend on their order.

    Prompts that differ in what `normal_question` leaves out are numbered in the order of their texts, then copies.
    """
    copies: Counter[tuple[tuple[str, str], ...]] = Counter()
    keys = []
    for turns in prompts:
        text = tuple(pairs(turns))
        keys.append((copies[text], text, turns))
        copies[text] += 1
    ids, names = QuestionIds(), dict[int, str]()
    for place in sorted(range(len(keys)), key=lambda place: keys[place][:2]):
        names[place] = ids.next(keys[place][2])
    return [names[place] for place in range(len(keys))]


class QuestionIndex:
    """Questions, found by what a prompt asks (`normal_question`)."""

    def __init__(self, questions: Sequence[Sequence[Message]]) -> None:
        self._questions = questions
        self._by_all: defaultdict[str, list[int]] = defaultdict(list)
        self._by_last: defaultdict[str, list[int]] = defaultdict(list)
        for place, turns in enumerate(questions):
            self._by_all[normal_question(turns)].append(place)
            self._by_last[_normal(question_of(turns))].append(place)

    def find(self, turns: Sequence[Message]) -> Sequence[int]:
        """The places of the questions that the turns of a prompt ask; of a dialogue all that the user says counts.

        The last question alone counts where a text is a whole dialogue in a chat template, and where examples precede
        a question that is known without them.
        """
        if same := self._by_all.get(normal_question(turns)):
            return same
        last = question_of(turns)
        # A dialogue that a template made one text shows its last question alone.
        is_rendered = len(turns) == 1 and last != turns[0].content
        return [
            place
            for place in self._by_last.get(_normal(last), ())
            if is_rendered
            or (_is_dialogue(turns) and not _is_dialogue(self._questions[place]))
        ]

    def in_same_words(
        self, turns: Sequence[Message], places: Iterable[int]
    ) -> Sequence[int]:
        """Which of `places` hold a question in exactly the words of the prompt."""
        words = _words(turns)
        return [place for place in places if _words(self._questions[place]) == words]

    def find_within(self, texts: Mapping[str, str]) -> dict[str, Sequence[int]]:
        """By name of each text the places of the longest question that stands in it, if there is one.

        It stands there with its marks: "What is 3+4?" does not stand in "What is 3+4+5?".
        """
        words = {
            _plain(question_of(self._questions[same[0]])): same
            for same in self._by_last.values()
        }
        longer = {name: _plain(text) for name, text in texts.items()}
        return {
            name: words[question]
            for name, question in _contained(longer, sorted(words)).items()
        }


def asks_the_same(one: Sequence[Message], other: Sequence[Message]) -> bool:
    """Whether two prompts with one id ask the same question, or one asks the other's question within more text."""
    if normal_question(one) == normal_question(other):
        return True
    short, long = sorted((_plain(question_of(one)), _plain(question_of(other))), key=len)
    return _normal(short) == _normal(long) or bool(_contained({"": long}, [short]))


def _is_dialogue(turns: Iterable[Message]) -> bool:
    return sum(turn.role == "user" for turn in turns) > 1


def _words(turns: Iterable[Message]) -> list[str]:
    return [turn.content for turn in turns if turn.role == "user"]


def same_prompts(
    logged: Mapping[str, Prompt], prompts: Sequence[Prompt]
) -> dict[str, Prompt]:
    """Which of `prompts` each logged prompt is, by the text of the question; others are left out.

    A log may have more text than the data set around its question: then the longest question of the data set counts
    that stands in it, word for word. Of several with one text, it is the one with the same label. Logged prompts, by
    prompt_id, that have no messages are left out.
    """
    index = QuestionIndex([prompt.messages for prompt in prompts])
    places = {
        name: index.find(prompt.messages)
        for name, prompt in logged.items()
        if prompt.messages
    }
    places |= index.find_within(
        {n: question_of(logged[n].messages) for n, same in places.items() if not same}
    )
    found = {
        name: [prompts[place] for place in same] for name, same in places.items() if same
    }
    return {
        name: next(
            (one for one in same if one.given_label == logged[name].given_label), same[0]
        )
        for name, same in found.items()
    }


def _contained(longer: Mapping[str, str], questions: Sequence[str]) -> dict[str, str]:
    """The longest question that stands in each of the longer texts, where there is one."""
    patterns = [question for question in questions if question]
    if not longer or not patterns:
        return {}
    hits = pl.Series(list(longer.values())).str.extract_many(patterns, overlapping=True)
    longest: dict[str, str] = {}
    for (name, text), hit in zip(longer.items(), hits, strict=True):
        # `3+4` is not asked by `13+42`.
        whole = (q for q in hit if re.search(rf"(?<!\w){re.escape(q)}(?!\w)", text))
        question = max(whole, key=len, default="")
        if question:
            longest[name] = question
    return longest
