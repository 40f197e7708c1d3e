"""Recorded rollouts enter once as OpenRLHF's tensors and once as the local engine's batches: decisions are the same.

On OpenRLHF's side everything is real but for the models: its vLLM actor with our executor, its `Experience` objects,
micro-batches, forward dispatch and advantages, and our experience maker, controller and store. vLLM's engine hands out
the recorded tokens; the policy's forward pass hands out the recorded statistics of each token.
"""

import asyncio
import itertools
import math
import random
import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import torch
from openrlhf.trainer.ppo_utils import experience_maker
from openrlhf.trainer.ppo_utils.kl_controller import FixedKLController
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.trainer.ray.vllm_engine import RolloutRayActor
from openrlhf.utils.config import hierarchize
from openrlhf.utils.utils import get_tokenizer
from polars.testing import assert_frame_equal
from vllm import SamplingParams
from vllm.logprobs import Logprob

from olr_cli.answers import Judge
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.chat import Message
from olr_cli.data.interchange import prompt_set
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.prompts import Prompt
from olr_cli.engines.local import loop
from olr_cli.engines.local.loss import smoothed
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.sampler import SampledRollouts
from olr_cli.engines.models import policy_path
from olr_cli.engines.openrlhf.actor import PolicyForward
from olr_cli.engines.openrlhf.experience_maker import SupervisedExperienceMaker
from olr_cli.engines.openrlhf.flags import Places, arguments, openrlhf_parser, recipe_flags
from olr_cli.engines.openrlhf.job_files import prompt_label
from olr_cli.engines.openrlhf.starting_model import StartingModel
from olr_cli.engines.openrlhf.trainer import SupervisedTrainer
from olr_cli.engines.openrlhf.vllm_actor import AgentExecutor
from olr_cli.engines.prompt_text import ChatFormat
from olr_cli.recipe.layers import validate
from olr_cli.runs.metrics import Stopwatch
from olr_cli.runs.schedule import Schedule
from olr_cli.runs.store import RunStore, scan_labels, scan_rollouts
from olr_cli.runs.writer import RunWriter
from olr_cli.supervision import compose, make_supervisor
from olr_cli.supervision.advantages import STD_EPSILON
from olr_cli.supervision.selection import keep_fraction

OPENRLHF_STD_EPSILON = 1e-9
K, VISITS, PROMPTS, STEP = 8, 5, 7, 4
"""Two steps an epoch, the last one smaller."""
LONGEST = 40
STATISTICS = ["mean_logprob", "entropy", "self_certainty"]
"""Columns that are means over tokens: float32 in the local engine, double here."""
OLR = {"name": "olr", "slope_threshold": 0.01, "warmup_epochs": 1}
METHODS = {
    "olr": OLR, "co_reward": {"name": "co_reward"}, "small_loss_selection": {"name": "small_loss_selection"},
    "random_selection": {"name": "random_selection"}, "self_certainty": {"name": "self_certainty"},
    "token_entropy": {"name": "token_entropy"}, "sequence_entropy": {"name": "sequence_entropy"},
}  # fmt: skip
POLICY = policy_path("addition-easier")


@dataclass(frozen=True)
class Said:
    """A recorded response: its tokens, end token included unless the length limit cut it."""

    tokens: tuple[int, ...]
    truncated: bool


@dataclass(frozen=True)
class Record:
    """Rollouts of a run: the K responses to every prompt's view at every visit; texts by view."""

    recipe: object
    prompts: list[Prompt]
    texts: dict[str, list[str]]
    said: dict[tuple[str, str, int], list[Said]]

    @property
    def views(self):
        return compose(self.recipe.method).views

    @property
    def train(self):
        """The part of a prompt set that a supervisor needs."""
        return SimpleNamespace(prompts=self.prompts)

    @property
    def share(self):
        return keep_fraction(self.recipe.method, self.prompts)

    def steps(self):
        """(step, epoch, rows of the prompts) of the whole run."""
        schedule = Schedule.of(self.recipe, PROMPTS)
        for step in schedule.after(0):
            yield step, schedule.epoch(step), schedule.rows(step)


def recipe(method=OLR, **engine):
    return validate(
        {
            "noise": {"type": "active", "ratio": 0.5},
            "method": method,
            "train": {
                "epochs": VISITS, "prompts_per_step": STEP, "mini_batch_prompts": 1, "rollouts_per_prompt": K,
                "max_new_tokens": LONGEST, "max_prompt_tokens": 1000,
            },
            "engine": {"name": "openrlhf", "device": "cpu", "micro_batch_samples": 4, **engine},
        },
        "test",
    )  # fmt: skip


def logprob(token, place):
    """The recorded log pi of a token at a place of its sequence; sums of 64ths are exact."""
    return -((token * 31 + place * 17) % 200 + 1) / 64


def entropy(token, place):
    """The recorded entropy there."""
    return ((token * 13 + place * 7) % 150) / 64


def self_certainty(token, place):
    """The recorded self-certainty there."""
    return ((token * 19 + place * 5) % 300) / 64


@pytest.fixture(scope="module")
def judge():
    with Judge() as judge:
        yield judge


@pytest.fixture(scope="module")
def policy():
    return Policy.load(POLICY, device="cpu")


@pytest.fixture(scope="module")
def tokenizer():
    return get_tokenizer(str(POLICY), None, "left")


def arithmetic_prompts():
    """Expressions with their labels, and what right and wrong answers to them look like."""
    numbers = [
        (123, 456),
        (250, 175),
        (999, 111),
        (104, 208),
        (615, 88),
        (7, 5),
        (320, 480),
    ]

    def asked(a, b):
        return (Message("user", f"{a}+{b}="),)

    prompts = [
        Prompt(
            f"{a}+{b}",
            asked(a, b),
            str(a + b),
            str(a + b),
            "clean",
            "arithmetic",
            asked(b, a),
        )
        for a, b in numbers
    ]
    spellings = [[(str(a + b + d)[::-1],) for d in (0, 10, 1, 100)] for a, b in numbers]
    return prompts, spellings


def boxed_prompts():
    """Questions of a published data set; their answers in several spellings of the same value."""
    file = Path(__file__).parents[1] / "fixtures" / "dapo_sample.parquet"
    prompts = [
        replace(prompt, true_answer=prompt.given_label, noise_type="clean")
        for prompt in read_prompts(str(file), split="train", seed=0).prompts[:PROMPTS]
    ]
    fractions = replace(prompts[0], given_label="\\frac{1}{2}", true_answer="0.5")
    intervals = replace(prompts[1], given_label="(1,2)", true_answer="(1,2)")
    spellings = [
        [("\\frac12", "0.50", "1/2"), ("25\\%", "1/4"), ("x+1", "1+x"), ("\\sqrt{2}",)],
        [("(1,2)", "(1, 2)"), ("(2,1)",), ("\\{1,2\\}", "1,2"), ("[1,2]",)],
    ]
    spellings += [
        [
            (p.given_label, f"{p.given_label}.0"),
            ("7", "7.0"),
            ("\\frac{3}{4}", "75\\%"),
            ("2^{10}", "1024"),
        ]
        for p in prompts[2:]
    ]
    boxes = [
        [tuple(f"so \\boxed{{{text}}}." for text in one) for one in rows]
        for rows in spellings
    ]
    return [fractions, intervals, *prompts[2:]], boxes


def record(prompts, spellings, tokenizer, method=OLR):
    """Responses to every visit: the favourite gets likelier; some say nothing, some are cut short or odd."""
    chosen = recipe(method)
    rng = random.Random(5)
    noise = ["clean", "active", "inactive", "active", "clean", "inactive", "active"]
    prompts = [
        replace(
            prompt,
            noise_type=kind,
            given_label=prompt.given_label if kind == "clean" else SENTINEL,
        )
        for prompt, kind in zip(prompts, noise, strict=True)
    ]

    def said(text, cut=False):
        tokens = tokenizer(text, add_special_tokens=False)["input_ids"][:LONGEST]
        return Said(tuple(tokens) if cut else (*tokens, tokenizer.eos_token_id), cut)

    odd = [
        said(""),
        said("I am Ü!"),
        said("12" * LONGEST, cut=True),
        said("1", cut=True),
        said("no answer"),
    ]
    responses = {}
    for row, prompt in enumerate(prompts):
        favourite = 0 if row % 3 else 1
        for view, visit in itertools.product(
            compose(chosen.method).views, range(1, VISITS + 1)
        ):
            own = []
            for _ in range(K):
                if rng.random() < 0.15:
                    own.append(rng.choice(odd))
                    continue
                sure = rng.random() < 0.3 + 0.12 * visit
                own.append(
                    said(
                        rng.choice(spellings[row][favourite if sure else rng.randrange(4)])
                    )
                )
            if row == 4:  # all alike: no variance, no advantage
                own = [said(spellings[row][0][0])] * K
            responses[prompt.prompt_id, view, visit] = own
    model = replace(
        StartingModel.look_at(str(POLICY), trust_remote_code=False), context_length=None
    )
    texts = {
        view: model.texts(prompt_set(prompts, "here"), chosen, view)
        for view in compose(chosen.method).views
    }
    return Record(chosen, prompts, texts, responses)


@pytest.fixture(
    scope="module",
    params=[(arithmetic_prompts, method) for method in METHODS] + [(boxed_prompts, "olr")],
    ids=[*METHODS, "boxed olr"],
)
def recorded(request, tokenizer):
    prompts, method = request.param
    return record(*prompts(), tokenizer, METHODS[method])


@dataclass
class Decided:
    """What one side made of a record: its tables, and what the update gets of the K rollouts by (prompt, view, visit).

    Advantages are a list a rollout, of the different values at its tokens; those that don't train have none.
    """

    run: Path
    rewards: dict[tuple[str, str, int], list[float]]
    advantages: dict[tuple[str, str, int], list[list[float]]]

    @property
    def labels(self):
        return scan_labels(self.run).collect()

    @property
    def rollouts(self):
        return scan_rollouts(self.run).collect()


def on_local_engine(recorded, judge, policy, run):
    """The record as batches of the local engine."""
    run.mkdir()
    store, supervisor = (
        RunStore(run),
        make_supervisor(recorded.recipe, recorded.share, judge, None),
    )
    out, views = Decided(run, {}, {}), recorded.views
    token_ids = {
        view: policy.encode([p.turns(view) for p in recorded.prompts]) for view in views
    }
    for step, epoch, rows in recorded.steps():
        prompts = [recorded.prompts[row] for row in rows]
        asked = [(row, view) for row in rows for view in views]
        places = [(recorded.prompts[row].prompt_id, view, epoch) for row, view in asked]
        sampled = as_sampled(
            [token_ids[view][row] for row, view in asked],
            [recorded.said[place] for place in places],
            policy,
        )
        decided = supervisor.supervise(
            loop.sampled_step(prompts, sampled, epoch, step, views)
        )
        store.append(step, decided.labels, decided.rollouts)
        advantages, trains = loop.advantages_and_trains(decided, views)
        for number, (place, own, does) in enumerate(
            zip(places, advantages.tolist(), trains, strict=True)
        ):
            out.rewards[place] = decided.rewards[number * K : (number + 1) * K]
            out.advantages[place] = [[advantage] if does else [] for advantage in own]
    return out


def as_sampled(prompts, said_PG, policy):
    """Recorded responses as the local sampler returns them."""
    longest = max(len(one.tokens) for group in said_PG for one in group)
    tokens_PGT = torch.tensor(
        [
            [[*one.tokens, *[policy.pad_id] * (longest - len(one.tokens))] for one in g]
            for g in said_PG
        ]
    )
    recorded_PGT = {
        name: torch.zeros(tokens_PGT.shape) for name in (logprob, entropy, self_certainty)
    }
    for p, (prompt, group) in enumerate(zip(prompts, said_PG, strict=True)):
        for g, one in enumerate(group):
            for value, tensor_PGT in recorded_PGT.items():
                own = [value(token, len(prompt) + t) for t, token in enumerate(one.tokens)]
                tensor_PGT[p, g, : len(own)] = torch.tensor(own)
    lengths_PG = torch.tensor([[len(one.tokens) for one in group] for group in said_PG])
    texts = [
        policy.decode([one.tokens if one.truncated else one.tokens[:-1] for one in g])
        for g in said_PG
    ]
    return SampledRollouts(
        prompts=prompts,
        tokens_PGT=tokens_PGT,
        lengths_PG=lengths_PG,
        truncated_PG=torch.tensor([[one.truncated for one in group] for group in said_PG]),
        logprobs_PGT=recorded_PGT[logprob],
        entropy_PG=recorded_PGT[entropy].sum(-1) / lengths_PG,
        self_certainty_PGT=recorded_PGT[self_certainty],
        texts_PG=texts,
    )


class RecordedEngine:
    """vLLM's engine: answers with the recorded responses, one request after the other."""

    def __init__(self, said):
        self._said = iter(said)

    async def generate(self, prompt, params, request_id):
        assert params.max_tokens == LONGEST and params.min_tokens == 0
        one = next(self._said)
        reason = "length" if one.truncated else "stop"
        yield SimpleNamespace(
            outputs=[
                SimpleNamespace(
                    token_ids=list(one.tokens), finish_reason=reason, logprobs=None
                )
            ]
        )


def sampled_by_openrlhf(text, label, said, args, tokenizer):
    """A prompt's samples, as OpenRLHF's vLLM actor and sample generator make them."""
    actor_class = RolloutRayActor.__ray_metadata__.modified_class
    actor = actor_class.__new__(actor_class)
    actor.executor, actor.llm, actor._mm_pad_token_ids = (
        AgentExecutor(),
        RecordedEngine(said),
        set(),
    )
    params = SamplingParams(
        temperature=args.rollout.temperature,
        max_tokens=args.rollout.max_new_tokens,
        min_tokens=0,
        skip_special_tokens=False,
    )
    responses = asyncio.run(
        actor.generate_responses(
            text, label, params, args.data.max_len, tokenizer, num_samples=len(said)
        )
    )
    return [
        SamplesGenerator._process_response_into_experience(
            None, response, max_len=args.data.max_len
        )
        for response in responses
    ]


class RecordedPolicy:
    """The policy's actor group: one forward pass a micro-batch; whatever stands at no action has no meaning."""

    def async_run_method_batch(self, method_name, *, sequences, action_mask, **_):
        assert method_name == "forward"
        return [list(map(self._forward, sequences, action_mask))]

    def async_run_method(self, method_name):
        assert method_name == "empty_cache"

    def _forward(self, sequences_BT, action_mask_BA):
        def at_actions(value):
            rows = [
                [value(token, place) for place, token in enumerate(row[1:], 1)]
                for row in sequences_BT.tolist()
            ]
            return torch.tensor(rows).where(action_mask_BA.bool(), torch.tensor(-7.0))

        return PolicyForward(*map(at_actions, (logprob, entropy, self_certainty)))


class RecordedReference(RecordedPolicy):
    """The reference's actor group: log-probabilities alone, as OpenRLHF's actor returns them."""

    def _forward(self, sequences_BT, action_mask_BA):
        return super()._forward(sequences_BT, action_mask_BA).log_probs - 1


class LocalRay:
    """The two functions of Ray that the experience maker calls, within this process."""

    @staticmethod
    def put(value):
        return value

    @staticmethod
    def get(value):
        return value


class Controller(SupervisedTrainer):
    """Our controller, without OpenRLHF's set-up of models."""

    def __init__(self, recorded, judge, args, tokenizer, run):
        self.recipe, self.tokenizer, self.args = recorded.recipe, tokenizer, args
        self.data = SimpleNamespace(train=recorded.train)
        self.schedule = Schedule.of(recorded.recipe, PROMPTS)
        self.supervisor = make_supervisor(recorded.recipe, recorded.share, judge, None)
        self.writer = RunWriter(run, recorded.recipe, ExitStack())
        self._clock = Stopwatch()
        kl, strategy = FixedKLController(args.algo.kl.init_coef), SimpleNamespace(args=args)
        models = RecordedPolicy(), None, None, RecordedReference()
        self.experience_maker = SupervisedExperienceMaker(*models, kl, strategy, tokenizer)
        self.experience_maker.trainer = self

    def make_experience(self, samples, step):
        """A step's samples with rewards and advantages; its records are in the store then."""
        self._step = step
        batches = self.experience_maker.make_experience_batch(samples)
        decided = self._supervised.decided
        self.writer.store(step, decided.labels, decided.rollouts)
        return batches


def parsed(chosen, **flags):
    """OpenRLHF's arguments for the recipe, and other flags, as its command line would have them."""
    views = len(compose(chosen.method).views)
    places = Places(
        str(POLICY),
        Path("p.jsonl"),
        None,
        None,
        Path("scratch"),
        1000 + LONGEST,
        views=views,
    )
    words = arguments(recipe_flags(chosen, places, "sdpa", 0) | flags)
    return hierarchize(openrlhf_parser().parse_args(words))


def on_openrlhf(
    recorded, judge, tokenizer, run, arrival, look=lambda controller, batches: None, **flags
):
    """The record as OpenRLHF's tensors; `arrival` reorders the (row, view) of each step's prompts."""
    run.mkdir()
    args = parsed(recorded.recipe, **flags)
    controller, out = (
        Controller(recorded, judge, args, tokenizer, run),
        Decided(run, {}, {}),
    )
    for step, epoch, rows in recorded.steps():
        asked = arrival(step, [(row, view) for row in rows for view in recorded.views])
        places = [(recorded.prompts[row].prompt_id, view, epoch) for row, view in asked]
        samples = [
            sample
            for (row, view), (prompt_id, _, _) in zip(asked, places, strict=True)
            for sample in sampled_by_openrlhf(
                recorded.texts[view][row],
                prompt_label(view, prompt_id),
                recorded.said[prompt_id, view, epoch],
                args,
                tokenizer,
            )
        ]
        for place in places:
            out.rewards[place], out.advantages[place] = [None] * K, [[]] * K
        batches = controller.make_experience(samples, step)
        look(controller, batches)
        for batch in batches:
            for i, number in enumerate(batch.index):
                place = places[number // K]
                out.rewards[place][number % K] = batch.info["reward"][i].item()
                own = batch.advantages[i][batch.action_mask[i].bool()]
                out.advantages[place][number % K] = own.unique().tolist()
    return out


@pytest.fixture(autouse=True)
def no_ray(monkeypatch):
    monkeypatch.setattr(experience_maker, "ray", LocalRay)


def shuffled(step, asked):
    return random.Random(step).sample(asked, len(asked))


@pytest.fixture(scope="module")
def both(recorded, judge, policy, tokenizer, tmp_path_factory):
    """What the local engine and OpenRLHF make of the same rollouts, whose groups arrive shuffled on OpenRLHF."""
    folder = tmp_path_factory.mktemp("both")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experience_maker, "ray", LocalRay)
        theirs = on_openrlhf(recorded, judge, tokenizer, folder / "openrlhf", shuffled)
    return on_local_engine(recorded, judge, policy, folder / "local"), theirs


def test_vllm_ends_a_response_where_the_chat_template_closes_a_turn(tokenizer):
    closing, asked = tokenizer.unk_token, []

    class Engine:
        async def generate(self, prompt, params, request_id):
            asked.append(params)
            yield SimpleNamespace(
                outputs=[
                    SimpleNamespace(token_ids=[5], finish_reason="stop", logprobs=None)
                ]
            )

    actor_class = RolloutRayActor.__ray_metadata__.modified_class
    for chat in (
        ChatFormat("{% for m in messages %}{{ m.content }}" + closing + "{% endfor %}"),
        ChatFormat(""),
    ):
        actor = actor_class.__new__(actor_class)
        actor.executor, actor.llm, actor._mm_pad_token_ids = (
            AgentExecutor(),
            Engine(),
            set(),
        )
        actor.executor.stop, actor.executor.chat = ["!"], chat
        asyncio.run(
            actor.generate_responses(
                "1", "", SamplingParams(max_tokens=4), 9, tokenizer, num_samples=1
            )
        )
    assert [params.stop for params in asked] == [["!"], ["!"]]
    assert [params.stop_token_ids for params in asked] == [[tokenizer.unk_token_id], []]


@pytest.mark.parametrize("level", [None, 1])
def test_one_response_in_eight_has_the_log_probabilities_of_its_tokens_unless_all_are_wanted(
    level, tokenizer
):
    class Engine:
        async def generate(self, prompt, params, request_id):
            logprobs = (
                None
                if params.logprobs is None
                else [{5: Logprob(-0.5)}, {6: Logprob(-0.25)}]
            )
            response = SimpleNamespace(
                token_ids=[5, 6], finish_reason="stop", logprobs=logprobs
            )
            yield SimpleNamespace(outputs=[response])

    actor_class = RolloutRayActor.__ray_metadata__.modified_class
    actor = actor_class.__new__(actor_class)
    actor.executor, actor.llm, actor._mm_pad_token_ids = AgentExecutor(), Engine(), set()
    params = SamplingParams(max_tokens=4, logprobs=level)
    responses = asyncio.run(
        actor.generate_responses("12", "", params, 9, tokenizer, num_samples=16)
    )
    found = [response["rollout_log_probs"] for response in responses]
    asked = [row for row in found if not math.isnan(row[0])]
    assert all(len(row) == 4 for row in found)
    assert asked == [[0.0, 0.0, -0.5, -0.25]] * (16 if level else 2)


def test_returns_are_those_of_openrlhfs_loop_over_tokens():
    """Bit for bit with a reward at the last token alone, which is what it has where the KL is a loss."""
    ours = SupervisedExperienceMaker.__new__(SupervisedExperienceMaker)
    loop_over_tokens = super(SupervisedExperienceMaker, ours).get_cumulative_returns
    mask = (torch.arange(50) < torch.randint(0, 50, (16, 1))) & (torch.arange(50) >= 3)
    at_the_end = torch.zeros(16, 50).scatter_(
        1, torch.randint(0, 50, (16, 1)), torch.randn(16, 1)
    )
    for rewards in (at_the_end, torch.randn(16, 50)):
        returns, expected = (
            make(rewards, mask, 1.0)
            for make in (ours.get_cumulative_returns, loop_over_tokens)
        )
        torch.testing.assert_close(returns, expected)
        assert torch.equal(returns, expected) or rewards is not at_the_end


def test_the_record_holds_every_kind_of_rollout(recorded, both, tokenizer):
    said = [one for group in recorded.said.values() for one in group]
    assert any(one.tokens == (tokenizer.eos_token_id,) for one in said)
    assert any(one.truncated and len(one.tokens) == LONGEST for one in said)
    assert any(tokenizer.unk_token_id in one.tokens for one in said)
    assert len({len(one.tokens) for one in said}) > 4  # padding is needed
    labels = both[0].labels
    assert set(labels["noise_type"]) == {"clean", "active", "inactive"}
    assert labels["has_zero_variance"].any() and not labels["has_zero_variance"].all()
    if recorded.recipe.method.name == "olr":
        assert set(labels["label_source"]) == {"given", "noisy", "sentinel", "majority"}
    assert labels["trains"].all() == (recorded.recipe.method.prompts == "all")
    assert set(both[0].rollouts["view"]) == set(recorded.views)


def test_the_labels_tables_are_equal(both):
    local, openrlhf = both
    assert local.labels.height == PROMPTS * VISITS
    means = ["reward_mean"]  # of scores that are rounded
    assert_frame_equal(
        local.labels.drop(means), openrlhf.labels.drop(means), check_exact=True
    )
    assert_frame_equal(
        local.labels.select(means),
        openrlhf.labels.select(means),
        rel_tol=1e-6,
        abs_tol=1e-6,
    )


def test_the_rollouts_tables_are_equal(recorded, both):
    local, openrlhf = both
    ours, theirs = local.rollouts, openrlhf.rollouts
    assert ours.height == PROMPTS * VISITS * K * len(recorded.views)
    rounded = [*STATISTICS, "reward"]
    assert_frame_equal(ours.drop(rounded), theirs.drop(rounded), check_exact=True)
    # A float32 mean here, a double mean there.
    assert_frame_equal(
        ours.select(rounded), theirs.select(rounded), rel_tol=1e-6, abs_tol=1e-6
    )
    assert all(theirs[name].null_count() == 0 for name in STATISTICS)


def test_the_rewards_are_equal(recorded, both):
    local, openrlhf = both
    assert local.rewards.keys() == openrlhf.rewards.keys()
    for place, rewards in local.rewards.items():
        assert openrlhf.rewards[place] == pytest.approx(rewards, rel=1e-6, abs=1e-6)
    values = {reward for rewards in local.rewards.values() for reward in rewards}
    is_verifier = recorded.recipe.method.name not in (
        "self_certainty",
        "token_entropy",
        "sequence_entropy",
    )
    assert (values == {0.0, 1.0}) == is_verifier


def test_the_advantages_are_equal_but_for_the_documented_std(both):
    local, openrlhf = both
    assert local.advantages.keys() == openrlhf.advantages.keys()
    for place, ours in local.advantages.items():
        # OpenRLHF divides advantages once more, by their own standard deviation.
        given = torch.tensor(ours, dtype=torch.double).flatten()
        theirs = openrlhf.advantages[place]
        # One for all tokens, or none trains
        assert list(map(len, theirs)) == list(map(len, ours))
        if not given.any():
            assert theirs == ours
            continue
        rewards = torch.tensor(local.rewards[place], dtype=torch.double)
        population, sample = rewards.std(correction=0).item(), rewards.std().item()
        factor = (population + STD_EPSILON) / (sample + OPENRLHF_STD_EPSILON)
        assert [one[0] for one in theirs] == pytest.approx(
            [one[0] * factor for one in ours], rel=1e-6, abs=1e-5
        )


@pytest.mark.parametrize("estimator", ["dr_grpo", "rloo"])
def test_another_estimator_gets_rewards_as_they_are(estimator, judge, tokenizer, tmp_path):
    recorded = record(*arithmetic_prompts(), tokenizer)
    recorded = replace(
        recorded, recipe=recipe(OLR, flags={"algo.advantage.estimator": estimator})
    )
    decided = on_openrlhf(recorded, judge, tokenizer, tmp_path / "run", shuffled)
    factor = K / (K - 1) if estimator == "rloo" else 1
    for place, rewards in decided.rewards.items():
        expected = [factor * (reward - sum(rewards) / K) for reward in rewards]
        assert [one[0] for one in decided.advantages[place]] == pytest.approx(
            expected, abs=1e-6
        )


def test_answers_are_verified_while_the_forward_passes_run(
    judge, tokenizer, tmp_path, monkeypatch
):
    is_verified = threading.Event()
    read, forward = SupervisedTrainer.read, RecordedPolicy.async_run_method_batch

    def reading(self, samples):
        said = read(self, samples)
        is_verified.set()
        return said

    def waiting(self, *args, **kwargs):
        assert is_verified.wait(60)
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(SupervisedTrainer, "read", reading)
    monkeypatch.setattr(RecordedPolicy, "async_run_method_batch", waiting)
    on_openrlhf(
        record(*boxed_prompts(), tokenizer), judge, tokenizer, tmp_path / "run", shuffled
    )


@pytest.mark.parametrize(
    "broken", [(RecordedPolicy, "async_run_method_batch"), (SupervisedTrainer, "read")]
)
def test_what_fails_while_answers_are_verified_is_told_and_leaves_no_thread(
    broken, judge, tokenizer, tmp_path, monkeypatch
):
    def fail(*_args, **_kwargs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(*broken, fail)
    threads = threading.active_count()
    with pytest.raises(RuntimeError, match="out of memory"):
        on_openrlhf(
            record(*arithmetic_prompts(), tokenizer),
            judge,
            tokenizer,
            tmp_path / "run",
            shuffled,
        )
    assert threading.active_count() == threads


def test_ranks_get_samples_of_like_length_side_by_side_however_the_groups_arrive(
    judge, tokenizer, tmp_path
):
    """And by their numbers, which the advantages find groups by, samples are what they were."""
    recorded = record(*arithmetic_prompts(), tokenizer)
    recorded = replace(recorded, recipe=recipe(OLR, gpus_per_node=2, micro_batch_samples=2))
    steps = []

    def look(controller, batches):
        for batch in batches:
            for i, number in enumerate(batch.index):
                tokens = controller.experience_maker._samples[number].sequences[0].tolist()
                assert batch.sequences[i, : len(tokens)].tolist() == tokens
        # As OpenRLHF hands them out
        ranks = (
            batches[: len(batches) // 2],
            batches[len(batches) // 2 :],
        )
        side_by_side = [
            torch.cat([one.total_length, other.total_length])
            for one, other in zip(*ranks, strict=True)
        ]
        # A mini-batch of 8 samples: the four long ones, then the four short ones.
        for long, short in zip(side_by_side[::2], side_by_side[1::2], strict=True):
            assert long.min() >= short.max()
        steps.append(len(batches))

    on_openrlhf(recorded, judge, tokenizer, tmp_path / "run", shuffled, look)
    assert len(steps) == 2 * VISITS


@pytest.mark.parametrize("smoothing", [0, 0.25])
def test_the_update_gets_the_old_policys_smoothed_log_likelihood_and_the_store_the_plain_one(
    smoothing, judge, tokenizer, tmp_path
):
    recorded = record(
        *arithmetic_prompts(), tokenizer, {"name": "grpo", "smoothing": smoothing}
    )

    def look(_controller, batches):
        for batch in batches:
            forward = RecordedPolicy()._forward(batch.sequences, batch.action_mask)
            expected = smoothed(forward.log_probs, forward.self_certainties, smoothing)
            mask = batch.action_mask.bool()
            assert torch.equal(batch.action_log_probs[mask], expected[mask])
            assert torch.equal(
                batch.base_action_log_probs[mask], forward.log_probs[mask] - 1
            )

    decided = on_openrlhf(recorded, judge, tokenizer, tmp_path / "run", shuffled, look)
    plain = record(*arithmetic_prompts(), tokenizer, {"name": "grpo"})
    plain = on_openrlhf(plain, judge, tokenizer, tmp_path / "plain", shuffled)
    assert_frame_equal(decided.rollouts, plain.rollouts, check_exact=True)


def test_a_response_without_any_token_has_no_statistics_and_no_reward(
    judge, tokenizer, tmp_path
):
    recorded = record(*arithmetic_prompts(), tokenizer)
    first = recorded.prompts[0].prompt_id
    recorded.said[first, "original", 1][2] = Said((), truncated=False)
    decided = on_openrlhf(
        recorded, judge, tokenizer, tmp_path / "run", lambda _step, asked: asked
    )
    (row,) = decided.rollouts.filter(
        (pl.col("prompt_id") == first) & (pl.col("visit") == 1) & (pl.col("sample") == 2)
    ).to_dicts()
    assert (row["tokens"], row["response"], row["reward"]) == (0, "", 0.0)
    assert [row[name] for name in STATISTICS] == [None] * 3
    assert decided.rollouts["mean_logprob"].null_count() == 1
    assert decided.advantages[first, "original", 1][2] == []
