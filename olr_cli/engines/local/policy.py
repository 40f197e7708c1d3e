"""The policy: a causal language model and its tokenizer.

Both the sampler and the update need the policy's scores after G responses to each of P prompts. Neither reads a prompt
more than once; the G rollouts of a group continue from a shared context:

    context = policy.read(prompts)                # P rows, the prompts' keys and values
    context.repeat(G)                             # P * G rows
    logits = policy.extend(context, tokens)       # (P * G, T, V), one token at a time or the whole response

Gradients flow through all three, the shared prompt included. Prompts of unequal length are padded on the left. Existing
responses can also be read as a tree (`read_tree`), which computes their common beginnings once.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils.logging import disable_progress_bar

from olr_cli.answers import ResponseTexts
from olr_cli.data.chat import Message
from olr_cli.engines import prompt_text
from olr_cli.engines.local.attention import PreallocatedLayer, set_up_attention
from olr_cli.engines.local.loading import device_of, end_ids, load_model
from olr_cli.engines.local.prefix_tree import PrefixTree
from olr_cli.engines.local.probe import counts_tokens, gives_scores_of, has_plain_head
from olr_cli.engines.models import context_length, open_model, processor_files
from olr_cli.engines.prompt_text import AS_THE_MODEL_HAS_IT, ChatFormat
from olr_cli.errors import UserError
from olr_cli.recipe.sections import Device

# transformers' progress bars for reading and writing weights would break up a run's own display.
disable_progress_bar()  # type: ignore[no-untyped-call]


@dataclass
class Context:
    """Token sequences that the policy has read, one per row, with the logits of each row's next token.

    `Policy.read` makes it, and `Policy.extend` appends tokens to it in place. There are B rows of S positions, and V
    tokens in the vocabulary.
    """

    cache: Any
    """Keys and values of the tokens read, a `DynamicCache` of transformers."""

    logits_BV: Tensor
    """Scores of the next token."""

    mask_BS: Tensor | None
    """False at padding; None if nothing is padded."""

    lengths_B: Tensor
    """Number of tokens read, without padding; also the position of the next token."""

    def repeat(self, times: int, room: int = 0, dtype: torch.dtype = torch.float32) -> None:
        """Copy every sequence into `times` neighbouring rows, so that each can be continued differently.

        Args:
            times: number of rows per sequence.
            room: the most tokens that will be appended. Memory is reserved for them, so that appending one seldom
                copies earlier ones. Use 0, which reserves none, if the number is unknown or an appended token needs a
                gradient.
            dtype: type in which keys and values are kept if `room` is not 0. It should be the type of the matrix
                products that read them.
        """
        self.cache.batch_repeat_interleave(times)
        for index, layer in enumerate(self.cache.layers if room else ()):
            if type(layer) is DynamicLayer:
                self.cache.layers[index] = PreallocatedLayer(layer, room, dtype)
        self.logits_BV = self.logits_BV.repeat_interleave(times, dim=0)
        self.lengths_B = self.lengths_B.repeat_interleave(times)
        if self.mask_BS is not None:
            self.mask_BS = self.mask_BS.repeat_interleave(times, dim=0)

    def select(self, rows: Tensor) -> None:
        """Keep only the rows with these indices, in this order; an index may occur more than once."""
        self.cache.batch_select_indices(rows)
        self.logits_BV = self.logits_BV[rows]
        self.lengths_B = self.lengths_B[rows]
        if self.mask_BS is not None:
            self.mask_BS = self.mask_BS[rows]


class Policy:
    """A causal language model, its tokenizer, its device and its precision.

    Weights are float32, so an update as small as learning rate 1e-6 is not rounded away. With `dtype` bfloat16 only the
    matrix products are rounded, under autocast. A frozen copy may hold rounded weights, because it is never updated.

    Attributes:
        end_ids: tokens that end a response.
        takes_any_mask: whether the model computes correctly under any attention mask, even one that hides positions
            between two visible tokens.
        reads_trees: whether the update should use `read_tree`, because it gives correct logits and saves time.
        has_fixed_places: whether sampling can keep all tensors in place, and so replay a CUDA graph for each token
            (captured.py).
        has_plain_head: whether logits are a linear layer of the hidden states and nothing more.
        notes: sentences about weights that the files hold but the model lacks.
        recomputes: whether the update uses gradient checkpointing (`recompute`).
        chat: how prompts become text.
        cache_name: the keyword argument by which the model takes its cache.
        processor: contents, by name, of the files that say how images become tokens; empty for a text model.
        pad_id: fills unused positions of a batch; no logit depends on it.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.device = device
        self.dtype = dtype
        # Dropout stays off in the update too, so that the probabilities which train are those that were sampled.
        self.model = model.to(device=device, dtype=torch.float32).eval()
        has_our_attention = set_up_attention(self.model)
        self.tokenizer = tokenizer
        self.texts = ResponseTexts(tokenizer)
        self.end_ids = end_ids(model, tokenizer)
        self.pad_id: int = (
            self.end_ids[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        )
        parameters = inspect.signature(model.forward).parameters
        # transformers renames `past_key_values` to `cache` and will drop the old name, so accept both.
        self.cache_name = "past_key_values" if "past_key_values" in parameters else "cache"
        self.chat, self.processor = AS_THE_MODEL_HAS_IT, dict[str, bytes]()
        self._counts_tokens = counts_tokens(self)
        self.takes_any_mask = has_our_attention and self._counts_tokens
        # On a GPU one pass over whole rows costs less than one over a tree.
        is_costly = sum(map(torch.Tensor.numel, model.parameters())) >= _COSTLY
        self.reads_trees = is_costly and self.takes_any_mask and device.type != "cuda"
        self.has_fixed_places = self.takes_any_mask and device.type == "cuda"
        self.has_plain_head = has_plain_head(self)
        self.recomputes = False
        self.notes: Sequence[str] = ()

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: Device = "auto",
        dtype: torch.dtype | None = None,
        trust_remote_code: bool = False,
        chat: ChatFormat = AS_THE_MODEL_HAS_IT,
    ) -> Policy:
        """Load the policy from a folder in Hugging Face layout, or from a hub id; weights must be safetensors.

        Device ``auto`` uses the GPU if there is one. `dtype` is the type of matrix products; None means bfloat16 on a
        GPU that supports it, and otherwise float32. `chat` says how prompts become text.

        Raises:
            UserError: the model cannot be loaded, or the local engine cannot run it.
        """
        _, tokenizer, _ = open_model(
            path, trust_remote_code=trust_remote_code, checks_weights=True
        )
        chat.put_into(tokenizer)
        chosen_device = device_of(device)
        if dtype is None:
            has_bfloat16 = chosen_device.type == "cuda" and torch.cuda.is_bf16_supported()
            dtype = torch.bfloat16 if has_bfloat16 else torch.float32
        model, notes = load_model(path, trust_remote_code=trust_remote_code)
        policy = cls(model, tokenizer, chosen_device, dtype)
        policy.chat, policy.notes = chat, notes
        policy.processor = processor_files(path, model.config)
        return policy

    def ending_at(self, stop: Sequence[str]) -> Policy:
        """Return a copy with the same model, whose responses also end at each stop text that is a special token.

        Other stop texts are ignored here.
        """
        ending = copy.copy(self)
        ending.end_ids = sorted(
            {*self.end_ids, *prompt_text.stop_ids(self.tokenizer, stop)}
        )
        return ending

    def frozen_copy(self) -> Policy:
        """Return a copy of the policy that never changes, for the reference of the KL term."""
        frozen = copy.copy(self)
        frozen.model = copy.deepcopy(self.model).requires_grad_(False)
        if self.dtype != torch.float32:
            frozen._round_weights()
            # A model may use a layer's weights without calling the layer, and rounding would change its scores.
            if not gives_scores_of(frozen, self):
                frozen.model = copy.deepcopy(self.model).requires_grad_(False)
        return frozen

    def _round_weights(self) -> None:
        """Round the weights of linear layers to `dtype` for good, so that autocast need not round them in every pass.

        Other weights, such as embeddings, stay float32, because autocast does not round them.
        """
        embeddings = self.model.get_input_embeddings().weight
        for layer in self.model.modules():
            if type(layer) is torch.nn.Linear and layer.weight is not embeddings:
                layer.to(self.dtype)

    def save(self, folder: str | Path) -> None:
        """Write weights (float32, safetensors), tokenizer and generation config in Hugging Face layout.

        The end tokens go into the generation config. A multimodal model's processor files are written too.
        """
        ends = self.end_ids
        self.model.generation_config.eos_token_id = ends[0] if len(ends) == 1 else ends
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        for name, content in self.processor.items():
            Path(folder, name).write_bytes(content)
        # safetensors lets only the owner read its files; make them as readable as the rest of the run.
        for weights in Path(folder).rglob("*.safetensors"):
            weights.chmod(0o644)

    @property
    def context_length(self) -> int | None:
        """The most tokens, prompt and response together, that the model is made for; None if that is unknown.

        With the position encoding "longrope", it is the shorter, original length. A longer row would change the
        encoding of every position in its batch, even in short prompts.
        """
        config = self.model.config
        rope = getattr(config.get_text_config(), "rope_parameters", None) or {}
        if rope.get("rope_type") == "longrope":
            return int(rope["original_max_position_embeddings"])
        return context_length(config)

    @cached_property
    def bytes_per_token(self) -> int:
        """The number of bytes that the keys and values of one token take during sampling."""
        with torch.inference_mode(), self.precision():
            layers = self.read([[self.pad_id]]).cache.layers
        numbers: int = sum(layer.keys.numel() + layer.values.numel() for layer in layers)
        return numbers * self.dtype.itemsize

    @property
    def name(self) -> str:
        """The folder or hub id that the model was loaded from, for errors."""
        return str(getattr(self.model.config, "_name_or_path", "") or "the policy")

    def render(self, messages: Sequence[Message]) -> str:
        """Return the prompt as text, exactly as the policy will read it."""
        return prompt_text.render(self.tokenizer, messages, self.chat)

    def encode(self, prompts: Sequence[Sequence[Message]]) -> list[list[int]]:
        """Return the token ids of every prompt, given as chat messages, exactly as the policy reads it."""
        texts = prompt_text.render_all(self.tokenizer, prompts, self.chat)
        return prompt_text.tokenize(self.tokenizer, texts, self.chat)

    def decode(self, responses: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each response, given as token ids, without special tokens other than marks of thinking."""
        return self.texts.decode(responses)

    def precision(self) -> AbstractContextManager[Any]:
        """Return the context in which the model must compute: autocast to `dtype`, which does nothing for float32.

        Enter it once for a whole generation, so that each weight is cast only once.
        """
        return torch.autocast(
            self.device.type, self.dtype, enabled=self.dtype != torch.float32
        )

    @contextmanager
    def without_gradients(self) -> Iterator[None]:
        """Turn gradients off, and autocast on, within the block; enter it once for a whole generation.

        In float32 autocast does nothing. In other types, frozen weights, such as those below a LoRA adapter, are marked
        within the block as if they required a gradient. Otherwise autocast would cast them again at each use.
        """
        # A little faster than `no_grad`. Not for other types: under it autocast would cast a weight again at each use.
        if self.dtype == torch.float32:
            with torch.inference_mode():
                yield
            return
        frozen = [it for it in self.model.parameters() if not it.requires_grad]
        for weight in frozen:
            weight.requires_grad_(True)
        try:
            with torch.no_grad(), self.precision():
                yield
        finally:
            for weight in frozen:
                weight.requires_grad_(False)

    @contextmanager
    def without_head(self) -> Iterator[None]:
        """Make the model return hidden states, the input of its output layer, in place of logits within the block."""
        head = self.model.get_output_embeddings()
        head.forward = lambda hidden: hidden
        try:
            yield
        finally:
            del head.forward

    def recompute(self) -> None:
        """Turn on gradient checkpointing, which saves memory: the backward pass recomputes the activations of layers.

        Raises:
            UserError: transformers supports no gradient checkpointing for this architecture.
        """
        if not self._layers:
            raise UserError(
                f"engine.gradient_checkpointing: transformers has none for {self.name}"
                f" ({self.model.config.model_type})",
                "leave it out",
            )
        self.recomputes = True

    @property
    def _layers(self) -> list[Any]:
        """The layers that transformers marks for gradient checkpointing; empty if it marks none."""
        return [
            module
            for module in self.model.modules()
            if isinstance(module, GradientCheckpointingLayer)
        ]

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Use gradient checkpointing for the passes in the block, if `recompute` was called and gradients are on.

        A pass then keeps only the values between layers until its backward pass. The pass must not use a cache.
        """
        # Not transformers' own switch: that needs training mode, which brings dropout, and was renamed in 5.24.
        layers = self._layers if self.recomputes and torch.is_grad_enabled() else []
        for layer in layers:
            layer.forward = partial(
                checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False
            )
        try:
            yield
        finally:
            for layer in layers:
                del layer.forward

    def read(self, prompts: Sequence[Sequence[int]]) -> Context:
        """Read prompts, given as token ids, and return the context from which their responses continue.

        The tokens with which all prompts begin are read only once, unless that would change the logits, as in models
        with a sliding window (`counts_tokens`).
        """
        return self.read_together(
            prompts, shared_prefix(prompts) if self._counts_tokens else 0
        )

    def read_together(
        self, prompts: Sequence[Sequence[int]], shared: int, empty: int = 0
    ) -> Context:
        """Read prompts that begin with the same tokens, and return the context from which their responses continue.

        The first `shared` tokens of the prompts are equal, and are read only once. After them the context has `empty`
        unused positions, which no token attends to. Only the probe `counts_tokens` asks for unused positions, to test
        the model.
        """
        # A row of the cache: shared tokens | empty positions | padding | the rest of a prompt.
        cache: Any = DynamicCache(config=self.model.config)
        if shared:
            self._forward(
                torch.tensor([prompts[0][:shared]], device=self.device),
                cache,
                logits_to_keep=1,
            )
            for layer in cache.layers if empty else ():
                states = layer.keys, layer.values
                layer.keys, layer.values = (
                    torch.nn.functional.pad(old, (0, 0, 0, empty)) for old in states
                )
            cache.batch_repeat_interleave(len(prompts))
        rests = [prompt[shared:] for prompt in prompts]
        width = max(map(len, rests))
        padded = [[self.pad_id] * (width - len(rest)) + list(rest) for rest in rests]
        tokens_PS = torch.tensor(padded, device=self.device)
        lengths_P = torch.tensor([len(p) for p in rests], device=self.device)
        positions_PS = (
            torch.arange(width, device=self.device) - (width - lengths_P)[:, None]
        )
        mask_PS = None
        if empty or width > min(map(len, rests)):
            mask_PS = torch.nn.functional.pad(positions_PS >= 0, (empty, 0))
            mask_PS = torch.nn.functional.pad(mask_PS, (shared, 0), value=True)
        places_PS = shared + positions_PS.clamp(min=0)
        logits_P1V = self._forward(tokens_PS, cache, mask_PS, places_PS, logits_to_keep=1)
        return Context(cache, logits_P1V[:, -1], mask_PS, shared + lengths_P)

    def read_whole(self, prompts: Sequence[Sequence[int]], tokens_PGT: Tensor) -> Tensor:
        """Return the logits from which each response token is drawn, by one pass without a cache.

        A row of the pass holds a prompt and one of its G responses, with padding after them, so a causal mask is
        enough.

        Args:
            prompts: token ids of P prompts.
            tokens_PGT: response tokens, with padding after the end.

        Returns:
            Logits of the V tokens of the vocabulary, (P * G, T, V).
        """
        P, G, T = tokens_PGT.shape
        lengths_P = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        width = max(map(len, prompts)) + T - 1
        padded = [
            list(prompt) + [self.pad_id] * (width - len(prompt)) for prompt in prompts
        ]
        tokens_BN = torch.tensor(padded, device=self.device).repeat_interleave(G, dim=0)
        positions_BT = lengths_P.repeat_interleave(G)[:, None] + torch.arange(
            T, device=self.device
        )
        tokens_BN.scatter_(1, positions_BT[:, :-1], tokens_PGT.flatten(0, 1)[:, :-1])
        logits_BNV: Tensor = self.model(input_ids=tokens_BN, use_cache=False).logits
        return logits_BNV[
            torch.arange(P * G, device=self.device)[:, None], positions_BT - 1
        ]

    def extend(self, context: Context, tokens_BT: Tensor) -> Tensor:
        """Append T tokens to each of the B rows of `context`, in place, and return the logits after each, (B, T, V)."""
        added = tokens_BT.shape[1]
        if context.mask_BS is not None:
            context.mask_BS = torch.nn.functional.pad(
                context.mask_BS, (0, added), value=True
            )
        positions_BT = context.lengths_B[:, None] + torch.arange(added, device=self.device)
        logits_BTV = self._forward(tokens_BT, context.cache, context.mask_BS, positions_BT)
        context.lengths_B = context.lengths_B + added
        context.logits_BV = logits_BTV[:, -1]
        return logits_BTV

    def reads_whole(self, prompts: Sequence[Sequence[int]], response: int) -> bool:
        """Return whether the update should use `read_whole`, which reads each prompt again with each of its responses.

        It should with gradient checkpointing, because all other passes need a cache. It also should on a GPU if no
        prompt has more than `response` tokens, the length of the longest response. Fast kernels for causal passes then
        save more than reading the prompts again costs.
        """
        return self.recomputes or (
            self.device.type == "cuda" and max(map(len, prompts)) <= response
        )

    def read_tree(self, tree: PrefixTree, nodes: Sequence[int]) -> Tensor:
        """Read a whole tree in one pass, and return the logits after each node numbered in `nodes`, (nodes, V)."""
        logits_1NV: Tensor = self.model(
            input_ids=torch.tensor([tree.tokens], device=self.device),
            attention_mask=torch.from_numpy(tree.is_visible_NN())[None, None].to(
                self.device
            ),
            position_ids=torch.tensor([tree.depths], device=self.device),
            use_cache=False,
            logits_to_keep=torch.tensor(nodes, device=self.device),
        ).logits
        return logits_1NV[0]

    def _forward(
        self,
        tokens_BT: Tensor,
        cache: Any,
        mask_BS: Tensor | None = None,
        positions_BT: Tensor | None = None,
        logits_to_keep: int = 0,
    ) -> Tensor:
        """Let the model read tokens after those in `cache`, append them to `cache`, and return logits.

        Args:
            tokens_BT: the tokens to read.
            cache: keys and values of the tokens read before, as transformers stores them.
            mask_BS: False at cached or new positions that no token may attend to; None to hide no position.
            positions_BT: the position of each new token in its sequence; None to count on after the cache.
            logits_to_keep: number of last positions in each row whose logits are returned; 0 for all positions.
        """
        logits_BTV: Tensor = self.model(
            input_ids=tokens_BT,
            attention_mask=mask_BS,
            position_ids=positions_BT,
            use_cache=True,
            logits_to_keep=logits_to_keep,
            **{self.cache_name: cache},
        ).logits
        return logits_BTV


_COSTLY = 2_000_000
"""Smallest number of weights at which a tree of responses saves more than it costs to build."""

_LEAST_SHARED = 16
"""Shortest beginning that is worth a pass of its own: its keys and values are copied for every prompt."""


def shared_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """Return the number of tokens with which all prompts begin, such as those of a system message or of examples.

    Return 0 if there is only one prompt, or if so few tokens are shared that reading them once would gain nothing. The
    last token of a prompt never counts as shared, because the logits after it are needed.
    """
    if len(prompts) < 2:
        return 0
    # A beginning that the first and the last prompt in lexical order share is shared by all in between.
    first, last = min(map(list, prompts)), max(map(list, prompts))
    # Leave at least one token to each prompt: the logits after it are needed.
    most = min(map(len, prompts)) - 1
    shared = next((index for index in range(most) if first[index] != last[index]), most)
    return shared if shared >= _LEAST_SHARED else 0
