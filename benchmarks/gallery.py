"""The gallery: every figure, made from laptop runs by one command.

    make gallery        (or: python benchmarks/gallery.py; runs that are there already are not made again)
    python benchmarks/gallery.py --only results-by-arm         (this section alone, from the runs that are there)

Trains the sweep ``laptop/gallery``, runs each command of `ENTRIES` in a shell exactly as the page prints it, and
writes docs/gallery.md and the images beside it in docs/gallery/.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
IMAGES, PAGE = HERE / "docs" / "gallery", HERE / "docs" / "gallery.md"

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
        command: as a user types it; ``{out}`` is a folder for the one figure that it draws.
    """

    title: str
    text: str
    command: str

    @property
    def name(self) -> str:
        """The title as the page's address has it, and the image."""
        return "-".join(self.title.lower().replace(",", "").split())


def _figure(title: str, text: str, runs: str, name: str) -> Entry:
    option = f"--over {name}" if "." in name else f"--figure {name}"
    return Entry(title, text, f"olr analyze {runs} {option} --out {{out}}")


ENTRIES = (
    _figure(
        "Training curves",
        "The default figure of `olr analyze`: training curves that need no true answers, one line per arm.",
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
        "Results by arm",
        "The end of training, one dot per run: what `--table arms` compares.",
        STUDY,
        "arms",
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
)

_TYPES = "{ttrl,co_reward,self_certainty,token_entropy,sequence_entropy}"
_MIXED = (
    "{,+confidence_penalty,+label_smoothing,+small_loss_selection,+random_selection,+olr}"
)
TABLES = {
    "the paper's main table": f"{BOTH_NOISES}{{,-0.?}}{{,+olr}}_seed-* --table noise_ratios --paper",
    "every method under 50 % noise": f"{RUNS}/{_TYPES}_seed-* {BOTH_NOISES}{_MIXED}_seed-* --table baselines --paper",
    "ten times as many prompts": f"{BOTH_NOISES}_4k{{,+olr}}_seed-* --table scale_4k --paper",
    "another policy": f"{RUNS}/harder-{{active,inactive}}{{,+olr}}_seed-* --table qwen3_8b --paper",
    "another task": f"{RUNS}/subtraction-{{active,inactive}}{{,+olr}}_seed-* --table llama_8b --paper",
    "how long training took, and the OLR update's part of it": f"{STUDY} --table cost",
}
"""What a table shows -> the words of `olr analyze` that print it."""


def main() -> None:
    """Train, draw, write."""
    arguments = _arguments()
    if not arguments.only:
        _shell(SWEEP.format(jobs=arguments.jobs), HERE, shown=True)
    for entry in ENTRIES:
        if not arguments.only or entry.name in arguments.only:
            _draw(entry)
    if arguments.only:
        took = next(
            line
            for line in PAGE.read_text(encoding="utf-8").splitlines()
            if " runs took " in line
        )
    else:
        for words in TABLES.values():
            _shell(f"olr analyze {words}", HERE)
        took = _took(arguments.jobs, list((HERE / RUNS).glob("*/manifest.json")))
    PAGE.write_text(page(took), encoding="utf-8")
    print(f"Wrote {PAGE}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time"
    )
    names = [entry.name for entry in ENTRIES]
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        metavar="NAME",
        help=f"draw these alone: {', '.join(names)}",
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


def page(took: str) -> str:
    """docs/gallery.md, with a sentence on how long its making took."""
    parts = [
        "# Gallery",
        "Every figure that `olr` makes, with its command. The runs are of the built-in policies on arithmetic: 400"
        " prompts (4,000 in one table), K = 8, 10 epochs, 50 % noise unless stated otherwise, three seeds. `make"
        " gallery` makes runs and page.",
        took,
        "The policies are toy models that were trained to make systematic errors. Which of the paper's findings hold"
        " for them and which do not is in [study.md](results/study.md) and in"
        " [recipes/laptop](../recipes/laptop/README.md).",
    ]
    for entry in ENTRIES:
        command = entry.command.replace("{out}", "figures")
        image = f"![{entry.title}]({IMAGES.name}/{entry.name}.png)"
        parts.append(f"## {entry.title}\n\n{entry.text}\n\n    {command}\n\n{image}")
    tables = "\n".join(
        f"    olr analyze {words}    # {what}" for what, words in TABLES.items()
    )
    parts.append(
        f"## Tables\n\nWith `--format markdown` they are for a paper or a README.\n\n{tables}"
    )
    return "\n\n".join(parts) + "\n"


def _took(jobs: int, runs: list[Path]) -> str:
    seconds = sum(map(_seconds, runs))
    return (
        f"The {len(runs)} runs took {seconds / 3600:.1f} hours in total, or {seconds / jobs / 60:.0f} minutes with"
        f" {jobs} at a time."
    )


def _seconds(manifest: Path) -> float:
    """How long a run was worked on, in all its attempts."""
    attempts = json.loads(manifest.read_text(encoding="utf-8"))["attempts"]
    times = [
        [datetime.fromisoformat(each[key]) for key in ("started", "ended")]
        for each in attempts
    ]
    return sum((end - start).total_seconds() for start, end in times)


def _draw(entry: Entry) -> None:
    """The picture, under the section's name, which stays the same when the page is made again."""
    with tempfile.TemporaryDirectory() as out:
        _shell(entry.command.replace("{out}", out), HERE)
        (file,) = Path(out).glob("*.png")
        shutil.copyfile(file, IMAGES / f"{entry.name}.png")
    print(entry.title)


if __name__ == "__main__":
    main()
