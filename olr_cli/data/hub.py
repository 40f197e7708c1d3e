"""Load data sets from the Hugging Face hub through the optional package `datasets`, and find out if the hub answers."""

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
"""First major version of datasets that never runs code of a data set."""


@dataclass(frozen=True, slots=True)
class HubId:
    """A data set on the Hugging Face hub, written as ``org/name[/configuration][:split][@revision]``."""

    name: str
    config: str | None
    split: str | None
    revision: str | None


def parse_hub_id(text: str) -> HubId | None:
    """Parse ``org/name[/configuration][:split][@revision]``, or return None if `text` has another form."""
    match = _HUB_ID.fullmatch(text)
    return HubId(**match.groupdict()) if match else None


@cache
def hub_answers() -> bool:
    """Return whether the Hugging Face hub can be reached; if not, switch huggingface_hub to its local cache.

    Without this test, each request for a file takes half a minute on a machine without a network.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_PATIENCE_SECONDS)
    # Any exception: huggingface_hub has changed its HTTP library, and each library has its own errors.
    except Exception:
        constants.HF_HUB_OFFLINE = True
        return False
    return True


def load_hub_table(hub_id: HubId, split: str) -> tuple[pa.Table, str | None]:
    """Load all rows of one split from the network or the local cache.

    Args:
        hub_id: the data set; its revision defaults to the newest commit.
        split: the split if `hub_id` names none.

    Returns:
        The rows and their commit. If the commit is unknown, the revision of `hub_id` (which may be None) takes its
        place.

    Raises:
        NotHere: the package datasets is missing, or the data set cannot be loaded.
        UserError: the package datasets is so old that it can run code of a data set.
    """
    try:
        import datasets
    except ImportError:
        raise NotHere(
            f"no file or folder {hub_id.name}, and loading it from the Hugging Face hub needs the package datasets",
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
    # `datasets` names its cache folder after the commit, so that the commit is known without a network too.
    paths = "\n".join(file["filename"] for file in rows.cache_files)
    commit = re.search(r"[/\\]([0-9a-f]{40})[/\\]", paths)
    return rows.with_format("arrow")[:], commit[1] if commit else hub_id.revision
