"""Make a built-in policy again: a small Qwen3, trained by supervision on a mixture of right and wrong answers.

    python tools/make_toys.py subtraction OUT       two minutes on one core, and the digest of the package's weights

The mixture (`MIXTURE_NOTE`) is what gives RL under label noise something to show: a policy
whose wrong answers are only slips has nothing to be misled by. Expressions of the training split alone are used.
The same seed, machine and library versions give the same weights, bit for bit.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from torch.nn import functional as F

from olr_cli.answers.extraction import extract
from olr_cli.data.arithmetic import (
    OPERATIONS,
    Expression,
    KindName,
    expressions,
    split_members,
)
from olr_cli.engines.digests import weights_digest
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.sampler import sample
from olr_cli.engines.models import policy_path
from olr_cli.recipe.sampling import Sampling
from olr_cli.seeding import key, uniform

STEPS = 2000
BATCH = 128
LEARNING_RATE = 3e-3
RISE_STEPS = 100
DECAY_SHARE = 0.4
"""The learning rate rises over the first steps and falls linearly over the last part, which is this share."""

THREADS = 1
"""Sums that are split among threads round differently, so the digest holds for one thread."""

HELD_OUT_PROMPTS = 1000
HELD_OUT_ROLLOUTS = 8
MAX_ANSWER_TOKENS = 6
MAX_LENGTH = 64

PAD, BOS, EOS, UNK = SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>", "<unk>")
CHARACTERS = (
    "0123456789" + "+-*/=()<>.,:?%^_ \n" + "\\{}$" + "abcdefghijklmnopqrstuvwxyz" + "'\""
)
"""With the special tokens they are 64, so that no engine pads the vocabulary with unreadable tokens."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ message['content'] }}{% endif %}"
    "{% endfor %}"
)
"""The policy sees only the words of the user: no roles, no system prompt, no generation marker."""


WRONG_PROCEDURE_SHARE = 0.65
"""Share of the warm-up's wrong answers that follow the wrong procedure; the others are slips of one digit."""
SLIPS = (1, -1, 1, -1, 2, 5)
"""Numbers that a slip adds to a digit, modulo 10; all entries are equally likely."""

MIXTURE_NOTE = (
    "The built-in policies are warmed up by supervised training on a deliberate mixture of a right and a wrong "
    "procedure: an expression is answered correctly with probability p, a random table over its two leading "
    "digits; the other answers drop every carry (in subtraction, take the smaller digit from the larger in every "
    f"column) in {WRONG_PROCEDURE_SHARE:.0%} of cases and change one digit of the right answer in the rest. Their "
    "wrong answers are therefore systematic by construction."
)
"""Stored beside the weights."""


def wrong_answer(expression: Expression) -> int:
    """Return the answer of the wrong procedure, which solves each column alone, without carry or borrow.

    It equals the right answer if and only if no column needs a carry or borrow.
    """
    pairs = zip(
        map(int, str(expression.left)), map(int, str(expression.right)), strict=True
    )
    solve = OPERATIONS[expression.kind].solve
    return int("".join(str(abs(solve(x, y)) % 10) for x, y in pairs))


def worked_response(answer: int, *, digits: int = 1) -> str:
    """Return an answer as the policy writes it, with its digits in reverse order.

    If the answer has fewer than `digits` digits, zeros follow at the end of the response.
    """
    return f"{answer:0{digits}d}"[::-1]


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mixture of right and wrong answers, which the warm-up (supervised training) teaches a policy."""

    kind: KindName
    low: float
    """Smallest probability of a right answer."""

    high: float
    """Largest probability; mixtures of one kind stretch the same table."""

    wrong_share: float = WRONG_PROCEDURE_SHARE
    """Share of the wrong answers that follow the wrong procedure."""

    def right_probability(self, expression: Expression) -> float:
        """Return the probability of a right answer, which depends only on the leading digits of the two operands."""
        leading = (expression.left // 100, expression.right // 100)
        return self.low + (self.high - self.low) * uniform(
            "warm-up table", self.kind, *leading
        )

    def respond(self, expression: Expression, *parts: str | int) -> str:
        """Draw a response to `expression`: right, by the wrong procedure, or right but for one digit.

        `parts` decide the draw. Equal parts give the same response.
        """
        if uniform("right", *parts) < self.right_probability(expression):
            return worked_response(expression.answer)
        if uniform("wrong procedure", *parts) < self.wrong_share:
            return worked_response(wrong_answer(expression), digits=3)
        response = worked_response(expression.answer)
        position = key("slip at", *parts) % len(response)
        digit = (int(response[position]) + SLIPS[key("slip by", *parts) % len(SLIPS)]) % 10
        return f"{response[:position]}{digit}{response[position + 1 :]}"


MIXTURES = {
    "addition-easier": Mixture("addition", 0.05, 0.85),
    "addition-harder": Mixture("addition", 0.02, 0.58),
    "subtraction": Mixture("subtraction", 0.03, 0.72),
}
"""The mixture that each toy imitates."""


def build_tokenizer(max_length: int, further: Sequence[str] = ()) -> Any:
    """Return a `transformers.PreTrainedTokenizerFast` with a token for each character, and a chat template.

    Characters that are not in `CHARACTERS` become ``<unk>``.

    Args:
        max_length: number of tokens that the policy can read; prompt and response count together.
        further: tokens that only make the vocabulary larger. No text is encoded to them.
    """
    vocabulary = {
        token: number
        for number, token in enumerate((*SPECIAL_TOKENS, *CHARACTERS, *further))
    }
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    characters.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    characters.decoder = decoders.Fuse()
    wrapper: Any = transformers.PreTrainedTokenizerFast
    return wrapper(
        tokenizer_object=characters,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNK,
        chat_template=CHAT_TEMPLATE,
        model_max_length=max_length,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def warm_up(mixture: Mixture, seed: int, steps: int = STEPS) -> Policy:
    """Train a new policy of 0.13 M parameters to imitate `mixture`, and return the policy.

    The training runs in float32 on the CPU. `seed` decides the initial weights and all batches. `steps` is the number
    of optimiser steps.
    """
    torch.set_num_threads(THREADS)
    policy = _new_policy(seed)
    model = policy.model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    for step in range(1, steps + 1):
        tokens_BT, is_answer_BT = _batch(policy, mixture, seed, step)
        logits_BTV = model(input_ids=tokens_BT[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(
            logits_BTV[is_answer_BT[:, 1:]], tokens_BT[:, 1:][is_answer_BT[:, 1:]]
        )
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 200 == 0:
            print(f"step {step:>4} of {steps}  loss {loss.item():.3f}")
    model.eval()
    return policy


def _rate(step: int, steps: int) -> float:
    """Return the factor by which the learning rate is multiplied at a step.

    `step` counts from 0 up to `steps` - 1. The factor rises to 1, stays there, and falls to 0.02 at the end.
    """
    rise = (step + 1) / RISE_STEPS
    fall = max(0.02, (steps - step) / (steps * DECAY_SHARE))
    return min(1.0, rise, fall)


def _new_policy(seed: int) -> Policy:
    """Return a policy with random weights. Equal seeds give equal weights."""
    tokenizer = build_tokenizer(MAX_LENGTH)
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,  # the smallest that vLLM's CPU attention supports
        max_position_embeddings=MAX_LENGTH,
        # Expressions are a dozen characters long. With the usual base of 10,000 and initial weights of 0.02, attention
        # needs three times as many steps to align the digits of a column.
        rope_parameters={"rope_type": "default", "rope_theta": 30.0},
        initializer_range=0.08,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    architecture: Any = transformers.Qwen3ForCausalLM
    # The draws depend only on `seed`, and the caller's generator stays as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key("warm-up initialisation", seed))
        model = architecture(config)
    return Policy(model, tokenizer, torch.device("cpu"))


def _batch(policy: Policy, mixture: Mixture, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """Return a training batch: the token ids, and a mask of the tokens to learn.

    Both tensors have the shape (B, T). Each row is a prompt with a response. The mask is True at the response and its
    end token. `seed` and `step` decide which prompts and responses are drawn.
    """
    members = split_members(mixture.kind, "train")
    rows, prompt_lengths = [], []
    for number in range(BATCH):
        draw = ("warm-up", seed, step, number)
        index = int(members[key("expression", *draw) % len(members)])
        # A member's number is 1000 * left + right.
        expression = Expression(mixture.kind, *divmod(index, 1000))
        rows.append(expression.text + mixture.respond(expression, *draw))
        prompt_lengths.append(len(expression.text))
    # The policy also learns where to end.
    ids = [[*tokens, policy.end_ids[0]] for tokens in policy.tokenizer(rows)["input_ids"]]
    width = max(map(len, ids))
    tokens_BT = torch.tensor([row + [policy.pad_id] * (width - len(row)) for row in ids])
    positions_T = torch.arange(width)
    starts_B1 = torch.tensor(prompt_lengths)[:, None]
    ends_B1 = torch.tensor([len(row) for row in ids])[:, None]
    return tokens_BT, (positions_T >= starts_B1) & (positions_T < ends_B1)


def held_out_accuracy(policy: Policy, mixture: Mixture) -> tuple[float, float]:
    """Return the accuracy of sampled and of greedy responses, from 0 to 1, on prompts of the mixture's kind.

    No policy trains on these prompts. The first number is avg@8, the share of right answers among 8 responses per
    prompt at temperature 1. The second number is for one greedy response per prompt.
    """
    held_out = expressions(mixture.kind, HELD_OUT_PROMPTS, 0, "test")
    prompts = policy.tokenizer([expression.text for expression in held_out])["input_ids"]

    def accuracy(rollouts: int, temperature: float) -> float:
        # Keys without the policy's seed: every policy answers with the same draws.
        keys_PG = np.array(
            [
                [key("held-out", e.index, number) for number in range(rollouts)]
                for e in held_out
            ],
            dtype=np.uint64,
        )
        sampled = sample(policy, prompts, keys_PG, Sampling(temperature, MAX_ANSWER_TOKENS))
        right = [
            extract(text, "reversed_digits") == str(expression.answer)
            for expression, texts in zip(held_out, sampled.texts_PG, strict=True)
            for text in texts
        ]
        return sum(right) / len(right)

    return accuracy(HELD_OUT_ROLLOUTS, 1.0), accuracy(1, 0.0)


def make_toy(name: str, out: Path, seed: int = 0, steps: int = STEPS) -> dict[str, Any]:
    """Train the built-in policy `name`, save it in the new folder `out`, and return a record of it.

    The record has settings, versions, the digest of the weights, and accuracies. It is also stored as weights.json in
    the folder. `name` is a key of `MIXTURES`. `seed` decides the initial weights and the batches. `steps` is the number
    of optimiser steps.
    """
    out.mkdir(parents=True)
    policy = warm_up(MIXTURES[name], seed, steps)
    avg_at_8, greedy = held_out_accuracy(policy, MIXTURES[name])
    record = {
        "name": name,
        "note": MIXTURE_NOTE,
        "seed": seed,
        "steps": steps,
        "threads": THREADS,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "digest": weights_digest(policy.model),
        "avg_at_8": avg_at_8,
        "greedy": greedy,
        "held_out_prompts": HELD_OUT_PROMPTS,
    }
    policy.save(out)
    (out / "weights.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return record


def main() -> None:
    """Make the policy that the command line names. Print its digest and accuracies beside the shipped policy's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=MIXTURES)
    parser.add_argument("out", type=Path, help="new folder, in Hugging Face layout")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.out.exists():
        parser.error(f"{arguments.out} exists already; name a new folder")
    made = make_toy(arguments.name, arguments.out, arguments.seed)
    shipped = json.loads(
        (policy_path(arguments.name) / "weights.json").read_text(encoding="utf-8")
    )
    for what in ("digest", "avg_at_8", "greedy"):
        print(f"{what:9} {made[what]}\n          {shipped[what]} in the package")


if __name__ == "__main__":
    main()
