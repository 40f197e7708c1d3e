"""Requirements of a job on OpenRLHF: packages, a compiler, the CUDA toolkit, and a Ray that answers.

Only a dry run checks most of them: a run without them ends with an error of DeepSpeed or Ray. A run checks only those
without which it would hang, or end without a hint at the remedy: `require_…`.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from olr_cli.engines.openrlhf import WRITTEN_FOR
from olr_cli.engines.openrlhf.flags import INSTALL, cluster_address
from olr_cli.engines.openrlhf.process import temporary_folder
from olr_cli.engines.run import engine_section
from olr_cli.errors import NotHere, first_line
from olr_cli.packages import installed_version, is_version
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import OpenRlhfEngine

_PATIENCE_SECONDS = 5
"""Seconds to wait for a Ray cluster to accept a connection."""

_LONGEST_FOLDER = 107 - len(
    "/ray/session_2026-11-28_19-24-47_123456_1234567/sockets/plasma_store"
)
"""Bytes in a folder's name: Linux allows 107 for a socket's name, and process ids have up to seven digits."""

_DRIVER = Path("/proc/driver/nvidia/version")

_OPERATIONS = ("cpu_adam", "deepspeed_shm_comm", "fused_adam")
"""Extensions that DeepSpeed compiles when a job first needs them."""


def missing_here(recipe: Recipe) -> Iterator[str]:
    """Yield a sentence about each thing that a job needs and this machine lacks, for a dry run to show.

    This function looks for packages, a C++ compiler, the CUDA toolkit, and a Ray that answers at the recipe's address.
    Without them, a run would start and end with an error of DeepSpeed or Ray. All other requirements are checked before
    every run, in checks.py and by the `require_…` functions of this file.
    """
    device, address = engine_section(recipe, OpenRlhfEngine).device, cluster_address(recipe)
    # Without openrlhf, `require_openrlhf` says in one sentence how to install everything.
    if installed_version("openrlhf") is not None:
        for package in ("ray", "deepspeed", *(["vllm"] if device == "cuda" else [])):
            if installed_version(package) is None:
                yield f"the package {package} is not installed here; {INSTALL}"
    if address is not None:
        yield from _cluster_problem(address)
    elif device == "cuda":
        compiler = os.environ.get("CXX") or "c++"
        if shutil.which(compiler.split()[0]) is None:
            yield f"there is no C++ compiler ({compiler}), and DeepSpeed compiles its Adam; install g++"
        yield from _toolkit_problem()


def version_warnings() -> list[str]:
    """Return a list with one sentence about all packages in untested versions; empty if there are none.

    OpenRLHF is left out, because checks.py refuses any other version of it.
    """
    installed = {
        package: installed_version(package)
        for package in WRITTEN_FOR
        if package != "openrlhf"
    }
    other = {
        name: here
        for name, here in installed.items()
        if here and not is_version(here, WRITTEN_FOR[name])
    }
    if not other:
        return []
    here = ", ".join(f"{package} {version}" for package, version in other.items())
    tested = ", ".join(f"{package} {WRITTEN_FOR[package]}" for package in other)
    return [f"the engine openrlhf was tested with {tested}, not with {here}; {INSTALL}"]


def require_unlocked() -> None:
    """Raise `NotHere` if a killed build of DeepSpeed has left a lock, for which a new build would wait for ever."""
    for lock in stale_locks():
        raise NotHere(
            f"{lock} is there and no process of this machine has it open: DeepSpeed's build was killed, and each start"
            " waits for its end",
            "remove the file, unless another machine is compiling into that folder now",
        )


def require_usable_gpus() -> None:
    """Raise `NotHere` if there are GPUs that torch cannot use, most often because the driver is too old."""
    import torch

    # `device_count` asks only the driver, and `is_available` also CUDA.
    if torch.cuda.device_count() and not torch.cuda.is_available():
        raise NotHere(
            f"torch cannot use the GPUs here: it is made for CUDA {torch.version.cuda}, and the driver is"
            f" {driver_version() or 'of an unknown version'}",
            "have the driver updated (CUDA 13 needs 580 or newer); if it is new enough, `nvidia-smi` may say what is"
            " wrong",
        )


def driver_version(file: Path = _DRIVER) -> str | None:
    """Return the version of the NVIDIA driver, such as ``580.65.06``, or None if it is unknown.

    `file` is the driver's version file in /proc.
    """
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    release = re.search(r"Kernel Module\b.*?\s(\d+\.[\d.]+)", text)
    return release[1] if release else None


def require_short_folder() -> None:
    """Raise `NotHere` if Ray's sockets in the temporary folder would have longer names than Linux allows."""
    name = "RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR"
    folder = temporary_folder()
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        raise NotHere(
            f"Ray puts its sockets below {folder} ({name}), whose name has more than the {_LONGEST_FOLDER} bytes that"
            " are allowed",
            'name a shorter folder: export RAY_TMPDIR="/tmp/$USER"',
        )


def stale_locks(folder: Path | None = None) -> list[Path]:
    """Return the lock files that killed builds of DeepSpeed's extensions have left.

    torch makes a lock file, keeps it open while it compiles, and then removes it. A lock that no process of this
    machine has open is therefore left over. `folder` is where the compiled extensions are. By default, it is the folder
    where torch keeps them.
    """
    if folder is None and (kept := os.environ.get("TORCH_EXTENSIONS_DIR")):
        folder = Path(kept)
    cache = Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "torch_extensions"
    )
    folders = (
        [folder]
        if folder
        else cache.glob(f"py{sys.version_info.major}{sys.version_info.minor}*")
    )
    locks = [
        lock
        for folder in folders
        for name in _OPERATIONS
        for lock in folder.glob(f"{name}/lock")
    ]
    # A build may have ended, and removed its lock, since the folder was listed.
    return [lock for lock in locks if not _is_open(lock) and lock.exists()]


def _is_open(file: Path) -> bool:
    """Return whether a process of this machine has the file open.

    Processes whose files this user may not see, such as other users', are not counted.
    """
    for opened in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # closed meanwhile, or another user's
            if opened.samefile(file):
                return True
    return False


def _cluster_problem(address: str) -> Iterator[str]:
    """Yield a sentence if no connection to a Ray cluster's address succeeds within 5 seconds; otherwise nothing.

    For ``auto`` and ``local``, which are not addresses, nothing is yielded.
    """
    if address in ("auto", "local"):  # no address: Ray itself looks for a cluster
        return
    try:
        parts = urlsplit(address if "//" in address else f"//{address}")
        socket.create_connection(
            (parts.hostname, parts.port or 0), timeout=_PATIENCE_SECONDS
        ).close()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        yield (
            f"no Ray answers at {address} ({why}); start it there (ray start --head), or correct"
            " engine.ray_address or the variable RAY_ADDRESS"
        )


def _toolkit_problem() -> Iterator[str]:
    """Yield a sentence if the CUDA toolkit with which DeepSpeed compiles is missing or is not of torch's version.

    Any two versions 12.x count as the same, because DeepSpeed accepts them too. Nothing is yielded if torch has no CUDA
    or the variable DS_SKIP_CUDA_CHECK is 1.
    """
    import torch

    if torch.version.cuda is None or os.environ.get("DS_SKIP_CUDA_CHECK") == "1":
        return
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    in_path = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    nvcc = str(Path(home, "bin", "nvcc")) if home else in_path
    here, wanted = _release_of(nvcc), ".".join(torch.version.cuda.split(".")[:2])
    if here == wanted or (wanted.startswith("12.") and (here or "").startswith("12.")):
        return
    found = f"the CUDA toolkit is {here} ({nvcc})"
    if here is None:
        found = f"there is no CUDA toolkit ({nvcc})"
    yield (
        f"{found}, and DeepSpeed compiles its Adam with {wanted}, torch's version; install that and set CUDA_HOME to"
        " its folder, or set DS_SKIP_CUDA_CHECK=1"
    )


def _release_of(nvcc: str) -> str | None:
    """Return the version of the CUDA compiler at the path `nvcc`, such as ``12.8``; None if it does not run."""
    try:
        ended = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    release = re.search(r"release (\d+\.\d+)", ended.stdout)
    return release[1] if release else None
