"""Recognise prompts that ask the same question (R24), make ids from questions, and find a question in other prompts."""

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
    # The question must not contain the mark that begins it: a text of many such marks would take quadratic time.
    re.compile(f".*{start}((?:(?!{start}).)*?){end}", re.DOTALL)
    for start, end in (
        (r"<\|im_start\|>user\n", r"<\|im_end\|>"),
        (r"<\|start_header_id\|>user<\|end_header_id\|>\n\n", r"<\|eot_id\|>"),
        (r"<start_of_turn>user\n", "<end_of_turn>"),
        (r"\[INST\]", r"\[/INST\]"),
        ("<｜User｜>", "<｜Assistant｜>"),
        (r"<\|[Uu]ser\|>\n?", r"(?:<\|end\|>|<\|[Aa]ssistant\|>|</s>)"),
        # Logs of verl, which drops special tokens.
        (r"(?<![^\n])user\n", rf"\nassistant\n(?:{_OPENINGS}\n*)?(?:{_CLOSINGS}\n*)?$"),
        (r"\bUser: ?", rf"\s*Assistant:(?:.*{_OPENINGS})?\s*$"),
    )
)
"""Patterns of chat templates, whose first group is the user's last question."""

_UNSPOKEN = re.compile(r"[$?]|\\[()\[\],;: ]|\\(?:left|right)(?![a-zA-Z])")
_OUTER_SPACE = re.compile(r" (?:(?!\w)|(?<!\w ))")


def normal_question(messages: Iterable[Message]) -> str:
    """Return all the user's turns as one normalised text, without chat templates (R24).

    Two prompts ask the same question if and only if these texts are equal.
    """
    turns = list(messages)
    questions = [turn.content for turn in turns if turn.role == "user"] or [
        turn.content for turn in turns
    ]
    return _normal("\n".join(map(_without_template, questions)))


def _normal(text: str) -> str:
    """Return the normal form of a text, which ignores differences that rarely make another question.

    Unicode form, case and white space are made uniform. Question marks, LaTeX's dollar signs and spaces, space beside
    symbols, and punctuation at the end are dropped.
    """
    folded = _folded(text)
    spoken = (
        _UNSPOKEN.sub(" ", _spaced(folded))
        if "\\" in folded
        else folded.replace("$", " ").replace(
            "?", " "
        )  # without a backslash the same, ten times as fast
    )
    # A text of nothing but marks would be empty, and then equal to all other such texts.
    return _OUTER_SPACE.sub("", _spaced(spoken)).rstrip(".:;,=") or _spaced(folded)


def _folded(text: str) -> str:
    """Return a text in one Unicode form (NFKC) and one case, without format characters (Cf)."""
    if text.isascii():
        return text.lower()
    unseen = [
        ord(character) for character in set(text) if unicodedata.category(character) == "Cf"
    ]
    text = unicodedata.normalize("NFKC", text.translate(dict.fromkeys(unseen)))
    # Normalise again, because folding can take a letter apart: `ΐ` becomes three characters.
    return unicodedata.normalize("NFKC", text.casefold())


def _spaced(text: str) -> str:
    """Replace white space of any length by single spaces, and strip the ends."""
    return " ".join(text.split())


def _plain(text: str) -> str:
    """Return a text in one Unicode form and case, with single spaces; punctuation and symbols stay."""
    return _spaced(_folded(text))


def question_of(messages: Sequence[Message]) -> str:
    """Return the text of the user's last question, without other turns and without the tags of a chat template."""
    return _without_template(_last_asked(messages))


def has_template(messages: Sequence[Message]) -> bool:
    """Return whether the text of the question already has the tags of a chat template around it."""
    return question_of(messages) != _last_asked(messages)


def _last_asked(messages: Sequence[Message]) -> str:
    """Return the text of the user's last turn or, if the user has none, the texts of all turns."""
    questions = [message.content for message in messages if message.role == "user"]
    return (
        questions[-1] if questions else "\n\n".join(message.content for message in messages)
    )


def _without_template(text: str) -> str:
    """Return the last question in a text that a chat template has formatted; return any other text unchanged."""
    # Every template has one of these words, and searching for them is much faster than matching.
    if not ("user" in text or "User" in text or "[INST]" in text):
        return text
    matches = (template.match(text) for template in _TEMPLATES)
    return next((match[1].strip() for match in matches if match is not None), text)


class QuestionIds:
    """A generator of ids for prompts that have none, all from one source.

    An id is a digest of the normalised question (`normal_question`). So a prompt has the same id in a file, in a log
    and in another trainer, whatever its system message and label are.
    """

    def __init__(self) -> None:
        self._prompts: Counter[str] = Counter()

    def next(self, messages: Iterable[Message]) -> str:
        """Return an id for one more prompt of the source.

        If earlier calls had prompts with the same question, the id ends in a number: ``-2`` at the second call.
        """
        name = f"q-{hashlib.sha256(normal_question(messages).encode()).hexdigest()[:12]}"
        self._prompts[name] += 1
        return name if self._prompts[name] == 1 else f"{name}-{self._prompts[name]}"


def question_ids(prompts: Iterable[Sequence[Message]]) -> list[str]:
    """Return the ids (`QuestionIds`) of all prompts of a source; they do not depend on the order of the prompts.

    Of several prompts that ask the same question, one has the plain id, and the others end in ``-2``, ``-3`` and so on.
    Numbers are given in the order of the sorted texts; exact copies of a prompt come last.
    """
    copies: Counter[tuple[tuple[str, str], ...]] = Counter()
    keys = []
    for turns in prompts:
        text = tuple(pairs(turns))
        # Sorted by the number of earlier copies, then by text.
        keys.append((copies[text], text, turns))
        copies[text] += 1
    ids, names = QuestionIds(), dict[int, str]()
    for index in sorted(range(len(keys)), key=lambda index: keys[index][:2]):
        names[index] = ids.next(keys[index][2])
    return [names[index] for index in range(len(keys))]


class QuestionIndex:
    """An index of a sequence of questions; it finds those that a prompt asks, in any case, spacing and punctuation."""

    def __init__(self, questions: Sequence[Sequence[Message]]) -> None:
        self._questions = questions
        self._by_all: defaultdict[str, list[int]] = defaultdict(list)
        self._by_last: defaultdict[str, list[int]] = defaultdict(list)
        for place, turns in enumerate(questions):
            self._by_all[normal_question(turns)].append(place)
            self._by_last[_normal(question_of(turns))].append(place)

    def find(self, turns: Sequence[Message]) -> Sequence[int]:
        """Return the indices of the questions that a prompt asks; the sequence is empty if there are none.

        All user turns of the prompt must match those of the question. If no such question is indexed, only the last
        user turns are compared, and only in two cases:

        1. A chat template has turned a whole dialogue into the prompt's one text.
        2. The prompt has several user turns, such as solved examples, and the indexed question has one.
        """
        if same := self._by_all.get(normal_question(turns)):
            return same
        last = question_of(turns)
        # If a template has made one text of a dialogue, only the last question can be read from it.
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
        """Return the indices of those questions whose user turns equal the prompt's in every character.

        Only the indices in `places`, as `find` returns them, are considered.
        """
        words = _user_texts(turns)
        return [place for place in places if _user_texts(self._questions[place]) == words]

    def find_within(self, texts: Mapping[str, str]) -> dict[str, Sequence[int]]:
        """Find the longest indexed question that each text contains; return name -> positions of that question.

        `texts` is name -> text; a text that contains no indexed question is left out. Positions count in the indexed
        sequence. There are several if the question is indexed in several spellings. Punctuation counts: "What is
        3+4+5?" does not contain "What is 3+4?".
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
    """Return whether two prompts ask the same question, or one prompt's text contains the other's question."""
    if normal_question(one) == normal_question(other):
        return True
    short, long = sorted((_plain(question_of(one)), _plain(question_of(other))), key=len)
    return _normal(short) == _normal(long) or bool(_contained({"": long}, [short]))


def _is_dialogue(turns: Iterable[Message]) -> bool:
    """Return whether the user has more than one turn."""
    return sum(turn.role == "user" for turn in turns) > 1


def _user_texts(turns: Iterable[Message]) -> list[str]:
    """Return the texts of the user's turns, unchanged."""
    return [turn.content for turn in turns if turn.role == "user"]


def same_prompts(
    logged: Mapping[str, Prompt], prompts: Sequence[Prompt]
) -> dict[str, Prompt]:
    """Match logged prompts with the prompts of a data set by the text of their questions.

    If a log has more text around a question, the logged prompt matches the longest question of the data set that this
    text contains, word for word. If several prompts match, the first with the logged prompt's label is taken. If none
    of them has this label, the first is taken.

    Args:
        logged: prompt_id -> prompt of the log.
        prompts: prompts of the data set.

    Returns:
        prompt_id of the log -> prompt of the data set. Logged prompts without a match or without messages are left out.
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
    matches = {
        name: [prompts[place] for place in same] for name, same in places.items() if same
    }
    return {
        name: next(
            (one for one in same if one.given_label == logged[name].given_label), same[0]
        )
        for name, same in matches.items()
    }


def _contained(longer: Mapping[str, str], questions: Sequence[str]) -> dict[str, str]:
    """Find the longest of `questions` that each text contains as whole words; return name -> question.

    `longer` is name -> text. Texts that contain none of the questions are left out.
    """
    patterns = [question for question in questions if question]
    if not longer or not patterns:
        return {}
    hits = pl.Series(list(longer.values())).str.extract_many(patterns, overlapping=True)
    longest: dict[str, str] = {}
    for (name, text), hit in zip(longer.items(), hits, strict=True):
        # Only whole words and numbers: `13+42` does not ask `3+4`.
        whole = (q for q in hit if re.search(rf"(?<!\w){re.escape(q)}(?!\w)", text))
        question = max(whole, key=len, default="")
        if question:
            longest[name] = question
    return longest
