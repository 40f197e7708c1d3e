"""Ray places the policy's ranks node by node, on a cluster of two nodes with logical GPUs, on this machine."""

import importlib

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group_table, remove_placement_group

from olr_cli.engines.openrlhf import job
from olr_cli.errors import UserError
from olr_cli.recipe.checks import validate


def recipe(**engine):
    return validate({"engine": {"name": "openrlhf", "nodes": 2, "gpus_per_node": 3, **engine}}, "test")


@pytest.fixture(scope="module")
def cluster():
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, "num_gpus": 4})
    made.add_node(num_cpus=8, num_gpus=3)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def modules(monkeypatch):
    """Where OpenRLHF's launcher and command line look `placement_group` up; put back after the test."""
    found = [
        importlib.import_module(name)
        for name in ("ray.util.placement_group", "openrlhf.trainer.ray.launcher")
    ]
    for module in found:
        monkeypatch.setattr(module, "placement_group", module.placement_group)
    return found


BUNDLES = [{"GPU": 1, "CPU": 1} for _ in range(6)]


def test_ranks_of_a_node_are_neighbours(cluster, modules):
    job.keep_ranks_of_a_node_together(recipe())
    for module in modules:
        group = module.placement_group(BUNDLES, strategy="PACK")
        assert group.wait(30)
        nodes = placement_group_table(group)["bundles_to_node_id"]
        assert nodes[0] == nodes[1] == nodes[2] != nodes[3]
        assert nodes[3] == nodes[4] == nodes[5]
        remove_placement_group(group)


def test_zpg_is_refused_where_the_free_gpus_do_not_allow_it(cluster, modules):
    job.keep_ranks_of_a_node_together(recipe(gpus_per_node=4, flags={"ds.zpg": 4}))
    with pytest.raises(UserError, match=r"ds\.zpg needs 2 nodes with 4 free GPUs each"):
        modules[0].placement_group([{"GPU": 1, "CPU": 1} for _ in range(8)])


def test_one_node_is_left_to_openrlhf(modules):
    before = modules[0].placement_group
    job.keep_ranks_of_a_node_together(recipe(nodes=1))
    assert modules[0].placement_group is before
