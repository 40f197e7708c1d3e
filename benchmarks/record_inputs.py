"""The fixed small inputs of `record.py`: runs, evaluations, tables of other trainers, and damaged files.

They are made once, before a refactoring, and read by the commands of every checkout after that. So this module may use
what a refactoring moves, and is of no use after it.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

from record import ROOT, SAMPLED, TINY, prepare, run_command


def make_inputs(place: Path) -> None:
    """Write all inputs: made-up runs and evaluations, real ones of seconds, tables of other trainers, damaged files."""
    prepare()
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "evaluation")]
    place.mkdir(parents=True)
    os.chdir(place)
    made_up_runs()
    paper_runs()
    real_runs()
    evaluations()
    tables()
    damaged_files()
    shutil.copytree("arms", "copies")
    for file in place.rglob("*.json*"):
        if file.name in ("manifest.json", "metrics.jsonl"):
            file.write_text(_settled(file.read_text()))
    (place / "made-at").write_text(str(place))


def _settled(text: str) -> str:
    """Manifests and metrics without the times and names of this machine."""
    text = re.sub(r"20\d\d-\d\d-\d\dT[\d:+]+", "2026-01-01T00:00:00+00:00", text)
    text = re.sub(r'"pid": \d+', '"pid": 1', text).replace(f'"{socket.gethostname()}"', '"laptop"')
    seconds = {
        "rollouts": 0.5,
        "verification": 0.02,
        "labels": 0.03,
        "update": 0.4,
        "store": 0.01,
        "step": 1.0,
    }
    times = re.compile(r'"time/(\w+)": (?!made)[\d.e-]+')
    return (
        text if "made-up" in text else times.sub(lambda f: f'"time/{f[1]}": {seconds.get(f[1], 0.001)}', text)
    )


OLR = {"name": "olr", "slope_threshold": "0.02", "warmup_epochs": 2}
CRITERIA = {"both": ["slope", "consistency"], "slope": ["slope"], "consistency": ["consistency"], "every": []}


def made_up_runs() -> None:
    """Runs whose rollouts are drawn, one or several seeds an arm; the last three through the real supervisor."""
    from histories import write_history

    small = {"prompts": 20, "prompts_per_step": 10, "epochs": 6}

    def write(name: str, seed: int = 1, machine: str = "laptop", **settings: Any) -> None:
        run = write_history(Path(name), **({"method": OLR, "seed": seed} | small | settings))
        timed(run, seed + 10 * (settings.get("arm") == "olr"), machine)

    write("one")
    write("unfinished", steps=5)
    write("clean", noise=None, method={"name": "grpo"})
    write("unknown", knows_truth=False, knows_noise=False)
    write("old")
    manifest = Path("old/manifest.json").read_text()
    Path("old/manifest.json").write_text(re.sub('"answer_rules": .', '"answer_rules": 1', manifest))
    for seed in (1, 2, 3):
        write(f"arms/grpo{seed}", seed, arm="grpo", method={"name": "grpo"})
        write(f"arms/olr{seed}", seed, arm="olr")
    for name, seeds, changes in (
        ("solo", (1, 1), {}),
        ("odd", (1, 2), {}),
        ("lengths", (1, 1), {"epochs": 4}),
    ):
        write(f"{name}/grpo", seeds[0], method={"name": "grpo"}, **changes)
        write(f"{name}/olr", seeds[1])
    write("two-machines/grpo", method={"name": "grpo"})
    write("two-machines/olr", machine="cluster")
    for noise, seed in itertools.product(("active", "inactive"), (1, 2)):
        write(f"ablation/{noise}-grpo-{seed}", seed, noise=noise, method={"name": "grpo"})
        for name, criteria in CRITERIA.items():
            write(f"ablation/{noise}-{name}-{seed}", seed, noise=noise, method=OLR | {"criteria": criteria})
        for threshold in ("0", "0.02", "0.1"):
            write(
                f"slopes/{noise}-{threshold}-{seed}",
                seed,
                noise=noise,
                method=OLR | {"slope_threshold": threshold},
            )
        for warmup in (1, 3):
            write(
                f"warmups/{noise}-{warmup}-{seed}", seed, noise=noise, method=OLR | {"warmup_epochs": warmup}
            )
        write(f"warmups/{noise}-grpo-{seed}", seed, noise=noise, method={"name": "grpo"})
    for ratio, seed in itertools.product((0.2, 0.5, 0.8), (1, 2)):
        write(f"ratios/grpo-{ratio}-{seed}", seed, ratio=ratio, method={"name": "grpo"})
        write(f"ratios/olr-{ratio}-{seed}", seed, ratio=ratio)
    supervised = {"prompts": 24, "visits": 6, "prompts_per_step": 8, "response_characters": 80}
    place = importlib.util.spec_from_file_location("supervised", ROOT / "benchmarks" / "histories.py")
    assert place and place.loader
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    module.write_run(Path("made"), **supervised)
    module.write_run(Path("rephrased"), settings={"method": {"name": "co_reward"}}, **supervised)
    module.write_run(Path("mixture"), settings={"noise": {"type": "mixed", "ratio": "0.5"}}, **supervised)


def timed(run: Path, pace: int, machine: str) -> None:
    """Give a made-up run the times of its steps, and what it ran on."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines[1:], start=1):
        parts = {
            "rollouts": 0.5 + 0.01 * (number % 5),
            "verification": 0.02,
            "labels": 0.001 * pace,
            "update": 0.4,
        }
        line |= {f"time/{part}": seconds for part, seconds in parts.items()}
        line |= {"time/step": sum(parts.values()) + 0.05}
    (run / "metrics.jsonl").write_text("".join(json.dumps({**line, "made-up": 1}) + "\n" for line in lines))
    manifest = json.loads((run / "manifest.json").read_text())
    engine = {"engine": "local", "threads": 1} if machine == "laptop" else {"engine": "openrlhf"}
    manifest["attempts"] = [engine | {"device": "cpu", "host": machine}]
    (run / "manifest.json").write_text(json.dumps(manifest, indent=2))


def paper_runs() -> None:
    """Runs with the paper's settings: `methods` with held-out accuracy, `scored` with scores on all nine benchmarks."""
    import paper_runs as paper

    paper.write_grid(Path("methods"))
    for seed in (1, 2):
        paper.write_run(Path(f"methods/co-reward-{seed}"), "co_reward", 0.65, seed=seed)
    olr = OLR | {"slope_threshold": "0.05", "warmup_epochs": 5}
    arms: dict[str, dict[str, Any]] = {"grpo": {"name": "grpo"}, "ttrl": {"name": "ttrl"}, "olr": olr}
    arms |= {
        f"criteria-{name}": olr | {"criteria": chosen} for name, chosen in CRITERIA.items() if name != "both"
    }
    arms |= {
        f"slope-{threshold}": olr | {"slope_threshold": threshold} for threshold in ("0.01", "0.1", "0.3")
    }
    arms |= {f"warmup-{warmup}": olr | {"warmup_epochs": warmup} for warmup in (3, 7)}
    noises = [("active", 0.5), ("inactive", 0.5)]
    plans = [(noise, ratio, name, "Qwen/Qwen3-4B-Base") for noise, ratio in noises for name in arms]
    plans += [("active", 0.1, name, "Qwen/Qwen3-4B-Base") for name in ("grpo", "olr")]
    plans += [(noise, 0.5, name, f"{owner}-8B{end}") for noise, _ in noises for name in ("grpo", "olr")
              for owner, end in (("Qwen/Qwen3", "-Base"), ("deepseek-ai/DeepSeek-R1-Distill-Llama", ""))]  # fmt: skip
    for (number, (noise, ratio, name, model)), seed in itertools.product(enumerate(plans), (1, 2)):
        where = (
            f"scored/{noise}-{name}-{seed}" if number < 2 * len(arms) else f"scored/{number}-{name}-{seed}"
        )
        run = paper.write_run(Path(where), arms[name], 0.5, noise=noise, ratio=ratio, seed=seed)
        recipe = (run / "recipe.yaml").read_text()
        (run / "recipe.yaml").write_text(recipe.replace("builtin:addition-easier", model))
        shares = {each: share + 0.003 * number + 0.01 * seed for each, share in paper.NINE.items()}
        paper.write_evaluated(run / "evaluation" / "step-000001", shares, step=1)


def real_runs() -> None:
    """What `olr train`, `olr rollouts`, `olr evaluate` and `olr inject-noise` leave, in seconds."""
    tiny = "train.epochs=3 train.prompts_per_step=8 train.mini_batch_prompts=8 train.evaluate_every=2"
    tiny += " data.limit=16 data.validation=arithmetic train.checkpoint_every=2 method.warmup_epochs=1"
    for command in (
        f"train laptop/quickstart --run-dir real {' '.join(f'--set {setting}' for setting in tiny.split())}",
        f"rollouts builtin:addition-easier arithmetic {SAMPLED} --run-dir sampled",
        f"evaluate builtin:addition-easier {TINY.replace('6', '20', 1)} --out evaluated",
        "inject-noise --type active --ratio 0.5 --sample 12 --out noisy.parquet",
    ):
        text = run_command(command)
        assert "exit status 0" in text, text
    for state in Path("real").rglob("optimizer.pt"):
        state.unlink()


def evaluations() -> None:
    """Evaluations by a backend without a model: of the paper's nine; half done; with grades that are not today's."""
    import polars as pl
    import pyarrow.parquet as pq
    from paper_runs import NINE
    from sums import Backend, run, write_sums

    from olr_cli.evaluation.benchmark import find_benchmark
    from olr_cli.supervision import Rollout

    class Model(Backend):
        def _answer(self, question: str, seed: int) -> Any:
            answer = "A" if "A) " in question else 7 + (seed % 3 == 0)
            return Rollout(f"So \\boxed{{{answer}}}", 5 + seed % 7, seed % 11 == 0)

    nine = [find_benchmark(name) for name in NINE]
    rows = [
        {
            "data_source": each.name,
            "prompt": [{"role": "user", "content": f"{number}?" + " A) 7 B) 8" * (each.grader == "choice")}],
            "reward_model": {"ground_truth": "AB"[number % 2] if each.grader == "choice" else "7"},
            "extra_info": {"index": str(number)},
        }
        for each in nine
        for number in range(4)
    ]
    write_rows("nine.jsonl", rows)
    asked = {"data": Path("nine.jsonl"), "limit": 4, "samples": 4}
    run(Path("model"), nine, Model(), model="Qwen/Qwen3-4B-Base", **asked)
    run(Path("regraded"), nine[:4], Model(), model="Qwen/Qwen3-8B-Base", **asked)
    for file in Path("regraded/generations").glob("*.parquet"):
        table = pq.read_table(file)
        flipped = pl.DataFrame(table).with_columns(~pl.col("is_correct")).to_arrow().cast(table.schema)
        pq.write_table(flipped.replace_schema_metadata(table.schema.metadata), file)
    shutil.copytree("model", "halfdone")
    Path("halfdone/generations/amc.parquet").unlink()
    for name in ("model", "regraded"):
        shutil.copytree(name, f"evaluations/{name}")
    Path("own").mkdir()
    write_sums(Path("own"), problems=6)
    options = [{"question": f"{n}?", "options": ["7", "8", "9"], "answer": "ABC"[n % 3]} for n in range(4)]
    write_rows("own/choice.jsonl", options)
    fields = {"problem": "question", "answer": "answer", "choices": "options", "shuffle": True}
    keys = {"grader": "choice", "prompt": "{problem} {choices}", "fields": fields, "data": "choice.jsonl"}
    benchmark("own/choice.yaml", name="choice", **keys)


def benchmark(file: str, **keys: Any) -> None:
    """Write a benchmark's YAML file; `data` is short for the file of its source."""
    source = {"source": {"file": keys.pop("data")}} if "data" in keys else {}
    lines = (f"{key}: {json.dumps(value)}\n" for key, value in (source | keys).items())
    Path(file).write_text("".join(lines))


def write_rows(file: str, rows: list[dict[str, Any]]) -> None:
    """Write a JSONL file."""
    Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows))


def tables() -> None:
    """Data sets, and rollouts as other trainers log them."""
    import polars as pl
    from audit_tables import many

    shutil.copy(ROOT / "tests" / "fixtures" / "dapo_sample.parquet", "dapo.parquet")
    numbers, wrong = range(30), {3, 8, 11}
    log = [{**row, "question": f"What is {row['prompt_id']}?"} for row in many(len(numbers), wrong=wrong)]
    write_rows("log.jsonl", [row | {"is_correct": "7" in row["response"]} for row in log])
    write_rows("prompts.jsonl", [question(n, "8" if n in wrong else "7") for n in numbers])
    write_rows(
        "trusted.jsonl", [{"prompt_id": f"p{n}", "true_answer": "7"} for n in numbers if n % 2 or n == 8]
    )
    write_rows("few.jsonl", [{"prompt_id": f"p{n}", "true_answer": "7"} for n in (3, 4, 99)])
    answers = [{"prompt_id": r["prompt_id"], "visit": r["visit"], "answer": r["response"][7:-1]} for r in log]
    write_rows("bare.jsonl", answers)
    labels = pl.read_parquet("made/labels/*.parquet")
    labels = labels.select("prompt_id", "visit", "given_label", "true_answer", "noise_type")
    rollouts = pl.read_parquet("made/rollouts/*.parquet").drop("answer", "answer_class", "reward")
    made = rollouts.join(labels, on=["prompt_id", "visit"], maintain_order="left")
    made.write_parquet("table.parquet")
    made.select("prompt_id", "visit", "response", "given_label").write_ndjson("table.jsonl")
    views = pl.read_parquet("rephrased/rollouts/*.parquet")
    views.select("prompt_id", "visit", "view", "response").write_parquet("views.parquet")


def question(number: int, answer: str) -> dict[str, Any]:
    """A row of a data set that `log.jsonl` could have been made on."""
    return {"question": f"What is p{number}?", "answer": answer, "extra_info": {"index": f"p{number}"}}


def damaged_files() -> None:
    """In bad/: whatever a command should refuse."""
    shutil.copytree("one", "bad/torn")
    others = "foreign newer-shard no-labels metrics gap no-manifest not-json newer cut-recipe wrong-recipe"
    for name in others.split():
        shutil.copytree("one", f"bad/{name}")
    shard = "labels/step-000003.parquet"
    Path("bad/torn", shard).write_bytes(Path("one", shard).read_bytes()[:900])
    shutil.copy(Path("one/rollouts/step-000003.parquet"), Path("bad/foreign", shard))
    newer = (
        Path("one", shard)
        .read_bytes()
        .replace(b"olr.schema_version\x18\x011", b"olr.schema_version\x18\x019")
    )
    Path("bad/newer-shard", shard).write_bytes(newer)
    shutil.rmtree("bad/no-labels/labels")
    Path("bad/gap", shard).unlink()
    Path("bad/metrics/metrics.jsonl").write_text(
        '{"step": 0, "epoch": 0}\n{"step": \n{"step": 2, "epoch": 1}\n'
    )
    Path("bad/no-manifest/manifest.json").unlink()
    Path("bad/not-json/manifest.json").write_text('{"schema')
    Path("bad/newer/manifest.json").write_text('{"schema_version": 99}')
    Path("bad/cut-recipe/recipe.yaml").write_text(Path("real/recipe.yaml").read_text()[:200])
    Path("bad/wrong-recipe/recipe.yaml").write_text("name: one\ntrain: {epoch: 3}\n")
    Path("bad/recipe.yaml").write_text("name: mine\nmethod: {name: orl}\ntrian: {epochs: 0}\n")
    Path("bad/empty").mkdir()
    Path("bad/what.txt").write_text("what?\n")
    row: dict[str, Any] = {"prompt_id": "p1", "visit": 1, "response": "\\boxed{7}", "given_label": "7"}
    changed: dict[str, list[dict[str, Any]]] = {
        "rows": [], "visits": [row | {"visit": "soon"}], "columns": [{"question": "1?", "visit": 1}],
        "labels": [row, row | {"given_label": "8"}], "noise": [row | {"noise_type": "loud"}],
        "view": [row | {"view": "upside down"}], "ids": [row, row | {"prompt_id": None}],
        "kinds": [row, row | {"response": {"text": "7"}}], "stats": [row | {"tokens": 1.5}],
        "other-labels": [question(n, "5") for n in range(30)],
        "twice": [{"prompt_id": "p1", "true_answer": answer} for answer in "78"],
        "no-truth": [{"prompt_id": "p1", "true_answer": None}],
    }  # fmt: skip
    for name, rows in changed.items():
        write_rows(f"bad/{name}.jsonl", rows)
    for name in ("sums", "choice"):
        shutil.copy(f"own/{name}.jsonl", f"bad/{name}.jsonl")
    Path("bad/lines.jsonl").write_text('{"prompt_id": "p1"}\n[1, 2]\n{"prompt_id":\n')
    Path("bad/text.parquet").write_text("no Parquet\n")
    right = {"name": "mine", "data": "sums.jsonl"}
    fields = {"problem": "question", "answer": "answer", "choices": "options"}
    for name, keys in {
        "sums": {"name": "sums", "samples": 3}, "key": {"sample": 3}, "source": {"data": "none.jsonl"},
        "choice": {"grader": "choice", "fields": fields | {"choices": None}}, "prompt": {"prompt": "Hello"},
        "count": {"problems": 99},
        "extractor": {"extractor": "boxes"}, "columns": {"fields": {"problem": "problem", "answer": "answer"}},
        "answers": {"data": "choice.jsonl", "grader": "choice", "prompt": "{problem}{choices}",
                    "fields": fields | {"answer_form": "index"}},
    }.items():  # fmt: skip
        benchmark(f"bad/{name}.yaml", **(right | keys))
    benchmark("bad/tag.yaml", name="mine", source={"web": "here"})
    shutil.copytree(
        "model", "bad/evaluation", ignore=shutil.ignore_patterns("evaluation.json", "scores.json")
    )
    shutil.copytree("model", "bad/record")
    for name, text in {
        "newer-evaluation": '{"schema_version": 99}',
        "evaluation-not-json": '{"schema',
    }.items():
        Path("bad", name).mkdir()
        Path("bad", name, "evaluation.json").write_text(text)
    Path("bad/record/evaluation.json").write_text('{"schema_version": 1, "name": 3}')
    for name in ("scores", "no-scores", "begun", "torn-evaluation", "missing"):
        shutil.copytree("model", f"bad/{name}")
    Path("bad/scores/scores.json").write_text("{}")
    Path("bad/no-scores/scores.json").unlink()
    shutil.rmtree("bad/begun/generations")
    generations = Path("bad/torn-evaluation/generations/amc.parquet")
    generations.write_bytes(generations.read_bytes()[:500])
    import pyarrow.parquet as pq

    table = pq.read_table("model/generations/amc.parquet")
    pq.write_table(table.slice(3), "bad/missing/generations/amc.parquet")
