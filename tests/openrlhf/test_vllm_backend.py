"""The vLLM backend on a CPU: it responds as the transformers backend does."""

import json
import math
import os
import shutil
from dataclasses import replace

import pytest
import torch
from cases import refusal

from olr_cli.answers.extraction import extract
from olr_cli.data.prompt_files import read_prompts
from olr_cli.engines.backends import BackendOptions
from olr_cli.engines.models import policy_path
from olr_cli.errors import UserError
from olr_cli.recipe.sampling import Sampling
from olr_cli.seeding import key
from olr_cli.supervision import Rollout

POLICY = policy_path("addition-easier")
PROMPTS = read_prompts("arithmetic", split="test", seed=0).prompts[:200]
MESSAGES = [prompt.messages for prompt in PROMPTS]
SEEDS = [[key("test", p, g) >> 1 for g in range(8)] for p in range(len(PROMPTS))]
ONE_SEED = [[0]] * len(PROMPTS)
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
def vllm():
    with BackendOptions().open(str(POLICY)) as opened:
        assert opened.facts["name"] == "vllm"
        yield opened


@pytest.fixture(scope="module")
def transformers():
    with BackendOptions("transformers").open(str(POLICY)) as opened:
        yield opened


@pytest.fixture(scope="module")
def sampled(vllm):
    return generate(vllm, MESSAGES, SEEDS, SAMPLED)


def right(outputs):
    """Mean share of right answers over prompts, and its standard error."""
    shares = [
        sum(extract(output.response, "reversed_digits") == prompt.gold for output in own)
        / len(own)
        for prompt, own in zip(PROMPTS, outputs, strict=True)
    ]
    mean = sum(shares) / len(shares)
    return mean, math.sqrt(
        sum((share - mean) ** 2 for share in shares) / (len(shares) - 1) / len(shares)
    )


def test_the_lower_63_bits_of_a_seed_count(vllm, sampled):
    above = [[seed | 2**63 for seed in own] for own in SEEDS[:10]]
    assert generate(vllm, MESSAGES[:10], above, SAMPLED) == sampled[:10]


@pytest.mark.parametrize("max_new_tokens", [8, 2, 4096])
def test_greedy_responses_are_those_of_the_transformers_backend(
    vllm, transformers, max_new_tokens
):
    # 4096 is more than the model's context
    sampling = Sampling(temperature=0, max_new_tokens=max_new_tokens)
    outputs = generate(vllm, MESSAGES, ONE_SEED, sampling)
    assert outputs == generate(transformers, MESSAGES, ONE_SEED, sampling)
    assert all(output.truncated == (max_new_tokens == 2) for [output] in outputs)


def test_samples_are_as_often_right_as_those_of_the_transformers_backend(
    sampled, transformers
):
    mean, error = right(sampled)
    other_mean, other_error = right(generate(transformers, MESSAGES, SEEDS, SAMPLED))
    print(
        f"right: vllm {mean:.4f} ± {error:.4f}, transformers {other_mean:.4f} ± {other_error:.4f}"
    )
    assert abs(mean - other_mean) < 4 * math.hypot(error, other_error)


def test_a_sample_is_the_same_whatever_is_sampled_with_it(vllm, sampled):
    alone = [
        generate(vllm, MESSAGES[p : p + 1], [SEEDS[p][3:4]], SAMPLED)[0][0]
        for p in range(0, 200, 20)
    ]
    assert alone == [sampled[p][3] for p in range(0, 200, 20)]
    backwards = generate(vllm, MESSAGES[::-1], [own[::-1] for own in SEEDS[::-1]], SAMPLED)
    assert backwards == [own[::-1] for own in sampled[::-1]]


def test_a_path_that_is_no_model_is_one_sentence(tmp_path):
    (tmp_path / "empty").mkdir()
    for model in (tmp_path / "missing", tmp_path / "empty"):
        assert str(model) in refusal(BackendOptions("vllm").open, str(model))


def test_an_engine_that_cannot_start_is_one_sentence(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(POLICY, model, ignore=shutil.ignore_patterns("*.safetensors"))
    with (
        BackendOptions("vllm").open(str(model)) as opened,
        pytest.raises(UserError) as caught,
    ):
        generate(opened, MESSAGES[:1], [[0]], GREEDY)
    assert str(caught.value).startswith(f"vLLM cannot run '{model}' here (")
    assert "\n" not in str(caught.value)


def test_other_end_tokens_longer_responses_and_a_clean_process(tmp_path, capfd):
    model = tmp_path / "model"
    shutil.copytree(POLICY, model)
    entries = {
        # A context of more than one engine's room, so that longer responses start another engine.
        "config": {"max_position_embeddings": 8192},
        # Digits that end a response, and sampling that is not asked for.
        "generation_config": {
            "eos_token_id": [2, 4],
            "do_sample": True,
            "temperature": 0.1,
            "repetition_penalty": 3.0,
        },
    }
    for name, values in entries.items():
        file = model / f"{name}.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | values))
    environment, set_threads = dict(os.environ), torch.set_num_threads
    capfd.readouterr()
    with (
        BackendOptions("vllm").open(str(model)) as opened,
        BackendOptions("transformers").open(str(model)) as other,
    ):
        expected = generate(other, MESSAGES, ONE_SEED, GREEDY)
        assert generate(opened, MESSAGES, ONE_SEED, GREEDY) == expected
        first = opened._llm
        assert generate(opened, MESSAGES, ONE_SEED, GREEDY) == expected
        assert opened._llm is first
        longer = Sampling(temperature=0, max_new_tokens=4096)
        assert generate(opened, MESSAGES, ONE_SEED, longer) == expected
        assert opened._llm is not first
    # Nothing that tears a display (torch is told to be silent too, if it is not imported yet), and nothing left behind.
    said = capfd.readouterr()
    assert said.out == ""
    assert [line for line in said.err.splitlines() if "NUMA binding" not in line] == []
    assert dict(os.environ) == environment
    assert torch.set_num_threads is set_threads


@pytest.mark.parametrize("stop", [("0",), ("1", "23")])
def test_a_stop_text_ends_a_response_which_then_lacks_it(vllm, sampled, stop):
    sampling = replace(SAMPLED, stop=stop)
    outputs = generate(vllm, MESSAGES[:100], SEEDS[:100], sampling)
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
