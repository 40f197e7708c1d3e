"""What pages say and hold, word for word (`tests/transcripts.py` says how to write this anew)."""

import json
import re
from pathlib import Path

import numpy as np
from audit_tables import many, rollouts, with_questions, write
from cases import each
from commands import done
from histories import write_history
from pages import read, report
from transcripts import stable

from olr_cli.runs.directory import read_manifest, write_manifest

SMALL = {"prompts": 8, "prompts_per_step": 4, "epochs": 3}


def collapse(run):
    """Append a held-out accuracy that falls far below its best."""
    with (run / "metrics.jsonl").open("a") as metrics:
        for step, accuracy in ((6, 0.75), (7, 0.25)):
            line = {"step": step, "epoch": 3, "eval/avg": accuracy, "eval/avg_stderr": 0.01}
            metrics.write(json.dumps(line) + "\n")


def one_run():
    run = write_history(Path("run"), arm="olr", steps=5, **SMALL)
    facts = {"engine": "local", "device": "cpu", "dtype": None, "versions": {"torch": "2"}}
    write_manifest(run, read_manifest(run) | facts | {"created": "2026-11-09T10:00"})
    collapse(run)
    return report(run, notes=["A note."])


def two_arms():
    grpo = write_history(Path("a", "grpo"), arm="grpo", method={"name": "grpo"}, noise=None, **SMALL)  # fmt: skip
    drawn = write_history(
        Path("a", "olr"), arm="olr", noise="inactive", ratio=0.25, **SMALL
    )
    collapse(drawn)
    return report(grpo, drawn)


def queue():
    lost = rollouts("lost", [["1", None]] * 2, given_label=None)
    rows = [
        *many(9, wrong={4, 8}),
        *lost,
        *rollouts("q" * 50, [["7" * 400] * 3], given_label="8"),
    ]
    rows = [row | {"true_answer": "7"} for row in with_questions(rows)]
    write(Path("log.jsonl"), rows)
    write(
        Path("verified.jsonl"), [{"prompt_id": f"p{n}", "true_answer": "7"} for n in (4, 5)]
    )
    done("audit", "log.jsonl", "--verified", "verified.jsonl", "--report", "queue.html")
    return Path("queue.html")


def queue_of_models():
    rows = [
        row | {"model": model}
        for model, answer in (("one", "7"), ("two", "7"), ("three", "8"))
        for prompt in range(4)
        for row in rollouts(f"p{prompt}", [[answer]], given_label="8")
    ]
    write(
        Path("log.jsonl"),
        [{key: row[key] for key in row if key != "visit"} for row in rows],
    )
    done("audit", "log.jsonl", "--report", "queue.html")
    return Path("queue.html")


def text_of(page):
    """What is read in a page, a line an element, and the data of its list."""
    body = re.sub(r"(?s)<(style|script).*?</\1>|<!--.*?-->", "", page.source)
    lines = [" ".join(line.split()) for line in re.split(r"</?(?!b\b|bdi\b|/)[^>]*>", body)]
    values = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in page.blocks.items()
    }
    said = [
        f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()
    ]
    return "\n".join([*filter(None, lines), *said])


@each("page", one_run, two_arms, queue, queue_of_models, ids=lambda page: page.__name__)
def test_a_page_says_and_holds_this(page, here, is_as_stored):
    text = stable(text_of(read(page())))
    is_as_stored(f"transcripts/page-{page.__name__}.txt", text.replace(str(here), "HERE"))
