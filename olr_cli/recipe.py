"""What a run is: the recipe, its sections and their vetted defaults.

The class defaults are the paper's settings (R17). A recipe file says what differs; `--set key=value` says what
differs from the file. Unknown keys are refused with a suggestion, never ignored.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, field_validator, model_validator

Criterion = Literal["slope", "consistency"]
NoiseDraw = Literal["uniform", "frequency", "most_frequent"]
PromptRule = Literal["all", "small_loss", "random"]
Exact = Annotated[Decimal, PlainSerializer(float, when_used="json")]
"""A number compared as written, not as the nearest double (R12)."""
Ratio = Annotated[Exact, Field(ge=0, le=1)]


class Section(BaseModel):
    """A part of a recipe: immutable, and closed to keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataSection(Section):
    """Which prompts train, and which are only measured.

    Attributes:
        train: a Parquet or JSONL file, a hub id, or a built-in set (``arithmetic``, ``arithmetic:subtraction``).
        validation: the only set that may choose a checkpoint (R22).
        test: held-out prompts; they never train.
        limit: at most so many training prompts (a generated set: exactly so many).
        extractor: how answers are read from responses; by default what the data source calls for (R6).
    """

    train: str = "arithmetic"
    validation: str | None = None
    test: str | None = None
    limit: Annotated[int, Field(gt=0)] | None = None
    extractor: str | None = None


class NoiseSection(Section):
    """Noise put on the training labels when the run starts; for files that carry marks only the type (R1).

    Attributes:
        ratio: share of the prompts that are marked, as written (exact).
        seed: which prompts; by default the recipe's seed.
    """

    ratio: Ratio | None = None
    seed: int | None = None


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

    path: str = "builtin:addition-easier"
    trust_remote_code: bool = False


class MethodSection(Section):
    """What a method is composed of besides its labels and rewards, which its name decides.

    Every method has these keys, so a new mix is a recipe: OLR with a confidence penalty is
    ``{name: olr, penalty_weight: 0.001}``.

    Attributes:
        name: decides labels and rewards, and the other keys' defaults.
        prompts: which of a step's prompts train: `all`, those with a `small_loss`, or a `random` choice
            (`olr_cli.supervision.selection`).
        keep_fraction: share of a step's prompts that train; by default 1 - the share of marked prompts.
        penalty_weight: weight of the mean token entropy, which is subtracted from the loss; 0: no penalty.
        smoothing: share of the uniform distribution in each token's target; 0: none.
    """

    needs_labels: ClassVar[bool] = True
    """Whether a prompt without a given label is an error; the paper calls methods that need none unsupervised."""

    name: str
    prompts: PromptRule = "all"
    keep_fraction: Annotated[Exact, Field(gt=0, le=1)] | None = None
    penalty_weight: Annotated[float, Field(ge=0)] = 0.0
    smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _a_fraction_of_something(self) -> MethodSection:
        if self.keep_fraction is not None and self.prompts == "all":
            raise ValueError(
                "keep_fraction is set, but prompts is all, which keeps every prompt; set prompts to small_loss or"
                " random, or remove keep_fraction"
            )
        return self


class GrpoMethod(MethodSection):
    """Plain GRPO: every label counts as given."""

    name: Literal["grpo"] = "grpo"


class OlrMethod(MethodSection):
    """Online Label Refinement (Eq. effective_label, R14).

    Attributes:
        criteria: which criteria a majority must meet; empty: every majority replaces the label.
        slope_threshold: delta, compared exactly and strictly (R12, R14); may be negative.
        warmup_epochs: T, leading visits that keep the label.
    """

    name: Literal["olr"] = "olr"
    criteria: tuple[Criterion, ...] = ("slope", "consistency")
    slope_threshold: Exact = Decimal("0.05")
    warmup_epochs: Annotated[int, Field(ge=0)] = 5

    @field_validator("criteria")
    @classmethod
    def _each_once(cls, criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
        if len(set(criteria)) < len(criteria):
            raise ValueError("each criterion at most once")
        return tuple(sorted(criteria, reverse=True))


class TtrlMethod(MethodSection):
    """TTRL (Zuo et al. 2025, arXiv:2504.16084): every visit's own majority is its label."""

    needs_labels: ClassVar[bool] = False

    name: Literal["ttrl"] = "ttrl"


class CoRewardMethod(MethodSection):
    """Co-Reward (Zhang et al. 2025, arXiv:2508.00410): each view's majority is the label of the other view.

    Needs a `rephrased_prompt` for every prompt; rolls out K responses to each of the two.
    """

    needs_labels: ClassVar[bool] = False

    name: Literal["co_reward"] = "co_reward"


class SelfCertaintyMethod(MethodSection):
    """Self-certainty as reward (Zhao et al. 2025, arXiv:2505.19590); no labels."""

    needs_labels: ClassVar[bool] = False

    name: Literal["self_certainty"] = "self_certainty"


class TokenEntropyMethod(MethodSection):
    """Minus the mean token entropy as reward (Agarwal et al. 2025, arXiv:2505.15134, EM-RL-token); no labels."""

    needs_labels: ClassVar[bool] = False

    name: Literal["token_entropy"] = "token_entropy"


class SequenceEntropyMethod(MethodSection):
    """The response's log-likelihood as reward (Agarwal et al. 2025, arXiv:2505.15134, EM-RL-sequence); no labels.

    Attributes:
        score_reduction: `mean` over response tokens, a departure from the cited `sum`, which rewards short responses.
    """

    needs_labels: ClassVar[bool] = False

    name: Literal["sequence_entropy"] = "sequence_entropy"
    score_reduction: Literal["mean", "sum"] = "mean"


class ConfidencePenaltyMethod(MethodSection):
    """GRPO with a confidence penalty on each token (Pereyra et al. 2017, arXiv:1701.06548).

    The paper does not give its weight.
    """

    name: Literal["confidence_penalty"] = "confidence_penalty"
    penalty_weight: Annotated[float, Field(gt=0)] = 1e-3


class LabelSmoothingMethod(MethodSection):
    """GRPO with smoothed token targets (Lukasik et al. 2020, arXiv:2003.02819).

    The paper does not give its weight.
    """

    name: Literal["label_smoothing"] = "label_smoothing"
    smoothing: Annotated[float, Field(gt=0, lt=1)] = 0.1


class SmallLossSelectionMethod(MethodSection):
    """GRPO on the prompts of a step with the smallest loss (Gui et al. 2021, arXiv:2106.09291)."""

    name: Literal["small_loss_selection"] = "small_loss_selection"
    prompts: Literal["small_loss"] = "small_loss"


class RandomSelectionMethod(MethodSection):
    """GRPO on a random choice of a step's prompts: the control of `SmallLossSelectionMethod`."""

    name: Literal["random_selection"] = "random_selection"
    prompts: Literal["random"] = "random"


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
        max_new_tokens: a longer response is truncated.
        max_prompt_tokens: a longer prompt is an error before training starts.
        temperature: of the training rollouts.
        evaluation_temperature: of held-out rollouts during training.
        checkpoint_every: steps between checkpoints; one is always written at the end.
        keep_checkpoints: how many of the newest checkpoints stay; with data.validation, the best one too (R22).
        evaluate_every: steps between held-out evaluations; always one at the start and one at the end.
    """

    epochs: Annotated[int, Field(gt=0)] = 10
    prompts_per_step: Annotated[int, Field(gt=0)] = 160
    mini_batch_prompts: Annotated[int, Field(gt=0)] | None = 32
    rollouts_per_prompt: Annotated[int, Field(gt=0)] = 8
    learning_rate: Annotated[float, Field(gt=0)] = 1e-6
    kl_weight: Annotated[float, Field(ge=0)] = 1e-3
    clip: Annotated[float, Field(gt=0, lt=1)] = 0.2
    max_new_tokens: Annotated[int, Field(gt=0)] = 4096
    max_prompt_tokens: Annotated[int, Field(gt=0)] = 2048
    temperature: Annotated[float, Field(gt=0)] = 1.0
    evaluation_temperature: Annotated[float, Field(ge=0)] = 0.6
    checkpoint_every: Annotated[int, Field(gt=0)] = 10
    keep_checkpoints: Annotated[int, Field(gt=0)] = 2
    evaluate_every: Annotated[int, Field(gt=0)] | None = None


class LocalEngine(Section):
    """One process, torch and transformers.

    Attributes:
        device: `auto` takes the GPU where there is one.
        threads: CPU threads; results on CPU repeat bit for bit for one count (R18). By default torch's own choice.
        max_batch_tokens: prompt and response tokens that are in memory at a time.
    """

    name: Literal["local"] = "local"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Field(gt=0)] | None = None
    max_batch_tokens: Annotated[int, Field(gt=0)] = 65536


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
        attention: `auto` takes flash_attention_2 where flash-attn is installed, else torch's sdpa.
        ray_address: a running cluster: `auto`, host:port, or http://… to submit a Ray job; by default a Ray of its own.
        flags: any other flag of OpenRLHF, without its dashes.
    """

    name: Literal["openrlhf"] = "openrlhf"
    device: Literal["cuda", "cpu"] = "cuda"
    nodes: Annotated[int, Field(gt=0)] = 1
    gpus_per_node: Annotated[int, Field(gt=0)] = 1
    colocate: bool = True
    sleep: bool = True
    vllm_engines: Annotated[int, Field(gt=0)] | None = None
    tensor_parallel: Annotated[int, Field(gt=0)] = 1
    vllm_memory: Annotated[float, Field(gt=0, lt=1)] = 0.5
    zero_stage: Literal[1, 2, 3] = 2
    gradient_checkpointing: bool = True
    micro_batch_samples: Annotated[int, Field(gt=0)] = 2
    attention: Literal["auto", "flash_attention_2", "sdpa"] = "auto"
    ray_address: str | None = None
    flags: dict[str, Any] = {}

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
    wandb: str | None = None


class SweepSection(Section):
    """Several runs from one recipe: every arm with every combination of the grid.

    Attributes:
        arms: name -> the keys in which this arm differs from the recipe.
        grid: dotted key -> its values.
    """

    arms: dict[str, dict[str, Any]] = {}
    grid: dict[str, list[Any]] = {}


Noise = Annotated[InactiveNoiseSection | ActiveNoiseSection | MixedNoiseSection, Field(discriminator="type")]
Method = Annotated[
    GrpoMethod
    | OlrMethod
    | TtrlMethod
    | CoRewardMethod
    | SelfCertaintyMethod
    | TokenEntropyMethod
    | SequenceEntropyMethod
    | ConfidencePenaltyMethod
    | LabelSmoothingMethod
    | SmallLossSelectionMethod
    | RandomSelectionMethod,
    Field(discriminator="name"),
]
Engine = Annotated[LocalEngine | OpenRlhfEngine, Field(discriminator="name")]


METHODS: tuple[type[MethodSection], ...] = get_args(get_args(Method)[0])
"""The section of every method."""


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
    seed: int = 0
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

    def plain(self) -> dict[str, Any]:
        """The resolved recipe as plain YAML/JSON values; keys without a value are left out."""
        return self.model_dump(mode="json", exclude_none=True)

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
    }
)
"""Keys, or sections of keys, that cannot change what a run computes but for rounding; a resume may change them."""


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
