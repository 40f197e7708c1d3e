r"""The kinds of findings of `olr check`, one row each: the fault, the reason why it matters, an example and a remedy.

`olr check --explain KIND` prints a row, and docs/data.md lists all rows (tools/findings_table.py). `check.py` and
`doubts.py` search for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from olr_cli.errors import UserError, did_you_mean


class FindingKind(NamedTuple):
    """A kind of defect in the rows of a data set, with texts that explain it, an example and a remedy."""

    kind: str
    """A short name, for machines."""

    fault: str
    """A noun in the singular and its defect: ``row without a label``."""

    why: str
    """A sentence on why it matters."""

    example: str
    """Rows with the defect, as lines of JSON."""

    remedy: str
    """A sentence on what to do."""

    is_unusable: bool = False
    """Whether no response to such a row can be graded, so that an export leaves the row out."""


# The order counts: docs/data.md lists the kinds in it, and `check` shows the doubts about labels in it.
_ROWS = (
    FindingKind(
        "no_question",
        "row without a question",
        "Nothing can be asked, so every command skips the row.",
        r'{"question": "", "answer": "7"}',
        "Fill the question in, or leave the row out.",
        is_unusable=True,
    ),
    FindingKind(
        "image",
        "question with an image, or another part that is no text",
        "Policies see text alone, so they would be asked half a question; training and sampling refuse the row.",
        r'{"prompt": [{"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text":'
        r' "How many apples?"}]}], "answer": "7"}',
        "Leave the row out, or describe the part in words.",
        is_unusable=True,
    ),
    FindingKind(
        "not_one_answer",
        "label holding no answer, or several that differ",
        "Each item of a list is read as the whole answer, and nobody knows which of different answers counts.",
        r'{"question": "What is x?", "answer": ["1/2", "0.3"]}',
        "Leave the right one, or write them as one text if all together are the answer (`1/2, 0.3`).",
        is_unusable=True,
    ),
    FindingKind(
        "tests",
        "label holding the tests of a program",
        "Responses are graded by comparing answers, and no program is run, so no response is right.",
        r'{"question": "Add two numbers.", "answer": "{\"inputs\": [\"1 2\"], \"outputs\": [\"3\"]}"}',
        "Leave the row out, or train on such rows with a reward that runs programs.",
        is_unusable=True,
    ),
    FindingKind(
        "not_valid",
        "row that its own file calls not valid",
        "A column of validity says that the problem or its solution has a defect.",
        r'{"question": "Find k.", "answer": "7", "problem_is_valid": "Incomplete"}',
        "Leave the row out, as `--drop not_valid` does.",
    ),
    FindingKind(
        "scale",
        "label in a unit that has a power of ten",
        "The answer is the label times that power, so a response that gives the answer in full is not right.",
        r'{"question": "How wide is it?", "answer": "2.5", "unit": "$10^{-10} \\mathrm{~m}$"}',
        "Write number and unit into the label, or ask for the answer in that unit.",
    ),
    FindingKind(
        "no_label",
        "row without a label",
        "No response can be graded, and methods that learn from labels refuse the row.",
        r'{"question": "What is 3+4?", "answer": ""}',
        "Fill the label in, or leave the row out.",
        is_unusable=True,
    ),
    FindingKind(
        "no_answer",
        "placeholder for a label",
        "A placeholder such as N/A is never rewarded, whoever repeats it.",
        r'{"question": "What is 3+4?", "answer": "N/A"}',
        "Fill the label in, or leave the row out.",
        is_unusable=True,
    ),
    FindingKind(
        "ungradable",
        "label that no response can match",
        "Even a response that repeats the label gets no reward, so the prompt teaches nothing.",
        r'{"question": "Which set is it?", "answer": "{{{"}',
        "Correct the label; often a bracket is missing or the text is damaged.",
        is_unusable=True,
    ),
    FindingKind(
        "conflict",
        "question with different labels",
        "One of the labels at most is right, so the others reward wrong answers.",
        r'{"question": "What is 3+4?", "answer": "7"}'
        "\n"
        r'{"question": "What is 3 + 4?", "answer": "8"}',
        "Find out which label is right, and leave one row.",
        is_unusable=True,
    ),
    FindingKind(
        "text_only",
        "label that the grader cannot read, so that only the same text counts",
        "Only a response with the very text of the label is right; the same value in another form is not.",
        r'{"question": "Which x?", "answer": "x &lt; 5"}',
        "Write the label as an answer that stands in a box, in LaTeX or plain text.",
    ),
    FindingKind(
        "sentinel",
        "label equal to the sentinel, which no response matches",
        "The label was replaced by inactive or active noise, so it rewards no response.",
        r'{"question": "What is 3+4?", "answer": "__NoCorrectAnswer__"}',
        "Take the file as it was before noise, unless you study noise.",
    ),
    FindingKind(
        "proof",
        "label like a proof",
        "A proof cannot be compared with an answer, so hardly any response matches it.",
        r'{"question": "Is n^2 >= n?", "answer": "Proof: we show that it is so"}',
        "Leave the row out, or replace the label by a short answer.",
    ),
    FindingKind(
        "parts",
        "label with several parts",
        "A response is right only if it has all parts in the same form.",
        r'{"question": "Solve both.", "answer": "(a) 3 (b) 4"}',
        "Ask one part a row, or keep the row if the question asks for all of them.",
    ),
    FindingKind(
        "word",
        "label in words, where most are numbers",
        "Where most labels are numbers, one without a digit is often a remark or damaged.",
        r'{"question": "Which is it?", "answer": "many"}',
        "Look at the row; words that are the answer may stay.",
    ),
    FindingKind(
        "decimal_comma",
        "label with a decimal comma, read as a list; data.decimal_comma: true reads a number",
        "`2,5` is read as the two numbers 2 and 5, so the right `2.5` gets no reward.",
        r'{"question": "What is 0.5*5?", "answer": "2,5"}',
        "Set data.decimal_comma: true, or write points.",
    ),
    FindingKind(
        "spreadsheet",
        "label that a spreadsheet may have changed",
        "Spreadsheets turn `1/2` into `2-Jan` or `45658`, `0042` into 42, and write long numbers with six digits.",
        r'{"question": "Which part of the cake is left?", "answer": "2-Jan"}',
        "Take the label from its source, and import columns as text.",
    ),
    FindingKind(
        "date_or_score",
        "label with a date, a time, a score or a range",
        "It is compared by its text, so the same date or score in another form (`5 March 2021`, `3:2`) does not match.",
        r'{"question": "On which date (YYYY-MM-DD)?", "answer": "2021-03-05"}',
        "Make sure that the question says in which form to answer.",
    ),
    FindingKind(
        "float_noise",
        "label with the rounding error of a float",
        "A program computed it: a person's answer is 5.8, which olr accepts but other graders do not.",
        r'{"question": "What is 2.9*2?", "answer": "5.800000000000001"}',
        "Round the label.",
    ),
    FindingKind(
        "boxes",
        "solution with several boxes, of which the last is the label",
        "The last box counts as the label, and another one may be the answer.",
        r'{"question": "What is x?", "answer": "It is \\boxed{3} or \\boxed{-3}."}',
        "Give the answer alone as the label.",
    ),
    FindingKind(
        "backslash",
        r"row with a lost backslash, as of \frac or \text, which JSON writes twice",
        r"`\f` and `\t` are control characters in JSON, so `\frac` has become a form feed and `rac`.",
        r'{"question": "What is half of 1?", "answer": "\frac{1}{2}"}',
        r"Write the file again with a JSON library, or with `\\frac`.",
    ),
    FindingKind(
        "invisible",
        "row with control or invisible characters",
        "Nobody sees them, but the policy's tokens and a comparison by text do.",
        r'{"question": "What is 3+4?\u0000", "answer": "7"}',
        "Remove the characters.",
    ),
    FindingKind(
        "encoding",
        "row with wrongly decoded characters",
        "The text was written in one encoding and read in another, so letters and signs are lost.",
        r'{"question": "What is 3Ã\u00974?", "answer": "12"}',
        "Read the source as UTF-8, and write the file again.",
    ),
    FindingKind(
        "html",
        "row with HTML",
        "Tags and entities are no part of an answer, and a question is read with them.",
        r'{"question": "What is 3+4?<br>", "answer": "7"}',
        "Convert the text to plain text or LaTeX.",
    ),
    FindingKind(
        "cut",
        "label cut off, or with a bracket missing",
        "Part of the answer is lost, so a response with all of it does not match.",
        r'{"question": "What is half of 1?", "answer": "\\frac{1}{2"}',
        "Complete the label from its source.",
    ),
    FindingKind(
        "marks",
        "label inside marks",
        "Marks are often left over from a script, and around several values they make a list or a tuple of them.",
        r'{"question": "What is 3+4?", "answer": "[7]"}',
        "Remove the marks, unless they are part of the answer.",
    ),
    FindingKind(
        "words",
        "label with a remark, or in a sentence",
        "Only some remarks are read past, so a response that has the answer alone may not match.",
        r'{"question": "What is 3+4?", "answer": "7 because four follow three"}',
        "Leave the answer alone in the label.",
    ),
    FindingKind(
        "nothing",
        "label saying that there is no answer",
        "It may be the right answer, or what a script writes where it finds none.",
        r'{"question": "Which x?", "answer": "no solution"}',
        "Look at the question; if it has an answer, fill it in.",
    ),
    FindingKind(
        "several",
        "label with several answers, or a range",
        "A response that gives one of them does not match.",
        r'{"question": "How old is she?", "answer": "3 or 4"}',
        "Leave one answer, or keep the row if the question asks for all of them.",
    ),
    FindingKind(
        "number_word",
        "label spelling a number in words",
        "Some numbers in words are read as numbers and others, such as `a dozen`, are not, so digits may not match.",
        r'{"question": "How many are left?", "answer": "twenty-one"}',
        "Write digits.",
    ),
    FindingKind(
        "letter",
        "label using letters not in the question",
        "The label may belong to another question.",
        r'{"question": "Solve 2*x = 6 for x.", "answer": "y = 3"}',
        "Compare the row with its source.",
    ),
    FindingKind(
        "option",
        "label naming no option of the question",
        "The label names an option that the question does not show, so the policy can only guess it.",
        r'{"question": "Which is odd? A) 2 B) 4 C) 5", "answer": "D"}',
        "Correct the label, or add the options to the question.",
    ),
    FindingKind(
        "unit",
        "label in another unit than asked for",
        "A response in the unit that is asked for does not match.",
        r'{"question": "How long is it, in meters?", "answer": "300 cm"}',
        "Convert the label.",
    ),
    FindingKind(
        "form",
        "label of another form than asked for",
        "A response in the form that is asked for may not match.",
        r'{"question": "Write 1/4 as a percentage.", "answer": "0.25"}',
        "Write the label as the question asks for it.",
    ),
    FindingKind(
        "to_prove",
        "question asking for a proof",
        "A proof cannot be graded by comparing answers.",
        r'{"question": "Prove that 2 is even.", "answer": "2"}',
        "Leave the row out, or ask for a value.",
    ),
    FindingKind(
        "told",
        "question stating the answer",
        "The policy can copy the answer, so its reward says nothing.",
        r'{"question": "What is 3+4? The answer is 7", "answer": "7"}',
        "Remove the answer from the question.",
    ),
    FindingKind(
        "no_figure",
        "question about a figure that is not there",
        "Without the figure nobody can know the answer.",
        r'{"question": "Find x in the figure below.", "answer": "7"}',
        "Leave the row out, or describe the figure in words.",
    ),
    FindingKind(
        "template",
        "question inside a chat template, which may be put around it again",
        "The policy would see its template twice, as in no other conversation.",
        r'{"question": "[INST] What is 3+4? [/INST]", "answer": "7"}',
        "Give the question alone, or messages with roles.",
    ),
    FindingKind(
        "repeat",
        "question repeated, case and spaces ignored",
        "The question counts several times in training and in every metric.",
        r'{"question": "What is 3+4?", "answer": "7"}'
        "\n"
        r'{"question": "what is 3 + 4?", "answer": "7"}',
        "Leave one row, as `--drop repeat` does.",
    ),
    FindingKind(
        "long",
        "question longer than a prompt may be (2,048 tokens with --model, else 8,192 characters)",
        "Training refuses prompts longer than train.max_prompt_tokens, before it starts.",
        r'{"question": "What is 1+1+ and so on, for ten thousand characters?", "answer": "7"}',
        "Raise train.max_prompt_tokens, set data.drop_long: true, or leave the row out.",
    ),
)

KINDS: Mapping[str, FindingKind] = {row.kind: row for row in _ROWS}
"""Name -> kind of finding."""

UNUSABLE = tuple(row.kind for row in _ROWS if row.is_unusable)
"""Names of the kinds of findings that make a row impossible to grade."""


def kind_named(name: str, place: str) -> FindingKind:
    """Return the kind of finding with this name; raise UserError if there is none.

    `place` is the option that gave the name, such as ``drop``, for the error.
    """
    if name not in KINDS:
        raise UserError(
            f"there is no finding '{name}'{did_you_mean(name, KINDS)}",
            f"known: {', '.join(KINDS)}",
            place,
        )
    return KINDS[name]
