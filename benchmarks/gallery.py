"""The gallery: every figure and table, made from laptop runs by one command.

    make gallery        (or: python benchmarks/gallery.py; runs that are there already are not made again)
    python benchmarks/gallery.py --only cost-of-a-step      (this section alone, from the runs that are there)

Trains the sweep ``laptop/gallery``, runs each command of `ENTRIES` in a shell exactly as the page prints it, and
writes docs/gallery.md and the images beside it in docs/gallery/. The page says how long its making took.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

SWEEP = "olr train laptop/gallery --sweep --jobs {jobs}"

RUNS = "runs/gallery"
STUDY = RUNS + "/{clean,inactive,inactive+olr,active,active+olr}_seed-*"
BOTH_NOISES = RUNS + "/{active,inactive}"


@dataclass(frozen=True)
class Entry:
    """One thing to look at.

    Attributes:
        title: of the section.
        text: what a reader should see in it.
        command: as a user types it; ``{out}`` is a folder for figures.
        shows: the one figure that it draws into ``{out}``, or what it prints: a table in Markdown, or plain text.
    """

    title: str
    text: str
    command: str
    shows: Literal["figure", "table", "text"]

    @property
    def name(self) -> str:
        """The title as the page's address has it, and the image."""
        return "-".join(self.title.lower().replace(",", "").split())


def _figure(title: str, text: str, runs: str, name: str) -> Entry:
    option = f"--over {name}" if "." in name else f"--figure {name}"
    return Entry(title, text, f"olr analyze {runs} {option} --out {{out}}", "figure")


def _table(title: str, text: str, runs: str, name: str, *, published: bool = True) -> Entry:
    compare = " --paper" if published else ""
    command = f"olr analyze {runs} --table {name}{compare} --format markdown"
    return Entry(title, text, command, "table")


ENTRIES = (
    _figure(
        "How training went",
        "What needs no true answers: the default of `olr analyze`, with a line an arm.",
        f"{RUNS}/{{clean,active,active+olr}}_seed-*",
        "learning",
    ),
    _figure(
        "Early Correctness Coherence",
        "Majority accuracy on clean and on noisy prompts, by epoch.",
        STUDY,
        "coherence",
    ),
    _figure(
        "Training dynamics, active noise",
        "Which labels OLR replaces, how many of them rightly, and how the run develops.",
        f"{RUNS}/active+olr_seed-*",
        "dynamics",
    ),
    _figure(
        "Training dynamics, inactive noise",
        "The same under wrong labels that the policy never produces.",
        f"{RUNS}/inactive+olr_seed-*",
        "dynamics",
    ),
    _figure(
        "Where the rewards come from",
        "Whether the majority on noisy prompts is the true answer, the noisy label or another one, with and"
        " without OLR.",
        f"{RUNS}/{{active,active+olr}}_seed-*",
        "composition",
    ),
    _figure(
        "What arms come to",
        "The end of training, a dot a run: what `--table arms` compares.",
        STUDY,
        "arms",
    ),
    _table(
        "Noise ratios", "The paper's main table.", f"{BOTH_NOISES}{{,-0.?}}{{,+olr}}_seed-*", "noise_ratios"
    ),
    _table(
        "Baselines",
        "Every method under 50 % noise.",
        f"{RUNS}/{{ttrl,co_reward,self_certainty,token_entropy,sequence_entropy}}_seed-*"
        f" {BOTH_NOISES}{{,+confidence_penalty,+label_smoothing,+small_loss_selection,+random_selection,+olr}}_seed-*",
        "baselines",
    ),
    _table(
        "More prompts",
        "Ten times as many prompts, in the same number of epochs.",
        f"{BOTH_NOISES}_4k{{,+olr}}_seed-*",
        "scale_4k",
    ),
    _table(
        "Another policy",
        "The harder built-in policy stands in for the paper's larger model.",
        f"{RUNS}/harder-{{active,inactive}}{{,+olr}}_seed-*",
        "qwen3_8b",
    ),
    _table(
        "Another task",
        "Subtraction, on which no setting was tuned, stands in for the paper's other model family.",
        f"{RUNS}/subtraction-{{active,inactive}}{{,+olr}}_seed-*",
        "llama_8b",
    ),
    _figure(
        "Ablation",
        "What each criterion selects, how often, and where the policy ends.",
        f"{BOTH_NOISES}{{,+olr,+consistency,+slope,+every_majority}}_seed-*",
        "method.criteria",
    ),
    _figure(
        "Sensitivity",
        "The score against the slope threshold; `--over KEY` draws it over any key.",
        f"{BOTH_NOISES}{{,+olr,+olr_*}}_seed-*",
        "method.slope_threshold",
    ),
    _figure("Cost of a step", "Median seconds of each part of a training step.", STUDY, "cost"),
    _table("Cost of a step, as a table", "How much time OLR adds to a step.", STUDY, "cost", published=False),
    Entry(
        "A grid of replays",
        "Which labels other settings would have selected, computed from one stored run without training.",
        f"olr replay {RUNS}/active+olr_seed-1 --grid default --out {{out}}",
        "figure",
    ),
    Entry(
        "An audit",
        "Which labels look wrong, from the rollouts of a run that never saw a repaired label ([more](audit.md)).",
        f"olr audit {RUNS}/active_seed-1",
        "text",
    ),
)


def main() -> None:
    """Train, draw, write."""
    arguments = _arguments()
    here = Path(__file__).resolve().parent.parent
    images, page = here / "docs" / "gallery", here / "docs" / "gallery.md"
    images.mkdir(exist_ok=True)
    if arguments.only:
        head, *old = re.split(r"\n+(?=## )", page.read_text(encoding="utf-8").rstrip())
        sections = {section.partition("\n")[0].removeprefix("## "): section for section in old}
        sections |= {
            entry.title: _section(entry, here, images) for entry in ENTRIES if entry.name in arguments.only
        }
        parts = [head, *(sections[entry.title] for entry in ENTRIES if entry.title in sections)]
        page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
        return
    before = _runs(here)
    began = time.perf_counter()
    _shell(SWEEP.format(jobs=arguments.jobs), here, shown=True)
    trained = time.perf_counter() - began
    sections = [_section(entry, here, images) for entry in ENTRIES]
    whole = time.perf_counter() - began
    runs = _runs(here)
    parts = [*_head(arguments.jobs, runs, len(runs) - len(before), trained, whole), *sections]
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"Wrote {page}")


def _runs(folder: Path) -> list[Path]:
    return list((folder / RUNS).glob("*/manifest.json"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    names = [entry.name for entry in ENTRIES]
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="NAME", help=f"sections: {', '.join(names)}"
    )
    return parser.parse_args()


def _shell(command: str, folder: Path, *, shown: bool = False) -> str:
    """What a command prints, in bash, with the `olr` of this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=os.environ | {"PATH": path, "COLUMNS": "100"},
        stdout=None if shown else subprocess.PIPE,
        stderr=None if shown else subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command}\n{done.stderr or ''}exit status {done.returncode}")
    return done.stdout or ""


def _head(jobs: int, runs: list[Path], new: int, trained: float, whole: float) -> list[str]:
    together = sum(map(_seconds, runs))
    made = f"{trained / 60:.0f} minutes for {new} runs, {jobs} at a time, and " if new else ""
    return [
        "# Gallery",
        "This page shows every figure that `olr` makes and the tables that are no twin of one, with the command for"
        " each and the seconds it took."
        " They come from runs of the built-in policies on arithmetic: 400 prompts (4,000 in one table), K = 8, 10"
        " epochs, 50 % noise unless stated otherwise, three seeds. `make gallery` makes the page. On"
        f" {os.cpu_count()} {platform.machine()} cores it took {made}{(whole - trained) / 60:.1f} minutes for the"
        f" commands below. According to their manifests the {len(runs)} runs took {together / 3600:.1f} hours in total,"
        f" or {together / jobs / 60:.0f} minutes with {jobs} at a time.",
        "Notes that the commands print below a table are left out here. The policies are toys that were made to err"
        " systematically. Which of the paper's findings hold for them and"
        " which do not is in [study.md](study.md) and in [recipes/laptop](../recipes/laptop/README.md).",
    ]


def _seconds(manifest: Path) -> float:
    """How long a run was worked on, in all its attempts."""
    attempts = json.loads(manifest.read_text(encoding="utf-8"))["attempts"]
    times = [[datetime.fromisoformat(each[key]) for key in ("started", "ended")] for each in attempts]
    return sum((end - start).total_seconds() for start, end in times)


def _section(entry: Entry, folder: Path, images: Path) -> str:
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        printed = _shell(entry.command.replace("{out}", out), folder).rstrip()
        seconds = time.perf_counter() - began
        if entry.shows == "figure":
            (file,) = Path(out).glob("*.png")
            shown = _image(entry, file, images)
        else:
            shown = _without_notes(printed) if entry.shows == "table" else f"```text\n{printed}\n```"
    print(f"{entry.title}: {seconds:.1f} s")
    command = entry.command.replace("{out}", "figures")
    return f"## {entry.title}\n\n{entry.text} ({seconds:.0f} s)\n\n    {command}\n\n{shown}"


def _without_notes(table: str) -> str:
    """A table in Markdown without the list below it."""
    return "\n".join(line for line in table.splitlines() if not line.startswith("- ")).rstrip()


def _image(entry: Entry, file: Path, images: Path) -> str:
    """Copied under the section's name, which stays the same when the page is made again."""
    shutil.copyfile(file, images / f"{entry.name}.png")
    return f"![{entry.title}]({images.name}/{entry.name}.png)"


if __name__ == "__main__":
    main()
