"""Files that appear completely or not at all, and text files that are read as a whole."""

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

_SYSTEM_ERRORS = {
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
"""Errors of the system as a whole, not of the file being read or written."""
_REMEDIES = {
    **_SYSTEM_ERRORS,
    errno.EEXIST: "there is a file where a folder is needed; choose another place",
    errno.ENOTDIR: "there is a file where a folder is needed; choose another place",
    errno.EISDIR: "there is a folder of that name; choose another name",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.EACCES: "you may not write there; change the permissions or choose another folder",
    errno.EPERM: "you may not write there; change the permissions or choose another folder",
    errno.EROFS: "the file system is read-only; choose another folder",
}
"""Error number -> problem and remedy, for every error that the user can fix."""

_WRITING_ERRORS = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EACCES, errno.EPERM, errno.EROFS,
}  # fmt: skip
"""Errors that only writing a file raises, for callers that do not know which operation failed."""

_NO_SYNC = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
"""Errors of file systems that have no fsync; the write itself succeeded."""

_STAYS = {errno.EBUSY, errno.ENOTEMPTY, errno.EIO, errno.EACCES, errno.EPERM, errno.EROFS}
"""Errors after which a file that is not needed any more may stay."""

_ABANDONED_SECONDS = 60
"""Minimum age of a temporary file before `sweep` removes it."""

_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Byte order marks of UTF-16, which Excel ("Unicode text") and PowerShell write; UTF-8 cannot begin with them."""

departures: set[str] = set()
"""Limits of the file system that olr works around, as sentences; the manifest of a run lists them."""


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Raise a UserError if the block fails because `target` cannot be written, for example on a full disk.

    Any other error of the block is raised as it is.
    """
    try:
        yield
    # Not only OSError: torch, polars and safetensors hide it in errors of their own (`error_number`).
    except Exception as error:
        problem = _REMEDIES.get(error_number(error))
        if problem is None:
            raise
        raise UserError.of(
            f"{target} could not be written: {problem}", remedy="choose another place"
        ) from error


def system_problem(error: BaseException) -> str | None:
    """Return what to tell the user about an error of the disk or the operating system; None for any other error.

    Examples are a full disk and too many open files. The text has the form ``problem; remedy``. If the system has no
    usable temporary folder, the text is only the remedy, because the message of the error itself names the problem.
    """
    # tempfile raises this, and torch calls tempfile when it is imported.
    if "No usable temporary directory" in str(error):
        return "set TMPDIR to a folder that may be written"
    return _SYSTEM_ERRORS.get(error_number(error))


@contextmanager
def naming_the_disks_error(folder: Path) -> Iterator[None]:
    """Run the block; if it fails because `folder` cannot be written to, raise the system's error, which says why.

    torch only raises a RuntimeError that does not. After any RuntimeError, 1 MiB is therefore written to `folder` as a
    test. If the test fails, its OSError is raised; otherwise the block's own error.
    """
    try:
        yield
    except RuntimeError:
        # On a full disk, torch.save only says "unexpected pos 4544 vs 4438".
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(2**20))
        raise


def disk_problem(error: BaseException) -> str | None:
    """Return ``problem; remedy`` for an error that says that a file cannot be written; None for any other error."""
    number = error_number(error)
    return _REMEDIES[number] if number in _WRITING_ERRORS else None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error, by its type or its text, says that the machine or a GPU ran out of memory."""
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or "out of memory" in text
        or "allocate memory" in text
    )


def error_number(error: BaseException) -> int:
    """Return the operating system's error number (errno) behind an exception, or 0 if there is none.

    The number comes from the first OSError among the exception and its causes. Otherwise, the exception's text is
    searched for a message of the system, such as ``No space left on device``, because safetensors, polars and Ray only
    quote it.
    """
    for cause in causes(error):
        if not isinstance(cause, OSError):
            continue
        if cause.errno:
            return cause.errno
        # An OSError of polars has no number; like every error of Rust, it ends in "(os error 13)".
        if quoted := re.search(r"\(os error (\d+)\)", str(cause)):
            return int(quoted[1])
    return next(
        (number for number in _SYSTEM_ERRORS if os.strerror(number) in str(error)), 0
    )


def regular(file: Path) -> Path:
    """Return `file` unchanged; raise UserError for a pipe, a device or a socket, because reading it may never end.

    A folder or a missing file is returned too. Opening it raises the usual error.
    """
    if os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file):
        raise UserError(
            f"{file} is a pipe, a device or a socket",
            "olr reads files alone, so write what it would hold into one",
        )
    return file


def digest_of(files: Iterable[Path]) -> str:
    """Return one SHA-256, in hexadecimal, over the names and contents of files in the given order.

    The folders of the files make no difference. Raise UserError if a file is a pipe, a device or a socket.
    """
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
    """Return the text of a file without its byte order mark.

    The file may be UTF-8, or UTF-16 with a byte order mark. If it is neither, it is read in `encoding`.

    Args:
        file: the file to read.
        at_most: the largest allowed size in bytes; None for any.
        encoding: the value of the recipe's `data.encoding`; an error then tells the user to change that key. None if
            the file must be UTF-8 or UTF-16.

    Raises:
        UserError: the file cannot be read, is too large, or is not text in these encodings, or there is no such
            encoding.
    """
    try:
        with regular(file).open("rb") as source:
            # One byte more than the limit shows that the file is too large without reading all of it.
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
        # The usual encodings of Western European text; suggest the one that has just failed to decode the file last.
        other = "latin-1" if name == "cp1252" else "cp1252"
        remedy = f"{remedy}, or name its encoding, as in data.encoding={other}"
    except (LookupError, ValueError):
        problem = f"there is no encoding '{name}'"
        remedy = "name one that Python knows, such as cp1252, latin-1 or gbk"
    raise UserError(problem, remedy, "data.encoding")


def _decoded(content: bytes, encoding: str) -> str:
    """Decode the bytes of a file; `encoding` is used only if they are neither UTF-8 nor UTF-16 with a byte order mark.

    Raises:
        UnicodeDecodeError: the bytes cannot be decoded.
        LookupError: there is no such encoding; raised even if it is not needed.
    """
    # A misspelt name raises even if the encoding is not needed for this file.
    codecs.lookup(encoding)
    if content.startswith(_UTF16_MARKS):
        return content.decode("utf-16")
    # UTF-8 first, because text in another encoding is hardly ever valid UTF-8. What olr exports is UTF-8, so an export
    # can be read with the same `encoding` as the file that it was made from.
    # UTF-16 without its mark and ISO-2022 can be pure ASCII bytes. They then contain NUL or ESC, which other text never
    # does.
    if not (content.isascii() and re.search(rb"[\0\x1b]", content)):
        with suppress(UnicodeDecodeError):
            return content.decode("utf-8-sig")
    return content.decode(encoding).removeprefix("\ufeff")


def read_lines(
    file: Path, *, is_cut: bool = False, encoding: str | None = None
) -> Iterator[str]:
    """Yield the lines of a text file without its byte order mark; every line ending becomes a line feed.

    UTF-8 is read line by line. In any other encoding, the whole file is read first. Raise UserError if the file cannot
    be read or decoded.

    Args:
        file: the file to read.
        is_cut: whether the file may end inside a character, because its writer was stopped. If it does, its last line
            is yielded as ``{``, which is invalid JSON: readers of logs treat it as a line that was cut off.
        encoding: the value of the recipe's `data.encoding`, for a file that is neither UTF-8 nor UTF-16 with a byte
            order mark. None if the file must be UTF-8 or UTF-16.
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
            # Python has not decoded any of that line. A lone brace is invalid JSON, so readers of logs treat it as a
            # line cut off.
            yield "{"
            return
        # Decode everything once more, because its error names the position of the bad byte.
        read_text(file, encoding=encoding)
        raise


def storable(text: str) -> str:
    """Return the text with a question mark for each character that UTF-8 cannot hold (a lone surrogate).

    Call this as soon as a text comes in. Otherwise the text that is used could differ from the text that is stored.
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the key-value pairs of a JSON object as a dictionary; for `json.loads` (``object_pairs_hook``).

    Raises:
        ValueError: a key comes twice with different values. Python alone would keep the last one without an error.
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
    """Return the value of a JSON file; raise UserError if it is not JSON, or a key has two values in one object."""
    try:
        return json.loads(read_text(file), object_pairs_hook=object_of)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{file} is not valid JSON ({error})", "restore it from a copy"
        ) from None


def read_record(file: Path, version: int) -> Any:
    """Return the value of a JSON file that olr has written.

    Raise UserError if a newer olr has written it: the file's `schema_version` is above `version`, the newest that this
    code can read. A file without `schema_version` is accepted.
    """
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
    """Write a file completely or not at all: a temporary file is filled and then replaces `target`.

    Raise UserError if the file cannot be written, as on a full disk.

    Args:
        target: the file.
        write: called with the path of the temporary file, to which it writes the content.
        durable: whether to wait until the bytes are on the disk, so that the file survives a power cut.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with writing(target):
        # Somebody may have put a link there, and writing through it would overwrite another file.
        temporary.unlink(missing_ok=True)
        if durable:
            sweep(target.parent)
        try:
            write(temporary)
            if durable:
                sync(temporary)
            os.replace(temporary, target)
            if durable:
                # The new name is an entry of the folder, which the disk stores separately from the file.
                sync(target.parent)
        except FileNotFoundError:  # as in /proc
            raise not_made(target) from None
        finally:
            temporary.unlink(missing_ok=True)


class _SameBytes(Exception):
    """Raised inside `write_whole` to keep the existing file, because it has the same bytes as the new one."""


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents; do nothing if the folder exists.

    Raises:
        UserError: no folder can be made there.
    """
    with writing(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:  # as below /proc
            raise not_made(folder) from None


def not_made(place: Path) -> UserError:
    """Return the error for a file or folder that cannot be made where the user wants it, as in /proc."""
    return UserError(f"{place} cannot be made", "choose another folder")


def write_new(
    target: Path,
    write: Callable[[Path], object],
    place: str = "",
    *,
    replaces: bool = False,
) -> bool:
    """Write a file, unless it already exists with the same bytes; return whether it was written.

    The same command can therefore run twice without an error. If the file exists with other content, it is replaced if
    `replaces` is True; otherwise UserError is raised.

    Args:
        target: the file.
        write: called with the path of a temporary file, to which it writes the content.
        place: the command's argument that names the file, for the error.
        replaces: whether other content may be replaced.
    """

    def fill(path: Path) -> None:
        write(path)
        if not os.path.lexists(target):
            return
        if target.is_file() and filecmp.cmp(path, target, shallow=False):
            raise _SameBytes
        if not replaces:
            raise taken(target, ", with other content", place)

    make_folder(target.parent)
    with suppress(_SameBytes):
        write_whole(target, fill)
        return True
    return False


def sweep(folder: Path, *, is_held: bool = False) -> None:
    """Remove temporary files that olr has left in a folder because its process was killed.

    A file is removed if it is at least a minute old and the process that wrote it has ended.

    Args:
        folder: the folder.
        is_held: whether this process has locked the folder. No other process can then be writing there, so all
            temporary files of olr are removed.
    """
    for leftover in folder.glob(".*.tmp"):
        process = leftover.name.split(".")[-2]
        with suppress(OSError):
            # On a network file system the writer may run on another host, where /proc here says nothing; so wait a
            # minute too.
            age = time.time() - leftover.lstat().st_mtime
            is_abandoned = age > _ABANDONED_SECONDS and not os.path.exists(
                f"/proc/{process}"
            )
            if process.isdecimal() and (is_held or is_abandoned):
                leftover.unlink()


def require_new(
    outputs: Mapping[str, Path | None], repeatable: Collection[str] = ()
) -> None:
    """Raise UserError if a command will not be able to write its outputs; call this before the command does any work.

    Outputs cannot be written if a file exists already, two outputs are one file, or a folder cannot be written to.

    Args:
        outputs: name of a command's argument -> path of the file that the user gave for it, or None if none was given.
        repeatable: names of the arguments whose files may exist. The command must write these files with `write_new`,
            which checks their content.
    """
    argument_by_path: dict[str, str] = {}
    for name, target in outputs.items():
        if target is None:
            continue
        # `realpath`, because two names may lead to one file through a link.
        if argument_by_path.setdefault(os.path.realpath(target), name) != name:
            raise UserError(
                f"{target} is named for another output too", "choose another name", name
            )
        if os.path.lexists(target) and not (name in repeatable and target.is_file()):
            raise taken(target, place=name)
        # Missing folders are made later, so the nearest existing one decides whether that will work.
        folder = next(
            folder for folder in target.absolute().parents if os.path.lexists(folder)
        )
        refused = errno.ENOTDIR if not folder.is_dir() else errno.EACCES
        if refused == errno.ENOTDIR or not os.access(folder, os.W_OK | os.X_OK):
            raise UserError.of(
                f"{target} cannot be written, because of {folder}: {_REMEDIES[refused]}",
                remedy="choose another place",
                place=name,
            )


def require_table_name(target: Path | None) -> None:
    """Raise UserError if the name of a file for a table ends neither in .parquet nor in .csv; None is allowed."""
    if target is not None and target.suffix not in (".parquet", ".csv"):
        if os.path.lexists(target):
            raise taken(target, place="out")
        raise UserError(
            f"{target}: the table is written as Parquet or CSV",
            "give it the ending .parquet or .csv",
            "out",
        )


def write_text(target: Path, text: str) -> None:
    """Write a text as UTF-8, completely or not at all (`write_whole`)."""
    write_whole(target, lambda path: path.write_text(text, encoding="utf-8"))


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's entries, are on the disk.

    If the file system cannot do this, return at once, and add a sentence about it to `departures`, for a run's
    manifest.
    """
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
    """Remove a file, a folder or a link that is not needed any more; the target of a link stays.

    If the operating system refuses, the path stays and no error is raised. A sentence about it is then added to
    `departures`, for a run's manifest.
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
