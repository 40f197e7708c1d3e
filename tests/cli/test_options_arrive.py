"""What a command hands on when every option is given (`tests/transcripts.py` says how to write this anew)."""

import json
import re
import shlex
from functools import partial
from pathlib import Path

import pytest
from commands import olr

from olr_cli.data.prompts import PromptSet
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.section import flatten

DRAWS = "--samples 3 --temperature 0.5 --seed 4 --stop END --max-new-tokens 7"
SERVED = "--url http://a/v1 --concurrency 2 --timeout 9"
READ = "--columns question=Q,answer=A --decimal-comma --encoding cp1252"
PROMPTS = "--system be-short --chat-template none"
SHOWN = "--compare other --format latex"

LINES = {
    f"check mine.csv {READ}": "olr_cli.data.check.check",
    "check mine.csv --model builtin:addition-easier --json": "olr_cli.data.check.check",
    f"inject-noise --type mixed --ratio 0.3 --dataset mine.csv --sample 5 --seed 2 {READ} --system be-short":
        "olr_cli.data.prompt_files.read_prompts",
    "inject-noise --type mixed --ratio 0.3 --sample 5 --seed 2 --active-share 0.4": "olr_cli.data.noise.inject",
    "inject-noise --type active --ratio 0.3 --sample 5": "olr_cli.data.noise.inject",
    f"rollouts b mine.csv --limit 6 {READ} {PROMPTS} --extractor choice --visits 2 {DRAWS} --prompts-per-step 8"
    f" {SERVED} --dry-run": "olr_cli.engines.rehearse.rehearse",
    "rollouts builtin:addition-easier arithmetic --backend transformers --device cpu --trust-remote-code --dry-run":
        "olr_cli.engines.rehearse.rehearse",
    "rollouts builtin:addition-easier arithmetic": "olr_cli.engines.launch.launch",
    "rollouts builtin:addition-easier arithmetic --run-dir r": "olr_cli.engines.launch.launch",
    f"evaluate m other --benchmarks a,b --benchmarks c --data d --limit 5 --checkpoint last,2 {DRAWS} --top-p 0.9"
    f" --top-k 3 --min-p 0.1 --protocol standard {SERVED} --out o --extractor choice --tolerance 0.1"
    f" {PROMPTS} --verified v.jsonl {SHOWN}":
        "olr_cli.evaluation.plan.plan",
    "evaluate m --device cpu --backend vllm --vllm max_num_seqs=3 --seed-each --trust-remote-code --protocol paper"
    " --paper":
        "olr_cli.evaluation.plan.plan",
    f"regrade e --benchmarks a --benchmarks b --extractor choice --tolerance 0.1 --verified v.jsonl {SHOWN}":
        "olr_cli.evaluation.grading.grade_again",
    f"benchmarks math500 m --data d --trust-remote-code {PROMPTS}": "olr_cli.evaluation.plan.show_prompt",
    "audit a b --data d --columns prompt=q --benchmark n --set data.extractor=choice --verified v --verified w"
    " --export e.jsonl --drop doubted,fine --only missing --pass-rate 0.1:0.9 --repair --top 3 --out o.csv"
    " --report p.html": "olr_cli.analysis.audit.request.carry_out",
    "audit a --rewards --as-recipe --random 4 --seed 2 --json": "olr_cli.analysis.audit.request.carry_out",
    "audit a --first 4": "olr_cli.analysis.audit.request.carry_out",
    "analyze a b --figure learning,arms --figure dynamics --over noise.ratio --no-caption --pdf --table arms --paper"
    " --baseline x --reference y --columns prompt=q --label x=X --newest --report --verified v --out o"
    " --format markdown": "olr_cli.analysis.request.carry_out",
    "analyze a --out o.csv --json": "olr_cli.analysis.request.carry_out",
    "replay a b --set method.warmup_epochs=1 --columns prompt=q": "olr_cli.analysis.histories.read_history",
    "runs a b --status failed --arm x --sort name": "olr_cli.runs.listing.list_runs",
    "train laptop/quickstart --set seed=3 --dry-run": "olr_cli.engines.rehearse.rehearse",
    "train laptop/quickstart --run-dir r": "olr_cli.engines.launch.launch",
    "train laptop/coherence --sweep --index 1 --run-dir r": "olr_cli.engines.launch.launch",
    "train laptop/coherence --sweep --jobs 3 --set seed=3": "olr_cli.engines.sweep.train_all",
    "train laptop/coherence --sweep --dry-run --run-dir r": "olr_cli.engines.rehearse.sweep_answer",
}  # fmt: skip


class Arrived(Exception):
    """Ends a command where its work would begin."""


@pytest.mark.usefixtures("here")
def test_every_option_arrives_where_the_work_is_done(monkeypatch, is_as_stored):
    Path("mine.csv").write_text("Q,A\n1+1?,2\n")
    for name in ("a", "b", "e", "other"):
        Path(name).mkdir()
    lines = []
    for line, place in LINES.items():

        def arrive(*args, **kwargs):
            raise Arrived(
                *map(plain, args), {name: plain(it) for name, it in kwargs.items()}
            )

        words = shlex.split(line)
        with monkeypatch.context() as patched:
            patched.setattr(place, arrive)
            patched.setattr("sys.argv", ["olr", *words])
            with pytest.raises(Arrived) as caught:
                olr(*words)
        lines += [f"$ olr {line}", place, *map(spelled, caught.value.args), ""]
    is_as_stored("transcripts/arrive.txt", "\n".join(lines))


def plain(value):
    """What a reader can compare: keys of a recipe that are no defaults, a partial's arguments, prompts."""
    if isinstance(value, Recipe):
        unset = flatten(Recipe(method=value.method).plain())
        keys = flatten(value.plain()).items()
        return {key: it for key, it in keys if unset.get(key) != it}
    if isinstance(value, PromptSet):
        return [prompt.prompt_id for prompt in value.prompts]
    return [value.func, value.args, value.keywords] if isinstance(value, partial) else value


def spelled(value):
    if isinstance(value, dict):
        value = json.dumps(value, default=repr)
    return f"    {re.sub(r' at 0x[0-9a-f]+', '', str(value))}"
