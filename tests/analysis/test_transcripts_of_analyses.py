"""What audits, figures, tables and replays show, word for word (`transcripts.py` says how to write this anew)."""

import json
from pathlib import Path

from audit_tables import many, rollouts, with_questions, write
from cases import each
from histories import write_history
from transcripts import transcript

SETTINGS = {"prompts": 20, "prompts_per_step": 10, "epochs": 4}


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


def audit():
    write(Path("log.jsonl"), with_questions(many(30, wrong={4, 8})))
    write(Path("many.jsonl"), with_questions(many(60, wrong=range(0, 40, 2))))
    verified = [
        {"prompt_id": f"p{n}", "true_answer": "7", "drawn": n % 2} for n in range(12)
    ]
    write(
        Path("verified.jsonl"),
        [{**row, "drawn": str(bool(row["drawn"]))} for row in verified],
    )
    data = [{"question": f"What is p{n}?", "answer": "7"} for n in range(30)]
    write(Path("data.jsonl"), data)
    lines = [f"{row['question']},{row['answer']}" for row in data]
    Path("data.csv").write_text("\n".join(["question,answer", *lines]) + "\n")
    bare = [{**row, "given_label": None} for row in with_questions(many(30))]
    write(Path("bare.jsonl"), bare)
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
    write(Path("long.jsonl"), [*with_questions(many(9, wrong={4, 8})), *long])
    write_history(Path("run"), **SETTINGS)


def rewards():
    write(Path("log.jsonl"), rewarded())


def analyze():
    for seed in (1, 2):
        for arm, method in (("grpo", {"name": "grpo"}), ("olr", None)):
            write_history(Path("runs", f"{arm}{seed}"), arm=arm, method=method, seed=seed, **SETTINGS)  # fmt: skip
    timed = write_history(Path("timed"), **SETTINGS) / "metrics.jsonl"
    lines = [json.loads(line) for line in timed.read_text().splitlines()]
    times = {"time/step": 1.5, "time/labels": 0.25}
    write(timed, [line | times if line["step"] else line for line in lines])


def replay():
    write_history(Path("run"), **SETTINGS)
    write(Path("log.jsonl"), with_questions(many(12, wrong={4, 8}, visits=3)))


SCENES = {
    audit: [
        "audit log.jsonl",
        "audit log.jsonl --top 2",
        "audit many.jsonl --top 3",
        "audit log.jsonl --verified verified.jsonl --top 4",
        "audit many.jsonl --verified verified.jsonl --top 4 --repair --export all.jsonl",
        "cat all.jsonl.md",
        "audit many.jsonl --verified verified.jsonl --first 2 --export two.jsonl",
        "cat two.jsonl",
        "audit many.jsonl --verified verified.jsonl --top 2 --json",
        "audit log.jsonl --drop doubted --export rest.jsonl",
        "audit log.jsonl --drop doubted --export rest.jsonl",
        "audit log.jsonl --random 5 --export check.jsonl",
        "audit log.jsonl --report queue.html --out table.csv",
        "cat table.csv",
        "audit models.jsonl --top 2",
        "audit models.jsonl --top 1 --json",
        "audit long.jsonl --top 3",
        "audit run --top 3",
        "audit bare.jsonl --top 1",
        "audit bare.jsonl --data data.jsonl --top 1",
        "audit bare.jsonl --data data.jsonl --only fine --export fine.csv",
        "audit bare.jsonl --data data.csv --first 2 --export first.csv",
        "cat first.csv",
        "audit bare.jsonl --data data.csv --random 2 --export drawn.csv",
        "cat drawn.csv",
    ],
    rewards: [
        "audit log.jsonl --rewards",
        "audit log.jsonl --rewards --top 2 --out queue.csv",
        "audit log.jsonl --rewards --as-recipe",
        "audit log.jsonl --rewards --top 1 --json",
    ],
    analyze: [
        "analyze runs",
        "analyze runs/olr1 --figure dynamics",
        "analyze runs --table arms --baseline olr --format markdown",
        "analyze runs --table cost",
        "analyze timed --table cost --paper",
        "analyze timed --table cost --baseline olr",
        "analyze runs --table noise_ratios --paper",
        "analyze runs --table arms --out arms.csv",
    ],
    replay: [
        "replay run",
        "replay run --set method.warmup_epochs=1 --out labels.csv",
        "replay log.jsonl --set method.warmup_epochs=0",
    ],
}  # fmt: skip


@each("scene", *SCENES, ids=lambda scene: scene.__name__)
def test_a_command_shows_these_words(scene, here, is_as_stored, monkeypatch):
    scene()
    text = transcript(SCENES[scene], monkeypatch)
    is_as_stored(f"transcripts/{scene.__name__}.txt", text)
