"""Both engines agree on what they compute from the same rollouts and weights: statistics, losses, gradients, masks.

OpenRLHF's actor, policy loss, replay buffer and training loop are real; in place of DeepSpeed one process accumulates
gradients as it does. The policy is a built-in one in float32.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from openrlhf.models import Actor
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.utils.config import hierarchize
from openrlhf.utils.deepspeed import DeepspeedStrategy

from olr_cli.engines.local.grpo import Grpo
from olr_cli.engines.local.loss import smoothed
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.sampler import sample
from olr_cli.engines.models import policy_path
from olr_cli.engines.openrlhf import actor as actor_module
from olr_cli.engines.openrlhf.actor import PolicyActor, PolicyUpdate
from olr_cli.engines.openrlhf.experience import token_means
from olr_cli.engines.openrlhf.flags import Places, arguments, openrlhf_parser, recipe_flags
from olr_cli.recipe.layers import validate
from olr_cli.recipe.methods import MethodSection
from olr_cli.recipe.sampling import Sampling
from olr_cli.recipe.sections import TrainSection
from olr_cli.seeding import key
from olr_cli.supervision.advantages import group_advantages

PATH = policy_path("addition-easier")
TEXTS = ["1+2=", "123+456=", "999+1=", "50+50="]
G, LONGEST, TEMPERATURE = 4, 6, 1.7
REWARDS_PG = [[1.0, 0, 0, 1], [0.5, 0.25, 0, 1], [0, 0, 0, 0], [0, 1, 1, 1]]
ALL = (True, True, True, True)


@pytest.fixture(scope="module", autouse=True)
def one_process(tmp_path_factory):
    """A process group of one rank; DeepSpeed's own, if the tests of a rank with DeepSpeed came before."""
    if torch.distributed.is_initialized():
        yield
        return
    store = tmp_path_factory.mktemp("group") / "store"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


def policy(seed=None, distance=0.02):
    """The built-in policy; with a seed, its weights moved a little."""
    loaded = Policy.load(PATH, device="cpu", dtype=torch.float32)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in loaded.model.parameters():
                weight += distance * torch.randn(weight.shape, generator=generator)
    return loaded


@pytest.fixture(scope="module")
def rollouts():
    sampler = policy()
    prompts = [
        sampler.tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS
    ]
    keys_PG = [[key("test", p, g) for g in range(G)] for p in range(len(prompts))]
    sampled = sample(
        sampler,
        prompts,
        torch.tensor(keys_PG, dtype=torch.uint64).numpy(),
        Sampling(TEMPERATURE, LONGEST),
    )
    assert len(set(sampled.lengths_PG.flatten().tolist())) > 2  # padding is needed
    return sampled


def openrlhf_actor(of):
    """OpenRLHF's actor around the same weights."""
    actor = Actor(of.model, temperature=TEMPERATURE)
    # Which it only sets where it loads the model itself.
    actor.packing_samples, of.model.config.use_cache = False, False
    return actor


def sequences_of(rollouts, p, g):
    """Tokens, attention mask and action mask of one rollout, as OpenRLHF has them."""
    length, prompt = int(rollouts.lengths_PG[p, g]), rollouts.prompts[p]
    tokens = [*prompt, *rollouts.tokens_PGT[p, g, :length].tolist()]
    mask = [0] * (len(prompt) - 1) + [1] * length
    return (
        torch.tensor(tokens),
        torch.ones(len(tokens), dtype=torch.long),
        torch.tensor(mask),
    )


def batch_of(rollouts, places):
    """Some rollouts, padded on the right."""
    columns = zip(*(sequences_of(rollouts, p, g) for p, g in places), strict=True)
    return [torch.nn.utils.rnn.pad_sequence(column, batch_first=True) for column in columns]


def forward(actor, batch):
    """Our forward pass in a policy actor that has OpenRLHF's model and nothing else."""
    rank = PolicyActor.__new__(PolicyActor)
    rank.actor = actor
    sequences, attention_mask, action_mask = batch
    return rank.forward(sequences, action_mask, attention_mask, mm_train_inputs_list=[None])


PLACES = [(p, g) for p in range(len(TEXTS)) for g in range(G)]


def at_responses(rollouts, values_PGT, places):
    """The local engine's values, one after the other."""
    return torch.cat([values_PGT[p, g, : rollouts.lengths_PG[p, g]] for p, g in places])


@pytest.mark.parametrize("size", [1, 3, 16])
@pytest.mark.parametrize("at_once", [1, 100, 2**24])
def test_statistics_are_those_of_the_local_engines_sampler(
    size, at_once, rollouts, monkeypatch
):
    monkeypatch.setattr(actor_module, "_CHUNK_LOGITS", at_once)
    actor = openrlhf_actor(policy())
    for first in range(0, len(PLACES), size):
        places = PLACES[first : first + size]
        batch = batch_of(rollouts, places)
        found, is_action = forward(actor, batch), batch[2].bool()
        for values, expected_PGT in (
            (found.log_probs, rollouts.logprobs_PGT),
            (found.self_certainties, rollouts.self_certainty_PGT),
        ):
            expected = at_responses(rollouts, expected_PGT, places)
            torch.testing.assert_close(values[is_action], expected, rtol=1e-5, atol=1e-5)
            assert not values[~is_action].any()
        own = SimpleNamespace(index=list(range(len(places))), action_mask=is_action)
        means = token_means([found.entropies], [own], len(places))
        expected = torch.stack([rollouts.entropy_PG[place] for place in places])
        torch.testing.assert_close(torch.tensor(means), expected, rtol=1e-5, atol=1e-5)
        assert not found.entropies[~is_action].any()


class OneProcess(SimpleNamespace):
    """OpenRLHF's strategy, as far as an update needs it: gradients are accumulated, and no step is taken.

    Attributes:
        gradients: of every mini-batch.
    """

    world_size = 1
    ring_attn_group = None
    all_reduce = DeepspeedStrategy.all_reduce

    def backward(self, loss, actor, _optimizer):
        (loss / self.accumulated_gradient).backward()

    def optimizer_step(self, _optimizer, actor, _scheduler, name):
        self.micro_batches += 1
        if self.micro_batches % self.accumulated_gradient == 0:
            self.gradients.append(
                {name: p.grad.clone() for name, p in actor.model.named_parameters()}
            )
            actor.zero_grad()

    def get_grad_norm(self, _actor):
        return 0.0

    def is_rank_0(self):
        return False


def update_of(actor, method, micro_batch, mini_batch, loss_average="token"):
    """OpenRLHF's update of an actor, for a recipe's method and KL weight .1."""
    recipe = validate(
        {
            "method": method,
            "train": {
                "kl_weight": 0.1, "loss_average": loss_average, "temperature": TEMPERATURE,
                "prompts_per_step": len(TEXTS), "mini_batch_prompts": len(TEXTS), "rollouts_per_prompt": G,
            },
            "engine": {"name": "openrlhf", "device": "cpu", "micro_batch_samples": micro_batch},
        },
        "test",
    )  # fmt: skip
    words = arguments(
        recipe_flags(recipe, Places("m", "p", None, None, "s", 64), "sdpa", 0)
    )
    args = hierarchize(openrlhf_parser().parse_args(words))
    args.actor.eps_clip_low_high = (args.actor.eps_clip,) * 2  # as the command line goes on
    strategy = OneProcess(
        args=args,
        accumulated_gradient=mini_batch // micro_batch,
        gradients=[],
        micro_batches=0,
        ds_device_mesh={
            "dp": SimpleNamespace(get_group=lambda: torch.distributed.group.WORLD)
        },
    )
    return PolicyUpdate(
        strategy, actor, None, None, SimpleNamespace(get_last_lr=lambda: [1e-6]),
        micro_train_batch_size=micro_batch, dataloader_pin_memory=False, smoothing=recipe.method.smoothing,
    )  # fmt: skip


def updated(
    rollouts,
    method,
    micro_batch=2,
    trains=ALL,
    mini_batch=None,
    places=PLACES,
    loss_average="token",
):
    """Gradients of the mini-batches and metrics of OpenRLHF's update of a policy that has moved on."""
    smoothing = method.get("smoothing", 0)
    moved = policy(1, 0.04)
    update = update_of(
        openrlhf_actor(moved), method, micro_batch, mini_batch or len(places), loss_average
    )
    advantages_PG = [group_advantages(rewards) for rewards in REWARDS_PG]
    for p, g in places:
        batch = batch_of(rollouts, [(p, g)])
        sequences, attention_mask, action_mask = batch
        old = forward(openrlhf_actor(policy()), batch)
        reference = forward(openrlhf_actor(policy(2, 0.01)), batch)
        log_probs = (
            smoothed(old.log_probs, old.self_certainties, smoothing)
            if smoothing
            else old.log_probs
        )
        update.replay_buffer.append(
            Experience(
                sequences=sequences, attention_mask=attention_mask, action_mask=action_mask * trains[p],
                action_log_probs=log_probs, base_action_log_probs=reference.log_probs,
                advantages=advantages_PG[p][g] * action_mask, total_length=torch.tensor([sequences.shape[1]]),
                info={"reward": torch.tensor([REWARDS_PG[p][g]])},
            )
        )  # fmt: skip
    torch.manual_seed(3)  # of the order in which OpenRLHF would take the samples
    return update.ppo_train(0.1), update.strategy.gradients


def updated_locally(rollouts, method, trains=ALL, loss_average="token"):
    """Gradient of one mini-batch and metrics of the local engine's update of the same policy."""
    moved, reference = policy(1, 0.04), policy(2, 0.01).frozen_copy()
    update = Grpo(
        moved,
        reference,
        TrainSection(
            learning_rate=1e-3,
            kl_weight=0.1,
            mini_batch_prompts=len(TEXTS),
            temperature=TEMPERATURE,
            loss_average=loss_average,
        ),
        MethodSection(
            name="grpo",
            penalty_weight=method.get("penalty_weight", 0),
            smoothing=method.get("smoothing", 0),
        ),
    )
    seen = {}
    for name, parameter in moved.model.named_parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda p, n=name: seen.update({n: p.grad.clone()})
        )
    advantages = torch.tensor([group_advantages(rewards) for rewards in REWARDS_PG])
    return update.update(rollouts, advantages, trains), seen


def assert_same_gradient(gradient, expected):
    assert max(float(value.abs().max()) for value in expected.values()) > 1e-3
    for name, value in expected.items():
        torch.testing.assert_close(
            gradient[name], value, rtol=1e-3, atol=2e-6, msg=lambda m, n=name: n + m
        )


METHODS = {
    "plain": {"name": "grpo"},
    "penalty": {"name": "confidence_penalty", "penalty_weight": 0.3},
    "smoothing": {"name": "label_smoothing", "smoothing": 0.2},
    "both": {"name": "grpo", "penalty_weight": 0.3, "smoothing": 0.2},
}
SOME = (True, False, True, False)


@pytest.mark.parametrize("loss_average", ["token", "sequence"])
@pytest.mark.parametrize("trains", [ALL, SOME], ids=["all train", "some train"])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_loss_and_gradient_are_the_local_engines(method, trains, loss_average, rollouts):
    status, (gradient,) = updated(
        rollouts, method, trains=trains, loss_average=loss_average
    )
    metrics, expected = updated_locally(rollouts, method, trains, loss_average)
    assert_same_gradient(gradient, expected)
    assert 0 < status["ppo_clip_ratio"] < 1
    assert status["ppo_clip_ratio"] == pytest.approx(
        metrics["policy/clip_fraction"], rel=1e-5
    )
    assert status["kl"] == pytest.approx(metrics["policy/kl"], rel=1e-4)


def test_mini_batches_are_the_samples_in_the_order_in_which_they_were_dealt(rollouts):
    dealt = [(p, g) for g in range(G) for p in range(len(TEXTS))]
    _, gradients = updated(rollouts, METHODS["plain"], places=dealt, mini_batch=4)
    assert len(gradients) == 4
    for number, gradient in enumerate(gradients):
        own = dealt[4 * number : 4 * number + 4]
        _, (expected,) = updated(rollouts, METHODS["plain"], places=own)
        for name, value in expected.items():
            torch.testing.assert_close(gradient[name], value, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("micro_batch", [1, 4])
@pytest.mark.parametrize("method", ["plain", "both"])
def test_prompts_that_do_not_train_are_as_if_they_were_not_there(
    method, micro_batch, rollouts
):
    """Also where a micro-batch holds nothing else: neither the gradient nor a mean knows of it."""
    method = METHODS[method]
    status, (gradient,) = updated(rollouts, method, micro_batch, SOME)
    training = [(p, g) for p, g in PLACES if SOME[p]]
    alone, (expected,) = updated(
        rollouts, method, micro_batch, places=training, mini_batch=len(training)
    )
    assert_same_gradient(gradient, expected)
    of_tokens = ["policy_loss", "kl", "ppo_clip_ratio", "ppo_kl", "logprobs_diff"]
    if method.get("penalty_weight"):
        of_tokens.append("entropy_loss")
    for name in of_tokens:
        assert status[name] == pytest.approx(alone[name], rel=1e-4, abs=1e-7), name


@pytest.mark.parametrize("loss_average", ["token", "sequence"])
def test_a_mini_batch_in_which_nothing_trains_has_gradient_0(loss_average, rollouts):
    status, gradients = updated(
        rollouts,
        METHODS["both"],
        micro_batch=1,
        trains=SOME,
        mini_batch=1,
        loss_average=loss_average,
    )
    assert len(gradients) == len(PLACES)
    norms = [sum(float(value.abs().sum()) for value in own.values()) for own in gradients]
    assert sorted(norms)[: len(PLACES) // 2] == [0.0] * (len(PLACES) // 2)
    assert sum(norm > 0 for norm in norms) == len(PLACES) // 2
    assert all(math.isfinite(value) for value in status.values())


def test_a_step_in_which_nothing_trains_has_gradient_0_and_no_nan(rollouts):
    status, (gradient,) = updated(rollouts, METHODS["both"], trains=(False,) * len(TEXTS))
    assert not any(value.any() for value in gradient.values())
    assert all(math.isfinite(value) for value in status.values())
    assert status["kl"] == status["ppo_clip_ratio"] == 0
