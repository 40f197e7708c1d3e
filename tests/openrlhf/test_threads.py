"""How many threads the policy's processes have, in which Adam runs when its state is in host memory."""

import ray
from cases import each

from olr_cli.engines.openrlhf.job import policy_threads
from olr_cli.recipe.layers import validate


def node(alive=True, **resources):
    return {"Alive": alive, "Resources": resources}


@each(
    "nodes, gpus, threads",
    ([node(CPU=96, GPU=8)], 8, 12),
    ([node(CPU=96, GPU=8), node(CPU=64, GPU=8), node(CPU=4, GPU=8, alive=False)], 8, 8),
    ([node(CPU=2), node(CPU=30, GPU=4)], 4, 7),  # a head without GPUs
    ([node(CPU=8, GPU=8)], 8, 1),
    ([node(CPU=2, GPU=4)], 4, 1),
)
def test_the_policys_processes_of_a_node_share_its_cores(nodes, gpus, threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Ray's job server does
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    section = {"name": "openrlhf", "gpus_per_node": gpus}
    recipe, rehearsal = (
        validate({"engine": section | more}, "test") for more in ({}, {"device": "cpu"})
    )
    assert (policy_threads(recipe), policy_threads(rehearsal)) == (threads, 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert policy_threads(recipe) == 5
