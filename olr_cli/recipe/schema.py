"""A recipe as a whole: its sections, the keys that decide its result, and the code that it names.

Unknown keys are refused, never ignored. The keys are in `sections.py`, `methods.py` and `verifier.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, get_args

from pydantic import (
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    model_validator,
)

from olr_cli.errors import UserError
from olr_cli.recipe.methods import (
    METHODS,
    OlrMethod,
    OwnMethod,
    PlainMethod,
    ScoreMethod,
    tag_of_method,
)
from olr_cli.recipe.section import Section, Whole, default, flatten
from olr_cli.recipe.sections import (
    ActiveNoiseSection,
    DataSection,
    ExternalEngine,
    InactiveNoiseSection,
    LocalEngine,
    LoggingSection,
    MixedNoiseSection,
    ModelSection,
    OpenRlhfEngine,
    SweepSection,
    TrainSection,
)
from olr_cli.recipe.verifier import VerifierSection
from olr_cli.user_code import is_function

_Noise = Annotated[
    InactiveNoiseSection | ActiveNoiseSection | MixedNoiseSection,
    Field(discriminator="type"),
]
_Method = Annotated[
    Annotated[PlainMethod, Tag("PlainMethod")]
    | Annotated[OlrMethod, Tag("OlrMethod")]
    | Annotated[ScoreMethod, Tag("ScoreMethod")]
    | Annotated[OwnMethod, Tag("OwnMethod")],
    Discriminator(tag_of_method),
]
_Engine = Annotated[
    LocalEngine | OpenRlhfEngine | ExternalEngine, Field(discriminator="name")
]


def _kinds(union: Any) -> tuple[str, dict[str, type[Section]]]:
    """Return the key that selects the kind of a section, and a dictionary: value of this key -> class of the section.

    `union` is the annotated union of the classes. For noise the result is
    ``("type", {"inactive": InactiveNoiseSection, …})``.
    """
    sections, field = get_args(union)
    tag = field.discriminator
    return tag, {
        section.model_fields[tag].default: section for section in get_args(sections)
    }


KINDS: dict[str, tuple[str, Mapping[str, type[Section]]]] = {
    "noise": _kinds(_Noise),
    "method": ("name", {name: row.section for name, row in METHODS.items()}),
    "engine": _kinds(_Engine),
}
"""Section -> (the key that selects its kind, {kind: class}), for sections of several kinds."""


class Recipe(Section):
    """All settings of a run: every setting of olr that can affect the run's result is a key in here (R18)."""

    name: str = default(
        "run",
        "Names the run directory: letters, digits and `.`, `_`, `+`, `-`; at most 100 characters.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$",
        max_length=100,
    )
    seed: Whole = default(0, "Seed of every draw that has no seed of its own.")
    data: DataSection = DataSection()
    noise: _Noise | None = default(
        None, "Noise put on the training labels when the run starts; null: none."
    )
    verifier: VerifierSection | None = default(
        None, "Errors of the verifier; null: it makes none."
    )
    model: ModelSection = ModelSection()
    method: _Method = default(
        PlainMethod(), "Which label counts, what is rewarded and which prompts train."
    )
    train: TrainSection = TrainSection()
    engine: _Engine = default(LocalEngine(), "The software that generates and optimises.")
    logging: LoggingSection = LoggingSection()
    sweep: SweepSection | None = None

    # No field, so that it reaches neither recipe.yaml nor the digest.
    _of_strangers: frozenset[str] = PrivateAttr(default=frozenset())

    @model_validator(mode="after")
    def _verified_prompts_need_verified_labels(self) -> Recipe:
        if self.method.prompts == "verified" and self.data.verified is None:
            raise ValueError(
                "method.prompts is verified, and no label is verified; name a file of verified labels in data.verified"
            )
        return self

    @model_validator(mode="after")
    def _verifier_section_needs_a_verifier(self) -> Recipe:
        asks = (
            self.method.row.label in ("given", "refined", "own")
            or self.method.majority_graded_by == "verifier"
        )
        if self.verifier is not None and not (
            asks and self.method.row.reward == "verifier"
        ):
            raise ValueError(
                f"verifier is set, but {self.method.name} never asks a verifier; remove it, or take another method"
            )
        return self

    @model_validator(mode="after")
    def _refuse_local_only_keys(self) -> Recipe:
        for key in LOCAL_KEYS:
            if self.engine.name == "openrlhf" and not self.is_default(key):
                raise ValueError(
                    f"{key} is a key of engine.name local alone; remove it, or use that engine"
                )
        return self

    def of_strangers(self, keys: Iterable[str]) -> Recipe:
        """Return a copy of the recipe that marks `keys`, and no others, as set by a stored recipe alone.

        A stored recipe lies in the folder of a run, so a stranger may have written it. `require_named` therefore
        refuses to run the code that marked keys name. A key that names no code from outside olr gets no mark.
        """
        recipe = self.model_copy()
        recipe._of_strangers = frozenset(keys) & self.code().keys()
        return recipe

    @property
    def strangers(self) -> frozenset[str]:
        """The dotted keys that name code from outside olr and are set by a stored recipe alone, not by the user.

        `require_named` refuses to run their code.
        """
        return self._of_strangers

    def code(self) -> dict[str, list[str]]:
        """Return a dictionary of all code from outside olr that the recipe runs: dotted key -> names of functions.

        The key `model.trust_remote_code` makes olr run code that comes with the model. Its list is ``["true"]``.
        """
        extractor, method = self.data.extractor, self.method
        rules = self.verifier.where if self.verifier else ()
        named = {
            "data.extractor": [extractor] if extractor and is_function(extractor) else [],
            "method.name": [method.name] if isinstance(method, OwnMethod) else [],
            "verifier.where": [
                rule.function for rule in rules if rule.function is not None
            ],
            "model.trust_remote_code": ["true"] if self.model.trust_remote_code else [],
        }
        return {key: names for key, names in named.items() if names}

    def code_settings(self) -> dict[str, str]:
        """Return a dictionary of all code from outside olr that the recipe runs: dotted key -> setting.

        A setting is a text ``KEY=VALUE``, as a user gives it after ``--set``.
        """
        texts = {key: names[0] for key, names in self.code().items()}
        if "verifier.where" in texts:
            assert self.verifier is not None
            rules = [
                rule.model_dump(mode="json", exclude_none=True)
                for rule in self.verifier.where
            ]
            # JSON is YAML too, so `--set` reads the whole list back.
            texts["verifier.where"] = json.dumps(rules)
        return {key: f"{key}={text}" for key, text in texts.items()}

    def named_again(self) -> list[str]:
        """Return the command-line words by which a user confirms all code from outside olr that the recipe runs.

        The words are ``--set`` and ``KEY=VALUE`` for each key that names such code. Without them, olr does not run code
        that only a stored recipe names.
        """
        return [
            word for setting in self.code_settings().values() for word in ("--set", setting)
        ]

    def require_named(self, *keys: str) -> None:
        """Raise UserError if a key names code from outside olr and only a stored recipe sets it, not the user.

        A stored recipe lies in the folder of a run, and may be a stranger's. `keys` are the dotted keys to check, such
        as ``data.extractor``. If none are passed, all keys are checked.
        """
        for key in sorted(self._of_strangers.intersection(keys or self._of_strangers)):
            deed = (
                "trusts code that comes with the model"
                if key.startswith("model")
                else "names a function"
            )
            raise UserError(
                f"only a stored file {deed}",
                f"if you trust it too, set {self.code_settings()[key]} again",
                key,
            )

    @property
    def can_be_extended(self) -> bool:
        """Whether a run may be resumed with more epochs: only if the learning rate is constant and has no warm-up.

        With any other schedule, the learning rate of steps already done would depend on the number of epochs.
        """
        return self.train.lr_schedule == "constant" and self.train.lr_warmup_ratio == 0

    def digest(self) -> str:
        """Return a digest (16 hex digits) of the keys that can change the result of a run.

        On a CPU, these keys determine the result to the bit. Keys that only concern names, logs, checkpoints, memory
        and hardware (`UNDECIDING`) are left out. Keys at their default are left out too. A stored recipe therefore
        keeps its digest when olr gets new keys, but not when olr changes a default.
        """
        # From the values, not from the text of a file: comments, order and spelling of numbers do not count.
        values = flatten(self.model_dump(mode="json"))
        deciding = {
            key: value
            for key, value in values.items()
            if _decides(key) and not self.is_default(key)
        }
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[
            :16
        ]

    def is_default(self, key: str) -> bool:
        """Return whether a dotted key has its default value.

        A key that selects the kind of a section, such as `method.name`, never counts as default.
        """
        section, *names = key.split(".")
        model: Section = getattr(self, section) if names else self
        name = names[0] if names else section
        # The kind decides the defaults of the section's other keys, so it is always part of the digest.
        if section in KINDS and name == KINDS[section][0]:
            return False
        return bool(getattr(model, name) == model.default_of(name))


LOCAL_KEYS = (
    "train.lora_rank",
    "train.lora_alpha",
    "train.lora_layers",
    "train.top_k",
    "train.min_p",
)
"""Keys that only the local engine supports, not OpenRLHF. For another trainer they describe what it does."""

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
"""Keys, or sections of keys, that a resume may change because they do not decide what is trained.

They change rounding at most. On OpenRLHF they also change which samples of a step share a mini-batch, but its sampling
does not repeat either.
"""


def changed_keys(old: Recipe, new: Recipe) -> list[str]:
    """Return a text ``key: old value -> new value`` for each key that differs and can affect a run's result.

    A key that one of the recipes lacks has the value ``unset``.
    """
    before, after = flatten(old.plain()), flatten(new.plain())
    keys = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
    return [
        f"{k}: {before.get(k, 'unset')} -> {after.get(k, 'unset')}"
        for k in keys
        if _decides(k)
    ]


def refused_changes(old: Recipe, new: Recipe) -> list[str]:
    """Return the changes that forbid continuing a run with the recipe `new`; an empty list if nothing forbids it.

    `old` is the run's recipe. Changes that can affect the result are refused, with one exception: `train.epochs` may be
    raised if the learning rate is constant and has no warm-up (`Recipe.can_be_extended`).

    Each item is a text ``key: old value -> new value``. For `train.epochs` the reason is appended.
    """
    refused = [
        change
        for change in changed_keys(old, new)
        if not change.startswith("train.epochs:")
    ]
    before, after = old.train.epochs, new.train.epochs
    if after < before:
        refused.append(f"train.epochs: {before} -> {after}, which can only be raised")
    elif after > before and not new.can_be_extended:
        refused.append(
            f"train.epochs: {before} -> {after}, on which the schedule of the learning rate depends"
        )
    return refused


def _decides(key: str) -> bool:
    """Return whether a dotted key can affect a run's result: neither the key nor its section is in `UNDECIDING`.

    `UNDECIDING` has the keys that only concern names, logs, checkpoints, memory and hardware.
    """
    return key not in UNDECIDING and key.split(".")[0] not in UNDECIDING
