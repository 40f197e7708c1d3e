"""The built-in policies' tokenizer: a token a character, and no words around the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PAD, BOS, EOS, UNK = SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>", "<unk>")
CHARACTERS = "0123456789" + "+-*/=()<>.,:?%^_ \n" + "\\{}$" + "abcdefghijklmnopqrstuvwxyz" + "'\""
"""With the special tokens 64 in all, so that no engine pads the vocabulary with tokens nobody can read."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ message['content'] }}{% endif %}"
    "{% endfor %}"
)
"""The policy sees what the user says and nothing else: no roles, no system prompt, no generation marker."""


def build_tokenizer(max_length: int, further: Sequence[str] = ()) -> Any:
    """A `transformers.PreTrainedTokenizerFast` of `CHARACTERS`; other characters become ``<unk>``.

    Args:
        max_length: tokens the policy can read, prompt and response together.
        further: tokens that no text becomes, to fill a larger vocabulary.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate((*SPECIAL_TOKENS, *CHARACTERS, *further))}
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    characters.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    characters.decoder = decoders.Fuse()
    wrapper: Any = PreTrainedTokenizerFast
    return wrapper(
        tokenizer_object=characters,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNK,
        chat_template=CHAT_TEMPLATE,
        model_max_length=max_length,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
