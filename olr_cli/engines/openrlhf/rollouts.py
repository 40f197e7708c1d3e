"""OpenRLHF's vLLM actors; they answer a prompt in one turn, without a reward, which the supervisor makes later.

OpenRLHF loads this file by its path (`--train.agent_func_path`), and takes `AgentExecutor` from it.
"""

from __future__ import annotations

from typing import Any

import ray
from openrlhf.trainer.ray.vllm_engine import RolloutRayActor
from openrlhf.utils.agent import SingleTurnAgentExecutor as AgentExecutor

__all__ = ["AgentExecutor", "rollout_actor"]


def rollout_actor(engine_arguments: dict[str, Any]) -> Any:
    """A Ray actor class like OpenRLHF's `RolloutRayActor` whose vLLM engine also gets arguments that have no flag."""

    class RolloutActor(RolloutRayActor.__ray_metadata__.modified_class):  # type: ignore[misc]
        async def __init__(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[misc]
            await super().__init__(*args, **(kwargs | engine_arguments))

    return ray.remote(RolloutActor)
