"""What each command shows, word for word, in 80 columns and without colours.

The texts are in `fixtures/transcripts`. After a change that is meant, `pytest tests/cli/test_transcripts.py --rewrite`
writes them anew; read their diff. Standard error has a bar before each line; times and sizes of files are left out.
"""

import csv
import re
import shlex
from pathlib import Path

from audit_tables import many, rollouts, write
from cases import each
from commands import olr
from histories import write_history
from typer.main import get_command

from olr_cli.cli import app
from olr_cli.runs.directory import read_manifest, write_manifest

TEXTS = Path(__file__).parents[1] / "fixtures" / "transcripts"
SMALL = {"prompts": 20, "prompts_per_step": 10, "epochs": 4}
UNSTABLE = {
    r"127\.0\.0\.1:\d+": "HOST",
    r"\b\d+:\d\d left": "TIME left",
    r" +\d+(\.\d+)? (kB|MB|B)\b": " SIZE",
    r"\(\d+\.\d MB\)": "(SIZE)",
    r"digest [0-9a-f]+": "digest DIGEST",
    r"-[0-9a-f]{8}\.parquet": "-DIGEST.parquet",
}
"""What is another at every run, or with every version of a library."""


def log(*, size=30, wrong=(4, 8), **kinds):
    """A log of one question a row."""
    rows = many(size, wrong=set(wrong), **kinds)
    return [{**row, "question": f"What is {row['prompt_id']}?"} for row in rows]


def rewarded(size=60):
    """A log whose verifier refuses every third right answer of a prompt in two, and accepts 30 for 20."""
    rows = []
    for prompt in range(size):
        for place, answer in enumerate(["20"] * 9 + ["30"] * 3 + ["22"] * 3 + [None]):
            right = answer == "20" and (prompt % 2 or place % 3 > 0)
            response = "no idea" if answer is None else f"So \\boxed{{{answer}}}."
            row = {"prompt": f"What is {prompt}?", "response": response, "label": "20"}
            rows.append(
                {**row, "reward": float(right or answer == "30"), "step": prompt // 30}
            )
    return rows


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
    write(Path("log.jsonl"), log(size=8, visits=1))


def audit():
    write(Path("log.jsonl"), log())
    write(Path("many.jsonl"), log(size=60, wrong=range(0, 40, 2)))
    verified = [
        {"prompt_id": f"p{n}", "true_answer": "7", "drawn": n % 2} for n in range(12)
    ]
    write(
        Path("verified.jsonl"),
        [{**row, "drawn": str(bool(row["drawn"]))} for row in verified],
    )
    models = [
        {**row, "model": f"{kind}-{number}"}
        for kind, size, answer in (("good", 3, "7"), ("weak", 2, None))
        for number in range(size)
        for prompt in range(12)
        for row in rollouts(
            f"p{prompt}", [[answer or str(100 * number + prompt)]], given_label="7" if prompt else "9"
        )
    ]  # fmt: skip
    write(Path("models.jsonl"), models)
    long = rollouts("a" * 50, [["7" * 40, "8" * 40, "7" * 40]] * 2, given_label="1" * 50)
    write(Path("long.jsonl"), [*log(size=9), *long])
    write_history(Path("run"), **SMALL)


def rewards():
    write(Path("log.jsonl"), rewarded())


def evaluate():
    rows = [{"question": f"{n} + {n + 1} = ?", "answer": str(2 * n + 1)} for n in range(12)]
    write(Path("sums.jsonl"), rows)


def analyze():
    for seed in (1, 2):
        for arm, method in (("grpo", {"name": "grpo"}), ("olr", None)):
            write_history(Path("runs", f"{arm}{seed}"), arm=arm, method=method, seed=seed, **SMALL)  # fmt: skip


def replay():
    write_history(Path("run"), **SMALL)
    write(Path("log.jsonl"), log(size=12, visits=3))


def runs():
    for number, status in enumerate(["finished", "interrupted", "running"]):
        run = write_history(
            Path("runs", f"run-{number}"), seed=number, steps=None if status == "finished" else 5, **SMALL
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
    ],
    audit: [
        "audit log.jsonl",
        "audit log.jsonl --top 2",
        "audit many.jsonl --top 3",
        "audit log.jsonl --verified verified.jsonl --top 4",
        "audit many.jsonl --verified verified.jsonl --top 4 --repair --export all.jsonl",
        "audit log.jsonl --drop doubted --export rest.jsonl",
        "audit log.jsonl --drop doubted --export rest.jsonl",
        "audit log.jsonl --random 5 --export check.jsonl",
        "audit log.jsonl --report queue.html --out table.csv",
        "audit models.jsonl --top 2",
        "audit long.jsonl --top 3",
        "audit run --top 3",
    ],
    rewards: [
        "audit log.jsonl --rewards",
        "audit log.jsonl --rewards --top 2 --out queue.csv",
        "audit log.jsonl --rewards --as-recipe",
    ],
    evaluate: [
        "evaluate org/adder --url URL --data sums.jsonl --samples 2 --out one",
        "evaluate org/adder --url URL --data sums.jsonl --samples 3 --temperature 0.5 --out two --compare one",
        "regrade one --extractor last_number",
        "evaluate org/adder --url URL --data sums.jsonl --samples 2 --out one --format markdown",
    ],
    analyze: [
        "analyze runs",
        "analyze runs/olr1 --figure dynamics",
        "analyze runs --table arms --baseline olr --format markdown",
        "analyze runs --table cost",
        "analyze runs --table noise_ratios --paper",
        "analyze runs --table arms --out arms.csv",
    ],
    replay: [
        "replay run",
        "replay run --set method.warmup_epochs=1 --out labels.csv",
        "replay log.jsonl --set method.warmup_epochs=0",
    ],
    runs: [
        "runs",
        "runs --status stopped --sort accuracy",
        "runs --arm none",
    ],
    noise: [
        "inject-noise --type mixed --ratio 0.3 --sample 20 --seed 1",
        "inject-noise --type inactive --ratio 0.01 --sample 20 --out few.jsonl",
        "inject-noise --type active --ratio 1 --dataset data.jsonl --rollouts log.jsonl --out wrong.jsonl",
        "inject-noise --type inactive --ratio 0.5 --dataset data.jsonl",
        "inject-noise --type inactive --ratio 0.5 --dataset data.jsonl",
    ],
    recipes: [
        "recipes validate mine.yaml --set seed=3",
        "recipes validate laptop/coherence",
        "recipes cp laptop/coherence copy.yaml",
        "recipes keys method.slope",
        "benchmarks arithmetic",
    ],
}  # fmt: skip


@each("scene", *SCENES, ids=lambda scene: scene.__name__)
def test_a_command_shows_these_words(scene, here, server, request, monkeypatch):
    scene()
    texts = []
    for line in SCENES[scene]:
        words = [server.url if word == "URL" else word for word in shlex.split(line)]
        monkeypatch.setattr("sys.argv", ["olr", *words])
        texts.append(f"$ olr {line}\n{shown(words)}")
    is_as_stored(request, scene.__name__, "\n".join(texts))


def shown(words):
    """What a terminal shows, then what standard error has."""
    result = olr(*words)
    text = result.stdout + "".join(f"| {line}\n" for line in result.stderr.splitlines())
    if result.exit_code:
        text += f"(exit status {result.exit_code})\n"
    for pattern, name in UNSTABLE.items():
        text = re.sub(pattern, name, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def is_as_stored(request, name, text):
    file = TEXTS / f"{name}.txt"
    if request.config.getoption("--rewrite"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_these_are_the_options_with_their_defaults_and_bounds(request):
    """A default is promised in many places of the docs, and a flag that is on by mistake is noticed late."""
    lines = []
    for name, command in sorted(every_command(get_command(app), "olr")):
        lines.append(name)
        lines += [f"    {spelled(option)}" for option in command.params]
    is_as_stored(request, "options", "\n".join(lines) + "\n")


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
