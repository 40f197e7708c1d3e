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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("core")
    write_history(place / "runs" / "a", method={"name": "grpo"})
    write_history(place / "runs" / "b")
    return place


def run(folder, program, typed=""):
    """What a program prints where neither torch nor any other extra is installed."""
    return subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT + program], input=typed, cwd=folder, text=True, check=True,
        env=os.environ | {"PYTHONPATH": PATH}, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip


def test_the_core_needs_no_torch(folder):
    commands = [
        "inject-noise --type mixed --ratio 0.5 --out noisy.parquet", "analyze runs --figure learning --table arms",
        "analyze runs --table baselines", "analyze runs/b --report", "audit runs/b",
        "replay runs/b --set method.slope_threshold=0.1", "recipes validate paper/qwen3-4b",
        f"regrade {LOG} --out graded", "benchmarks",
    ]  # fmt: skip
    # the commands print to the process's own standard output, before the line of statuses
    ended = json.loads(run(folder, COMMANDS, json.dumps(commands)).splitlines()[-1])
    assert {command: status for command, (status, _) in ended.items()} == dict.fromkeys(commands, 0), ended


def test_what_needs_torch_says_how_to_install_it(folder):
    commands = [
        "train laptop/quickstart",
        "train laptop/openrlhf --dry-run",
        "evaluate addition-easier",
        "rollouts addition-easier arithmetic",
    ]
    before = sorted(folder.rglob("*"))
    ended = json.loads(run(folder, COMMANDS, json.dumps(commands)).splitlines()[-1])
    for command, (status, error) in ended.items():
        assert status == 2, command
        assert error.startswith(f"Error: olr {command.split()[0]} needs the package ")
        assert error.endswith(", which is not installed; pip install '.[train]' in a clone of olr\n")
        assert error.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


def test_the_api_the_backends_and_what_finds_a_built_in_policy_need_no_torch(folder):
    imports = "import olr_cli.api, olr_cli.evaluation.backends, olr_cli.engines.models as models\n"
    run(folder, f"{imports}models.policy_path('subtraction')")
