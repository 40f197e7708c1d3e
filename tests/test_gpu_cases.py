"""The matrix for GPUs, as far as it needs neither one nor OpenRLHF: its cases, what is left out, and the report."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gpu import matrix
from gpu.matrix import CASES, HALF_BILLION, TINY, Case, Finding, left_out, markdown, random_model, settings_of
from make_toys import build_tokenizer
from transformers import Qwen3ForCausalLM

from olr_cli.engines.machine import Check
from olr_cli.engines.models import model_shape
from olr_cli.engines.openrlhf.checks import check_batches, check_gpus, gpus_needed
from olr_cli.recipe.layers import load_recipe

SCRIPT = Path(matrix.__file__)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_is_a_recipe_that_fits_its_gpus(case, tmp_path):
    recipe = load_recipe("laptop/openrlhf", list(settings_of(case, tmp_path, HALF_BILLION, "cuda")))
    check_batches(recipe, 32)
    check_gpus(recipe, case.gpus)
    assert gpus_needed(recipe) == case.gpus


def test_the_cases_cover_what_they_are_for():
    recipes = [
        load_recipe("laptop/openrlhf", list(settings_of(case, Path("m"), TINY, "cuda"))) for case in CASES
    ]
    engines = [recipe.engine for recipe in recipes]
    assert {(engine.zero_stage, engine.sleep) for engine in engines} >= {
        (2, True),
        (2, False),
        (3, True),
        (3, False),
    }
    assert {engine.colocate for engine in engines} == {True, False}
    assert {engine.tensor_parallel for engine in engines} == {1, 2}
    killed = [engine for case, engine in zip(CASES, engines, strict=True) if case.is_killed]
    assert {engine.zero_stage for engine in killed} == {2, 3}


def test_the_random_model_has_half_a_billion_parameters():
    with torch.device("meta"):
        model = Qwen3ForCausalLM(matrix.configuration(HALF_BILLION, build_tokenizer(4096)))
    assert 0.45e9 < sum(weight.numel() for weight in model.parameters()) < 0.55e9


def test_the_model_fills_its_vocabulary_and_reads_text(tmp_path):
    from transformers import AutoTokenizer

    folder = random_model(tmp_path, TINY)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == TINY.vocabulary == model_shape(str(folder), trust_remote_code=False).vocabulary
    assert tokenizer.decode(tokenizer("123+456=", add_special_tokens=False)["input_ids"]) == "123+456="


def test_what_cannot_be_shown_is_left_out_with_the_reason(monkeypatch):
    monkeypatch.setattr(matrix, "has_flash_attention", lambda: False)
    asked = {"gpus": 1, "device": "cuda", "seconds_left": 600.0}
    assert left_out(Case("plain", ()), **asked) is None
    assert left_out(Case("two", (), gpus=2), **asked) == "needs 2 GPUs, and here is 1"
    assert left_out(Case("packed", (), needs_flash_attention=True), **asked) == "flash-attn is not installed"
    assert (
        left_out(Case("killed", (), is_killed=True), **(asked | {"seconds_left": 100})) == "the time was over"
    )
    assert left_out(Case("plain", ()), **(asked | {"device": "cpu"})) == "a CPU cannot show it"


def test_the_report_is_one_markdown_file_that_says_what_is_wrong():
    findings = [
        Finding("ZeRO 3", "goes on after a checkpoint", "step 3", "step 3", True),
        Finding("ZeRO 3", "memory of the fullest GPU", "81 GB", "below 60 GB", False),
        Finding("ZeRO 3", "tokens trained a second", "1,234"),
    ]
    text = markdown(findings, [Check("GPUs", "1 x H200", problem="in use")], HALF_BILLION)
    assert text.startswith("# olr ")
    assert "1 right, 1 wrong" in text
    assert "| ZeRO 3 | memory of the fullest GPU | 81 GB | below 60 GB | **WRONG** |" in text
    assert "| ZeRO 3 | tokens trained a second | 1,234 |  |  |" in text
    assert "| GPUs | 1 x H200 | in use |" in text


def write_run(folder, gap, kl):
    lines = [{"step": 0}, *({"step": s, "rollout/sampler_gap": gap, "policy/kl": kl} for s in (1, 2))]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


@pytest.mark.parametrize(
    ("gap", "kl", "right"), [(0.003, 0.02, True), (0.2, 0.02, False), (0.01, 1e-5, False)]
)
def test_weights_that_stayed_behind_or_never_moved_are_wrong(tmp_path, gap, kl, right):
    assert matrix._weights_arrive(CASES[0], write_run(tmp_path, gap, kl)).is_right is right


def test_a_case_that_fails_is_a_finding_and_no_traceback(tmp_path, monkeypatch):
    class Dead:
        def __init__(self, *_):
            raise OSError("no memory | at all")

    monkeypatch.setattr(matrix, "Train", Dead)
    monkeypatch.setattr(matrix, "look_at_gpus", tuple)
    (finding,) = matrix.run_case(CASES[0], tmp_path, tmp_path, TINY, "cpu")
    assert finding.is_right is False
    assert "no memory \\| at all" in finding.measured


def test_without_a_gpu_the_program_says_so_in_a_sentence_and_ends_well(tmp_path):
    asked = [sys.executable, str(SCRIPT), "--report", str(tmp_path / "report.md")]
    ended = subprocess.run(asked, capture_output=True, text=True, env=_without_gpus())
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("No GPU that torch can use is here, so the GPU tests are skipped")
    assert not (tmp_path / "report.md").exists()


def _without_gpus():
    return os.environ | {"CUDA_VISIBLE_DEVICES": ""}
