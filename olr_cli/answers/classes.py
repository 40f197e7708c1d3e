"""Classes of answers: the form that holds an answer's meaning, the key of its class (R7), and votes (R9)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, NamedTuple, NewType

Key = NewType("Key", str)
"""Name of a class: answers are in the same class if and only if their keys are equal."""

FormKind = Literal[
    "number", "percent", "quantity", "based", "value", "word", "choice", "time",
    "tuple", "set", "interval", "union", "matrix", "congruence", "assignment", "system", "equation", "other", "text",
]  # fmt: skip

UNITS_LEFT_OUT = frozenset({"degree", "dollar"})
"""Units that change nothing if they are omitted: the key of `90^\\circ` is that of `90`."""

COUNTED = "#"
"""Prefix of the unit of counted things (`5 apples`); keys ignore such units."""

OF_LETTERS = "?"
"""Prefix of a guess about the values of letters. Even if it is wrong, the form is certainly no plain number."""

_LONGEST_LABEL = 120
"""Longest label that is kept as it is; longer ones become digests."""


@dataclass(frozen=True, slots=True)
class Form:
    """The meaning of an answer, independent of its spelling (R8).

    | kind       | label                                 | parts                                             |
    |------------|---------------------------------------|---------------------------------------------------|
    | number     | the exact rational, "p" or "p/q"      |                                                   |
    | percent    |                                       | the number before the percent sign                |
    | quantity   | its unit                              | the value before or after the unit                |
    | based      | base and digits: "8:52"               |                                                   |
    | value      | its values (see below)                |                                                   |
    | word       | the letters, in lower case            |                                                   |
    | choice     | the letter of an option               | its text                                          |
    | time       | "17:00"                               |                                                   |
    | tuple      |                                       | the entries; also open intervals: (1, 2)          |
    | set        |                                       | the distinct elements, sorted; never just one     |
    | interval   | its brackets, "[]", "[)" ...          | the two ends                                      |
    | union      |                                       | its intervals and sets, sorted                    |
    | matrix     | "rows x columns"                      | the entries, row by row                           |
    | congruence |                                       | the remainder, reduced, and the modulus           |
    | assignment | left-hand side                        | right-hand side; then the equation, if it is one  |
    | system     |                                       | assignments to different names, as written        |
    | equation   | a text that all its multiples share   | the last side, and the whole equation as text     |
    | other      | the expression or inequality          |                                                   |
    | text       | the normalised text                   |                                                   |

    The parts are forms themselves. An empty cell stands for no label or no parts. `reading.read` makes the forms.

    - A "value" is an expression that can be computed and is of no other kind. Each of its letters is replaced by a
      fixed number, so equal expressions have equal labels.
    - An "equation" has no parts if it has one unknown, as `2x = 5` has, or if its sides are words.
    - A "text" is an answer that could not be read.
    """

    kind: FormKind
    label: str = ""
    parts: tuple[Form, ...] = ()
    guesses: frozenset[str] = field(default=frozenset(), compare=False)
    """Guesses of the reader, such as letters in a row taken for a product, or a style that was dropped.

    No class depends on them, and no answer is proved wrong on a guess (R7).
    """

    others: tuple[Form, ...] = field(default=(), compare=False)
    """Other readings of the same text, such as `3,14` as a decimal. They too keep an answer from being proved wrong."""

    def guessed(self, guesses: Iterable[str], others: Iterable[Form] = ()) -> Form:
        """Return a copy of this form with guesses and other readings added.

        Args:
            guesses: what was guessed while reading the text, such as that letters in a row are a product.
            others: other meanings that the text may have.
        """
        guesses, others = self.guesses.union(guesses), (*self.others, *others)
        return replace(self, guesses=guesses, others=others) if guesses or others else self

    def is_told_from(self, other: Form) -> bool:
        """Return whether the meanings of two forms certainly differ. Call it only for forms that are not equal.

        The result is False if one of the forms rests on a guess made while reading. There is one exception: if one form
        consists of numbers alone, guesses about the values of letters do not count, because no such guess turns
        letters into a plain number.
        """
        # A guess about the values of letters cannot turn them into a number: `\lfloor x \rfloor` is certainly not 5.
        guesses = self.all_guesses | other.all_guesses
        if self.is_plain or other.is_plain:
            return all(guess.startswith(OF_LETTERS) for guess in guesses)
        return not guesses

    @property
    def is_plain(self) -> bool:
        """Whether the form is a number, or a tuple, set, interval or matrix of numbers.

        Percentages, quantities with a unit, numbers in another base and times of day count as numbers.
        """
        if self.kind in ("tuple", "set", "interval", "matrix"):
            return all(part.is_plain for part in self.parts)
        return self.kind in ("number", "percent", "quantity", "based", "time")

    @property
    def all_guesses(self) -> frozenset[str]:
        """What was guessed while reading the form and its parts, such as that letters in a row are a product."""
        return (
            self.guesses.union(*(part.all_guesses for part in self.parts))
            if self.parts
            else self.guesses
        )

    @property
    def key(self) -> Key:
        """The key of the form's class, a text.

        Answers count as the same answer if and only if their keys are equal.
        """
        match self.kind:
            # `x = 5` is 5.
            case "assignment":
                return self.parts[0].key
            # `50\%` is 1/2.
            case "percent":
                return number(exact(self) / 100).key
            # `90^\circ` is 90, and `5 apples` is 5.
            case "quantity" if self.label in UNITS_LEFT_OUT or self.label.startswith(
                COUNTED
            ):
                return self.parts[0].key
            # In any order: `x = 1, y = 2` is `y = 2, x = 1`.
            case "system":
                names = [_key("name", part.label, [part.key]) for part in self.parts]
                return _key("system", "", sorted(names))
            # `52_{10}` is 52.
            case "based" if self.label.startswith("10:"):
                return _key("number", str(int(self.label[3:])))
            # `(C) Plane` is C.
            case "choice":
                return _key("word", self.label)
            # The parts of an equation only help to compare it; its label is the whole statement.
            case "equation" | "other":
                return _key(self.kind, self.label)
            # Two elements of one class, such as 5 and `5^\circ`, are one element of a set.
            case "set" | "union":
                return _key(self.kind, "", sorted({part.key for part in self.parts}))
        return _key(self.kind, self.label, [part.key for part in self.parts])


def _key(kind: str, label: str, parts: Sequence[str] = ()) -> Key:
    """Build the key of a form's class: its kind, its label, and the keys of its parts in brackets.

    The key of 5 is ``number 5``. A label is put in quotes unless it has only letters and digits. If label and parts
    together have more than 120 characters, a digest replaces them.
    """
    # A label in quotes cannot be mistaken for a label followed by parts.
    text = label if label.isalnum() else json.dumps(label)
    if parts:
        text += f"({','.join(parts)})"
    return Key(f"{kind} {short(text)}")


def is_read(key: Key) -> bool:
    """Return whether the answers of the class with this key could be read (R8).

    Unreadable answers have keys, too. They are in the same class only if their normalised texts are equal.
    """
    return not key.startswith("text ")


def unread(text: str) -> Form:
    """Return the form of an answer that can't be read, given the text that `normal_text` returns for it."""
    return Form("text", short(text))


def short(label: str) -> str:
    """Return a label as it is, or its digest if it has more than 120 characters."""
    if len(label) <= _LONGEST_LABEL:
        return label
    return (
        "#"
        + hashlib.blake2b(
            label.encode("utf-8", "surrogatepass"), digest_size=20
        ).hexdigest()
    )


def number(value: Fraction) -> Form:
    """Return the form (a parsed answer) of an exact number."""
    p, q = value.numerator, value.denominator
    # A huge number is written in hexadecimal, because decimal digits take quadratic time.
    if p.bit_length() + q.bit_length() > 2000:
        return Form("number", f"{p:#x}/{q:#x}")
    return Form("number", str(value))


def exact(form: Form) -> Fraction:
    """Return the rational number that a form of the kind "number" or "percent" holds.

    For a percentage, it is the number before the percent sign.
    """
    label = form.parts[0].label if form.kind == "percent" else form.label
    p, _, q = label.partition("/")
    return Fraction(int(p, 0), int(q or "1", 0))


def approximate(form: Form) -> Fraction | None:
    """Return the real number that a form (a parsed answer) stands for, to about 40 digits.

    Return None for any other form, such as a percentage or an expression with letters.
    """
    if form.kind == "number":
        return exact(form)
    # The label has the values at two points. They are equal only if the expression has no letters, and ",0@" says that
    # the imaginary part is 0.
    first_value, _, second_value = form.label.partition(" ")
    if form.kind != "value" or first_value != second_value or ",0@" not in first_value:
        return None
    mantissa, _, exponent = first_value.partition(",0@")
    return Fraction(int(mantissa, 16)) * Fraction(2) ** int(exponent)


def unordered(parts: Iterable[Form]) -> Form:
    """Return the form (a parsed answer) of a set with the given elements, without repetitions.

    If only one element is left, return that element: {5} is 5.
    """
    distinct = {part.key: part for part in parts}
    elements = [distinct[key] for key in sorted(distinct)]
    return elements[0] if len(elements) == 1 else Form("set", parts=tuple(elements))


class Vote(NamedTuple):
    """The answers of a prompt's K rollouts, counted by class (R9).

    `vote` makes it from the answers, and `Vote.stored` from what a run stores. Answers with the same meaning form a
    class. The majority is the one class with the most rollouts. In a tie there is no majority.
    """

    majority: Key | None
    """Key of the class with the most rollouts, or None if classes tie for the top or nobody answered."""

    majority_count: int
    """Number of rollouts in the majority class; 0 without a majority."""

    rollouts: int
    """K, missing answers included."""

    answered: int
    """Number of rollouts that have an answer."""

    counts: Mapping[Key, int]
    """Number of rollouts in each class."""

    spelling: Mapping[Key, str]
    """Most frequent spelling of each class; of equally frequent ones, the first in lexicographic order."""

    @property
    def majority_answer(self) -> str | None:
        """The most frequent spelling of the majority answer, or None without a majority."""
        return None if self.majority is None else self.spelling[self.majority]

    @classmethod
    def stored(
        cls, majority: Key | None, answer: str | None, count: int, rollouts: int
    ) -> Vote:
        """Build a vote from what a run stores about it, which is only the majority class.

        The other classes are unknown, so `Vote.answered` and `Vote.counts` leave them out.

        Args:
            majority: key of the majority class, or None without a majority.
            answer: spelling of the majority, or None without a majority.
            count: number of rollouts in the majority class.
            rollouts: K, the number of all rollouts.
        """
        if majority is None or answer is None:
            return cls(None, count, rollouts, count, {}, {})
        return cls(majority, count, rollouts, count, {majority: count}, {majority: answer})


def vote(answers: Sequence[str | None], keys: Mapping[str, Key]) -> Vote:
    """Count the answers of a prompt's K rollouts by class, and return the counts as a `Vote` (R9).

    Args:
        answers: one answer per rollout. None is a missing answer; it doesn't vote but counts in K.
        keys: answer -> key of its class, for each answer that is not None.
    """
    spellings = Counter(answer for answer in answers if answer is not None)
    spelling = {keys[answer]: answer for answer in spellings}
    # Nearly always each class has a single spelling, and nothing has to be sorted.
    if len(spelling) == len(spellings):
        counts = Counter({key: spellings[answer] for key, answer in spelling.items()})
    else:
        counts, spelling = Counter(), {}
        for answer, count in sorted(
            spellings.items(), key=lambda item: (-item[1], item[0])
        ):
            counts[keys[answer]] += count
            spelling.setdefault(keys[answer], answer)
    most = max(counts.values(), default=0)
    majority = (
        max(counts, key=counts.__getitem__) if [*counts.values()].count(most) == 1 else None
    )
    return Vote(
        majority=majority,
        majority_count=0 if majority is None else most,
        rollouts=len(answers),
        answered=spellings.total(),
        counts=counts,
        spelling=spelling,
    )


def first_majority(
    answers: Sequence[str | None], tally: Vote, keys: Mapping[str, Key]
) -> Key | None:
    """Return the key of the class with the most rollouts, or None if nobody answered.

    If several classes have the most rollouts, return the one that was the first to reach this number.

    Args:
        answers: answers in the order in which the rollouts were sampled; None for a missing answer.
        tally: the `vote` of these answers.
        keys: answer -> key of its class.
    """
    most, counts_so_far = max(tally.counts.values(), default=0), Counter[Key]()
    for answer in answers:
        if answer is not None:
            key = keys[answer]
            counts_so_far[key] += 1
            if counts_so_far[key] == most:
                return key
    return None
