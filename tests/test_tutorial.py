"""Every command of docs/tutorial.md ends well, and says what the page says."""

import re
import shlex
import shutil
from pathlib import Path

from commands import done

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"(?m)^    (olr .*)$", PAGE)]
SHORT = ("--set", "train.epochs=2", "--set", "train.rollouts_per_prompt=4")


def test_the_tutorial_can_be_typed(here):
    for name in ("sums.csv", "sums.yaml"):
        shutil.copy(ROOT / "examples" / name, name)
    said = ""
    for words in COMMANDS:
        said += done(
            *words, *(SHORT if words[0] == "train" and "--dry-run" not in words else ())
        ).output
    assert len(COMMANDS) == 11
    assert Path("queue.html").exists() and Path("rest.jsonl").exists()
    shown = re.findall(
        r"(?m)^    (?! *#|olr |cp |\s*\d+ +[\d.]|Labels|\s+\d+ fine|\d q-|Audited|\s+\d+\+)(.*\S)",
        PAGE,
    )
    missing = [
        line for line in shown if " ".join(line.split()) not in " ".join(said.split())
    ]
    assert missing == []
