"""Record what every command says and writes on fixed small inputs; hold a refactoring against the record.

    python benchmarks/record.py BEFORE --inputs INPUTS             about 4 minutes on two cores
    python benchmarks/record.py AFTER --inputs INPUTS --only 'table cost|audit'
    python benchmarks/record.py --compare BEFORE AFTER             status 1 if anything differs

The first call makes INPUTS (`record_inputs.py`); later ones, from other checkouts too, read them. The commands are
those of the checkout that the script is in. Each case has a text file in the record: command, exit status, standard
output, standard error, and every file that the command wrote (tables as rows; of a picture its size, of a PDF nothing).
The pictures themselves are beside, in pictures/. Times, hosts and temporary paths are masked, so two records of the
same sources are equal to the byte.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import hashlib
import itertools
import json
import os
import re
import shlex
import shutil
import struct
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {
    "COLUMNS": "100",
    "LINES": "40",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "TZ": "UTC",
    "OMP_NUM_THREADS": "1",
}
ENVIRONMENT |= {"HF_HUB_OFFLINE": "1", "POLARS_MAX_THREADS": "1", "MPLBACKEND": "agg"}

TABLES = "noise_ratios|baselines|scale_4k|qwen3_8b|llama_8b|slope_sensitivity|warmup_sensitivity|ablation"
METHODS = (
    "grpo|ttrl|co_reward|self_certainty|token_entropy|sequence_entropy|confidence_penalty|label_smoothing"
)
LAPTOP = "quickstart|own-data|audit|study|baselines|openrlhf"
PAPER = "qwen3-4b|baselines|noise-ratios|llama-8b|slope-sensitivity"
TINY = "--limit 6 --samples 2 --max-new-tokens 6"
SAMPLED = "--limit 12 --samples 4 --visits 3 --prompts-per-step 6"
SMALL = (
    "--set data.limit=8 --set train.epochs=2 --set train.prompts_per_step=4 --set train.mini_batch_prompts=4"
)

CASES = {
    "help": """
{|analyze|audit|replay|evaluate|inject-noise|train|rollouts|make-policy|frobnicate} --help
recipes {|ls|show|cp|validate} --help
--version
""",
    "figures": """
analyze one {|--figure coherence|--figure dynamics|--figure composition|--figure cost|--figure theory|--json}
analyze one --figure coherence --figure composition --out here
analyze {unfinished|clean|unknown|mixture|rephrased|made|real|sampled|old} --figure all
analyze {arms|lengths}
analyze arms --figure {coherence|dynamics|composition|cost|theory}
analyze {ablation --figure ablation|slopes --figure sensitivity|warmups --figure sensitivity|ratios --figure theory}
analyze ablation/active-both-1 ablation/active-both-2 --figure dynamics
analyze arms solo --figure coherence --out both
analyze slopes warmups --figure sensitivity --out both
analyze scored --figure {ablation|sensitivity}
analyze --figure phase --out here
""",
    "tables": """
analyze arms --table {arms|cost|theory} --format {terminal|markdown|latex|csv|json}
analyze arms --table arms --baseline olr --format {terminal|markdown|latex|csv|json}
analyze {ratios|mixture|clean|unknown|ablation|scored} --table theory {|--format markdown|--format latex|--format csv}
analyze {solo|odd|lengths|unfinished|real|sampled|clean} --format {csv|markdown|latex}
analyze {solo|odd|lengths|unfinished|real|sampled|clean} --table arms
analyze {solo|odd|real|two-machines} --table cost {|--compare paper|--compare paper --format markdown|--format latex}
analyze arms/grpo1 arms/grpo2 arms/olr1 arms/olr2 --table arms --json
analyze arms --table cost --compare paper --format {terminal|markdown|latex|csv|json}
{COLUMNS=60|COLUMNS=160} analyze arms --table {arms|cost|theory}
{COLUMNS=60|COLUMNS=160} analyze scored model --table {baselines|slope_sensitivity|ablation} --compare paper
""",
    "paper tables": f"""
analyze scored model --table {{{TABLES}}} {{|--compare paper}}
analyze scored model --table {{{TABLES}}} --compare paper --format {{markdown|latex|csv|json}}
analyze scored --table {{baselines|ablation}} --format {{markdown|latex|csv}}
analyze methods --table baselines {{|--compare paper|--compare paper --format markdown|--compare paper --format latex}}
analyze slopes warmups --table {{slope_sensitivity|warmup_sensitivity}} {{|--compare paper|--format markdown}}
analyze scored model halfdone --table baselines --compare paper
analyze {{real sampled|odd}} --table baselines
analyze arms methods/active-grpo-1 --table cost
""",
    "reports": """
analyze {one|arms|made|rephrased|unknown|real|sampled} --report
analyze made --report --out here --json
analyze arms/grpo1 arms/olr1 model --report --table baselines --compare paper
analyze two-machines --report --table {cost|theory}
""",
    "audit": """
audit {one|made|mixture|rephrased|unknown|clean|real|sampled|unfinished|old} {|--json}
audit {log.jsonl|table.jsonl|table.parquet|bare.jsonl|views.parquet} {|--json --top 3}
{COLUMNS=60|COLUMNS=160} audit {made|log.jsonl}
audit log.jsonl --trusted {trusted.jsonl|few.jsonl} {|--json|--threshold 0.9}
audit log.jsonl --export {fixed.jsonl|fixed.parquet} --top 3 {|--data prompts.jsonl|--trusted trusted.jsonl}
audit {made|real|mixture} --export fixed.parquet --threshold 0.3
audit made --export fixed.jsonl --out here.parquet && audit made --export fixed.jsonl
audit table.jsonl --data arithmetic --top 0 {|--out prompts.parquet} --set data.extractor=boxed
audit bare.jsonl --data prompts.jsonl --json
""",
    "replay": f"""
replay {{one|made|mixture|rephrased|unknown|clean|real|sampled|unfinished|old}} {{|--json}}
replay {{log.jsonl|table.jsonl|table.parquet|bare.jsonl|views.parquet}} {{|--out labels.parquet|--json}}
replay made --set method.name={{{METHODS}|small_loss_selection|random_selection}}
replay {{rephrased|views.parquet}} --set method.name=co_reward
replay made --set method.slope_threshold=0.1 --set method.warmup_epochs=0 --set seed=3 --set noise.draw=frequency
replay {{made|table.parquet}} --set method.criteria={{[slope]|[consistency]|[]}} --out labels.parquet
replay real --set data.extractor={{boxed|null|text}}
replay made --set method.name=sequence_entropy --set method.score_reduction=sum --json
replay {{one|made|mixture|unknown|real|log.jsonl|table.parquet|bare.jsonl}} --grid default {{|--json --out here}}
replay {{made|clean}} --grid method.slope_threshold=0,0.05,0.1 --grid method.warmup_epochs=1,2 {{|--json}}
replay made --grid {{method.criteria|method.criteria=none,slope|method.warmup_epochs|method.slope_threshold}}
{{COLUMNS=60|COLUMNS=160}} replay made --grid default
""",
    "evaluate": f"""
evaluate --list {{|--format json|--format markdown}}
evaluate --show {{arithmetic|arithmetic:subtraction|own/sums.yaml|own/choice.yaml}} {{|builtin:subtraction}}
evaluate --show {{amc|arc_c}} --data nine.jsonl
evaluate builtin:addition-easier {TINY} {{|--temperature 0|--benchmarks arithmetic --out here --format json}}
evaluate builtin:subtraction {TINY} && evaluate builtin:subtraction {TINY} --benchmarks arithmetic
evaluate real {TINY} {{|--checkpoint best|--checkpoint 4 --checkpoint last}} {{|--format markdown}}
evaluate real {TINY} --compare evaluated
evaluate builtin:addition-easier --benchmarks own/sums.yaml --samples 2 --max-new-tokens 6
evaluate builtin:addition-easier --benchmarks amc,arc_c --data nine.jsonl --limit 4 --samples 1 --max-new-tokens 6
evaluate --regrade {{evaluated|model|halfdone|regraded|evaluations}} {{|--format markdown|--format latex|--format json}}
evaluate --regrade model --compare {{paper|evaluated|regraded}} {{|--format markdown|--format latex|--format json}}
{{COLUMNS=60|COLUMNS=160}} evaluate --regrade model --compare paper
evaluate --regrade model --benchmarks amc,arc_c
evaluate --regrade scored/active-grpo-1
""",
    "data": """
inject-noise --type {active|inactive|mixed} --ratio 0.5 --sample 12 {|--json|--seed 3 --out noisy.jsonl}
inject-noise --type mixed --ratio 0.3 --active-share 0.2 --dataset {dapo.parquet|prompts.jsonl} --out new.parquet
inject-noise --type active --ratio 0.5 --sample 6 && inject-noise --type active --ratio 0.5 --sample 6
inject-noise --type active --ratio 0.5 --sample 6 --dataset arithmetic:subtraction
inject-noise --type active --ratio 0.5 --sample 16 --seed 1 --rollouts real --out noisy.jsonl
inject-noise --type inactive --ratio 0.01 --sample 6
""",
    "recipes and training": f"""
recipes ls
recipes keys {{|train|method.s|nothing}} {{|--json}}
recipes show {{laptop/quickstart|laptop/study}} {{|--resolved}}
recipes validate {{{"|".join("laptop/" + name for name in LAPTOP.split("|") if name != "own-data")}|own-data}}
recipes validate {{{"|".join("paper/" + name for name in PAPER.split("|"))}}}
recipes validate laptop/quickstart --set method.warmup_epochs=20 --set train.rollouts_per_prompt=2
recipes cp laptop/study mine.yaml && train mine.yaml --sweep --dry-run && recipes cp laptop/study mine.yaml
train {{laptop/quickstart|laptop/openrlhf}} --dry-run
train own-data --set data.train=prompts.jsonl --set model.path=builtin:subtraction --dry-run
train own-data --set data.train=prompts.jsonl --set model.path=builtin:subtraction --set train.max_new_tokens=9 \\
--dry-run
train {{laptop/study|paper/noise-ratios|paper/baselines}} --sweep --dry-run
train laptop/study --sweep --index 3 --dry-run
train laptop/quickstart --set data.train=noisy.parquet --set noise=null --dry-run
train laptop/quickstart {SMALL} --set method.warmup_epochs=1 {{|--json}} && analyze runs/quickstart --table arms
train laptop/quickstart --resume --run-dir real
rollouts builtin:addition-easier arithmetic --dry-run --limit 4
rollouts real prompts.jsonl --samples 2 --visits 2 --max-new-tokens 6 --run-dir here {{|--json}}
rollouts builtin:addition-easier arithmetic --limit 4 --samples 2 --visits 2 --max-new-tokens 6 && audit \
runs/rollouts-arithmetic && rollouts builtin:addition-easier arithmetic --run-dir runs/rollouts-arithmetic
rollouts builtin:addition-easier arithmetic {SAMPLED} --resume --run-dir sampled
""",
    "errors": f"""
analyze {{|nowhere|bad/empty|bad/no-manifest|bad/not-json|bad/newer|bad/cut-recipe|bad/wrong-recipe|table.jsonl|model}}
analyze {{bad/torn|bad/foreign|bad/newer-shard|bad/no-labels|bad/metrics|bad/gap}} --table {{arms|cost}}
analyze one --figure {{dynamic|histogram|ablation|sensitivity}}
analyze {{clean|sampled}} --figure {{theory|cost}}
analyze one --table {{arm|costs|baseline|cost}}
analyze one --format {{html|Markdown}}
analyze one --json --format csv
analyze arms --baseline {{orl|other}}
analyze arms --table {{cost|theory|baselines|ablation}} --baseline olr
analyze arms --compare {{paper|papr}} {{|--table arms|--table cost}}
analyze --figure phase {{--report|--compare paper|--out table.jsonl}}
analyze one --out table.jsonl
analyze arms/grpo1 copies/grpo1
analyze arms copies --figure dynamics
analyze arms model {{|--table arms}}
analyze arms scored/active-grpo-1/evaluation/step-000001 --table baselines
analyze arms {{evaluated|bad/evaluation|bad/scores|bad/no-scores}} --table baselines
analyze sampled --table {{baselines|ablation}}
analyze {{--figure|--nothing|one arms/grpo1|methods/active-grpo-1 --table cost|methods/active-grpo-1 --figure cost}}
audit {{|nowhere|bad/empty|bad/torn|bad/no-manifest}} --json
audit {{bad/rows.jsonl|bad/lines.jsonl|bad/visits.jsonl|bad/columns.jsonl|bad/labels.jsonl|bad/noise.jsonl}}
audit {{bad/view.jsonl|bad/ids.jsonl|bad/text.parquet|bad/what.txt|bad/kinds.jsonl}}
audit log.jsonl --export {{fixed.csv|bad|prompts.jsonl}} {{|--data prompts.jsonl}}
audit {{table.jsonl|made}} --data {{prompts.jsonl|nowhere.jsonl|arithmetic:subtraction}}
audit bare.jsonl --export fixed.jsonl
audit one --export fixed.jsonl
audit log.jsonl --data bad/other-labels.jsonl
audit log.jsonl --trusted {{nowhere.jsonl|table.jsonl|bad/twice.jsonl|bad/no-truth.jsonl|bad}}
audit log.jsonl --set {{method.name=olr|data.extractor=boxes|data.extractor}}
audit log.jsonl --out {{prompts.jsonl|here --json}}
audit log.jsonl --threshold {{1.5|high}}
audit log.jsonl --top -1
replay {{|nowhere|bad/empty|bad/torn|bad/foreign|bad/gap|bad/rows.jsonl|bad/visits.jsonl|bad/stats.jsonl}}
replay {{log.jsonl|one}} --out {{prompts.jsonl|here --json|nowhere/labels.parquet}}
replay made --set {{train.epochs=3|method.penalty_weight=1|seed}}
replay made --set method.{{nam=olr|name=orl|slope_threshold=steep}}
replay {{log.jsonl|one}} --set method.name={{small_loss_selection|self_certainty|co_reward}}
replay bare.jsonl --set data.extractor=boxed
replay log.jsonl --set noise.ratio=0.5
replay made --grid method.{{slop|slope_threshold=a|slope_threshold=-1|warmup_epochs=1.5|criteria=x}}
replay made --grid method.warmup_epochs={{9|1 --grid method.warmup_epochs=2|1 --set method.warmup_epochs=2}}
replay made --grid method.warmup_epochs --out log.jsonl
replay made --grid default --set method.name=grpo
replay clean --grid method.criteria --set noise.draw=frequent
evaluate {{|nowhere|./nowhere|arms|arms/grpo4|bad|bad/newer|one|sampled|builtin:adition}}
evaluate builtin:addition-easier --benchmarks {{amd|aime24,|own/sums.yaml,bad/sums.yaml|nowhere.yaml|,}}
evaluate builtin:addition-easier --benchmarks bad/{{key|source|choice|prompt|extractor|columns|answers|tag}}.yaml
evaluate builtin:addition-easier --data {{nowhere.jsonl|prompts.jsonl|bad}} {{|--benchmarks amc}}
evaluate builtin:addition-easier --benchmarks amc --data nine.jsonl
evaluate builtin:addition-easier --{{backend tensorrt|device gpu|device cuda|backend vllm|temperature 0.001|limit 0}}
evaluate builtin:addition-easier --compare {{paper|nowhere|bad|halfdone}} {TINY}
evaluate builtin:addition-easier --checkpoint last
evaluate builtin:addition-easier {TINY} --seed 1 --out {{evaluated|arms|log.jsonl}}
evaluate real --checkpoint {{3|first}} {{|--compare paper}}
evaluate {{--list --limit 3|--show amc --compare paper|--regrade model --samples 3}}
evaluate {{--show amd|--format html|--list --format csv}}
evaluate --show {{own/sums.yaml --data log.jsonl|own/sums.yaml nowhere|amc --data prompts.jsonl}}
evaluate --regrade bad/{{newer-evaluation|evaluation-not-json}}
evaluate builtin:addition-easier --benchmarks bad/count.yaml
rollouts builtin:addition-easier arithmetic {SAMPLED} --resume --run-dir sampled --backend vllm
evaluate --regrade {{nowhere|one|bad/evaluation|bad/record|bad/begun|bad/torn-evaluation|bad/missing}}
evaluate --regrade model {{--benchmarks own/sums.yaml|--compare nowhere|--compare bad/begun}}
evaluate --regrade evaluations --compare paper
inject-noise {{--type active|--ratio 0.5|--type random --ratio 0.5|--type active --ratio 1.5|--type active --ratio x}}
inject-noise --type active --ratio 0.5 --dataset {{aritmetic|nowhere.jsonl|bad/empty|bad/rows.jsonl|noisy.parquet}}
inject-noise --type active --ratio 0.5 {{--out prompts.jsonl|--out noisy.csv|--sample 0|--sample 9999999}}
inject-noise --type {{active|inactive}} --ratio 0.5 --sample 8 --rollouts {{nowhere|bad/empty|log.jsonl|bad/torn}}
inject-noise --type mixed --ratio 0.5 --active-share 2
train {{nowhere|laptop/quickstar|bad/what.txt|bad/recipe.yaml|laptop/study|laptop/quickstart --index 1}} --dry-run
train laptop/quickstart --dry-run --set {{a=1|train.epoch=3|train.epochs=many|noise.ratio=2|method.name=orl|seed}}
train laptop/quickstart --dry-run --set data.{{train=nowhere.jsonl|train=noisy.parquet|extractor=boxes|limit=0}}
train laptop/quickstart --dry-run --set model.path={{nowhere|builtin:adition|./nowhere}}
train laptop/quickstart --run-dir {{one|real|bad}} {{|--resume}}
train laptop/quickstart --resume
train laptop/study --sweep {{--resume|--json|--index 99}}
rollouts {{|builtin:adition arithmetic|builtin:addition-easier nowhere.jsonl|one arithmetic}}
rollouts builtin:addition-easier arithmetic --dry-run --{{backend x|device x|extractor boxes|samples 1|temperature -1}}
rollouts builtin:addition-easier arithmetic {{|--run-dir sampled|--run-dir real}} --resume
rollouts builtin:addition-easier arithmetic --run-dir one
recipes {{|show nowhere|show laptop/quickstar|validate bad/recipe.yaml|cp laptop/study bad|cp laptop/study no/my.yaml}}
recipes validate laptop/quickstart --set {{trian.epochs=3|train.epochs=0|method.slope_threshold=x|train.clip=2}}
make-policy {{addition --out here|addition-easier --out bad|addition-easier --out no/where|addition-easier}}
""",
}
"""Subject -> commands, one a line: ``{a|b}`` stands for either, ``&&`` joins commands in one folder."""


def lines_of(text: str) -> Iterator[str]:
    """The command lines of a text, with every alternative written out."""
    for line in filter(None, text.replace("\\\n", "").split("\n")):
        parts = [
            part.split("|") if number % 2 else [part] for number, part in enumerate(re.split("[{}]", line))
        ]
        yield from (" ".join("".join(chosen).split()) for chosen in itertools.product(*parts))


def cases(pattern: str) -> dict[str, str]:
    """File name in the record -> command line, of those that match a pattern; the file name tells the command."""
    lines = [line for text in CASES.values() for line in lines_of(text) if re.search(pattern, line)]
    return {f"{re.sub(r'[^A-Za-z0-9.=]+', '_', line)[:90]}-{_digest(line)}.txt": line for line in lines}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def record_case(line: str, inputs: Path) -> tuple[str, dict[str, bytes], float]:
    """Run a case in an empty folder with the inputs that it names.

    Returns:
        Its text in the record, the pictures that it wrote by path, and the CPU seconds it took.
    """
    began = sum(os.times()[:4])
    home = Path(tempfile.mkdtemp(prefix="olr-", dir="/tmp"))
    try:
        for name in sorted(file.name for file in inputs.iterdir()):
            if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", line):
                copy = shutil.copytree if (inputs / name).is_dir() else shutil.copy
                copy(inputs / name, home / name)
        os.chdir(home)
        before = _state(home)
        parts = [run_command(command) for command in line.split(" && ")]
        written = [file for file, state in _state(home).items() if before.get(file) != state]
        parts += [f"removed: {file.relative_to(home)}\n" for file in before if not file.exists()]
        parts += [f"--- {file.relative_to(home)}\n{shown(file)}\n" for file in written]
        pngs = (file for file in written if file.suffix == ".png")
        pictures = {masked(str(file.relative_to(home)), {}): file.read_bytes() for file in pngs}
        text = masked("".join(parts), {str(home): "<here>", (inputs / "made-at").read_text(): "<inputs>"})
        return text, pictures, sum(os.times()[:4]) - began
    finally:
        os.chdir("/")
        shutil.rmtree(home)


def _state(folder: Path) -> dict[Path, tuple[int, int]]:
    """File -> what changes when it is written, also with the same bytes."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file() and not file.name.startswith("."))
    return {file: (file.stat().st_mtime_ns, file.stat().st_ino) for file in files}


def run_command(command: str) -> str:
    from typer.testing import CliRunner

    from olr_cli.cli import app

    words = shlex.split(command)
    settings = list(itertools.takewhile(re.compile("[A-Z]+=").match, words))
    given = dict(setting.split("=", 1) for setting in settings)
    sys.argv = ["olr", *words[len(given) :]]
    # Each case warns as if it came first, though it runs in one process with others.
    with warnings.catch_warnings():
        result = CliRunner(env=given).invoke(app, words[len(given) :], prog_name="olr")
    typed = shlex.join([*settings, *sys.argv])
    bug = "" if isinstance(result.exception, SystemExit | None) else f"bug: {result.exception!r}\n"
    streams = f"--- stdout\n{result.stdout}\n--- stderr\n{result.stderr}\n"
    return f"$ {typed}\nexit status {result.exit_code}\n{bug}{streams}"


def shown(file: Path) -> str:
    """A file as text: tables as rows, pictures by their size, HTML with its data unpacked."""
    match file.suffix:
        case ".parquet":
            import pyarrow.parquet as pq

            table = pq.read_table(file)
            marks = table.schema.metadata or {}
            facts = [f"{column.name}: {column.type}" for column in table.schema]
            facts += [
                f"{key.decode()} = {marks[key].decode()}" for key in sorted(marks) if key != b"ARROW:schema"
            ]
            return "\n".join([*facts, *(json.dumps(row, ensure_ascii=False) for row in table.to_pylist())])
        case ".png":
            return "{} x {} pixels".format(*struct.unpack(">II", file.read_bytes()[16:24]))
        case ".pdf" | ".safetensors" | ".pt":
            return "(binary)"
        case ".html":
            drawing = r'<img src="data:image/svg[^"]*"[^>]* width="(\d+)">'
            text = re.sub(drawing, r"<svg \1 points wide>", file.read_text())
            packed = r'(<script[^>]*data-kind="(\w+)"[^>]*>)([A-Za-z0-9+/=]+)'
            return re.sub(packed, lambda found: f"{found[1]}{_unpacked(found[2], found[3])}", text)
    return file.read_text(errors="replace")


def _unpacked(kind: str, packed: str) -> str:
    """The data of a report: JSON, or whole numbers of 8, 16 or 32 bits (``u8`` …)."""
    content = zlib.decompress(base64.b64decode(packed))
    if kind == "json":
        return json.dumps(json.loads(content), indent=1, ensure_ascii=False)
    size, code = {"u8": (1, "B"), "u16": (2, "H"), "u32": (4, "I")}[kind]
    return str(struct.unpack(f"<{len(content) // size}{code}", content))


VARYING = (
    (r'"(time/\w+)": [\d.e+-]+', r'"\1": <seconds>'),
    (r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?", "<time>"),
    (r'"(host|id|pid|commit)": ("[^"]*"|\d+)', r'"\1": <varies>'),
    (r"(?m)^( +\d+ .*[\d%]) +[\d.]+[smhd]$", r"\1 <left>"),
    (r", \d+:\d\d left", ", <time> left"),
    # What a digest of an absolute path, or torch's state in a process of its own, is part of.
    (r"(audit|prompts|grid)-[0-9a-f]{8}", r"\1-<digest>"),
    (r'"(recipe_digest|trainer\.json)": ("\w+"|\d+)', r'"\1": <varies>'),
    (r'"rng": \[[\d, ]*\]', '"rng": <varies>'),
)
"""What differs from one call to the next -> what stands in its place."""


def masked(text: str, places: dict[str, str]) -> str:
    """Text without what differs from one call, checkout or machine to the next."""
    for place, name in (places | {str(ROOT): "<checkout>"}).items():
        text = text.replace(place, name)
    for varying, name in VARYING:
        text = re.sub(varying, name, text)
    return text


def record(out: Path, inputs: Path, pattern: str, jobs: int) -> None:
    """Write the record of all cases that match a pattern."""
    found, began, seconds = cases(pattern), time.monotonic(), dict[str, float]()
    out.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=prepare) as pool:
        texts = pool.map(record_case, found.values(), itertools.repeat(inputs))
        for name, (text, pictures, took) in zip(found, texts, strict=True):
            seconds[found[name]] = took
            (out / name).write_text(text)
            for path, picture in pictures.items():
                file = out / "pictures" / name.removesuffix(".txt") / path.replace("/", "_")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(picture)
    slowest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:8]
    wall, cpu = time.monotonic() - began, sum(seconds.values())
    print(f"{out}: {len(found)} cases in {wall:.0f} s, {cpu:.0f} s of CPU; the slowest:")
    print(*(f"{seconds[line]:7.1f}  olr {line}" for line in slowest), sep="\n")


def compare(before: Path, after: Path) -> int:
    """Print the cases in which two records differ, each with a short diff; the number of them."""
    files = {
        file.relative_to(place) for place in (before, after) for file in place.rglob("*") if file.is_file()
    }
    different = 0
    for file in sorted(files):
        one, other = (
            (place / file).read_bytes() if (place / file).exists() else b"" for place in (before, after)
        )
        if one != other:
            different += 1
            only = "picture" if file.suffix == ".png" else "in one record only" if not (one and other) else ""
            print(f"{file}: {only}")
            if not only:
                lines = difflib.unified_diff(
                    *(text.decode().splitlines() for text in (one, other)), n=1, lineterm=""
                )
                print(*(f"    {line[:160]}" for line in itertools.islice(lines, 2, 22)), sep="\n")
    print(f"{different} of {len(files)} files differ")
    return different


def prepare() -> None:
    """In every process: the environment, the sources of this checkout, and what is imported lazily by some cases."""
    for name in ("FORCE_COLOR", "CI", "GITHUB_ACTIONS", "TERMINAL_WIDTH", "HF_TOKEN"):
        os.environ.pop(name, None)
    os.environ |= ENVIRONMENT
    sys.path.insert(0, str(ROOT))
    import olr_cli

    assert Path(olr_cli.__file__).is_relative_to(ROOT), f"{olr_cli.__file__} is not of {ROOT}"
    from matplotlib.figure import Figure

    save = Figure.savefig

    def savefig(figure: Figure, file: Any, *, format: str, **options: Any) -> None:
        """Draw no PDF: that takes long, and it is not kept."""
        if format == "pdf":
            Path(file).touch()
        else:
            save(figure, file, format=format, **options)

    Figure.savefig = savefig  # type: ignore[method-assign]


def main() -> None:
    """Make the inputs if there are none, record, or compare two records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", help="folder of the record")
    parser.add_argument("--inputs", type=Path, help="folder of the inputs; made if it is not there")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="a regular expression; record these cases alone"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    given = parser.parse_args()
    if given.compare:
        sys.exit(bool(compare(*given.compare)))
    inputs = (given.inputs or given.out.parent / "inputs").resolve()
    out = given.out.resolve()
    if not inputs.exists():
        from record_inputs import make_inputs

        make_inputs(inputs)
    record(out, inputs, given.only, given.jobs)


if __name__ == "__main__":
    main()
