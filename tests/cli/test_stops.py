"""How the program ends when it is stopped, and what it says of what is kept."""

import errno
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from cases import each

from olr_cli.cli import errors
from olr_cli.engines.run import EngineFailed
from olr_cli.runs.interrupts import Interrupted, Stopped

SAID = "Error: standard output could not be written: the disk is full; make room and try again\n"


def full():
    return OSError(errno.ENOSPC, "No space left on device")


def during(first, then):
    """`then` as Python raises it while it handles `first`."""
    try:
        try:
            raise first
        except BaseException:
            raise then  # noqa: B904
    except BaseException as error:
        return error


@each(
    "end, status, dropped, said",
    (KeyboardInterrupt(), 130, [], "Stopped.\n"),
    (Stopped(signal.SIGTERM), 143, [], "Stopped.\n"),
    (during(KeyboardInterrupt(), SystemExit(1)), 130, [], "Stopped.\n"),
    (BrokenPipeError(), 141, [(1, 2)], ""),
    (during(BrokenPipeError(), SystemExit(1)), 141, [(1, 2)], ""),
    (full(), 2, [(1,)], SAID),
    (during(SystemExit(2), full()), 2, [(1,)], ""),
    (during(SystemExit(0), full()), 2, [(1,)], SAID),
    (SystemExit(3), 3, [], ""),
    (SystemExit(0), 0, [], ""),
)  # fmt: skip
def test_the_program_ends_with_a_status_that_says_what_ended_it(
    end, status, dropped, said, monkeypatch, capsys
):
    heeded, left = [], []
    monkeypatch.setattr(errors, "heed_signals", lambda: heeded.append(True))
    monkeypatch.setattr(errors, "drop_output", lambda *streams: left.append(streams))
    with pytest.raises(SystemExit) as ended, errors.program():
        raise end
    assert (ended.value.code, left, capsys.readouterr().err) == (status, dropped, said)
    assert heeded == [True]


@each("bug", OSError(errno.EBADF, "Bad file descriptor"), ValueError("shapes differ"))
def test_a_bug_ends_the_program_as_it_is(bug, monkeypatch):
    monkeypatch.setattr(errors, "heed_signals", lambda: None)
    with pytest.raises(type(bug)) as ended, errors.program():
        raise bug
    assert ended.value is bug


KEPT = "Stopped. Everything up to the last {} is in run; continue with olr train --run-dir 'a b'\n"


@each(
    "stop, is_stored, status, said",
    (KeyboardInterrupt(), True, 130, KEPT.format("checkpoint")),
    (Interrupted(signal.SIGTERM), True, 143, KEPT.format("complete step")),
    (BrokenPipeError(), True, 141, KEPT.format("checkpoint")),
    (KeyboardInterrupt(), False, 130, "Stopped. Nothing is written yet; the same command starts anew.\n"),
    (EngineFailed("see run/engine.log"), True, 1, "Error: see run/engine.log\n"),
)  # fmt: skip
def test_a_run_that_is_stopped_says_what_is_kept_and_how_it_goes_on(
    stop, is_stored, status, said, here, capsys
):
    Path("run").mkdir()
    if is_stored:
        Path("run/manifest.json").touch()
    stops = []
    progress = SimpleNamespace(stop=lambda: stops.append(capsys.readouterr().err))
    words = ["olr", "train", "--run-dir", "a b"]
    with (
        pytest.raises(typer.Exit) as ended,
        errors.shown_until_stopped(progress, Path("run"), words),
    ):
        raise stop
    shown = "".join(stops) + capsys.readouterr().err
    assert (ended.value.exit_code, shown) == (status, said)
    assert stops[0] == "" or isinstance(stop, EngineFailed), "the display ends first"


def test_what_is_kept_at_once_can_be_another_thing_and_the_display_always_ends(
    here, capsys
):
    Path("manifest.json").touch()
    stops = []
    progress = SimpleNamespace(stop=lambda: stops.append(True))
    with errors.shown_until_stopped(progress, here, []):
        assert not stops
    assert stops
    with (
        pytest.raises(typer.Exit),
        errors.shown_until_stopped(progress, here, [], kept_at_once="part"),
    ):
        raise KeyboardInterrupt
    assert "up to the last part is in" in capsys.readouterr().err
