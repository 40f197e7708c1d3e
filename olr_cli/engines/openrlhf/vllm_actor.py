"""OpenRLHF's vLLM actors. They answer a prompt in one turn and without a reward, which the supervisor computes later.

OpenRLHF loads this file by its path (`--train.agent_func_path`) and takes `AgentExecutor` from it.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from typing import Any

import msgspec
import ray
from openrlhf.trainer.ray.vllm_engine import RolloutRayActor
from openrlhf.utils.agent import SingleTurnAgentExecutor

from olr_cli.engines.openrlhf.ports import free_port
from olr_cli.engines.prompt_text import AS_THE_MODEL_HAS_IT, ChatFormat, stop_ids, turn_end

_LOGPROB_INTERVAL = 8
"""One response in this many comes with the log-probabilities of its tokens, from which `sampler_gap` is measured.

For each such token vLLM's front end needs twice the time (63 instead of 26 µs, measured on a CPU), and one front end
serves all sequences of a GPU.
"""


class AgentExecutor(SingleTurnAgentExecutor):  # type: ignore[misc]
    """Ask vLLM for responses that also end at a stop text or at the end of the chat turn.

    OpenRLHF has no flag for these ends. For every eighth response, this class also asks for the log-probabilities of
    the tokens. They show how far vLLM is from the policy (`sampler_gap`). Asking for every response would slow vLLM
    down.
    """

    stop: Sequence[str] = ()
    chat = AS_THE_MODEL_HAS_IT
    _stop_token_ids: list[int] | None = None

    def __init__(self) -> None:
        super().__init__()
        self._responses = itertools.count()

    async def execute(
        self, *args: Any, sampling_params: Any, hf_tokenizer: Any, **kwargs: Any
    ) -> Any:
        """Return OpenRLHF's dict of one response, with a log-probability for each token in `rollout_log_probs`.

        If log-probabilities were not asked for, they are all NaN. The stops are set in a copy of `sampling_params`.
        """
        # OpenRLHF passes every argument by its name, so the names in the signature must be its own.
        if self._stop_token_ids is None:
            closing = turn_end(hf_tokenizer, self.chat)
            self._stop_token_ids = stop_ids(hf_tokenizer, self.stop) + (
                [] if closing is None else [closing]
            )
        logprobs = sampling_params.logprobs
        if logprobs is None and next(self._responses) % _LOGPROB_INTERVAL == 0:
            logprobs = 0  # 0 further tokens: only the sampled one's
        sampling_params = msgspec.structs.replace(
            sampling_params,
            stop=list(self.stop),
            stop_token_ids=self._stop_token_ids,
            logprobs=logprobs,
        )
        response = await super().execute(
            *args, sampling_params=sampling_params, hf_tokenizer=hf_tokenizer, **kwargs
        )
        if response["rollout_log_probs"] is None:
            response["rollout_log_probs"] = [math.nan] * len(response["observation_tokens"])
        return response


def rollout_actor(
    engine_arguments: dict[str, Any], stop: Sequence[str], chat: ChatFormat
) -> Any:
    """Return the Ray actor class that replaces OpenRLHF's `RolloutRayActor`, which runs a vLLM engine.

    Args:
        engine_arguments: further arguments of vLLM's engine, as name -> value. OpenRLHF has no flags for them.
        stop: texts at which a response ends.
        chat: the chat format. The end of its turn ends a response too.
    """

    class RolloutActor(RolloutRayActor.__ray_metadata__.modified_class):  # type: ignore[misc]
        async def __init__(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[misc]
            # Log-probabilities after division by the temperature, as the policy's are. Raw ones would show a gap.
            processed = {"logprobs_mode": "processed_logprobs"}
            os.environ["VLLM_PORT"] = str(free_port())  # the first port that vLLM tries
            await super().__init__(*args, **(kwargs | processed | engine_arguments))
            self.executor.stop, self.executor.chat = stop, chat

    return ray.remote(RolloutActor)
