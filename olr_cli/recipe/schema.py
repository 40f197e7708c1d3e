"""What a run is: the recipe, its sections and their vetted defaults.

The class defaults are the paper's settings (R17). A recipe file says what differs; `--set key=value` says what
differs from the file. Unknown keys are refused with a suggestion, never ignored.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from olr_cli.recipe.methods import METHODS, GrpoMethod, Method
from olr_cli.recipe.plain_yaml import shortened
from olr_cli.recipe.section import Count, Exact, Number, Section, Temperature, Text, Whole, no_truth

NoiseDraw = Literal["uniform", "frequency", "most_frequent"]
LossAverage = Literal["token", "sequence"]
Ratio = Annotated[Exact, Field(ge=0, le=1)]


class DataSection(Section):
    """Which prompts train, and which are only measured.

    Attributes:
        train: a Parquet or JSONL file, a hub id, or a built-in set (``arithmetic``, ``arithmetic:subtraction``).
        validation: the only set that may choose a checkpoint (R22).
        test: held-out prompts; they never train.
        limit: at most so many training prompts (a generated set: exactly so many).
        extractor: how answers are read from responses; by default what the data source calls for (R6).
    """

    train: Text = "arithmetic"
    validation: Text | None = None
    test: Text | None = None
    limit: Count | None = None
    extractor: Text | None = None


class NoiseSection(Section):
    """Noise put on the training labels when the run starts; for files that carry marks only the type (R1).

    Attributes:
        ratio: share of the prompts that are marked, as written (exact).
        seed: which prompts; by default the recipe's seed.
    """

    ratio: Ratio | None = None
    seed: Whole | None = None


class InactiveNoiseSection(NoiseSection):
    """Inactive noise: the label becomes a string that no policy outputs (R2)."""

    type: Literal["inactive"] = "inactive"


class ActiveNoiseSection(NoiseSection):
    """Active noise: the noisy label is drawn from the visit's own wrong answers (R3).

    Attributes:
        draw: over the wrong classes: `uniform`, by `frequency`, or the `most_frequent`.
    """

    type: Literal["active"] = "active"
    draw: NoiseDraw = "uniform"


class MixedNoiseSection(NoiseSection):
    """Both kinds of noise in one data set.

    Attributes:
        draw: as for active noise.
        active_share: share of the marked prompts that are active.
    """

    type: Literal["mixed"] = "mixed"
    draw: NoiseDraw = "uniform"
    active_share: Ratio = Decimal("0.5")


class ModelSection(Section):
    """The policy at the start.

    Attributes:
        path: a Hugging Face model folder or hub id, or a built-in policy (``builtin:addition-easier``).
        trust_remote_code: run code that comes with the model; only if you trust its author.
    """

    path: Text = "builtin:addition-easier"
    trust_remote_code: bool = False


class TrainSection(Section):
    """GRPO's settings; the defaults are the paper's (R17).

    Attributes:
        epochs: passes over the prompts; each is one visit of every prompt.
        prompts_per_step: prompts rolled out before each update.
        mini_batch_prompts: prompts per optimiser step; null: all of the step's prompts.
        rollouts_per_prompt: K.
        learning_rate: constant, without warm-up.
        kl_weight: weight of the k3 estimate of KL(policy || starting policy) in the loss.
        clip: epsilon of the clipped surrogate.
        loss_average: every `token` of a mini-batch weighs alike, or every `sequence` does, so that long responses
            weigh no more than short ones.
        max_new_tokens: a longer response is truncated.
        max_prompt_tokens: a longer prompt is an error before training starts.
        temperature: of the training rollouts.
        evaluation_temperature: of held-out rollouts during training.
        evaluation_samples: held-out rollouts of each prompt; null: as many as in training.
        checkpoint_every: steps between checkpoints; one is always written at the end.
        keep_checkpoints: how many of the newest checkpoints stay; with data.validation, the best one too (R22).
        evaluate_every: steps between held-out evaluations; always one at the start and one at the end.
    """

    epochs: Count = 10
    prompts_per_step: Count = 160
    mini_batch_prompts: Count | None = 32
    rollouts_per_prompt: Count = 8
    learning_rate: Annotated[Number, Field(gt=0, le=1)] = 1e-6
    kl_weight: Annotated[Number, Field(ge=0)] = 1e-3
    clip: Annotated[Number, Field(gt=0, lt=1)] = 0.2
    loss_average: LossAverage = "token"
    max_new_tokens: Count = 4096
    max_prompt_tokens: Count = 2048
    temperature: Annotated[Temperature, Field(gt=0)] = 1.0
    evaluation_temperature: Temperature = 0.6
    evaluation_samples: Count | None = None
    checkpoint_every: Count = 10
    keep_checkpoints: Count = 2
    evaluate_every: Count | None = None

    @property
    def held_out_rollouts(self) -> int:
        """Rollouts of each held-out prompt."""
        return self.evaluation_samples or self.rollouts_per_prompt


class LocalEngine(Section):
    """One process, torch and transformers.

    Attributes:
        device: `auto` takes the GPU where there is one.
        threads: CPU threads; results on CPU repeat bit for bit for one count (R18). By default torch's own choice.
        max_batch_tokens: prompt and response tokens that are in memory at a time.
    """

    name: Literal["local"] = "local"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[Whole, Field(gt=0, le=1024)] | None = None
    max_batch_tokens: Count = 65536


class OpenRlhfEngine(Section):
    """OpenRLHF on Ray, vLLM and DeepSpeed, from one GPU to many nodes.

    Attributes:
        device: `cpu` rehearses the whole stack on a machine without a GPU, with a tiny model.
        nodes: machines that hold the policy.
        gpus_per_node: GPUs of each that hold the policy; as many more hold the reference unless `colocate`.
        colocate: policy, reference and vLLM share the same GPUs and take turns (hybrid engine).
        sleep: with `colocate`: whoever does not compute gives its GPU memory back.
        vllm_engines: by default, as many as fit the policy's GPUs with `colocate`, else 1.
        tensor_parallel: GPUs of each vLLM engine.
        vllm_memory: share of a GPU's memory that vLLM may take.
        zero_stage: DeepSpeed's ZeRO: 1 shards the optimiser's state, 2 the gradients too, 3 the weights too.
        gradient_checkpointing: compute activations twice to keep fewer.
        micro_batch_samples: samples of one forward and backward pass on one GPU.
        attention: `auto` takes flash_attention_2 where flash-attn is installed, else torch's sdpa; `kernels` is flash
            attention that the package kernels downloads compiled from the Hugging Face hub.
        ray_address: a running cluster: `auto`, host:port, or http://… to submit a Ray job; by default a Ray of its own.
        flags: any other flag of OpenRLHF, without its dashes.
    """

    name: Literal["openrlhf"] = "openrlhf"
    device: Literal["cuda", "cpu"] = "cuda"
    nodes: Count = 1
    gpus_per_node: Count = 1
    colocate: bool = True
    sleep: bool = True
    vllm_engines: Count | None = None
    tensor_parallel: Count = 1
    vllm_memory: Annotated[Number, Field(gt=0, lt=1)] = 0.5
    zero_stage: Annotated[Literal[1, 2, 3], BeforeValidator(no_truth)] = 2
    gradient_checkpointing: bool = True
    micro_batch_samples: Count = 2
    attention: Literal["auto", "flash_attention_2", "kernels", "sdpa"] = "auto"
    ray_address: Text | None = None
    flags: dict[str, Any] = Field(default_factory=dict)

    @field_validator("flags")
    @classmethod
    def _flags_are_values(cls, flags: dict[str, Any]) -> dict[str, Any]:
        """A value with a dash would be a flag of its own on OpenRLHF's command line, past all checks of flags."""
        for name, value in flatten(flags).items():
            for word in value if isinstance(value, list) else [value]:
                if isinstance(word, list | dict):
                    raise ValueError(
                        f"{name} is a list of lists or keys; OpenRLHF's flags take single values"
                    )
                if isinstance(word, str) and word.startswith("-"):
                    raise ValueError(f"{name} is '{shortened(word)}'; a value cannot begin with a dash")
        return flags

    @property
    def policy_gpus(self) -> int:
        """GPUs that hold the policy."""
        return self.nodes * self.gpus_per_node

    @property
    def engines(self) -> int:
        """How many vLLM engines."""
        if self.vllm_engines is not None:
            return self.vllm_engines
        return max(1, self.policy_gpus // self.tensor_parallel) if self.colocate else 1


class LoggingSection(Section):
    """Where metrics go besides metrics.jsonl, which is always written.

    Attributes:
        tensorboard: write event files into the run directory.
        wandb: Weights & Biases project to log to.
    """

    tensorboard: bool = False
    wandb: Text | None = None


class SweepSection(Section):
    """Several runs from one recipe: every arm with every combination of the grid.

    Attributes:
        arms: name -> the keys in which this arm differs from the recipe.
        grid: dotted key -> its values.
    """

    arms: dict[str, dict[str, Any]] = Field(default_factory=dict)
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _something_differs(self) -> SweepSection:
        if not self.arms and not self.grid:
            raise ValueError("the sweep has neither arms nor a grid; give it some, or remove it")
        return self


Noise = Annotated[InactiveNoiseSection | ActiveNoiseSection | MixedNoiseSection, Field(discriminator="type")]
Engine = Annotated[LocalEngine | OpenRlhfEngine, Field(discriminator="name")]

KINDS: dict[str, tuple[str, dict[str, type[Section]]]] = {
    "noise": (
        "type",
        {
            "inactive": InactiveNoiseSection,
            "active": ActiveNoiseSection,
            "mixed": MixedNoiseSection,
        },
    ),
    "method": ("name", {kind.model_fields["name"].default: kind for kind in METHODS}),
    "engine": ("name", {"local": LocalEngine, "openrlhf": OpenRlhfEngine}),
}
"""Sections of several kinds: the key that tells the kind, and each kind's keys."""


class Recipe(Section):
    """A run, whole: everything of ours that decides its result is in here (R18).

    Attributes:
        name: names the run directory.
        seed: of every draw that has no seed of its own.
        data: the prompts.
        noise: what is done to the training labels; None: nothing.
        model: the policy at the start.
        method: which label, reward, prompts and loss (see `olr_cli.supervision.methods`).
        train: GRPO's settings.
        engine: what generates and optimises.
        logging: where metrics go.
        sweep: several runs from this recipe.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=100)] = "run"
    seed: Whole = 0
    data: DataSection = DataSection()
    noise: Noise | None = None
    model: ModelSection = ModelSection()
    method: Method = GrpoMethod()
    train: TrainSection = TrainSection()
    engine: Engine = LocalEngine()
    logging: LoggingSection = LoggingSection()
    sweep: SweepSection | None = None

    @model_validator(mode="after")
    def _a_group_can_teach(self) -> Recipe:
        if self.train.rollouts_per_prompt < 2:
            raise ValueError(
                f"train.rollouts_per_prompt is {self.train.rollouts_per_prompt}, and a group of one has no"
                " advantage (Eq. 1); set it to at least 2 (the paper: 8)"
            )
        return self

    @property
    def noise_seed(self) -> int:
        """The seed that decides which prompts are marked."""
        return self.seed if self.noise is None or self.noise.seed is None else self.noise.seed

    def digest(self) -> str:
        """A digest of every key that decides the run's result on a CPU, down to rounding: all but `UNDECIDING`."""
        deciding = {
            key: value for key, value in flatten(self.model_dump(mode="json")).items() if _decides(key)
        }
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]


UNDECIDING = frozenset(
    {
        "name",
        "logging",
        "sweep",
        "train.checkpoint_every",
        "train.keep_checkpoints",
        "engine.ray_address",
        "engine.vllm_memory",
        "engine.micro_batch_samples",
        # Hardware, and how OpenRLHF's models share it.
        "engine.nodes",
        "engine.gpus_per_node",
        "engine.vllm_engines",
        "engine.tensor_parallel",
        "engine.colocate",
        "engine.sleep",
    }
)
"""Keys, or sections of keys, that do not decide what is trained; a resume may change them.

They change rounding at most, and on OpenRLHF, where sampling does not repeat either, which samples of a step meet in a
mini-batch.
"""


def flatten(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as one dictionary of dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def changed_keys(old: Recipe, new: Recipe) -> list[str]:
    """Dotted keys in which two recipes differ and that decide the result, as ``key: old -> new``."""
    before, after = flatten(old.plain()), flatten(new.plain())
    keys = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
    return [f"{k}: {before.get(k, 'unset')} -> {after.get(k, 'unset')}" for k in keys if _decides(k)]


def _decides(key: str) -> bool:
    return key not in UNDECIDING and key.split(".")[0] not in UNDECIDING
