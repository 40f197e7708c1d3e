"""New weights for vLLM in a rehearsal without a GPU: both ends of OpenRLHF's transfer, over TCP (bridges.py)."""

from __future__ import annotations

from typing import Any

WORKER_EXTENSION = f"{__name__}.CpuWeights"


def join_group(
    master_address: str, master_port: int, rank: int, world_size: int, device: object = None
) -> TcpGroup:
    """Join the process group through which the trainer sends new weights to vLLM's workers; return the group.

    The call blocks until all `world_size` processes have joined. It replaces OpenRLHF's `stateless_init_process_group`
    and takes the same arguments: the address and port of rank 0, the rank of this process, and the number of processes.
    `device` is ignored.
    """
    from vllm.distributed.utils import StatelessProcessGroup

    # 0 seconds: the trainer waits for all engines after each weight, so a weight is not needed once the next is sent.
    group = StatelessProcessGroup.create(
        host=master_address,
        port=master_port,
        rank=rank,
        world_size=world_size,
        data_expiration_seconds=0,
    )
    return TcpGroup(group)


class TcpGroup:
    """Send new weights from the trainer to vLLM over TCP; `join_group` makes this object.

    It replaces NCCL's communicator, which needs GPUs. The trainer calls only the method `broadcast`.
    """

    def __init__(self, group: Any) -> None:
        self._group = group

    def broadcast(self, tensor: Any, src: int, stream: object = None) -> None:
        """Copy `tensor` of the process with rank `src` into `tensor` of all other processes, in place.

        Every process of the group must call it. The sender sends a copy, because DeepSpeed's weights are views of one
        buffer, and pickling a view would include the whole buffer. `stream` is ignored.
        """
        sent = tensor.detach().clone()
        received = self._group.broadcast(sent, src)
        # The sender gets its own tensor back.
        if received is not sent:
            tensor.copy_(received)


class CpuWeights:
    """Receive new weights in a vLLM worker on a CPU, in place of OpenRLHF's worker extension.

    vLLM adds this class to the bases of its own worker class.
    """

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
        """Join the group of the trainer and all vLLM workers, with the rank `rank_offset` + this worker's own rank.

        OpenRLHF passes the parameters by position. `group_name`, `backend` and `use_ray` are ignored.
        """
        import torch.distributed

        rank = torch.distributed.get_rank() + rank_offset
        self._group = join_group(master_address, master_port, rank, world_size)
        self._received: list[tuple[str, Any]] = []

    def update_weight(
        self, name: str, dtype: Any, shape: Any, empty_cache: bool = False
    ) -> None:
        """Receive the weight `name` from the trainer, and keep it until the last weight has come.

        If `empty_cache` is true, this is the last weight, and the model now loads all weights together.
        """
        import torch

        weight = torch.empty(shape, dtype=dtype)
        self._group.broadcast(weight, 0)
        self._received.append((name, weight))
        # vLLM's CPU backend repacks weights while it loads them, so a single one cannot be replaced.
        if empty_cache:
            self.model_runner.reload_weights(weights_iterator=iter(self._received))
            self._received = []
            self._tie_head()

    def _tie_head(self) -> None:
        """Give the LM head the embedding's new weights if the model ties the head to the embedding; else do nothing.

        A tied head uses the same weights as the embedding. vLLM 0.29.0 computes the head with a repacked copy of these
        weights, and loading new weights does not update the copy.
        """
        if not self.model_runner.model_config.hf_text_config.tie_word_embeddings:
            return
        from vllm.model_executor.layers.vocab_parallel_embedding import (
            ParallelLMHead,
            VocabParallelEmbedding,
        )

        modules = list(self.model_runner.get_model().modules())
        embedding = next(
            module for module in modules if type(module) is VocabParallelEmbedding
        )
        for head in (module for module in modules if isinstance(module, ParallelLMHead)):
            head.tie_weights(embedding)
            head.quant_method.process_weights_after_loading(head)
