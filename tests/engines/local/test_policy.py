"""The policy loads, saves, renders and continues sequences as the model alone would."""

import inspect
import shutil
from itertools import pairwise

import pytest
import torch
from cases import each, refusal
from tiny import PROMPTS, keys, plain_logprobs, tiny_policy
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BertConfig,
    BloomConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    GenerationConfig,
    GPT2Config,
    GPTNeoConfig,
    LlamaConfig,
    MistralConfig,
    MoshiConfig,
    OpenAIGPTConfig,
    Phi3Config,
    RobertaConfig,
)
from transformers.integrations import sdpa_attention
from transformers.modeling_layers import GradientCheckpointingLayer

from olr_cli.data.chat import Message
from olr_cli.engines.local import policy as policy_module, token_statistics
from olr_cli.engines.local.attention import attend_folded
from olr_cli.engines.local.engine import load_policy
from olr_cli.engines.local.policy import Policy, shared_prefix
from olr_cli.engines.local.sampler import sample
from olr_cli.engines.local.token_statistics import response_statistics
from olr_cli.engines.prompt_text import ChatFormat, has_chat_template
from olr_cli.errors import UserError
from olr_cli.recipe.layers import load_recipe
from olr_cli.recipe.sampling import Sampling


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_policy().save(folder)
    return folder


def test_a_saved_policy_is_a_hugging_face_model_with_safetensors_and_tokenizer(saved):
    policy = tiny_policy()
    model = AutoModelForCausalLM.from_pretrained(saved)
    assert (saved / "model.safetensors").exists()
    for name, weight in policy.model.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], weight, rtol=0, atol=0)
    assert (
        AutoTokenizer.from_pretrained(saved)("1+2=")["input_ids"]
        == policy.tokenizer("1+2=")["input_ids"]
    )


def test_weights_are_float32_and_so_is_the_computation_where_there_is_no_gpu(
    saved, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    policy, in_bfloat16 = (
        Policy.load(saved),
        Policy.load(saved, device="cpu", dtype=torch.bfloat16),
    )
    assert (policy.device.type, policy.dtype) == ("cpu", torch.float32)
    assert {p.dtype for p in in_bfloat16.model.parameters()} == {torch.float32}


def untied():
    return of_architecture(LlamaConfig(**SIZES, tie_word_embeddings=False))


class Scaled(torch.nn.Module):
    """A layer whose weights are used without a call of it."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, hidden):
        return hidden @ self.layer.weight.float().sqrt().nan_to_num(0).T


def with_weights_used_apart():
    policy = untied()
    attention = policy.model.model.layers[0].self_attn
    attention.o_proj = Scaled(attention.o_proj)
    return policy


@each(
    "make, is_rounded",
    (tiny_policy, True),
    (untied, True),
    (with_weights_used_apart, False),
    ids=["tied", "untied", "used apart"],
)
def test_a_frozen_copy_keeps_weights_as_autocast_rounds_them_where_scores_stay(
    make, is_rounded
):
    policy = make()
    assert {w.dtype for w in policy.frozen_copy().model.parameters()} == {torch.float32}
    policy.dtype = torch.bfloat16
    frozen = policy.frozen_copy()
    kinds = {
        name.split(".")[-2]: weight.dtype
        for name, weight in frozen.model.named_parameters()
    }
    assert kinds["down_proj"] == (torch.bfloat16 if is_rounded else torch.float32)
    assert kinds["norm"] == kinds["embed_tokens"] == torch.float32
    tokens_PGT = torch.randint(3, 64, (4, 3, 5), generator=torch.Generator().manual_seed(0))
    scores, expected = (
        response_statistics(
            one, PROMPTS, tokens_PGT, 1.0, entropy=True, self_certainty=True
        )
        for one in (frozen, policy)
    )
    assert all(map(torch.equal, scores, expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_recipe_says_in_which_precision_the_local_engine_computes(saved, dtype):
    name = str(dtype).removeprefix("torch.")
    recipe = load_recipe(
        "laptop/quickstart", [f"model.path={saved}", f"engine.dtype={name}"]
    )
    assert load_policy(recipe).dtype == dtype


def test_asking_for_a_gpu_that_is_not_there_is_the_users_error(saved, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"no GPU.*'cpu' or 'auto'"):
        Policy.load(saved, device="cuda")


@each(
    "config",
    BloomConfig(vocab_size=64, hidden_size=32, n_layer=1, n_head=2),
    OpenAIGPTConfig(vocab_size=64, n_embd=32, n_layer=1, n_head=2),
)
def test_a_model_without_numbered_positions_or_a_cache_is_refused(saved, tmp_path, config):
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(saved).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=config.model_type):
        Policy.load(tmp_path, device="cpu")


def test_a_cache_by_another_name_is_given_by_that_name(saved, monkeypatch):
    kind = type(Policy.load(saved, device="cpu").model)
    original = kind.forward

    def forward(self, input_ids, position_ids=None, cache=None, **others):
        assert "past_key_values" not in others
        return original(
            self, input_ids, position_ids=position_ids, past_key_values=cache, **others
        )

    monkeypatch.setattr(kind, "forward", forward)
    policy = Policy.load(saved, device="cpu")
    assert policy.cache_name == "cache"
    respond_both_ways(policy)


def respond_both_ways(policy):
    """A rollout token after token, and by fixed places, which a GPU takes: the same."""
    for policy.has_fixed_places in (False, True):
        sample(policy, PROMPTS, keys(len(PROMPTS), 2), Sampling(1.0, 4))


def test_a_model_that_cannot_continue_a_prompt_in_several_rows_is_refused_at_loading(
    saved, monkeypatch
):
    policy = Policy.load(saved, device="cpu")
    kind = type(policy.model)
    original = kind.forward

    def forward(self, input_ids, **others):
        cache = others.get(policy.cache_name)
        if cache is not None:  # states of its own, which nobody repeats
            rows = getattr(cache, "rows", len(input_ids))
            if rows != len(input_ids):
                raise RuntimeError(f"Sizes of tensors must match. Expected {rows}")
            cache.rows = rows
        return original(self, input_ids, **others)

    monkeypatch.setattr(kind, "forward", forward)
    monkeypatch.setattr(
        forward, "__signature__", inspect.signature(original), raising=False
    )
    said = refusal(Policy.load, saved, device="cpu")
    assert (
        "cannot continue prompts as sampling does (RuntimeError: Sizes of tensors must match"
        in said
    )
    assert "take a model of another architecture" in said


def test_a_checkpoint_names_the_tokens_that_ended_responses(tmp_path):
    policy = tiny_policy()
    policy.save(tmp_path)
    assert GenerationConfig.from_pretrained(tmp_path).eos_token_id == 2
    policy.tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content }}<unk>{% endfor %}"
    )
    Policy(policy.model, policy.tokenizer, policy.device).ending_at(
        ["<bos>", "no token"]
    ).save(tmp_path)
    special = policy.tokenizer.convert_tokens_to_ids(["<eos>", "<unk>", "<bos>"])
    assert GenerationConfig.from_pretrained(tmp_path).eos_token_id == sorted(special)
    assert Policy.load(tmp_path, device="cpu").end_ids == sorted(special)


def test_a_checkpoint_of_a_multimodal_model_has_its_processor(tmp_path):
    text = {
        "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "head_dim": 8,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    }  # fmt: skip
    vision = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
        "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    images = {
        "mm_tokens_per_image": 4,
        "boi_token_index": 60,
        "eoi_token_index": 61,
        "image_token_index": 62,
    }
    config = Gemma3Config(text_config=text, vision_config=vision, **images)
    Gemma3ForConditionalGeneration(config).save_pretrained(tmp_path / "start")
    tiny_policy().tokenizer.save_pretrained(tmp_path / "start")
    (tmp_path / "start/preprocessor_config.json").write_text('{"image_size": 28}')
    policy = Policy.load(tmp_path / "start", device="cpu")
    shutil.rmtree(tmp_path / "start")  # moved meanwhile
    policy.save(tmp_path / "checkpoint")
    assert (
        tmp_path / "checkpoint/preprocessor_config.json"
    ).read_text() == '{"image_size": 28}'
    assert not (tmp_path / "checkpoint/processor_config.json").exists()


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), ZeroDivisionError()]
)
def test_a_full_gpu_or_a_bug_at_loading_is_no_wrong_path(saved, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(policy_module, "set_up_attention", fail)
    with pytest.raises(type(error)):
        Policy.load(saved, device="cpu")


def test_a_generation_config_that_transformers_would_not_write_again_can_be_saved(
    saved, tmp_path
):
    AutoTokenizer.from_pretrained(saved).save_pretrained(tmp_path / "given")
    AutoModelForCausalLM.from_pretrained(saved).save_pretrained(tmp_path / "given")
    settings = '{"temperature": 0.6, "do_sample": false, "eos_token_id": 2}'
    (tmp_path / "given/generation_config.json").write_text(settings)
    Policy.load(tmp_path / "given", device="cpu").save(tmp_path / "again")
    assert (tmp_path / "again/generation_config.json").exists()


def test_every_end_token_of_generation_config_and_tokenizer_ends_a_response():
    policy = tiny_policy()
    policy.model.generation_config.eos_token_id = [7, 9]
    assert Policy(policy.model, policy.tokenizer, policy.device).end_ids == [2, 7, 9]
    closing = policy.tokenizer.unk_token
    chat = ChatFormat("{% for m in messages %}{{ m.content }}" + closing + "{% endfor %}")
    chat.put_into(policy.tokenizer)
    of_turns = Policy(policy.model, policy.tokenizer, policy.device)
    assert of_turns.end_ids == sorted({2, 7, 9, policy.tokenizer.unk_token_id})
    policy.tokenizer.chat_template = None
    policy.model.generation_config.eos_token_id = policy.tokenizer.eos_token = None
    assert "end token" in refusal(Policy, policy.model, policy.tokenizer, policy.device)


def test_prompts_are_rendered_by_the_chat_template_with_a_generation_prompt():
    policy = tiny_policy()
    policy.tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    assert has_chat_template(policy.tokenizer)
    assert (
        policy.render((Message("system", "s"), Message("user", "u")))
        == "<system>s<user>u<assistant>"
    )


def test_without_chat_template_a_prompt_is_its_text():
    policy = tiny_policy()
    policy.tokenizer.chat_template = None
    assert not has_chat_template(policy.tokenizer)
    assert policy.render((Message("user", "1+2="),)) == "1+2="
    assert policy.encode([(Message("user", "1+2="),)]) == [
        policy.tokenizer("1+2=")["input_ids"]
    ]


def test_an_empty_prompt_is_the_users_error():
    with pytest.raises(UserError, match="prompt 2 of 2 is empty"):
        tiny_policy().encode([(Message("user", "1"),), (Message("user", ""),)])


def of_architecture(config):
    tiny = tiny_policy()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config)
        for weight in model.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.2)
    return Policy(model, tiny.tokenizer, tiny.device)


SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip
ARCHITECTURES = {
    "qwen3": tiny_policy,
    "llama": lambda: of_architecture(LlamaConfig(**SIZES)),
    "gpt2": lambda: of_architecture(
        GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2, eos_token_id=2)
    ),
    "mistral, sliding window": lambda: of_architecture(
        MistralConfig(**SIZES, sliding_window=4)
    ),
    "gemma2, hybrid": lambda: of_architecture(
        Gemma2Config(**SIZES, head_dim=8, sliding_window=4)
    ),
    "gpt_neo, window in its code": lambda: of_architecture(gpt_neo(window=4)),
    "falcon, distances": lambda: of_architecture(
        FalconConfig(
            vocab_size=64,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            alibi=True,
        )
    ),
}


def gpt_neo(window):
    return GPTNeoConfig(
        vocab_size=64, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
        window_size=window, max_position_embeddings=512,
    )  # fmt: skip


@each(
    "config, said",
    (BertConfig(**SIZES), r"\(bert\) scores a token by those after it too"),
    (RobertaConfig(**SIZES), r"\(roberta\) scores a token by those after it too"),
    # counts positions from the pad token's id on, where nobody says them
    (
        RobertaConfig(**SIZES, is_decoder=True),
        r"\(roberta\).* scores a prompt differently than alone",
    ),
    (
        MoshiConfig(**SIZES, sliding_window=6),
        r"\(moshi\).* scores a prompt differently than alone",
    ),
    ids=["bert", "roberta", "roberta as a decoder", "moshi"],
)
def test_a_model_whose_scores_depend_on_more_than_what_came_before_is_refused(config, said):
    with pytest.raises(UserError, match=said):
        of_architecture(config)


def test_padding_does_not_use_up_a_window_that_no_configuration_names():
    policy = of_architecture(gpt_neo(window=256))
    prompts = [[*range(30, 50), *rest] for rest in ([5, 6], [7] * 300)]
    with torch.no_grad():
        together = policy.read(prompts).logits_BV
        alone = torch.cat([policy.read([prompt]).logits_BV for prompt in prompts])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("cap", [1.0, None])
def test_scores_of_attention_that_the_model_caps_are_capped(cap):
    policy = of_architecture(Gemma2Config(**SIZES, head_dim=8, attn_logit_softcapping=cap))
    with torch.no_grad():
        logits = policy.read([PROMPTS[0]]).logits_BV
        policy.model.set_attn_implementation("eager")
        torch.testing.assert_close(
            logits, policy.read([PROMPTS[0]]).logits_BV, atol=1e-5, rtol=1e-5
        )


def test_positions_that_are_numbered_anew_in_a_longer_batch_end_the_context():
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
    }
    config = Phi3Config(
        **SIZES,
        pad_token_id=0,
        rope_parameters=rope,
        original_max_position_embeddings=64,
        max_position_embeddings=128,
    )
    assert of_architecture(config).context_length == 64


# Tokens that all prompts begin with; from 16 on read once
@pytest.mark.parametrize("beginning", [0, 15, 20])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_continuing_a_padded_batch_of_shared_prompts_gives_each_sequence_its_own_scores(
    name, beginning
):
    policy, prompts = (
        ARCHITECTURES[name](),
        [[*range(30, 30 + beginning), *prompt] for prompt in PROMPTS],
    )
    responses = torch.randint(
        3, 64, (len(PROMPTS) * 2, 6), generator=torch.Generator().manual_seed(0)
    )
    context = policy.read(prompts)
    context.repeat(2)
    first = context.logits_BV[:, None]
    parts = [
        policy.extend(context, responses[:, some]) for some in (slice(2), slice(2, None))
    ]
    logits = torch.cat([first, *parts], dim=1)
    for row, response in enumerate(responses.tolist()):
        _, expected = plain_logprobs(policy, prompts[row // 2], response)
        torch.testing.assert_close(
            logits[row, :-1].log_softmax(-1), expected, atol=1e-5, rtol=1e-5
        )


@each(
    "prompts, shared",
    ([[1] * 30, [1] * 20], 19),  # the shorter one keeps a token whose scores are wanted
    ([[1] * 15 + [2, 3], [1] * 15 + [3, 3]], 0),  # too few to be worth a pass of their own
    ([[1] * 16 + [2, 3], [1] * 16 + [3, 3]], 16),
    ([[1] * 18 + [2, 3], [1] * 18 + [3], [1] * 17 + [2, 2]], 17),
    ([[1] * 40], 0),
)
def test_prompts_share_what_all_of_them_begin_with(prompts, shared):
    assert shared_prefix(prompts) == shared


@each("more, reads_trees", (0, True), (1, False))
def test_a_model_from_so_many_weights_on_reads_trees(monkeypatch, more, reads_trees):
    weights = sum(weight.numel() for weight in tiny_policy().model.parameters())
    monkeypatch.setattr(policy_module, "_COSTLY", weights + more)
    assert tiny_policy().reads_trees is reads_trees


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_room_set_aside_for_tokens_changes_no_score(name):
    policy = ARCHITECTURES[name]()
    responses = torch.randint(
        3, 64, (len(PROMPTS) * 2, 6), generator=torch.Generator().manual_seed(0)
    )
    kept = torch.tensor([1, 2, 5, 6])
    logits = {}
    for room in (0, 6):
        with torch.inference_mode():
            context = policy.read(PROMPTS)
            context.repeat(2, room)
            before = [
                policy.extend(context, responses[:, t : t + 1])[kept] for t in range(3)
            ]
            context.select(kept)
            after = [
                policy.extend(context, responses[kept, t : t + 1]) for t in range(3, 6)
            ]
        logits[room] = torch.cat([*before, *after], dim=1)
    torch.testing.assert_close(logits[0], logits[6], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_attention_without_copies_gives_the_scores_of_transformers_own(name):
    responses = torch.randint(
        3, 64, (len(PROMPTS) * 2, 6), generator=torch.Generator().manual_seed(0)
    )
    found = []
    for implementation in (None, "sdpa"):
        policy = ARCHITECTURES[name]()
        if policy.model.config._attn_implementation == "eager":
            pytest.skip("this transformers has no sdpa for the architecture")
        if implementation:
            policy.model.set_attn_implementation(implementation)
        with torch.no_grad():
            context = policy.read(PROMPTS)
            context.repeat(2)
            found.append(policy.extend(context, responses))
    torch.testing.assert_close(*found, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("wants_gradient", [False, True])
def test_keys_and_values_that_query_heads_share_are_copied_for_gradients_only(
    wants_gradient, monkeypatch
):
    copied = []
    copy = sdpa_attention.repeat_kv
    monkeypatch.setattr(
        sdpa_attention, "repeat_kv", lambda *args: copied.append(args) or copy(*args)
    )
    policy = tiny_policy()
    with torch.set_grad_enabled(wants_gradient):
        context = policy.read(PROMPTS)  # padded, so with a mask
        policy.extend(context, torch.full((len(PROMPTS), 3), 5))
    assert bool(copied) == wants_gradient


def test_what_a_saved_policy_attends_with_is_left_to_who_loads_it(saved):
    assert "sdpa" not in (saved / "config.json").read_text()


def test_tokens_appended_one_by_one_rarely_move_those_before_them():
    policy = tiny_policy()
    with torch.inference_mode():
        context = policy.read(PROMPTS)  # of at most 7 tokens
        context.repeat(2, room=30)
        places = []
        for _ in range(30):
            policy.extend(context, torch.full((len(PROMPTS) * 2, 1), 5))
            places.append([layer.keys.data_ptr() for layer in context.cache.layers])
            assert (
                max(
                    place.shape[-2]
                    for layer in context.cache.layers
                    for place in layer._places
                )
                <= 37
            )
    moves = [after != before for before, after in pairwise(places)]
    moved = [number for number, has_moved in enumerate(moves, 2) if has_moved]
    assert moved == [10, 28]  # beyond 16, then 34


def test_selected_rows_continue_as_if_the_others_had_never_been():
    policy = tiny_policy()
    responses = torch.randint(
        3, 64, (len(PROMPTS), 4), generator=torch.Generator().manual_seed(0)
    )
    context = policy.read(PROMPTS)
    policy.extend(context, responses[:, :2])
    kept = torch.tensor([1, 3])
    context.select(kept)
    logits = policy.extend(context, responses[kept, 2:])
    for row, prompt in enumerate(kept.tolist()):
        _, expected = plain_logprobs(
            policy, PROMPTS[prompt], [*responses[prompt].tolist(), 5]
        )
        torch.testing.assert_close(
            logits[row].log_softmax(-1), expected[-2:], atol=1e-5, rtol=1e-5
        )


def statistics_and_gradient(policy):
    """Of two unequal responses to each prompt, for a loss that all statistics are in."""
    tokens_PGT = torch.randint(
        3, 64, (len(PROMPTS), 2, 6), generator=torch.Generator().manual_seed(0)
    )
    lengths_PG = torch.tensor([[6, 2], [3, 6], [5, 1], [6, 6]])
    found = response_statistics(
        policy,
        PROMPTS,
        tokens_PGT,
        0.7,
        lengths_PG=lengths_PG,
        entropy=True,
        self_certainty=True,
    )
    is_said_PGT = torch.arange(6) < lengths_PG[..., None]
    said = torch.stack([column[is_said_PGT] for column in found])
    (said * torch.linspace(-1, 1, said.numel()).view_as(said)).sum().backward()
    gradient = {
        name: weight.grad.clone() for name, weight in policy.model.named_parameters()
    }
    policy.model.zero_grad()
    return said, gradient


in_rows_and_in_a_tree = each(
    "reads_trees",
    pytest.param(False, marks=pytest.mark.slow),
    True,
    ids=["rows", "a tree"],
)


@in_rows_and_in_a_tree
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_in_pieces_and_computed_again_give_the_same_scores_and_gradients(
    name, reads_trees, monkeypatch
):
    policy = ARCHITECTURES[name]()
    policy.reads_trees = reads_trees and policy.takes_any_mask
    said, gradient = statistics_and_gradient(policy)
    calls = []
    policy.model.get_output_embeddings().register_forward_hook(lambda *_: calls.append(1))
    monkeypatch.setattr(token_statistics, "MOST_SCORES", 4 * 64 * 7)
    in_pieces = statistics_and_gradient(policy)
    # Which caps its logits
    assert (len(calls) > 3) == policy.has_plain_head == (name != "gemma2, hybrid")
    torch.testing.assert_close(in_pieces, (said, gradient), atol=1e-4, rtol=1e-4)


@in_rows_and_in_a_tree
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_activations_computed_again_give_the_same_scores_and_gradients(name, reads_trees):
    policy = ARCHITECTURES[name]()
    policy.reads_trees = reads_trees and policy.takes_any_mask
    expected = statistics_and_gradient(policy)
    passes = []
    layer = next(
        m for m in policy.model.modules() if isinstance(m, GradientCheckpointingLayer)
    )
    next(layer.children()).register_forward_pre_hook(lambda *_: passes.append(1))
    policy.recompute()
    torch.testing.assert_close(
        statistics_and_gradient(policy), expected, atol=1e-4, rtol=1e-4
    )
    assert len(passes) == 2
    assert not any(module.training for module in policy.model.modules())


def test_an_architecture_that_cannot_compute_activations_again_is_the_users_error(
    monkeypatch,
):
    policy = tiny_policy()
    monkeypatch.setattr(policy_module, "GradientCheckpointingLayer", torch.nn.GRU)
    with pytest.raises(
        UserError, match=r"engine\.gradient_checkpointing.*\(qwen3\); leave it out"
    ):
        policy.recompute()


def test_query_heads_that_share_keys_attend_as_they_would_to_copies_of_them():
    draw = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(3, heads, n, 8, generator=draw) for heads, n in ((6, 1), (2, 5), (2, 5))
    )
    mask = torch.rand(3, 1, 1, 5, generator=draw) < 0.7
    mask[..., 0] = True
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=0.3, enable_gqa=True
    )
    torch.testing.assert_close(
        attend_folded(query, key, value, mask, 0.3), expected.transpose(1, 2)
    )
