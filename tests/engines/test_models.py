"""Built-in policies are found without torch; a model that cannot work is refused in one whole sentence."""

import errno
import os
import shutil
import subprocess
import sys

import pytest
import torch
from cases import each, refusal
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from olr_cli.data.arithmetic import TOYS
from olr_cli.data.chat import Message
from olr_cli.engines.backends.vllm_backend import read_model
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.models import NAMES, context_length, is_builtin, loading, policy_path
from olr_cli.engines.openrlhf.starting_model import StartingModel
from olr_cli.engines.prompt_text import ChatFormat
from olr_cli.engines.weights import require_stored_weights
from olr_cli.errors import UserError

LOADERS = {
    "local": lambda model: Policy.load(model, device="cpu"),
    "openrlhf": lambda model: StartingModel.look_at(str(model), trust_remote_code=False),
    "vllm": lambda model: read_model(str(model), trust_remote_code=False),
}


def tokenizer_and_notes(loaded):
    """What each of `LOADERS` has read besides weights."""
    if isinstance(loaded, tuple):
        return loaded[1], loaded[3]
    return loaded.tokenizer, loaded.notes


every_toy = pytest.mark.parametrize("name", TOYS)


@every_toy
def test_shipped_weights_load_in_hugging_face_layout_and_answer(name):
    folder = policy_path(name)
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.model_type == "qwen3" and model.dtype == torch.float32
    assert model.config.vocab_size == len(tokenizer)
    end, pad = model.generation_config.eos_token_id, model.generation_config.pad_token_id
    assert (end, pad) == (tokenizer.eos_token_id, tokenizer.pad_token_id)

    prompt = "523-487=" if name == "subtraction" else "678+543="
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    response = model.generate(ids, max_new_tokens=6, do_sample=False)[0, ids.shape[1] :]
    assert response[-1] == end
    assert tokenizer.decode(response, skip_special_tokens=True).isdigit()


@every_toy
def test_shipped_folders_are_small(name):
    assert sum(path.stat().st_size for path in policy_path(name).iterdir()) < 800_000


@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_the_toys_chat_template_shows_what_the_user_says_and_nothing_else(
    add_generation_prompt,
):
    turns = [
        {"role": "system", "content": "Think."},
        {"role": "user", "content": "123+456="},
    ]
    tokenizer = AutoTokenizer.from_pretrained(policy_path("addition-easier"))
    text = tokenizer.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=add_generation_prompt
    )
    assert text == "123+456="


def test_a_toy_reads_a_prompt_as_the_warm_up_wrote_it():
    policy = Policy.load(policy_path("addition-easier"), device="cpu")
    assert (
        policy.encode([[Message("user", "123+456=")]])
        == policy.tokenizer(["123+456="])["input_ids"]
    )


def test_built_in_names_are_known_with_and_without_their_prefix():
    assert policy_path("builtin:subtraction") == policy_path("subtraction")
    assert is_builtin("builtin:anything") and not is_builtin("models/subtraction")
    assert "did you mean 'addition-harder'" in refusal(policy_path, "builtin:addition-hard")


def test_the_pretrained_policy_is_found_where_make_smollm_puts_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "olr" / NAMES[-1]
    with pytest.raises(
        UserError,
        match=f"`make smollm` .* {folder}, .* HuggingFaceTB/SmolLM2-135M-Instruct",
    ):
        policy_path(f"builtin:{NAMES[-1]}")
    folder.mkdir(parents=True)
    (folder / "weights.json").touch()  # written last
    assert policy_path(f"builtin:{NAMES[-1]}") == folder


def with_tokenizer(model, *, special=None, template=None, plain=()):
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_special_tokens(special or {})
    tokenizer.add_tokens(list(plain))
    tokenizer.chat_template = template
    tokenizer.save_pretrained(model)


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@each(
    "added",
    {"special": {"pad_token": "[PADDING]"}},
    {"plain": ["[PADDING]"], "template": "[PADDING]{{ messages[0] }}"},
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
    tokenizer, notes = tokenizer_and_notes(load(model))
    assert (len(tokenizer), list(notes)) == (65, [])


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_a_model_without_tokenizer_is_refused(model, load):
    for file in model.glob("*token*"):
        file.unlink()
    assert "tokenizer" in refusal(load, model)


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn]
)
def test_a_weight_that_is_not_finite_is_named(model, load, dtype):
    file, name = model / "model.safetensors", "model.norm.weight"
    weights = load_file(file)
    weights[name] = weights[name].to(dtype)
    save_file(weights, file, metadata={"format": "pt"})
    load(model)
    weights[name] = (
        weights[name].float().index_fill(0, torch.tensor([7]), torch.nan).to(dtype)
    )
    save_file(weights, file, metadata={"format": "pt"})
    assert "not finite (model.norm.weight)" in refusal(load, model)


END_IDS = {
    "local": lambda model, chat: Policy.load(model, device="cpu", chat=chat).end_ids,
    "vllm": lambda model, chat: read_model(str(model), trust_remote_code=False, chat=chat)[
        2
    ],
}


@pytest.mark.parametrize("end_ids", END_IDS.values(), ids=END_IDS)
def test_a_response_ends_where_the_chat_template_that_is_used_closes_a_turn(model, end_ids):
    tokenizer = AutoTokenizer.from_pretrained(model)
    end, unknown = tokenizer.eos_token_id, tokenizer.unk_token_id
    with_tokenizer(
        model, template="{% for m in messages %}{{ m.content }}<unk>{% endfor %}"
    )
    assert end_ids(model, ChatFormat()) == sorted((end, unknown))
    assert end_ids(model, ChatFormat("")) == [end]


def without_configuration(model):
    (model / "config.json").unlink()


def half_a_configuration(model):
    (model / "config.json").write_text('{"model_type": "qwen3"')


def torn_weights(model):
    (model / "model.safetensors").write_text("x")


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@each(
    "damage, said",
    (shutil.rmtree, "does not exist"),
    (without_configuration, "cannot load a "),
    (half_a_configuration, "cannot load a "),
    (torn_weights, r"cannot load a model|model\.safetensors is torn"),
)
def test_what_is_no_whole_model_is_refused_in_a_sentence(model, load, damage, said):
    damage(model)
    with pytest.raises(UserError, match=said) as refused:
        load(model)
    assert "\n" not in str(refused.value)


@each(
    "error, raised, said",
    (MemoryError("no room"), MemoryError, "no room"),
    (RuntimeError("CUDA out of memory"), RuntimeError, "CUDA out of memory"),
    (
        OSError(errno.ENOSPC, "No space left on device"),
        UserError,
        "could not be loaded: the disk is",
    ),
    (OSError("no such file"), UserError, "cannot load a model .*in Hugging Face layout"),
)
def test_what_the_machine_lacks_is_not_blamed_on_the_models_files(
    tmp_path, error, raised, said
):
    with pytest.raises(raised, match=said), loading(tmp_path):
        raise error


def test_the_reason_is_whole_and_without_lists_of_all_that_would_be_right(tmp_path):
    config = T5Config(vocab_size=64, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(policy_path("addition-easier")).save_pretrained(tmp_path)
    with pytest.raises(
        UserError,
        match=r"for this kind of AutoModel: AutoModelForCausalLM\); give a folder",
    ):
        Policy.load(tmp_path, device="cpu")


TINY = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 14,
}


def untied():
    return LlamaForCausalLM(LlamaConfig(**TINY, tie_word_embeddings=False))


def tied():
    return LlamaForCausalLM(LlamaConfig(**TINY, tie_word_embeddings=True))


def body_of_a_tied_model():
    return LlamaModel(LlamaConfig(**TINY, tie_word_embeddings=True))


def experts():
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            **TINY,
            head_dim=8,
            moe_intermediate_size=16,
            num_experts=4,
            num_experts_per_tok=2,
        )
    )


def experts_in_one():
    return GptOssForCausalLM(GptOssConfig(**TINY, head_dim=8, num_local_experts=4))


def multimodal():
    text = {**TINY, "head_dim": 8, "sliding_window": 6}
    images = {
        "mm_tokens_per_image": 4,
        "boi_token_index": 60,
        "eoi_token_index": 61,
        "image_token_index": 62,
    }
    return Gemma3ForConditionalGeneration(
        Gemma3Config(text_config=text, vision_config=VISION, **images)
    )


def saved(folder, model, **how):
    model.save_pretrained(folder, **how)
    AutoTokenizer.from_pretrained(policy_path("addition-easier")).save_pretrained(folder)
    return folder


def rewritten(folder, change, model=untied):
    """The folder of a model whose file of weights is changed."""
    file = saved(folder, model()) / "model.safetensors"
    weights = {
        name: weight.clone().contiguous()
        for name, weight in change(load_file(file)).items()
    }
    save_file(weights, file, metadata={"format": "pt"})
    return folder


def named(prefix):
    return lambda weights: {prefix + name: weight for name, weight in weights.items()}


def without(part):
    return lambda weights: {
        name: weight for name, weight in weights.items() if part not in name
    }


def unmerged(weights):
    name = "model.layers.0.self_attn.q_proj"
    weights[f"{name}.lora_A.default.weight"] = torch.ones(4, 32)
    return {
        key.replace(f"{name}.weight", f"{name}.base_layer.weight"): it
        for key, it in weights.items()
    }


def beside_an_adapter(weights):
    return weights | {"model.layers.0.self_attn.q_proj.lora_A.weight": torch.ones(4, 32)}


def in_codes(kind, scale):
    def change(weights):
        name = "model.layers.0.self_attn.q_proj"
        weights[f"{name}.weight"] = weights[f"{name}.weight"].mul(50).to(kind)
        weights[f"{name}.{scale}"] = torch.ones(32)
        return weights

    return change


def of_another_shape(weights):
    return weights | {"lm_head.weight": torch.zeros(80, 32)}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@each(
    "change, said",
    (
        without("lm_head"),
        r"lack 1 of the weights .* \(lm_head\.weight\): .* at random; download",
    ),
    (
        without("layers.1."),
        r"lack 9 of the weights .* \(model\.layers\.1\.input_layernorm\.weight, ",
    ),
    (without("layers.1.mlp.up_proj"), r"\(model\.layers\.1\.mlp\.up_proj\.weight\)"),
    (named("_orig_mod."), r"lack 21 .*they hold others .*\(_orig_mod\.lm_head\.weight, "),
    (named("module."), r"lack 21 .*\(module\.lm_head\.weight, "),
    (named("base_model.model."), r"lack 21 .*\(base_model\.model\.lm_head\.weight, "),
    (unmerged, r"lack 1 .*q_proj\.base_layer\.weight"),
    (in_codes(torch.int8, "SCB"), r"q_proj\.weight as I8, the codes of a quantised model"),
    (
        in_codes(torch.float8_e4m3fn, "weight_scale_inv"),
        r"q_proj\.weight as F8_E4M3, the codes",
    ),
    (
        beside_an_adapter,
        r"hold an adapter that is not merged \(model\.layers\.0\.self_attn\.q_proj\.lora_A",
    ),
    (of_another_shape, r"lm_head\.weight in the shape 80 x 32, .* asks for 64 x 32"),
)
def test_weights_that_the_files_lack_are_named_before_anything_starts(
    tmp_path, load, change, said
):
    with pytest.raises(UserError, match=said):
        load(rewritten(tmp_path, change))


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_an_expert_that_the_files_lack_is_no_draw(tmp_path, load):
    folder = rewritten(tmp_path, without("layers.1.mlp.experts.2.gate_proj"), experts)
    assert "such as one of a layer's experts" in refusal(load, folder)


LOOKS_AT = """
from olr_cli.engines.openrlhf.starting_model import StartingModel
from olr_cli.errors import NotHere
for link in (None, snapshot / "model.safetensors"):
    if link:
        link.symlink_to(policy / link.name)
    try:
        print(StartingModel.look_at("some/model", trust_remote_code=False).digest)
    except NotHere as error:
        print(error)
"""
"""Looks at a model of the hub's cache, and once more when its weights have come, too."""


def test_weights_that_the_hubs_cache_lacks_are_named_where_the_hub_is_out_of_reach(
    tmp_path,
):
    policy = policy_path("addition-easier")
    cache = tmp_path / "hub" / "models--some--model"
    snapshot = cache / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    for file in policy.iterdir():  # what a dry run leaves
        if file.suffix != ".safetensors":
            (snapshot / file.name).symlink_to(file)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0" * 40)
    code = f"from pathlib import PosixPath\npolicy, snapshot = {policy!r}, {snapshot!r}\n{LOOKS_AT}"
    offline = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=offline,
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = ended.stdout.splitlines()
    assert first.startswith("the weights of some/model are not in the local cache of the")
    assert first.endswith("hf download some/model")
    assert second == f"commit {'0' * 40}"


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_a_lost_shard_is_named(tmp_path, load):
    saved(tmp_path, untied(), max_shard_size="20KB")
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    shard.unlink()
    assert f"lacks {shard.name}, which its index names" in refusal(load, tmp_path)


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("index", ["{}", "[]", '{"weight_map": ["x"]}'])
def test_an_index_that_names_no_files_is_one_sentence(tmp_path, load, index):
    saved(tmp_path, untied(), max_shard_size="20KB")
    (tmp_path / "model.safetensors.index.json").write_text(index)
    assert "does not name the files of the weights (weight_map)" in refusal(load, tmp_path)


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_experts_in_codes_are_refused_though_their_names_end_otherwise(tmp_path, load):
    def in_codes(weights):
        return {
            name: it.to(torch.int8) if name.endswith("_proj") else it
            for name, it in weights.items()
        }

    folder = rewritten(tmp_path, in_codes, experts_in_one)
    assert "mlp.experts.down_proj as I8, the codes of a quantised model" in refusal(
        load, folder
    )


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_a_pipe_in_place_of_weights_is_refused(tmp_path, load):
    file = saved(tmp_path, untied()) / "model.safetensors"
    file.unlink()
    os.mkfifo(file)
    writer = os.open(file, os.O_RDWR)  # or whoever opens it waits, and no signal ends that
    assert "model.safetensors is a pipe, a device or a socket" in refusal(load, tmp_path)
    os.close(writer)


RIGHT = {
    "untied": (untied, {}),
    "tied": (tied, {}),
    "body of a tied model": (body_of_a_tied_model, {}),
    "experts": (experts, {}),
    "experts in one weight": (experts_in_one, {}),
    "experts in shards": (experts, {"max_shard_size": "20KB"}),
    "old names of experts": (experts, {"save_original_format": False}),
}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("make, how", RIGHT.values(), ids=RIGHT)
def test_a_whole_model_loads_however_its_weights_are_stored(tmp_path, load, make, how):
    model = make()
    loaded = load(saved(tmp_path, model, **how))
    tokenizer, notes = tokenizer_and_notes(loaded)
    assert (len(tokenizer), list(notes)) == (64, [])
    if isinstance(loaded, Policy):
        weights = loaded.model.state_dict()
        for name, weight in model.state_dict().items():
            assert torch.equal(weights.get(name, weights.get(f"model.{name}")), weight)


def test_a_quantised_model_is_left_to_who_loads_it(tmp_path):
    folder = rewritten(tmp_path, in_codes(torch.int8, "SCB"))
    config = AutoConfig.from_pretrained(folder)
    config.quantization_config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    assert require_stored_weights(folder, folder, config, trust_remote_code=False) == []


def test_integers_that_are_no_weights_are_no_codes(tmp_path):
    masks = {"model.layers.0.self_attn.bias": torch.ones(4, 4, dtype=torch.uint8)}
    assert Policy.load(
        rewritten(tmp_path, lambda weights: weights | masks), device="cpu"
    ).notes


NOTES = {
    "local": lambda model: Policy.load(model, device="cpu").notes,
    "openrlhf": lambda model: (
        StartingModel.look_at(str(model), trust_remote_code=False).notes
    ),
    "vllm": lambda model: read_model(str(model), trust_remote_code=False)[3],
}


@pytest.mark.parametrize("notes", NOTES.values(), ids=NOTES)
def test_weights_that_are_too_many_are_said(tmp_path, notes):
    more = {"model.layers.2.mlp.up_proj.weight": torch.zeros(48, 32)}
    [sentence] = notes(rewritten(tmp_path, lambda weights: weights | more))
    assert "hold weights that its configuration does not ask for" in sentence
    assert "(model.layers.2.mlp.up_proj.weight)" in sentence


def test_a_checkpoint_says_that_its_head_is_not_tied_where_the_files_held_two(tmp_path):
    head = {"lm_head.weight": torch.ones(64, 32)}
    policy = Policy.load(
        rewritten(tmp_path / "start", lambda weights: weights | head, tied), device="cpu"
    )
    policy.save(tmp_path / "checkpoint")
    saved_config = AutoConfig.from_pretrained(tmp_path / "checkpoint")
    assert not saved_config.tie_word_embeddings
    again = Policy.load(tmp_path / "checkpoint", device="cpu").model
    assert torch.equal(again.get_output_embeddings().weight, head["lm_head.weight"])
    Policy.load(saved(tmp_path / "tied", tied()), device="cpu").save(tmp_path / "again")
    assert AutoConfig.from_pretrained(tmp_path / "again").tie_word_embeddings


def test_looking_at_weights_draws_no_number(tmp_path):
    folder = saved(tmp_path, untied())
    before = torch.get_rng_state()
    require_stored_weights(
        folder, folder, AutoConfig.from_pretrained(folder), trust_remote_code=False
    )
    assert torch.equal(torch.get_rng_state(), before)


CONTEXTS = {
    "local": lambda model: Policy.load(model, device="cpu").context_length,
    "vllm": lambda model: context_length(
        read_model(str(model), trust_remote_code=False)[0]
    ),
}


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_the_context_of_a_model_that_reads_images_too_is_its_text_models(tmp_path, context):
    assert context(saved(tmp_path, multimodal())) == 64
