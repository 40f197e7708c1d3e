"""Every seam at which a response becomes text shows what the prompt opened and the marks of thinking (R6)."""

import numpy as np
import polars as pl
import pytest
import torch
from commands import answered, done
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from olr_cli.answers import ResponseTexts
from olr_cli.answers.extraction import extract
from olr_cli.answers.thinking import THOUGHT_MARKS
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.sampler import sample
from olr_cli.recipe.sampling import Sampling
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.store import scan_rollouts

WORDS = [
    "<unk>",
    "<eos>",
    "<open>",
    "<close>",
    "\\boxed{5}",
    "\\boxed{2}",
    "maybe",
    "but",
    "ask",
]


def thinker(opening, closing, *, special, ends=False):
    """A policy that after ``ask`` opens a thought, and boxes 5 in it again and again, or ends it and boxes 2."""
    words = [{"<open>": opening, "<close>": closing}.get(word, word) for word in WORDS]
    tokenizer = Tokenizer(
        models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>", pad_token="<eos>"
    )
    fast.add_tokens([opening, closing], special_tokens=special)
    size = len(words)
    config = LlamaConfig(
        vocab_size=size, hidden_size=size + size % 2 + 2, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=1, eos_token_id=1, pad_token_id=1, bos_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    nexts = {8: 2, 2: 6, 6: 4, 4: 7, 7: 3 if ends else 6, 3: 5, 5: 1}
    with torch.no_grad():
        for weights in model.parameters():
            weights.zero_()
        model.model.embed_tokens.weight[:, :size] = torch.eye(size)
        model.model.norm.weight.fill_(1.0)
        for word, following in nexts.items():
            model.lm_head.weight[following, word] = 5.0
    return Policy(model, fast, torch.device("cpu"))


def said(policy, prompt):
    rollouts = sample(policy, [prompt], np.array([[1]], dtype=np.uint64), Sampling(0, 8))
    return rollouts.texts_PG[0][0]


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(("opening", "closing"), [*THOUGHT_MARKS.items()][:11:5])
def test_a_thought_that_is_cut_is_no_answer_whether_its_marks_are_special_tokens_or_not(
    opening, closing, special
):
    response = said(thinker(opening, closing, special=special), [8])
    assert (
        response.startswith(opening)
        and "\\boxed{5}" in response
        and extract(response) is None
    )
    ended = said(thinker(opening, closing, special=special, ends=True), [8])
    assert extract(ended) == "2" and "<eos>" not in ended


def test_what_the_prompt_opened_begins_the_response():
    policy = thinker("<think>", "</think>", special=True)
    assert said(policy, [8, 2]).startswith("<think>maybe")
    assert said(policy, [8, 2, 6]).startswith("\\boxed{5}")  # the prompt goes on after it
    assert policy.texts.opened([[8, 2], [8], [2, 3]]) == ["<think>", "", ""]


def test_special_tokens_that_are_no_marks_are_left_out():
    policy = thinker("<|channel|>analysis", "<|channel|>final", special=False)
    policy.tokenizer.add_tokens(["<|channel|>", "<|message|>"], special_tokens=True)
    channel, message = policy.tokenizer.convert_tokens_to_ids(
        ["<|channel|>", "<|message|>"]
    )
    (text,) = ResponseTexts(policy.tokenizer).decode([[channel, 6, message, 1]])
    assert text == "<|channel|> maybe"


THINKS = "{% for m in messages %}{{ m.content }}{% endfor %}<think>"


def test_training_and_evaluation_read_a_response_alike_where_the_template_opens_the_thinking(
    here,
):
    """A toy never ends the thought, so it answers nothing: rewards of boxes in cut thoughts once came of this."""
    (here / "opens.jinja").write_text(THINKS)
    settings = [
        "data.limit=8", "data.extractor=first_integer", "train.prompts_per_step=4", "train.mini_batch_prompts=4",
        "train.epochs=1", "train.rollouts_per_prompt=4", "train.max_new_tokens=6", "data.held_out=null",
        "model.chat_template=opens.jinja",
    ]  # fmt: skip
    done(
        "train",
        "laptop/quickstart",
        "--run-dir",
        "run",
        *(w for s in settings for w in ("--set", s)),
    )
    rollouts = scan_rollouts(here / "run").collect()
    assert rollouts["response"].str.starts_with("<think>").all()
    assert rollouts["answer"].is_null().all() and rollouts["reward"].sum() == 0
    (line,) = [line for line in read_metrics(here / "run") if line["step"] == 2]
    assert line["eval/avg"] == 0
    answered(
        "evaluate", "run", "--limit", "8", "--samples", "2", "--backend", "transformers"
    )
    (file,) = (here / "run" / "evaluation").rglob("*.parquet")
    generations = pl.read_parquet(file)
    assert (
        generations["response"].str.starts_with("<think>").all()
        and generations["unfinished_thought"].all()
    )
