"""OpenRLHF's vLLM actors; they answer a prompt in one turn, without a reward, which the supervisor makes later.

OpenRLHF loads this file by its path (`--train.agent_func_path`), and takes `AgentExecutor` from it.
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

_ASKED = 8
"""One response in as many is asked for the log-probabilities of its tokens, from which `sampler_gap` is measured.

For each of its tokens vLLM's front end needs twice the time (26 and 63 µs measured on a CPU), and it serves all
sequences of a GPU.
"""


class AgentExecutor(SingleTurnAgentExecutor):  # type: ignore[misc]
    """Asks vLLM for responses that end before a stop text too, or with their turn, and for some log-probabilities.

    OpenRLHF has a flag for neither end, and asks for log-probabilities only if it corrects the update by them.
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
        """One response; OpenRLHF gives every argument by its name. Log-probabilities not asked for are NaN."""
        if self._stop_token_ids is None:
            closing = turn_end(hf_tokenizer, self.chat)
            self._stop_token_ids = stop_ids(hf_tokenizer, self.stop) + (
                [] if closing is None else [closing]
            )
        logprobs = sampling_params.logprobs
        if logprobs is None and next(self._responses) % _ASKED == 0:
            logprobs = 0  # of the sampled token alone
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
    """A Ray actor class like OpenRLHF's `RolloutRayActor` with what has no flag: engine arguments and ends."""

    class RolloutActor(RolloutRayActor.__ray_metadata__.modified_class):  # type: ignore[misc]
        async def __init__(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[misc]
            # Of the distribution that is sampled from, which the policy's are of, too.
            processed = {"logprobs_mode": "processed_logprobs"}
            os.environ["VLLM_PORT"] = str(free_port())  # the first that vLLM tries
            await super().__init__(*args, **(kwargs | processed | engine_arguments))
            self.executor.stop, self.executor.chat = stop, chat

    return ray.remote(RolloutActor)
