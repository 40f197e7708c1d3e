"""The Hugging Face hub: whether it answers, and data sets from it through the optional package `datasets`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from olr_cli.errors import NotHere, UserError
from olr_cli.packages import install_command

_HUB_ID = re.compile(
    r"(?P<name>\w[\w.-]*/\w[\w.-]*)(?:/(?P<config>[\w.-]+))?(?::(?P<split>[\w.\[\]:%+-]+))?(?:@(?P<revision>[\w./-]+))?"
)

_PATIENCE_SECONDS = 10
_WITHOUT_SCRIPTS = 4
"""The first version of datasets that reads data sets as data only."""


@dataclass(frozen=True, slots=True)
class HubId:
    """``org/name[/configuration][:split][@revision]``."""

    name: str
    config: str | None
    split: str | None
    revision: str | None


def parse_hub_id(text: str) -> HubId | None:
    """The hub id that `text` is; None if it has another form."""
    match = _HUB_ID.fullmatch(text)
    return HubId(**match.groupdict()) if match else None


@cache
def hub_answers() -> bool:
    """Whether the hub can be reached; if not, only its local cache is used from now on.

    Without this, each request for a file takes half a minute on a machine without a network.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_PATIENCE_SECONDS)
    # Each HTTP library that huggingface_hub has used has errors of its own
    except Exception:
        constants.HF_HUB_OFFLINE = True
        return False
    return True


def load_hub_table(hub_id: HubId, split: str) -> tuple[pa.Table, str | None]:
    """All rows of one split, from the network or the local cache, and the commit they are from.

    The revision of `hub_id` defaults to the newest commit; `split` counts where `hub_id` names none.
    """
    try:
        import datasets
    except ImportError:
        raise NotHere(
            f"no file or folder {hub_id.name}, and loading it from the Hugging Face hub needs another package",
            f"install it: {install_command('hub')}",
        ) from None
    if int(datasets.__version__.partition(".")[0]) < _WITHOUT_SCRIPTS:
        raise UserError(
            f"the package datasets {datasets.__version__} can run code that comes with a data set",
            f"install a later one, which cannot: {install_command('hub')}",
        )
    try:
        rows = datasets.load_dataset(
            hub_id.name,
            hub_id.config,
            split=hub_id.split or split,
            revision=hub_id.revision,
        )
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:240] or type(error).__name__
        raise NotHere(
            f"{hub_id.name} could not be loaded from the Hugging Face hub ({reason})",
            "check network and name, as in"
            " org/name/configuration:split@revision, or name a local file",
        ) from None
    # The commit names the folder of the cache of `datasets`, so it is known without a network too.
    paths = "\n".join(file["filename"] for file in rows.cache_files)
    commit = re.search(r"[/\\]([0-9a-f]{40})[/\\]", paths)
    return rows.with_format("arrow")[:], commit[1] if commit else hub_id.revision
