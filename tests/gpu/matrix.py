"""What only a GPU can show of the engines: runs of a random Qwen3, and what each of them must show.

    make test-gpu                                   twenty minutes; one Markdown file, to be pasted into an issue
    python tests/gpu/matrix.py --report FILE        the same in an environment that is there
    python tests/gpu/matrix.py --device cpu         what of it a CPU can show, with a tiny model

The report is written anew after every case. A case that fails or hangs is a finding, and its processes are killed
before the next one starts.

The policy has 0.5 B random weights and is trained by its own likelihood (method `sequence_entropy`), because a random
policy earns no reward from a verifier. A learning rate far too high makes the weights move so much in a few steps that
vLLM's old weights would be seen in the log-probabilities of its tokens.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "openrlhf"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from make_toys import build_tokenizer
from stack import Train, metrics, processes_of

from olr_cli import __version__
from olr_cli.engines.openrlhf import WRITTEN_FOR
from olr_cli.engines.openrlhf.bridges import has_flash_attention
from olr_cli.engines.openrlhf.process import descendants
from olr_cli.files import write_text
from olr_cli.packages import installed_version
from olr_cli.runs.checkpoints import checkpoint_steps
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.store import scan_rollouts, stored_steps

STEPS, CHECKPOINT, KILLED = 4, 2, 3
"""Steps of a run; the one with a checkpoint; the one after which a run is killed, the first after a checkpoint."""

MOST_GAP = 0.02
"""Nats that bfloat16 may put between the log-probabilities of two programs, on average over tokens."""

LEAST_MOVE = 4
"""How many times the gap the policy must have moved, or old weights in vLLM would not be seen."""

PATIENCE_A_START = 150
"""Seconds; a start that takes longer counts as hanging."""

LOCAL = "local engine"


@dataclass(frozen=True)
class Size:
    """A model and the work it gets; the learning rate is as high as the policy bears."""

    vocabulary: int
    hidden: int
    layers: int
    new_tokens: int
    learning_rate: float


HALF_BILLION = Size(vocabulary=151_936, hidden=1024, layers=22, new_tokens=256, learning_rate=1e-4)
TINY = Size(vocabulary=512, hidden=64, layers=2, new_tokens=16, learning_rate=3e-3)


@dataclass(frozen=True)
class Case:
    """A run of the matrix.

    Attributes:
        name: what is special about it.
        settings: beside the common ones.
        gpus: how many it needs; None: it takes as many as there are.
        is_killed: killed after the step that follows a checkpoint, and resumed; else it runs through.
        needs_flash_attention: and is left out without it.
        on_cpu: whether the rehearsal can show it.
    """

    name: str
    settings: tuple[str, ...]
    gpus: int | None = 1
    is_killed: bool = False
    needs_flash_attention: bool = False
    on_cpu: bool = False

    @property
    def starts(self) -> int:
        """How often the stack starts."""
        return 2 if self.is_killed else 1

    def gpus_of(self, here: int) -> int:
        """GPUs of the policy that its mini-batches divide among, where so many GPUs are here."""
        return self.gpus or next(number for number in (8, 4, 2, 1) if number <= max(1, here))


CASES = (
    Case(
        "the paper's layout: ZeRO 3, float32 gradients, sleep, a vLLM engine on every GPU; killed and resumed",
        ("engine.zero_stage=3", "engine.flags.ds.grad_accum_dtype=fp32", "engine.attention=sdpa"),
        gpus=None,
        is_killed=True,
        on_cpu=True,
    ),
    Case(
        "ZeRO 2, sleep; killed and resumed",
        ("engine.zero_stage=2", "engine.attention=sdpa"),
        is_killed=True,
    ),
    Case(
        "ZeRO 2, flash-attn",
        ("engine.zero_stage=2", "engine.attention=flash_attention_2"),
        needs_flash_attention=True,
    ),
    Case("ZeRO 3, tensor parallel 2", ("engine.zero_stage=3", "engine.tensor_parallel=2"), gpus=2),
    Case(
        "ZeRO 2, not colocated",
        ("engine.colocate=false", "engine.flags.train.colocate_actor_ref=true"),
        gpus=2,
    ),
    Case(
        "ZeRO 2, sleep, Adam in host memory",
        ("engine.zero_stage=2", "engine.flags.ds.adam_offload=true", "engine.attention=sdpa"),
    ),
    Case("ZeRO 3, awake", ("engine.zero_stage=3", "engine.sleep=false", "engine.attention=sdpa")),
    Case("ZeRO 2, awake", ("engine.zero_stage=2", "engine.sleep=false", "engine.attention=sdpa")),
)
"""What shows most comes first: there is seldom time for all of them."""


@dataclass(frozen=True)
class Finding:
    """One thing that a case must show; `is_right` is None if it is only measured, or left out."""

    case: str
    shows: str
    measured: str
    wanted: str = ""
    is_right: bool | None = None


def configuration(size: Size, tokenizer: Any) -> Any:
    """A Qwen3 of this size; as in the small published ones, the LM head is the embedding."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=3 * size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=max(2, size.hidden // 64),
        num_key_value_heads=max(2, size.hidden // 128),
        head_dim=128 if size.hidden >= 1024 else 32,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def random_model(folder: Path, size: Size) -> Path:
    """A Qwen3 of random weights, and a tokenizer of characters that fills its vocabulary."""
    import torch
    from transformers import Qwen3ForCausalLM

    tokenizer = build_tokenizer(4096)
    further = [f"<{number}>" for number in range(size.vocabulary - len(tokenizer))]
    tokenizer = build_tokenizer(4096, further)
    torch.manual_seed(0)
    model: Any = Qwen3ForCausalLM(configuration(size, tokenizer))
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def settings_of(case: Case, model: Path, size: Size, device: str, gpus: int) -> tuple[str, ...]:
    """Settings over `laptop/openrlhf` on so many GPUs: 4 steps of 16 prompts x 4, two updates each."""
    colocated_gpus = gpus if "engine.colocate=false" not in case.settings else 1
    return (
        f"model.path={model}",
        "method={name: sequence_entropy}",
        "noise=null",
        "data.test=null",
        "data.limit=32",
        "train.epochs=2",
        "train.prompts_per_step=16",
        "train.mini_batch_prompts=8",
        "train.rollouts_per_prompt=4",
        f"train.max_new_tokens={size.new_tokens}",
        "train.max_prompt_tokens=64",
        "train.evaluate_every=null",
        f"train.learning_rate={size.learning_rate}",
        f"train.checkpoint_every={CHECKPOINT}",
        "train.keep_checkpoints=1",
        f"engine.device={device}",
        f"engine.gpus_per_node={colocated_gpus}",
        "engine.micro_batch_samples=4",
        "engine.vllm_memory=0.4",
        "engine.flags.vllm.enforce_eager=true",
        "engine.flags.algo.advantage.is_correction_level=token",
        *case.settings,
    )


def ask_nvidia_smi(field: str) -> list[str]:
    """A field of every GPU; none where there is no driver."""
    words = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            words, capture_output=True, text=True, check=True, timeout=60
        ).stdout.splitlines()
    return []


def memory_in_use() -> list[float]:
    """Bytes in use on every GPU; not of cards that share the host's memory, which answer "[N/A]"."""
    return [float(text) * 2**20 for text in ask_nvidia_smi("memory.used") if text.strip().isdigit()]


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """The most bytes in use on any GPU meanwhile, beyond what was in use before; empty without a GPU."""
    before, peak, over = memory_in_use(), [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            used = [now - then for now, then in zip(memory_in_use(), before, strict=False)]
            peak[0] = max([peak[0], *used])

    if not before:
        yield []
        return
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def run_case(
    case: Case, folder: Path, model: Path, size: Size, device: str, *, seconds: float, gpus: int = 1
) -> list[Finding]:
    """Train as the case says, on so many GPUs, and tell what it has shown; a run that fails or hangs is told too.

    A run that takes more than `seconds` counts as hanging.
    """
    run = folder / "run"
    settings = settings_of(case, model, size, device, gpus)
    began = time.monotonic()
    findings: list[Finding] = []
    output = ""
    with peak_memory() as peak, _killed_at_the_end(run):
        try:
            train = Train(run, settings, patience=seconds)
            if case.is_killed:
                train.await_step(KILLED)
                train.signal(signal.SIGKILL)
                train.end()
                findings += [_gone_on(case, run), _left_nothing(case, run)]
                train = Train(run, settings, "--resume", patience=seconds - (time.monotonic() - began))
            status, output = train.end(), train.output
        except TimeoutError as error:
            status, output = -1, f"{error}\nno end after {seconds:.0f} s"
        except (AssertionError, OSError) as error:
            status, output = -1, str(error)
    finished = status == 0 and stored_steps(run) == list(range(1, STEPS + 1))
    took = f"{time.monotonic() - began:.0f} s"
    told = "yes" if finished else f"status {status}: {_last_words(run, output)}"
    findings.append(Finding(case.name, f"{STEPS} steps in {took}", told, "yes", finished))
    if finished:
        if case.is_killed:
            findings.append(_resumed(case, run))
        findings += [_weights_arrive(case, run), *_speeds(case, run)]
        if peak:
            findings.append(Finding(case.name, "memory of the fullest GPU", f"{peak[0] / 1e9:.1f} GB"))
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    return findings


@contextmanager
def _killed_at_the_end(run: Path) -> Iterator[None]:
    """Kill what is left of a run's processes, which would keep their GPUs: by descent, or by their environment."""
    try:
        yield
    finally:
        deadline = time.monotonic() + 30
        while (left := {*processes_of(run), *_below(processes_of(run))}) and time.monotonic() < deadline:
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.2)


def _below(processes: Iterable[int]) -> list[int]:
    """Descendants; those that give themselves a title may have written over their environment."""
    return [child for process in processes for child in descendants(process)]


def _left_nothing(case: Case, run: Path) -> Finding:
    """The job and its Ray end with the command that was killed."""
    deadline = time.monotonic() + 60
    while (left := processes_of(run)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return Finding(case.name, "kill -9 leaves no process", f"{len(left)} after a minute", "0", not left)


def _in_a_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:600]


def _last_words(run: Path, output: str) -> str:
    log = run / "openrlhf" / "log.txt"
    lines = [line for line in output.splitlines() if line.strip()][-2:]
    if log.exists():
        errors = [line for line in log.read_text(errors="replace").splitlines() if "Error" in line]
        lines += errors[-3:]
    return _in_a_cell(" / ".join(lines))


def _gone_on(case: Case, run: Path) -> Finding:
    """The step after a checkpoint, which ZeRO 3 with sleep could not make once."""
    after = max(line["step"] for line in metrics(run))
    has = checkpoint_steps(run) == [CHECKPOINT]
    measured = f"step {after}, checkpoint of step {', '.join(map(str, checkpoint_steps(run)))}"
    right = has and after >= KILLED
    wanted = f"step {KILLED}, checkpoint of step 2"
    return Finding(case.name, "goes on after a checkpoint", measured, wanted, right)


def _resumed(case: Case, run: Path) -> Finding:
    begun = [attempt["from_step"] for attempt in read_manifest(run)["attempts"]]
    wanted = [0, CHECKPOINT]
    measured = f"attempts from step {begun}"
    return Finding(case.name, "resumes after kill -9", measured, f"from step {wanted}", begun == wanted)


def _weights_arrive(case: Case, run: Path) -> Finding:
    """That vLLM's log-probabilities are those of the policy, which has moved away from the start."""
    lines = [line for line in metrics(run) if line["step"]]
    gap = max(line["rollout/sampler_gap"] for line in lines)
    # The k3 estimate is about r^2 / 2, where r is how far a token's log-probability has moved from the start's.
    moved = math.sqrt(2 * max(0.0, lines[-1]["policy/kl"]))
    return Finding(
        case.name,
        "weights reach vLLM: log-probabilities of its tokens, against the policy's",
        f"{gap:.4f} nats apart; the policy moved {moved:.2f} from its start",
        f"below {MOST_GAP}, and a quarter of the move",
        gap < MOST_GAP and moved > LEAST_MOVE * gap,
    )


def _speeds(case: Case, run: Path) -> Iterator[Finding]:
    """Of the last step, when everything is warm."""
    import polars as pl

    line = metrics(run)[-1]
    rollouts = scan_rollouts(run).filter(pl.col("step") == line["step"]).collect()
    tokens = rollouts["tokens"].sum()
    for what, seconds in (("generated", "time/rollouts"), ("trained", "time/update")):
        yield Finding(case.name, f"tokens {what} a second", f"{tokens / line[seconds]:,.0f}")
    yield Finding(case.name, "seconds for the weights to reach vLLM", f"{line['time/weights']:.2f}")


def local_engine(model: Path, device: str) -> list[Finding]:
    """The local engine in bfloat16 on this device against itself in float32 on the CPU."""
    import torch

    from olr_cli.data.chat import Message
    from olr_cli.engines.local.grpo import response_statistics
    from olr_cli.engines.local.policy import Policy

    name = f"{LOCAL}, bfloat16 on {device} against float32 on a CPU"
    exact = Policy.load(model, device="cpu", dtype=torch.float32)
    rounded = Policy.load(model, device="cuda" if device == "cuda" else "cpu", dtype=torch.bfloat16)
    prompts = exact.encode([[Message("user", text)] for text in ("123+456=", "7+8=")])
    tokens_PGT = torch.randint(4, exact.model.config.vocab_size, (2, 2, 32))
    logprobs = []
    for policy in (exact, rounded):
        statistics = response_statistics(policy, prompts, tokens_PGT.to(policy.device), 1.0)
        statistics.logprobs.mean().backward()
        logprobs.append(statistics.logprobs.detach().cpu())
    difference = (logprobs[0] - logprobs[1]).abs().mean().item()
    cosine = _cosine_of_gradients(exact.model, rounded.model)
    apart, below = f"{difference:.4f} nats apart", f"below {MOST_GAP}"
    return [
        Finding(name, "log-probabilities of 128 tokens", apart, below, difference < MOST_GAP),
        Finding(name, "gradients: cosine", f"{cosine:.4f}", "above 0.99", cosine > 0.99),
    ]


def local_engine_elsewhere(model: Path, device: str) -> list[Finding]:
    """The same in a process of its own, which may hang or crash and gives its memory back.

    Raises:
        subprocess.SubprocessError: it did.
    """
    words = [sys.executable, __file__, "--device", device, "--local-engine", str(model)]
    told = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE_A_START)
    return [Finding(**finding) for finding in json.loads(told.stdout)]


def _cosine_of_gradients(one: Any, other: Any) -> float:
    """Of all weights as one vector; in float64, because float32 loses the sum of so many products."""
    products = [0.0, 0.0, 0.0]
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        a, b = first.grad.double().cpu(), second.grad.double().cpu()
        for place, product in enumerate((a * b, a * a, b * b)):
            products[place] += product.sum().item()
    return products[0] / math.sqrt(products[1] * products[2])


def left_out(case: Case, *, gpus: int, device: str) -> str | None:
    """Why this machine cannot show a case; None if it can."""
    if device == "cpu":
        return None if case.on_cpu else "a CPU cannot show it"
    if case.needs_flash_attention and not has_flash_attention():
        return "flash-attn is not installed"
    needed = case.gpus_of(gpus)
    return f"needs {needed} GPUs, and here is {gpus}" if needed > gpus else None


def run_all(
    folder: Path, size: Size, device: str, cases: Sequence[Case], report: Callable[[Sequence[Finding]], None]
) -> list[Finding]:
    """The whole matrix; every finding is printed as it comes, and `report` gets all so far."""
    gpus = len(memory_in_use()) if device == "cuda" else 0
    missing = {case: why for case in cases if (why := left_out(case, gpus=gpus, device=device))}
    findings = [Finding(case.name, "left out", why) for case, why in missing.items()]
    model = folder / "model"

    def add(name: str, find: Callable[[], Sequence[Finding]]) -> None:
        try:
            new = find()
        except Exception as error:  # of any kind: what the others show is worth a report
            new = [Finding(name, "runs", f"{type(error).__name__}: {_in_a_cell(str(error))}", "yes", False)]
        findings.extend(new)
        for finding in new:
            print(" ".join(_cells(finding)), flush=True)
        report(findings)

    def run(case: Case) -> list[Finding]:
        place = folder / str(cases.index(case))
        place.mkdir()
        seconds = case.starts * PATIENCE_A_START
        return run_case(case, place, model, size, device, seconds=seconds, gpus=case.gpus_of(gpus))

    add("random model", lambda: random_model(model, size) and [])
    for case in cases:
        if case not in missing:
            add(case.name, partial(run, case))
    add(LOCAL, partial(local_engine_elsewhere, model, device))
    return findings


def _cells(finding: Finding) -> tuple[str, str, str, str, str]:
    verdict = {True: "ok", False: "**WRONG**", None: ""}[finding.is_right]
    return finding.case, finding.shows, finding.measured, finding.wanted, verdict


def machine() -> dict[str, str]:
    """The GPUs and the versions, which a reader of the report asks for first."""
    gpus = " / ".join(
        ", ".join(ask_nvidia_smi(field)) for field in ("name", "memory.total", "driver_version")
    )
    versions = {package: installed_version(package) or "absent" for package in (*WRITTEN_FOR, "flash-attn")}
    return {"GPUs, MiB, driver": gpus, "Python": platform.python_version(), **versions}


def markdown(findings: Sequence[Finding], machine: Mapping[str, str], size: Size) -> str:
    """The report."""
    wrong = sum(finding.is_right is False for finding in findings)
    right = sum(finding.is_right is True for finding in findings)
    head = [
        f"# olr {__version__} on GPUs: {right} right, {wrong} wrong",
        f"A Qwen3 of random weights: vocabulary {size.vocabulary:,}, width {size.hidden}, {size.layers} layers.",
        "Rows without a verdict are measured only.",
    ]
    results = ["| case | shows | measured | wanted | |", "|---|---|---|---|---|"]
    results += [f"| {' | '.join(_cells(finding))} |" for finding in findings]
    facts = ["| machine | |", "|---|---|", *(f"| {name} | {value} |" for name, value in machine.items())]
    return "\n\n".join([*head, "\n".join(results), "\n".join(facts)]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program; without a GPU nothing is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", type=Path, default=Path("gpu-report.md"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--local-engine", type=Path, help=argparse.SUPPRESS)
    words = parser.parse_args(arguments)
    if words.local_engine is not None:
        print(json.dumps([asdict(finding) for finding in local_engine(words.local_engine, words.device)]))
        return 0
    import torch

    if words.device == "cuda" and torch.cuda.device_count() == 0:
        print("No GPU that torch can use is here, so the GPU tests are skipped.")
        return 0
    size, here = HALF_BILLION if words.device == "cuda" else TINY, machine()

    def report(findings: Sequence[Finding]) -> None:
        write_text(words.report, markdown(findings, here, size))

    with tempfile.TemporaryDirectory(prefix="olr-gpu-") as folder:
        findings = run_all(Path(folder), size, words.device, CASES, report)
    print(f"Wrote {words.report}")
    return int(any(finding.is_right is False for finding in findings))


if __name__ == "__main__":
    # An exception, so that whoever ends the matrix ends the case in progress too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    raise SystemExit(main())
