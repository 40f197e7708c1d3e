"""Hub ids, and what a user is told where the hub is out of reach. A stand-in plays the part of `datasets`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from cases import each, refusal

from olr_cli.data.hub import HubId, hub_answers, parse_hub_id
from olr_cli.data.prompt_files import read_prompts
from olr_cli.engines.models import loading
from olr_cli.errors import NotHere

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class LoadedRows:
    """What `datasets.load_dataset` returns, as far as it is used."""

    def __init__(self, table: pa.Table, cache_folder: str) -> None:
        self.table = table
        self.cache_files = [
            {"filename": f"/cache/org___name/default/0.0.0/{cache_folder}/name-train.arrow"}
        ]

    def with_format(self, kind: str) -> LoadedRows:
        assert kind == "arrow"
        return self

    def __getitem__(self, rows: slice) -> pa.Table:
        return self.table


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Puts a data set of two rows on a hub of its own; returns what is asked of it."""
    asked: list[tuple[Any, ...]] = []

    def load_dataset(
        name: str, config: str | None, *, split: str, revision: str | None
    ) -> LoadedRows:
        asked.append((name, config, split, revision))
        if name == "org/unreachable":
            raise ConnectionError("Couldn't reach\n'org/unreachable' on the Hub")
        if split == "unknown":
            raise ValueError('Unknown split "unknown". Should be one of [train, test].')
        return LoadedRows(
            pa.table({"question": ["1+1", "2+2"], "answer": ["2", "4"]}), revision or COMMIT
        )

    package = ModuleType("datasets")
    package.load_dataset = load_dataset  # type: ignore[attr-defined]
    package.__version__ = "5.2.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", package)
    return asked


@each(
    "text, hub_id",
    ("org/name", HubId("org/name", None, None, None)),
    ("org/name:test", HubId("org/name", None, "test", None)),
    ("org/name@v1.0", HubId("org/name", None, None, "v1.0")),
    (
        "openai/gsm8k/main:train[:100]@abc",
        HubId("openai/gsm8k", "main", "train[:100]", "abc"),
    ),
    ("name", None),
    ("a/b/c/d", None),
    ("org/name:", None),
)
def test_a_hub_id_names_configuration_split_and_revision(text, hub_id):
    assert parse_hub_id(text) == hub_id


def test_hub_rows_are_read_like_a_file_and_their_commit_is_kept(calls):
    prompts = read_prompts("org/name")
    assert [p.given_label for p in prompts.prompts] == ["2", "4"]
    assert prompts.prompts[0].data_source == "org/name"
    assert (prompts.source, prompts.revision) == ("org/name", COMMIT)
    read_prompts("org/name", split="validation")
    assert read_prompts("org/name/hard:test@v2", split="validation").revision == "v2"
    asked = [(None, "train", None), (None, "validation", None), ("hard", "test", "v2")]
    assert calls == [("org/name", *words) for words in asked]


@each(
    "source, expected",
    ("org/unreachable", "Couldn't reach 'org/unreachable'"),
    ("org/name:unknown", "Should be one of [train, test]"),
    (None, "pip install '.[hub]' in a clone of olr"),
)
def test_what_cannot_be_loaded_is_one_sentence(calls, monkeypatch, source, expected):
    if source is None:  # without the package
        monkeypatch.setitem(sys.modules, "datasets", None)
    assert expected in refusal(read_prompts, source or "org/name")


@pytest.fixture
def unplugged(monkeypatch):
    """No network; the places that were asked for."""
    import huggingface_hub
    from huggingface_hub import constants

    asked = []

    class Session:
        def head(self, address, timeout):
            asked.append(address)
            raise ConnectionError("no route to host")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    hub_answers.cache_clear()
    yield asked
    hub_answers.cache_clear()


def test_the_hub_is_asked_once_and_then_only_its_cache(unplugged):
    from huggingface_hub import constants

    assert [hub_answers(), hub_answers()] == [False, False]
    assert unplugged == [constants.ENDPOINT]
    assert constants.HF_HUB_OFFLINE


def test_a_model_that_would_have_to_be_fetched_is_said_to_be_out_of_reach(
    unplugged, tmp_path
):
    from transformers import AutoConfig

    with (
        pytest.raises(NotHere, match="the Hugging Face hub cannot be reached from here"),
        loading("org/nowhere"),
    ):
        AutoConfig.from_pretrained("org/nowhere", cache_dir=tmp_path)
    assert len(unplugged) == 1


def test_a_folder_needs_no_hub(unplugged, tmp_path):
    with loading(tmp_path):
        pass
    assert unplugged == []
