"""The core of olr works where torch and transformers are not installed; what needs them says how to install them."""

import os
import subprocess
import sys

import pytest
from histories import write_history

from olr_cli.packages import EXTRAS

WITHOUT = f"""
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name in {sorted(EXTRAS)} else find(name, *rest)
from olr_cli.cli import main
main()
"""
PATH = os.pathsep.join(entry for entry in sys.path if entry)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("core")
    write_history(place / "runs" / "a", method={"name": "grpo"})
    write_history(place / "runs" / "b")
    return place


def olr(folder, command):
    words = [sys.executable, "-P", "-c", WITHOUT, *command.split()]
    return subprocess.run(
        words, cwd=folder, env=os.environ | {"PYTHONPATH": PATH}, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "command",
    [
        "inject-noise --type mixed --ratio 0.5 --out noisy.parquet",
        "analyze runs --figure all --table arms --report",
        "audit runs/b --export repaired.parquet",
        "replay runs/b --set method.slope_threshold=0.1",
        "replay runs/b --grid default",
        "recipes validate paper/qwen3-4b",
        "evaluate --list",
        "doctor",
    ],
)
def test_the_core_needs_no_torch(folder, command):
    done = olr(folder, command)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "train laptop/quickstart",
        "train laptop/openrlhf --dry-run",
        "evaluate addition-easier",
        "rollouts addition-easier arithmetic",
    ],
)
def test_what_needs_torch_says_how_to_install_it(folder, command):
    before = sorted(folder.rglob("*"))
    done = olr(folder, command)
    assert done.returncode == 2
    name = command.split()[0]
    assert done.stderr.startswith(f"Error: olr {name} needs the package ")
    assert done.stderr.endswith(", which is not installed; pip install 'olr-cli[train]'\n")
    assert done.stderr.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


def test_the_api_the_backends_and_what_finds_a_built_in_policy_need_no_torch():
    imports = "import olr_cli.api, olr_cli.evaluation.backends, olr_cli.engines.models as models\n"
    code = WITHOUT.replace(
        "from olr_cli.cli import main\nmain()", f"{imports}models.policy_path('subtraction')"
    )
    subprocess.run([sys.executable, "-P", "-c", code], env=os.environ | {"PYTHONPATH": PATH}, check=True)
