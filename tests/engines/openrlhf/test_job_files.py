"""The files by which a command and its job communicate."""

import pyarrow.parquet as pq
import pytest
from cases import each

from olr_cli.engines.openrlhf.job_files import JobEnd, JobFiles, write_rows


@pytest.fixture
def files(tmp_path):
    files = JobFiles(tmp_path / "run")
    files.folder.mkdir(parents=True)
    return files


@each(
    "end",
    JobEnd("finished"),
    JobEnd("user", "the disk is full: Größe"),
    JobEnd("bug", "KeyError: 'x'"),
)
def test_an_end_is_read_as_it_was_written(files, end):
    files.write_end(end)
    assert files.read_end() == end


def test_the_end_of_the_last_attempt_is_forgotten_and_nothing_else(files):
    files.write_end(JobEnd("stopped"))
    files.announce("The job ends: KeyError.")
    for mark in (files.stop, files.ready, files.log, files.prompts):
        mark.touch()
    (files.universal / "openrlhf").mkdir(parents=True)  # left by a kill
    files.forget_last_attempt()
    files.forget_last_attempt()
    assert files.read_end() is None
    assert sorted(file.name for file in files.folder.iterdir()) == [
        "log.txt",
        "prompts.parquet",
    ]


def test_sentences_to_show_are_read_in_their_order_and_whole(files):
    assert files.announcements() == []
    files.announce("Other jobs hold 2 GPUs.")
    files.announce("The job ends: Größe.")
    with (files.folder / "announced.txt").open("a") as file:
        file.write("being writ")
    assert files.announcements() == ["Other jobs hold 2 GPUs.", "The job ends: Größe."]


def test_prompts_are_a_row_each_whatever_they_are_made_of(tmp_path):
    rows = [
        ("1+1=", "7"),
        ("two\nlines, \r\n and a \u2028 separator", "row-2"),
        ('"quoted" \\boxed{} Ü 漢 \x00', "3"),
    ]
    write_rows(tmp_path / "p.parquet", rows)
    read = pq.read_table(tmp_path / "p.parquet").to_pylist()
    assert read == [{"input": text, "label": label} for text, label in rows]
