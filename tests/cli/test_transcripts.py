"""What the commands show, word for word, and their options (`transcripts.py` says how to write these anew)."""

import csv
from pathlib import Path

from audit_tables import many, with_questions, write
from cases import each
from histories import write_history
from transcripts import transcript
from typer.main import get_command

from olr_cli.cli import app
from olr_cli.runs.directory import read_manifest, write_manifest

SETTINGS = {"prompts": 20, "prompts_per_step": 10, "epochs": 4}


def table(file, head, *rows):
    with Path(file).open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([head.split(","), *rows])


def check():
    rows = [[f"What is {n} + {n + 1}?", 2 * n + 1] for n in range(8)]
    table("fine.csv", "question,answer", *rows)
    defects = [
        ["What is 0 + 1?", 2],
        ["", 5],
        ["Who?", ""],
        ["How much is it all in all, if it is as much as it is?", "a lot of money, and then some"],
        [f"How long is {'a very ' * 1200}long row?", 3],
        *(["What is 1 + 2?", 3] for _ in range(6)),
    ]  # fmt: skip
    table("mine.csv", "question,answer,source", *([*row, "a"] for row in rows + defects))
    write(Path("log.jsonl"), with_questions(many(8, wrong={4}, visits=1)))


def evaluate():
    rows = [{"question": f"{n} + {n + 1} = ?", "answer": str(2 * n + 1)} for n in range(12)]
    write(Path("sums.jsonl"), rows)
    said = [{"id": str(n // 2), "said": f"\\boxed{{{n}}}", "key": "3"} for n in range(6)]
    write(Path("log.jsonl"), said)


def runs():
    for number, status in enumerate(["finished", "interrupted", "running"]):
        run = write_history(
            Path("runs", f"run-{number}"), seed=number, steps=None if status == "finished" else 5, **SETTINGS
        )  # fmt: skip
        facts = {"status": status, "created": f"2026-11-0{9 - number}T10:00"}
        write_manifest(run, read_manifest(run) | facts)


def noise():
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(8)]
    write(Path("data.jsonl"), rows)
    answers = ["2", "9", "9", "1"]
    stored = [
        {"question": row["question"], "given_label": row["answer"], "response": f"\\boxed{{{answer}}}"}
        for row in rows[:7]
        for answer in answers
    ]  # fmt: skip
    write(Path("log.jsonl"), stored)


def recipes():
    Path("mine.yaml").write_text(
        "base: laptop/quickstart\nname: mine\ntrain: {epochs: 1}\n"
    )


SCENES = {
    check: [
        "check mine.csv",
        "check mine.csv --strict --export clean.csv --drop all",
        "check fine.csv",
        "check fine.csv --decimal-comma --export same.csv",
        "check --explain no_label",
        "check --explain word",
        "check log.jsonl",
        "check mine.csv --json",
        "audit log.jsonl --rewards --as-recipe",
        "audit log.jsonl --as-recipe mine.yaml --rewards",
    ],
    evaluate: [
        "evaluate org/adder --url URL --data sums.jsonl --samples 2 --out one",
        "evaluate org/adder --url URL --data sums.jsonl --samples 3 --temperature 0.5 --out two --compare one",
        "regrade one --extractor last_number",
        "evaluate org/adder --url URL --data sums.jsonl --samples 2 --out one --format markdown",
        "regrade one --out two",
        "regrade log.jsonl --out log --columns prompt=id,response=said,given_label=key",
    ],
    runs: [
        "runs",
        "runs --status stopped --sort accuracy",
        "runs --arm none",
    ],
    noise: [
        "inject-noise --type mixed --ratio 0.3 --sample 20 --seed 1",
        "inject-noise --type inactive --ratio 0.01 --sample 20 --out few.jsonl",
        "inject-noise --type inactive --ratio 0.5 --sample 4 --out half.jsonl --json",
        "inject-noise --type active --ratio 1 --dataset data.jsonl --rollouts log.jsonl --out wrong.jsonl",
        "inject-noise --type inactive --ratio 0.5 --dataset data.jsonl",
        "inject-noise --type inactive --ratio 0.5 --dataset data.jsonl",
    ],
    recipes: [
        "recipes ls",
        "recipes show mine.yaml",
        "recipes show mine.yaml --resolved",
        "recipes validate mine.yaml --set seed=3",
        "recipes validate laptop/coherence",
        "recipes cp laptop/coherence copy.yaml",
        "recipes keys method.slope",
        "recipes keys method.slope --json",
        "recipes show mine.yaml --json",
        "recipes validate mine.yaml --json",
        "recipes cp laptop/coherence other.yaml --json",
        "benchmarks",
        "benchmarks arithmetic",
        "benchmarks arithmetic --json",
        "benchmarks --system none",
        "train laptop/coherence --sweep --dry-run",
        "train laptop/coherence",
        "train",
        "train mine.yaml --index 0",
        "train laptop/coherence --sweep --index 9",
        "train laptop/coherence --sweep --index 0 --jobs 2",
        "train laptop/coherence --sweep --resume",
        "train laptop/coherence --sweep --json",
        "train mine.yaml --nonsense",
        "recipes show nowhere",
    ],
}  # fmt: skip


@each("scene", *SCENES, ids=lambda scene: scene.__name__)
def test_a_command_shows_these_words(scene, here, server, is_as_stored, monkeypatch):
    scene()
    text = transcript(SCENES[scene], monkeypatch, URL=server.url)
    is_as_stored(f"transcripts/{scene.__name__}.txt", text)


def test_these_are_the_options_with_their_defaults_and_bounds(is_as_stored):
    """A default is promised in many places of the docs, and a flag that is on by mistake is noticed late."""
    lines = []
    for name, command in sorted(every_command(get_command(app), "olr")):
        lines.append(name)
        lines += [f"    {spelled(option)}" for option in command.params]
    is_as_stored("transcripts/options.txt", "\n".join(lines) + "\n")


def every_command(command, name):
    yield name, command
    for word, below in getattr(command, "commands", {}).items():
        yield from every_command(below, f"{name} {word}")


def spelled(option):
    """An option with what it takes: its least value, whether it must be given, is repeated or a flag, its default."""
    least = getattr(option, "min", None)
    default = option.default() if callable(option.default) else option.default
    facts = {
        f">= {least}": least is not None,
        "flag": getattr(option, "is_flag", False),
        "required": option.required,
        "repeated": getattr(option, "multiple", False) or option.nargs != 1,
        f"= {default}": default not in (None, [], ()),
        f"in {option.rich_help_panel!r}": option.rich_help_panel is not None,
    }
    words = [" ".join(option.opts), option.metavar or ""]
    return " ".join(
        filter(None, [*words, *(word for word, is_so in facts.items() if is_so)])
    )
