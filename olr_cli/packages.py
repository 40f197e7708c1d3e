"""Optional packages: the extra that installs each, and the error if it is missing.

The core (data, noise, answers, supervision, audit, replay, figures, tables) needs none of them.
"""

from __future__ import annotations

import re
from importlib.util import find_spec

from olr_cli.errors import NotHere, causes

EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "tokenizers": "train",
    "safetensors": "train",
    "jinja2": "train",
    "huggingface_hub": "train",
    "vllm": "vllm",
    "datasets": "hub",
    "peft": "lora",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
}
"""Import name of a package -> the extra in pyproject.toml that installs it."""

TESTED = {"torch": "2.13", "transformers": "5.15"}
"""Versions with which the tests compare runs bit for bit (R18); requirements/tested.txt pins the same versions."""


SOURCE = "."
"""The argument of pip that installs olr from a clone of its repository; ``olr-cli`` once olr is on PyPI."""


def install_command(extra: str) -> str:
    """Return the command that adds an optional extra of olr, such as ``train``, to this installation."""
    return f"pip install '{SOURCE}[{extra}]' in a clone of olr"


def not_installed(package: str, needed_by: str) -> NotHere:
    """Build the error for an optional package that is not installed.

    `needed_by` is the command or the recipe's key that needs the package.
    """
    return NotHere(
        f"{needed_by} needs the package {package}, which is not installed",
        f"{install_command(EXTRAS[package])}",
    )


def missing_package(error: ModuleNotFoundError) -> str | None:
    """Return the name of the optional package whose absence made an import fail.

    Return None if the import failed for another reason, such as the absence of a package that no extra of olr installs.
    """
    package = (error.name or "").partition(".")[0]
    # `find_spec`: if the package itself is there, a module inside it is missing, which no installation of ours repairs.
    return package if package in EXTRAS and find_spec(package) is None else None


def unfit_torchvision(error: BaseException) -> str | None:
    """Return what to tell the user if an import failed because torchvision was built for another torch, else None.

    transformers imports torchvision if torchvision is installed. If this import fails, the error of transformers names
    only one of its own classes, not the reason.
    """
    from importlib import metadata

    here = installed_version("torchvision")
    if here is None or not any("torchvision" in str(cause) for cause in causes(error)):
        return None
    # A wheel of torchvision names the one version of torch that it was built for.
    needs = " ".join(metadata.requires("torchvision") or ())
    built_for = re.search(r"\btorch *\(?==([\w.+]+)", needs)
    return (
        f"torchvision {here} was built for torch {built_for[1] if built_for else 'of another version'}, and torch"
        f" {installed_version('torch')} is installed, so transformers cannot be imported; remove it (pip uninstall"
        " torchvision: olr does not need it), or install the one that was built for this torch"
    )


def installed_version(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    # Imported here: it takes 15 ms, which every command would pay at its start.
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def is_version(version: str, wanted: str) -> bool:
    """Return whether a version begins with the parts of `wanted`: 2.13.0+cpu begins with 2.13, but 2.130 does not."""
    return f"{version.partition('+')[0]}.".startswith(f"{wanted}.")


def untested_versions() -> list[str]:
    """Return a list with one note if torch or transformers is not in its tested version, else an empty list (R18).

    The note, for a run's manifest, says that only the versions in `TESTED` are known to repeat a run bit for bit.
    """
    installed = {name: installed_version(name) or "absent" for name in TESTED}
    others = [
        name for name, version in TESTED.items() if not is_version(installed[name], version)
    ]
    if not others:
        return []
    here, tested = (
        " and ".join(f"{name} {of[name]}" for name in others) for of in (installed, TESTED)
    )
    return [f"that runs repeat bit for bit was tested with {tested}, not with {here}"]
