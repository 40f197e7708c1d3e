"""What is installed from a wheel works away from the checkout, recipes and other files included."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
    ]
    subprocess.run(
        [*build, "--wheel-dir", str(folder), str(REPOSITORY)],
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("olr_cli-*.whl")
    return built


def test_a_wheel_holds_every_file_of_the_package_and_every_recipe(wheel):
    packed = set(zipfile.ZipFile(wheel).namelist())
    own = [
        path
        for path in (REPOSITORY / "olr_cli").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ]
    recipes = [path for path in (REPOSITORY / "recipes").rglob("*") if path.is_file()]
    wanted = {path.relative_to(REPOSITORY).as_posix() for path in own}
    wanted |= {f"olr_cli/{path.relative_to(REPOSITORY).as_posix()}" for path in recipes}
    of_wheel = {name for name in packed if ".dist-info/" in name}
    assert packed - of_wheel == wanted
    assert {name.rpartition("/")[2] for name in of_wheel} >= {
        "LICENSE",
        "NOTICE",
        "entry_points.txt",
    }


def test_an_unpacked_wheel_finds_its_recipes_and_benchmarks(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")

    def olr(*words):
        # -P: the folder one stands in is no place to import from.
        command = [sys.executable, "-P", "-m", "olr_cli", *words]
        environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "laptop/quickstart" in olr("recipes", "ls")
    assert "slope_threshold" in olr("recipes", "show", "laptop/quickstart")
    olr("recipes", "validate", "paper/qwen3-4b")
    assert "aime24" in olr("benchmarks")
    olr("inject-noise", "--type", "active", "--ratio", "0.5", "--out", "noisy.parquet")
    assert (tmp_path / "noisy.parquet").stat().st_size > 0


def test_a_wheel_installs_into_an_empty_environment_and_trains(wheel, tmp_path, is_long):
    if not is_long:
        pytest.skip("needs the package index: make hard")
    venv.create(tmp_path / "env", with_pip=True)
    programs = tmp_path / "env" / "bin"

    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    tested = ("--constraint", str(REPOSITORY / "requirements" / "tested.txt"))
    run(programs / "python", "-m", "pip", "install", "--quiet", *tested, f"{wheel}[train]")
    olr = programs / "olr"
    run(
        olr,
        "train",
        "laptop/quickstart",
        "--set",
        "train.epochs=2",
        "--set",
        "method.warmup_epochs=1",
    )
    run(olr, "analyze", "runs/quickstart", "--figure", "all", "--report")
    run(olr, "audit", "runs/quickstart", "--export", "repaired.parquet")
    assert (tmp_path / "runs/quickstart/figures/dynamics.png").stat().st_size > 0
    assert (tmp_path / "repaired.parquet").stat().st_size > 0
