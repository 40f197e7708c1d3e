"""The files by which a command and its job communicate, and which node each rank runs on."""

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from olr_cli.engines.openrlhf.files import JobFiles, Outcome, held_out_label, write_prompts
from olr_cli.engines.openrlhf.job import node_of_each_rank


@pytest.fixture
def files(tmp_path):
    files = JobFiles(tmp_path / "run")
    files.folder.mkdir(parents=True)
    return files


def test_a_job_that_has_told_nothing_has_no_outcome(files):
    assert files.read_outcome() is None


@pytest.mark.parametrize(
    "outcome",
    [Outcome("finished"), Outcome("user", "the disk is full: Größe"), Outcome("bug", "KeyError: 'x'")],
)
def test_an_outcome_is_read_as_it_was_written(files, outcome):
    files.write_outcome(outcome)
    assert files.read_outcome() == outcome


def test_the_end_of_the_last_attempt_is_forgotten_and_nothing_else(files):
    files.write_outcome(Outcome("stopped"))
    for mark in (files.stop, files.ready, files.log, files.prompts):
        mark.touch()
    (files.universal / "openrlhf").mkdir(parents=True)  # left by a kill
    files.forget_last_attempt()
    files.forget_last_attempt()
    assert files.read_outcome() is None
    assert sorted(file.name for file in files.folder.iterdir()) == ["log.txt", "prompts.parquet"]


def test_everything_lies_in_one_folder_of_the_run(files):
    places = (
        files.prompts,
        files.held_out,
        files.log,
        files.scratch,
        files.stop,
        files.ready,
        files.universal,
    )
    assert {place.parent for place in places} == {files.folder}
    assert len(set(places)) == len(places)
    assert files.folder.parent == files.run


def test_prompts_are_a_row_each_whatever_they_are_made_of(tmp_path):
    rows = [
        ("1+1=", "7"),
        ("two\nlines, \r\n and a \u2028 separator", "row-2"),
        ('"quoted" \\boxed{} Ü 漢 \x00', "3"),
    ]
    write_prompts(tmp_path / "p.parquet", rows)
    read = pq.read_table(tmp_path / "p.parquet").to_pylist()
    assert read == [{"input": text, "label": label} for text, label in rows]


def test_held_out_labels_tell_sets_and_rows_apart():
    labels = {held_out_label(prefix, row) for prefix in ("eval", "validation") for row in range(20)}
    assert len(labels) == 40


@given(
    st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 9), max_size=5),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_every_group_of_ranks_is_on_one_node_that_has_its_gpus_free(free, nodes, gpus):
    order = node_of_each_rank(free, nodes, gpus)
    if order is None:
        assert sum(count // gpus for count in free.values()) < nodes
        return
    assert len(order) == nodes * gpus
    assert all(len(set(order[first : first + gpus])) == 1 for first in range(0, len(order), gpus))
    assert all(order.count(node) <= free[node] for node in set(order))


def test_as_few_nodes_as_possible_are_taken():
    assert node_of_each_rank({"a": 4, "b": 8, "c": 2}, 2, 4) == ["b"] * 8
    assert node_of_each_rank({"a": 7.9, "b": 8}, 2, 8) is None
