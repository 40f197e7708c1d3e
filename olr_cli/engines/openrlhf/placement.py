"""Which node each rank of the policy runs on.

OpenRLHF gives rank i the bundle i of a placement group that Ray packs. Ray promises few nodes and no order, so ranks 0
to 7 may lie on two nodes, and DeepSpeed's `ds.zpg` takes neighbouring ranks for those of one node.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from olr_cli.engines.openrlhf.flags import section
from olr_cli.errors import UserError
from olr_cli.recipe.schema import Recipe, flatten

_NODE = "ray.io/node-id"
"""The label that Ray gives every node."""


def node_of_each_rank(free_gpus: Mapping[str, float], nodes: int, gpus_per_node: int) -> list[str] | None:
    """Nodes for ranks 0, 1, …, so that neighbours, `gpus_per_node` at a time, share one.

    Args:
        free_gpus: GPUs that are free, by the node's id.
        nodes: groups of ranks.
        gpus_per_node: ranks of a group.

    Returns:
        None if so many whole groups do not fit.
    """
    fullest_first = sorted(free_gpus, key=lambda node: (-free_gpus[node], node))
    groups = [node for node in fullest_first for _ in range(int(free_gpus[node]) // gpus_per_node)]
    if len(groups) < nodes:
        return None
    return [node for node in groups[:nodes] for _ in range(gpus_per_node)]


def keep_ranks_of_a_node_together(recipe: Recipe) -> None:
    """Have OpenRLHF, in this process, ask Ray for bundles in the order of nodes.

    Raises:
        UserError: later, when OpenRLHF places the policy: `ds.zpg` needs that order, and the free GPUs do not allow it.
    """
    engine = section(recipe)
    if engine.nodes == 1:
        return
    import ray
    from openrlhf.trainer.ray import launcher

    # By its full name: as an attribute, `ray.util.placement_group` is the function.
    rays: Any = sys.modules["ray.util.placement_group"]
    original: Any = rays.placement_group

    def placed(bundles: list[dict[str, float]], strategy: str = "PACK", **options: Any) -> Any:
        if len(bundles) != engine.policy_gpus:  # vLLM's
            return original(bundles, strategy, **options)
        free = ray._private.state.available_resources_per_node()
        gpus = {node: resources.get("GPU", 0.0) for node, resources in free.items()}
        order = node_of_each_rank(gpus, engine.nodes, engine.gpus_per_node)
        if order is not None:
            options["bundle_label_selector"] = [{_NODE: node} for node in order]
        elif (flatten(engine.flags).get("ds.zpg") or 1) > 1:
            raise UserError(
                f"ds.zpg needs {engine.nodes} nodes with {engine.gpus_per_node} free GPUs each, and the cluster's nodes"
                f" have {', '.join(f'{count:g}' for count in gpus.values())}; free some, or remove engine.flags.ds.zpg"
            )
        return original(bundles, strategy, **options)

    # Where OpenRLHF's command line will look it up when it is imported, and where its launcher has done so.
    for module in (rays, launcher):
        vars(module)["placement_group"] = placed
