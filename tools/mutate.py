"""Would the tests notice? Change the package in small ways, one at a time, and run the tests on each change.

    make mutants                                         # 200 changes over all rooms
    python tools/mutate.py answers analysis/audit --sample 60 --seed 3
    python tools/mutate.py cli/check --list              # shows the changes, runs nothing

A room is a folder or a file of the package. A sample has at most one change a line and the same number in each room,
as far as its lines go; the same seed and sources give the same sample. The tests run in a copy, so the tree stays as it
is. A change meets the tests of its room that import its file, directly or through others, the nearest and quickest
first, then those of other rooms that import it themselves, then those of the commands, until one fails. Left out are
changes that `mutants_unseen.txt` gives a reason for: they change nothing that anybody could see.

Times are of the processor, so that a busy machine judges as an idle one does.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from xml.etree import ElementTree

from mutations import Mutant, mutants_of

PACKAGE = Path("olr_cli")
ROOMS = [
    "answers",
    "data",
    "recipe",
    "supervision",
    "runs",
    "engines",
    "evaluation",
    "analysis",
    "api",
    "cli",
    "tables,files,packages,errors,grouping,seeding,user_code",
]
"""Rooms from which `make mutants` draws. Names joined by a comma are one room."""

UNSEEN = Path(__file__).with_name("mutants_unseen.txt")
"""Holds a line for each change, and below it, indented, the reason why it has no visible effect."""

_READS_ALL_FILES = Path("tests/test_constants.py")
"""Tests that read the package's files as text, and so meet changes of files that they do not import."""

_HEAVY = [
    "hypothesis",
    "matplotlib.pyplot",
    "math_verify",
    "numpy",
    "polars",
    "pyarrow.parquet",
    "pytest",
    "rich",
    "sympy",
    "torch",
    "transformers",
]
"""Imported once, before a child is forked for each change."""

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")
_OPTIONS = [
    *("-q", "--tb=line", "-W", "ignore"),
    *("-p", "no:cacheprovider", "-p", "no:xdist"),
    *("-m", "not slow", "--hypothesis-seed=1"),
]
_OTHER_RUNS = {"hard", "gpu", "openrlhf", "theory", "trainers"}
"""Folders of tests with their own environment, or slow tests, which meet only the changes of their own room."""

_PATIENCE = 5.0
"""Seconds of the clock for one of processor time. A deadlock takes no processor time."""


@dataclass
class Case:
    """A small change of the package (a mutant), and how the tests on it ended.

    It was drawn for a room, that is a folder or a file of the package.
    """

    room: str
    """The room for which it was drawn."""

    file: Path
    """The changed file, relative to the project's root."""

    mutant: Mutant
    ended: str = ""
    """How its tests ended."""

    @property
    def name(self) -> str:
        """The file and the change, in the form in which `mutants_unseen.txt` lists changes.

        The line number is left out, because it moves when the file is edited.
        """
        return f"{self.file.as_posix()}: {self.mutant.what}"

    def __str__(self) -> str:
        """Return file, line number and change."""
        return f"{self.file.as_posix()}:{self.mutant.line}  {self.mutant.what}"


def unseen(text: str) -> set[str]:
    """Return the names of the changes that are listed in the text of `mutants_unseen.txt`.

    A name is a line that is neither indented nor a comment. The indented lines are reasons.
    """
    return {line for line in text.splitlines() if line and not line.startswith((" ", "#"))}


def draw(rooms: Sequence[str], size: int, seed: int, left_out: set[str]) -> list[Case]:
    """Draw `size` changes, from the rooms in turn, at most one per line of code.

    Fewer are returned if the rooms have no more lines to change. `rooms` are names of folders or files of the package;
    names joined by a comma are one room. Changes whose names (`Case.name`) are in `left_out` are not drawn.
    """
    queues = [_shuffled(room, random.Random(f"{seed} {room}"), left_out) for room in rooms]
    turns = zip_longest(*queues)
    return [case for turn in turns for case in turn if case is not None][:size]


def _shuffled(room: str, draws: random.Random, left_out: set[str]) -> list[Case]:
    """Draw one change for each line of a room that can be changed, and return the changes in random order.

    Changes whose names are in `left_out` are not drawn.
    """
    lines = defaultdict(list)
    for file in _files(room):
        for mutant in mutants_of(file.read_text(encoding="utf-8")):
            case = Case(room, file, mutant)
            if case.name not in left_out:
                lines[file, mutant.line].append(case)
    cases = []
    for candidates in lines.values():
        # Nearly every test notices `return None`, so it says little. Draw it only for a line without another change.
        telling = [case for case in candidates if case.mutant.kind != "return None"]
        # One change per line: several on one line mostly meet the same test.
        cases.append(draws.choice(telling or candidates))
    draws.shuffle(cases)
    return cases


def _files(room: str) -> list[Path]:
    """Return the Python files of a room.

    `room` names a folder, a file without its suffix, or several of these, joined by commas.
    """
    places = [PACKAGE / name for name in room.split(",")]
    folders = [sorted(place.rglob("*.py")) for place in places if place.is_dir()]
    modules = [place.with_suffix(".py") for place in places if not place.is_dir()]
    return [*(file for folder in folders for file in folder), *modules]


def imports_away(
    tests: Iterable[Path], helpers: Iterable[Path]
) -> dict[Path, dict[Path, int]]:
    """Return how many imports each test file is away from every file that it imports, directly or through others.

    The result maps a test file to a mapping from files to distances. The distance is 0 for the test file itself, and 1
    for a file that it imports directly. Files that a test file does not reach are absent.

    Args:
        tests: files of tests.
        helpers: other modules below tests/, which tests import by their bare names.
    """
    modules = {".".join(p.with_suffix("").parts): p for p in PACKAGE.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    modules |= {path.stem: path for path in helpers}
    imports: dict[Path, set[Path]] = {}
    for file in {*tests, *modules.values()}:
        imports[file] = {modules[name] for name in _imported(file) if name in modules}
    reached = {}
    for test in tests:
        # A breadth-first search: `edge` holds the files that were first reached in the last round.
        found, edge = {test: 0}, {test}
        while edge:
            away = max(found.values()) + 1
            edge = {below for file in edge for below in imports[file]} - found.keys()
            found |= dict.fromkeys(edge, away)
        reached[test] = found
    return reached


def _imported(file: Path) -> set[str]:
    """Return the dotted names of the modules that a file may import.

    For ``from a import b``, they are ``a`` and ``a.b``, because ``b`` may be a module. A text such as
    ``"learning:learning"`` counts as an import of the module ``learning`` in the file's own folder.
    """
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A registry names modules to import later as text: "learning:learning" is a file of its own folder.
            beside = re.fullmatch(r"(\w+):\w+", node.value)
            names |= {".".join((*file.parent.parts, beside[1]))} if beside else set()
    return names


class Tests:
    """Choose the test files for a change, order them by nearness and speed, and run them.

    `measure` runs the tests without a change. It fills `seconds`, the time of each test file, and `failing`, the tests
    that fail.
    """

    def __init__(self) -> None:
        """Find out which files each test file imports, directly or through others."""
        below = list(Path("tests").rglob("*.py"))
        self._reached = imports_away(
            [path for path in below if path.name.startswith("test_")],
            [path for path in below if not path.name.startswith("test_")],
        )
        self.seconds: Counter[Path] = Counter()
        self.failing: list[str] = []

    def of(self, case: Case) -> list[Path]:
        """Return the test files to run on a change, those most likely to notice it first.

        First come tests of the change's room (its part of the package) that import the changed file, directly or
        through others. Then come tests of other rooms that are the fewest imports away. If the change's room has tests,
        those of other rooms have to import the changed file directly. Then come tests of the commands, and last those
        that read all files as text.
        """
        away = {
            test: near[case.file]
            for test, near in self._reached.items()
            if case.file in near
        }
        parts = {part for name in case.room.split(",") for part in Path(name).parts}
        parts |= {"trainers"} if "api" in parts else set()  # where its tests are
        if (
            case.file.parent == PACKAGE or "tables" in parts
        ):  # whose tests stand beside the folders
            parts |= {test.parts[1] for test in away if len(test.parts) == 2}
        own = [test for test in away if test.parts[1] in parts]
        elsewhere = [test for test in away if test.parts[1] not in parts | _OTHER_RUNS]
        commands = [test for test in elsewhere if test.parts[1] == "cli"]
        nearest = min((away[test] for test in elsewhere), default=0)
        if own and nearest > 1:  # only what imports the file itself is worth the time
            elsewhere = []
        others = [test for test in elsewhere if away[test] == nearest]

        def nearest_and_quickest(test: Path) -> tuple[int, float, Path]:
            return away.get(test, 0), self.seconds[test], test

        of_all_files = [test for test in self._reached if test == _READS_ALL_FILES]
        groups = (own, others, commands, of_all_files)
        ordered = (sorted(tests, key=nearest_and_quickest) for tests in groups)
        return list(dict.fromkeys(chain.from_iterable(ordered)))

    def measure(self, files: Sequence[Path], logs: Path) -> None:
        """Run test files without a change. Record the time of each file, and the tests that fail.

        `logs` is the folder that receives pytest's output.

        Raises:
            SystemExit: pytest could not run the files.
        """
        report = logs / "first.xml"
        words = [f"--junit-xml={report}", *map(str, files)]
        if run_tests(words, limit=7200, log=logs / "first.log") not in (0, 1):
            sys.exit((logs / "first.log").read_text(encoding="utf-8"))
        for test in ElementTree.parse(report).iter("testcase"):
            file = Path(test.get("classname", "").replace(".", "/") + ".py")
            self.seconds[file] += float(test.get("time", 0))
            if any(part.tag in ("failure", "error") for part in test):
                self.failing.append(f"{file}::{test.get('name')}")

    def judge(self, case: Case, log: Path) -> str:
        """Put a change into its file, run the tests that `of` chooses for it, and restore the file.

        Return ``killed`` if a test failed, ``survived`` if all tests passed, ``timeout`` if the tests took too long,
        and ``no test`` if there is no test to run. `log` is the file that receives pytest's output.
        """
        files = self.of(case)
        if not files:
            return "no test"
        before = case.file.read_text(encoding="utf-8")
        words = ["-x", *(f"--deselect={test}" for test in self.failing), *map(str, files)]
        case.file.write_text(case.mutant.source, encoding="utf-8")
        try:
            usual = sum(self.seconds[test] for test in files)
            status = run_tests(words, limit=30 + 3 * usual, log=log)
        finally:
            case.file.write_text(before, encoding="utf-8")
        # pytest's status 5 means that it has found no test.
        return {0: "survived", None: "timeout", 5: "no test"}.get(status, "killed")


def run_tests(words: Sequence[str], limit: float, log: Path) -> int | None:
    """Run pytest in a forked child and return its exit status, or None if it took too long.

    Args:
        words: pytest's arguments besides the usual options.
        limit: seconds of processor time. By the clock, the tests may take five times as long.
        log: file that receives pytest's output.
    """
    child = os.fork()
    if child == 0:
        _be_tests(words, limit, log)
    try:
        ends_at = time.monotonic() + _PATIENCE * limit
        while time.monotonic() < ends_at:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                return None if code == -signal.SIGXCPU else code
            time.sleep(0.02)
        return None
    finally:  # also after Ctrl-C; a test that has ended may have left workers
        _end_group(child)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def _be_tests(words: Sequence[str], limit: float, log: Path) -> None:
    """Run pytest in this process, a child that `run_tests` has forked, and end the process with pytest's status."""
    code = 3
    try:
        # A process group of its own lets `_end_group` reach the workers of tests too.
        os.setsid()
        # `main` has changed both, and the children of tests inherit them.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        seconds = int(limit) + 1
        # SIGXCPU comes at the soft limit and can be told from a failure; SIGKILL follows five seconds later.
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = int(importlib.import_module("pytest").main([*_OPTIONS, *words]))
    finally:
        os._exit(code)


def _end_group(child: int) -> None:
    """Kill the process group of a forked child, so that workers of its tests end too."""
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def enter_copy(folder: Path) -> None:
    """Copy the files that git tracks to `folder`, and go on there.

    From then on this process and its children work in the folder and import from it. Large packages are imported here,
    so that forked children need not import them.
    """
    names = subprocess.run(
        ["git", "ls-files", "-z"], capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(os.path.isfile, names):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, target)
    os.chdir(folder)
    sys.path[0] = str(folder)
    # Python takes bytecode for fresh if time, in seconds, and size agree, which may hold for a mutant's file.
    sys.dont_write_bytecode = True
    os.environ |= dict.fromkeys(_ONE_THREAD, "1")
    os.environ |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in _HEAVY:
        with suppress(ImportError):
            importlib.import_module(name)


def judge(cases: Sequence[Case]) -> None:
    """Run the tests on each change, in a temporary copy of the tree. Set each case's `ended`, and print progress."""
    root = Path.cwd()
    with tempfile.TemporaryDirectory() as copy, tempfile.TemporaryDirectory() as logs:
        enter_copy(Path(copy))
        tests = Tests()
        files = sorted({test for case in cases for test in tests.of(case)})
        say(
            f"{len(cases)} changes; first their {len(files)} test files without one, which may take minutes"
        )
        tests.measure(files, Path(logs))
        for test in tests.failing:
            say(f"left out, as it fails without a change: {test}")
        for case in cases:
            case.ended = tests.judge(case, Path(logs, "log"))
            say(f"{case.ended:9} {case}")
        os.chdir(root)


def say(text: str) -> None:
    """Print progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def table(cases: Sequence[Case]) -> str:
    """Return a table of how many changes the tests noticed in each room, then the changes that no test noticed."""
    endings = ("killed", "timeout", "survived", "no test")
    by_room: Mapping[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        by_room[case.room][case.ended] += 1
    lines = [
        f"{'room':24}{'changes':>9}" + "".join(f"{it:>10}" for it in endings) + "  noticed"
    ]
    for room, counts in by_room.items():
        noticed = (counts["killed"] + counts["timeout"]) / counts.total()
        numbers = "".join(f"{counts[it]:>10}" for it in endings)
        lines.append(f"{room[:23]:24}{counts.total():>9}{numbers}{noticed:>9.0%}")
    survivors = [str(case) for case in cases if case.ended in ("survived", "no test")]
    return "\n".join([*lines, "", f"Not noticed: {len(survivors)}", *survivors])


def main() -> None:
    """Draw a sample of changes, run the tests on each, and print a table. With ``--list`` only print the sample."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "rooms", nargs="*", default=ROOMS, help="folders or files of the package"
    )
    parser.add_argument("--sample", type=int, default=200, help="changes in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--list", action="store_true", help="show the sample, and run nothing"
    )
    options = parser.parse_args()
    if options.sample < 1:
        parser.error(f"argument --sample: {options.sample} is less than 1")
    for name in ",".join(options.rooms).split(","):
        place = PACKAGE / name
        if not place.is_dir() and not place.with_suffix(".py").is_file():
            parser.error(
                f"there is no room {name} below {PACKAGE}/; take one such as answers, analysis/audit or cli/check"
            )
    left_out = unseen(UNSEEN.read_text(encoding="utf-8")) if UNSEEN.exists() else set()
    cases = draw(options.rooms, options.sample, options.seed, left_out)
    if not cases:
        parser.error(f"nothing in {' '.join(options.rooms)} can be changed")
    if options.list:
        print(*cases, sep="\n")
        return
    # An exception, so that `run_tests` ends its child and `judge` removes its copy.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: sys.exit(128 + got))
    judge(cases)
    print(table(cases))


if __name__ == "__main__":
    main()
