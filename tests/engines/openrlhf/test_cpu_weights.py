"""New weights reach vLLM on a CPU over TCP, and all of it computes with them."""

import sys
from types import SimpleNamespace

import torch

from olr_cli.engines.openrlhf.cpu_weights import CpuWeights, TcpGroup


def runner(loaded, *, tied=False, model=None):
    """The part of vLLM's model runner that takes weights; they are appended to `loaded`."""
    return SimpleNamespace(
        reload_weights=lambda weights_iterator: loaded.append(list(weights_iterator)),
        model_config=SimpleNamespace(
            dtype=torch.float32, hf_text_config=SimpleNamespace(tie_word_embeddings=tied)
        ),
        get_model=lambda: model,
    )


def test_weights_are_put_to_use_all_at_once_when_the_last_has_come():
    sent = [torch.ones(2, 3), torch.arange(4.0)]
    loaded = []
    worker = CpuWeights()
    worker.model_runner = runner(loaded)
    worker._received = []
    for name, last in (("one", False), ("two", True)) * 2:
        weight = sent[last]
        worker._group = TcpGroup(
            SimpleNamespace(broadcast=lambda _tensor, _src, weight=weight: weight)
        )
        worker.update_weight(name, weight.dtype, weight.shape, empty_cache=last)
    assert [[name for name, _ in weights] for weights in loaded] == [["one", "two"]] * 2
    for weights in loaded:
        assert all(
            torch.equal(got, due) for (_, got), due in zip(weights, sent, strict=True)
        )


def test_a_head_that_is_the_embedding_is_tied_and_repacked_after_every_reload(monkeypatch):
    class Embedding(torch.nn.Module):
        def __init__(self, weight):
            super().__init__()
            self.weight = torch.nn.Parameter(weight)

    class Head(Embedding):
        quant_method = SimpleNamespace(
            process_weights_after_loading=lambda head: setattr(
                head, "packed", head.weight.tolist()
            )
        )

        def tie_weights(self, embedding):
            self.weight = embedding.weight

    layers = "vllm.model_executor.layers.vocab_parallel_embedding"
    stand_in = SimpleNamespace(ParallelLMHead=Head, VocabParallelEmbedding=Embedding)
    monkeypatch.setitem(sys.modules, layers, stand_in)
    for parent in ("vllm", "vllm.model_executor", "vllm.model_executor.layers"):
        monkeypatch.setitem(sys.modules, parent, SimpleNamespace(__path__=[]))
    model = torch.nn.ModuleDict(
        {"embedding": Embedding(torch.ones(2)), "head": Head(torch.zeros(2))}
    )
    worker = CpuWeights()
    worker.model_runner, worker._received = runner([], tied=True, model=model), []
    worker._group = SimpleNamespace(broadcast=lambda *_: None)
    worker.update_weight("embedding", torch.float32, (2,), empty_cache=True)
    assert model["head"].weight is model["embedding"].weight
    assert model["head"].packed == [1.0, 1.0]


def test_a_weight_is_sent_without_the_buffer_that_it_is_a_view_of():
    sent = []
    group = TcpGroup(
        SimpleNamespace(broadcast=lambda tensor, _src: sent.append(tensor) or tensor)
    )
    weight = torch.arange(1000.0)[:3]
    group.broadcast(weight, 0, stream=None)
    assert sent[0].tolist() == weight.tolist() == [0, 1, 2]
    assert sent[0].untyped_storage().nbytes() == 3 * 4
