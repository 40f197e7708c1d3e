"""The matrix for GPUs, as far as it needs neither one nor OpenRLHF: its cases, what is left out, and the report."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
import torch
from cases import each
from forks import is_alive
from gpu import matrix
from gpu.matrix import (
    CASES,
    HALF_BILLION,
    TINY,
    Case,
    Finding,
    left_out,
    markdown,
    random_model,
    settings_of,
)
from histories import write_history
from make_toys import build_tokenizer
from samples import json_lines
from stack import Progress
from transformers import Qwen3ForCausalLM

from olr_cli.engines.openrlhf.checks import check_batches, check_gpus, gpus_needed
from olr_cli.recipe.layers import load_recipe

SCRIPT = Path(matrix.__file__)


def recipe_of(case, gpus):
    return load_recipe(
        "laptop/openrlhf", list(settings_of(case, Path("m"), HALF_BILLION, "cuda", gpus))
    )


@pytest.mark.parametrize("here", [2, 3, 8])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_is_a_recipe_that_fits_its_gpus(case, here):
    recipe = recipe_of(case, case.gpus_of(here))
    check_batches(recipe, 32)
    check_gpus(recipe, here)
    assert gpus_needed(recipe) == case.gpus_of(here) <= here


def test_the_first_case_is_the_papers_layout_on_all_gpus():
    paper, case = (
        load_recipe("paper/qwen3-4b").engine,
        recipe_of(CASES[0], CASES[0].gpus_of(8)).engine,
    )
    layout = (
        "nodes",
        "gpus_per_node",
        "colocate",
        "sleep",
        "engines",
        "tensor_parallel",
        "zero_stage",
    )
    assert [getattr(case, key) for key in layout] == [getattr(paper, key) for key in layout]
    assert case.flags["ds"] == paper.flags["ds"]
    assert case.flags.get("vllm") == paper.flags.get("vllm")  # neither is eager


def test_cases_are_asked_for_by_numbers_from_1_without_a_gap():
    assert [case.number for case in CASES] == list(range(1, matrix.LOCAL))


def test_the_random_model_has_half_a_billion_parameters():
    with torch.device("meta"):
        model = Qwen3ForCausalLM(matrix.configuration(HALF_BILLION, build_tokenizer(4096)))
    counted = sum(weight.numel() for weight in model.parameters())
    assert counted == pytest.approx(HALF_BILLION.parameters, rel=0.01)


def test_the_model_fills_its_vocabulary_and_reads_text(tmp_path):
    from transformers import AutoConfig, AutoTokenizer

    folder = random_model(tmp_path, TINY)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (
        len(tokenizer) == TINY.vocabulary == AutoConfig.from_pretrained(folder).vocab_size
    )
    assert (
        tokenizer.decode(tokenizer("123+456=", add_special_tokens=False)["input_ids"])
        == "123+456="
    )


def test_what_cannot_be_shown_is_left_out_with_the_reason(monkeypatch):
    monkeypatch.setattr(matrix, "has_flash_attention", lambda: False)

    def why(*, device="cuda", **special):
        return left_out(
            Case(1, "", (), **special), HALF_BILLION, gpus=1, cards=[], device=device
        )

    assert why() is why(gpus=None) is None
    assert why(gpus=2) == "needs 2 GPUs, and here is 1"
    assert why(needs_flash_attention=True) == "flash-attn is not installed"
    assert why(device="cpu") == "a CPU cannot show it"


@each(
    "mebibytes, too_large",
    ("24564", [8, 9]), ("16376", [1, 2, 3, 8, 9]), ("143771\n24564", [8, 9]), ("143771", []), ("[N/A]", []),
)  # fmt: skip
def test_what_does_not_fit_the_smallest_card_is_left_out(
    mebibytes, too_large, tmp_path, monkeypatch
):
    write_programs(
        tmp_path, monkeypatch, {"nvidia-smi": f"#!/bin/sh\necho '{mebibytes}'\n"}
    )
    cards = matrix.memory_of_cards("total")
    why = {
        case.number: left_out(case, HALF_BILLION, gpus=1, cards=cards, device="cuda")
        for case in CASES
        if case.gpus != 2 and not case.needs_flash_attention
    }
    assert [number for number, reason in why.items() if reason] == too_large
    if mebibytes == "24564":
        assert why[8] == "would take 29.6 GB of a card, and the smallest has 25.8"


def test_the_docs_list_the_cases_with_what_they_take_of_a_card_of_24_gb():
    page = (SCRIPT.parents[2] / "docs" / "openrlhf.md").read_text()
    listed = dict(re.findall(r"^\| (\d+) \| .* \| ([\d.]+)[^|]* \|$", page, re.MULTILINE))
    card = 24564 * 2**20
    taken = {
        case: case.memory(HALF_BILLION, gpus=case.gpus_of(1), card=card) / 1e9
        for case in CASES
    }
    assert listed == {str(case.number): f"{memory:.1f}" for case, memory in taken.items()}


def test_the_report_is_one_markdown_file_that_says_what_is_wrong():
    findings = [
        Finding("ZeRO 3", "goes on after a checkpoint", "step 3", "step 3", True),
        Finding(
            "ZeRO 3", "resumes after kill -9", "from step [0]", "from step [0, 2]", False
        ),
        Finding("ZeRO 3", "memory of the fullest GPU", "39.4 GB"),
        Finding("ZeRO 3", "tokens trained a second", "1,234"),
    ]
    text = markdown(findings, {"GPUs": "1 x H200"}, HALF_BILLION)
    assert text.startswith("# olr ")
    assert "1 right, 1 wrong" in text
    assert (
        "| ZeRO 3 | resumes after kill -9 | from step [0] | from step [0, 2] | **WRONG** |"
        in text
    )
    assert "| ZeRO 3 | memory of the fullest GPU | 39.4 GB |  |  |" in text
    assert "| ZeRO 3 | tokens trained a second | 1,234 |  |  |" in text
    assert "| GPUs | 1 x H200 |" in text


def write_run(folder, gap, kl):
    times = dict.fromkeys(("time/rollouts", "time/update", "time/weights"), 1.0)
    measured = {"rollout/sampler_gap": gap, "policy/kl": kl, **times}
    lines = [{"step": 0}, *({"step": step, **measured} for step in range(1, 5))]
    json_lines(folder / "metrics.jsonl", *lines)
    return folder


@each("gap, kl, right", (0.003, 0.02, True), (0.2, 0.02, False), (0.01, 1e-5, False))
def test_weights_that_stayed_behind_or_never_moved_are_wrong(tmp_path, gap, kl, right):
    assert matrix._weights_arrive(CASES[0], write_run(tmp_path, gap, kl)).is_right is right


NVIDIA_SMI = """#!/bin/sh
case "$*" in *memory.total*) echo 24564 ;; *) echo 1200 ;; esac
"""

PYTHON = """#!/bin/sh
# python, as the matrix starts it: compiles, and runs, are there at once, but the second repeats itself, with a child.
case "$*" in
    *FusedAdamBuilder*) ;;
    *--local-engine*) exit 1 ;;
    */2/run*)
        mkdir -p "$OLR_TEST_RUN/openrlhf"
        cp READY/metrics.jsonl "$OLR_TEST_RUN"
        setsid sleep 1000 & echo "$$ $!" > PROCESSES
        AND_THEN
        log="$OLR_TEST_RUN/openrlhf/log.txt"
        for second in $(seq 1000); do echo "no block in $second s" >> "$log"; sleep .2; done ;;
    *) cp -r READY "$OLR_TEST_RUN" ;;
esac
"""


def write_programs(folder, monkeypatch, programs):
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    for name, text in programs.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    return place


@pytest.fixture
def and_then():
    """What the second run does before it repeats itself."""
    return ":"


@pytest.fixture
def machine(tmp_path, monkeypatch, and_then):
    """A machine with one GPU and stand-ins for the programs of the matrix; the folder that they write to."""
    run = write_history(
        tmp_path / "ready", prompts=16, epochs=2, rollouts=4, prompts_per_step=8
    )
    write_run(run, 0.003, 0.02)
    places = {
        "READY": str(run),
        "PROCESSES": str(tmp_path / "processes"),
        "AND_THEN": and_then,
    }
    python = PYTHON
    for name, place in places.items():
        python = python.replace(name, place)
    programs = write_programs(
        tmp_path, monkeypatch, {"nvidia-smi": NVIDIA_SMI, "python": python}
    )
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(matrix, "HALF_BILLION", TINY)
    monkeypatch.setattr(matrix, "PATIENCE", 5)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    cases = [Case(number, "plain", ("engine.attention=sdpa",)) for number in (1, 2, 3)]
    monkeypatch.setattr(matrix, "CASES", cases)
    return tmp_path


@pytest.mark.slow
def test_a_case_that_hangs_is_wrong_and_leaves_no_process_and_the_others_run(
    machine, monkeypatch
):
    reports = []

    def write(path, text):
        reports.append(text)
        path.write_text(text)

    monkeypatch.setattr(matrix, "write_text", write)
    assert matrix.main(["--report", str(machine / "report.md")]) == 1
    report = (machine / "report.md").read_text()
    assert re.search(r"\| FusedAdamBuilder compile \| in \d+ s \|  \| ok \|", report)
    assert re.search(r"\| 1\. plain \| 4 steps in \d+ s \| yes \| yes \| ok \|", report)
    assert re.search(
        r"\| 2\. plain \| 4 steps in \d+ s \| status -1: nothing new in its log for 5 s .*\*\*WRONG\*\*",
        report,
    )
    assert re.search(r"\| 3\. plain \| 4 steps in \d+ s \| yes \| yes \| ok \|", report)
    assert "| 3. plain | memory of the fullest GPU | 0.0 GB |  |  |" in report
    assert re.search(
        r"\| 10\. local engine \| runs \| CalledProcessError: .* \*\*WRONG\*\*", report
    )
    assert "no end yet" not in report
    assert not any(
        is_alive(process) for process in (machine / "processes").read_text().split()
    )
    assert "no block in 1 s" in (machine / "report" / "2" / "log.txt").read_text()
    assert (machine / "report" / "2" / "metrics.jsonl").exists()
    # Whoever is killed meanwhile leaves the report of what was run, and of what was running.
    assert any(
        "| 1. plain | 4 steps" in text and "| 2. plain | runs | no end yet |" in text
        for text in reports
    )


@pytest.mark.parametrize("and_then", ["kill -TERM $PPID"])
def test_whoever_ends_the_matrix_ends_its_case_and_keeps_the_report_and_the_log(machine):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"):  # as called from another program
        matrix.main(["--report", str(machine / "report.md"), "--case", "2", "--case", "3"])
    assert signal.getsignal(signal.SIGTERM) is before
    report = (machine / "report.md").read_text()
    assert "| 2. plain | runs | cut off from outside | yes |  |" in report
    assert "| 2. plain | memory of the fullest GPU | 0.0 GB |  |  |" in report
    assert "1. plain" not in report
    assert "3. plain" not in report
    assert not any(
        is_alive(process) for process in (machine / "processes").read_text().split()
    )
    assert (machine / "report" / "2" / "metrics.jsonl").exists()


def test_the_lock_of_a_build_that_was_killed_is_named_and_removed(machine):
    lock = machine / "extensions" / "fused_adam" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert matrix.main(["--report", str(machine / "report.md"), "--case", "1"]) == 0
    assert (
        f"the lock of a build that was killed is removed | {lock} |"
        in (machine / "report.md").read_text()
    )
    assert not lock.exists()


def test_a_run_is_silent_while_it_repeats_itself_but_for_numbers(tmp_path):
    log, now = tmp_path / "openrlhf" / "log.txt", [0.0]
    log.parent.mkdir()
    log.write_text("of an attempt that is resumed\n")
    progress = Progress(tmp_path, clock=lambda: now[0])

    def silence(line="", steps=None):
        now[0] += 1
        with log.open("a") as file:
            file.write(line)
        if steps is not None:
            (tmp_path / "metrics.jsonl").write_text(
                "".join(f'{{"step": {step}}}\n' for step in range(steps))
            )
        return progress.seconds_of_silence()

    assert silence() == 1
    assert silence("of an attempt that is resumed\n") == 0
    assert silence("waited 60 seconds\n") == 0
    assert silence("waited 120 seconds\n") == 1
    assert silence("capturing\n") == 0
    assert silence() == 1
    assert silence(steps=2) == 0
    assert silence(steps=2) == 1
    assert silence(steps=3) == 0


def test_without_a_gpu_the_program_says_so_in_a_sentence_and_ends_well(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert matrix.main(["--report", str(tmp_path / "report.md")]) == 0
    assert capsys.readouterr().out.startswith(
        "No GPU that torch can use is here, so the GPU tests are skipped"
    )
    assert not (tmp_path / "report.md").exists()
