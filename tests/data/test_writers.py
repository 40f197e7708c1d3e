"""What is written can be read again, by us and by verl, and never replaces anything."""

import errno
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import refusal
from hypothesis import HealthCheck, given, settings, strategies as st
from samples import SAMPLE, json_lines

from olr_cli.answers.graded import SENTINEL
from olr_cli.data.noise import inject
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.writers import encode, write_prompts
from olr_cli.errors import UserError

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(
        st.tuples(texts, texts.filter(lambda t: "#" not in t and "\\" not in t)),
        min_size=1,
        max_size=8,
    ),
    kind=st.sampled_from(["inactive", "active", "mixed", None]),
    is_frozen=st.booleans(),
    suffix=st.sampled_from([".parquet", ".jsonl"]),
)
def test_prompts_survive_a_file(rows, kind, is_frozen, suffix, tmp_path_factory):
    folder = tmp_path_factory.mktemp("round")
    prompts = read_prompts(
        json_lines(folder / "plain.jsonl", *({"question": q, "answer": a} for q, a in rows))
    )
    if kind is not None:
        wrong = {prompt.prompt_id: ["11", "7"] for prompt in prompts.prompts[::2]}
        frozen = wrong if is_frozen and kind != "inactive" else None
        prompts = inject(prompts, type=kind, ratio="0.5", seed=0, wrong_answers=frozen)
    file = folder / f"file{suffix}"
    assert write_prompts(prompts, file)
    again = read_prompts(file)
    assert again.prompts == prompts.prompts
    assert again.digest == prompts.digest
    assert encode(again, file) == encode(read_prompts(file), file)


def test_the_file_is_the_interchange_format_and_keeps_what_it_does_not_know(tmp_path):
    source = tmp_path / "source.parquet"
    row = {
        "rephrased_prompt": [{"role": "user", "content": "one and one?"}],
        "prompt": [{"role": "user", "content": "1+1", "name": "ann"}],
        "reward_model": {"style": "model", "ground_truth": "2", "weight": 0.5},
        "extra_info": {"index": 5, "split": "valid", "level": "easy"},
    }
    pq.write_table(pa.Table.from_pylist([row]), source)
    write_prompts(
        inject(read_prompts(source), type="inactive", ratio=1, seed=0),
        tmp_path / "out.parquet",
    )
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == [
        {
            "data_source": "local/source",
            "prompt": [{"role": "user", "content": "1+1", "name": "ann"}],
            "ability": "math",
            "reward_model": {"style": "model", "ground_truth": SENTINEL, "weight": 0.5},
            "extra_info": row["extra_info"]
            | {"original_ground_truth": "2", "noise_type": "inactive"},
            "rephrased_prompt": [{"role": "user", "content": "one and one?"}],
        }
    ]


def test_plain_rows_become_interchange_rows(tmp_path):
    prompts = read_prompts(
        json_lines(
            tmp_path / "plain.jsonl", {"question": "1+1", "answer": 2, "level": "easy"}
        )
    )
    write_prompts(prompts, tmp_path / "out.jsonl")
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert list(row) == [
        "data_source",
        "prompt",
        "ability",
        "reward_model",
        "extra_info",
        "level",
    ]
    assert [turn["role"] for turn in row["prompt"]] == ["system", "user"]
    assert row["reward_model"] == {"ground_truth": "2", "style": "rule"}
    assert row["extra_info"] == {"index": prompts.prompts[0].prompt_id, "split": "train"}


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_rephrasings_survive_a_file_whatever_happens_to_the_rows(tmp_path, suffix):
    turns = [{"role": "user", "content": "Twice two?", "name": "Ann"}]
    columns = {"question": ["1+1", "2+2", "3+3"], "answer": [2, 4, 6]}
    mixed = pa.table({**columns, "rephrased_prompt": ["One and one?", None, " "]})
    listed = mixed.set_column(2, "rephrased_prompt", pa.array([turns, None, []]))
    for table in (mixed, listed):
        pq.write_table(table, tmp_path / "source.parquet")
        prompts = read_prompts(tmp_path / "source.parquet")
        assert [prompt.rephrased is None for prompt in prompts.prompts] == [
            False,
            True,
            True,
        ]
        changed = inject(
            prompts.subset([1, 0, 2]).sample(2, seed=1),
            type="inactive",
            ratio="0.5",
            seed=0,
        )
        for number, each in enumerate((prompts, changed)):
            file = tmp_path / f"{table is listed}-{number}{suffix}"
            write_prompts(each, file)
            again = read_prompts(file)
            assert [p.rephrased for p in again.prompts] == [
                p.rephrased for p in each.prompts
            ]
            assert again.digest == each.digest
    # what else the messages hold is kept
    kept = read_prompts(tmp_path / f"True-0{suffix}").table["rephrased_prompt"]
    assert kept.to_pylist() == [turns, None, []]


def test_a_column_of_rephrasings_has_the_type_of_the_prompts_and_is_there_only_if_there_are_some(
    tmp_path,
):
    rows = pa.table({"question": ["1+1"], "answer": [2], "rephrased_prompt": pa.nulls(1)})
    pq.write_table(rows, tmp_path / "source.parquet")
    for source in (tmp_path / "source.parquet", "arithmetic", SAMPLE):
        target = tmp_path / f"{Path(source).stem}-out.parquet"
        write_prompts(read_prompts(source), target)
        schema = pq.read_schema(target)
        assert ("rephrased_prompt" in schema.names) == (source != SAMPLE)
        if source != SAMPLE:
            assert schema.field("rephrased_prompt").type == schema.field("prompt").type


def test_the_columns_are_those_that_verl_reads(tmp_path):
    """Verl takes the prompt as a list of turns, and calls a reward function with these three."""
    write_prompts(
        inject(read_prompts(SAMPLE), type="mixed", ratio="0.5", seed=0),
        tmp_path / "out.parquet",
    )
    schema = pq.read_schema(tmp_path / "out.parquet")
    assert schema.names[:5] == [
        "data_source",
        "prompt",
        "ability",
        "reward_model",
        "extra_info",
    ]
    assert schema.field("prompt").type == pq.read_schema(SAMPLE).field("prompt").type
    assert (
        str(schema.field("reward_model").type)
        == "struct<ground_truth: string, style: string>"
    )
    assert str(schema.field("extra_info").type) == (
        "struct<index: int64, split: string, original_ground_truth: string, noise_type: string>"
    )


def test_the_metadata_say_what_was_done_and_nothing_stale(tmp_path):
    clean = read_prompts(SAMPLE, sample=10, seed=2)
    noisy = inject(clean, type="mixed", ratio="0.50", seed=4, active_share="0.2")
    write_prompts(noisy, tmp_path / "out.parquet")
    assert pq.read_schema(tmp_path / "out.parquet").metadata == {
        b"olr.schema_version": b"1", b"olr.source": b"dapo_sample.parquet", b"olr.digest": noisy.digest.encode(),
        b"olr.source_digest": clean.digest.encode(), b"olr.sample.size": b"10", b"olr.sample.seed": b"2",
        b"olr.noise.type": b"mixed", b"olr.noise.ratio": b"0.5", b"olr.noise.seed": b"4", b"olr.noise.marked": b"5",
        b"olr.noise.active_share": b"0.2",
    }  # fmt: skip


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_the_same_prompts_are_the_same_bytes_and_other_prompts_are_refused(
    tmp_path, suffix
):
    file = tmp_path / "deep" / "er" / f"file{suffix}"
    prompts = read_prompts(SAMPLE)
    assert write_prompts(inject(prompts, type="active", ratio="0.5", seed=0), file) is True
    before = (file.read_bytes(), file.stat().st_mtime_ns)
    assert (
        write_prompts(
            inject(read_prompts(SAMPLE), type="active", ratio="0.50", seed=0), file
        )
        is False
    )
    with pytest.raises(UserError, match="with other content; choose another name"):
        write_prompts(inject(prompts, type="active", ratio="0.5", seed=1), file)
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert os.listdir(file.parent) == [file.name]


def test_a_folder_or_another_ending_is_no_target(tmp_path):
    prompts = read_prompts(SAMPLE)
    (tmp_path / "folder.parquet").mkdir()
    assert "exists already" in refusal(write_prompts, prompts, tmp_path / "folder.parquet")
    assert "written as .parquet or .jsonl" in refusal(
        write_prompts, prompts, tmp_path / "out.csv"
    )
    (tmp_path / "file").write_text("")
    assert "could not be written" in refusal(
        write_prompts, prompts, tmp_path / "file" / "out.parquet"
    )


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        UserError, match=r"out\.parquet could not be written: the disk is full"
    ):
        write_prompts(read_prompts(SAMPLE), tmp_path / "out.parquet")
    assert os.listdir(tmp_path) == []


def test_columns_that_json_has_no_form_for_are_named(tmp_path):
    source = tmp_path / "source.parquet"
    pq.write_table(
        pa.table({"question": ["q"], "answer": ["1"], "image": [b"\x89PNG"]}), source
    )
    with pytest.raises(UserError, match=r"does not fit JSON .*write \.parquet"):
        write_prompts(read_prompts(source), tmp_path / "out.jsonl")
    assert write_prompts(read_prompts(source), tmp_path / "out.parquet")
