"""`olr show`: the answers of a model in the terminal, prompt by prompt."""

from __future__ import annotations

import io
import os
import pydoc
import sys
from contextlib import redirect_stdout
from pathlib import Path
from shutil import get_terminal_size

import typer
from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.printing import Waiting, show as show_answer
from olr_cli.tables import Answer


def show(
    history: Path = Argument(
        metavar="HISTORY",
        help="A run directory, an evaluation (of `olr evaluate`) or a folder of some, or the log of another trainer.",
    ),
    prompt: str | None = Argument(
        None,
        metavar="[PROMPT]",
        help="Show this prompt in full: its id, or text that is in its id or question alone. By default all are"
        " listed, a line each.",
    ),
    *,
    wrong: bool = Option(
        False,
        "--wrong",
        help="Only prompts with a wrong label (where the truth is unknown: one that the majority contradicts), or of an"
        " evaluation those that are not solved; of one prompt, only responses that are not right.",
    ),
    visit: int | None = Option(
        None, metavar="N", min=1, help="The Nth visit; by default the last."
    ),
    top: int = Option(20, metavar="N", min=1, help="Number of prompts to list."),
    benchmark: str | None = Option(
        None, metavar="NAME", help="Of evaluations: which of their benchmarks."
    ),
    set_: list[str] = options.SETTINGS,
    columns: list[str] = options.LOG_COLUMNS,
    json: bool = options.JSON_OBJECT,
) -> None:
    """Look at prompts: their labels and votes by visit, and the responses with their answers and verdicts."""
    from olr_cli.analysis.one_prompt import (
        find_prompt,
        prompt_answer,
        prompts_answer,
        read_shown,
    )

    waiting = Waiting()
    read_columns = options.read_log_columns(columns)
    found = read_shown([history], set_, read_columns, benchmark, waiting.say)
    # The next commands name the same history, so they repeat the options that say how to read it.
    given = [("--set", text) for text in set_] + [("--columns", text) for text in columns]
    named = ["--benchmark", benchmark] if benchmark is not None else []
    words = [
        "olr",
        "show",
        str(history),
        *named,
        *(word for pair in given for word in pair),
    ]
    with found.judge(waiting.say) as judge:
        if prompt is None:
            answer = prompts_answer(
                found, judge, words=words, only_wrong=wrong, visit=visit, top=top
            )
        else:
            answer = prompt_answer(
                found,
                judge,
                find_prompt(found.prompts, prompt),
                words=words,
                only_wrong=wrong,
                visit=visit,
            )
    waiting.done()
    # A pipe gets the text itself: a pager would wait for keys that nobody presses.
    if json or not sys.stdout.isatty():
        show_answer(answer, "json" if json else "terminal")
    else:
        _page(answer)


class _Terminal(io.StringIO):
    """A text buffer that claims to be a terminal, so that rich writes colours into it for the pager."""

    # rich leaves out colours if this is false.
    def isatty(self) -> bool:
        return True


def _page(answer: Answer) -> None:
    """Print an answer, through a pager if it is longer than the terminal."""
    kept = _Terminal()
    with redirect_stdout(kept):
        show_answer(answer)
    text = kept.getvalue()
    if text.count("\n") < get_terminal_size().lines:
        typer.echo(text, nl=False, color=True)
    else:
        # Without -R, less shows colours as codes such as `ESC[1m`.
        os.environ.setdefault("LESS", "-R")
        pydoc.pager(text)
