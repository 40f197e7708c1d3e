"""Wrong answers that rules make from the text of golds, without knowing how answers are compared.

A gold that a rule cannot change into a surely wrong answer is left alone: the sign of 0, the order of a list.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

RIGHT = ("itself", "restyled")
"""Kinds of answers that must be graded right."""

WRONG = (
    "sign", "off by one", "last digit", "another gold", "swapped pair", "incomplete list", "wrong letter",
)  # fmt: skip
"""Kinds of answers that must be graded wrong."""

_THOUSANDS = r"\d{1,3}(?:,(?:\\!)?\s?\d{3})+"
_NUMBER = rf"(?P<sign>[+-]?)(?P<digits>{_THOUSANDS}|\d+(?:\.\d*)?|\.\d+)"
_UNIT = r"\s*(?:\^\\circ|\^\{\\circ\}|\\?%|\\(?:text|mbox)\s*\{[^{}]*\}(?:\^\d)?)"
_QUANTITY = re.compile(
    rf"(?P<before>(?:\\\$)?){_NUMBER}(?P<after>[eE][+-]?\d+|_\{{?\d\}}?|{_UNIT}|)"
)
_ASSIGNMENT = re.compile(r"(?P<left>[a-zA-Z](?:\([a-z]\))?\s*=\s*)(?P<right>[^=]*)")
_PAIR = re.compile(r"(?:\\left)?\s*\((?P<a>[^()]*?),(?P<b>[^()]*?)(?:\\right)?\s*\)")
_LETTER = re.compile(r"(?P<before>\\text\{\()(?P<letter>[A-E])(?P<after>\)\})")
# A match means that -x and x + 1 are not surely wrong: the expression is no single number or formula.
_NO_SCALAR = re.compile(
    r"[=<>,;&|\[\]]|\\(?:le|ge|in|cup|pm|text|mbox|begin|infty|angle|log|arcsin)|\\[{}]|where|np\.|[CcKk]\b|_\{?\d|'"
)


@dataclass(frozen=True)
class Perturbed:
    """An answer that a rule of this `kind` made from the gold (the right answer) of problem number `index`.

    Answers of the kinds in `RIGHT` must be graded right, those of the kinds in `WRONG` wrong.
    """

    index: int
    kind: str
    answer: str


def perturbed(golds: Sequence[str]) -> Iterator[Perturbed]:
    """Yield, for each gold of a benchmark, every right or wrong answer that the rules make from it.

    An answer has the position of its gold in `golds` as its `index`.
    """
    bare = [_bare(gold) for gold in golds]
    for index, gold in enumerate(bare):
        yield Perturbed(index, "itself", golds[index])
        yield Perturbed(index, "restyled", _restyled(gold))
        other = _another(bare, index)
        if other is not None:
            yield Perturbed(index, "another gold", other)
        for kind, rule in _RULES.items():
            answer = rule(gold)
            if answer is not None:
                yield Perturbed(index, kind, answer)


def _bare(gold: str) -> str:
    """Return a gold without the dollar signs around it, if it is a single formula."""
    gold = gold.strip()
    inner = gold[1:-1]
    return inner.strip() if gold[:1] == gold[-1:] == "$" and "$" not in inner else gold


def _restyled(gold: str) -> str:
    r"""Return the gold in another style that means the same: ``$...$``, \dfrac, \left and \right, no final .0."""
    text = re.sub(r"\\[dt]?frac(?![a-z])", r"\\dfrac", re.sub(r"(?<=\d)\.0$", "", gold))
    if not re.search(r"\\left|\\right|\\[|\\]", text) and text.count("(") == text.count(
        ")"
    ):
        text = text.replace("(", "\\left( ").replace(")", " \\right)")
    return text if "$" in text else f"$ {text} $"


def _another(golds: Sequence[str], index: int) -> str | None:
    """Return the first gold after number `index` that differs from it by more than style; None without one.

    The search goes on at the first gold after the last.
    """
    own = _characters(golds[index])
    following = (*golds[index + 1 :], *golds[:index])
    return next((other for other in following if _characters(other) != own), None)


def _characters(gold: str) -> str:
    """Return the sorted characters of a gold without brackets, styles, units and final .0.

    Two golds that differ only in style have the same characters.
    """
    plain = re.sub(
        r"\\(?:text|mbox)\s*\{[^{}]*\}(?:\^\d)?|\^\{?\\circ\}?|\\!|\\\$|[\s${}()\\]|_\d$",
        "",
        gold,
    )
    plain = re.sub(r"(?<=\d)\.0+$|^\+|^[a-z](?:\([a-z]\))?=|(?<=\d)m$", "", plain)
    return "".join(sorted(plain.replace("dfrac", "frac").lower()))


def _sign(gold: str) -> str | None:
    """Return the gold with the opposite sign: -x for x, or (-a, b) for (a, b).

    None: the rule makes no surely wrong answer of it, such as from 0.
    """
    quantity, pair, assignment = (
        _QUANTITY.fullmatch(gold),
        _PAIR.fullmatch(gold),
        _ASSIGNMENT.fullmatch(gold),
    )
    if quantity:
        if not float(re.sub(r"[^\d.]", "", quantity["digits"])):
            return None
        return gold[1:] if quantity["sign"] == "-" else "-" + gold.removeprefix("+")
    if pair:
        first = _sign(pair["a"].strip())
        return first and f"({first},{pair['b']})"
    if assignment and _is_scalar(assignment["right"]):
        return f"{assignment['left']}-({assignment['right']})"
    return f"-\\left({gold}\\right)" if _is_scalar(gold) else None


def _off_by_one(gold: str) -> str | None:
    """Return a number one further from 0, (a + 1, b) for (a, b), or x + 1 for an expression x.

    None: the rule makes no surely wrong answer of it.
    """
    quantity, pair, assignment = (
        _QUANTITY.fullmatch(gold),
        _PAIR.fullmatch(gold),
        _ASSIGNMENT.fullmatch(gold),
    )
    if quantity and quantity["after"].startswith("_"):
        return None  # digits of another base
    if quantity:
        whole, dot, decimals = re.sub(r"[^\d.]", "", quantity["digits"]).partition(".")
        more = f"{int(whole or '0') + 1}{dot}{decimals}"
        return f"{quantity['before']}{quantity['sign']}{more}{quantity['after']}"
    if pair:
        first = _off_by_one(pair["a"].strip())
        return first and f"({first},{pair['b']})"
    if assignment and _is_scalar(assignment["right"]):
        return f"{assignment['left']}{assignment['right']}+1"
    return f"{gold}+1" if _is_scalar(gold) else None


def _last_digit(gold: str) -> str | None:
    """Return a decimal with another last digit, such as 20.38 for 20.39; None if the gold is no decimal."""
    quantity = _QUANTITY.fullmatch(gold)
    if (
        not quantity
        or "." not in quantity["digits"]
        or not quantity["digits"][-1].isdigit()
    ):
        return None
    last = int(quantity["digits"][-1])
    digits = quantity["digits"][:-1] + str(last - 1 if last else 1)
    return f"{quantity['before']}{quantity['sign']}{digits}{quantity['after']}"


def _swapped(gold: str) -> str | None:
    """Return (b, a) for (a, b); None if the gold is no pair, or a and b are equal."""
    pair = _PAIR.fullmatch(gold)
    if not pair or pair["a"].strip() == pair["b"].strip() or "," in pair["b"]:
        return None
    return f"({pair['b'].strip()}, {pair['a'].strip()})"


def _incomplete(gold: str) -> str | None:
    """Return a list without its last item, such as 1, 2 for 1, 2, 3.

    None: the gold is no list, or its last item also occurs before.
    """
    if re.fullmatch(rf"(?:\\\$)?{_THOUSANDS}", gold) or "=" in gold:
        return None
    depth, cuts = 0, []
    for position, sign in enumerate(gold):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            cuts.append(position)
    items = [
        re.sub(r"[\s$]", "", gold[a:b])
        for a, b in zip([0, *(c + 1 for c in cuts)], [*cuts, None], strict=True)
    ]
    return gold[: cuts[-1]].strip() if cuts and items[-1] not in items[:-1] else None


def _other_letter(gold: str) -> str | None:
    r"""Return the next of the letters A to E, such as \text{(D)} for \text{(C)}; None if the gold is no such letter."""
    # The next letter of A to E, and A after E.
    letter = _LETTER.fullmatch(gold)
    return (
        letter
        and f"{letter['before']}{'BCDEA'['ABCDE'.index(letter['letter'])]}{letter['after']}"
    )


def _is_scalar(gold: str) -> bool:
    """Return whether a gold is a single number or formula x, for which -x and x + 1 are surely wrong."""
    return not _NO_SCALAR.search(gold) and not re.search(r"\d\s*_|\\?%|\$", gold)


_RULES: dict[str, Callable[[str], str | None]] = {
    "sign": _sign, "off by one": _off_by_one, "last digit": _last_digit, "swapped pair": _swapped,
    "incomplete list": _incomplete, "wrong letter": _other_letter,
}  # fmt: skip
