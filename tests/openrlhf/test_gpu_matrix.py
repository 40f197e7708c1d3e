"""What a CPU can show of the matrix for GPUs (`make test-gpu`): ZeRO 3, killed after a checkpoint, resumed."""

import pytest
from gpu.matrix import CASES, TINY, local_engine, random_model, run_case
from stack import START_SECONDS


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return random_model(tmp_path_factory.mktemp("model"), TINY)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.on_cpu], ids=lambda case: case.name
)
def test_a_case_shows_what_it_must(case, model, tmp_path):
    findings = []
    run_case(case, tmp_path, model, TINY, "cpu", findings.append, patience=START_SECONDS)
    assert [finding for finding in findings if finding.is_right is False] == []
    shown = {finding.shows for finding in findings if finding.is_right}
    assert {
        "goes on after a checkpoint",
        "kill -9 leaves no process",
        "resumes after kill -9",
    } <= shown
    assert any(what.startswith("weights reach vLLM") for what in shown)


def test_the_local_engine_rounds_little_in_bfloat16_and_draws_the_same_however_it_samples(
    model,
):
    assert [finding.is_right for finding in local_engine(model, "cpu")] == [
        True,
        True,
        True,
    ]
