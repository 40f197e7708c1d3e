"""Data parallel generation: several vLLM engines, each in a process of its own with its own GPUs.

vLLM's `LLM` cannot do it in one process, and engines of a dense model have nothing to say to each other. Requests are
dealt out in turn; each process streams what it has finished back through a pipe.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from olr_cli.errors import UserError
from olr_cli.evaluation.backends import Request, Sampling
from olr_cli.evaluation.backends.vllm_backend import VllmBackend
from olr_cli.supervision import Rollout

_SPAWN = multiprocessing.get_context("spawn")
_WAITED = 0.5
_DEVICES = "CUDA_VISIBLE_DEVICES"


class ReplicatedVllm(VllmBackend):
    """As many engines as ``data_parallel_size`` says; tokens are counted, and prompts checked, in this process."""

    def __init__(self, model: str, *, settings: Mapping[str, Any], **options: Any) -> None:
        """As `VllmBackend`; the processes start with the first prompts.

        Raises:
            UserError: there are fewer GPUs than the engines need, or as for `VllmBackend`.
        """
        super().__init__(model, settings=settings, **options)
        one = {key: value for key, value in settings.items() if key != "data_parallel_size"}
        self._options = {**options, "settings": one}
        self._count: int = settings["data_parallel_size"]
        self._gpus = one.get("tensor_parallel_size", 1) * one.get("pipeline_parallel_size", 1)
        self._engines: list[tuple[BaseProcess, Connection]] = []
        if self._on_gpu and len(_devices()) < self._count * self._gpus:
            raise UserError(
                f"{self._count} engines of {self._gpus} GPUs each need {self._count * self._gpus} GPUs, and there are"
                f" {len(_devices())}; lower data_parallel_size or tensor_parallel_size"
            )

    def stream(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> Generator[Mapping[int, list[Rollout]], None, None]:
        """See `Backend`."""
        self.encode([request.prompt for request in requests], sampling)  # its errors, before anything starts
        if not self._engines:
            self._engines = [self._process(rank) for rank in range(self._count)]
        left: dict[Any, int] = {}
        for rank, (_, pipe) in enumerate(self._engines):
            pipe.send((requests[rank :: self._count], sampling))
            left[pipe] = rank
        try:
            while left:
                finished: dict[int, list[Rollout]] = {}
                for ready in wait(list(left), timeout=_WAITED):
                    done = _received(ready)
                    if done is None:
                        del left[ready]
                    else:
                        finished |= {left[ready] + self._count * place: done[place] for place in done}
                yield finished
        finally:
            if left:  # there is no use for the rest
                self._stop()

    def _process(self, rank: int) -> tuple[BaseProcess, Connection]:
        here, there = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_serve, args=(there, self.model, self.chat, self._options))
        with _visible(_devices()[rank * self._gpus : (rank + 1) * self._gpus] if self._on_gpu else None):
            process.start()
        there.close()
        return process, here

    def _stop(self) -> None:
        """End the processes."""
        for process, pipe in getattr(self, "_engines", []):
            pipe.close()
            process.terminate()
            process.join()
        self._engines = []


def _received(pipe: Any) -> Mapping[int, list[Rollout]] | None:
    try:
        message = pipe.recv()
    except (EOFError, OSError):
        raise UserError(
            "one of the vLLM processes has ended (out of memory?); the same command goes on with what is missing"
        ) from None
    if isinstance(message, str):
        raise UserError(message)
    finished: Mapping[int, list[Rollout]] | None = message
    return finished


def _serve(pipe: Connection, model: str, chat: Any, options: Mapping[str, Any]) -> None:
    """An engine's process: answers what comes through the pipe until that is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that stores
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        with VllmBackend(model, **options) as backend:
            backend.chat = chat
            while True:
                requests, sampling = pipe.recv()
                for finished in backend.stream(requests, sampling):
                    if finished:
                        pipe.send(finished)
                pipe.send(None)
    except UserError as error:
        pipe.send(str(error))
    except (EOFError, OSError):  # the other end has gone
        return


def _devices() -> list[str]:
    """The GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    visible = os.environ.get(_DEVICES)
    return visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]


@contextmanager
def _visible(devices: Sequence[str] | None) -> Iterator[None]:
    """Processes that start in the block see these GPUs alone."""
    before = os.environ.get(_DEVICES)
    if devices is not None:
        os.environ[_DEVICES] = ",".join(devices)
    try:
        yield
    finally:
        if devices is not None:
            os.environ.pop(_DEVICES)
            if before is not None:
                os.environ[_DEVICES] = before
