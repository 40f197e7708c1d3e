"""OpenRLHF's vLLM actors; they answer a prompt in one turn, without a reward, which the supervisor makes later.

OpenRLHF loads this file by its path (`--train.agent_func_path`), and takes `AgentExecutor` from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import ray
from openrlhf.trainer.ray.vllm_engine import RolloutRayActor
from openrlhf.utils.agent import SingleTurnAgentExecutor

from olr_cli.engines.prompt_text import AS_THE_MODEL_HAS_IT, ChatFormat, turn_end


class AgentExecutor(SingleTurnAgentExecutor):  # type: ignore[misc]
    """Asks vLLM for responses that end before a stop text too, or with their turn; OpenRLHF has no flag for either."""

    stop: Sequence[str] = ()
    chat = AS_THE_MODEL_HAS_IT
    _stop_token_ids: list[int] | None = None

    async def execute(self, *args: Any, sampling_params: Any, hf_tokenizer: Any, **kwargs: Any) -> Any:
        """One response; OpenRLHF gives every argument by its name."""
        if self._stop_token_ids is None:
            closing = turn_end(hf_tokenizer, self.chat)
            self._stop_token_ids = [] if closing is None else [closing]
        sampling_params = msgspec.structs.replace(
            sampling_params, stop=list(self.stop), stop_token_ids=self._stop_token_ids
        )
        return await super().execute(
            *args, sampling_params=sampling_params, hf_tokenizer=hf_tokenizer, **kwargs
        )


def rollout_actor(engine_arguments: dict[str, Any], stop: Sequence[str], chat: ChatFormat) -> Any:
    """A Ray actor class like OpenRLHF's `RolloutRayActor` with what has no flag: engine arguments and ends."""

    class RolloutActor(RolloutRayActor.__ray_metadata__.modified_class):  # type: ignore[misc]
        async def __init__(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[misc]
            await super().__init__(*args, **(kwargs | engine_arguments))
            self.executor.stop, self.executor.chat = stop, chat

    return ray.remote(RolloutActor)
