"""LoRA trains adapters alone, from the starting policy on; its checkpoints are models as any other's."""

import copy
import io
import re
from importlib.util import find_spec

import pytest
import torch
from cases import refusal
from decisions import make_method
from tiny import PROMPTS, keys, plain_logprobs, tiny_policy
from transformers import (
    AutoModelForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from olr_cli.engines.launch import launch
from olr_cli.engines.local.engine import LocalRunner
from olr_cli.engines.local.grpo import Grpo
from olr_cli.engines.local.lora import LoraPolicy
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.sampler import sample
from olr_cli.engines.models import policy_path
from olr_cli.engines.run import load_data
from olr_cli.errors import NotHere, UserError
from olr_cli.recipe.layers import validate
from olr_cli.recipe.sampling import Sampling
from olr_cli.recipe.sections import TrainSection
from olr_cli.runs.checkpoints import checkpoint_path
from olr_cli.runs.progress import LineProgress

needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="needs peft")

ADVANTAGES = torch.tensor([[1.0, -1, 0.5, -0.5]] * len(PROMPTS))
RANK = 4


def recipe(seed=0, **train):
    train = {
        "epochs": 2, "prompts_per_step": 8, "mini_batch_prompts": 4, "rollouts_per_prompt": 4, "max_new_tokens": 5,
        "learning_rate": 1e-2, "lora_rank": RANK, "checkpoint_every": 2, "keep_checkpoints": 9, **train,
    }  # fmt: skip
    engine = {"name": "local", "device": "cpu", "threads": 1}
    return validate(
        {"seed": seed, "data": {"limit": 20}, "train": train, "engine": engine}, "test"
    )


def attached(seed=0, **train):
    return LoraPolicy.attach(tiny_policy(), recipe(seed, **train))


def updated(policy, reference=None, steps=1):
    """The optimiser after some steps on rollouts of the policy's own."""
    grpo = Grpo(
        policy,
        reference,
        TrainSection(
            learning_rate=1e-2, kl_weight=0.1 if reference else 0.0, mini_batch_prompts=4
        ),
        make_method("grpo"),
    )
    for _ in range(steps):
        rollouts = sample(policy, PROMPTS, keys(len(PROMPTS), 4), Sampling(1.0, 6))
        grpo.update(rollouts, ADVANTAGES, [True] * len(PROMPTS))
    return grpo


def logprobs(policy):
    return torch.stack(
        [plain_logprobs(policy, prompt, [7, 8, 9])[0].detach() for prompt in PROMPTS]
    )


@needs_peft
def test_a_new_adapter_changes_nothing_and_its_draw_depends_on_the_seed_alone():
    assert torch.equal(logprobs(attached()), logprobs(tiny_policy()))
    torch.manual_seed(1)
    first, again, other = (logprobs_after_a_step(seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def logprobs_after_a_step(seed):
    policy = attached(seed)
    updated(policy)
    return logprobs(policy)


@needs_peft
def test_only_the_adapters_of_linear_layers_train():
    policy = attached()
    grpo = updated(policy)
    trained = {
        name for name, weight in policy.model.named_parameters() if weight.requires_grad
    }
    assert sum(map(torch.numel, grpo.parameters)) < 0.5 * sum(
        map(torch.numel, policy.model.parameters())
    )
    layers = {name.split(".lora_")[0].rsplit(".", 1)[1] for name in trained}
    assert layers == {
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    }
    only = attached(lora_layers=".*[qv]_proj").model.named_parameters()
    layers = {n.split(".lora_")[0].rsplit(".", 1)[1] for n, w in only if w.requires_grad}
    assert layers == {"q_proj", "v_proj"}


@needs_peft
def test_the_reference_stays_the_starting_policy_while_adapters_train():
    policy = attached()
    reference = policy.frozen_copy()
    updated(policy, reference, steps=3)
    assert torch.equal(logprobs(reference), logprobs(tiny_policy()))
    assert not torch.allclose(logprobs(policy), logprobs(tiny_policy()), atol=1e-2)


def go(path):
    launch(recipe(), path, LocalRunner, LineProgress(io.StringIO()))


@needs_peft
def test_a_checkpoint_is_the_merged_model_and_beside_it_the_adapter(tmp_path):
    from peft import PeftModel

    go(tmp_path / "run")
    folder = checkpoint_path(tmp_path / "run", 6)
    assert not (folder / "adapter_config.json").exists()
    start, merged = (
        AutoModelForCausalLM.from_pretrained(at).eval()
        for at in (policy_path("addition-easier"), folder)
    )
    tokens = torch.tensor([PROMPTS[0]])
    with torch.inference_mode():
        before, after = (model(tokens).logits for model in (start, merged))
        adapted = PeftModel.from_pretrained(start, folder / "adapter").eval()(tokens).logits
    torch.testing.assert_close(after, adapted, atol=1e-4, rtol=1e-4)
    assert (after - before).abs().max() > 0.05
    assert torch.equal(
        start.get_input_embeddings().weight, merged.get_input_embeddings().weight
    )


@needs_peft
def test_layers_that_the_model_does_not_have_are_an_error(tmp_path):
    expected = (
        r"lora_layers 'nowhere' fits no layer of builtin:addition-easier \(.*all-linear"
    )
    with pytest.raises(UserError, match=expected):
        attached(lora_layers="nowhere")


@pytest.mark.skipif(find_spec("peft") is not None, reason="peft is installed")
def test_without_peft_nothing_is_written(tmp_path):
    with pytest.raises(
        NotHere, match=r"the package peft, which is not installed; pip install '\.\[lora\]'"
    ):
        go(tmp_path / "run")
    assert not list(tmp_path.iterdir())


@needs_peft
@pytest.mark.parametrize("layers", [".*(lm_head|q_proj)", ".*embed_tokens"])
def test_an_adapter_on_tied_embeddings_is_refused(layers):
    said = refusal(attached, lora_layers=layers)
    assert "whose weights another layer has too (tied" in said
    assert layers in said


def untied_policy(model=None):
    tiny = tiny_policy()
    if model is None:
        config = copy.deepcopy(tiny.model.config)
        config.tie_word_embeddings = False
        model = type(tiny.model)(config)
    return Policy(model, tiny.tokenizer, tiny.device)


@needs_peft
def test_an_adapter_on_a_head_of_its_own_is_merged(tmp_path):
    policy = LoraPolicy.attach(untied_policy(), recipe(lora_layers=".*(lm_head|q_proj)"))
    updated(policy, steps=3)
    policy.save(tmp_path)
    torch.testing.assert_close(
        logprobs(Policy.load(tmp_path, device="cpu")), logprobs(policy), atol=1e-4, rtol=0
    )


@needs_peft
def test_a_merge_that_loses_the_adapter_makes_no_checkpoint(tmp_path, monkeypatch):
    from peft import PeftModel

    policy = attached()
    updated(policy, steps=3)
    monkeypatch.setattr(
        PeftModel, "merge_and_unload", lambda model: tiny_policy().model, raising=False
    )
    said = refusal(policy.save, tmp_path)
    assert re.search(r"the merged policy is [\d.]+ nats from the one that trains", said)
    assert not list(tmp_path.iterdir())


@needs_peft
def test_a_run_says_which_layers_have_adapters_before_its_first_step(tmp_path):
    expected = "adapters in down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj; without adapters are"
    assert f"{expected} model.embed_tokens." in attached().coverage()
    said = io.StringIO()
    launch(recipe(epochs=1), tmp_path / "run", LocalRunner, LineProgress(said))
    assert 0 <= said.getvalue().find("LoRA trains") < said.getvalue().find("\n    1   ")


@needs_peft
def test_experts_without_adapters_are_named():
    config = GptOssConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64,
    )  # fmt: skip
    policy = LoraPolicy.attach(untied_policy(GptOssForCausalLM(config)), recipe())
    said = policy.coverage()
    assert "adapters in k_proj, o_proj, q_proj, v_proj; without adapters are " in said
    assert "experts.down_proj, " in said
    assert "experts.gate_up_proj, " in said
    trained = [
        weight.numel() for weight in policy.model.parameters() if weight.requires_grad
    ]
    assert f"{sum(trained) / sum(map(torch.numel, policy.model.parameters())):.2%}" in said


@needs_peft
def test_layers_that_cannot_be_merged_are_refused_before_anything_is_written(tmp_path):
    tiny_policy().save(tmp_path / "tied")
    changes = {"train": {**recipe().train.plain(), "lora_layers": ".*embed_tokens"}}
    tied = validate(
        {**recipe().plain(), **changes, "model": {"path": str(tmp_path / "tied")}}, "test"
    )
    assert "tied embeddings" in refusal(
        launch, tied, tmp_path / "run", LocalRunner, LineProgress(io.StringIO())
    )
    assert not (tmp_path / "run").exists()
    assert any(
        "LoRA trains" in line for line in LocalRunner(recipe(), load_data(recipe())).plan
    )


@needs_peft
def test_adapters_on_experts_are_merged_and_named(tmp_path):
    config = Qwen3MoeConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
        max_position_embeddings=64,
    )  # fmt: skip
    policy = LoraPolicy.attach(untied_policy(Qwen3MoeForCausalLM(config)), recipe())
    with torch.no_grad():
        for weight in policy.model.parameters():
            if weight.requires_grad:
                torch.nn.init.normal_(weight, std=0.1)
    policy.save(tmp_path)
    merged = Policy.load(tmp_path, device="cpu")
    torch.testing.assert_close(logprobs(merged), logprobs(policy), atol=1e-4, rtol=0)
    names = {
        name for name, weight in policy.model.named_parameters() if weight.requires_grad
    }
    has_adapters = policy.coverage().partition("without adapters")[0]
    assert ("experts" in has_adapters) == any(".experts." in name for name in names)
