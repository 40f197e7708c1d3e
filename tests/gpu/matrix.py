"""What only a GPU can show of the engines: runs of a random Qwen3, and what each of them must show.

    make test-gpu                                   one Markdown file, to be pasted into an issue
    make test-gpu CASES=2                           one case of it, the shortest
    python tests/gpu/matrix.py --report FILE        the same in an environment that is there
    python tests/gpu/matrix.py --device cpu         what of it a CPU can show, with a tiny model

The report is written anew with every finding, and beside it each case's log. A case that fails or hangs is a finding,
and its processes are killed before the next one starts.

The policy has 0.5 B random weights and is trained by its own likelihood (method `sequence_entropy`), because a random
policy earns no reward from a verifier. A learning rate far too high makes the weights move so much in a few steps that
vLLM's old weights would be seen in the log-probabilities of its tokens.
"""

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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# This is a program and no test, so pytest does not set its path.
sys.path.insert(0, str(Path(__file__).parents[1] / "openrlhf"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from make_toys import build_tokenizer
from stack import Train, metrics, processes_of

from olr_cli import __version__
from olr_cli.engines.openrlhf import WRITTEN_FOR
from olr_cli.engines.openrlhf.bridges import environment, has_flash_attention
from olr_cli.engines.openrlhf.needs import stale_locks
from olr_cli.engines.openrlhf.process import descendants, path_with_own_programs
from olr_cli.files import write_text
from olr_cli.packages import installed_version
from olr_cli.recipe.sampling import Sampling
from olr_cli.runs.checkpoints import checkpoint_steps
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import scan_rollouts

STEPS, CHECKPOINT, KILLED = 4, 2, 3
"""Steps of a run; the step with a checkpoint; and the first step after it, after which a run is killed."""

MOST_GAP = 0.02
"""Nats that bfloat16 may put between the log-probabilities of two programs, on average over tokens."""

LEAST_MOVE = 4
"""How many times the gap the policy must have moved; otherwise old weights in vLLM would go unnoticed."""

PATIENCE = 300
"""Seconds in which a working run shows progress: on an H200, vLLM imported for 110 s before it used the card."""

COMPILE_SECONDS = 900
"""Time limit for compiling DeepSpeed's operations; two took 108 s on 16 cores."""

MICRO_BATCH, PROMPT_TOKENS, VLLM_MEMORY = 4, 64, 0.4
ZERO_3, FLOAT32_GRADIENTS = "engine.zero_stage=3", "engine.flags.ds.grad_accum_dtype=fp32"
OFFLOAD, SDPA = "engine.flags.ds.adam_offload=true", "engine.attention=sdpa"
AWAKE, NOT_COLOCATED = "engine.sleep=false", "engine.colocate=false"


@dataclass(frozen=True)
class Size:
    """A model's size, the length of its responses, and a learning rate, which is as high as the policy bears."""

    parameters: float
    vocabulary: int
    hidden: int
    layers: int
    new_tokens: int
    learning_rate: float


HALF_BILLION = Size(
    502e6, vocabulary=151_936, hidden=1024, layers=22, new_tokens=256, learning_rate=1e-4
)
TINY = Size(1e5, vocabulary=512, hidden=64, layers=2, new_tokens=16, learning_rate=3e-3)


@dataclass(frozen=True)
class Case:
    """A run of the matrix: its settings, and what it needs to be shown."""

    number: int
    """The number for `--case`."""

    what: str
    """Its title in the report."""

    settings: tuple[str, ...]
    """Settings besides the common ones."""

    gpus: int | None = 1
    """Number of GPUs that it needs; None: as many as there are."""

    is_killed: bool = False
    """Whether it is killed after the step that follows a checkpoint, and resumed."""

    needs_flash_attention: bool = False
    """Whether it is left out without flash-attn."""

    on_cpu: bool = False
    """Whether the CPU rehearsal can show it."""

    @property
    def name(self) -> str:
        """Number and title, as in the report."""
        return f"{self.number}. {self.what}"

    def gpus_of(self, here: int) -> int:
        """Return how many of the machine's `here` GPUs the case uses: 8, 4, 2 or 1, if it takes as many as there are.

        Its mini-batches divide among such a number. A case with a fixed number returns that, even if there are fewer.
        """
        return self.gpus or next(
            number for number in (8, 4, 2, 1) if number <= max(1, here)
        )

    def policy_gpus(self, gpus: int) -> int:
        """Return how many of the case's `gpus` the policy uses: all, or one if the other is vLLM's (not colocated)."""
        return 1 if NOT_COLOCATED in self.settings else gpus

    def memory(self, size: Size, *, gpus: int, card: float) -> float:
        """Estimate the bytes that the case takes on its fullest card, by recipes/paper/README.md#memory.

        `gpus` is the number of GPUs of the case, and `card` the bytes of a card, of which vLLM takes a share.
        """
        is_zero_3, part = ZERO_3 in self.settings, size.parameters / self.policy_gpus(gpus)
        models = 4 * (part if is_zero_3 else size.parameters)
        gradients = 4 if FLOAT32_GRADIENTS in self.settings else 2
        states = 0.0 if OFFLOAD in self.settings else (gradients + 12) * part
        tokens = MICRO_BATCH * (PROMPT_TOKENS + size.new_tokens)
        activations = tokens * (
            16 * size.vocabulary + 2 * size.hidden * (size.layers + 10 + 4 * 3)
        )
        update = models + states + (3e9 if is_zero_3 else 1e9) + 4e9 + activations
        vllm = 0.0 if NOT_COLOCATED in self.settings else VLLM_MEMORY * card
        return update + vllm if AWAKE in self.settings else max(update, models + 2e9 + vllm)


CASES = (
    Case(
        1,
        "the paper's layout: ZeRO 3, float32 gradients, sleep, CUDA graphs; killed and resumed",
        (ZERO_3, FLOAT32_GRADIENTS, SDPA),
        gpus=None,
        is_killed=True,
        on_cpu=True,
    ),
    Case(
        2,
        "ZeRO 3, float32 gradients, sleep, no CUDA graphs",
        (ZERO_3, FLOAT32_GRADIENTS, SDPA, "engine.flags.vllm.enforce_eager=true"),
    ),
    Case(
        3,
        "ZeRO 2, sleep; killed and resumed",
        ("engine.zero_stage=2", SDPA),
        is_killed=True,
    ),
    Case(
        4,
        "ZeRO 2, flash-attn",
        ("engine.zero_stage=2", "engine.attention=flash_attention_2"),
        needs_flash_attention=True,
    ),
    Case(5, "ZeRO 3, tensor parallel 2", (ZERO_3, "engine.tensor_parallel=2"), gpus=2),
    Case(
        6,
        "ZeRO 2, not colocated",
        (
            "engine.zero_stage=2",
            NOT_COLOCATED,
            "engine.flags.train.colocate_actor_ref=true",
        ),
        gpus=2,
    ),
    Case(7, "ZeRO 2, sleep, Adam in host memory", ("engine.zero_stage=2", OFFLOAD, SDPA)),
    Case(8, "ZeRO 3, awake", (ZERO_3, AWAKE, SDPA)),
    Case(9, "ZeRO 2, awake", ("engine.zero_stage=2", AWAKE, SDPA)),
)
"""The most telling case comes first, because there is seldom time for all of them."""

LOCAL = 10
"""The number of the local engine, which trains in a process of its own without a run."""


@dataclass(frozen=True)
class Finding:
    """A row of the report: what a case shows, what was measured, and what was wanted.

    `is_right` is None if it is only measured, or if the case was left out.
    """

    case: str
    shows: str
    measured: str
    wanted: str = ""
    is_right: bool | None = None


def configuration(size: Size, tokenizer: Any) -> Any:
    """Return the configuration of a Qwen3 of this size, whose LM head shares the embedding's weights."""
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
    """Write a Qwen3 with random weights in bfloat16, and a tokenizer of characters; return the folder.

    The tokenizer has meaningless further tokens, so that the vocabulary has the wanted size.
    """
    import torch
    from transformers import Qwen3ForCausalLM

    tokenizer = build_tokenizer(4096)
    # Build the tokenizer twice: the first one shows how many tokens are missing.
    further = [f"<{number}>" for number in range(size.vocabulary - len(tokenizer))]
    tokenizer = build_tokenizer(4096, further)
    torch.manual_seed(0)
    model: Any = Qwen3ForCausalLM(configuration(size, tokenizer))
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def settings_of(
    case: Case, model: Path, size: Size, device: str, gpus: int
) -> tuple[str, ...]:
    """Return a case's changes to the recipe `laptop/openrlhf`, as ``key=value``.

    A run has 4 steps of 16 prompts x 4 rollouts, with two updates each. `gpus` is the number of GPUs of the case.
    """
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
        f"train.max_prompt_tokens={PROMPT_TOKENS}",
        "train.evaluate_every=null",
        f"train.learning_rate={size.learning_rate}",
        f"train.checkpoint_every={CHECKPOINT}",
        "train.keep_checkpoints=1",
        f"engine.device={device}",
        f"engine.gpus_per_node={case.policy_gpus(gpus)}",
        f"engine.micro_batch_samples={MICRO_BATCH}",
        f"engine.vllm_memory={VLLM_MEMORY}",
        *case.settings,
    )


def ask_nvidia_smi(field: str) -> list[str]:
    """Return what nvidia-smi says of a field, such as ``name``, a text per GPU; empty without a driver."""
    words = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            words, capture_output=True, text=True, check=True, timeout=60
        ).stdout.splitlines()
    return []


def memory_of_cards(field: str) -> list[float]:
    """Return the bytes of memory of each GPU that are in use (`field` "used") or that it has ("total").

    Cards that share the host's memory answer "[N/A]" and are left out.
    """
    return [
        float(text) * 2**20
        for text in ask_nvidia_smi(f"memory.{field}")
        if text.strip().isdigit()
    ]


class Report:
    """Collects findings, prints each one, and writes all of them at once, with the case that is running.

    The report is therefore of use after any end of the matrix, even after `kill -9`. `write` receives all findings.
    """

    def __init__(self, write: Callable[[Sequence[Finding]], None]) -> None:
        self.findings: list[Finding] = []
        self._write, self._running = write, ""

    def say(self, finding: Finding) -> None:
        """Add a finding, print it, and write the report anew."""
        self.findings.append(finding)
        print(" ".join(_cells(finding)), flush=True)
        self._update()

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Name in the report the case that runs in the block, and turn an error in it into a finding.

        Only what comes from outside, such as Ctrl-C, is raised again.
        """
        self._running = name
        self._update()
        try:
            yield
        except Exception as error:  # any error: the other cases still deserve a report
            self.say(
                Finding(
                    name,
                    "runs",
                    f"{type(error).__name__}: {_in_a_cell(str(error))}",
                    "yes",
                    False,
                )
            )
        except BaseException:
            self.say(Finding(name, "runs", "cut off from outside", "yes"))
            raise
        finally:
            self._running = ""
            self._update()

    def _update(self) -> None:
        """Write all findings and, if a case is running, a row for it."""
        running = [Finding(self._running, "runs", "no end yet")] if self._running else []
        self._write([*self.findings, *running])


def compile_adam(
    cases: Iterable[Case], device: str, extensions: Path, log: Path
) -> Finding:
    """Compile the operations that DeepSpeed would compile during the first of the cases; return how it went.

    Args:
        cases: decide which operations are needed.
        device: cuda or cpu.
        extensions: the folder for compiled operations.
        log: file that receives the compiler's output.
    """
    optimizers = {
        "CPUAdamBuilder" if OFFLOAD in case.settings else "FusedAdamBuilder"
        for case in cases
    }
    builders = sorted(optimizers | ({"ShareMemCommBuilder"} if device == "cpu" else set()))
    program = (
        "import sys; from deepspeed.accelerator import get_accelerator\n"
        "for name in sys.argv[1:]: get_accelerator().create_op_builder(name).load()"
    )
    began, mark = time.monotonic(), extensions / "compile"
    variables = environment(trusts_code=False, device=device) | {
        "TORCH_EXTENSIONS_DIR": str(extensions),
        "PATH": path_with_own_programs(),
        "OLR_TEST_RUN": str(mark),
    }
    with _killed_at_the_end(mark), log.open("w") as output:
        words = [sys.executable, "-c", program, *builders]
        ended = subprocess.run(
            words,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | variables,
            timeout=COMPILE_SECONDS,
            check=False,
        )
    took, last = (
        f"in {time.monotonic() - began:.0f} s",
        log.read_text(errors="replace").splitlines()[-3:],
    )
    outcome = (
        took
        if ended.returncode == 0
        else f"status {ended.returncode}: {_in_a_cell(' / '.join(last))}"
    )
    return Finding(
        "before the cases",
        f"{', '.join(builders)} compile",
        outcome,
        "",
        ended.returncode == 0,
    )


def unlock(extensions: Path, say: Callable[[Finding], None]) -> None:
    """Remove the locks that killed builds have left in `extensions`, and report each with `say`.

    Every later start would wait for such a lock for ever.
    """
    for lock in stale_locks(extensions):
        lock.unlink(missing_ok=True)
        say(
            Finding(
                "before the cases",
                "the lock of a build that was killed is removed",
                str(lock),
            )
        )


def run_case(
    case: Case,
    folder: Path,
    model: Path,
    size: Size,
    device: str,
    say: Callable[[Finding], None],
    *,
    patience: float,
    gpus: int = 1,
    extensions: Path | None = None,
) -> None:
    """Train as the case says, kill and resume the run if the case is about that, and report its findings.

    Args:
        case: the case.
        folder: for the run.
        model: folder of the starting policy.
        size: its size.
        device: cuda or cpu.
        say: receives each finding.
        patience: seconds without progress after which the run counts as hanging.
        gpus: number of GPUs to use.
        extensions: the folder for operations that DeepSpeed compiles; None: torch's own.
    """
    run = folder / "run"
    settings = settings_of(case, model, size, device, gpus)
    variables = {} if extensions is None else {"TORCH_EXTENSIONS_DIR": str(extensions)}
    began, status = time.monotonic(), -1
    with _memory_measured(case, say), _killed_at_the_end(run):
        try:
            train = Train(run, settings, environment=variables, patience=patience)
            if case.is_killed:
                train.await_step(KILLED)
                # The second start shows that a killed run resumes. SIGKILL leaves no time to clean up.
                train.signal(signal.SIGKILL)
                train.end()
                say(_continued(case, run))
                say(_left_nothing(case, run))
                # Report this before the second start, for which there may be no time.
                say(_weights_arrive(case, run))
                train = Train(
                    run, settings, "--resume", environment=variables, patience=patience
                )
            status, output = train.end(), train.output
        except (AssertionError, OSError) as error:
            output = str(error)
    finished = status == 0 and stored_steps(run) == list(range(1, STEPS + 1))
    took = f"{time.monotonic() - began:.0f} s"
    outcome = "yes" if finished else f"status {status}: {_last_words(run, output)}"
    say(Finding(case.name, f"{STEPS} steps in {took}", outcome, "yes", finished))
    if finished:
        if case.is_killed:
            say(_resumed(case, run))
        for finding in (_weights_arrive(case, run), *_speeds(case, run)):
            say(finding)


@contextmanager
def _memory_measured(case: Case, say: Callable[[Finding], None]) -> Iterator[None]:
    """Measure GPU memory during the block; at its end, report the most that any GPU used beyond what was used before.

    Nothing is reported without nvidia-smi.
    """
    before, peak, over = memory_of_cards("used"), 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.5):
            used = [
                now - then
                for now, then in zip(memory_of_cards("used"), before, strict=False)
            ]
            peak = max([peak, *used])

    if not before:
        yield
        return
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        say(Finding(case.name, "memory of the fullest GPU", f"{peak / 1e9:.1f} GB"))


@contextmanager
def _logs_kept(run: Path, logs: Path) -> Iterator[None]:
    """At any end of the block, copy a run's log, metrics and output to the folder `logs`; remove its checkpoints."""
    try:
        yield
    finally:
        logs.mkdir(parents=True, exist_ok=True)
        for file in (
            run / "openrlhf" / "log.txt",
            run / "metrics.jsonl",
            run.with_name("run-output.txt"),
        ):
            # A case that has failed early lacks some of these files.
            with suppress(FileNotFoundError):
                shutil.copyfile(file, logs / file.name)
        shutil.rmtree(run / "checkpoints", ignore_errors=True)


@contextmanager
def _killed_at_the_end(run: Path) -> Iterator[None]:
    """At the end of the block, kill all processes that a run has left, which would keep their GPUs.

    They are found by the run's path in their environment, or as children of such processes.
    """
    try:
        yield
    finally:
        deadline = time.monotonic() + 30
        while (
            left := {*processes_of(run), *_below(processes_of(run))}
        ) and time.monotonic() < deadline:
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.2)


def _below(processes: Iterable[int]) -> list[int]:
    """Return the ids of all descendants of these processes.

    Their own environment may not name the run, because a process that gives itself a title may overwrite it.
    """
    return [child for process in processes for child in descendants(process)]


def _left_nothing(case: Case, run: Path) -> Finding:
    """Find out whether the job and its Ray end within a minute after the command that started them was killed."""
    deadline = time.monotonic() + 60
    while (left := processes_of(run)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return Finding(
        case.name, "kill -9 leaves no process", f"{len(left)} after a minute", "0", not left
    )


def _in_a_cell(text: str) -> str:
    """Return a text on one line and of at most 600 characters, for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")[:600]


def _last_words(run: Path, output: str) -> str:
    """Return the last two lines of a command's output and the last three of its log that have an error, on one line."""
    log = run / "openrlhf" / "log.txt"
    lines = [line for line in output.splitlines() if line.strip()][-2:]
    if log.exists():
        errors = [
            line for line in log.read_text(errors="replace").splitlines() if "Error" in line
        ]
        lines += errors[-3:]
    return _in_a_cell(" / ".join(lines))


def _continued(case: Case, run: Path) -> Finding:
    """Find out whether a run has saved its checkpoint and taken the step after it, which once failed with ZeRO 3."""
    after = max(line["step"] for line in metrics(run))
    has = checkpoint_steps(run) == [CHECKPOINT]
    measured = (
        f"step {after}, checkpoint of step {', '.join(map(str, checkpoint_steps(run)))}"
    )
    right = has and after >= KILLED
    wanted = f"step {KILLED}, checkpoint of step {CHECKPOINT}"
    return Finding(case.name, "goes on after a checkpoint", measured, wanted, right)


def _resumed(case: Case, run: Path) -> Finding:
    """Find out whether a run's second attempt began after the checkpoint."""
    begun = [attempt["from_step"] for attempt in read_manifest(run)["attempts"]]
    wanted = [0, CHECKPOINT]
    measured = f"attempts from step {begun}"
    return Finding(
        case.name, "resumes after kill -9", measured, f"from step {wanted}", begun == wanted
    )


def _weights_arrive(case: Case, run: Path) -> Finding:
    """Find out whether vLLM samples with the policy's current weights, by the log-probabilities of its tokens.

    They must agree with the policy's, and the policy must have moved much further from its start than they differ.
    """
    lines = [line for line in metrics(run) if line["step"]]
    gap = max(line["rollout/sampler_gap"] for line in lines)
    # The k3 estimate is about r^2 / 2, where r is how far a token's log-probability has moved from the start's.
    moved = math.sqrt(2 * max(0.0, lines[-1]["policy/kl"]))
    return Finding(
        case.name,
        f"weights reach vLLM, steps 1 to {lines[-1]['step']}: log-probabilities of its tokens, against the policy's",
        f"{gap:.4f} nats apart; the policy moved {moved:.2f} from its start",
        f"below {MOST_GAP}, and a quarter of the move",
        gap < MOST_GAP and moved > LEAST_MOVE * gap,
    )


def _speeds(case: Case, run: Path) -> Iterator[Finding]:
    """Yield tokens generated and trained per second, and the seconds for the weights, of the last step."""
    import polars as pl

    line = metrics(run)[-1]
    rollouts = scan_rollouts(run).filter(pl.col("step") == line["step"]).collect()
    tokens = rollouts["tokens"].sum()
    for verb, seconds in (("generated", "time/rollouts"), ("trained", "time/update")):
        yield Finding(
            case.name, f"tokens {verb} a second", f"{tokens / line[seconds]:,.0f}"
        )
    yield Finding(
        case.name, "seconds for the weights to reach vLLM", f"{line['time/weights']:.2f}"
    )


def local_engine(model: Path, device: str) -> list[Finding]:
    """Compare the local engine in bfloat16 on this device with itself in float32 on the CPU.

    Return findings about log-probabilities, gradients and sampling.
    """
    import torch

    from olr_cli.data.chat import Message
    from olr_cli.engines.local.policy import Policy
    from olr_cli.engines.local.token_statistics import response_statistics

    name = f"{LOCAL}. local engine, bfloat16 on {device} against float32 on a CPU"
    exact = Policy.load(model, device="cpu", dtype=torch.float32)
    rounded = Policy.load(
        model, device="cuda" if device == "cuda" else "cpu", dtype=torch.bfloat16
    )
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
        Finding(
            name, "log-probabilities of 128 tokens", apart, below, difference < MOST_GAP
        ),
        Finding(name, "gradients: cosine", f"{cosine:.4f}", "above 0.99", cosine > 0.99),
        _same_draws(model, device, prompts),
    ]


def _same_draws(model: Path, device: str, prompts: Sequence[list[int]]) -> Finding:
    """Find out whether sampling gives the same responses with a token step recorded once (a CUDA graph) as without.

    Both are in float32. `prompts` are token ids.
    """
    import numpy as np
    import torch

    from olr_cli.engines.local.policy import Policy
    from olr_cli.engines.local.sampler import sample
    from olr_cli.seeding import key

    policy = Policy.load(
        model, device="cuda" if device == "cuda" else "cpu", dtype=torch.float32
    )
    keys = np.array(
        [[key("matrix", p, g) for g in range(8)] for p in range(len(prompts))],
        dtype=np.uint64,
    )
    texts = []
    for policy.has_fixed_places in (True, False):
        sampled = sample(policy, prompts, keys, Sampling(1.0, 48))
        texts.append([text for group in sampled.texts_PG for text in group])
    same = sum(one == other for one, other in zip(*texts, strict=True))
    # Two kernels round differently, and a draw may lie between.
    name, least = f"{LOCAL}. local engine, a token recorded once", keys.size - 1
    return Finding(
        name,
        "same draws as without",
        f"{same} of {keys.size}",
        f"{least} or more",
        same >= least,
    )


def local_engine_elsewhere(model: Path, device: str) -> list[Finding]:
    """Run `local_engine` in a process of its own and return its findings; a hang or crash cannot harm this process.

    Raises:
        subprocess.SubprocessError: it hung or crashed.
    """
    words = [sys.executable, __file__, "--device", device, "--local-engine", str(model)]
    ended = subprocess.run(
        words, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE
    )
    return [Finding(**finding) for finding in json.loads(ended.stdout)]


def _cosine_of_gradients(one: Any, other: Any) -> float:
    """Return the cosine between the gradients of two models of equal shape, all parameters taken as one vector.

    It is computed in float64, because float32 loses the sum of so many products.
    """
    products = [0.0, 0.0, 0.0]
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        a, b = first.grad.double().cpu(), second.grad.double().cpu()
        for number, product in enumerate((a * b, a * a, b * b)):
            products[number] += product.sum().item()
    return products[0] / math.sqrt(products[1] * products[2])


def left_out(
    case: Case, size: Size, *, gpus: int, cards: Sequence[float], device: str
) -> str | None:
    """Return the reason why this machine cannot show a case, or None if it can.

    Args:
        case: the case.
        size: size of its model.
        gpus: number of GPUs here.
        cards: bytes of memory of each; empty if unknown.
        device: cuda or cpu.
    """
    if device == "cpu":
        return None if case.on_cpu else "a CPU cannot show it"
    if case.needs_flash_attention and not has_flash_attention():
        return "flash-attn is not installed"
    needed = case.gpus_of(gpus)
    if needed > gpus:
        return f"needs {needed} GPUs, and here is {gpus}"
    card = min(cards, default=math.inf)
    memory = case.memory(size, gpus=needed, card=card)
    # An infinite size means that the card does not report its memory, so the case gets its chance.
    if card < memory < math.inf:
        return f"would take {memory / 1e9:.1f} GB of a card, and the smallest has {card / 1e9:.1f}"
    return None


def run_all(
    folder: Path,
    size: Size,
    device: str,
    numbers: Collection[int],
    report: Report,
    logs: Path,
) -> None:
    """Run the cases with these numbers, one after the other, and report findings and the cases left out.

    Args:
        folder: an empty folder for models and runs.
        size: size of the model.
        device: cuda or cpu.
        numbers: of the cases; `LOCAL` is the local engine.
        report: receives the findings.
        logs: the folder for the cases' logs.
    """
    import torch

    gpus, cards = (
        (torch.cuda.device_count(), memory_of_cards("total"))
        if device == "cuda"
        else (0, [])
    )
    cases = []
    for case in (case for case in CASES if case.number in numbers):
        if why := left_out(case, size, gpus=gpus, cards=cards, device=device):
            report.say(Finding(case.name, "left out", why))
        else:
            cases.append(case)
    logs.mkdir(parents=True, exist_ok=True)
    # A new folder, which no killed process has locked, or the user's own.
    extensions = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or folder / "extensions")
    extensions.mkdir(parents=True, exist_ok=True)
    model = folder / "model"
    with report.running("before the cases"):
        random_model(model, size)
        unlock(extensions, report.say)
        if cases:
            report.say(compile_adam(cases, device, extensions, logs / "compile.txt"))
    for case in cases:
        case_folder = folder / str(case.number)
        case_folder.mkdir()
        with (
            report.running(case.name),
            _logs_kept(case_folder / "run", logs / str(case.number)),
        ):
            unlock(extensions, report.say)
            run_case(
                case,
                case_folder,
                model,
                size,
                device,
                report.say,
                patience=PATIENCE,
                gpus=case.gpus_of(gpus),
                extensions=extensions,
            )
    if LOCAL in numbers:
        with report.running(f"{LOCAL}. local engine"):
            for finding in local_engine_elsewhere(model, device):
                report.say(finding)


def _cells(finding: Finding) -> tuple[str, str, str, str, str]:
    """Return a finding as the five cells of its row: case, shows, measured, wanted, verdict."""
    verdict = {True: "ok", False: "**WRONG**", None: ""}[finding.is_right]
    return finding.case, finding.shows, finding.measured, finding.wanted, verdict


def machine() -> dict[str, str]:
    """Return the rows of the report's table about the machine: its GPUs, Python, and versions of packages."""
    gpus = " / ".join(
        ", ".join(ask_nvidia_smi(field))
        for field in ("name", "memory.total", "driver_version")
    )
    versions = {
        package: installed_version(package) or "absent"
        for package in (*WRITTEN_FOR, "flash-attn")
    }
    return {"GPUs, MiB, driver": gpus, "Python": platform.python_version(), **versions}


def markdown(findings: Sequence[Finding], machine: Mapping[str, str], size: Size) -> str:
    """Return the report as Markdown: a count of right and wrong, the findings, and the machine."""
    wrong = sum(finding.is_right is False for finding in findings)
    right = sum(finding.is_right is True for finding in findings)
    head = [
        f"# olr {__version__} on GPUs: {right} right, {wrong} wrong",
        f"A Qwen3 of random weights: vocabulary {size.vocabulary:,}, width {size.hidden}, {size.layers} layers.",
        "Rows without a verdict are measured only. The cases' logs are in a folder beside this file.",
    ]
    results = ["| case | shows | measured | wanted | |", "|---|---|---|---|---|"]
    results += [f"| {' | '.join(_cells(finding))} |" for finding in findings]
    facts = [
        "| machine | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in machine.items()),
    ]
    return "\n\n".join([*head, "\n".join(results), "\n".join(facts)]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with these arguments and return its exit status: 1 if a finding is wrong, otherwise 0.

    A machine without a GPU is no error.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", type=Path, default=Path("gpu-report.md"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    numbers = [*(case.number for case in CASES), LOCAL]
    parser.add_argument(
        "--case",
        type=int,
        action="append",
        choices=numbers,
        help="number of a case, which docs/openrlhf.md lists; may be given again (all)",
    )
    # Only `local_engine_elsewhere` uses this option.
    parser.add_argument("--local-engine", type=Path, help=argparse.SUPPRESS)
    words = parser.parse_args(arguments)
    if words.local_engine is not None:
        print(
            json.dumps(
                [
                    asdict(finding)
                    for finding in local_engine(words.local_engine, words.device)
                ]
            )
        )
        return 0
    import torch

    if words.device == "cuda" and torch.cuda.device_count() == 0:
        print("No GPU that torch can use is here, so the GPU tests are skipped.")
        return 0
    size, here = HALF_BILLION if words.device == "cuda" else TINY, machine()
    logs = words.report.with_suffix("")

    def write(findings: Sequence[Finding]) -> None:
        write_text(words.report, markdown(findings, here, size))

    report = Report(write)
    with _signals_end_it(), tempfile.TemporaryDirectory(prefix="olr-gpu-") as folder:
        run_all(Path(folder), size, words.device, words.case or numbers, report, logs)
    print(f"Wrote {words.report}, and logs to {logs}")
    return int(any(finding.is_right is False for finding in report.findings))


@contextmanager
def _signals_end_it() -> Iterator[None]:
    """Within the block, raise SystemExit at SIGTERM and SIGHUP, so that a signal to the matrix also ends its case."""
    numbers = (signal.SIGTERM, signal.SIGHUP)

    def end(number: int, _: object) -> None:
        # Ignore further signals: the processes of the case take a moment to end.
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    raise SystemExit(main())
