"""Classes of answers: the meaning of an answer, however it is spelled, the key of its class (R7), votes (R9)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, NamedTuple, NewType

Key = NewType("Key", str)
"""Names a class: answers are in one class if they have one key, and for no other reason."""

FormKind = Literal[
    "number", "percent", "quantity", "based", "value", "word", "choice", "time",
    "tuple", "set", "interval", "union", "matrix", "congruence", "assignment", "system", "equation", "other", "text",
]  # fmt: skip

UNITS_LEFT_OUT = frozenset({"degree", "dollar"})
"""Units that people write or omit without meaning anything else: the key of `90^\\circ` is that of `90`."""

COUNTED = "#"
"""Prefix of the unit of things that are counted (`5 apples`), which the key ignores."""

OF_LETTERS = "?"
"""Prefix of a guess about the values of letters, which leaves no doubt that a form is no plain number."""

_LONGEST_LABEL = 120


@dataclass(frozen=True, slots=True)
class Form:
    r"""The meaning of an answer, apart from its spelling.

    | kind       | label                                 | parts                                             |
    |------------|---------------------------------------|---------------------------------------------------|
    | number     | the exact rational, "p" or "p/q"      |                                                   |
    | percent    |                                       | the number before the percent sign                |
    | quantity   | its unit                              | what is before or after the unit                  |
    | based      | base and digits: "8:52"               |                                                   |
    | value      | the value at fixed points             |                                                   |
    | word       | letters, in small ones                |                                                   |
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
    | equation   | what vanishes, or the sides           | the last side, and the text, unless it solves one |
    | other      | the expression or inequality          |                                                   |
    | text       | normalised text                       | (can't be read, R8)                               |

    Attributes:
        guesses: what the reader guessed here: letters in a row that it took for a product, a style that it dropped. No
            class depends on them, and no answer is proved wrong on a guess (R7).
        others: other readings of the same text, for the same purpose: `3,14` as a decimal, `5\,\Omega` as a 5.
    """

    kind: FormKind
    label: str = ""
    parts: tuple[Form, ...] = ()
    guesses: frozenset[str] = field(default=frozenset(), compare=False)
    others: tuple[Form, ...] = field(default=(), compare=False)

    def guessed(self, guesses: Iterable[str], others: Iterable[Form] = ()) -> Form:
        """The same form, read less surely."""
        guesses, others = self.guesses.union(guesses), (*self.others, *others)
        return replace(self, guesses=guesses, others=others) if guesses or others else self

    def is_told_from(self, other: Form) -> bool:
        """Whether they differ for certain, if they differ: nothing was guessed, or nothing that a number could be."""
        guesses = self.all_guesses | other.all_guesses
        if self.is_plain or other.is_plain:
            return all(guess.startswith(OF_LETTERS) for guess in guesses)
        return not guesses

    @property
    def is_plain(self) -> bool:
        """Whether it is made of numbers alone."""
        if self.kind in ("tuple", "set", "interval", "matrix"):
            return all(part.is_plain for part in self.parts)
        return self.kind in ("number", "percent", "quantity", "based", "time")

    @property
    def all_guesses(self) -> frozenset[str]:
        """The guesses made in it and in its parts."""
        return (
            self.guesses.union(*(part.all_guesses for part in self.parts))
            if self.parts
            else self.guesses
        )

    @property
    def key(self) -> Key:
        """The key of the class of all answers that say this."""
        match self.kind:
            # `x = 5` is 5.
            case "assignment":
                return self.parts[0].key
            # `50\%` is 1/2.
            case "percent":
                return number(exact(self) / 100).key
            # `90^\circ` is 90, and `5 apples` are 5.
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
            # Its last side is no part of what an equation says.
            case "equation" | "other":
                return _key(self.kind, self.label)
            # Elements may have several spellings of one class.
            case "set" | "union":
                return _key(self.kind, "", sorted({part.key for part in self.parts}))
        return _key(self.kind, self.label, [part.key for part in self.parts])


def _key(kind: str, label: str, parts: Sequence[str] = ()) -> Key:
    # quoted: no label reads like a label with parts
    text = label if label.isalnum() else json.dumps(label)
    if parts:
        text += f"({','.join(parts)})"
    return Key(f"{kind} {short(text)}")


def is_read(key: Key) -> bool:
    """Whether the answers of a class could be read within their limits; otherwise they share their text (R8)."""
    return not key.startswith("text ")


def unread(text: str) -> Form:
    """The form of an answer that can't be read, by its normalised text."""
    return Form("text", short(text))


def short(label: str) -> str:
    """`label`, or its digest if it is long."""
    if len(label) <= _LONGEST_LABEL:
        return label
    return (
        "#"
        + hashlib.blake2b(
            label.encode("utf-8", "surrogatepass"), digest_size=20
        ).hexdigest()
    )


def number(value: Fraction) -> Form:
    p, q = value.numerator, value.denominator
    # Decimal digits of a huge integer take quadratic time
    if p.bit_length() + q.bit_length() > 2000:
        return Form("number", f"{p:#x}/{q:#x}")
    return Form("number", str(value))


def exact(form: Form) -> Fraction:
    """The rational that a number's form stands for; of a percentage, the number before its sign."""
    label = form.parts[0].label if form.kind == "percent" else form.label
    p, _, q = label.partition("/")
    return Fraction(int(p, 0), int(q or "1", 0))


def approximate(form: Form) -> Fraction | None:
    """The real number that a form stands for, to some 40 digits; None if it stands for none."""
    if form.kind == "number":
        return exact(form)
    one, _, other = form.label.partition(" ")
    # Letters have other values at another point
    if form.kind != "value" or one != other or ",0@" not in one:
        return None
    mantissa, _, exponent = one.partition(",0@")
    return Fraction(int(mantissa, 16)) * Fraction(2) ** int(exponent)


def unordered(parts: Iterable[Form]) -> Form:
    """Form of a set or list whose order means nothing; a single element is the element itself."""
    distinct = {part.key: part for part in parts}
    elements = [distinct[key] for key in sorted(distinct)]
    return elements[0] if len(elements) == 1 else Form("set", parts=tuple(elements))


class Vote(NamedTuple):
    """How the K rollouts of a group voted.

    Attributes:
        majority: key of the one class with the most rollouts; None if classes tie for the top or nobody answered.
        majority_count: 0 without a majority.
        rollouts: K, missing answers included.
        counts: rollouts in each class.
        spelling: most frequent spelling of each class, ties in lexicographic order.
    """

    majority: Key | None
    majority_count: int
    rollouts: int
    answered: int
    counts: Mapping[Key, int]
    spelling: Mapping[Key, str]

    @property
    def majority_answer(self) -> str | None:
        """The majority as it is spelled; None without one."""
        return None if self.majority is None else self.spelling[self.majority]

    @classmethod
    def stored(
        cls, majority: Key | None, answer: str | None, count: int, rollouts: int
    ) -> Vote:
        """Return the part of a vote that a run stores: the majority, its spelling and its count, and K."""
        if majority is None or answer is None:
            return cls(None, count, rollouts, count, {}, {})
        return cls(majority, count, rollouts, count, {majority: count}, {majority: answer})


def vote(answers: Sequence[str | None], keys: Mapping[str, Key]) -> Vote:
    """Count the answers of a group's K rollouts; None is a missing answer, which doesn't vote but counts in K (R9)."""
    spellings = Counter(answer for answer in answers if answer is not None)
    spelling = {keys[answer]: answer for answer in spellings}
    # Each class has one spelling, as nearly always: nothing to sort
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
    """The majority class; in a tie, that of the classes at the top which had all its rollouts first; None without any.

    `answers`, whose `vote` is given, are in the order in which the rollouts were sampled.
    """
    most, reached = max(tally.counts.values(), default=0), Counter[Key]()
    for answer in answers:
        if answer is not None:
            key = keys[answer]
            reached[key] += 1
            if reached[key] == most:
                return key
    return None
