"""Names that olr had once and has no more, and what to do instead: the only place that remembers them."""

from __future__ import annotations

from collections.abc import Mapping

DEPARTED: Mapping[str, str] = {
    "method.name: self_training": "verified labels count in every method, or train on them alone:"
    " method.prompts=verified",
    "method.name: trapo": "verified labels count in every method, or train on them alone: method.prompts=verified",
    "olr replay --grid": "use olr replay --set KEY=VALUE, or olr analyze --over KEY for runs that were trained",
    "figure: cost": "use olr analyze --table cost",
    "olr audit --control": "export as many random rows with `--random N`",
    "olr audit --drawn": "give the file with --verified; its column `drawn` says which rows were drawn at random",
    "olr evaluate --examples": "put the solved examples into the prompts of a benchmark's file",
    "olr evaluate --shots": "put the solved examples into the prompts of a benchmark's file",
    "olr runs ls": "`olr runs` lists the runs",
    "olr runs rm": "remove the folders of the runs with `rm -r`",
    "olr doctor": "olr train RECIPE --dry-run says what is missing on this machine",
}
"""A name as its user writes it (`key: value` of a recipe or an option, else words of a command), and a remedy."""


def departed(name: str) -> str | None:
    """What to do without this name, as the end of an error; None if olr never had it."""
    remedy = DEPARTED.get(name)
    return None if remedy is None else f"{name} left olr; {remedy}"
