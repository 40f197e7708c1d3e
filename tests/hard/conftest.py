"""A workshop for tests of hard use: small data and recipes, and commands that start at once."""

import os
import random
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from filelock import FileLock
from forks import Command, Plan, olr

MODEL = "builtin:addition-easier"
RECIPE = """\
name: tiny
data: {train: train.jsonl, validation: validation.jsonl, test: test.jsonl, extractor: reversed_digits}
noise: {type: active, ratio: 0.5}
model: {path: "builtin:addition-easier"}
method: {name: olr, slope_threshold: 0, warmup_epochs: 1}
train:
  epochs: 5
  prompts_per_step: 6
  mini_batch_prompts: 3
  rollouts_per_prompt: 4
  learning_rate: 1.0e-3
  max_new_tokens: 5
  checkpoint_every: 3
  evaluate_every: 2
  keep_checkpoints: 2
engine: {name: local, device: cpu, threads: 1}
"""
STEPS = 10


@dataclass
class Workshop:
    """A folder with data and a recipe in which tests run `olr` commands, some to be killed or disturbed.

    A `command` is train, evaluate or rollouts, and stands for a whole command line.
    """

    folder: Path
    """This process's own."""

    shared: Path
    """Receives the output of each undisturbed command, once for all processes that run tests."""

    _seconds: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def words(command: str, out: Path) -> list[str]:
        """Return the command line of a command that writes to `out`."""
        if command == "train":
            return ["train", "tiny.yaml", "--run-dir", str(out)]
        if command == "evaluate":
            small = [
                "--samples",
                "4",
                "--limit",
                "60",
                "--max-new-tokens",
                "6",
                "--backend",
                "transformers",
            ]
            return ["evaluate", MODEL, *small, "--out", str(out)]
        small = [
            "--visits",
            "3",
            "--samples",
            "4",
            "--prompts-per-step",
            "4",
            "--max-new-tokens",
            "6",
        ]
        read = [
            "--extractor",
            "reversed_digits",
            "--backend",
            "transformers",
            "--run-dir",
            str(out),
        ]
        return ["rollouts", MODEL, "train.jsonl", *small, *read]

    @classmethod
    def words_to_go_on(cls, command: str, out: Path) -> list[str]:
        """Return the command line that continues a command, wherever it stopped: with --resume if `out` has a run."""
        resumes = command != "evaluate" and (out / "manifest.json").exists()
        return cls.words(command, out) + ["--resume"] * resumes

    def place(self, name: str) -> Path:
        """Return a path of this name in the workshop where nothing is; what was there is removed."""
        place = self.folder / "places" / name
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(exist_ok=True)
        return place

    def start(self, command: str, out: Path, plan: Plan | None = None) -> Command:
        """Start a command, or continue one that was stopped, without waiting for it; `plan` is a fault to cause."""
        return Command(self.folder, *self.words_to_go_on(command, out), plan=plan)

    def olr(
        self, *words: object, plan: Plan | None = None, is_read: bool = True
    ) -> tuple[int, Command]:
        """Run `olr` in the workshop's folder; return its exit status and the command with its output.

        The arguments are those of `forks.Command`.
        """
        return olr(self.folder, *words, plan=plan, is_read=is_read)

    def finish(self, command: str, out: Path) -> None:
        """Run a command to its end, or continue one that was stopped, and assert that it succeeds."""
        done = self.start(command, out)
        assert done.wait() == 0, done.err

    def whole(self, command: str) -> Path:
        """Return the output of a command that nothing has disturbed, to compare with.

        It is run once for all tests; its time and its file operations are recorded.
        """
        out, seconds = self.shared / f"whole-{command}", self.shared / f"{command}.seconds"
        # Processes of xdist share the output. The first one makes it, and the others wait.
        with FileLock(self.shared / f"{command}.lock"):
            if not seconds.exists():
                shutil.rmtree(out, ignore_errors=True)
                began = time.monotonic()
                # Number 0 causes no fault and lists all operations.
                plan = Plan(out, 0, "", self.shared / f"{command}.operations")
                status, done = self.olr(*self.words(command, out), plan=plan)
                assert status == 0, done.err
                seconds.write_text(str(time.monotonic() - began))
            self._seconds.setdefault(command, float(seconds.read_text()))
        return out

    def seconds(self, command: str, *, is_long: bool) -> float:
        """Return how long a command takes if nothing disturbs it.

        With `is_long` it is run once more for this, because the first run is slower.
        """
        self.whole(command)
        if is_long:
            began = time.monotonic()
            self.finish(command, self.place("again"))
            self._seconds[command] = time.monotonic() - began
        return self._seconds[command]

    def operations(self, command: str) -> list[str]:
        """Return the file operations of an undisturbed command in order, as lines of a plan's log."""
        self.whole(command)
        return (self.shared / f"{command}.operations").read_text().splitlines()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests as slow that use the `workshop`, as they start whole commands."""
    for item in items:
        if "workshop" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Make a workshop, with a dozen training prompts and a recipe, for all tests of the session."""
    folder, shared = tmp_path_factory.mktemp("workshop"), tmp_path_factory.getbasetemp()
    # Each worker of xdist has a folder inside that of all workers.
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    draw = random.Random(1)
    for name, prompts in (("train", 12), ("validation", 6), ("test", 6)):
        sums = [(draw.randint(100, 499), draw.randint(100, 499)) for _ in range(prompts)]
        lines = [f'{{"question": "{a}+{b}=", "answer": "{a + b}"}}\n' for a, b in sums]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    (folder / "tiny.yaml").write_text(RECIPE)
    return Workshop(folder, shared)


@pytest.fixture
def run(workshop: Workshop, tmp_path: Path) -> Path:
    """Copy the run directory of a finished training, which the test may damage, and return it."""
    return Path(shutil.copytree(workshop.whole("train"), tmp_path / "run"))
