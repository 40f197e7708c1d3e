"""What everything else stands on: draws by name, the wording of errors, values by keys, packages, users' functions."""

import errno
import os
import time
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from cases import each, refusal

from olr_cli import errors, files, packages, seeding, user_code
from olr_cli.errors import NotHere, UserError, closest, no_path, printable, shortened, shown
from olr_cli.grouping import gathered
from olr_cli.user_code import is_function, load_function, raised_at, running, source_of

# Draws: stored runs are repeated by them, so they are the same for ever ------------------------------------------


@each(
    "parts, drawn",
    ((), 0xB4B2797457A0A6E4),
    (("order", 0, 1), 0x1B1AB4B6CB9F0A73),
    (("order", "0", 1), 0x637548C55CE5BF18),
    (("order", 0.0, 1), 0x2966BAEE19FDACFF),
    (("\ud800",), 0xCA6104F2C81A17C9),
)
def test_a_key_is_a_function_of_its_parts_and_their_types(parts, drawn):
    assert seeding.key(*parts) == drawn
    assert seeding.uniform(*parts) == (drawn >> 11) / 2**53


def test_a_permutation_is_sorted_by_the_keys_of_its_places():
    assert seeding.permutation(8, "order", 0, 1) == [6, 3, 2, 0, 5, 1, 4, 7]
    assert sorted(seeding.permutation(50, "x")) == list(range(50))


def test_rollouts_draw_by_purpose_seed_epoch_prompt_and_number_alone():
    keys = seeding.rollout_keys("rollout", 3, 2, ["a", "b"], 2)
    expected = [[seeding.key("rollout", 3, 2, name, g) for g in range(2)] for name in "ab"]
    assert (keys.tolist(), keys.dtype) == (expected, np.uint64)


def test_a_stream_is_splitmix64():
    stream = [
        seeding.uniform_streams(np.array([[1234567]], dtype=np.uint64), place)
        for place in range(3)
    ]
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [float(it[0, 0]) for it in stream] == [(it >> 11) / 2**53 for it in known]


# Values by keys ---------------------------------------------------------------------------------------------------


def test_values_are_gathered_in_the_order_in_which_they_come():
    assert [*gathered([("b", 1), ("a", 2), ("b", 0)]).items()] == [
        ("b", [1, 0]),
        ("a", [2]),
    ]


# Errors -----------------------------------------------------------------------------------------------------------


@each(
    "error, sentence",
    (UserError("it is so", "change it"), "it is so; change it"),
    (
        UserError("it is so", "change it", "train.epochs"),
        "train.epochs: it is so; change it",
    ),
    (UserError.of("a; b; c", remedy="correct it"), "a; b; c"),
    (UserError.of("a", remedy="correct it", place="x"), "x: a; correct it"),
    (UserError("one\ntwo\x1b", "no"), "one\\ntwo\\x1b; no"),
)
def test_an_error_is_place_problem_and_remedy_on_a_line(error, sentence):
    assert str(error) == sentence


def test_the_remedy_of_a_sentence_is_what_follows_its_last_semicolon():
    error = UserError.of("a; b; c", remedy="correct it", place="x")
    assert (error.problem, error.remedy, error.place) == ("a; b", "c", "x")


def test_a_long_error_loses_its_middle():
    assert len(str(UserError("a" * 2996, "no"))) == 3000
    cut = str(UserError("a" * 2997, "no"))
    assert cut == f"{'a' * 1500} … {'a' * 1496}; no"


def test_a_place_is_given_to_errors_that_have_none():
    for own, expected in (("", "outer"), ("own", "own")):
        with pytest.raises(UserError) as caught, errors.at("outer"):
            raise UserError("no", "say yes", own)
        assert caught.value.place == expected


@each(
    "text, keep, expected",
    ("a\tb\nc\xa0d", None, "a\tb\nc\xa0d"),
    ("a\tb", "", "a\\tb"),
    ("é\u202e\x00", None, "é\\u202e\\x00"),
)
def test_control_characters_are_escaped(text, keep, expected):
    assert (printable(text) if keep is None else printable(text, keep)) == expected


@each(
    "sentence, letters, style",
    ("Error: no", 5, "bold red"), ("Warning: so", 7, "yellow"), ("Note: so", 4, "cyan"), ("Stopped", 7, "yellow"),
    ("Finished", 8, "bold green"), ("Next olr", 4, "bold"), ("An Error", 0, ""),
)  # fmt: skip
def test_the_first_word_of_a_sentence_has_a_style(sentence, letters, style):
    assert errors.style_of(sentence) == (letters, style)


@each(
    "value, text",
    (None, "null"), (True, "true"), (False, "false"), (1, "1"), (0, "0"), ("x", "'x'"),
    ("a" * 58, f"'{'a' * 58}'"), ("a" * 59, f"'{'a' * 56}..."),
)  # fmt: skip
def test_values_are_shown_as_yaml_has_them_and_shortened(value, text):
    assert shown(value) == text
    assert len(shortened(text)) <= 60


@each(
    "name, known, found",
    ("quikstart", ["quickstart", "quik"], "quickstart"),
    ("epoch", ["epochal", "epochs"], "epochs"),
    ("max", ["minmax", "maximum", "maxima"], "maxima"),
    ("abcdef", ["abcxyz", "abcdxy"], "abcdxy"),
    ("abc", ["xyz"], None),
    ("", ["a"], None),
)
def test_the_closest_name_is_nearly_the_same_then_begun_then_alike(name, known, found):
    assert closest(name, known) == found
    hint = f" (did you mean '{found}'?)" if found else ""
    assert errors.did_you_mean(name, known) == hint
    assert str(errors.unknown("x", name, known)) == (
        f"x: there is no '{name}'{hint}; known: {', '.join(known)}"
    )


def test_a_path_that_is_not_there_names_its_neighbour_or_the_folder_that_lacks_too(here):
    Path("notes.txt").touch()
    Path("folder").mkdir()
    os.symlink("nowhere", "link")
    os.mkfifo("pipe")
    for path, known, said in (
        ("note.txt", (), "note.txt does not exist (did you mean 'notes.txt'?); check the name"),
        ("olr2", ("olr",), "olr2 does not exist (did you mean 'olr'?); check the name"),
        ("zzz", (), "zzz does not exist; check the name"),
        ("a/b", (), "a/b does not exist, nor does the folder a; check the name"),
        ("notes.txt", (), "notes.txt is a file, which cannot be used here; check the name"),
        ("folder", (), "folder is a folder, which cannot be used here; check the name"),
        ("link", (), "link is a link that leads nowhere, which cannot be used here; check the name"),
        ("pipe", (), "pipe is neither a file nor a folder, which cannot be used here; check the name"),
    ):  # fmt: skip
        assert str(no_path(path, known=known)) == said


def test_a_dry_run_notes_what_is_missing_here_and_raises_the_rest():
    missing = []
    with errors.noting(missing):
        raise NotHere("no GPU", "find one")
    assert missing == ["no GPU; find one"]
    for error, into in ((NotHere("no GPU", "find one"), None), (UserError("no", "so"), [])):
        with pytest.raises(UserError), errors.noting(into):
            raise error
        assert not into


def test_the_causes_of_an_error_are_those_that_its_traceback_shows():
    def chain(raise_second):
        try:
            try:
                raise KeyError("first")
            except KeyError as error:
                raise_second(error)
        except ValueError as error:
            return [type(it) for it in errors.causes(error)]

    def during(_):
        raise ValueError

    def from_it(error):
        raise ValueError from error

    def from_none(_):
        raise ValueError from None

    assert [*map(chain, (during, from_it, from_none))] == [
        [ValueError, KeyError],
        [ValueError, KeyError],
        [ValueError],
    ]


@each("text, line", ("No.\nMore", "No"), ("", "ValueError"), ("a" * 161, "a" * 160))
def test_the_first_line_of_anothers_error(text, line):
    assert errors.first_line(ValueError(text)) == line


# Packages ---------------------------------------------------------------------------------------------------------


def test_a_missing_package_names_the_extra_that_installs_it(monkeypatch):
    assert str(packages.not_installed("wandb", "logging.wandb")) == (
        "logging.wandb needs the package wandb, which is not installed; pip install '.[wandb]' in a clone of olr"
    )
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    for name, found in (("vllm.config", "vllm"), ("torch", "torch"), ("numpy", None), (None, None)):  # fmt: skip
        assert packages.missing_package(ModuleNotFoundError(name=name)) == found
    monkeypatch.setattr(packages, "find_spec", lambda name: object())
    assert packages.missing_package(ModuleNotFoundError(name="torch")) is None, "a bug"


@each(
    "version, wanted, is_it",
    ("2.13.0+cpu", "2.13", True), ("2.13", "2.13", True), ("2.130.0", "2.13", False), ("2.1", "2.13", False),
    ("absent", "2.13", False),
)  # fmt: skip
def test_a_version_is_wanted_by_its_first_parts(version, wanted, is_it):
    assert packages.is_version(version, wanted) is is_it


@each(
    "torch, transformers, sentences",
    ("2.13.0+cpu", "5.15.1", []),
    ("2.10.0", "5.15.1", ["that runs repeat bit for bit was tested with torch 2.13, not with torch 2.10.0"]),
    (None, "4.0", ["that runs repeat bit for bit was tested with torch 2.13 and transformers 5.15, not with torch"
                   " absent and transformers 4.0"]),
)  # fmt: skip
def test_untested_versions_are_one_sentence(monkeypatch, torch, transformers, sentences):
    here = {"torch": torch, "transformers": transformers}
    monkeypatch.setattr(packages, "installed_version", here.get)
    assert packages.untested_versions() == sentences


def test_a_package_that_is_not_installed_has_no_version():
    assert packages.installed_version("olr-of-nowhere") is None
    assert packages.installed_version("numpy") == np.__version__


@each(
    "here, error, requires, said",
    (None, ImportError("torchvision"), [], None),
    ("0.1", ImportError("other"), [], None),
    ("0.1", ImportError("torchvision::nms"), ["numpy", "torch (==2.9.1)"], "torch 2.9.1, and torch 0.1 is"),
    ("0.1", ImportError("torchvision::nms"), ["torch==2.9.1"], "torch 2.9.1, and torch 0.1 is"),
    ("0.1", ImportError("torchvision::nms"), ["pytorch==1"], "torch of another version, and torch 0.1 is"),
    ("0.1", ImportError("torchvision::nms"), None, "torch of another version, and torch 0.1 is"),
)  # fmt: skip
def test_a_torchvision_for_another_torch_is_named(monkeypatch, here, error, requires, said):
    monkeypatch.setattr(packages, "installed_version", lambda _: here)
    monkeypatch.setattr("importlib.metadata.requires", lambda _: requires)
    sentence = packages.unfit_torchvision(error)
    assert (sentence is None) if said is None else said in sentence


# Functions of the user's ------------------------------------------------------------------------------------------


@each(
    "setting, is_it",
    (None, False), ("boxed", False), ("regex:x", False), ("after:####", False), ("tag:answer", False),
    ("mine:read", True), ("mine.py:read", True),
)  # fmt: skip
def test_a_setting_with_a_colon_is_a_function_but_for_three_kinds(setting, is_it):
    assert is_function(setting) is is_it


def test_a_function_is_loaded_from_a_file_or_a_module_of_the_users(here, monkeypatch):
    text = "def read(text):\n    return text.missing\n\nnumber = 3\n"
    Path("mine.py").write_text(text)
    Path("olr_test_mine.py").write_text(text)
    path = [*user_code.sys.path]
    for place in ("mine.py:read", "olr_test_mine:read"):
        function = load_function(place)
        assert source_of(place) == text
        with pytest.raises(UserError) as caught, running("reading", "data.extractor"):
            function("x")
        assert str(caught.value).startswith(
            "data.extractor: reading raised AttributeError: 'str' object has no attribute 'missing', "
        )
        assert str(caught.value).endswith(
            f"{place.partition(':')[0].removesuffix('.py')}.py line 2; fix it"
        )
    assert user_code.sys.path == path
    Path("broken.py").write_text("import nothing_of_this_name\n")
    for place, said in (
        ("mine.py:number", f"mine.py:number: {here / 'mine.py'} has no function number; check the name"),
        ("mine.py:absent", f"mine.py:absent: {here / 'mine.py'} has no function absent; check the name"),
        ("no.py:read", f"no.py:read: {here / 'no.py'} does not exist; check the name"),
        ("broken.py:read", f"broken.py:read: {here / 'broken.py'} raised ModuleNotFoundError: No module named"
         f" 'nothing_of_this_name', {here / 'broken.py'} line 1; fix it"),
        ("olr_nowhere:read", f"olr_nowhere:read: importing olr_nowhere from {here} raised ModuleNotFoundError: No"
         " module named 'olr_nowhere'; fix it"),
    ):  # fmt: skip
        assert refusal(load_function, place) == said
    assert user_code.sys.path == path


def test_a_file_of_the_same_name_in_another_folder_is_another(here, monkeypatch):
    for name in ("one", "two"):
        Path(here, name).mkdir()
        monkeypatch.chdir(here / name)
        Path("mine.py").write_text(f"def read(text):\n    return '{name}'\n")
        assert load_function("mine.py:read")("x") == name


@each(
    "place",
    "os:system",
    "olr_cli.errors:shown",
    "subprocess:run",
    "a b:read",
    "mine:1x",
    "x.:y",
)
def test_what_is_no_function_of_the_users_is_not_loaded(place):
    assert f"{place} names no function of yours; give package.module:function" in refusal(
        load_function, place
    )


def test_an_error_without_code_of_the_users_has_no_line():
    assert raised_at(ValueError("no.\nmore")) == "ValueError: no"


# Files ------------------------------------------------------------------------------------------------------------


@each("name", "mine.parquet", "mine.csv", None)
def test_a_table_is_parquet_or_csv(name):
    files.require_table_name(name and Path(name))


def test_a_table_of_another_name_is_refused(here):
    Path("there.json").touch()
    assert refusal(files.require_table_name, Path("x.json")) == (
        "out: x.json: the table is written as Parquet or CSV; give it the ending .parquet or .csv"
    )
    assert refusal(files.require_table_name, Path("there.json")) == (
        "out: there.json exists already; choose another name"
    )


def test_outputs_are_refused_before_any_work(here):
    Path("there").touch()
    Path("folder").mkdir()
    for outputs, repeatable, said in (
        ({"out": Path("a"), "log": Path("./a")}, (), "log: a is named for another output too; choose another name"),
        ({"out": Path("there")}, (), "out: there exists already; choose another name"),
        ({"out": Path("folder")}, ("out",), "out: folder exists already; choose another name"),
        ({"out": Path("there/x/y")}, (), f"out: there/x/y cannot be written, because of {here / 'there'}: there is"
         " a file where a folder is needed; choose another place"),
    ):  # fmt: skip
        assert refusal(files.require_new, outputs, repeatable) == said
    files.require_new({"out": Path("there"), "log": Path("new/a"), "no": None}, ("out",))


def test_a_folder_that_may_not_be_written_is_refused(here, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK | os.X_OK)
    assert "you may not write there; change the permissions" in refusal(
        files.require_new, {"out": Path("a")}
    )


def test_a_new_file_is_written_once_and_never_over_another(here):
    target = Path("deep/er/a.txt")
    for text, replaces, is_written in (("x", False, True), ("x", False, False), ("y", True, True)):  # fmt: skip

        def write(path, text=text):
            path.write_text(text)

        assert files.write_new(target, write, replaces=replaces) is is_written
        assert target.read_text() == text
    assert refusal(files.write_new, target, lambda path: path.write_text("z"), "out") == (
        "out: deep/er/a.txt exists already, with other content; choose another name"
    )
    assert (target.read_text(), os.listdir(target.parent)) == ("y", ["a.txt"])


def test_what_failed_leaves_the_file_as_it_was_and_no_other(here):
    files.write_text(Path("a"), "old")

    def fail(path):
        path.write_text("half")
        raise ValueError

    for durable in (True, False):
        with pytest.raises(ValueError):
            files.write_whole(Path("a"), fail, durable=durable)
    assert (Path("a").read_text(), os.listdir()) == ("old", ["a"])


def test_a_file_is_on_the_disk_before_it_has_its_name_and_then_so_is_its_folder(
    here, monkeypatch
):
    waited = []
    monkeypatch.setattr(
        files, "sync", lambda path: waited.append((path.suffix, os.path.exists("a")))
    )
    files.write_text(Path("a"), "x")
    assert waited == [(".tmp", False), ("", True)]
    files.write_whole(Path("b"), lambda path: path.write_text("x"), durable=False)
    assert len(waited) == 2


def test_what_lies_where_a_file_is_filled_is_neither_followed_nor_left(here):
    Path("mine").write_text("kept")
    os.symlink("mine", f".a.{os.getpid()}.tmp")
    gone = Path(f".a.{2**22 + 1}.tmp")
    gone.touch()
    os.utime(gone, times=(0, 0))
    files.write_whole(Path("a"), lambda path: path.write_text("x"), durable=False)
    assert (Path("a").read_text(), Path("mine").read_text()) == ("x", "kept")
    assert gone.exists()
    files.write_text(Path("a"), "y")
    assert sorted(os.listdir()) == ["a", "mine"]


@each("is_held", False, True)
def test_only_what_is_old_and_whose_process_has_gone_is_swept(here, is_held):
    gone, mine = 2**22 + 1, os.getpid()
    names = (f".a.{gone}.tmp", f".b.{gone}.tmp", f".c.{mine}.tmp", ".d.x.tmp")
    for name, age in zip(names, (70, 50, 70, 70), strict=True):
        Path(name).touch()
        os.utime(name, times=(time.time() - age,) * 2)
    files.sweep(here, is_held=is_held)
    left = [] if is_held else [f".b.{gone}.tmp", f".c.{mine}.tmp"]
    assert sorted(os.listdir()) == [*left, ".d.x.tmp"]


@each(
    "text, said",
    ('{"a": 1, "a": 1}', None),
    ('{"a": 1, "b": 2}', None),
    (
        '{"a": 1, "a": 2}',
        "an object has the key 'a' twice, with different values; remove one",
    ),
    ("{", "is not valid JSON (Expecting property name"),
    ("[" * 100_000, "is not valid JSON (maximum recursion"),
)
def test_json_is_read_but_for_a_key_with_two_values(here, text, said):
    Path("a.json").write_text(text)
    if said is None:
        assert files.read_json(Path("a.json"))["a"] == 1
    else:
        assert said in refusal(files.read_json, Path("a.json"))


@each(
    "text, is_newer",
    ('{"schema_version": 2}', True), ('{"schema_version": 1}', False), ('{"schema_version": "9"}', False),
    ("{}", False), ("[9]", False),
)  # fmt: skip
def test_what_a_newer_olr_wrote_is_not_read(here, text, is_newer):
    Path("a.json").write_text(text)
    if is_newer:
        assert refusal(files.read_record, Path("a.json"), 1) == (
            "a.json was written by a newer olr (schema 2, this one reads 1); upgrade olr"
        )
    else:
        assert files.read_record(Path("a.json"), 1) == files.read_json(Path("a.json"))


def test_a_file_of_settings_has_a_largest_size(here):
    Path("a").write_bytes(b"x" * 2048)
    assert files.read_text(Path("a"), at_most=2048) == "x" * 2048
    assert refusal(files.read_text, Path("a"), at_most=2047) == (
        "a has more than the 1 KiB that a file of settings may have; check what it is"
    )


@each(
    "content, encoding, text",
    (b"\xef\xbb\xbfa", None, "a"),
    ("\ufeffä".encode("utf-16-le"), None, "ä"),
    ("\ufeffä".encode("utf-16-be"), "cp1252", "ä"),
    ("ä".encode(), "cp1252", "ä"),
    (b"\xe4", "cp1252", "ä"),
    ("ab".encode("utf-16-le"), "utf-16-le", "ab"),
    ("あ".encode("iso2022_jp"), "iso2022_jp", "あ"),
)
def test_a_text_is_utf8_or_marked_utf16_else_of_its_encoding(here, content, encoding, text):
    Path("a").write_bytes(content)
    assert files.read_text(Path("a"), encoding=encoding) == text
    assert [*files.read_lines(Path("a"), encoding=encoding)] == [text]


@each(
    "encoding, said",
    (None, "a is not UTF-8 text (invalid continuation byte at byte 0); save it as UTF-8"),
    ("ascii", "data.encoding: a is not ASCII text (ordinal not in range(128) at byte 0); save it as UTF-8, or name its"
     " encoding, as in data.encoding=cp1252"),
    ("cp1252", "data.encoding: a is not CP1252 text (character maps to <undefined> at byte 1); save it as UTF-8, or"
     " name its encoding, as in data.encoding=latin-1"),
)  # fmt: skip
def test_a_text_of_another_encoding_is_one_sentence(here, encoding, said):
    Path("a").write_bytes(b"\xe4\x81x")
    assert refusal(files.read_text, Path("a"), encoding=encoding) == said
    assert refusal(lambda: [*files.read_lines(Path("a"), encoding=encoding)]) == said


def test_a_last_line_that_is_cut_within_a_character_is_a_brace(here):
    Path("a").write_bytes("x\nä".encode()[:-1])
    assert [*files.read_lines(Path("a"), is_cut=True)] == ["x\n", "{"]
    assert "unexpected end of data" in refusal(lambda: [*files.read_lines(Path("a"))])
    Path("a").write_bytes(b"x\n\xe4y\n")
    assert "byte 2" in refusal(lambda: [*files.read_lines(Path("a"), is_cut=True)])


def test_half_a_surrogate_pair_is_stored_as_a_question_mark():
    assert files.storable("a\ud800ä") == "a?ä"


@each(
    "error, is_it",
    (MemoryError(), True), (RuntimeError("CUDA out of memory"), True),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True), (RuntimeError("memory"), False),
)  # fmt: skip
def test_too_little_memory_is_known_by_type_or_text(error, is_it):
    assert files.is_out_of_memory(error) is is_it


@each(
    "error, number",
    (OSError(errno.ENOSPC, "x"), errno.ENOSPC), (OSError("x"), 0), (ValueError("x"), 0),
    (RuntimeError(f"ray: {os.strerror(errno.ENOSPC)}"), errno.ENOSPC),
)  # fmt: skip
def test_the_systems_number_is_found_behind_an_error(error, number):
    assert files.error_number(error) == number
    is_systems = number == errno.ENOSPC
    assert files.system_problem(error) == (
        "the disk is full; make room and try again" if is_systems else None
    )


def test_without_a_temporary_folder_the_remedy_is_tmpdir():
    error = OSError("No usable temporary directory found in ['/tmp']")
    assert files.system_problem(error) == "set TMPDIR to a folder that may be written"


def test_a_digest_is_of_names_and_contents(here):
    Path("a").write_text("x")
    Path("b").write_text("x")
    text = f"a {sha256(b'x').hexdigest()}\n".encode()
    assert files.digest_of([Path("a")]) == sha256(text).hexdigest()
    assert files.digest_of([Path("a")]) != files.digest_of([Path("b")])


def test_a_file_system_that_cannot_wait_is_a_departure(here, monkeypatch):
    monkeypatch.setattr(files, "departures", set())
    for number, is_noted in ((errno.EINVAL, True), (errno.EIO, False)):

        def fail(_, number=number):
            raise OSError(number, "no")

        monkeypatch.setattr(os, "fsync", fail)
        if is_noted:
            files.sync(here)
        else:
            with pytest.raises(OSError):
                files.sync(here)
    assert files.departures == {
        "the file system cannot wait for the disk (no), so a power cut may cost files"
    }


def test_what_is_not_needed_is_removed_or_a_departure_and_a_link_leads_to_no_loss(
    here, monkeypatch
):
    monkeypatch.setattr(files, "departures", set())
    Path("folder/deep").mkdir(parents=True)
    Path("file").touch()
    os.symlink("folder", "link")
    for name in ("link", "file", "absent"):
        files.remove(Path(name))
    assert os.listdir() == ["folder"]
    for number, is_noted in ((errno.EBUSY, True), (errno.ELOOP, False)):

        def fail(_, number=number):
            raise OSError(number, "no")

        with monkeypatch.context() as patched:
            patched.setattr(files.shutil, "rmtree", fail)
            if is_noted:
                files.remove(Path("folder"))
            else:
                with pytest.raises(OSError):
                    files.remove(Path("folder"))
    assert files.departures == {
        "folder is not needed any more and could not be removed (no)"
    }
    files.remove(Path("folder"))
    assert os.listdir() == []
