"""The starting policy before OpenRLHF loads it: configuration, tokenizer, digest and code, without the weights."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from olr_cli.data.prompts import Prompt, View
from olr_cli.engines import prompt_text
from olr_cli.engines.models import open_model
from olr_cli.errors import UserError
from olr_cli.recipe.schema import Recipe


@dataclass(frozen=True)
class StartingModel:
    """The starting policy, but for its weights.

    Attributes:
        tokenizer: None in a dry run where the model is not here.
        context_length: the most tokens it is made for; None if it doesn't say.
        digest: of the weights: sha256 of the files in a folder, the commit of a hub id.
    """

    path: str
    tokenizer: Any
    context_length: int | None
    digest: str

    @classmethod
    def look_at(cls, path: str, *, trust_remote_code: bool) -> StartingModel:
        """Read configuration and tokenizer; errors as of `open_model`, and for a model that reads images too."""
        what = "a model's configuration and tokenizer"
        config, tokenizer = open_model(path, trust_remote_code=trust_remote_code, what=what, runs_code=True)
        if hasattr(config, "vision_config"):
            raise UserError(
                f"{path} reads images too (its configuration has a vision_config), and the engine openrlhf trains"
                " models of text alone; give the text model that it is made of"
            )
        digest = _digest(Path(path)) if Path(path).is_dir() else f"commit {config._commit_hash}"
        place = str(Path(path).absolute()) if Path(path).is_dir() else path
        return cls(place, tokenizer, getattr(config, "max_position_embeddings", None), digest)

    def texts(self, prompts: Sequence[Prompt], recipe: Recipe, view: View = "original") -> list[str]:
        """Every prompt as text that OpenRLHF, which adds no special tokens, turns into the tokens that we would.

        Raises:
            UserError: a prompt doesn't fit, or no text does that.
        """
        messages = [prompt.turns(view) for prompt in prompts]
        token_ids = prompt_text.encode(self.tokenizer, messages)
        prompt_text.require_room(prompts, token_ids, recipe, self.context_length, view)
        texts = prompt_text.render_all(self.tokenizer, messages)
        return [
            self._text_of(text, tokens, prompt.prompt_id)
            for text, tokens, prompt in zip(texts, token_ids, prompts, strict=True)
        ]

    def _text_of(self, text: str, tokens: list[int], prompt_id: str) -> str:
        for candidate in (text, f"{self.tokenizer.bos_token or ''}{text}"):
            if self.tokenizer(candidate, add_special_tokens=False, verbose=False)["input_ids"] == tokens:
                return candidate
        raise UserError(
            f"{self.path} puts special tokens into prompt {prompt_id} that cannot be written as text, and OpenRLHF"
            " reads text; give the model a chat template that writes them"
        )


def _digest(folder: Path) -> str:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(f"{folder} has no safetensors weights; convert them, or give another model")
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as weights:
            total.update(f"{file.name} {hashlib.file_digest(weights, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()
