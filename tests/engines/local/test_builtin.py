"""The built-in policies: they come with the package, load anywhere, and can be made again from the seed."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest
import torch
from olr_cli.cli.make_policy import make_policy as make_policy_command
from olr_cli.engines.local.builtin import MIXTURES, WeightsRecord, is_builtin, policy_path
from olr_cli.engines.local.builtin_warmup import (
    CHARACTERS,
    build_tokenizer,
    digest,
    held_out_accuracy,
    warm_up,
)
from transformers import AutoModelForCausalLM, AutoTokenizer

from olr_cli.data.arithmetic import MIXTURE_NOTE
from olr_cli.data.chat import Message
from olr_cli.engines.local import builtin_warmup
from olr_cli.engines.local.policy import Policy
from olr_cli.errors import UserError

every_policy = pytest.mark.parametrize("name", MIXTURES)


def test_text_of_the_vocabulary_survives_the_tokenizer():
    tokenizer = build_tokenizer(64)
    assert len(tokenizer) == 64 == len(set(CHARACTERS)) + 4
    ids = tokenizer(CHARACTERS)["input_ids"]
    assert len(ids) == len(CHARACTERS)
    assert tokenizer.decode(ids) == CHARACTERS


def test_other_characters_become_one_unknown_token_each():
    tokenizer = build_tokenizer(64)
    assert tokenizer("1é+")["input_ids"] == tokenizer.convert_tokens_to_ids(["1", "<unk>", "+"])


@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_the_chat_template_shows_what_the_user_says_and_nothing_else(add_generation_prompt):
    turns = [{"role": "system", "content": "Think."}, {"role": "user", "content": "123+456="}]
    tokenizer = AutoTokenizer.from_pretrained(policy_path("addition-easier"))
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=add_generation_prompt)
    assert text == "123+456="


@every_policy
def test_shipped_weights_load_in_hugging_face_layout_and_answer(name):
    folder = policy_path(name)
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.model_type == "qwen3" and model.dtype == torch.float32
    assert model.config.vocab_size == len(tokenizer)
    end, pad = model.generation_config.eos_token_id, model.generation_config.pad_token_id
    assert (end, pad) == (tokenizer.eos_token_id, tokenizer.pad_token_id)

    prompt = "523-487=" if name == "subtraction" else "678+543="
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    response = model.generate(ids, max_new_tokens=6, do_sample=False)[0, ids.shape[1] :]
    assert response[-1] == end
    assert tokenizer.decode(response, skip_special_tokens=True).isdigit()


@every_policy
def test_shipped_weights_are_the_recorded_ones_and_as_good_as_recorded(name):
    record = WeightsRecord.read(policy_path(name))
    policy = Policy.load(policy_path(name), device="cpu")
    assert (record.name, record.note, record.steps) == (name, MIXTURE_NOTE, builtin_warmup.STEPS)
    assert digest(policy.model) == record.digest
    avg_at_8, greedy = held_out_accuracy(policy, MIXTURES[name])
    assert (avg_at_8, greedy) == pytest.approx((record.avg_at_8, record.greedy), abs=0.002)


@every_policy
def test_shipped_folders_are_small(name):
    assert sum(path.stat().st_size for path in policy_path(name).iterdir()) < 800_000


def test_the_policy_reads_a_prompt_as_the_warm_up_wrote_it():
    policy = Policy.load(policy_path("addition-easier"), device="cpu")
    assert policy.encode([[Message("user", "123+456=")]]) == policy.tokenizer(["123+456="])["input_ids"]


def test_the_policies_lie_in_the_intended_order_of_difficulty():
    easier, harder, subtraction = (WeightsRecord.read(policy_path(name)).avg_at_8 for name in MIXTURES)
    assert 0.25 < harder < subtraction < easier < 0.5


def test_names_are_known_with_and_without_their_prefix():
    assert policy_path("builtin:subtraction") == policy_path("subtraction")
    assert is_builtin("builtin:anything") and not is_builtin("models/subtraction")
    with pytest.raises(UserError, match="did you mean 'addition-harder'"):
        policy_path("builtin:addition-hard")


def test_a_short_warm_up_repeats_bit_for_bit_and_depends_on_the_seed():
    def made(seed):
        return digest(warm_up(MIXTURES["subtraction"], seed, steps=30).model)

    torch.manual_seed(1)
    first = made(7)
    torch.rand(5)
    assert made(7) == first
    assert made(8) != first


def test_the_warm_up_learns_from_training_expressions_alone(monkeypatch):
    seen = []
    respond = builtin_warmup.Mixture.respond
    monkeypatch.setattr(
        builtin_warmup.Mixture,
        "respond",
        lambda self, expression, *parts: seen.append(expression.index) or respond(self, expression, *parts),
    )
    warm_up(MIXTURES["addition-harder"], 0, steps=3)
    assert len(seen) == 3 * builtin_warmup.BATCH
    assert set(seen) <= set(builtin_warmup.split_members("addition", "train").tolist())


def test_make_policy_writes_a_policy_that_loads_and_compares_it_with_the_shipped_one(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(
        builtin_warmup, "warm_up", lambda mixture, seed, report: warm_up(mixture, seed, steps=5)
    )
    out = tmp_path / "mine"
    make_policy_command("builtin:subtraction", out, seed=3)
    record = WeightsRecord.read(out)
    assert (record.name, record.seed) == ("subtraction", 3)
    assert digest(Policy.load(out, device="cpu").model) == record.digest
    printed = capsys.readouterr().out
    shipped = WeightsRecord.read(policy_path("subtraction"))
    assert "mixture of a right and a wrong" in printed
    assert record.digest in printed and shipped.digest in printed and f"{shipped.avg_at_8:.4f}" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_make_policy_refuses_a_folder_that_exists_before_it_trains(tmp_path):
    with pytest.raises(UserError, match="exists already"):
        make_policy_command("subtraction", tmp_path)
    with pytest.raises(UserError, match="make this folder first"):
        make_policy_command("subtraction", tmp_path / "no" / "folder")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(self, folder):
        (folder / "half").write_text("written")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(
        builtin_warmup, "warm_up", lambda mixture, seed, report: warm_up(mixture, seed, steps=1)
    )
    monkeypatch.setattr(Policy, "save", fail)
    with pytest.raises(UserError, match="disk is full"):
        builtin_warmup.make_policy("subtraction", tmp_path / "mine", 0)
    assert list(tmp_path.iterdir()) == []


def test_finding_a_shipped_policy_needs_no_torch():
    code = (
        "import sys; from olr_cli.engines.local.builtin import policy_path; policy_path('subtraction');"
        "import olr_cli.cli.make_policy; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_policy_made_again_is_as_good_as_the_shipped_one(tmp_path, is_long, monkeypatch):
    """All steps take a minute; after 300 of 2,000 it has begun to add."""
    shipped = WeightsRecord.read(policy_path("addition-easier"))
    if not is_long:
        monkeypatch.setattr(builtin_warmup, "warm_up", functools.partial(warm_up, steps=300))
    made = builtin_warmup.make_policy("addition-easier", tmp_path / "again", shipped.seed)
    assert made.greedy > 0.25
    if is_long:
        assert made.avg_at_8 == pytest.approx(shipped.avg_at_8, abs=0.01)
