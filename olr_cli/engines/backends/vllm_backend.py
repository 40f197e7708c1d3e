"""Generation by vLLM (tried: 0.29 and 0.32), or its CPU build, in this process.

The engine takes and returns token ids. Prompts and responses therefore pass through the same tokenizer, and end at the
same end tokens, as in the transformers backend. The engine starts with the first prompts, once their length is known,
and starts again if longer ones come.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import fields
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import GenerationConfig

from olr_cli.answers import ResponseTexts
from olr_cli.engines.backends.backend import (
    Backend,
    GenerationRequest,
    Sampled,
    whole_requests,
)
from olr_cli.engines.digests import model_digest
from olr_cli.engines.local.loading import end_ids
from olr_cli.engines.models import (
    context_length,
    loading,
    open_model,
    require_finite_files,
    require_safetensors,
)
from olr_cli.engines.prompt_text import (
    AS_THE_MODEL_HAS_IT,
    ChatFormat,
    before_stop,
    stop_ids,
)
from olr_cli.errors import UserError, did_you_mean, first_line, no_path, shown
from olr_cli.files import read_json
from olr_cli.recipe.sampling import Sampling
from olr_cli.supervision import Rollout

if TYPE_CHECKING:
    from olr_cli.engines.backends import BackendOptions

PROMPT_ROOM = 2048
"""Prompt tokens that the engine can hold even if the first prompts are shorter, because another start takes long."""
GPU_MEMORY = 0.9
"""Share of a GPU's memory that the engine may take."""
CPU_CACHE = 2 * 1024**3
"""Bytes for keys and values on a CPU, where vLLM itself would take nearly all memory.

VLLM_CPU_KVCACHE_SPACE, in GiB, overrides it.
"""
WAITING = 256
"""Number of samples that wait in the engine, besides the samples in progress."""
_SEED_BITS = 2**63 - 1
LORA = "lora"
"""The only key that is not a setting of vLLM: the folder of an adapter (PEFT)."""

_SET_BY_OLR = {
    "model",
    "trust_remote_code",
    "seed",
    "chat_template",
    "enable_lora",
    "runner",
    "skip_tokenizer_init",
    "tokenizer",
    "data_parallel_size",
}
"""Settings of vLLM that olr derives from something else."""

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks of adapters for which vLLM can reserve memory."""


class VllmBackend(Backend):
    """Generation by `vllm.LLM`, in this process.

    The setting `dtype` sets the precision. Without it, a CPU computes in float32, and a GPU in bfloat16 (float16 before
    Ampere).

    On a CPU, or if `BackendOptions.seed_each` is true, each sample is drawn from its own seed. Other samples of the
    batch then change it only now and then, through rounding. This is slower, because vLLM draws such samples one after
    the other. On a GPU without `seed_each`, all samples are drawn from the engine's seed, so each depends on all others
    of the same call.
    """

    def __init__(self, model: str, options: BackendOptions, chat: ChatFormat) -> None:
        """Check vLLM's settings, and read the model's tokenizer and configuration.

        The engine starts, and loads the weights, only when the first responses are asked for.
        """
        self.model, self.chat = model, chat
        self._remote = {"trust_remote_code": options.trust_remote_code}
        self._llm: Any = None
        self._room, self._reads_text, self._seed = 0, False, 0
        self._running = ExitStack()
        vllm = _import_vllm()
        self._engine_settings = dict(options.vllm)
        check_settings(self._engine_settings, vllm.EngineArgs)
        self._adapter = self._engine_settings.pop(LORA, None)
        if self._adapter is not None:
            rank = adapter_rank(str(self._adapter))
            self._engine_settings = {
                "enable_lora": True,
                "max_lora_rank": rank,
            } | self._engine_settings
        config, self.tokenizer, self._end_ids, self.notes = read_model(
            model, trust_remote_code=options.trust_remote_code, chat=chat
        )
        self.context = self._engine_settings.get("max_model_len", context_length(config))
        self._texts = ResponseTexts(self.tokenizer)
        self._on_gpu = vllm.platforms.current_platform.is_cuda_alike()
        self._dtype = "float32"
        if self._on_gpu:
            self._dtype = (
                "bfloat16" if torch.cuda.get_device_capability() >= (8, 0) else "float16"
            )
        self._dtype = str(self._engine_settings.get("dtype", self._dtype))
        self._seed_each = options.seed_each or not self._on_gpu
        self.facts = {
            "name": "vllm",
            "model_digest": model_digest(model, config),
            "device": torch.cuda.get_device_name() if self._on_gpu else "cpu",
            "dtype": self._dtype,
            "quantization": self._engine_settings.get("quantization"),
            "adapter_digest": self._adapter and model_digest(str(self._adapter)),
            "vllm_settings": dict(options.vllm),
            "seeds": "of each sample" if self._seed_each else "of the engine",
            "vllm": vllm.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def __exit__(self, *error: object) -> None:
        """Stop the engine and free its memory."""
        self._stop()

    def stream(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[Mapping[int, Sequence[Rollout | None]], None, None]:
        """Generate one response per seed of every request (see `Backend.stream`).

        A mapping is yielded after each step of vLLM's engine; it is often empty.
        """
        return whole_requests(requests, self._samples(requests, sampling))

    def _samples(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[list[Sampled], None, None]:
        """Yield, after each step of vLLM's engine, the samples that the step has finished, often none.

        Each sample is a request of its own to vLLM. Besides the samples in progress, the engine holds up to `WAITING`
        more, so that one can start when another ends. Closing the generator aborts unfinished samples.
        """
        from vllm.lora.request import LoRARequest

        if not requests:
            return
        tokens, limits = self.encode([request.prompt for request in requests], sampling)
        opened = self._texts.opened(tokens)
        # Samples without a seed of their own draw from the engine's seed, so derive that from theirs.
        self._seed = (
            next((seed for request in requests for seed in request.seeds), 0) % 2**31
        )
        self._ensure_engine(max(map(len, tokens)), sampling)
        engine = self._llm.llm_engine
        most = engine.vllm_config.scheduler_config.max_num_seqs + WAITING
        adapter = (
            # vLLM numbers adapters from 1.
            LoRARequest("adapter", 1, str(self._adapter))
            if self._adapter is not None
            else None
        )
        waiting = self._pending(requests, limits, sampling)
        running: dict[str, tuple[int, int]] = {}
        try:
            while True:
                for number, sample, params in islice(waiting, most - len(running)):
                    name = f"{number}-{sample}"
                    prompt = {"prompt_token_ids": tokens[number]}
                    engine.add_request(name, prompt, params, lora_request=adapter)
                    running[name] = number, sample
                if not running:
                    return
                part: list[Sampled] = []
                for output in self._step(engine):
                    if output.finished:
                        number, sample = running.pop(output.request_id)
                        rollout = self._rollout(
                            output.outputs[0], opened[number], sampling.stop
                        )
                        part.append((number, sample, rollout))
                yield part
        finally:
            if running:
                engine.abort_request(list(running))

    def _pending(
        self,
        requests: Sequence[GenerationRequest],
        limits: Sequence[int],
        sampling: Sampling,
    ) -> Iterator[tuple[int, int, Any]]:
        """Yield for every sample the index of its request, its index within the request, and its `SamplingParams`.

        `limits` has, for each request, the most tokens of a response.
        """
        params_of = {limit: self._settings(sampling, limit) for limit in set(limits)}
        # A greedy sample draws nothing, and a seed would only slow it down.
        is_seeded = sampling.temperature and self._seed_each
        for number, request in enumerate(requests):
            for sample, seed in enumerate(request.seeds):
                params = params_of[limits[number]]
                if is_seeded:
                    params = copy(params)
                    params.seed = seed & _SEED_BITS
                yield number, sample, params

    def _step(self, engine: Any) -> Any:
        """Take one step of vLLM's engine and return its outputs; raise UserError if the engine fails."""
        try:
            return engine.step()
        except (RuntimeError, OSError) as error:
            raise UserError(
                f"vLLM stopped ({_reason(error)})",
                "fix that (less memory: max_num_seqs=64), and the same command continues",
            ) from error

    def _settings(self, sampling: Sampling, limit: int) -> Any:
        """Return vLLM's `SamplingParams`, without a seed, for samples of at most `limit` tokens.

        Several samples may share one such object, because vLLM's engine makes a shallow copy for each.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k or 0,
            min_p=sampling.min_p,
            max_tokens=limit,
            stop_token_ids=[*self._end_ids, *stop_ids(self.tokenizer, sampling.stop)],
            stop=list(sampling.stop),
            detokenize=bool(sampling.stop),
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,  # no deep copy for each sample
        )

    def _rollout(self, completion: Any, opened: str, stop: Sequence[str]) -> Rollout:
        """Return the rollout of a completion by vLLM; raise UserError if the engine aborted the response.

        Args:
            completion: vLLM's output for one sample.
            opened: the mark that opens the thinking, such as <think>, if the prompt ends with it; otherwise empty. The
                response begins with this mark.
            stop: the stop texts. The response ends before the first of them.
        """
        if completion.finish_reason in ("abort", "error"):
            # The engine failed here. Scoring the response as wrong would blame the model.
            raise UserError(
                f"vLLM gave up a response (finish reason '{completion.finish_reason}')",
                "the others are stored, and the same command continues",
            )
        # `stop_reason` is a string for a stop text and a token id or None for an end token, which the text leaves out.
        truncated = completion.finish_reason == "length"
        tokens = list(completion.token_ids)
        has_end_token = not truncated and not isinstance(completion.stop_reason, str)
        (text,) = self._texts.decode([tokens[:-1] if has_end_token else tokens])
        return Rollout(opened + before_stop(text, stop), len(tokens), truncated)

    def _ensure_engine(self, longest: int, sampling: Sampling) -> None:
        """Start an engine for prompts of up to `longest` tokens and their responses, unless one runs that can do this.

        A running engine is replaced if it has too little room. It is also replaced if `sampling` has stop texts and the
        engine was started without any, because such an engine does not decode tokens to text.
        """
        wanted, reads_text = longest + sampling.max_new_tokens, bool(sampling.stop)
        # No sequence is longer than the model's context.
        is_roomy = self._room >= min(wanted, self.context or wanted)
        if self._llm is not None and is_roomy and self._reads_text >= reads_text:
            return
        self._stop()
        self._reads_text = reads_text
        roomy = max(longest, PROMPT_ROOM) + sampling.max_new_tokens
        self._room = min(roomy, self.context or roomy)
        with ExitStack() as stack:
            stack.enter_context(_environment())
            # vLLM's CPU worker replaces this function by one that does nothing, so put torch's own back at the end.
            stack.callback(setattr, torch, "set_num_threads", torch.set_num_threads)
            self._llm = self._start()
            stack.callback(self._llm.llm_engine.engine_core.shutdown)
            self._running = stack.pop_all()

    def _start(self) -> Any:
        """Load the model into a new `vllm.LLM` and return it; raise UserError if vLLM cannot run it here."""
        from vllm import LLM

        settings: dict[str, Any] = {
            "runner": "generate",
            # olr decodes the tokens itself. Only stop texts need vLLM's tokenizer.
            "skip_tokenizer_init": not self._reads_text,
            # Never load pickles, which may run code.
            "load_format": "safetensors",
            "dtype": self._dtype,
            "max_model_len": self._room,
            "use_tqdm_on_load": False,
            "seed": self._seed,
        }
        if self._on_gpu:
            settings["gpu_memory_utilization"] = GPU_MEMORY
        else:
            # No compilation: it would take longer than the responses of a model that a CPU can run.
            settings |= {"kv_cache_memory_bytes": CPU_CACHE, "enforce_eager": True}
        try:
            return LLM(self.model, **(settings | self._remote | self._engine_settings))
        except (OSError, ValueError, RuntimeError, TypeError, AssertionError) as error:
            raise UserError(
                f"vLLM cannot run '{self.model}' here ({_reason(error)})",
                "fix that, or use the transformers backend",
            ) from error

    def _stop(self) -> None:
        """End the engine, if one runs, and free its memory."""
        self._llm = None
        self._running.close()
        gc.collect()  # needed: engine and model form a reference cycle
        if self._on_gpu:
            torch.cuda.empty_cache()


def _import_vllm() -> Any:
    """Import vLLM and return the module; raise UserError if the import fails.

    It is imported within `_environment`, because vLLM reads its logging level at import.
    """
    with _environment():
        try:
            import vllm
            import vllm.platforms
            from vllm import LLM, EngineArgs, SamplingParams  # noqa: F401
        except ImportError as error:
            raise UserError(
                f"vLLM is installed but cannot be imported ({first_line(error)})",
                "install it again, or use the transformers backend",
            ) from error
    return vllm


@contextmanager
def _environment() -> Iterator[None]:
    """Run the block with the environment variables that olr sets for vLLM, and restore the environment after it.

    One variable keeps the engine in this process. Two others limit the log to errors and turn usage statistics off,
    unless the user has set them. Variables that vLLM itself sets within the block are removed after it.
    """
    before = dict(os.environ)
    # Run the engine in this process. It then schedules in a repeatable order, and its errors are exceptions. In another
    # process, a Ctrl-C that waits for the current samples would kill it.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


def read_model(
    model: str, *, trust_remote_code: bool, chat: ChatFormat = AS_THE_MODEL_HAS_IT
) -> tuple[Any, Any, list[int], Sequence[str]]:
    """Read everything of a model but its weights, and check that the weights can be loaded.

    Returns:
        The configuration, the tokenizer, the ids of the tokens that end a response, and notes. A note is a sentence
        about weights that the files hold but the model lacks.

    Raises:
        UserError: the weights, the configuration or the tokenizer cannot be used.
    """
    config, tokenizer, notes = open_model(model, trust_remote_code=trust_remote_code)
    with loading(model):
        try:
            generation = GenerationConfig.from_pretrained(model)
        except OSError:
            generation = GenerationConfig.from_model_config(config)
    chat.put_into(tokenizer)
    return (
        config,
        tokenizer,
        end_ids(SimpleNamespace(generation_config=generation), tokenizer),
        notes,
    )


def _reason(error: BaseException) -> str:
    """Return the line of an exception's message that says what went wrong.

    It is the first line, except in pydantic's errors, whose first line only counts the problems.
    """
    lines = str(error).strip().splitlines()
    return (
        lines[1] if len(lines) > 1 and "validation error" in lines[0] else first_line(error)
    ).strip()


def check_settings(settings: Mapping[str, Any], engine_args: type) -> None:
    """Raise UserError unless the user may set each of these settings of vLLM's engine.

    A user may set the fields of `engine_args`, which is vLLM's class `EngineArgs`, except those that olr sets itself.
    olr's own setting ``lora`` is allowed too. `tensor_parallel_size` and `max_model_len` must be at least 1.
    """
    names = {field.name for field in fields(engine_args)} - _SET_BY_OLR | {LORA}
    for key in settings:
        if key in _SET_BY_OLR:
            raise UserError(
                "olr sets it itself",
                "leave it out (more GPUs for one model: tensor_parallel_size, or a server with a"
                " URL)",
                f"vllm {key}",
            )
        if key not in names:
            raise UserError(
                f"vLLM's engine has no setting '{key}'{did_you_mean(key, names)}",
                "its engine arguments are on"
                " https://docs.vllm.ai, and lora=DIR adds an adapter",
            )
    for key in ("tensor_parallel_size", "max_model_len"):
        value = settings.get(key, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(
                f"{shown(value)} is no number from 1 on", "give one", f"vllm {key}"
            )


def adapter_rank(folder: str) -> int:
    """Return the rank that vLLM has to reserve for the LoRA adapter in a folder.

    vLLM can reserve memory only for certain ranks (`_RANKS`). The result is the smallest of them that is not below the
    adapter's rank.

    Raises:
        UserError: the folder holds no adapter, its weights are not usable, or its rank is larger than vLLM takes.
    """
    file = Path(folder) / "adapter_config.json"
    if not Path(folder).is_dir():
        raise no_path(folder, "give the folder of a LoRA adapter (PEFT)")
    require_safetensors(folder)
    require_finite_files(folder)
    try:
        rank = int(read_json(file)["r"])
    except (UserError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{folder} is no LoRA adapter (its adapter_config.json has no rank r)",
            "name a folder that PEFT has saved",
            "vllm lora",
        ) from None
    large_enough = [most for most in _RANKS if most >= rank]
    if not large_enough:
        raise UserError(
            f"the adapter {folder} has rank {rank}, and vLLM takes at most {_RANKS[-1]}",
            "merge it into its model and name that",
            "vllm lora",
        )
    return large_enough[0]
