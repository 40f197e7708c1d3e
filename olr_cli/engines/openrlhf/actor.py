"""OpenRLHF's policy actor, with token statistics, smoothed targets, prompts that do not train, and checkpoints.

Entropy and self-certainty come from the logits that OpenRLHF's actor computes anyway. Their distribution is
softmax(logits / sampling temperature), and the unit is nats, as in `RolloutRecord`: the actor returns its logits in
float32, divided by the temperature. A checkpoint is also a model in Hugging Face layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ray
import torch
from openrlhf.trainer.ray import ppo_actor
from openrlhf.trainer.ray.launcher import ReferenceModelActor
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer, PolicyModelActor
from openrlhf.utils.distributed_util import torch_dist_barrier_and_cuda_sync
from torch import Tensor
from torch.utils.data import DataLoader

from olr_cli.engines.local.loading import end_ids
from olr_cli.engines.local.loss import smoothed
from olr_cli.engines.local.responses import self_certainty_of
from olr_cli.engines.openrlhf.flags import LOSS_AVERAGES
from olr_cli.engines.openrlhf.job_files import OPENRLHF_PART
from olr_cli.engines.openrlhf.ports import free_port
from olr_cli.engines.prompt_text import AS_THE_MODEL_HAS_IT, ChatFormat
from olr_cli.engines.run import LOSS_OR_GRADIENT, NonFinite
from olr_cli.files import naming_the_disks_error

_TINY_TOKEN_COUNT = 1e-30
"""Number of tokens with no weight in a mean, but large enough to divide by in float32."""

_CHUNK_LOGITS = 2**24
"""Logits at a time, 64 MiB in float32. The statistics need twice that besides the logits themselves."""


class PolicyForward(NamedTuple):
    """The policy's log-probabilities, entropies and self-certainties at response tokens, from `PolicyActor.forward`.

    Each tensor is on the CPU and has the shape (B, A) of OpenRLHF's action mask, for B sequences and A positions. The
    mask is 1 at response tokens. At all other positions, entropies and self-certainties are 0, and log-probabilities
    are meaningless.
    """

    log_probs: Tensor
    """log pi(token). OpenRLHF asks only for these."""

    entropies: Tensor
    """Entropy of pi."""

    self_certainties: Tensor
    """KL(uniform || pi) = -log V - mean_v log pi(v)."""


def _at_actions(values_BT: Tensor, actions: int) -> Tensor:
    """Return a view of the values of the last `actions` tokens of each sequence, with the shape (B, actions).

    `values_BT` has one value for each position of B sequences. The logits at a position predict the next token, so a
    token's value is at the position before it.
    """
    return values_BT[:, :-1][:, -actions:]


def token_statistics(logits_BTV: Tensor, action_mask_BA: Tensor) -> tuple[Tensor, Tensor]:
    """Return the entropy and the self-certainty of the policy at each response token, without gradient.

    Self-certainty is KL(uniform || policy). Both results are in nats and have the shape (B, A) of `action_mask_BA`,
    which is 1 at response tokens; elsewhere the results are 0. The A actions are the last A of the T tokens, and the
    logits for a token are at the position before it. Positions are processed in chunks to save memory.
    """
    B, T, V = logits_BTV.shape
    actions = action_mask_BA.shape[1]
    is_followed_BT = torch.zeros(B, T, dtype=torch.bool, device=logits_BTV.device)
    _at_actions(is_followed_BT, actions)[:] = action_mask_BA.bool()
    places_N = is_followed_BT.flatten().nonzero()[:, 0]
    logits_NV = logits_BTV.detach().flatten(0, 1)
    statistics_2N = logits_BTV.new_zeros(2, len(logits_NV))
    for places_M in torch.split(places_N, max(1, _CHUNK_LOGITS // V)):
        log_pi_MV = logits_NV[places_M].log_softmax(-1)
        # Self-certainty comes first: the next line overwrites log pi with pi, which saves a second copy.
        statistics_2N[1, places_M] = self_certainty_of(log_pi_MV)
        statistics_2N[0, places_M] = torch.special.entr(log_pi_MV.exp_()).sum(-1)
    entropy_BT, self_certainty_BT = statistics_2N.view(2, B, T)
    return _at_actions(entropy_BT, actions), _at_actions(self_certainty_BT, actions)


def self_certainties(
    logits_BTV: Tensor, sequences_BT: Tensor, log_probs_BA: Tensor
) -> Tensor:
    """Return the self-certainty, KL(uniform || policy) in nats, at each response token, with gradient.

    The result has the shape (B, A) of `log_probs_BA`, for the last A tokens of each sequence. At tokens that are not
    part of a response, its values are meaningless.

    Args:
        logits_BTV: the policy's logits.
        sequences_BT: token ids of prompts and responses.
        log_probs_BA: the policy's log-probability of each response token.
    """
    # At each position, logits and log-probabilities differ by a constant, so one token's log-probability makes a second
    # softmax superfluous.
    # At each position the token that follows. The last one gets the first token, but `_at_actions` drops it.
    tokens_BT1 = sequences_BT.roll(-1, dims=1)[..., None]
    above_token_BT = logits_BTV.mean(-1) - logits_BTV.gather(-1, tokens_BT1)[..., 0]
    above_token_BA = _at_actions(above_token_BT, log_probs_BA.shape[1])
    return -math.log(logits_BTV.shape[-1]) - log_probs_BA - above_token_BA


def averaged(loss: Any) -> Any:
    """Return a function that calls OpenRLHF's policy loss without the keyword argument `token_level_loss`.

    `PolicyUpdate.training_step` sets this argument to choose whether the KL loss and the entropy penalty are means over
    tokens or over responses. OpenRLHF also passes it to the policy loss, which does not accept it. The policy loss is
    averaged as the flag `actor.loss_agg_mode` says.
    """
    return lambda *arguments, token_level_loss, **options: loss(*arguments, **options)


class SmoothedLoss:
    """Compute OpenRLHF's policy loss from label-smoothed log-probabilities; `PolicyUpdate` makes this object.

    Smoothing mixes the log-probability of the sampled token with the mean log-probability over the vocabulary
    (`olr_cli.engines.local.loss.smoothed`). The loss compares the policy in training with the old policy, which sampled
    the responses. This class smooths the log-probabilities of the policy in training. `SupervisedTrainer.supervise` has
    already smoothed those of the old policy. Other quantities, such as the KL, are not smoothed.
    """

    def __init__(self, loss: Any, actor: Any, smoothing: float) -> None:
        self._loss, self._smoothing = loss, smoothing
        self._log_probs_BA: Tensor | None = None
        # OpenRLHF passes only log-probabilities to the loss, so take the logits from the forward pass itself.
        actor.register_forward_hook(self._remember, with_kwargs=True)

    def __call__(self, log_probs_BA: Tensor, *arguments: Any, **options: Any) -> Any:
        """Return OpenRLHF's loss and statistics, computed from the smoothed log-probabilities of the last forward pass.

        `log_probs_BA`, which is not smoothed, is ignored. All other arguments go to OpenRLHF's loss.
        """
        # Drop the reference, or the tensors of the pass would stay in memory until the next one.
        smoothed_BA, self._log_probs_BA = self._log_probs_BA, None
        return self._loss(smoothed_BA, *arguments, **options)

    def _remember(
        self,
        actor: Any,
        arguments: tuple[Tensor, ...],
        options: dict[str, Any],
        result: Any,
    ) -> None:
        """Keep the smoothed log-probabilities of a forward pass for the next call of the loss.

        torch calls this hook after each forward pass of `actor`. If gradients are off, nothing is kept. `arguments` and
        `options` are the pass's positional and keyword arguments; token ids come first. `result` is a pair of
        log-probabilities and the model's output.
        """
        if not torch.is_grad_enabled():  # a pass of sampling statistics
            return
        log_probs_BA, output = result
        certainties_BA = self_certainties(output["logits"], arguments[0], log_probs_BA)
        self._log_probs_BA = smoothed(log_probs_BA, certainties_BA, self._smoothing)


class FiniteSteps:
    """Wrap OpenRLHF's DeepSpeed strategy so that an infinite or NaN loss or gradient raises `NonFinite` on every rank.

    DeepSpeed would not raise. With ZeRO 1 and 2 it silently skips such a step (`check_grad_overflow`) and reports the
    gradient norm of the step before. With ZeRO 3 it takes the step: `get_grad_norm_direct` replaces the norm by -1, and
    every weight becomes NaN.
    """

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strategy, name)

    def backward(self, loss: Tensor, *arguments: Any, **options: Any) -> None:
        """Run OpenRLHF's backward pass; if the loss is infinite or NaN, make its gradient NaN.

        The sum of the gradients carries the NaN to the other ranks. All ranks then raise in `optimizer_step`.
        """
        # Only one rank may see the infinite loss. `1 + (value - value)` is 1 for a finite value and NaN otherwise, and
        # the NaN reaches every rank through the sum of the gradients.
        value = loss.detach()
        self._strategy.backward(loss * (1 + (value - value)), *arguments, **options)

    def optimizer_step(
        self, optimizer: Any, actor: Any, *arguments: Any, **options: Any
    ) -> None:
        """Take OpenRLHF's optimiser step, unless the gradient is infinite or NaN.

        Raises:
            NonFinite: the gradient is infinite or NaN; the weights are unchanged.
        """
        zero = getattr(actor.model, "optimizer", None)
        with _norms_checked(zero):
            self._strategy.optimizer_step(optimizer, actor, *arguments, **options)
        if getattr(zero, "overflow", False):
            raise NonFinite(LOSS_OR_GRADIENT)


@contextmanager
def _norms_checked(zero: Any) -> Iterator[None]:
    """Within the block, make DeepSpeed's ZeRO 3 optimiser raise `NonFinite` if a gradient norm is infinite or NaN.

    The optimiser `zero` raises after it has computed the norms, before any weight changes. Optimisers of ZeRO 1 and 2
    are left alone, because they skip such a step by themselves and set `overflow`.
    """
    norms = getattr(zero, "_get_norm_groups", None)
    if norms is None:
        yield
        return

    def checked() -> Any:
        groups = norms()
        # A norm that is not finite arrives here as -1.
        if min(float(norm) for norm in groups) < 0:
            raise NonFinite(LOSS_OR_GRADIENT)
        return groups

    zero._get_norm_groups = checked
    try:
        yield
    finally:
        del zero._get_norm_groups


class PolicyUpdate(ActorPPOTrainer):  # type: ignore[misc]
    """Update the policy on one rank as OpenRLHF does, with three changes.

    - The policy loss uses label-smoothed log-probabilities if `smoothing` is above 0.
    - Tokens of prompts that the supervisor excludes from training do not count in the mean of a loss.
    - An infinite or NaN loss or gradient raises `NonFinite`.

    OpenRLHF makes this object for a `PolicyActor`.
    """

    actor_loss_fn: Any
    strategy: Any

    def __init__(self, *args: Any, smoothing: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.strategy = FiniteSteps(self.strategy)
        self.actor_loss_fn = averaged(self.actor_loss_fn)
        if smoothing > 0:
            self.actor_loss_fn = SmoothedLoss(self.actor_loss_fn, self.actor, smoothing)

    def ppo_train(self, kl_ctl: float) -> dict[str, Any]:
        """Train on the samples of a step that this rank has received; return OpenRLHF's metrics of the update, by name.

        OpenRLHF would shuffle the samples. Here they stay in the order in which `balance.deal` has dealt them to the
        ranks. `kl_ctl` is the weight of the KL term in the loss.
        """
        # OpenRLHF looks the class up in its own module and always passes shuffle=True.
        ppo_actor.DataLoader = lambda *arguments, **options: DataLoader(
            *arguments, **options | {"shuffle": False}
        )
        status: dict[str, Any] = super().ppo_train(kl_ctl)
        return status

    def training_step(
        self, experience: Any, kl_ctl: float, step: int, loss_batch_info: dict[str, Any]
    ) -> dict[str, Any]:
        """Train on one micro-batch; return what OpenRLHF reports of it, with corrected metrics of loss, entropy and KL.

        OpenRLHF divides a micro-batch's sum by the count of the whole mini-batch, and later averages the quotients with
        the micro-batches' tokens as weights. The size of a micro-batch would count twice. With the correction, the
        average is the mean over the step's tokens. If the loss is a mean over responses, the average is a mean of the
        mini-batches' values, weighted by their tokens.

        A micro-batch in which no token trains adds nothing to the gradient or to any average.

        `loss_batch_info` has OpenRLHF's counts of tokens and samples in the mini-batch, by name. The other arguments go
        to OpenRLHF unchanged.
        """
        # If no prompt of a whole mini-batch trains, divide its sums by 1: 0 / 0 would make every weight NaN.
        totals = {
            name: loss_batch_info[name]
            for name in ("batch_num_tokens", "global_batch_size")
        }
        totals = {name: total.masked_fill(total == 0, 1) for name, total in totals.items()}
        # OpenRLHF passes all these entries on to `aggregate_loss`, which averages KL and penalty.
        averaged = {
            "token_level_loss": self.args.actor.loss_agg_mode == LOSS_AVERAGES["token"]
        }
        status: dict[str, Any] = super().training_step(
            experience, kl_ctl, step, loss_batch_info | totals | averaged
        )
        metrics, tokens = status["metrics"], status["num_action_tokens"]
        if tokens == 0:
            token_means = [
                name for name, weight in status["weights"].items() if weight == "token"
            ]
            return status | {
                "metrics": metrics | dict.fromkeys(token_means, 0.0),
                "num_action_tokens": _TINY_TOKEN_COUNT,
            }
        # OpenRLHF divides the micro-batch's sum by the whole mini-batch's count, and later averages with the tokens
        # as weights. The length of the micro-batch would count twice.
        correction = (
            float(loss_batch_info["batch_num_tokens"]) / loss_batch_info["dp_size"] / tokens
        )
        for name in ("policy_loss", "entropy_loss", "kl"):
            if name in metrics:
                metrics[name] = metrics[name] * correction
        return status


class PolicyActor(PolicyModelActor.__ray_metadata__.modified_class):  # type: ignore[misc]
    """Run one rank of the policy: OpenRLHF's Ray actor with our update, token statistics and checkpoints."""

    smoothing = 0.0  # share of the uniform distribution in each token's target
    # OpenRLHF would take the kernel's choice, which may be given away before the process listens (ports.py).
    _get_free_port = staticmethod(free_port)

    def init_model_from_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Load the policy as OpenRLHF does, but make `PolicyUpdate` the trainer that updates it.

        `PolicyUpdate` is OpenRLHF's trainer with label smoothing and a few other changes. The arguments are OpenRLHF's.
        """
        # OpenRLHF makes its trainer from this name in its own module.
        ppo_actor.ActorPPOTrainer = partial(PolicyUpdate, smoothing=self.smoothing)
        super().init_model_from_pretrained(*args, **kwargs)

    def forward(
        self,
        sequences: Tensor,
        action_mask: Tensor,
        attention_mask: Tensor,
        **images: Any,
    ) -> PolicyForward:
        """Run the policy without gradient; return log-probabilities, entropies and self-certainties of response tokens.

        OpenRLHF passes `images`, which are ignored.
        """
        device = torch.cuda.current_device()
        sequences, action_mask, attention_mask = (
            tensor.to(device) for tensor in (sequences, action_mask, attention_mask)
        )
        self.actor.eval()
        with torch.no_grad():
            log_probs_BA, output = self.actor(
                sequences, action_mask, attention_mask, return_output=True
            )
            statistics = token_statistics(output["logits"], action_mask)
        self.actor.train()
        return PolicyForward(*(tensor.to("cpu") for tensor in (log_probs_BA, *statistics)))

    def take_gpu_peak(self) -> int | None:
        """Return the peak of torch's GPU memory since the last call, in bytes, and reset it; None without a GPU."""
        if not torch.cuda.is_available():
            return None
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return peak

    def save_checkpoint_to(
        self, folder: str, step: int, chat: ChatFormat = AS_THE_MODEL_HAS_IT
    ) -> None:
        """Write this rank's part of the checkpoint after `step` steps into `folder`.

        Call it on all ranks at once, because each rank waits for the others. The checkpoint consists of DeepSpeed's
        state and the model in Hugging Face's layout. `chat` says which chat template the saved tokenizer gets. By
        default the tokenizer keeps its own.
        """
        chat.put_into(self.tokenizer)
        model = self.strategy._unwrap_model(self.actor)
        model.generation_config.eos_token_id = end_ids(model, self.tokenizer)
        # OpenRLHF has switched the cache off for training. A saved model without it would generate slowly everywhere.
        model.config.use_cache = True
        self.strategy.save_model(self.actor, self.tokenizer, folder)
        model.config.use_cache = False
        with (
            _without_offload_buffers(self.actor.model),
            naming_the_disks_error(Path(folder)),
        ):
            self.strategy.save_ckpt(
                self.actor.model,
                str(Path(folder, OPENRLHF_PART, "_actor")),
                f"global_step{step}",
                client_state={"global_step": step},
            )
        torch_dist_barrier_and_cuda_sync()

    def save_model(self) -> None:
        """Skip OpenRLHF's save at the end of training, because the last checkpoint already holds the model."""


@contextmanager
def _without_offload_buffers(engine: Any) -> Iterator[None]:
    """Within the block, remove a DeepSpeed optimiser's offload buffers, so that a checkpoint does not contain them.

    `engine` is the policy's DeepSpeed engine. ZeRO 3 keeps these buffers in host memory, among the optimiser's states,
    to free the GPU while the policy sleeps. In a checkpoint they would double the size of Adam's moments, and a resume
    would load them onto the GPU. After the block they are put back, because DeepSpeed needs them when the policy wakes
    up (runtime/zero/offload_states.py).
    """
    states = getattr(getattr(engine.optimizer, "optimizer", None), "state", {})
    removed = {
        parameter: {
            name: state.pop(name) for name in [*state] if name.endswith("_offload_buffer")
        }
        for parameter, state in states.items()
    }
    try:
        yield
    finally:
        for parameter, buffers in removed.items():
            states[parameter].update(buffers)


def policy_actor(smoothing: float, threads: int) -> object:
    """Return the Ray actor class that replaces OpenRLHF's policy.

    Args:
        smoothing: share of the uniform distribution in each token's target; 0 means no smoothing.
        threads: number of CPU threads of each policy process (OMP_NUM_THREADS).
    """

    # Ray pickles this class by value, with its attribute (see `trainer.trainer_actor`).
    class PolicyActorOfRun(PolicyActor):
        pass

    PolicyActorOfRun.smoothing = smoothing
    variables = {"OMP_NUM_THREADS": str(threads)}
    return ray.remote(num_gpus=1, runtime_env={"env_vars": variables})(PolicyActorOfRun)


class _ReferenceActor(ReferenceModelActor.__ray_metadata__.modified_class):  # type: ignore[misc]
    """Run one rank of the reference model; the rank listens on a port from `free_port`.

    OpenRLHF would use a port that the kernel chooses. Another connection might get the same port before the rank
    listens on it.
    """

    _get_free_port = staticmethod(free_port)


def reference_actor() -> object:
    """Return the Ray actor class that replaces OpenRLHF's reference model; `_ReferenceActor` says what it changes."""
    return ray.remote(num_gpus=1)(_ReferenceActor)
