"""The starting policy of a run on OpenRLHF, without its weights: checked and rendered before Ray starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from olr_cli.data.prompts import PromptSet, View
from olr_cli.engines import prompt_text
from olr_cli.engines.digests import WEIGHTS, model_digest
from olr_cli.engines.models import context_length, open_model
from olr_cli.errors import UserError
from olr_cli.recipe.schema import Recipe


@dataclass(frozen=True)
class StartingModel:
    """The model from which a run starts: its path, tokenizer, context length and digest, but not its weights."""

    path: str
    tokenizer: Any
    """None in a dry run if the model is not on this machine."""

    context_length: int | None
    """Largest number of tokens for which it is made, or None if it is unknown."""

    digest: str
    """Digest of the weights: sha256 of the files in a folder, or the commit of a hub id."""

    notes: Sequence[str] = ()
    """Sentences about weights that the files hold but the model lacks."""

    caps_attention: bool = False
    """Whether it caps the scores of attention, which torch's sdpa would not do."""

    @classmethod
    def look_at(cls, path: str, *, trust_remote_code: bool) -> StartingModel:
        """Read a model's configuration and tokenizer, from a folder or by its id on the Hugging Face hub.

        Raises:
            UserError: the model cannot be loaded, has code that is not trusted, or reads images.
        """
        config, tokenizer, notes = open_model(
            path, trust_remote_code=trust_remote_code, runs_code=True
        )
        if hasattr(config, "vision_config"):
            raise UserError(
                f"{path} reads images too (its configuration has a vision_config), and the engine openrlhf trains"
                " models of text alone",
                "give the text model that it is made of",
            )
        digest = _policy_digest(path, config)
        place = str(Path(path).absolute()) if Path(path).is_dir() else path
        caps = getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None
        return cls(place, tokenizer, context_length(config), digest, notes, caps)

    def texts(
        self,
        prompts: PromptSet,
        recipe: Recipe,
        view: View = "original",
        day: date | None = None,
    ) -> list[str]:
        """Render each prompt as a text that OpenRLHF encodes to the same tokens that the local engine uses.

        OpenRLHF adds no special tokens, so the text contains them.

        Args:
            prompts: the prompts.
            recipe: sets the limits on tokens.
            view: the wording in which each prompt is rendered.
            day: the date that chat templates show; None means today.

        Raises:
            UserError: a prompt is too long for the recipe or the model, or no text is encoded to the prompt's tokens.
        """
        messages = [prompt.turns(view) for prompt in prompts.prompts]
        texts = prompt_text.render_all(
            self.tokenizer, messages, prompt_text.ChatFormat(day=day)
        )
        token_ids = prompt_text.tokenize(self.tokenizer, texts)
        prompt_text.require_room(prompts, token_ids, recipe, self.context_length, view)
        return [
            self._text_of(text, tokens, prompt.prompt_id)
            for text, tokens, prompt in zip(texts, token_ids, prompts.prompts, strict=True)
        ]

    def _text_of(self, text: str, tokens: list[int], prompt_id: str) -> str:
        """Return the text that OpenRLHF, which adds no special tokens, encodes to `tokens`.

        This is the rendered prompt `text`, or the tokenizer's start token followed by `text`.

        Raises:
            UserError: neither text is encoded to `tokens`; the message names `prompt_id`.
        """
        # Without a chat template, many tokenizers add a start token. OpenRLHF does not, so the text must contain it.
        for candidate in (text, f"{self.tokenizer.bos_token or ''}{text}"):
            if (
                self.tokenizer(candidate, add_special_tokens=False, verbose=False)[
                    "input_ids"
                ]
                == tokens
            ):
                return candidate
        raise UserError(
            f"{self.path} puts special tokens into prompt {prompt_id} that cannot be written as text, and OpenRLHF"
            " reads text",
            "give the model a chat template that writes them",
        )


def _policy_digest(path: str, config: Any) -> str:
    """Return the digest of a model's weights, as manifests record it.

    For a folder it is the sha256 of the weights, in hex. For a model of the hub it is ``commit <hash>``, with the hub's
    commit.

    Raises:
        UserError: the folder has no weights in the format safetensors.
    """
    folder = Path(path)
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{folder} has no safetensors weights", "convert them, or give another model"
        )
    digest = model_digest(path, config, WEIGHTS)
    return digest.removeprefix("sha256:").replace("commit:", "commit ")
