"""What the system refuses is one sentence and status 2; a bug keeps its traceback."""

import errno
import json
import os
import tempfile
from pathlib import Path

import pytest
import torch
import typer
from cases import each
from commands import refused

from olr_cli.answers import Judge
from olr_cli.cli.errors import ends_well
from olr_cli.errors import UserError, at


def numpy_array():
    raise MemoryError("Unable to allocate 7.28 TiB for an array")


def torch_tensor():
    torch.empty(1 << 60)


@pytest.mark.parametrize("take", [numpy_array, torch_tensor])
def test_too_little_memory_is_a_sentence(take, capsys):
    with pytest.raises(typer.Exit) as ended:
        ends_well(take)()
    assert ended.value.exit_code == 2
    assert (
        "not enough memory" in (said := capsys.readouterr().err) and said.count("\n") == 1
    )


def test_where_no_temporary_folder_may_be_written_a_sentence_says_so_and_workers_need_none(
    monkeypatch, capsys
):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/nowhere"])
    with pytest.raises(typer.Exit) as ended:
        ends_well(tempfile.gettempdir)()
    assert ended.value.exit_code == 2
    assert (
        "No usable temporary directory" in (said := capsys.readouterr().err)
        and "set TMPDIR to" in said
    )
    if hasattr(os, "memfd_create"):
        with Judge(workers=1) as judge:
            assert judge.matches([("x+1", "1+x")]) == [True]


def to_a_full_disk():
    with open("/dev/full", "w") as full:
        full.write("x")


def fails(number):
    def command():
        raise OSError(number, os.strerror(number), "run/x")

    return command


@each(
    "place, spelled",
    ("run_dir", "--run-dir: no"),
    ("set train.epochs", "--set train.epochs: no"),
    ("data.columns", "data.columns: no"),
    ("mine.yaml", "mine.yaml: no"),
    ("", "no"),
)
def test_an_argument_is_spelled_as_its_option(place, spelled, capsys):
    def command(set_: str = "", run_dir: str = "", columns: str = "") -> None:
        with at(place):
            raise UserError("no", "say yes")

    with pytest.raises(typer.Exit):
        ends_well(command)()
    assert capsys.readouterr().err == f"Error: {spelled}; say yes\n"


def no_question():
    raise UserError(
        "none", "name one, as in data.columns='{question: problem}'", "data.columns"
    )


def takes_keys(set_: str = "") -> None:
    no_question()


def takes_columns(columns: str = "") -> None:
    no_question()


@each("command, giving", (takes_keys, "--set data.columns="), (takes_columns, "--columns "))
def test_an_example_of_a_value_can_be_pasted(command, giving, capsys):
    with pytest.raises(typer.Exit):
        ends_well(command)()
    assert capsys.readouterr().err.endswith(f", as in {giving}'{{question: problem}}'\n")


@pytest.mark.parametrize(
    ("key", "option"), [("columns", "--columns"), ("system_prompt", "--system")]
)
def test_a_key_is_spelled_as_an_option_where_the_command_sets_no_keys(key, option, capsys):
    def command(columns: str = "", system: str = "") -> None:
        raise UserError("no", "say yes", f"data.{key}")

    with pytest.raises(typer.Exit):
        ends_well(command)()
    assert capsys.readouterr().err == f"Error: {option}: no; say yes\n"


def test_with_json_an_error_is_an_object_too(capsys):
    def command(columns: str = "", json: bool = False) -> None:
        raise UserError(
            "there is no column 'a'", "name another, as in data.columns=b", "data.columns"
        )

    with pytest.raises(typer.Exit):
        ends_well(command)(json=True)
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {
        "schema": 1,
        "error": {
            "problem": "there is no column 'a'",
            "remedy": "name another, as in --columns b",
            "place": "--columns",
        },
    }
    assert printed.err == (
        "Error: --columns: there is no column 'a'; name another, as in --columns b\n"
    )


@pytest.mark.parametrize(
    ("sentence", "problem", "remedy"),
    [
        ("the disk is full; make room", "the disk is full", "make room"),
        ("a; b; c", "a; b", "c"),
        ("it is no number", "it is no number", "correct it"),
    ],
)
def test_a_sentence_may_end_in_its_remedy(sentence, problem, remedy):
    error = UserError.of(sentence, remedy="correct it", place="data.train")
    assert (error.problem, error.remedy, error.place) == (problem, remedy, "data.train")
    assert str(error) == f"data.train: {problem}; {remedy}"


@each(
    "deed, sentence",
    (lambda: Path("/").read_text(), "/: Is a directory"),
    (lambda: Path("x" * 300).is_dir(), "xxx...: File name too long"),
    (
        to_a_full_disk,
        "[Errno 28] No space left on device: the disk is full; make room and try again",
    ),
    (
        fails(errno.EXDEV),
        "run/x: the folder reaches over two file systems; choose another folder",
    ),
    (fails(errno.ESTALE), "run/x: the file server does not find it any more; try again"),
    (
        fails(errno.EAGAIN),
        "run/x: the system is out of resources for the moment; try again",
    ),
    (fails(errno.EMFILE), "run/x: too many files are open; end other commands"),
)
def test_what_the_system_refuses_is_named_as_that(deed, sentence, capsys):
    with pytest.raises(typer.Exit) as ended:
        ends_well(deed)()
    said = capsys.readouterr().err
    assert ended.value.exit_code == 2
    assert said.startswith("Error: ") and sentence in said and said.count("\n") == 1


@each(
    "line",
    "check absent.csv --export taken.csv",
    "inject-noise --type active --ratio 0.5 --dataset absent.csv --out taken.jsonl",
    "audit absent --export taken.jsonl",
    "audit absent --out taken.csv",
    "audit absent --report taken.html",
    "audit absent --rewards --out taken.csv",
    "audit absent --rewards --as-recipe taken.yaml",
    "replay absent --out taken.csv",
    "analyze absent --out taken.csv",
)
def test_an_output_that_is_taken_is_refused_before_any_input_is_read(line, here):
    taken = line.rpartition(" ")[2]
    Path(taken).mkdir()
    assert f"{taken} exists already; choose another name" in refused(*line.split())


@pytest.mark.parametrize(
    "bug", [KeyError("x"), RuntimeError("shapes differ"), FileNotFoundError("x")]
)
def test_a_bug_keeps_its_traceback(bug):
    def command(setting: str = "") -> None:
        raise bug

    with pytest.raises(type(bug)):
        ends_well(command)(setting="data.question=" + "long " * 100)


def test_a_torchvision_of_another_torch_is_a_sentence_with_both_versions(
    tmp_path, monkeypatch, capsys
):
    """As transformers tells it: about a class of its own."""
    folder = tmp_path / "torchvision-0.20.0.dist-info"
    folder.mkdir()
    folder.joinpath("METADATA").write_text(
        "Name: torchvision\nVersion: 0.20.0\nRequires-Dist: torch==2.5.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def evaluate():
        try:
            raise RuntimeError("operator torchvision::nms does not exist")
        except RuntimeError as error:
            raise ModuleNotFoundError(
                "Could not import module 'AttentionInterface'."
            ) from error

    with pytest.raises(typer.Exit) as ended:
        ends_well(evaluate)()
    said = capsys.readouterr().err
    assert ended.value.exit_code == 2 and said.count("\n") == 1
    assert (
        f"torchvision 0.20.0 was built for torch 2.5.0, and torch {torch.__version__} is installed"
        in said
    )
    assert "pip uninstall torchvision" in said
