"""The models that recipes and commands name: the folders of the built-in ones, and checks of other people's.

A broken file is reported in one sentence, and none of its content runs as code. transformers and torch are imported by
the functions that need them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from olr_cli.data.arithmetic import BUILTIN_PREFIX, TOYS
from olr_cli.data.hub import hub_answers
from olr_cli.engines.weights import require_stored_weights
from olr_cli.errors import NotHere, UserError, did_you_mean, first_line, no_path
from olr_cli.files import is_out_of_memory, read_text, regular, system_problem

_CONFIGURATION = "config.json"
_PROCESSORS = (
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)
_CODE_FILES = (
    _CONFIGURATION,
    "tokenizer_config.json",
    *_PROCESSORS,
    "generation_config.json",
)
"""Files in which a model can name its own classes (`auto_map`)."""
_GENERATION_CODE = "custom_generate/generate.py"
_ADAPTER = "adapter_config.json"
"""If this file exists, the package peft loads another model, and modules, that the file names."""
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")

SMOLLM, _ON_THE_HUB = "smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct"
NAMES = (*TOYS, SMOLLM)
"""The built-in policies: toys, whose weights are part of the package, and a pretrained model, which is fetched once."""


def is_builtin(path: str) -> bool:
    """Whether a model path begins with ``builtin:``, and so names neither a folder nor a hub id."""
    return path.startswith(BUILTIN_PREFIX)


def policy_path(name: str) -> Path:
    """Return the folder, in Hugging Face layout, of a built-in policy, named with or without ``builtin:``.

    Raises:
        NotHere: the pretrained policy has not been fetched to this machine.
        UserError: there is no built-in policy of this name.
    """
    plain = name.removeprefix(BUILTIN_PREFIX)
    if plain in TOYS:
        return Path(__file__).parent / "local" / "weights" / plain
    if plain != SMOLLM:
        raise UserError(
            f"there is no built-in policy '{plain}'{did_you_mean(plain, NAMES)}",
            f"there are {', '.join(NAMES)}",
        )
    folder = smollm_path()
    if not (folder / "weights.json").is_file():
        raise NotHere(
            f"{BUILTIN_PREFIX}{SMOLLM} is not on this machine",
            "`make smollm` in a clone of the repository puts it into"
            f" {folder}, or, with a network, set model.path to {_ON_THE_HUB}",
        )
    return folder


def smollm_path() -> Path:
    """Return the folder, in the user's cache, into which `make smollm` puts the pretrained policy; it may not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "olr" / SMOLLM


def model_location(path: str) -> str:
    """Return the folder if `path` names a built-in policy; return any other path or hub id unchanged."""
    return str(policy_path(path)) if is_builtin(path) else path


_TRUST = "model.trust_remote_code"


@contextmanager
def loading(model: str | Path) -> Iterator[None]:
    """Turn an exception that transformers raises in the block into a UserError that says why `model` cannot be loaded.

    `model` is a folder or a hub id. For a hub id most errors are NotHere, because the id may be right and only the
    network missing. An error for lack of memory passes unchanged. Call only transformers inside the block: an exception
    from our own code would be reported as a wrong file.
    """
    # Ask the hub before the call: the error afterwards does not always say that the network was missing.
    is_reachable = Path(model).is_dir() or hub_answers()
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise
        if problem := system_problem(error):
            raise UserError.of(
                f"{model} could not be loaded: {problem}", remedy="check the disk"
            ) from error
        if "trust_remote_code" in str(error):
            raise UserError(
                f"{model} comes with code of its own, which is run only if this is set",
                "set it if you trust its author",
                _TRUST,
            ) from error
        reason = first_line(error)
        if not is_reachable:
            reason = "the Hugging Face hub cannot be reached from here, and its local cache has no such model"
        # A hub id may be right and only the network missing, which a dry run notes instead of failing.
        kind = UserError if Path(model).is_dir() else NotHere
        raise kind(
            f"cannot load a model from '{model}' ({reason})",
            "give a folder in Hugging Face layout with safetensors weights, or a hub id",
        ) from error


_TOKENIZER_FILES = ("*token*", "*vocab*", "*.model", "*.tiktoken")
"""Name patterns for the files of every kind of tokenizer. If none is there, transformers makes an empty tokenizer."""


def open_model(
    path: str | Path,
    *,
    trust_remote_code: bool,
    runs_code: bool = False,
    checks_weights: bool = False,
) -> tuple[Any, Any, list[str]]:
    """Check that a model's weights can be loaded, and return its configuration, its tokenizer and notes.

    A note is a sentence about weights that the files hold but the model lacks.

    Args:
        path: folder in Hugging Face layout, or hub id.
        trust_remote_code: whether code that comes with the model may run.
        runs_code: whether the caller's library runs a model's code without asking. If so, a model with code is an
            error unless `trust_remote_code` is true.
        checks_weights: whether the caller checks that the weights are finite. If not, a folder's weights are checked
            here.

    Raises:
        UserError: the model cannot be loaded, has only pickles as weights, or comes with code that must not run.
    """
    from transformers import AutoConfig, AutoTokenizer

    # A hub id is `name` or `owner/name`, so a second slash means a path.
    is_path = (
        isinstance(path, Path) or path.startswith((".", "~", "/")) or path.count("/") > 1
    )
    if is_path and not Path(path).is_dir():
        raise no_path(path, "name a folder in Hugging Face layout, or a hub id")
    require_safetensors(path)
    require_known_code(path, trust_remote_code=trust_remote_code)
    with loading(path):
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
    require_tokenizer(path, config, tokenizer)
    if runs_code and not trust_remote_code and comes_with_code(path):
        raise UserError(
            f"{path} comes with code of its own, which OpenRLHF runs without asking",
            "set model.trust_remote_code to true if you trust its author",
        )
    # The configuration of a hub id lies in the hub's cache, beside the weights.
    folder = Path(_file_of(path, _CONFIGURATION) or path).parent
    if not os.path.isdir(path) and not hub_answers():
        _require_cached_weights(path, folder)
    notes = require_stored_weights(
        path, folder, config, trust_remote_code=trust_remote_code
    )
    if not checks_weights:
        require_finite_files(path)
    return config, tokenizer, notes


def _require_cached_weights(model: str | Path, folder: Path) -> None:
    """Raise NotHere if the hub's local cache holds no weights of the hub id `model`.

    `folder` is the model's place in the cache. Call it only if the hub cannot be reached. A cache may hold
    configuration and tokenizer without weights, because a dry run fetches no weights.
    """
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise NotHere(
            f"the weights of {model} are not in the local cache of the Hugging Face hub ({folder}), and the hub cannot"
            " be reached from here",
            f"fetch them where it can, into the same HF_HOME: hf download {model}",
        )


def load_tokenizer(model: str, *, trust_remote_code: bool) -> Any:
    """Load the tokenizer of a folder or hub id; raise UserError if it cannot be loaded."""
    from transformers import AutoTokenizer

    require_known_code(model, trust_remote_code=trust_remote_code)
    with loading(model):
        return AutoTokenizer.from_pretrained(model, trust_remote_code=trust_remote_code)


def require_known_code(model: str | Path, *, trust_remote_code: bool) -> None:
    """Raise UserError if transformers would run code or load a model that the user has not agreed to.

    transformers itself asks only about code that the configuration names under `auto_map`. Two other cases are checked
    here:

    - The configuration names a kernel on the hub, under a key such as `attn_implementation`. transformers would
      download and run it. This is an error unless `trust_remote_code` is true.
    - The folder holds an adapter. transformers would load the base model that the adapter names. This is always an
      error.
    """
    configuration = _file_of(model, _CONFIGURATION)
    if _file_of(model, _ADAPTER) is not None:
        raise UserError(
            f"{model} is an adapter ({_ADAPTER}), and not a model",
            "merge it into the model that it is for",
        )
    if trust_remote_code or configuration is None:
        return
    for mapping in _mappings(Path(configuration)):
        for key, value in mapping.items():
            is_setting = key.strip("_").endswith(
                ("implementation", "implementation_internal")
            )
            kernel = _hub_kernel(value) if is_setting else None
            if kernel is not None:
                raise UserError(
                    f"{configuration} names the kernel '{kernel}' ({key}), code that would be downloaded and run",
                    f"set this if you trust its author, or remove {key}",
                    _TRUST,
                )


def _hub_kernel(value: object) -> str | None:
    """Return the hub kernel that the value of a setting such as `attn_implementation` names, or None if it names none.

    The value is one name for the whole model, or a mapping from the model's parts to names. A name with a slash is a
    hub kernel.
    """
    values = value.values() if isinstance(value, dict) else [value]
    return next((text for text in values if isinstance(text, str) and "/" in text), None)


def comes_with_code(model: str | Path) -> bool:
    """Whether a model comes with code that transformers runs if it is told to trust the model."""
    if _file_of(model, _GENERATION_CODE) is not None:
        return True
    files = filter(None, (_file_of(model, name) for name in _CODE_FILES))
    return any("auto_map" in mapping for file in files for mapping in _mappings(Path(file)))


def _mappings(file: Path) -> Iterator[Mapping[str, Any]]:
    """Yield every object of a JSON file, at any depth.

    If the file is not JSON, yield nothing: transformers refuses such a file too.
    """
    try:
        # Read it as transformers does, where the last value of a repeated key counts. Another parser could take the
        # first, and let a kernel pass.
        values = [json.loads(read_text(file))]
    except (UserError, ValueError, RecursionError):
        return
    for value in values:  # the loop appends to the list that it walks
        if isinstance(value, dict):
            yield value
            values += value.values()
        elif isinstance(value, list):
            values += value


def _file_of(model: str | Path, name: str) -> str | None:
    """Return the local path of the file `name` of a model, or None if the model has no such file.

    For a hub id, the file is first fetched into the hub's local cache, unless it is there.
    """
    if os.path.isdir(model):
        file = Path(model, name)
        return str(file) if file.exists() else None
    from transformers.utils.hub import cached_file

    with loading(model):
        return cached_file(
            str(model),
            name,
            _raise_exceptions_for_missing_entries=False,
            # Raise for the file that every model has, so that a missing network is found at once. The optional files
            # would each be retried, for half a minute in all.
            _raise_exceptions_for_connection_errors=name == _CONFIGURATION,
        )


def require_tokenizer(model: str | Path, config: Any, tokenizer: Any) -> None:
    """Raise UserError unless there is a tokenizer, and an embedding for every token that prompts and padding use.

    The usual mistake is a pad token that was added to a tokenizer without resizing the model. Unused tokens, such as
    those of images in a text model, may lie beyond the embeddings.
    """
    files = (file for pattern in _TOKENIZER_FILES for file in Path(model).glob(pattern))
    if os.path.isdir(model) and not any(files):
        raise UserError(
            f"{model} has no tokenizer", "save the one that belongs to the model there"
        )
    with loading(model):
        text = config.get_text_config()
    rows = getattr(text, "vocab_size", None)
    beyond = [] if rows is None else _used_beyond(rows, tokenizer)
    if beyond:
        number, token = beyond[0]
        raise UserError(
            f"the tokenizer of {model} has {len(tokenizer):,} tokens, and the model embeddings for {rows:,} alone: its"
            f" token '{token}' is number {number:,}",
            f"once, in Python, model.resize_token_embeddings({len(tokenizer)})"
            " and save it, or let tokenizer.pad_token be one that the model has",
        )


def _used_beyond(rows: int, tokenizer: Any) -> list[tuple[int, str]]:
    """Return id and text of each added token that prompts or padding use although the model has no embedding for it.

    The model has embeddings for the ids below `rows`.
    """
    template = str(getattr(tokenizer, "chat_template", None) or "")
    special = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}
    return sorted(
        (number, token)
        for token, number in tokenizer.get_added_vocab().items()
        # A token in the template becomes part of every prompt.
        if number >= rows and (number in special or token in template)
    )


def context_length(config: Any) -> int | None:
    """Return the most tokens, prompt and response together, that a model is made for, or None if it is unknown.

    For a model that reads images too, the number is in the text model's own part of the configuration.
    """
    limit: int | None = getattr(config.get_text_config(), "max_position_embeddings", None)
    return limit


def processor_files(model: str | Path, config: Any) -> dict[str, bytes]:
    """Return the contents of the files that turn images, videos and sounds into tokens, by file name.

    A text model has none, so the result is empty.
    """
    names = _PROCESSORS if config.get_text_config() is not config else ()
    files = {name: _file_of(model, name) for name in names}
    return {
        name: Path(file).read_bytes() for name, file in files.items() if file is not None
    }


def require_finite(place: str | Path, weights: Iterable[tuple[str, Any]]) -> None:
    """Raise UserError if one of the weights holds NaN or infinity, because such a model cannot answer.

    `weights` yields the name and the tensor of each weight. `place` is the folder, file or hub id that the error names.
    """
    import torch

    for name, weight in weights:
        # aminmax raises for an empty tensor.
        if not weight.is_floating_point() or not weight.numel():
            continue
        # torch has no aminmax for float8, whose numbers are one byte each.
        values = weight.detach() if weight.element_size() > 1 else weight.detach().float()
        if not torch.stack(values.aminmax()).isfinite().all():
            raise UserError(
                f"{place} has weights that are not finite ({name}): a run that diverged, or a damaged copy",
                "take an earlier checkpoint, or download the model again",
            )


def require_finite_files(folder: str | Path) -> None:
    """Raise UserError if a folder's safetensors cannot be read, or hold NaN or infinity.

    A hub id is not checked, because its files need not be on this machine.
    """
    from safetensors import SafetensorError, safe_open

    if not os.path.isdir(folder):
        return
    for file in sorted(Path(folder).glob("*.safetensors")):
        try:
            with safe_open(regular(file), framework="pt") as stored:
                names = stored.keys()
                require_finite(file, ((name, stored.get_tensor(name)) for name in names))
        except SafetensorError as error:
            raise UserError(
                f"{file} is torn ({first_line(error)})", "download the model again"
            ) from None


def require_safetensors(folder: str | Path) -> None:
    """Raise UserError if a folder's only weights are pickles, because loading a pickle may run code.

    A hub id is not checked.
    """
    if not os.path.isdir(folder) or any(Path(folder).glob("*.safetensors")):
        return
    pickles = (file for pattern in _PICKLES for file in sorted(Path(folder).glob(pattern)))
    # transformers' Trainer saves optimizer.pt in its checkpoints; it holds no weights of the model.
    pickle = next((file for file in pickles if file.name != "optimizer.pt"), None)
    if pickle is not None:
        raise UserError(
            f"{folder} has no safetensors weights but {pickle.name}, a format that can hold code",
            "if you trust it,"
            " convert it once, in Python: transformers.AutoModelForCausalLM.from_pretrained(OLD).save_pretrained(NEW),"
            " and the tokenizer likewise",
        )
