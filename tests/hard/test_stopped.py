"""A command that is stopped (Ctrl-Z) and continued decides as one that ran on: limits count processor time (R8)."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from samples import json_lines

HOSTILE = [
    "x^{{{n}}} + {n}",
    "\\sqrt{{{n}}} + \\frac{{x}}{{{n}}}",
    "\\sin({n} x)",
    "(x+{n})^{{6}}",
]


def _is_verifying(process: int) -> bool:
    """Whether a worker of its verification is there: a child of a child."""
    return any(_children(child) for child in _children(process))


def _children(process: int | str) -> list[str]:
    found = []
    with suppress(OSError):  # it has ended
        for file in Path(f"/proc/{process}/task").glob("*/children"):
            found += file.read_text().split()
    return found


@pytest.mark.slow
def test_a_replay_that_is_stopped_and_continued_decides_as_one_that_is_not(
    tmp_path, is_long
):
    rows = [
        {
            "prompt_id": f"p{prompt}",
            "visit": visit,
            "answer": HOSTILE[(prompt + k) % 4].format(n=prompt + k // 2),
        }
        for visit in (1, 2)
        for prompt in range(40 if is_long else 16)
        for k in range(4)
    ]
    table = tmp_path / "rollouts.jsonl"
    json_lines(table, *(row | {"given_label": "x+1"} for row in rows))
    whole, out = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    words = ["replay", str(table), "--set", "method.warmup_epochs=1", "--out"]
    command = [sys.executable, "-m", "olr_cli", *words]
    subprocess.run([*command, str(whole)], check=True, capture_output=True)
    begun = subprocess.Popen(
        [*command, str(out)], start_new_session=True, stdout=subprocess.DEVNULL
    )
    stops = 0
    try:
        while begun.poll() is None:
            # A task's limit is 2 seconds: on the wall clock, a longer stop would give up what a worker holds.
            time.sleep(0.2 if is_long else 0.02)
            if stops < (28 if is_long else 1) and (is_long or _is_verifying(begun.pid)):
                os.killpg(begun.pid, signal.SIGSTOP)
                time.sleep(2.5)
                os.killpg(begun.pid, signal.SIGCONT)
                stops += 1
    finally:
        if begun.poll() is None:
            os.killpg(begun.pid, signal.SIGKILL)
    assert begun.returncode == 0 and stops >= 1
    assert pl.read_parquet(out, glob=False).equals(pl.read_parquet(whole, glob=False))
