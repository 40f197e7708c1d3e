"""Data for tests of several rooms: an excerpt of DAPO, the published files, and rows as JSON Lines."""

import json
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parent / "fixtures" / "dapo_sample.parquet"
NOISY_SAMPLE = SAMPLE.with_name("dapo_sample_noise_0.5.parquet")
SHARED = Path(__file__).parents[2] / "shared" / "data"
needs_shared = pytest.mark.skipif(
    not SHARED.exists(), reason="the published data are not beside this clone"
)


def json_lines(path: Path, *rows: object) -> Path:
    """Write a line of JSON for every row and return the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


SAME_QUESTION: Mapping[str, Callable[[str], str]] = {
    "same": lambda question: question,
    "case": str.upper,
    "space": lambda question: question.replace(" ", "  "),
    "trailing newline": lambda question: question + "\n",
    "leading space": lambda question: " " + question,
    "no-break space": lambda question: question.replace(" ", "\u00a0"),
    "line breaks": lambda question: question.replace("? ", "?\r\n"),
    "decomposed": lambda question: unicodedata.normalize("NFD", question),
    "full width": lambda question: question.replace("?", "\uff1f").replace("1", "\uff11"),
    "zero-width space": lambda question: question.replace("W", "W\u200b"),
    "soft hyphen": lambda question: question.replace("plus", "pl\u00adus"),
    "byte order mark": lambda question: "\ufeff" + question,
    "no question mark": lambda question: question.replace("?", ""),
    "chat template": "<|im_start|>system\nHi<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n".format,
}
"""Ways to write one question that R24 all calls the same."""


def questions(size: int) -> list[str]:
    """Return `size` questions that stay different in all spellings of `SAME_QUESTION`."""
    return [f"What is {number} plus {number + 1}? caf\u00e9" for number in range(size)]
