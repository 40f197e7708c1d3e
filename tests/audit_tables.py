"""Tables of rollouts for the tests of the audit."""

import json


def rollouts(prompt_id, visits, **labels):
    """Return rows of rollouts of one prompt, as `olr audit` reads them.

    `visits` holds for each visit, that is each time the prompt was sampled, a list of answers; None is a response
    without an answer. `labels` are columns that every row gets.
    """
    rows = []
    for visit, answers in enumerate(visits, start=1):
        for answer in answers:
            response = "I give up" if answer is None else f"\\boxed{{{answer}}}"
            rows.append(
                {"prompt_id": prompt_id, "visit": visit, "response": response, **labels}
            )
    return rows


def write(file, rows):
    """Write rows as JSON Lines and return the file."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def many(size, *, wrong=(), visits=4):
    """Return rows of `size` prompts, p0, p1, …, whose majority answer is 7 at every visit.

    The prompts whose numbers are in `wrong` have the given label 8, all others 7.
    """
    rows = []
    for number in range(size):
        answers = [
            ["7", "7", "7", "8" if number % 2 else "9", "7", "7.0", "5", None]
        ] * visits
        rows += rollouts(f"p{number}", answers, given_label="8" if number in wrong else "7")
    return rows


def with_questions(rows):
    """Return the rows with a column ``question``, which names their prompt."""
    return [{**row, "question": f"What is {row['prompt_id']}?"} for row in rows]
