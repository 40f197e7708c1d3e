"""Files that appear whole or not at all, and text files that are read in full."""

from __future__ import annotations

import codecs
import errno
import filecmp
import hashlib
import io
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from olr_cli.errors import UserError, causes, taken

_OF_SYSTEM = {
    errno.ENOSPC: "the disk is full; make room and try again",
    errno.EDQUOT: "your disk quota is used up; make room and try again",
    errno.EFBIG: "files may not get that large here; raise the limit (ulimit -f) or choose another place",
    errno.EIO: "the disk reports an error; check it, or choose another place",
    errno.EMFILE: "too many files are open; end other commands, or raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine; end other programs",
    errno.EAGAIN: "the system is out of resources for the moment; try again",
    errno.ESTALE: "the file server does not find it any more; try again, or choose a folder on a local disk",
    errno.EXDEV: "the folder reaches over two file systems; choose another folder",
}
"""Errors of the system, which say nothing about the file that was read or written."""
_USERS_TO_MEND = {
    **_OF_SYSTEM,
    errno.EEXIST: "there is a file where a folder is needed; choose another place",
    errno.ENOTDIR: "there is a file where a folder is needed; choose another place",
    errno.EISDIR: "there is a folder of that name; choose another name",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.EACCES: "you may not write there; change the permissions or choose another folder",
    errno.EPERM: "you may not write there; change the permissions or choose another folder",
    errno.EROFS: "the file system is read-only; choose another folder",
}
_OF_WRITING = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EACCES, errno.EPERM, errno.EROFS,
}  # fmt: skip
"""Those that can be of a file alone, where nobody knows whether something was written, run or sent."""

_NO_SYNC = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
_STAYS = {errno.EBUSY, errno.ENOTEMPTY, errno.EIO, errno.EACCES, errno.EPERM, errno.EROFS}

_ABANDONED_SECONDS = 60

_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How UTF-16 begins as Excel ("Unicode text") and PowerShell write it; UTF-8 never begins so."""

departures: set[str] = set()
"""Sentences about what a file system cannot do, where olr goes on without it: the manifest of a run lists them."""


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn a full disk or missing permission while writing `target` into a sentence for the user."""
    try:
        yield
    except Exception as error:
        problem = _USERS_TO_MEND.get(error_number(error))
        if problem is None:
            raise
        raise UserError.of(
            f"{target} could not be written: {problem}", remedy="choose another place"
        ) from error


def system_problem(error: BaseException) -> str | None:
    """Cause and remedy of an error that says nothing about the file that was read or written; None of other errors."""
    # Of tempfile, which torch asks when it is imported
    if "No usable temporary directory" in str(error):
        return "set TMPDIR to a folder that may be written"
    return _OF_SYSTEM.get(error_number(error))


@contextmanager
def naming_the_disks_error(folder: Path) -> Iterator[None]:
    """Raise the system's error where torch cannot write a file of its own in a folder.

    torch.save into a path says "unexpected pos 4544 vs 4438" when the disk is full. Where a little more cannot be
    written either, that error says why.
    """
    try:
        yield
    except RuntimeError:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(2**20))
        raise


def disk_problem(error: BaseException) -> str | None:
    """Cause and remedy of an error that says that a file cannot be written, wherever it comes from; None of others."""
    number = error_number(error)
    return _USERS_TO_MEND[number] if number in _OF_WRITING else None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of the machine or of a GPU; torch's errors on a CPU have no type of their own."""
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or "out of memory" in text
        or "allocate memory" in text
    )


def error_number(error: BaseException) -> int:
    """The system's error number behind an exception, 0 if there is none.

    torch.save raises a RuntimeError while it handles the OSError; errors of safetensors and polars, and of Ray if
    another process failed, have nothing but its text.
    """
    for cause in causes(error):
        if isinstance(cause, OSError) and cause.errno:
            return cause.errno
    return next((number for number in _OF_SYSTEM if os.strerror(number) in str(error)), 0)


def regular(file: Path) -> Path:
    """Return the path of a file that is to be read; refuse a pipe, a device or a socket, which may never end."""
    if os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file):
        raise UserError(
            f"{file} is a pipe, a device or a socket",
            "olr reads files alone, so write what it would hold into one",
        )
    return file


def digest_of(files: Iterable[Path]) -> str:
    """Return the sha256 over the names and contents of files."""
    total = hashlib.sha256()
    for file in files:
        with regular(file).open("rb") as content:
            total.update(
                f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode()
            )
    return total.hexdigest()


def read_text(
    file: Path, at_most: int | None = None, *, encoding: str | None = None
) -> str:
    """The text of a file, without a byte order mark: UTF-8, or UTF-16 if it begins with its mark.

    `encoding`: of a data file that is neither, the recipe's `data.encoding`, which the error then names.
    """
    try:
        with regular(file).open("rb") as source:
            content = source.read(-1 if at_most is None else at_most + 1)
    except OSError as error:
        raise UserError(
            f"{file} cannot be read: {error.strerror}", "check its name and permissions"
        ) from None
    if at_most is not None and len(content) > at_most:
        raise UserError(
            f"{file} has more than the {at_most // 1024} KiB that a file of settings may have",
            "check what it is",
        )
    name = encoding or "utf-8"
    try:
        return _decoded(content, name)
    except UnicodeDecodeError as error:
        problem = (
            f"{file} is not {name.upper()} text ({error.reason} at byte {error.start})"
        )
        remedy = "save it as UTF-8"
        if encoding is None:
            raise UserError(problem, remedy) from None
        other = "latin-1" if name == "cp1252" else "cp1252"
        remedy = f"{remedy}, or name its encoding, as in data.encoding={other}"
    except (LookupError, ValueError):
        problem = f"there is no encoding '{name}'"
        remedy = "name one that Python knows, such as cp1252, latin-1 or gbk"
    raise UserError(problem, remedy, "data.encoding")


def _decoded(content: bytes, encoding: str) -> str:
    """Return the text of some bytes; `encoding` counts where they are neither marked UTF-16 nor UTF-8.

    Text of another encoding is hardly ever valid UTF-8 by chance. So one setting serves a file and the UTF-8 that olr
    exports from it.
    """
    codecs.lookup(encoding)  # A misspelt name is an error, also where it does not count.
    if content.startswith(_UTF16_MARKS):
        return content.decode("utf-16")
    # UTF-16 without its mark and ISO-2022 may be ASCII, with control characters that no other text has.
    if not (content.isascii() and re.search(rb"[\0\x1b]", content)):
        with suppress(UnicodeDecodeError):
            return content.decode("utf-8-sig")
    return content.decode(encoding).removeprefix("\ufeff")


def read_lines(
    file: Path, *, is_cut: bool = False, encoding: str | None = None
) -> Iterator[str]:
    """The lines of a text file, whichever way they end, without a byte order mark; of UTF-8 one is in memory at a time.

    `is_cut`: the file may end within a character; of its last line a brace is returned then. `encoding`: as of
    `read_text`.
    """
    try:
        with regular(file).open("rb") as content:
            is_utf16 = content.read(2) in _UTF16_MARKS
        if is_utf16 or encoding not in (None, "utf-8"):
            yield from io.StringIO(read_text(file, encoding=encoding), newline=None)
            return
        with regular(file).open(encoding="utf-8-sig") as lines:
            yield from lines
    except OSError as error:
        raise UserError(
            f"{file} cannot be read: {error.strerror}", "check its name and permissions"
        ) from None
    except UnicodeDecodeError as error:
        if is_cut and error.reason == "unexpected end of data":
            yield "{"  # Python has not decoded any of that line
            return
        read_text(file, encoding=encoding)  # knows the byte
        raise


def storable(text: str) -> str:
    """Text as UTF-8 can hold it, with a question mark for half a surrogate pair: used and stored texts are the same."""
    return text.encode("utf-8", "replace").decode("utf-8")


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object that a reader of JSON finds as pairs.

    Raises:
        ValueError: it has a key twice with different values, of which Python would keep the last.
    """
    value = dict(pairs)
    if len(value) < len(pairs) and (
        lost := next((key for key, it in pairs if value[key] != it), None)
    ):
        raise ValueError(
            f"an object has the key '{lost[:60]}' twice, with different values; remove one"
        )
    return value


def read_json(file: Path) -> Any:
    """The value of a JSON file."""
    try:
        return json.loads(read_text(file), object_pairs_hook=object_of)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{file} is not valid JSON ({error})", "restore it from a copy"
        ) from None


def read_record(file: Path, version: int) -> Any:
    """The value of a JSON file of ours whose ``schema_version`` is `version` or older; of a foreign one, any value."""
    record = read_json(file)
    written = record.get("schema_version") if isinstance(record, dict) else None
    if isinstance(written, int) and written > version:
        raise UserError(
            f"{file} was written by a newer olr (schema {written}, this one reads {version})",
            "upgrade olr",
        )
    return record


def write_whole(
    target: Path, write: Callable[[Path], object], *, durable: bool = True
) -> None:
    """Let `write` fill a temporary file beside `target`, then rename it over `target`.

    If `durable`, it waits until the bytes are on the disk, so that the file survives a power cut.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with writing(target):
        temporary.unlink(missing_ok=True)  # it may be a link to something else
        if durable:
            sweep(target.parent)
        try:
            write(temporary)
            if durable:
                sync(temporary)
            os.replace(temporary, target)
            if durable:
                sync(target.parent)
        finally:
            temporary.unlink(missing_ok=True)


class _SameBytes(Exception):
    """Ends `write_whole` where the file is there already."""


def write_new(
    target: Path,
    write: Callable[[Path], object],
    place: str = "",
    *,
    replaces: bool = False,
) -> bool:
    """Let `write` fill a new file; return whether it was written: False if it was there already with the same bytes.

    A file with other content is refused, unless this `replaces` it; `place` is the argument that names it. So a
    command can be given twice.
    """

    def fill(path: Path) -> None:
        write(path)
        if not os.path.lexists(target):
            return
        if target.is_file() and filecmp.cmp(path, target, shallow=False):
            raise _SameBytes
        if not replaces:
            raise taken(target, ", with other content", place)

    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(_SameBytes):
        write_whole(target, fill)
        return True
    return False


def sweep(folder: Path, *, is_held: bool = False) -> None:
    """Remove temporary files of olr that are older than a minute and whose process has gone; in a held folder, all."""
    for leftover in folder.glob(".*.tmp"):
        process = leftover.name.split(".")[-2]
        with suppress(OSError):
            # On another host its process may live
            age = time.time() - leftover.lstat().st_mtime
            is_abandoned = age > _ABANDONED_SECONDS and not os.path.exists(
                f"/proc/{process}"
            )
            if process.isdecimal() and (is_held or is_abandoned):
                leftover.unlink()


def require_new(
    outputs: Mapping[str, Path | None], repeatable: Collection[str] = ()
) -> None:
    """Refuse output files before any work is done: what is there, two of one name, a place that cannot be written.

    Args:
        outputs: argument -> its file, if one was named.
        repeatable: arguments whose file may be there, since `write_new` replaces nothing.
    """
    places: dict[str, str] = {}
    for name, target in outputs.items():
        if target is None:
            continue
        if places.setdefault(os.path.realpath(target), name) != name:
            raise UserError(
                f"{target} is named for another output too", "choose another name", name
            )
        if os.path.lexists(target) and not (name in repeatable and target.is_file()):
            raise taken(target, place=name)
        folder = next(
            folder for folder in target.absolute().parents if os.path.lexists(folder)
        )
        refused = errno.ENOTDIR if not folder.is_dir() else errno.EACCES
        if refused == errno.ENOTDIR or not os.access(folder, os.W_OK | os.X_OK):
            raise UserError.of(
                f"{target} cannot be written, because of {folder}: {_USERS_TO_MEND[refused]}",
                remedy="choose another place",
                place=name,
            )


def require_table_name(target: Path | None) -> None:
    """Refuse a name that promises another format than Parquet or CSV, which tables are written as."""
    if target is not None and target.suffix not in (".parquet", ".csv"):
        if os.path.lexists(target):
            raise taken(target, place="out")
        raise UserError(
            f"{target}: the table is written as Parquet or CSV",
            "give it the ending .parquet or .csv",
            "out",
        )


def write_text(target: Path, text: str) -> None:
    """`write_whole` for UTF-8 text."""
    write_whole(target, lambda path: path.write_text(text, encoding="utf-8"))


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's entries, are on the disk; some file systems cannot tell."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
        departures.add(
            f"the file system cannot wait for the disk ({error.strerror}), so a power cut may cost files"
        )
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file, a link (never what it leads to) or a folder that nobody needs any more.

    What cannot be removed stays and is among `departures`: nothing is lost by it.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        if error.errno not in _STAYS:
            raise
        departures.add(
            f"{path} is not needed any more and could not be removed ({error.strerror})"
        )
