"""The core of olr works where torch and transformers are not installed; what needs them says how to install them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from histories import write_history

from olr_cli.packages import EXTRAS

WITHOUT = f"""
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name in {sorted(EXTRAS)} else find(name, *rest)
"""
COMMANDS = """
import contextlib, io, json, sys
from unittest.mock import patch
from olr_cli.cli import main
ended = {}
for command in json.load(sys.stdin):
    error, status = io.StringIO(), 0
    with patch("sys.argv", ["olr", *command.split()]), contextlib.redirect_stderr(error):
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                main()  # writes to the file 1 itself, whatever `redirect_stdout` says; the last line is ours
            except SystemExit as end:
                status = end.code or 0
    ended[command] = status, error.getvalue()
print(json.dumps(ended))
"""
LOG = Path(__file__).parents[1] / "fixtures" / "logs" / "lm-eval"
PATH = os.pathsep.join(entry for entry in sys.path if entry)


WORKS = [
    "inject-noise --type mixed --ratio 0.5 --out noisy.parquet", "analyze runs --table arms --out arms.csv",
    "analyze runs --table baselines", "analyze runs/b", "audit runs/b --report queue.html",
    "replay runs/b --set method.slope_threshold=0.1", "recipes validate paper/qwen3-4b",
    f"regrade {LOG} --out graded", "benchmarks",
]  # fmt: skip
NEEDS_TORCH = [
    "train laptop/quickstart", "train laptop/openrlhf --dry-run", "evaluate addition-easier",
    "rollouts addition-easier arithmetic",
]  # fmt: skip
IMPORTS = """
import olr_cli.api, olr_cli.engines.backends, olr_cli.engines.models as models
models.policy_path("subtraction")
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """How each command ended where neither torch nor any other extra is installed, and what it wrote as an error."""
    folder = tmp_path_factory.mktemp("core")
    write_history(folder / "runs" / "a", method={"name": "grpo"})
    write_history(folder / "runs" / "b")
    told = subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT + IMPORTS + COMMANDS], input=json.dumps(NEEDS_TORCH + WORKS), cwd=folder,
        text=True, check=True, env=os.environ | {"PYTHONPATH": PATH}, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    assert {path.name for path in folder.iterdir()} == {
        "runs",
        "noisy.parquet",
        "graded",
        "arms.csv",
        "queue.html",
    }
    # the commands print to the process's own standard output, before the line of statuses
    return json.loads(told.splitlines()[-1])


@pytest.mark.parametrize("command", WORKS)
def test_the_core_needs_no_torch(ended, command):
    status, error = ended[command]
    assert status == 0, error


@pytest.mark.parametrize("command", NEEDS_TORCH)
def test_what_needs_torch_says_how_to_install_it(ended, command):
    status, error = ended[command]
    assert status == 2 and error.startswith(
        f"Error: olr {command.split()[0]} needs the package "
    )
    assert error.endswith(
        ", which is not installed; pip install '.[train]' in a clone of olr\n"
    )
    assert error.count("\n") == 1
