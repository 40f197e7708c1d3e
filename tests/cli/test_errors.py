"""What the system refuses is one sentence and status 2; a bug keeps its traceback."""

import pytest
import torch
import typer

from olr_cli.cli.errors import ends_well


def numpy_array():
    raise MemoryError("Unable to allocate 7.28 TiB for an array")


def torch_tensor():
    torch.empty(1 << 60)


@pytest.mark.parametrize("take", [numpy_array, torch_tensor])
def test_too_little_memory_is_a_sentence(take, capsys):
    with pytest.raises(typer.Exit) as ended:
        ends_well(take)()
    assert ended.value.exit_code == 2
    assert "not enough memory" in (said := capsys.readouterr().err) and said.count("\n") == 1


def test_a_folder_in_place_of_a_file_is_a_sentence(tmp_path, capsys):
    with pytest.raises(typer.Exit) as ended:
        ends_well(lambda: tmp_path.read_text())()
    assert ended.value.exit_code == 2
    assert f"Error: {tmp_path}: Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize("bug", [KeyError("x"), RuntimeError("shapes differ"), FileNotFoundError("x")])
def test_a_bug_keeps_its_traceback(bug):
    def command():
        raise bug

    with pytest.raises(type(bug)):
        ends_well(command)()
