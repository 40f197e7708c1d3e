"""The matrix for GPUs, as far as it needs neither one nor OpenRLHF: its cases, what is left out, and the report."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gpu import matrix
from gpu.matrix import CASES, HALF_BILLION, TINY, Case, Finding, left_out, markdown, random_model, settings_of
from histories import write_history
from make_toys import build_tokenizer
from transformers import Qwen3ForCausalLM

from olr_cli.engines.openrlhf.checks import check_batches, check_gpus, gpus_needed
from olr_cli.recipe.layers import load_recipe

SCRIPT = Path(matrix.__file__)


def recipe_of(case, gpus):
    return load_recipe("laptop/openrlhf", list(settings_of(case, Path("m"), HALF_BILLION, "cuda", gpus)))


@pytest.mark.parametrize("here", [2, 3, 8])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_is_a_recipe_that_fits_its_gpus(case, here):
    recipe = recipe_of(case, case.gpus_of(here))
    check_batches(recipe, 32)
    check_gpus(recipe, here)
    assert gpus_needed(recipe) == case.gpus_of(here) <= here


def test_the_first_case_is_the_papers_layout_on_all_gpus():
    paper, case = load_recipe("paper/qwen3-4b").engine, recipe_of(CASES[0], CASES[0].gpus_of(8)).engine
    layout = ("nodes", "gpus_per_node", "colocate", "sleep", "engines", "tensor_parallel", "zero_stage")
    assert [getattr(case, key) for key in layout] == [getattr(paper, key) for key in layout]
    assert case.flags["ds"] == paper.flags["ds"]


def test_the_random_model_has_half_a_billion_parameters():
    with torch.device("meta"):
        model = Qwen3ForCausalLM(matrix.configuration(HALF_BILLION, build_tokenizer(4096)))
    assert 0.45e9 < sum(weight.numel() for weight in model.parameters()) < 0.55e9


def test_the_model_fills_its_vocabulary_and_reads_text(tmp_path):
    from transformers import AutoConfig, AutoTokenizer

    folder = random_model(tmp_path, TINY)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == TINY.vocabulary == AutoConfig.from_pretrained(folder).vocab_size
    assert tokenizer.decode(tokenizer("123+456=", add_special_tokens=False)["input_ids"]) == "123+456="


def test_what_cannot_be_shown_is_left_out_with_the_reason(monkeypatch):
    monkeypatch.setattr(matrix, "has_flash_attention", lambda: False)
    asked = {"gpus": 1, "device": "cuda"}
    assert left_out(Case("plain", ()), **asked) is None
    assert left_out(Case("all that are here", (), gpus=None), **asked) is None
    assert left_out(Case("two", (), gpus=2), **asked) == "needs 2 GPUs, and here is 1"
    assert left_out(Case("packed", (), needs_flash_attention=True), **asked) == "flash-attn is not installed"
    assert left_out(Case("plain", ()), **(asked | {"device": "cpu"})) == "a CPU cannot show it"


def test_the_report_is_one_markdown_file_that_says_what_is_wrong():
    findings = [
        Finding("ZeRO 3", "goes on after a checkpoint", "step 3", "step 3", True),
        Finding("ZeRO 3", "resumes after kill -9", "from step [0]", "from step [0, 2]", False),
        Finding("ZeRO 3", "memory of the fullest GPU", "39.4 GB"),
        Finding("ZeRO 3", "tokens trained a second", "1,234"),
    ]
    text = markdown(findings, {"GPUs": "1 x H200"}, HALF_BILLION)
    assert text.startswith("# olr ")
    assert "1 right, 1 wrong" in text
    assert "| ZeRO 3 | resumes after kill -9 | from step [0] | from step [0, 2] | **WRONG** |" in text
    assert "| ZeRO 3 | memory of the fullest GPU | 39.4 GB |  |  |" in text
    assert "| ZeRO 3 | tokens trained a second | 1,234 |  |  |" in text
    assert "| GPUs | 1 x H200 |" in text


def write_run(folder, gap, kl):
    times = dict.fromkeys(("time/rollouts", "time/update", "time/weights"), 1.0)
    measured = {"rollout/sampler_gap": gap, "policy/kl": kl, **times}
    lines = [{"step": 0}, *({"step": step, **measured} for step in range(1, 5))]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


@pytest.mark.parametrize(
    ("gap", "kl", "right"), [(0.003, 0.02, True), (0.2, 0.02, False), (0.01, 1e-5, False)]
)
def test_weights_that_stayed_behind_or_never_moved_are_wrong(tmp_path, gap, kl, right):
    assert matrix._weights_arrive(CASES[0], write_run(tmp_path, gap, kl)).is_right is right


NVIDIA_SMI = """#!/bin/sh
echo 1200
"""

PYTHON = """#!/bin/sh
# python, as the matrix starts it: runs are there at once, but the second hangs with a child.
case "$*" in
    *--local-engine*) exit 1 ;;
    */1/run*) setsid sleep 1000 & echo "$$ $!" > PROCESSES; sleep 1000 ;;
    *) cp -r READY "$OLR_TEST_RUN" ;;
esac
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with one GPU and stand-ins for the programs of the matrix; the folder that they write to."""
    run = write_history(tmp_path / "ready", prompts=16, epochs=2, rollouts=4, prompts_per_step=8)
    write_run(run, 0.003, 0.02)
    places = {"READY": str(run), "PROCESSES": str(tmp_path / "processes")}
    python = PYTHON
    for name, place in places.items():
        python = python.replace(name, place)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("nvidia-smi", NVIDIA_SMI), ("python", python)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(matrix, "HALF_BILLION", TINY)
    monkeypatch.setattr(matrix, "PATIENCE_A_START", 5)
    cases = [Case(name, ("engine.attention=sdpa",)) for name in ("first", "second", "third")]
    monkeypatch.setattr(matrix, "CASES", cases)
    return tmp_path


def is_alive(process):
    command = Path("/proc", process, "cmdline")
    return command.exists() and command.read_bytes() != b""


def test_a_case_that_hangs_is_wrong_and_leaves_no_process_and_the_others_run(machine, monkeypatch):
    reports = []

    def write(path, text):
        reports.append(text)
        path.write_text(text)

    monkeypatch.setattr(matrix, "write_text", write)
    assert matrix.main(["--report", str(machine / "report.md")]) == 1
    report = (machine / "report.md").read_text()
    assert re.search(r"\| first \| 4 steps in \d+ s \| yes \| yes \| ok \|", report)
    assert re.search(
        r"\| second \| 4 steps in \d+ s \| status -1: .*no end after 5 s .*\*\*WRONG\*\*", report
    )
    assert re.search(r"\| third \| 4 steps in \d+ s \| yes \| yes \| ok \|", report)
    assert "| third | memory of the fullest GPU | 0.0 GB |  |  |" in report
    assert re.search(r"\| local engine \| runs \| CalledProcessError: .* \*\*WRONG\*\*", report)
    assert not any(is_alive(process) for process in (machine / "processes").read_text().split())
    # Whoever is killed meanwhile leaves the report of what was run.
    assert "| first | 4 steps" in reports[1] and "| second |" not in reports[1]


def test_without_a_gpu_the_program_says_so_in_a_sentence_and_ends_well(tmp_path):
    asked = [sys.executable, str(SCRIPT), "--report", str(tmp_path / "report.md")]
    ended = subprocess.run(asked, capture_output=True, text=True, env=_without_gpus())
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("No GPU that torch can use is here, so the GPU tests are skipped")
    assert not (tmp_path / "report.md").exists()


def _without_gpus():
    return os.environ | {"CUDA_VISIBLE_DEVICES": ""}
