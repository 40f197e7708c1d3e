"""Extract the answer from a response (R6)."""

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

# An escaped brace is a character and opens no group. "\\" is a line break, but `\\boxed{7}` still counts as a box.
_TOKEN = re.compile(
    r"(?P<box>\\boxed\s*\{)|\\(?:[{}]|\\(?!boxed))|(?P<open>\{)|(?P<close>\})"
)
_PLAIN_TEXT = r"(?:[^{}\\]++|\\[^{}\\])*+"
_SIMPLE_BOX = re.compile(
    rf"\\boxed\s*\{{({_PLAIN_TEXT}(?:\{{{_PLAIN_TEXT}\}}{_PLAIN_TEXT})*+)\}}"
)
# `975` and `5-`
_REVERSED_DIGITS = re.compile(r"([0-9]+)(-?)")


def boxed(response: str) -> str | None:
    r"""Return the content of the last complete ``\boxed{...}``, or None if there is none or it is blank (R6).

    A box is complete if its brace is closed. The last box is the one that begins last. A number outside a box never
    counts, and adjacent boxes are not joined to a set. The time is linear in the length of the response.
    """
    # The original code of the reproduced paper also takes a number outside a box, and joins adjacent boxes to a set.
    start = response.rfind("\\boxed")
    # Most boxes hold a number or a fraction. One pattern reads them without counting braces.
    if simple := _SIMPLE_BOX.match(response, start):
        return simple[1].strip() or None
    # Try the last box first: it is nearly always complete. Only a response that was cut off inside it is read from the
    # start.
    span = None if start < 0 else _last_box(response, start) or _last_box(response, 0)
    return None if span is None else response[slice(*span)].strip() or None


def _last_box(text: str, start: int) -> tuple[int, int] | None:
    """Return the start and the end of the content of the last complete box after `start`, or None without a box."""
    stack: list[
        int | None
    ] = []  # start of the content for each open box, None for any other open group
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
    """Return the number that a response of the arithmetic task claims, or None if the response has another form.

    The response has the digits in reverse order, and then a minus sign if the number is negative: ``975`` claims 579,
    and ``5-`` claims -5.
    """
    match = _REVERSED_DIGITS.fullmatch(response.strip())
    if match is None:
        return None
    digits = match[1][::-1].lstrip("0") or "0"
    return match[2] + digits if digits != "0" else digits


def tagged(response: str, tag: str) -> str | None:
    r"""Return the content of the last complete ``<tag>…</tag>``, or None if there is none or it is blank.

    If the content has a box, ``\boxed{...}``, return the content of the last box instead.
    """
    opening, closing = f"<{tag}>", f"</{tag}>"
    # The opening tag is the last one before the last closing tag, so a response cut off inside a new tag still counts.
    start = response.rfind(opening, 0, max(response.rfind(closing), 0))
    return (
        None
        if start < 0
        else _box_or_text(response[start + len(opening) :].partition(closing)[0])
    )


def after(response: str, marker: str) -> str | None:
    r"""Return what follows the last `marker` on its line, or the next line with text if nothing follows.

    Without a marker, or without text after it, return None. If the line has a box, ``\boxed{...}``, return the content
    of the last box instead. GSM8K's marker is ``####``.
    """
    _, found_marker, rest = response.rpartition(marker)
    line = rest.strip().partition("\n")[0]
    return _box_or_text(line) if found_marker else None


def _box_or_text(text: str) -> str | None:
    """Return the content of the last box in a text. Without a box, return the text, or None if it is blank."""
    return boxed(text) or text.strip() or None


_DIGITS = r"(?:\d{1,3}(?:(?:,|\{,\}|,?\\[,!])\d{3})+|\d+)(?!\d)"
_SEPARATOR = re.compile(r"\{,\}|,?\\[,!]|,")
# `-1,234`, but not the digits of `3.5` and `x2`
_INTEGER = re.compile(rf"(?<![\w.])([-−]?)({_DIGITS})(?!\.\d)", re.ASCII)
_EXPONENT = r"(?:\s*(?:\^|\*\*)\s*(?:\{\s*[-−+]?\d+\s*\}|\(\s*[-−+]?\d+\s*\)|[-−+]?\d+)|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)"
# `-1,234.50`, `.5`, `1 1/2`, `3/4`, `1.5e-3`, `3 \times 10^{5}` and `2^{10}`, but neither sign nor digits of an
# exponent
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
    """Return a response without what a base model writes after its answer.

    The response is cut off before a line that begins with "Question:", "User:" or the like, or before a token such as
    `<|im_end|>`. If it has neither, it is returned unchanged.
    """
    match = _RUNS_ON.search(response.lstrip())
    return response.lstrip()[: match.start()] if match else response


def first_integer(response: str) -> str | None:
    """Return the first whole number of a response, or None without one: ``-1,234 apples`` claims -1234.

    The digits of 3.5 don't count.
    """
    match = _INTEGER.search(response)
    return None if match is None else _plain_number(match[1], match[2])


def last_number(response: str) -> str | None:
    """Return the last number of a response, or None without one: ``so 2 * 3 = $1,234.50.`` claims 1234.50.

    ``1 1/2``, ``1.5e-3`` and the power ``2^{10}`` are one number each. An exponent alone is no number, so ``x^2`` has
    none. If a base model runs on with another question, only the text before the question counts.
    """
    matches = [*_NUMBER.finditer(_own_turn(response))]
    return _plain_number(*matches[-1].groups(default="")) if matches else None


def _plain_number(sign: str, digits: str, exponent: str = "") -> str:
    """Join the parts of a number: a minus if `sign` is not empty, the digits without separators, and the exponent."""
    return ("-" if sign else "") + _SEPARATOR.sub("", digits) + exponent


# An option's letter in any brackets or styles. In `A planet` and `I think`, the letter is a word.
_OPTION = (
    r"(?:(?i:option|choice|letter) ?)?[\s*$_`\"'“‘(\[{]*+(?:\\(?:text|math)\w*\{)?[(\[]?([A-Z])(?![a-zA-Z0-9_À-ɏ’'])"
    r"(?!(?<=[AI]) +(?!(?:and|as|based|because|but|by|due|for|given|is|or|since|which|with)\b)[a-z])[)\]}*$\"”’`]*"
)
# ` and C` in `B and C`, so that an answer with two letters counts as none
_SECOND_OPTION = (
    rf"(?:\s*+(?:,|/|&|、|(?:and|or|et|ou|und|oder|y|o|e)\b|[和或])\s*+{_OPTION})?"
)
_ANSWER = (
    r"(?:\b(?:answer|antwort|réponse(?: finale)?|respuesta(?: final)?|risposta(?: finale)?|resposta(?: final)?|ответ"
    r"|correct (?:option|choice|letter)|(?:best|right) (?:option|choice|letter))\b|答案|正解|答え|정답)"
)
_IS = (
    r"(?:(?:is|ist|est|es|è|é|(?:must|should|would|will|has to|seems to|appears to) be)\b|[:=是为は])"
    r"(?>[\s:*]*+\b(?:clearly|definitely|certainly|obviously|probably|(?:most )?likely|therefore|thus|indeed|simply|"
    r"for sure|the)\b)*+"
)
# `the answer is B`, `I choose B`, `选项B正确` and `C is correct`
_STATED = re.compile(
    rf"(?i:{_ANSWER})[\s*_]*+(?i:{_IS})[\s:*]*+{_OPTION}{_SECOND_OPTION}"
    rf"|(?i:\b(?:choose|pick|select|go with)\b|[选選][择擇]?[:：]?)\s*+{_OPTION}{_SECOND_OPTION}"
    r"|(?:选项|選項)\s*([A-Z])\s*(?:是|为|為)?\s*(?:正[确確]|对|對)的?"
    r"|(?im:\b(?:my|final|the) answer)\s*[:=]\s*[(\[]?(?P<small>[a-j])[)\]]?[\s.]*$"
    rf"|(?<![\w(\[*])[(\[*]*+([A-Z])[)\]*]*+ is (?:(?:therefore|clearly|the) )*(?i:correct|right|best)\b"
)
# `option B`, but not `option B is wrong`
_NAMED = re.compile(
    rf"(?i:\b(?:answer|option|choice)\b)\s*+{_OPTION}{_SECOND_OPTION}"
    r"(?!,? *+(?i:(?:is|are|was|would be|must be|seems) (?:also |clearly |both )?(?:not|wrong|incorrect|false|ruled)"
    r"|isn't|cannot|can't|can be (?:ruled|excluded|eliminated)|fails|does(?: not|n't)))"
)


def choice(response: str) -> str | None:
    r"""Return the letter of the option that a response chooses, or None if it chooses none or several (R20, R6).

    The first of these sources that names an option decides:

    1. The last box, as in ``\boxed{(B)}``. If it names no option, the other sources are looked for only after the box.
    2. The last statement of a choice, such as "the answer is B" or "C is correct".
    3. The last line of a response without a box, if the line names one option, as ``(B)`` and ``B. Planets`` do.
    4. The last mention of an option, such as "option B". Mentions such as "option B is wrong" do not count.

    If the last statement or mention names two options, the result is None.
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


# `## Final Answer`, as a line of its own
_FINAL_ANSWER_HEADING = re.compile(
    r"(?im)^[#*_> \t]*(?:the )?final answer[:：*_ \t]*\n(?=\s*\S)"
)
_CLAIM = re.compile(rf"(?i:{_ANSWER})[\s*_]*+(?i:{_IS}|：)[\s:：*]*+")
# `**7**` at the end
_BOLD_AT_END = re.compile(r"\*\*([^*\n]+)\*\*[\s.]*\Z")
_SENTENCE_END = re.compile(r"[.!](?:\s|$)|。")


def last_answer(response: str) -> str | None:
    """Return the answer that a response marks in any of several notations, or None if it marks none (R6).

    Meant for logs of other programs, not for training. The first of these that is present is the answer:

    1. The content of the last box.
    2. The content of the last ``<answer>…</answer>``, or the answer marked inside this content.
    3. The rest of the line after the last ``####``, as `after_hashes` returns it.
    4. The answer marked below a heading "Final Answer", or the first line below it.
    5. Bold text, ``**x**``, at the end. If an "answer is" is inside it, only the text after these words.
    6. The rest of the sentence after the last "Answer:" or "answer is".
    7. The last code block, if it has one line.

    If a base model runs on with another question, only the text before the question counts.
    """
    response = _own_turn(response)
    # Readers see `\fbox{7}` as a box, too.
    if (box := boxed(response.replace("\\fbox", "\\boxed"))) is not None:
        return box
    # A tag may hold another mark, as in `<answer>The answer is 7.</answer>`.
    if (content := tagged(response, "answer")) is not None:
        return last_answer(content) or content
    if (line := after_hashes(response)) is not None:
        return line
    if headings := [*_FINAL_ANSWER_HEADING.finditer(response)]:
        below = response[headings[-1].end() :].strip()
        return last_answer(below) or below.partition("\n")[0].strip(" *`$") or None
    text = _closing_claim(response).strip(" *`")
    # A claim inside a displayed formula leaves the formula's closing `\]` or `\)` behind: remove it.
    opens_formula = "\\[" in text or "\\(" in text
    return (text if opens_formula else re.sub(r"\s*\\[\])]$", "", text)) or None


def after_hashes(text: str, blank: str | None = None) -> str | None:
    """Return what follows the last ``####`` on its line, or the next line with text if nothing follows.

    If there is no such text, or if it is a heading, return None. A line that has letters counts as a heading if more
    text follows below it.

    Args:
        text: a response or a solution.
        blank: characters that are stripped around the line; by default, all white space.
    """
    _, found_hashes, rest = text.rpartition("####")
    line, _, more = rest.strip(blank).partition("\n")
    is_answer = found_hashes and line and not any(map(str.isalpha, line if more else ""))
    return line.strip(blank) if is_answer else None


def _closing_claim(response: str) -> str:
    """Return what a response claims at its end, or an empty text if it claims nothing there.

    If the response ends in bold text, only the bold text is read. The first of these that is present is the claim:

    1. The rest of the sentence after the last "answer is".
    2. The bold text.
    3. The last code block, if it has one line.
    """
    in_bold = _BOLD_AT_END.search(response)
    text = in_bold[1] if in_bold else response
    if claims := [*_CLAIM.finditer(text)]:
        line = text[claims[-1].end() :].partition("\n")[0]
        return _SENTENCE_END.split(line, maxsplit=1)[0]
    return text if in_bold else _last_code_line(response)


def _last_code_line(response: str) -> str:
    """Return the last code block of a response if the block has one line, otherwise an empty text."""
    parts = response.split("```")
    # An even number of parts means that a fence is not closed.
    if len(parts) < 3 or len(parts) % 2 == 0:
        return ""
    # The first line of a block holds the name of its language, or nothing.
    block = parts[-2].partition("\n")[2].strip()
    return "" if "\n" in block else block


def _one_letter(match: re.Match[str]) -> str | None:
    """Return the letter that a match captured, as a capital, or None if it captured no letter or different ones."""
    letters = {letter.upper() for letter in match.groups() if letter}
    return letters.pop() if len(letters) == 1 else None


_LONGEST_READ = 1000
_STYLED = re.compile(
    r"\\(?:text[a-z]*|math(?:rm|bf|it|sf|tt|normal)|[mhf]box|boxed|boldsymbol|bm|operatorname|underline|emph)"
    r"\s*\{([^{}]*)\}"
)
# Signs of styles, without any content
_STYLE_MARKS = re.compile(
    r"\$|\*\*|\\[()\[\]]|\\(?:left|right|bf|rm|it|displaystyle)(?![a-zA-Z])|\\(?=[{}%&#])"
)
_SPACE = re.compile(r"(?:\s|~|\\[,;:! ]|\\q?quad(?![a-zA-Z]))+")
# `The correct answer is: `
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
_ANOTHER_OPTION = re.compile(
    r"(?:^|[,;&/] ?|\b(?:and|or) )\(?([A-Z]|\d{1,2})[):]|^(?:(?:and|or) |[,;&/] ?)([A-Z]|\d{1,2})\b"
)


def option_letter(answer: str, options: int, *, numbered: bool = False) -> str | None:
    r"""Return the letter of the one option that an answer names, or None if it names none or several (R20).

    ``B``, ``(b)``, ``\text{(B)}``, ``B) Planets``, ``B. Planets`` and ``Option B`` name the second option. The text of
    an option alone names none. A letter before a word is part of the text: ``A planet``, ``B cells``.

    Args:
        answer: the content of a box.
        options: number of options, at most 26.
        numbered: whether the options are numbered in print. If they are, ``2`` names the second option, as ``B`` does.
    """
    if len(answer) == 1 and answer.isascii() and answer.isalpha():
        return _letter(answer, options, numbered)
    match = _CHOICE.fullmatch(_plain(answer))
    if match is None:
        return None
    letter = _letter(match["label"], options, numbered)
    other_letters = {
        _letter(marked or bare, options, numbered)
        for marked, bare in _ANOTHER_OPTION.findall(match["text"])
    }
    return letter if other_letters <= {letter, None} else None


def _plain(answer: str) -> str:
    """Return an answer's first 1,000 characters without LaTeX styles, a final full stop, and "Answer:" or the like."""
    text, style_count = unicodedata.normalize("NFKC", answer[:_LONGEST_READ]), 1
    # Styles may be nested, and one pass removes only the inner ones.
    while style_count:
        text, style_count = _STYLED.subn(r"\1", text)
    text = _SPACE.sub(" ", _STYLE_MARKS.sub("", text)).strip().rstrip(".。").rstrip()
    return text[_PREFIX.match(text).end() :]  # type: ignore[union-attr]  # it matches the empty string


def _letter(label: str, options: int, numbered: bool) -> str | None:
    """Return the capital letter of the option that a label names, or None if there is no such option.

    Args:
        label: a letter or a number. Numbers count from 1, and name an option only if `numbered` is true.
        options: number of options, at most 26.
        numbered: whether the options are numbered in print.
    """
    index = (
        int(label) - 1
        if numbered and label.isdecimal()
        else ascii_uppercase.find(label.upper())
    )
    return ascii_uppercase[index] if 0 <= index < options else None


EXTRACTORS: Mapping[str, Extractor] = MappingProxyType({
    "boxed": boxed,
    "first_integer": first_integer,
    "last_number": last_number,
    "last_answer": last_answer,
    "choice": choice,
    "reversed_digits": reversed_digits,
    "text": lambda response: response.strip() or None,  # for logs that hold the answer itself
})  # fmt: skip
"""Extractors without a parameter, by their name in recipes and benchmarks."""

_TAG = re.compile(r"[A-Za-z][\w.-]*")


def extract(response: str, extractor: str = "boxed") -> str | None:
    """Return the answer that a response claims, or None if it claims none (R6).

    If a response has thinking, only the text after it is read. A response that ends inside its thinking claims nothing.
    If the text after the thinking marks no answer, the extractor `last_answer` returns the last line of this text.

    Args:
        response: the text of a rollout.
        extractor: setting of an extractor, such as ``boxed`` or ``after:####``; `find_extractor` lists all settings.
    """
    read = find_extractor(extractor)
    after_thought = after_thinking(response)
    if after_thought is None:
        return None
    answer = read(after_thought)
    # After its thinking, a response may be nothing but the answer, so an unmarked last line counts.
    if answer is None and len(after_thought) < len(response) and read is last_answer:
        return after_thought.strip().rpartition("\n")[2] or None
    return answer


@functools.cache
def find_extractor(extractor: str) -> Extractor:
    """Return the function that a setting of an extractor stands for (R6).

    The function takes a response and returns its answer, or None if it finds none. Training, evaluation, audit and
    replay all read answers with such a function.

    | setting | the function returns |
    |---|---|
    | a name in `EXTRACTORS`, such as ``boxed`` | what the built-in extractor of this name returns |
    | ``regex:PATTERN`` | the first group of the last match, or the whole match if the pattern has no group |
    | ``after:TEXT`` | the rest of the line after the last TEXT, as `after` returns it |
    | ``tag:NAME`` | the content of the last ``<NAME>…</NAME>`` |
    | ``package.module:function`` | what this function, which the user provides, returns |

    Raises:
        UserError: the setting names no extractor, or its pattern, tag or function is not valid.
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
    """Return a sentence that suggests an extractor, such as "The extractor choice reads 9 of 10 responses.", or None.

    The suggested extractor is the first of ``boxed``, ``after:####``, ``tag:answer``, ``choice``, ``last_answer`` and
    ``last_number`` that finds an answer in more than half of the responses. If none does, return None.

    Args:
        responses: texts in which the present extractor found no or few answers.
    """
    # From the most specific to the least: `last_number` reads nearly every text.
    for name in (
        "boxed",
        "after:####",
        "tag:answer",
        "choice",
        "last_answer",
        "last_number",
    ):
        count = sum(extract(response, name) is not None for response in responses)
        if 2 * count > len(responses):
            return f"The extractor {name} reads {count} of {len(responses)} responses."
    return None


def default_extractor(data_source: str) -> str:
    """Return the name of the extractor for a data source (R6).

    It is `reversed_digits` or `first_integer` for the built-in arithmetic data sets, and `boxed` for any other name.
    """
    return _BUILT_IN.get(data_source, "boxed")
