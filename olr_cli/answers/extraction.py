"""Which part of a response is its answer (R6)."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from types import MappingProxyType

from olr_cli.answers.own_extractors import Extractor, last_match, own_extractor
from olr_cli.answers.thinking import after_thinking, is_thinking as is_thinking
from olr_cli.errors import UserError, did_you_mean, shortened

_BUILT_IN = {
    "arithmetic": "reversed_digits",
    "arithmetic-addition": "reversed_digits",
    "arithmetic-subtraction": "reversed_digits",
    "arithmetic-products": "first_integer",
    "arithmetic-sums": "first_integer",
    "arithmetic-maxima": "first_integer",
    "arithmetic-dates": "first_integer",
}
ARITHMETIC_SOURCES = frozenset(_BUILT_IN)
"""Data sources of the built-in prompts; any other name, even "arithmetic-mine", is a user's own."""

# An escaped brace is a character, not a group; "\\" is a line break, unless what follows is a box all the same.
_TOKEN = re.compile(
    r"(?P<box>\\boxed\s*\{)|\\(?:[{}]|\\(?!boxed))|(?P<open>\{)|(?P<close>\})"
)
_PLAIN_TEXT = r"(?:[^{}\\]++|\\[^{}\\])*+"
_SIMPLE_BOX = re.compile(
    rf"\\boxed\s*\{{({_PLAIN_TEXT}(?:\{{{_PLAIN_TEXT}\}}{_PLAIN_TEXT})*+)\}}"
)
_REVERSED = re.compile(r"([0-9]+)(-?)")


def boxed(response: str) -> str | None:
    r"""Content of the complete, balanced ``\boxed{...}`` that begins last; None if there is none or it is blank (R6).

    Prose never counts: the authors' code takes any number of it instead, and makes a set of adjacent boxes. Takes time
    linear in the length of the response.
    """
    start = response.rfind("\\boxed")
    # Most boxes hold a number or a fraction, in which no braces have to be counted.
    if simple := _SIMPLE_BOX.match(response, start):
        return simple[1].strip() or None
    # Nearly always the last one is complete, and the rest need not be read.
    span = None if start < 0 else _last_box(response, start) or _last_box(response, 0)
    return None if span is None else response[slice(*span)].strip() or None


def _last_box(text: str, start: int) -> tuple[int, int] | None:
    """Span of the content of the complete box that begins last, from `start` on."""
    stack: list[int | None] = []  # content start of each open box, None for any other group
    span = None
    for token in _TOKEN.finditer(text, start):
        if token["box"]:
            stack.append(token.end())
        elif token["open"]:
            stack.append(None)
        elif token["close"] and stack:
            opened = stack.pop()
            if opened is not None and (span is None or opened > span[0]):
                span = opened, token.start()
    return span


def reversed_digits(response: str) -> str | None:
    """The number a response of the arithmetic task claims: digits, least significant first, then the sign.

    ``975`` claims 579, ``5-`` claims -5. Anything else in the response: no answer.
    """
    match = _REVERSED.fullmatch(response.strip())
    if match is None:
        return None
    digits = match[1][::-1].lstrip("0") or "0"
    return match[2] + digits if digits != "0" else digits


def tagged(response: str, tag: str) -> str | None:
    """Content of the last complete ``<tag>…</tag>``, or of the box in it."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    # The last tag that opens before the last that closes.
    start = response.rfind(opening, 0, max(response.rfind(closing), 0))
    return (
        None
        if start < 0
        else _box_or_text(response[start + len(opening) :].partition(closing)[0])
    )


def after(response: str, marker: str) -> str | None:
    """The rest of the line after the last `marker`, or the content of the box in it; GSM8K's marker is ``####``."""
    _, is_there, rest = response.rpartition(marker)
    line = rest.strip().partition("\n")[0]
    return _box_or_text(line) if is_there else None


def _box_or_text(text: str) -> str | None:
    return boxed(text) or text.strip() or None


_DIGITS = r"(?:\d{1,3}(?:(?:,|\{,\}|,?\\[,!])\d{3})+|\d+)(?!\d)"
_SEPARATOR = re.compile(r"\{,\}|,?\\[,!]|,")
_INTEGER = re.compile(rf"(?<![\w.])([-−]?)({_DIGITS})(?!\.\d)", re.ASCII)
_EXPONENT = r"(?:\s*(?:\^|\*\*)\s*(?:\{\s*[-−+]?\d+\s*\}|\(\s*[-−+]?\d+\s*\)|[-−+]?\d+)|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)"
_NUMBER = re.compile(
    rf"((?<![\w)\]}}^*])(?<![\^*][{{(])[-−])?"
    r"((?<![\w.^])(?<![\^*][{(-])\.\d+"
    rf"|(?<![\w^])(?<!\*\*)(?<![\^*][{{(−-])(?<![\^*][{{(][−-])(?<!\d\.){_DIGITS}(?: \d+/\d+|\.\d+|/\d+)?)"
    rf"([eE][-+]?\d+(?!\w)|(?:\s*(?:×|\\times|\\cdot|\*|[xX])\s*10)?{_EXPONENT})?",
    re.ASCII,
)
_RUNS_ON = re.compile(
    r"\n\s*(?:Question|Problem|Q|User|Human|Input)(?: ?\d+)?\s*[:：]"
    r"|<\|(?:im_end|im_start|eot_id|end|endoftext|end_of_text)\|>|<end_of_turn>|</s>|<｜end▁of▁sentence｜>"
)


def _own_turn(response: str) -> str:
    """A response up to where a base model runs on: another question, or a mark that ends a turn."""
    runs_on = _RUNS_ON.search(response.lstrip())
    return response.lstrip()[: runs_on.start()] if runs_on else response


def first_integer(response: str) -> str | None:
    """The first whole number of a response: ``-1,234 apples`` claims -1234; the digits of 3.5 are none."""
    match = _INTEGER.search(response)
    return None if match is None else _plain_number(match[1], match[2])


def last_number(response: str) -> str | None:
    """Return the last number of a response: ``so 2 * 3 = $1,234.50.`` claims 1234.50; ``1 1/2``, ``1.5e-3``.

    A power is read whole, as ``2^{10}``; its exponent alone is no number: of ``x^2`` nothing is read.
    """
    matches = [*_NUMBER.finditer(_own_turn(response))]
    return _plain_number(*matches[-1].groups(default="")) if matches else None


def _plain_number(sign: str, digits: str, exponent: str = "") -> str:
    return ("-" if sign else "") + _SEPARATOR.sub("", digits) + exponent


# A letter of an option, in whatever marks. In `A planet` and `I think` it is a word.
_OPTION = (
    r"(?:(?i:option|choice|letter) ?)?[\s*$_`\"'“‘(\[{]*+(?:\\(?:text|math)\w*\{)?[(\[]?([A-Z])(?![a-zA-Z0-9_À-ɏ’'])"
    r"(?!(?<=[AI]) +(?!(?:and|as|based|because|but|by|due|for|given|is|or|since|which|with)\b)[a-z])[)\]}*$\"”’`]*"
)
_TWO = rf"(?:\s*+(?:,|/|&|、|(?:and|or|et|ou|und|oder|y|o|e)\b|[和或])\s*+{_OPTION})?"
_ANSWER = (
    r"(?:\b(?:answer|antwort|réponse(?: finale)?|respuesta(?: final)?|risposta(?: finale)?|resposta(?: final)?|ответ"
    r"|correct (?:option|choice|letter)|(?:best|right) (?:option|choice|letter))\b|答案|正解|答え|정답)"
)
_IS = (
    r"(?:(?:is|ist|est|es|è|é|(?:must|should|would|will|has to|seems to|appears to) be)\b|[:=是为は])"
    r"(?>[\s:*]*+\b(?:clearly|definitely|certainly|obviously|probably|(?:most )?likely|therefore|thus|indeed|simply|"
    r"for sure|the)\b)*+"
)
_STATED = re.compile(
    rf"(?i:{_ANSWER})[\s*_]*+(?i:{_IS})[\s:*]*+{_OPTION}{_TWO}"
    rf"|(?i:\b(?:choose|pick|select|go with)\b|[选選][择擇]?[:：]?)\s*+{_OPTION}{_TWO}"
    r"|(?:选项|選項)\s*([A-Z])\s*(?:是|为|為)?\s*(?:正[确確]|对|對)的?"
    r"|(?im:\b(?:my|final|the) answer)\s*[:=]\s*[(\[]?(?P<small>[a-j])[)\]]?[\s.]*$"
    rf"|(?<![\w(\[*])[(\[*]*+([A-Z])[)\]*]*+ is (?:(?:therefore|clearly|the) )*(?i:correct|right|best)\b"
)
_NAMED = re.compile(
    rf"(?i:\b(?:answer|option|choice)\b)\s*+{_OPTION}{_TWO}"
    r"(?!,? *+(?i:(?:is|are|was|would be|must be|seems) (?:also |clearly |both )?(?:not|wrong|incorrect|false|ruled)"
    r"|isn't|cannot|can't|can be (?:ruled|excluded|eliminated)|fails|does(?: not|n't)))"
)


def choice(response: str) -> str | None:
    r"""The letter of the option that a response chooses (R6, R20).

    It stands in the last box, as in ``\boxed{(B)}``. Without a box, or after one that names no option, it is what is
    stated last ("the answer is B", "C is correct"); else all that the last line names, as in ``(B)`` or ``B. Planets``;
    else the "option B" that is named last and not refused. Two letters at once are none.
    """
    if (box := boxed(response)) is not None:
        if letter := option_letter(box, len(ascii_uppercase)):
            return letter
        response = response[response.rindex("\\boxed") :].partition(box)[2]
    text = unicodedata.normalize("NFKC", response)
    if stated := [*_STATED.finditer(text)]:
        return _one_letter(stated[-1])
    last_line = (
        option_letter(text.strip().rpartition("\n")[2], len(ascii_uppercase))
        if box is None
        else None
    )
    if last_line is None and (named := [*_NAMED.finditer(text)]):
        return _one_letter(named[-1])
    return last_line


_FINAL = re.compile(r"(?im)^[#*_> \t]*(?:the )?final answer[:：*_ \t]*\n(?=\s*\S)")
_CLAIM = re.compile(rf"(?i:{_ANSWER})[\s*_]*+(?i:{_IS}|：)[\s:：*]*+")
_CLOSING = re.compile(r"\*\*([^*\n]+)\*\*[\s.]*\Z")
_SENTENCE_END = re.compile(r"[.!](?:\s|$)|。")


def last_answer(response: str) -> str | None:
    """Return the answer that a response marks, in whatever way: for logs of others, not for training (R6).

    The first of these that is there: the last box; what is marked in ``<answer>…</answer>``, or all of it; ``#### x``,
    unless it is a heading; what stands below a heading "Final Answer"; ``**x**`` at the end; the rest of the sentence
    after the last "Answer:" or "answer is"; the last code block, if it is one line. All before a base model runs on.
    """
    response = _own_turn(response)
    # `\fbox{7}` is a box to the eye.
    if (box := boxed(response.replace("\\fbox", "\\boxed"))) is not None:
        return box
    # Within a tag another mark may stand, as in `<answer>The answer is 7.</answer>`.
    if (within := tagged(response, "answer")) is not None:
        return last_answer(within) or within
    if (line := after_hashes(response)) is not None:
        return line
    if headings := [*_FINAL.finditer(response)]:
        below = response[headings[-1].end() :].strip()
        return last_answer(below) or below.partition("\n")[0].strip(" *`$") or None
    text = _closing_claim(response).strip(" *`")
    # The end of a displayed formula that begins before the claim.
    is_math = "\\[" in text or "\\(" in text
    return (text if is_math else re.sub(r"\s*\\[\])]$", "", text)) or None


def after_hashes(text: str, blank: str | None = None) -> str | None:
    """Return the line after the last ``####``; None if it is a heading, words with more below them.

    `blank` has the characters that may stand around it; by default, all white space.
    """
    _, is_there, rest = text.rpartition("####")
    line, _, more = rest.strip(blank).partition("\n")
    is_answer = is_there and line and not any(map(str.isalpha, line if more else ""))
    return line.strip(blank) if is_answer else None


def _closing_claim(response: str) -> str:
    """Return what a response says in bold at its end, after its last "answer is", or in a code block of one line."""
    closing = _CLOSING.search(response)
    text = closing[1] if closing else response
    if claims := [*_CLAIM.finditer(text)]:
        line = text[claims[-1].end() :].partition("\n")[0]
        return _SENTENCE_END.split(line, maxsplit=1)[0]
    return text if closing else _last_code_line(response)


def _last_code_line(response: str) -> str:
    """Return the last code block of a response; "" if it has none, or one of several lines."""
    fenced = response.split("```")
    if len(fenced) < 3 or len(fenced) % 2 == 0:
        return ""
    # Its first line is the name of a language
    block = fenced[-2].partition("\n")[2].strip()
    return "" if "\n" in block else block


def _one_letter(match: re.Match[str]) -> str | None:
    letters = {letter.upper() for letter in match.groups() if letter}
    return letters.pop() if len(letters) == 1 else None


_LONGEST_READ = 1000
_STYLED = re.compile(
    r"\\(?:text[a-z]*|math(?:rm|bf|it|sf|tt|normal)|[mhf]box|boxed|boldsymbol|bm|operatorname|underline|emph)"
    r"\s*\{([^{}]*)\}"
)
_NOTHING = re.compile(
    r"\$|\*\*|\\[()\[\]]|\\(?:left|right|bf|rm|it|displaystyle)(?![a-zA-Z])|\\(?=[{}%&#])"
)
_SPACE = re.compile(r"(?:\s|~|\\[,;:! ]|\\q?quad(?![a-zA-Z]))+")
_PREFIX = re.compile(
    r"(?:(?:(?:the|correct|right|best|final|answer|option|choice|letter|is)\b|[:=]) ?)*",
    re.IGNORECASE,
)
# B, (B), B), B) text, B. text, B: text, B - text, B (text). A word right after the letter makes it text: `A planet`.
_CHOICE = re.compile(
    r"[(\[{]? ?(?P<label>[A-Za-z]|\d{1,2}) ?"
    r"(?:[)\]}] ?[.:]?|[.:](?= |$)|(?<= )[-\N{EN DASH}\N{EM DASH}](?= )|(?<= )(?=\()|$) ?(?P<text>.*)"
)
# Another option, as in `(A) and B`, `A) this, B) that`; but not the C of `A) carbon (C)` or the B of `A) B`.
_ANOTHER = re.compile(
    r"(?:^|[,;&/] ?|\b(?:and|or) )\(?([A-Z]|\d{1,2})[):]|^(?:(?:and|or) |[,;&/] ?)([A-Z]|\d{1,2})\b"
)


def option_letter(answer: str, options: int, *, numbered: bool = False) -> str | None:
    r"""The letter of the one option that an answer names; None if it names none, or several (R20).

    ``B``, ``(b)``, ``\text{(B)}``, ``B) Planets``, ``B. Planets`` and ``Option B`` name the second. The text of an
    option alone names none; nor does a letter that a word follows: ``A planet``, ``B cells``.

    Args:
        answer: the content of a box.
        options: how many there are, at most 26.
        numbered: the options are numbered in print, so that ``2`` names the second as ``B`` does.
    """
    if len(answer) == 1 and answer.isascii() and answer.isalpha():
        return _letter(answer, options, numbered)
    match = _CHOICE.fullmatch(_plain(answer))
    if match is None:
        return None
    letter = _letter(match["label"], options, numbered)
    others = {
        _letter(a or b, options, numbered) for a, b in _ANOTHER.findall(match["text"])
    }
    return letter if others <= {letter, None} else None


def _plain(answer: str) -> str:
    """An answer without LaTeX's styles and spaces, its full stop, and words such as "Answer:"."""
    text, styles = unicodedata.normalize("NFKC", answer[:_LONGEST_READ]), 1
    while styles:
        text, styles = _STYLED.subn(r"\1", text)
    text = _SPACE.sub(" ", _NOTHING.sub("", text)).strip().rstrip(".。").rstrip()
    return text[_PREFIX.match(text).end() :]  # type: ignore[union-attr]  # it matches the empty string


def _letter(label: str, options: int, numbered: bool) -> str | None:
    """The letter of the option with a label, which is a letter itself or a number from 1."""
    place = (
        int(label) - 1
        if numbered and label.isdecimal()
        else ascii_uppercase.find(label.upper())
    )
    return ascii_uppercase[place] if 0 <= place < options else None


EXTRACTORS: Mapping[str, Extractor] = MappingProxyType({
    "boxed": boxed,
    "first_integer": first_integer,
    "last_number": last_number,
    "last_answer": last_answer,
    "choice": choice,
    "reversed_digits": reversed_digits,
    "text": lambda response: response.strip() or None,  # for logs that hold the answer itself
})  # fmt: skip
"""Extractors without a setting, by the name that a recipe or benchmark calls them."""

_TAG = re.compile(r"[A-Za-z][\w.-]*")


def extract(response: str, extractor: str = "boxed") -> str | None:
    """Return the answer that a response claims, or None if it claims none.

    Thinking is no claim: the answer is read after the thinking, and a response that ends inside it has none (R6).
    """
    read = find_extractor(extractor)
    said = after_thinking(response)
    if said is None:
        return None
    answer = read(said)
    if answer is None and len(said) < len(response) and read is last_answer:
        return said.strip().rpartition("\n")[2] or None
    return answer


@functools.cache
def find_extractor(extractor: str) -> Extractor:
    r"""The extractor that a setting means: training, evaluation, audit and replay all read answers with it (R6).

    | setting | the answer is |
    |---|---|
    | a name of `EXTRACTORS` | as its function says |
    | ``regex:PATTERN`` | the last match: its first group, or all of it where there is none |
    | ``after:TEXT`` | the rest of the line after the last TEXT |
    | ``tag:NAME`` | the content of the last ``<NAME>…</NAME>`` |
    | ``package.module:function`` | what this function of the user's own returns |
    """
    kind, colon, text = extractor.partition(":")
    if not colon:
        if kind in EXTRACTORS:
            return EXTRACTORS[kind]
        raise UserError(
            f"there is no extractor '{shortened(extractor)}'{did_you_mean(extractor, EXTRACTORS)}",
            "known:"
            f" {', '.join(EXTRACTORS)}, regex:PATTERN, after:TEXT, tag:NAME, package.module:function",
        )
    if not text.strip():
        raise UserError(
            f"nothing follows the colon of the extractor '{shortened(extractor)}'",
            "fill it in",
        )
    match kind:
        case "regex":
            return last_match(text)
        case "after":
            return functools.partial(after, marker=text.strip())
        case "tag" if _TAG.fullmatch(text):
            return functools.partial(tagged, tag=text)
        case "tag":
            raise UserError(
                f"{shortened(text)} is not the name of a tag",
                "give it without brackets, as in tag:answer",
            )
    return own_extractor(extractor)


def reading_more(responses: Sequence[str]) -> str | None:
    """A sentence on the most specific extractor that reads more than half of the responses; None if none does."""
    for name in (
        "boxed",
        "after:####",
        "tag:answer",
        "choice",
        "last_answer",
        "last_number",
    ):
        read = sum(extract(response, name) is not None for response in responses)
        if 2 * read > len(responses):
            return f"The extractor {name} reads {read} of {len(responses)} responses."
    return None


def default_extractor(data_source: str) -> str:
    """Name of the extractor for a data source: the built-in sets have their own (R6)."""
    return _BUILT_IN.get(data_source, "boxed")
