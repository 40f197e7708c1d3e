"""Every key of a recipe: its type, range, default and what it means.

The defaults are the paper's settings (R17). A recipe file says what differs; `--set key=value` says what differs from
the file. Unknown keys are refused with a suggestion, never ignored. `olr recipes keys` prints what is written here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PrivateAttr,
    Tag,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from olr_cli.errors import UserError, shortened
from olr_cli.user_code import is_function

# Values -----------------------------------------------------------------------------------------------------------

_MOST_PLACES = 30
LEAST_TEMPERATURE = 0.001
"""A smaller one turns logits into numbers that float32 does not have."""


def _as_written(number: Decimal) -> float | str:
    """An exact number for JSON and YAML: a float if that is the same number, else its digits as text."""
    return float(number) if Decimal(repr(float(number))) == number else str(number)


def _require_few_places(number: Decimal) -> Decimal:
    """Refuse a number whose fraction could have more digits than memory holds."""
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -_MOST_PLACES:
        raise PydanticCustomError("places", f"Input should have no more than {_MOST_PLACES} decimal places")
    return number


def _require_number(value: Any) -> Any:
    """Refuse true and false, which pydantic would take for 1 and 0."""
    if isinstance(value, bool):
        raise PydanticCustomError("truth", "Input should be a number, neither true nor false")
    return value


def _require_not_tiny(temperature: float) -> float:
    if 0 < temperature < LEAST_TEMPERATURE:
        raise PydanticCustomError(
            "tiny",
            f"Input should be at least {LEAST_TEMPERATURE}: samples below it are those of the most likely token",
        )
    return temperature


_EXTRACTOR_KINDS = ("regex", "after", "tag", "function")
"""Extractors with a setting, as `olr_cli.answers.find_extractor` reads them."""


def _extractor_as_text(value: Any) -> Any:
    """``{after: "####"}`` as ``after:####``, the form in which a command line gives it too."""
    if not isinstance(value, dict):
        return value
    kind, setting = next(iter(value.items()), ("", None))
    if len(value) != 1 or kind not in _EXTRACTOR_KINDS or not isinstance(setting, str) or not setting.strip():
        raise PydanticCustomError(
            "extractor",
            f"Expected a name, or one of {', '.join(_EXTRACTOR_KINDS)} and its text, as {{after: '####'}}",
        )
    return setting if kind == "function" else f"{kind}:{setting}"


def _require_text(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty; fill it in, or leave the key out")
    return text


Exact = Annotated[
    Decimal,
    Field(gt=-1_000_000, lt=1_000_000),
    AfterValidator(_require_few_places),
    PlainSerializer(_as_written, when_used="json"),
]
"""A number compared as written, not as the nearest double (R12)."""
Ratio = Annotated[Exact, Field(ge=0, le=1)]
Number = Annotated[float, BeforeValidator(_require_number)]
Tolerance = Annotated[Number, Field(ge=0, lt=1)]
Temperature = Annotated[Number, Field(ge=0), AfterValidator(_require_not_tiny)]
Whole = Annotated[int, BeforeValidator(_require_number), Field(ge=-(2**63), lt=2**63)]
Count = Annotated[Whole, Field(gt=0, lt=2**31)]
Epochs = Annotated[Whole, Field(ge=0, lt=2**31)]
Text = Annotated[str, AfterValidator(_require_text)]
FUNCTION = r"^(.+\.py|[\w.]+):[^\W\d]\w*$"
"""The pattern of `file.py:function` and `package.module:function`."""
ExtractorText = Annotated[Text, BeforeValidator(_extractor_as_text)]
"""How answers are read, in a recipe as in a benchmark: a name, or a kind and its text (R6)."""

ColumnRole = Literal["question", "answer", "id", "system"]
"""What a column can hold."""
OTHER_ROLES: Mapping[str, ColumnRole] = {
    "prompt": "question",
    "prompt_id": "id",
    "given_label": "answer",
    "label": "answer",
}
"""What the columns of logs are called that hold the same (`olr_cli.data.log_formats`)."""


def _roles_by_our_names(columns: Any) -> Any:
    if not isinstance(columns, dict):
        return columns
    ours = {OTHER_ROLES.get(role, role): path for role, path in columns.items()}
    if len(ours) < len(columns):
        raise ValueError("two columns for one role; leave one out")
    return ours


Criterion = Literal["slope", "consistency"]
PromptRule = Literal["all", "small_loss", "random", "verified"]
NoiseDraw = Literal["uniform", "frequency", "most_frequent"]
LossAverage = Literal["token", "sequence"]
Device = Literal["auto", "cpu", "cuda"]
LrSchedule = Literal["constant", "linear", "cosine", "cosine_with_min_lr"]


def _key(default: Any, description: str, **bounds: Any) -> Any:
    """A key of a section; the description is its line in `olr recipes keys`."""
    return Field(default=default, description=description, **bounds)


class Section(BaseModel):
    """A part of a recipe: immutable, and closed to keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def plain(self) -> dict[str, Any]:
        """The resolved section as YAML/JSON values, without the keys that are null and null by default."""
        nested = {name: value.plain() for name, value in self if isinstance(value, Section)}
        return {
            name: value
            for name, value in (self.model_dump(mode="json") | nested).items()
            if value is not None or self.default_of(name) is not None
        }

    def default_of(self, key: str) -> Any:
        """The value of a key that is left out; None of a key that the section does not know."""
        field = type(self).model_fields.get(key)
        return None if field is None else field.get_default()


# Prompts and labels -----------------------------------------------------------------------------------------------


class DataSection(Section):
    """Which prompts train, and which are only measured."""

    train: Text = _key(
        "arithmetic",
        "A Parquet, JSONL or CSV file, a Hugging Face hub id, or a built-in set: `arithmetic`,"
        " `arithmetic:subtraction`, or for pretrained models `arithmetic:products`, `arithmetic:sums`,"
        " `arithmetic:maxima`, `arithmetic:dates`.",
    )
    validation: Text | None = _key(None, "The only prompts that may choose a checkpoint (R22).")
    test: Text | None = _key(None, "Held-out prompts; they never train.")
    held_out: Annotated[Number, Field(gt=0, lt=1)] | None = _key(
        None,
        "Share of `data.train` that never trains and is measured in place of `data.test`, where that is null: whole"
        " questions, drawn with the recipe's seed. A run stores them as `held-out.parquet`.",
    )
    limit: Count | None = _key(
        None,
        "Largest number of training prompts: the first of a file; a generated set has exactly this many.",
    )
    verified: Count | Text | None = _key(
        None,
        "Verified labels, which the method never replaces: a file of `prompt_id` and `true_answer`, a selection saved"
        " by the report, or a data set; or, for studies, how many prompts to draw whose true answer is known.",
    )
    columns: Annotated[dict[ColumnRole, Text], BeforeValidator(_roles_by_our_names)] | None = _key(
        None,
        "Which columns hold what, as `{question: Question, answer: Answer, id: uid, system: context}`; `meta.gold` is a"
        " field of a column, `meta.0` an item of a list, `messages.assistant` the last turn of that role; null: columns"
        " of standard names. Held-out files that have none of them are read by the standard names.",
    )
    system_prompt: Text | None = _key(
        None,
        "System message of every prompt that has none, or `none`; null: plain questions get R21's, which asks for a"
        " `\\boxed{}`, and messages stay as they are.",
    )
    extractor: ExtractorText | None = _key(
        None,
        "How answers are read from responses: `boxed`, `first_integer`, `last_number`, `last_answer`, `choice`, `text`,"
        " `{regex: PATTERN}`, `{after: TEXT}`, `{tag: NAME}`, or a function of your own, `package.module:function`;"
        " null: as each prompt's data source requires (R6).",
    )
    tolerance: Tolerance = _key(
        0.0,
        "How far a number may be from a label or true answer, as a part of it, and still match, unless both are"
        " integers: 0.01 takes `85.71` for `\\frac{600}{7}`. It changes no class.",
    )


class NoiseSection(Section):
    """Noise put on the training labels when the run starts; for files with marks, give only its type (R1)."""

    ratio: Ratio | None = _key(None, "Share of the prompts that are marked, exactly as written.")
    seed: Whole | None = _key(None, "Seed of which prompts are marked; null: the recipe's seed.")


class InactiveNoiseSection(NoiseSection):
    """The label becomes a string that no policy outputs (R2)."""

    type: Literal["inactive"] = "inactive"


class ActiveNoiseSection(NoiseSection):
    """The label is drawn from the wrong answers of the same visit (R3)."""

    type: Literal["active"] = "active"
    draw: NoiseDraw = _key(
        "uniform",
        "How the wrong answer is drawn: each with the same chance, in proportion to its frequency, or the most"
        " frequent.",
    )


class MixedNoiseSection(NoiseSection):
    """Both kinds of noise in one data set."""

    type: Literal["mixed"] = "mixed"
    draw: NoiseDraw = _key("uniform", "How an active label is drawn, as for active noise.")
    active_share: Ratio = _key(Decimal("0.5"), "Share of the marked prompts whose noise is active.")


class VerifierRule(Section):
    """Answers on which the verifier errs by rule: one condition, and the rates where it holds."""

    error: tuple[Exact, ...] | None = _key(
        None, "Numbers that are off by exactly one of these distances, above or below."
    )
    relative_error: Annotated[Exact, Field(gt=0)] | None = _key(
        None, "Numbers that are off by less than this part of the label."
    )
    answer: Text | None = _key(None, "Answers in which this pattern (RE2) is found.")
    response: Text | None = _key(None, "Responses in which this pattern (RE2) is found.")
    function: Annotated[Text, Field(pattern=FUNCTION)] | None = _key(
        None, "`file.py:function` of yours, which gets prompt, response, answer and label and returns a bool."
    )
    false_negative_rate: Ratio | None = _key(None, "There, in place of the section's; null: the section's.")
    false_positive_rate: Ratio | None = _key(None, "There, in place of the section's; null: the section's.")

    @model_validator(mode="after")
    def _one_condition(self) -> VerifierRule:
        named = [name for name in CONDITIONS if getattr(self, name) is not None]
        if len(named) != 1:
            raise ValueError(f"a rule has one of {', '.join(CONDITIONS)}, and here are {len(named)}")
        if self.false_negative_rate is None and self.false_positive_rate is None:
            raise ValueError("a rule needs false_negative_rate, false_positive_rate or both")
        if self.error is not None and min(self.error, default=-1) < 0:
            raise ValueError(
                "error is a list of distances, which count above and below; name some, without signs"
            )
        return self


CONDITIONS = ("error", "relative_error", "answer", "response", "function")
"""The keys of a `VerifierRule` that say where it holds."""


class VerifierSection(Section):
    """A verifier that errs, in rewards alone (R25)."""

    false_negative_rate: Ratio = _key(
        Decimal(0), "rho_1: how often an answer that matches the label gets reward 0."
    )
    false_positive_rate: Ratio = _key(
        Decimal(0), "rho_0: how often an answer that does not match the label gets reward 1."
    )
    draw: Literal["rollout", "answer"] = _key(
        "rollout", "Drawn anew for every rollout, or once: the same answer to a prompt always errs."
    )
    where: tuple[VerifierRule, ...] = _key(
        (),
        "Systematic errors, as `[{error: [10, 100], false_positive_rate: 1}]`; the first rule that fits decides, then"
        " the rates above (docs/methods.md).",
    )

    @property
    def brief(self) -> str:
        """``FN 0.3 FP 0.1 by answer, rules on error and answer``, as in names; empty if it makes no errors."""
        rates = {"FN": self.false_negative_rate, "FP": self.false_positive_rate}
        words = [f"{name} {rate}" for name, rate in rates.items() if rate]
        words += ["by answer"] if words and self.draw == "answer" else []
        kinds = [next(name for name in CONDITIONS if getattr(rule, name) is not None) for rule in self.where]
        rules = f"rule{'s' * (len(kinds) > 1)} on {' and '.join(dict.fromkeys(kinds))}" if kinds else ""
        return ", ".join(filter(None, (" ".join(words), rules)))


class ModelSection(Section):
    """The policy at the start."""

    path: Text = _key(
        "builtin:addition-easier", "A Hugging Face model folder or hub id, or a built-in policy."
    )
    chat_template: Text | None = _key(
        None,
        "How messages become text: `none` for plain text without roles, as few-shot prompts need it, or a file with a"
        " chat template (Jinja); null: as the model has it.",
    )
    trust_remote_code: bool = _key(False, "Run code that comes with the model; only if you trust its author.")


# Methods ----------------------------------------------------------------------------------------------------------


class MethodSection(Section):
    """Which label counts, what is rewarded, which prompts train and what the loss has: four choices (docs/methods.md).

    The name is a row of `METHODS`, which decides label and reward and sets other keys, or a label rule of your own. A
    mix is a recipe: OLR with a confidence penalty is ``{name: olr, penalty_weight: 0.001}``.
    """

    name: str
    prompts: PromptRule = _key(
        "all",
        "Which of a step's prompts train: all, those with the smallest loss, a random choice, or those with a verified"
        " label (`data.verified`).",
    )
    keep_fraction: Annotated[Exact, Field(gt=0, le=1)] | None = _key(
        None,
        "Share of a step's prompts that train, if `prompts` is not all; null: 1 - the share of marked prompts.",
    )
    penalty_weight: Number = _key(
        0.0, "Weight of the mean token entropy (nats) subtracted from the loss; 0: no penalty.", ge=0
    )
    smoothing: Number = _key(
        0.0, "Share of the uniform distribution in each token's target; 0: none.", ge=0, lt=1
    )
    majority_graded_by: Literal["class", "verifier"] = _key(
        "class",
        "Who grades rollouts by a majority label: its class, so that `verifier` errs on other labels alone (R16), or as"
        " in the authors' code the verifier.",
    )

    @model_validator(mode="before")
    @classmethod
    def _of_its_row(cls, keys: Any) -> Any:
        if not isinstance(keys, dict) or ":" in str(keys.get("name")):
            return keys
        name = keys.get("name", cls.model_fields["name"].default)
        if not isinstance(name, str) or name not in METHODS:
            expected = ", ".join(f"'{known}'" for known in METHODS)
            raise PydanticCustomError("unknown_method", "unknown", {"expected": expected})
        return {**METHODS[name].presets, **keys}

    @model_validator(mode="after")
    def _presets_stay(self) -> MethodSection:
        for key, preset in self.row.presets.items():
            value, is_number = getattr(self, key), isinstance(preset, float)
            if value <= 0 if is_number else value != preset:
                right = "above 0" if is_number else preset
                raise ValueError(f"{self.name} with {key} {value} is another method; input should be {right}")
        return self

    @model_validator(mode="after")
    def _a_fraction_of_something(self) -> MethodSection:
        if self.keep_fraction is not None and self.prompts in ("all", "verified"):
            raise ValueError(
                f"keep_fraction is set, but prompts is {self.prompts}, which keeps every such prompt; set"
                " prompts to small_loss or random, or remove keep_fraction"
            )
        return self

    @property
    def row(self) -> MethodRow:
        """The method's choices."""
        return METHODS[self.name]

    def default_of(self, key: str) -> Any:
        """The value of a key that is left out."""
        return self.row.presets.get(key, super().default_of(key))


class PlainMethod(MethodSection):
    """A method without keys of its own."""

    name: str = "grpo"


class OlrMethod(MethodSection):
    """Online Label Refinement (Eq. effective_label, R14)."""

    name: str = "olr"
    criteria: tuple[Criterion, ...] = _key(
        ("slope", "consistency"),
        "The criteria that a majority must meet to replace the label; empty: every majority does.",
    )
    slope_threshold: Exact = _key(
        Decimal("0.05"),
        "delta, in pass rate per visit: the slope must be above it, compared exactly (R12, R14).",
    )
    warmup_epochs: Epochs = _key(5, "T, in visits of a prompt: the first T keep the label.")

    @field_validator("criteria")
    @classmethod
    def _each_once(cls, criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
        if len(set(criteria)) < len(criteria):
            raise ValueError("each criterion at most once")
        return tuple(sorted(criteria, reverse=True))


class ScoreMethod(MethodSection):
    """An intrinsic reward that is a mean or a sum over tokens."""

    name: str = "token_entropy"
    score_reduction: Literal["mean", "sum"] = _key(
        "mean", "Over the response's tokens; the cited work takes the sum, which rewards short responses."
    )


class OwnMethod(MethodSection):
    """A label rule of your own: the function `name`, which gets the keys that olr does not know (docs/methods.md)."""

    model_config = ConfigDict(extra="allow")

    name: str = _key("", "`file.py:function` or `package.module:function`.", pattern=FUNCTION)
    warmup_epochs: Epochs = _key(
        0, "The first T visits of a prompt keep the label, without asking the function."
    )

    @property
    def row(self) -> MethodRow:
        """The label is what the function says, which may need none."""
        return MethodRow("", "own")


LabelChoice = Literal["given", "refined", "majority", "other_view", "none", "own"]
IntrinsicReward = Literal["self_certainty", "token_entropy", "sequence_entropy"]
RewardChoice = Literal["verifier"] | IntrinsicReward


class MethodRow(NamedTuple):
    """A method is four choices: label, reward, and in `presets` which prompts train and what the loss has.

    Attributes:
        summary: with its source, for `olr recipes keys`.
        label: `olr_cli.supervision.methods` has the rule.
        reward: `olr_cli.supervision.rewards` has the score.
        presets: keys of the section with another default.
        section: the class with the keys that only this method has.
    """

    summary: str
    label: LabelChoice = "given"
    reward: RewardChoice = "verifier"
    presets: Mapping[str, Any] = {}
    section: type[MethodSection] = PlainMethod

    @property
    def uses_labels(self) -> bool:
        """Whether the file's labels decide anything; a rule of your own may use them or not."""
        return self.label in ("given", "refined", "own")

    @property
    def needs_labels(self) -> bool:
        """Whether a prompt without a given label is an error; the paper calls methods that need none unsupervised."""
        return self.label in ("given", "refined")


METHODS: Mapping[str, MethodRow] = {
    "grpo": MethodRow("Plain GRPO: every label counts as given."),
    "olr": MethodRow("Online Label Refinement (Eq. effective_label, R14).", "refined", section=OlrMethod),
    "ttrl": MethodRow(
        "TTRL (Zuo et al. 2025, arXiv:2504.16084): the label is the majority answer of the same visit.",
        "majority",
    ),
    "co_reward": MethodRow(
        "Co-Reward (Zhang et al. 2025, arXiv:2508.00410): each view's majority is the label of the other view.",
        "other_view",
    ),
    "self_certainty": MethodRow(
        "Self-certainty as reward (Zhao et al. 2025, arXiv:2505.19590); no labels.", "none", "self_certainty"
    ),
    "token_entropy": MethodRow(
        "Negative token entropy as reward (Agarwal et al. 2025, arXiv:2505.15134, EM-RL-token); no labels.",
        *("none", "token_entropy"),
        section=ScoreMethod,
    ),
    "sequence_entropy": MethodRow(
        "The log-likelihood as reward (Agarwal et al. 2025, arXiv:2505.15134, EM-RL-sequence); no labels.",
        *("none", "sequence_entropy"),
        section=ScoreMethod,
    ),
    "confidence_penalty": MethodRow(
        "GRPO with a confidence penalty on each token (Pereyra et al. 2017, arXiv:1701.06548; weight ours).",
        presets={"penalty_weight": 1e-3},
    ),
    "label_smoothing": MethodRow(
        "GRPO with smoothed token targets (Lukasik et al. 2020, arXiv:2003.02819; share ours).",
        presets={"smoothing": 0.1},
    ),
    "small_loss_selection": MethodRow(
        "GRPO on the prompts of a step with the smallest loss (Gui et al. 2021, arXiv:2106.09291).",
        presets={"prompts": "small_loss"},
    ),
    "random_selection": MethodRow(
        "GRPO on a random choice of a step's prompts: the control of small-loss selection.",
        presets={"prompts": "random"},
    ),
}
"""Every built-in method."""


def _tag_of_method(value: Any) -> str:
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    if ":" in str(name):
        return OwnMethod.__name__
    row = METHODS.get(name) if isinstance(name, str) else None
    return (PlainMethod if row is None else row.section).__name__


# Training ---------------------------------------------------------------------------------------------------------


class TrainSection(Section):
    """GRPO's settings; the defaults are the paper's (R17)."""

    epochs: Count = _key(10, "Passes over the prompts; each visits every prompt once.")
    prompts_per_step: Count = _key(160, "Prompts rolled out before each update.")
    mini_batch_prompts: Count | None = _key(
        32, "Prompts per optimiser step; null: all of the step's prompts."
    )
    rollouts_per_prompt: Annotated[Count, Field(ge=2)] = _key(
        8, "K, rollouts of each prompt in a step; at least 2."
    )
    learning_rate: Number = _key(1e-6, "Adam's learning rate, at its highest.", gt=0, le=1)
    lr_schedule: LrSchedule = _key(
        "constant",
        "How the learning rate falls over the run's optimiser steps, as in transformers; `linear` and `cosine` end at"
        " 0, `cosine_with_min_lr` at a tenth.",
    )
    lr_warmup_ratio: Number = _key(
        0.0, "Share of the run's optimiser steps in which the learning rate rises from 0.", ge=0, lt=1
    )
    kl_weight: Number = _key(
        1e-3, "Weight in the loss of the k3 estimate of KL(policy || starting policy), in nats.", ge=0
    )
    clip: Number = _key(0.2, "epsilon of the clipped surrogate: ratios 1 ± epsilon.", gt=0, lt=1)
    clip_high: Number | None = _key(
        None, "Another epsilon above: ratios up to 1 + `clip_high` (clip-higher); null: as `clip`.", gt=0
    )
    loss_average: LossAverage = _key(
        "token",
        "What has equal weight in a mini-batch: every token, or every sequence, so that long responses weigh no"
        " more than short ones.",
    )
    lora_rank: Count | None = _key(
        None, "Rank of LoRA's adapters, which then train alone (needs peft); null: all weights train."
    )
    lora_alpha: Count | None = _key(
        None, "LoRA's alpha: adapters are scaled by alpha / rank; null: 2 x rank, as in TRL."
    )
    lora_layers: Text = _key(
        "all-linear",
        "The layers with adapters: every linear layer but the output layer, or a regular expression of their whole"
        " names, such as `.*[qv]_proj`.",
    )
    max_new_tokens: Count = _key(4096, "Tokens of a response; a longer one is truncated.")
    max_prompt_tokens: Count = _key(
        2048, "Tokens of a prompt; a longer one is an error before training starts."
    )
    temperature: Annotated[Temperature, Field(gt=0)] = _key(
        1.0, "Sampling temperature of training rollouts; at least 0.001."
    )
    top_p: Number = _key(
        1.0,
        "Tokens are drawn from the fewest most likely ones that have this probability together; 1: from all. Log-"
        "probabilities stay those of all tokens. Held-out rollouts are drawn alike, as for `top_k` and `min_p`.",
        gt=0,
        le=1,
    )
    top_k: Count | None = _key(None, "Tokens are drawn from this many of the most likely; null: from all.")
    min_p: Number = _key(
        0.0,
        "Tokens are drawn from those at least this share as likely as the most likely one; 0: from all.",
        ge=0,
        lt=1,
    )
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = _key(
        (),
        'Texts that end a response, in training and held out, as `["\\n\\n"]`; the response ends before the text,'
        " whose tokens train.",
    )
    evaluation_temperature: Temperature = _key(
        0.6, "Sampling temperature of held-out rollouts during training; 0: greedy, else at least 0.001."
    )
    evaluation_samples: Count | None = _key(
        None, "Rollouts of each held-out prompt; null: as many as in training."
    )
    checkpoint_every: Count = _key(10, "Steps between checkpoints; one is always written at the end.")
    keep_checkpoints: Count = _key(
        2, "Number of newest checkpoints to keep; with `data.validation`, the best one stays too (R22)."
    )
    evaluate_every: Count | None = _key(
        None, "Steps between held-out evaluations; there is always one at the start and at the end."
    )
    stop_if_no_reward: Count | None = _key(
        None,
        "After this many steps in a row in which no response is rewarded the run ends; null: it continues.",
    )

    @property
    def held_out_rollouts(self) -> int:
        """Rollouts of each held-out prompt."""
        return self.evaluation_samples or self.rollouts_per_prompt


class LocalEngine(Section):
    """One process, torch and transformers."""

    name: Literal["local"] = "local"
    device: Device = _key("auto", "`auto` takes a GPU if there is one.")
    dtype: Literal["auto", "float32", "bfloat16"] = _key(
        "auto",
        "Of matrix products; weights are float32. `auto`: float32 on a CPU, bfloat16 on a GPU that has it.",
    )
    threads: Annotated[Whole, Field(gt=0, le=1024)] | None = _key(
        None, "CPU threads; CPU results repeat bit for bit with the same number (R18); null: torch's choice."
    )
    max_batch_tokens: Count | None = _key(
        None,
        "Prompt and response tokens that are sampled at a time; null: 65536 on a CPU, on a GPU those whose keys and"
        " values half of its free memory holds.",
    )
    micro_batch_tokens: Count | None = _key(
        None,
        "Prompt and response tokens of one forward and backward pass; a mini-batch's gradient is accumulated over as"
        " many passes as it takes, and is the same; null: as `max_batch_tokens`, or on a GPU as many as its memory has"
        " room for.",
    )
    gradient_checkpointing: bool = _key(
        False, "Compute activations twice to keep fewer: for long responses, or little memory."
    )


class OpenRlhfEngine(Section):
    """OpenRLHF on Ray, vLLM and DeepSpeed, from one GPU to many nodes."""

    name: Literal["openrlhf"] = "openrlhf"
    device: Literal["cuda", "cpu"] = _key(
        "cuda", "`cpu` rehearses the whole stack without a GPU, with a tiny model."
    )
    nodes: Count = _key(1, "Machines that hold the policy.")
    gpus_per_node: Count = _key(
        1,
        "GPUs of each machine that hold the policy; without `colocate` the reference takes the same number again.",
    )
    colocate: bool = _key(
        True, "Policy, reference and vLLM share the same GPUs and take turns (hybrid engine)."
    )
    sleep: bool = _key(True, "With `colocate`: a model that is not computing gives its GPU memory back.")
    vllm_engines: Count | None = _key(
        None, "vLLM engines; null: as many as fit the policy's GPUs with `colocate`, else 1."
    )
    tensor_parallel: Count = _key(1, "GPUs of each vLLM engine.")
    vllm_memory: Number = _key(0.5, "Share of a GPU's memory that vLLM may take.", gt=0, lt=1)
    zero_stage: Annotated[Literal[1, 2, 3], BeforeValidator(_require_number)] = _key(
        2, "DeepSpeed's ZeRO: 1 shards the optimiser's state, 2 also gradients, 3 also weights."
    )
    gradient_checkpointing: bool = _key(True, "Compute activations twice to keep fewer.")
    micro_batch_samples: Count = _key(2, "Samples of one forward and backward pass on one GPU.")
    attention: Literal["auto", "flash_attention_2", "sdpa"] = _key(
        "auto",
        "`auto` takes flash_attention_2 if flash-attn is installed, else torch's sdpa; where sdpa cannot (Gemma 2's"
        " caps), it is transformers' eager.",
    )
    ray_address: Text | None = _key(None, "A running Ray cluster: `auto`, or host:port; null: a new one.")
    flags: dict[str, Any] = Field(
        default_factory=dict, description="Any other flags of OpenRLHF, without their dashes."
    )

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


class ExternalEngine(Section):
    """Another trainer, which takes its rewards from olr (`olr_cli.api`); `olr train` cannot run it."""

    name: Literal["external"] = "external"
    trainer: Text = _key("unknown", "The trainer and its version.")


class LoggingSection(Section):
    """Where metrics go besides metrics.jsonl, which is always written."""

    tensorboard: bool = _key(False, "Write TensorBoard event files into the run directory.")
    wandb: Text | None = _key(None, "Weights & Biases project to log to.")


class SweepSection(Section):
    """Several runs from one recipe: every arm at every point of the grid."""

    arms: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Arm's name -> the keys in which it differs from the recipe."
    )
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict, description="Dotted key -> the list of its values."
    )

    @model_validator(mode="after")
    def _something_differs(self) -> SweepSection:
        if not self.arms and not self.grid:
            raise ValueError("the sweep has neither arms nor a grid; give it some, or remove it")
        return self


# A run ------------------------------------------------------------------------------------------------------------

_Noise = Annotated[InactiveNoiseSection | ActiveNoiseSection | MixedNoiseSection, Field(discriminator="type")]
_Method = Annotated[
    Annotated[PlainMethod, Tag("PlainMethod")]
    | Annotated[OlrMethod, Tag("OlrMethod")]
    | Annotated[ScoreMethod, Tag("ScoreMethod")]
    | Annotated[OwnMethod, Tag("OwnMethod")],
    Discriminator(_tag_of_method),
]
_Engine = Annotated[LocalEngine | OpenRlhfEngine | ExternalEngine, Field(discriminator="name")]


def _kinds(union: Any) -> tuple[str, dict[str, type[Section]]]:
    sections, field = get_args(union)
    tag = field.discriminator
    return tag, {section.model_fields[tag].default: section for section in get_args(sections)}


KINDS: dict[str, tuple[str, Mapping[str, type[Section]]]] = {
    "noise": _kinds(_Noise),
    "method": ("name", {name: row.section for name, row in METHODS.items()}),
    "engine": _kinds(_Engine),
}
"""Sections of several kinds: the key that names the kind, and kind -> its class."""


class Recipe(Section):
    """A run as a whole: everything of ours that decides its result is in here (R18)."""

    name: str = _key(
        "run",
        "Names the run directory: letters, digits and `.`, `_`, `+`, `-`; at most 100 characters.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$",
        max_length=100,
    )
    seed: Whole = _key(0, "Seed of every draw that has no seed of its own.")
    data: DataSection = DataSection()
    noise: _Noise | None = _key(None, "Noise put on the training labels when the run starts; null: none.")
    verifier: VerifierSection | None = _key(None, "Errors of the verifier; null: it makes none.")
    model: ModelSection = ModelSection()
    method: _Method = _key(PlainMethod(), "Which label counts, what is rewarded and which prompts train.")
    train: TrainSection = TrainSection()
    engine: _Engine = _key(LocalEngine(), "The software that generates and optimises.")
    logging: LoggingSection = LoggingSection()
    sweep: SweepSection | None = None

    _of_strangers: frozenset[str] = PrivateAttr(default=frozenset())

    @model_validator(mode="after")
    def _one_rule_for_who_trains(self) -> Recipe:
        if self.method.prompts == "verified" and self.data.verified is None:
            raise ValueError(
                "method.prompts is verified, and no label is verified; name a file of verified labels in data.verified"
            )
        return self

    @model_validator(mode="after")
    def _somebody_asks_the_verifier(self) -> Recipe:
        asks = (
            self.method.row.label in ("given", "refined", "own")
            or self.method.majority_graded_by == "verifier"
        )
        if self.verifier is not None and not (asks and self.method.row.reward == "verifier"):
            raise ValueError(
                f"verifier is set, but {self.method.name} never asks a verifier; remove it, or take another method"
            )
        return self

    @model_validator(mode="after")
    def _the_engine_has_the_keys(self) -> Recipe:
        for key in LOCAL_KEYS:
            if self.engine.name == "openrlhf" and not self.is_default(key):
                raise ValueError(f"{key} is a key of engine.name local alone; remove it, or use that engine")
        return self

    def of_strangers(self, keys: Iterable[str]) -> Recipe:
        """The same recipe, of which these keys stand in a stored file alone, so that they run no code."""
        recipe = self.model_copy()
        recipe._of_strangers = frozenset(keys) & self.code().keys()
        return recipe

    @property
    def strangers(self) -> frozenset[str]:
        """The keys of `code` that stand in a stored file alone."""
        return self._of_strangers

    def code(self) -> dict[str, list[str]]:
        """The keys that make code run which is not olr's, and what they name."""
        rules = self.verifier.where if self.verifier else ()
        named = {
            "data.extractor": [self.data.extractor if is_function(self.data.extractor) else None],
            "method.name": [self.method.name if isinstance(self.method, OwnMethod) else None],
            "verifier.where": [rule.function for rule in rules],
            "model.trust_remote_code": ["true" if self.model.trust_remote_code else None],
        }
        code = {key: [name for name in names if name is not None] for key, names in named.items()}
        return {key: names for key, names in code.items() if names}

    def code_settings(self) -> dict[str, str]:
        """For every key of `code` the words that set it again, after ``--set``."""
        texts = {key: names[0] for key, names in self.code().items()}
        if "verifier.where" in texts:
            assert self.verifier is not None
            rules = [rule.model_dump(mode="json", exclude_none=True) for rule in self.verifier.where]
            texts["verifier.where"] = json.dumps(rules)
        return {key: f"{key}={text}" for key, text in texts.items()}

    def require_named(self, *keys: str) -> None:
        """Refuse to run code that only a stored recipe names, which may be somebody else's; by default of any key."""
        for key in sorted(self._of_strangers.intersection(keys or self._of_strangers)):
            what = "trusts code that comes with the model" if key.startswith("model") else "names a function"
            raise UserError(
                f"only a stored file {what}; if you trust it too, set {self.code_settings()[key]} again", key
            )

    @property
    def can_be_extended(self) -> bool:
        """Whether a run may get more epochs: with a constant learning rate no step depends on how many follow."""
        return self.train.lr_schedule == "constant" and self.train.lr_warmup_ratio == 0

    def digest(self) -> str:
        """A digest of every key that decides the run's result on a CPU, down to rounding: all but `UNDECIDING`.

        Keys at their default are left out, so that a recipe keeps its digest when olr gets new keys. A default that
        changes does change the digests of stored runs.
        """
        values = flatten(self.model_dump(mode="json"))
        deciding = {key: value for key, value in values.items() if _decides(key) and not self.is_default(key)}
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]

    def is_default(self, key: str) -> bool:
        """Whether a dotted key has its default; the key that names the kind of a section never has."""
        section, *names = key.split(".")
        model: Section = getattr(self, section) if names else self
        name = names[0] if names else section
        if section in KINDS and name == KINDS[section][0]:
            return False
        return bool(getattr(model, name) == model.default_of(name))


LOCAL_KEYS = ("train.lora_rank", "train.lora_alpha", "train.lora_layers", "train.top_k", "train.min_p")
"""Keys that the local engine has and OpenRLHF has not; of another trainer they say what it does."""

UNDECIDING = frozenset(
    {
        "name",
        "logging",
        "sweep",
        "train.checkpoint_every",
        "train.keep_checkpoints",
        "train.stop_if_no_reward",
        "engine.trainer",
        "engine.ray_address",
        # Memory.
        "engine.max_batch_tokens",
        "engine.micro_batch_tokens",
        "engine.gradient_checkpointing",
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


def refused_changes(old: Recipe, new: Recipe) -> list[str]:
    """What keeps a run that was begun with `old` from going on with `new`, as ``key: old -> new``; empty: nothing.

    The epochs may be raised: no step before depends on their number, unless the learning rate follows a schedule.
    """
    refused = [change for change in changed_keys(old, new) if not change.startswith("train.epochs:")]
    before, after = old.train.epochs, new.train.epochs
    if after < before:
        refused.append(f"train.epochs: {before} -> {after}, which can only be raised")
    elif after > before and not new.can_be_extended:
        refused.append(
            f"train.epochs: {before} -> {after}, on which the schedule of the learning rate depends"
        )
    return refused


def _decides(key: str) -> bool:
    return key not in UNDECIDING and key.split(".")[0] not in UNDECIDING
