"""A model that cannot work is refused in one whole sentence by whatever would load it."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

from olr_cli.engines.local.builtin import policy_path
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.openrlhf.model import StartingModel
from olr_cli.errors import UserError
from olr_cli.evaluation.backends.vllm_backend import read_model

LOADERS = {
    "local": lambda model: Policy.load(model, device="cpu"),
    "openrlhf": lambda model: StartingModel.look_at(str(model), trust_remote_code=False),
    "vllm": lambda model: read_model(str(model), {"trust_remote_code": False}),
}


@pytest.fixture
def model(tmp_path):
    return Path(shutil.copytree(policy_path("addition-easier"), tmp_path / "model"))


def with_tokenizer(model, *, special=None, template=None, plain=()):
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_special_tokens(special or {})
    tokenizer.add_tokens(list(plain))
    tokenizer.chat_template = template
    tokenizer.save_pretrained(model)


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize(
    "added",
    [
        {"special": {"pad_token": "[PADDING]"}},
        {"plain": ["[PADDING]"], "template": "[PADDING]{{ messages[0] }}"},
    ],
    ids=["pad token", "template"],
)
def test_a_token_without_embedding_is_named_before_anything_starts(model, load, added):
    with_tokenizer(model, **added)
    expected = r"has 65 tokens, and the model embeddings for 64 alone: its token '\[PADDING\]' is number 64"
    with pytest.raises(UserError, match=expected):
        load(model)


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_a_token_without_embedding_that_nothing_uses_is_no_mistake(model, load):
    with_tokenizer(model, plain=["[IMAGE]"])
    load(model)


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_a_model_without_tokenizer_is_refused(model, load):
    for file in model.glob("*token*"):
        file.unlink()
    with pytest.raises(UserError, match="tokenizer"):
        load(model)


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_a_weight_that_is_not_finite_is_named(model, load, dtype):
    file, name = model / "model.safetensors", "model.norm.weight"
    weights = load_file(file)
    weights[name] = weights[name].to(dtype)
    save_file(weights, file, metadata={"format": "pt"})
    load(model)
    weights[name] = weights[name].float().index_fill(0, torch.tensor([7]), torch.nan).to(dtype)
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"not finite \(model\.norm\.weight\)"):
        load(model)


def test_the_reason_is_whole_and_without_lists_of_all_that_would_be_right(tmp_path):
    config = T5Config(vocab_size=64, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(policy_path("addition-easier")).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"for this kind of AutoModel: AutoModelForCausalLM\); give a folder"):
        Policy.load(tmp_path, device="cpu")
