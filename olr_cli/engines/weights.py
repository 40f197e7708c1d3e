"""Checks that a model's files hold all of its weights (R22a): transformers would draw a missing weight at random.

The headers of safetensors files hold names, types and shapes. transformers itself loads them into a model on torch's
meta device. Its own rules for renaming, joining of experts and tying therefore count, and 70 billion parameters take no
memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from olr_cli.errors import UserError
from olr_cli.files import read_json, regular

_NOT_JOINED = "automatic conversion of the weights"
"""Part of transformers' error message if weights that are stored in parts, such as experts, cannot be joined."""

Headers = Mapping[str, tuple[str, Sequence[int]]]
"""Type and shape of every stored weight, as safetensors files record them."""


def require_stored_weights(
    model: str | Path, folder: Path, config: Any, *, trust_remote_code: bool
) -> list[str]:
    """Check from the files in `folder` that a model's weights are complete, before anything is loaded.

    `model` is the name in errors. Quantised models cannot be checked, because their names and shapes differ between
    formats. Models for which transformers has no class cannot either. Both kinds pass.

    Returns:
        An empty list, or a list with a sentence about surplus weights, which the files hold but the model lacks.

    Raises:
        UserError: weights are missing, have other shapes than the configuration asks for, or belong to an adapter that
            is not merged.
    """
    stored = {} if _is_quantised(config) else _headers(model, folder)
    if not stored:
        return []
    _require_unquantised(model, stored)
    try:
        report = _rehearsed_load(config, stored, trust_remote_code=trust_remote_code)
    # transformers may lack the class, or the class may not support the meta device: then nothing can be checked.
    except Exception as error:
        if _NOT_JOINED not in str(error):
            return []
        raise UserError(
            f"the files of {model} lack a part of a weight that transformers puts together, such as one of a layer's"
            " experts, or hold it in another shape",
            "download the model again",
        ) from None
    return require_weights(model, config, report)


def _require_unquantised(model: str | Path, stored: Headers) -> None:
    """Raise UserError if a stored weight is quantised.

    Call it only for a model whose configuration does not say how its weights are quantised. Quantised weights are
    integers, or float8 with a scale beside them.
    """
    scales = [name for name in stored if "scale" in name]
    for name, (kind, _) in stored.items():
        # Experts that are stored in one weight end in `proj`. Masks and positions are skipped: they may be integers.
        if not name.endswith(("weight", "proj")):
            continue
        layer = name.removesuffix("weight")
        # float8 alone may be a number. With a scale for the same layer beside it, it is a code.
        is_scaled = kind.startswith("F8") and any(
            other.startswith(layer) for other in scales
        )
        if kind[0] in "IU" or is_scaled:
            raise UserError(
                f"the files of {model} hold {name} as {kind}, the codes of a quantised model, and its configuration has"
                " no quantization_config to read them by",
                "take the model before it was quantised, or save it again",
            )


def require_weights(model: str | Path, config: Any, report: Mapping[str, Any]) -> list[str]:
    """Check transformers' report on loading a model, and return a list with a sentence on surplus weights in the files.

    The list is empty if there are no surplus weights. `report` is the second value that `from_pretrained` returns with
    `output_loading_info`.

    Raises:
        UserError: weights are missing, have other shapes than the configuration asks for, or belong to an adapter that
            is not merged.
    """
    # The model's class may compute these buffers itself, so a file without them is complete.
    missing = [
        name
        for name in report["missing_keys"]
        if not name.endswith(("inv_freq", "masked_bias"))
    ]
    surplus = _first_names(report["unexpected_keys"])
    if missing and not _is_quantised(config):
        others = (
            f", and they hold others that it does not have ({surplus})" if surplus else ""
        )
        raise UserError(
            f"the files of {model} lack {len(missing)} of the weights that its configuration asks for"
            f" ({_first_names(missing)}){others}: transformers would draw them at random",
            "download the model again, or save it"
            " again whole, unwrapped and with its adapters merged",
        )
    for name, *shapes in sorted(report["mismatched_keys"]):
        has, asked = (" x ".join(map(str, shape)) for shape in shapes)
        raise UserError(
            f"the files of {model} hold {name} in the shape {has}, and its configuration asks for {asked}",
            "give the configuration that belongs to the weights, or save the model again",
        )
    if adapters := [name for name in report["unexpected_keys"] if ".lora_" in name]:
        raise UserError(
            f"the files of {model} hold an adapter that is not merged ({_first_names(adapters)}), to be left out",
            "merge it, in Python with peft's merge_and_unload, and save the model again",
        )
    left_out = "weights that its configuration does not ask for, and they are left out"
    return [f"the files of {model} hold {left_out} ({surplus})"] if surplus else []


def _is_quantised(config: Any) -> bool:
    """Whether a model's configuration says how its weights are quantised."""
    return getattr(config, "quantization_config", None) is not None


def _headers(model: str | Path, folder: Path) -> Headers:
    """Return dtype and shape of each stored weight, by name, from the files that transformers loads.

    The result is empty if a file cannot be read, because the code that later reads the weights reports that.
    """
    from safetensors import SafetensorError, safe_open

    stored: dict[str, tuple[str, Sequence[int]]] = {}
    for name in _loaded_files(model, folder):
        try:
            with safe_open(regular(folder / name), framework="pt") as file:
                for weight in file.keys():  # noqa: SIM118
                    header = file.get_slice(weight)
                    stored[weight] = header.get_dtype(), header.get_shape()
        # The code that reads the weights reports a damaged file in a sentence of its own.
        except (
            OSError,
            SafetensorError,
        ):
            return {}
    return stored


def _loaded_files(model: str | Path, folder: Path) -> Iterator[str]:
    """Yield the names of the weight files that transformers loads: the single file, or else those that the index names.

    If there is neither, the name of the single file is yielded.

    Raises:
        UserError: the index cannot be used, or a file that it names is missing.
    """
    index, whole = folder / "model.safetensors.index.json", "model.safetensors"
    if (folder / whole).is_file() or not index.is_file():
        yield whole
        return
    try:
        names = sorted(set(read_json(index)["weight_map"].values()))
    except (AttributeError, KeyError, TypeError):
        raise UserError(
            f"{index} does not name the files of the weights (weight_map)",
            "download the model again",
        ) from None
    for name in names:
        if not (folder / name).is_file():
            raise UserError(
                f"{model} lacks {name}, which its index names", "download the model again"
            )
        yield name


def _rehearsed_load(
    config: Any, stored: Headers, *, trust_remote_code: bool
) -> Mapping[str, Any]:
    """Return transformers' report on loading weights of these names and shapes, without reading the weights themselves.

    `stored` has type and shape of each weight, by name. The report lists missing, unexpected and mismatched weights.
    Exceptions of transformers are passed on.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # its report would be about a load that never happens
    weights = {
        name: torch.empty(shape, device="meta") for name, (_, shape) in stored.items()
    }
    try:
        with torch.random.fork_rng(devices=[]):  # making a model draws random numbers
            with torch.device("meta"):
                made: Any = AutoModelForCausalLM.from_config(
                    config, trust_remote_code=trust_remote_code
                )  # type: ignore[no-untyped-call]
            _, report = type(made).from_pretrained(
                None,
                config=made.config,  # the text part alone, for a class that takes only this part
                state_dict=weights,
                device_map={"": "meta"},
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                trust_remote_code=trust_remote_code,
            )
    finally:
        logging.set_verbosity(verbosity)
    return dict(report)


def _first_names(names: Sequence[str]) -> str:
    """Return the first three names, in sorted order, as text, with "…" if there are more."""
    return ", ".join(sorted(names)[:3]) + (", …" if len(names) > 3 else "")
