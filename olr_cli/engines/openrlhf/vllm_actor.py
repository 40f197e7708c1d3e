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


class AgentExecutor(SingleTurnAgentExecutor):  # type: ignore[misc]
    """Asks vLLM for responses that end before a stop text too, for which OpenRLHF has no flag."""

    stop: Sequence[str] = ()

    async def execute(self, *args: Any, sampling_params: Any, **kwargs: Any) -> Any:
        """One response; OpenRLHF gives every argument by its name."""
        if self.stop:
            sampling_params = msgspec.structs.replace(sampling_params, stop=list(self.stop))
        return await super().execute(*args, sampling_params=sampling_params, **kwargs)


def rollout_actor(engine_arguments: dict[str, Any], stop: Sequence[str]) -> Any:
    """A Ray actor class like OpenRLHF's `RolloutRayActor` with engine arguments and stop texts that have no flag."""

    class RolloutActor(RolloutRayActor.__ray_metadata__.modified_class):  # type: ignore[misc]
        async def __init__(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[misc]
            await super().__init__(*args, **(kwargs | engine_arguments))
            self.executor.stop = stop

    return ray.remote(RolloutActor)
