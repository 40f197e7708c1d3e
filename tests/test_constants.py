"""Numbers that stand once in the package, a second time: a change of one is meant, and made in both places.

What a reader of docs/ or of a paper would look up, how long olr waits, and how much it takes at once.
"""

import sys
from dataclasses import is_dataclass
from types import ModuleType

from cases import each

from olr_cli import errors, files
from olr_cli.engines import launch, prompt_text, rehearse, reporting, rollouts, run, sweep
from olr_cli.engines.backends import openai_backend, transformers_backend, vllm_backend
from olr_cli.engines.local import (
    captured,
    engine,
    lora,
    policy,
    probe,
    responses,
    room,
    token_statistics,
)
from olr_cli.evaluation import (
    evaluate,
    grading,
    imported,
    intervals,
    plan,
    pool,
    problems,
    record,
    score_table,
    store,
)
from olr_cli.recipe import layers, plain, reference, section
from olr_cli.runs import (
    checkpoints,
    directory,
    locks,
    metrics,
    progress,
    schedule,
    shards,
    store as runs_store,
)
from olr_cli.supervision import advantages, rewards, types
from olr_cli.trainers import grading as plain_rewards

NEUTRAL = {
    "top_p": 1, "top_k": -1, "min_p": 0, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1,
    "repeat_penalty": 1,
}  # fmt: skip


@each(
    "module, constants",
    # of the paper and its authors' code (R17, R19)
    (run, {"DUAL_CLIP": 3, "GRADIENT_CLIP": 1, "ADAM_BETAS": (0.9, 0.999), "WEIGHT_DECAY": 0.01}),
    (advantages, {"STD_EPSILON": 0.000_001}),
    (schedule, {"MIN_LR_RATIO": 0.1}),
    (intervals, {"CONFIDENCE": 0.95, "RESAMPLES": 9999, "_BATCH": 2_000_000}),
    (problems, {"MOST_OPTIONS": 10, "_TASK_SIZE": 400}),
    (problems, {"_NUMBERS": ("1", "2", "3", "4", "5", "6", "7", "8", "9", "10")}),
    # of stored files
    (types, {"SCHEMA_VERSION": 1}),
    (directory, {"MANIFEST_VERSION": 1}),
    (record, {"VERSION": 1}),
    (store, {"GENERATIONS_VERSION": 1}),
    # of what is read
    (plain, {"MOST_BYTES": 262_144, "MOST_LEVELS": 32}),
    (prompt_text, {"_MOST_TEMPLATE_BYTES": 262_144}),
    (section, {"_MOST_PLACES": 30, "LEAST_TEMPERATURE": 0.001}),
    (openai_backend, {"MOST_BYTES": 67_108_864}),
    (grading, {"_READ": 1000, "_SHOWN": 10}),
    (imported, {"_MAX_NEW_TOKENS": 256}),
    (shards, {"_SHARDS_OF_A_QUERY": 100}),
    (runs_store, {"_SHARDS_OF_A_SCAN": 500}),
    (plan, {"_SAMPLES": {"aime24": 8, "aime25": 8, "amc": 8}}),
    # of what is said
    (metrics, {"_FALL": 0.05, "_FALL_ERRORS": 4}),
    (plain_rewards, {"_MOST_UNREAD": 100}),
    (errors, {"_LONGEST": 3000, "_LONGEST_VALUE": 60}),
    (layers, {"_MOST_PROBLEMS": 6}),
    (reference, {"_UNLIMITED": 1_000_000, "_WIDEST": 40}),
    (launch, {"_LONG_LABEL": 200}),
    (reporting, {"_LARGEST_GAP": 0.05}),
    (rollouts, {"MANY": 0.9}),
    (score_table, {"_SIDE_BY_SIDE": 5, "_LONGEST_HEAD": 11}),
    # of time
    (openai_backend, {"ATTEMPTS": 8, "MOST_LOST": 8, "FIRST_PAUSE": 1, "LONGEST_PAUSE": 60, "CONNECTING": 20}),
    (openai_backend, {"_NEUTRAL": NEUTRAL}),
    (openai_backend, {"_POLL_SECONDS": 0.5, "_TRANSIENT": {408, 409, 429, 500, 502, 503, 504, 529}}),
    (evaluate, {"_LINE_EVERY_SECONDS": 30}),
    (pool, {"STORED_AT_ONCE": 64, "STORED_EVERY": 15}),
    (files, {"_ABANDONED_SECONDS": 60}),
    (locks, {"_ATTEMPTS": 3, "_PATIENCE": 0.1}),
    (progress, {"_LINE_EVERY_SECONDS": 60, "_CHANGE_EVERY_SECONDS": 0.5}),
    # a run that Ctrl-C, SIGTERM or SIGHUP stopped, as a shell and as Python say it
    (sweep, {"_POLL_SECONDS": 0.05, "_STOPPED": [130, -2, 143, -15, 129, -1]}),
    # of memory, and of what is worth it
    (vllm_backend, {"PROMPT_ROOM": 2048, "GPU_MEMORY": 0.9, "CPU_CACHE": 2_147_483_648, "WAITING": 256}),
    (vllm_backend, {"_SEED_BITS": 0x7FFF_FFFF_FFFF_FFFF, "_RANKS": (8, 16, 32, 64, 128, 256, 320, 512)}),
    (transformers_backend, {"CPU_MEMORY": 2_147_483_648, "BATCH": 131_072, "LEAST_ROWS": {"cpu": 64, "cuda": 256}}),
    (rehearse, {"_ROW_BYTES": 50}),
    (captured, {"LOOK": 16, "_LEAST_WINDOW": 256, "_STEP": 64}),
    (engine, {"_M_TRIM_THRESHOLD": -1, "_M_MMAP_THRESHOLD": -3}),
    (engine, {"_CPU_SPEED": 100_000_000_000, "_OPERATIONS": 8, "_LARGEST_KEPT": 33_554_432}),
    (lora, {"_MOST_GAP": 0.01}),
    (policy, {"_COSTLY": 2_000_000, "_LEAST_SHARED": 16}),
    (probe, {"_EMPTY": 2048, "_SHARED": 8, "_LONGER": 5, "_RESPONSE": 3}),
    (responses, {"_BLOCK": 256, "_BELOW_1": 0.999_999_999_999_999_9}),
    (room, {"ON_A_CPU": 65_536, "_PROBES": (256, 512), "_BYTES_TO_TRAIN": 14, "_BYTES_PER_WORD": 40}),
    (room, {"_HEAD": 4_294_967_296}),
    (token_statistics, {"_FULL_TREE": 384, "_MOST_NODES": 4096, "MOST_SCORES": 268_435_456}),
    (rewards, {"ROUNDING": 0.01}),
    ids=lambda it: it.__name__ if isinstance(it, ModuleType) else "",
)  # fmt: skip
def test_a_constant_is_what_it_was(module, constants):
    assert {name: getattr(module, name) for name in constants} == constants


def test_what_is_decided_and_shown_is_never_changed_afterwards():
    modules = [
        module for name, module in sys.modules.items() if name.startswith("olr_cli.")
    ]
    classes = {
        it for module in modules for it in vars(module).values() if isinstance(it, type)
    }
    changeable = {
        it.__name__
        for it in filter(is_dataclass, classes)
        if it.__module__.startswith("olr_cli.") and not it.__dataclass_params__.frozen
    }
    assert changeable <= {"Context", "Group", "Recorder", "_Files", "_Losses"}


@each("kind", checkpoints._NAME, shards._SHARD, ids=["checkpoint", "shard"])
def test_steps_are_numbered_with_six_to_nine_digits(kind):
    ending = kind.pattern.partition(")")[2].replace("\\", "")
    found = {
        digits for digits in range(12) if kind.fullmatch(f"step-{'1' * digits}{ending}")
    }
    assert found == {6, 7, 8, 9}
