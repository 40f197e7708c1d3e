"""The keys of a recipe's sections with their types, ranges, defaults and meanings.

The defaults are the paper's settings (R17). A recipe file sets the keys that differ from them, and `--set key=value`
those that differ from the file. `olr recipes keys` prints the descriptions here, in `methods.py` and in `verifier.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from olr_cli.errors import shortened
from olr_cli.recipe.section import (
    Count,
    ExtractorText,
    Number,
    Ratio,
    Section,
    Temperature,
    Text,
    Tolerance,
    Whole,
    default,
    flatten,
    require_number,
)

# Prompts and labels -----------------------------------------------------------------------------------------------

ColumnRole = Literal["question", "answer", "choices", "id", "system"]
"""The possible contents of a column."""

OTHER_ROLES: Mapping[str, ColumnRole] = {
    "prompt": "question",
    "prompt_id": "id",
    "given_label": "answer",
    "label": "answer",
}
"""Name of a column in logs -> its role here (`olr_cli.data.log_formats`)."""


def _roles_by_our_names(columns: Any) -> Any:
    """Return the value of `data.columns` with olr's own names for all roles, such as ``question``.

    `columns` maps roles to columns; a role says what a column holds. For some roles, the user may also write a name
    that is common in logs, such as ``prompt``. Raise ValueError if two names stand for the same role. Anything but a
    dictionary is returned unchanged.
    """
    if not isinstance(columns, dict):
        return columns
    ours = {OTHER_ROLES.get(role, role): path for role, path in columns.items()}
    # `{prompt: a, question: b}` gives one role two columns, and either choice would be a guess.
    if len(ours) < len(columns):
        raise ValueError("two columns for one role; leave one out")
    return ours


class DataSection(Section):
    """Which prompts train, and which are only measured.

    Further keys say how the files are read, and how answers are found in responses and compared.
    """

    train: Text = default(
        "arithmetic",
        "A Parquet, JSONL or CSV file, a Hugging Face hub id, or a built-in set: `arithmetic`,"
        " `arithmetic:subtraction`, or for pretrained models `arithmetic:products`, `arithmetic:sums`,"
        " `arithmetic:maxima`, `arithmetic:dates`.",
    )
    validation: Text | None = default(
        None, "The only prompts that may choose a checkpoint (R22)."
    )
    test: Text | None = default(None, "Held-out prompts; they never train.")
    held_out: Annotated[Number, Field(gt=0, lt=1)] | None = default(
        None,
        "Share of `data.train` that never trains and is measured in place of `data.test`, where that is null: whole"
        " questions, drawn with the recipe's seed. A run stores them as `held-out.parquet`.",
    )
    limit: Count | None = default(
        None,
        "Largest number of training prompts: the first of a file; a generated set has exactly this many.",
    )
    verified: Count | Text | None = default(
        None,
        "Verified labels, which the method never replaces: a file of `prompt_id` and `true_answer`, a selection saved"
        " by the report, or a data set; or, for studies, how many prompts to draw whose true answer is known.",
    )
    columns: (
        Annotated[dict[ColumnRole, Text], BeforeValidator(_roles_by_our_names)] | None
    ) = default(
        None,
        "Which columns hold what, as `{question: Question, answer: Answer, id: uid, system: context}`, and of multiple"
        " choice `choices: options`; `meta.gold` is a field of a column, `meta.0` an item of a list,"
        " `messages.assistant` the last turn of that role, `A+B+C+D` options in columns of their own; `choices: none`"
        " asks without options; null: columns of standard names. Held-out files that have none of them are read by the"
        " standard names.",
    )
    system_prompt: Text | None = default(
        None,
        "System message of every prompt that has none, or `none`; null: plain questions get R21's, which asks for a"
        " `\\boxed{}`, and messages stay as they are.",
    )
    extractor: ExtractorText | None = default(
        None,
        "How answers are read from responses: `boxed`, `first_integer`, `last_number`, `last_answer`, `choice`, `text`,"
        " `{regex: PATTERN}`, `{after: TEXT}`, `{tag: NAME}`, or a function of your own, `package.module:function`;"
        " null: as each prompt's data source requires (R6).",
    )
    tolerance: Tolerance = default(
        0.0,
        "How far a number may be from a label or true answer, as a part of it, and still match, unless both are"
        " integers: 0.01 takes `85.71` for `\\frac{600}{7}`. It changes no class.",
    )
    decimal_comma: bool = default(
        False,
        "Labels and true answers have decimal commas: `23,5` is 23.5, not the list 23, 5 (R7).",
    )
    encoding: Text = default(
        "utf-8",
        "Encoding of CSV and JSON files that are neither UTF-8 nor marked UTF-16, such as `cp1252`.",
    )
    drop_long: bool = default(
        False,
        "Leave out prompts longer than `train.max_prompt_tokens`, in training and held-out data; false: they are an"
        " error before training starts.",
    )


NoiseDraw = Literal["uniform", "frequency", "most_frequent"]
"""How a noisy label is drawn from the wrong answers of a visit (R3)."""


class NoiseSection(Section):
    """Base class of the section `noise`: a share of the training prompts is marked and gets wrong labels (R1).

    The prompts are drawn when the run starts. If the data file already marks prompts as noisy, no further prompts are
    drawn, and `ratio` must be left out.
    """

    ratio: Ratio | None = default(
        None, "Share of the prompts that are marked, exactly as written."
    )
    seed: Whole | None = default(
        None, "Seed of which prompts are marked; null: the recipe's seed."
    )


class InactiveNoiseSection(NoiseSection):
    """The label becomes a string that no policy outputs (R2).

    The share `ratio` of all training prompts is marked. Only the labels of marked prompts change. R2 is a rule in
    docs/concepts.md.
    """

    type: Literal["inactive"] = "inactive"


class ActiveNoiseSection(NoiseSection):
    """The label is drawn from the wrong answers of the same visit (R3).

    A visit is the rollouts of one prompt in one epoch. The share `ratio` of all training prompts is marked. Only the
    labels of marked prompts change. R3 is a rule in docs/concepts.md.
    """

    type: Literal["active"] = "active"
    draw: NoiseDraw = default(
        "uniform",
        "How the wrong answer is drawn: each with the same chance, in proportion to its frequency, or the most"
        " frequent.",
    )


class MixedNoiseSection(NoiseSection):
    """Both kinds of noise in one data set.

    The share `active_share` of the marked prompts has active noise: the label is a wrong answer from the prompt's own
    rollouts. The other marked prompts have inactive noise: the label is a string that no answer matches.
    """

    type: Literal["mixed"] = "mixed"
    draw: NoiseDraw = default(
        "uniform", "How an active label is drawn, as for active noise."
    )
    active_share: Ratio = default(
        Decimal("0.5"), "Share of the marked prompts whose noise is active."
    )


class ModelSection(Section):
    """The policy at the start.

    The keys name the model and its chat template, and say whether code that comes with it may run.
    """

    path: Text = default(
        "builtin:addition-easier",
        "A Hugging Face model folder or hub id, or a built-in policy.",
    )
    chat_template: Text | None = default(
        None,
        "How messages become text: `none` for plain text without roles, as few-shot prompts need it, or a file with a"
        " chat template (Jinja); null: as the model has it.",
    )
    trust_remote_code: bool = default(
        False, "Run code that comes with the model; only if you trust its author."
    )


# Training ---------------------------------------------------------------------------------------------------------

LossAverage = Literal["token", "sequence"]
"""The unit with equal weight in a mini-batch's loss."""

LrSchedule = Literal["constant", "linear", "cosine", "cosine_with_min_lr"]
"""How the learning rate falls after the warm-up."""


class TrainSection(Section):
    """GRPO's settings; the defaults are the paper's (R17).

    The keys set the sizes of steps and groups, the loss, the optimiser, sampling, checkpoints and evaluation. R17 is a
    rule in docs/concepts.md.
    """

    epochs: Count = default(10, "Passes over the prompts; each visits every prompt once.")
    prompts_per_step: Count = default(160, "Prompts rolled out before each update.")
    mini_batch_prompts: Count | None = default(
        32, "Prompts per optimiser step; null: all of the step's prompts."
    )
    rollouts_per_prompt: Annotated[Count, Field(ge=2)] = default(
        8, "K, rollouts of each prompt in a step; at least 2."
    )
    learning_rate: Number = default(
        1e-6, "Adam's learning rate, at its highest.", gt=0, le=1
    )
    lr_schedule: LrSchedule = default(
        "constant",
        "How the learning rate falls over the run's optimiser steps, as in transformers; `linear` and `cosine` end at"
        " 0, `cosine_with_min_lr` at a tenth.",
    )
    lr_warmup_ratio: Number = default(
        0.0,
        "Share of the run's optimiser steps in which the learning rate rises from 0.",
        ge=0,
        lt=1,
    )
    kl_weight: Number = default(
        1e-3,
        "Weight in the loss of the k3 estimate of KL(policy || starting policy), in nats.",
        ge=0,
    )
    clip: Number = default(
        0.2, "epsilon of the clipped surrogate: ratios 1 ± epsilon.", gt=0, lt=1
    )
    clip_high: Number | None = default(
        None,
        "Another epsilon above: ratios up to 1 + `clip_high` (clip-higher); null: as `clip`.",
        gt=0,
    )
    loss_average: LossAverage = default(
        "token",
        "What has equal weight in a mini-batch: every token, or every sequence, so that long responses weigh no"
        " more than short ones.",
    )
    lora_rank: Count | None = default(
        None,
        "Rank of LoRA's adapters, which then train alone (needs peft); null: all weights train.",
    )
    lora_alpha: Count | None = default(
        None,
        "LoRA's alpha: adapters are scaled by alpha / rank; null: 2 x rank, as in TRL.",
    )
    lora_layers: Text = default(
        "all-linear",
        "The layers with adapters: every linear layer but the output layer, or a regular expression of their whole"
        " names, such as `.*[qv]_proj`.",
    )
    max_new_tokens: Count = default(
        4096, "Tokens of a response; a longer one is truncated."
    )
    max_prompt_tokens: Count = default(
        2048,
        "Tokens of a prompt; a longer one is an error before training starts, or left out (`data.drop_long`).",
    )
    temperature: Annotated[Temperature, Field(gt=0)] = default(
        1.0, "Sampling temperature of training rollouts; at least 0.001."
    )
    top_p: Number = default(
        1.0,
        "Tokens are drawn from the fewest most likely ones that have this probability together; 1: from all. Log-"
        "probabilities stay those of all tokens. Held-out rollouts are drawn alike, as for `top_k` and `min_p`.",
        gt=0,
        le=1,
    )
    top_k: Count | None = default(
        None, "Tokens are drawn from this many of the most likely; null: from all."
    )
    min_p: Number = default(
        0.0,
        "Tokens are drawn from those at least this share as likely as the most likely one; 0: from all.",
        ge=0,
        lt=1,
    )
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = default(
        (),
        'Texts that end a response, in training and held out, as `["\\n\\n"]`; the response ends before the text,'
        " whose tokens train.",
    )
    evaluation_temperature: Temperature = default(
        0.6,
        "Sampling temperature of held-out rollouts during training; 0: greedy, else at least 0.001.",
    )
    evaluation_samples: Count | None = default(
        None, "Rollouts of each held-out prompt; null: as many as in training."
    )
    checkpoint_every: Count = default(
        10, "Steps between checkpoints; one is always written at the end."
    )
    keep_checkpoints: Count = default(
        2,
        "Number of newest checkpoints to keep; with `data.validation`, the best one stays too (R22).",
    )
    evaluate_every: Count | None = default(
        None,
        "Steps between held-out evaluations; there is always one at the start and at the end.",
    )
    stop_if_no_reward: Count | None = default(
        None,
        "After this many steps in a row in which no response is rewarded the run ends; null: it continues.",
    )

    @property
    def held_out_rollouts(self) -> int:
        """The number of rollouts per held-out prompt: `evaluation_samples`, or by default the number in training."""
        return self.evaluation_samples or self.rollouts_per_prompt


Device = Literal["auto", "cpu", "cuda"]
"""The kind of processor that computes."""


class LocalEngine(Section):
    """One process, torch and transformers.

    This is olr's own sampler and trainer, on a CPU or a GPU. The keys set its precision, threads and use of memory.
    """

    name: Literal["local"] = "local"
    device: Device = default("auto", "`auto` takes a GPU if there is one.")
    dtype: Literal["auto", "float32", "bfloat16"] = default(
        "auto",
        "Of matrix products; weights are float32. `auto`: float32 on a CPU, bfloat16 on a GPU that has it.",
    )
    threads: Annotated[Whole, Field(gt=0, le=1024)] | None = default(
        None,
        "CPU threads; results repeat bit for bit with the same number on the same kind of CPU (R18);"
        " null: torch's choice.",
    )
    max_batch_tokens: Count | None = default(
        None,
        "Prompt and response tokens that are sampled at a time; null: 65536 on a CPU, on a GPU those whose keys and"
        " values half of its free memory holds.",
    )
    micro_batch_tokens: Count | None = default(
        None,
        "Prompt and response tokens of one forward and backward pass; a mini-batch's gradient is accumulated over as"
        " many passes as it takes, and is the same; null: as `max_batch_tokens`, or on a GPU as many as its memory has"
        " room for.",
    )
    gradient_checkpointing: bool = default(
        False,
        "Compute activations twice to keep fewer: for long responses, or little memory.",
    )


class OpenRlhfEngine(Section):
    """OpenRLHF on Ray, vLLM and DeepSpeed, from one GPU to many nodes.

    The keys say which GPUs hold the policy, the reference model and vLLM. `flags` are further options of OpenRLHF.
    """

    name: Literal["openrlhf"] = "openrlhf"
    device: Literal["cuda", "cpu"] = default(
        "cuda", "`cpu` rehearses the whole stack without a GPU, with a tiny model."
    )
    nodes: Count = default(1, "Machines that hold the policy.")
    gpus_per_node: Count = default(
        1,
        "GPUs of each machine that hold the policy; without `colocate` the reference takes the same number again.",
    )
    colocate: bool = default(
        True,
        "Policy, reference and vLLM share the same GPUs and take turns (hybrid engine).",
    )
    sleep: bool = default(
        True, "With `colocate`: a model that is not computing gives its GPU memory back."
    )
    vllm_engines: Count | None = default(
        None,
        "vLLM engines; null: as many as fit the policy's GPUs with `colocate`, else 1.",
    )
    tensor_parallel: Count = default(1, "GPUs of each vLLM engine.")
    vllm_memory: Number = default(
        0.5, "Share of a GPU's memory that vLLM may take.", gt=0, lt=1
    )
    # `require_number`, because pydantic reads true as 1 in a Literal of numbers.
    zero_stage: Annotated[Literal[1, 2, 3], BeforeValidator(require_number)] = default(
        2,
        "DeepSpeed's ZeRO: 1 shards the optimiser's state, 2 also gradients, 3 also weights.",
    )
    gradient_checkpointing: bool = default(True, "Compute activations twice to keep fewer.")
    micro_batch_samples: Count = default(
        2, "Samples of one forward and backward pass on one GPU."
    )
    attention: Literal["auto", "flash_attention_2", "sdpa"] = default(
        "auto",
        "`auto` takes flash_attention_2 if flash-attn is installed, else torch's sdpa; where sdpa cannot (Gemma 2's"
        " caps), it is transformers' eager.",
    )
    ray_address: Text | None = default(
        None, "A running Ray cluster: `auto`, or host:port; null: a new one."
    )
    flags: dict[str, Any] = Field(
        default_factory=dict,
        description="Any other flags of OpenRLHF, without their dashes.",
    )

    @field_validator("flags")
    @classmethod
    def _flags_are_values(cls, flags: dict[str, Any]) -> dict[str, Any]:
        """Return the further options for OpenRLHF unchanged; raise ValueError if a value may not be passed on.

        A value must not begin with a dash, because OpenRLHF would read it as another flag, which olr has not checked.
        Nor may a list contain lists or dictionaries.
        """
        for name, value in flatten(flags).items():
            # A list becomes several words on the command line, each of which could begin with a dash.
            for word in value if isinstance(value, list) else [value]:
                if isinstance(word, list | dict):
                    raise ValueError(
                        f"{name} is a list of lists or keys; OpenRLHF's flags take single values"
                    )
                if isinstance(word, str) and word.startswith("-"):
                    raise ValueError(
                        f"{name} is '{shortened(word)}'; a value cannot begin with a dash"
                    )
        return flags

    @property
    def policy_gpus(self) -> int:
        """The number of GPUs that hold the policy, on all nodes together."""
        return self.nodes * self.gpus_per_node

    @property
    def engines(self) -> int:
        """The number of vLLM engines: `vllm_engines` if it is set.

        Otherwise it depends on `colocate`. If `colocate` is true, there are as many engines as fit on the policy's
        GPUs, but at least one. If it is false, there is one.
        """
        if self.vllm_engines is not None:
            return self.vllm_engines
        return max(1, self.policy_gpus // self.tensor_parallel) if self.colocate else 1


class ExternalEngine(Section):
    """Another trainer, which takes its rewards from olr (`olr_cli.api`); `olr train` cannot run it."""

    name: Literal["external"] = "external"
    trainer: Text = default("unknown", "The trainer and its version.")


class LoggingSection(Section):
    """Where metrics go besides metrics.jsonl, which is always written.

    They can also go to TensorBoard's event files and to a project on Weights & Biases.
    """

    tensorboard: bool = default(
        False, "Write TensorBoard event files into the run directory."
    )
    wandb: Text | None = default(None, "Weights & Biases project to log to.")


class SweepSection(Section):
    """Several runs from one recipe: every arm at every point of the grid.

    An arm is a named set of keys with other values than the recipe's. The grid lists values for some keys, and a point
    of the grid is one combination of these values.
    """

    arms: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Arm's name -> the keys in which it differs from the recipe.",
    )
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict, description="Dotted key -> the list of its values."
    )

    @model_validator(mode="after")
    def _something_differs(self) -> SweepSection:
        if not self.arms and not self.grid:
            raise ValueError(
                "the sweep has neither arms nor a grid; give it some, or remove it"
            )
        return self
