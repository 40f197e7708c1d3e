"""What is looked at of the starting policy before OpenRLHF loads it: weights, prompts as text."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from cases import each, refusal
from make_toys import build_tokenizer
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing

from olr_cli.data.chat import Message
from olr_cli.data.interchange import prompt_set
from olr_cli.data.prompts import Prompt
from olr_cli.engines import prompt_text
from olr_cli.engines.models import policy_path
from olr_cli.engines.openrlhf.starting_model import StartingModel
from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate


@pytest.fixture
def folder(tmp_path):
    """A copy of a built-in policy."""
    return shutil.copytree(policy_path("addition-easier"), tmp_path / "model")


def look_at(path):
    return StartingModel.look_at(str(path), trust_remote_code=False)


def change(file, **settings):
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def prompts(*texts):
    asked = [
        Prompt(f"p{number}", (Message("user", text),), "1", "1", "clean", "here")
        for number, text in enumerate(texts, start=1)
    ]
    return prompt_set(asked, "here")


def recipe(**train):
    return validate(
        {"train": {"max_new_tokens": 8, **train}, "engine": {"name": "openrlhf"}}, "test"
    )


def save_tokenizer(folder, template):
    """A tokenizer without chat template that puts special tokens around every text."""
    tokenizer = build_tokenizer(64)
    tokenizer.chat_template = None
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=template,
        special_tokens=[
            ("<bos>", tokenizer.bos_token_id),
            ("<eos>", tokenizer.eos_token_id),
        ],
    )
    (folder / "chat_template.jinja").unlink()
    tokenizer.save_pretrained(folder)


def test_the_digest_is_of_the_weights_of_all_shards_and_of_nothing_else(folder):
    digests = [look_at(folder).digest]
    change(folder / "generation_config.json", temperature=0.5)
    assert look_at(folder).digest == digests[0]
    for value in (1.0, 2.0):
        save_file({"more": torch.tensor([value])}, folder / "model-2.safetensors")
        digests.append(look_at(folder).digest)
    assert len(set(digests)) == 3


def test_a_model_that_reads_images_too_is_refused(folder):
    change(folder / "config.json", vision_config={"hidden_size": 8})
    assert "reads images too (its configuration has a vision_config)" in refusal(
        look_at, folder
    )


def with_template(template):
    return lambda folder: (folder / "chat_template.jinja").write_text(template)


@each(
    "prepare, expected",
    (lambda _folder: None, ["1+1=", "12+34="]),
    (
        with_template("<bos>{{ messages[0]['content'] }}<eos>"),
        ["<bos>1+1=<eos>", "<bos>12+34=<eos>"],
    ),
    (lambda folder: save_tokenizer(folder, "<bos> $A"), ["<bos>1+1=", "<bos>12+34="]),
    (lambda folder: save_tokenizer(folder, "<bos> $A <eos>"), ["<bos>1+1=", "<bos>12+34="]),
)
def test_a_prompt_is_a_text_whose_tokens_are_those_that_we_would_read(
    folder, prepare, expected
):
    prepare(folder)
    asked, model = prompts("1+1=", "12+34="), look_at(folder)
    texts = model.texts(asked, recipe())
    assert texts == expected
    read = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    rendered = prompt_text.render_all(
        model.tokenizer, [prompt.messages for prompt in asked.prompts]
    )
    assert read == prompt_text.tokenize(model.tokenizer, rendered)


def test_special_tokens_that_no_text_gives_are_refused(folder):
    save_tokenizer(folder, "<eos> $A")
    with pytest.raises(
        UserError, match="puts special tokens into prompt p1 that cannot be written as text"
    ):
        look_at(folder).texts(prompts("1+1="), recipe())


def test_prompts_that_do_not_fit_are_refused(folder):
    model = look_at(folder)
    with pytest.raises(
        UserError, match=r"1 of 2 prompts are longer than train\.max_prompt_tokens 4"
    ):
        model.texts(prompts("1+1=", "12+34="), recipe(max_prompt_tokens=4))
    assert "is more than the 64 tokens" in refusal(
        model.texts, prompts("1+1="), recipe(max_new_tokens=61)
    )
    assert model.texts(prompts("1+1="), recipe(max_new_tokens=60)) == ["1+1="]


def test_rephrased_prompts_are_written_and_must_fit_too(folder):
    model = look_at(folder)
    [prompt] = prompts("1+1=").prompts
    asked = prompt_set([replace(prompt, rephrased=(Message("user", "34+12="),))], "here")
    assert model.texts(asked, recipe(), "rephrased") == ["34+12="]
    assert model.texts(asked, recipe(max_prompt_tokens=4)) == ["1+1="]
    with pytest.raises(
        UserError, match=r"longer than train\.max_prompt_tokens 4 \(the first: p1\)"
    ):
        model.texts(asked, recipe(max_prompt_tokens=4), "rephrased")
