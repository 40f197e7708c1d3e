"""What `make mutants` changes, which tests it runs on a change, and what it says of them."""

import ast
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import mutate
import pytest
from cases import each
from mutations import mutants_of


def changes(source):
    """The changed lines of a piece of code, without the parentheses that keep a change in its place."""
    return {
        next(
            new
            for new, old in zip(
                mutant.source.splitlines(), source.splitlines(), strict=True
            )
            if new != old
        ).strip()
        for mutant in mutants_of(source)
    }


@each(
    "line, changed",
    ("x = a < b", {"x = ((a) <= (b))", "x = ((a) > (b))"}),
    ("x = a is None", {"x = ((a) is not (None))"}),
    ("x = a and b", {"x = ((a) or (b))", "x = ((b))", "x = ((a))"}),
    ("x = not a", {"x = (a)"}),
    ("x = True", {"x = False"}),
    ("x = 7", {"x = 8", "x = 6"}),
    ("x = 'é' * 0 + max(b)", None),
    ("x = a % b", {"x = ((a) // (b))"}),
    ("x = max(a)", {"x = min(a)"}),
    ("f(a, b)", {"f(b, a)", "pass"}),
    ("x = isinstance(a, b)", set()),
    ("x = a if b else c", {"x = ((c) if (b) else (a))"}),
    ("x = [a for a in b if c]", {"x = [a for a in b if True]"}),
    ("x.a = b", {"pass"}),
    ("x += a", {"pass"}),
    ("raise ValueError(1)", set()),
    ("assert a < b", set()),
    ("x: int = a", set()),
    ("raise UserError('no', 1)", set()),
    ("x = zip(a, strict=True)", set()),
)
def test_each_kind_of_code_has_its_changes(line, changed):
    if changed is None:  # a text of other letters shifts no column
        assert "x = 'é' * 0 + min(b)" in changes(line)
    else:
        assert changes(line) == changed


def test_a_changed_file_is_python_and_says_where_it_differs():
    source = Path(mutate.__file__).read_text(encoding="utf-8")
    lines = source.splitlines()
    kinds = Counter()
    for mutant in mutants_of(source):
        kinds[mutant.kind] += 1
        ast.parse(mutant.source)
        changed = mutant.source.splitlines()
        assert changed[: mutant.line - 1] == lines[: mutant.line - 1]
        assert changed[mutant.line - 1] != lines[mutant.line - 1]
    assert len(kinds) > 8


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A package of two rooms with tests of which one would not notice."""
    files = {
        "olr_cli/__init__.py": "",
        "olr_cli/a/__init__.py": "",
        "olr_cli/a/less.py": "def is_less(x, y):\n    return x < y\n",
        "olr_cli/b.py": """
            from olr_cli.a.less import is_less

            def smaller(x, y):
                return x if is_less(x, y) else y
            """,
        "tests/helping.py": "from olr_cli.b import smaller\n",
        "tests/a/test_less.py": """
            from olr_cli.a.less import is_less

            def test_less():
                assert is_less(1, 2)
            """,
        "tests/other/test_b.py": """
            import helping

            def test_smaller():
                assert helping.smaller(1, 2) == 1
            """,
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_change_meets_the_tests_of_its_room_and_those_that_import_its_file(project):
    tests = mutate.Tests()
    less, b = (
        mutate.Case(room, Path(f"olr_cli/{file}.py"), None)
        for room, file in (("a", "a/less"), ("b", "b"))
    )
    assert tests.of(less) == [Path("tests/a/test_less.py")]
    # No test of room b, and none that imports b.py itself: the helper's test is the nearest.
    assert tests.of(b) == [Path("tests/other/test_b.py")]
    every = Path("tests/test_constants.py")
    every.write_text("", encoding="utf-8")
    assert mutate.Tests().of(b) == [Path("tests/other/test_b.py"), every]


def test_a_sample_is_the_same_for_a_seed_and_has_one_change_a_line(project):
    first, again, other = (mutate.draw(["a", "b"], 9, seed, set()) for seed in (1, 1, 2))
    assert [*map(str, first)] == [*map(str, again)]
    places = [(case.file, case.mutant.line) for case in first]
    assert len(places) == len({*places}) == 2
    left = mutate.draw(["a", "b"], 9, 1, {case.name for case in (*first, *other)})
    assert not {case.name for case in left} & {case.name for case in first}


def test_changes_with_a_reason_are_left_out():
    text = "# why\nolr_cli/a.py: constant: 1  ->  2\n  It is nowhere read.\n"
    assert mutate.unseen(text) == {"olr_cli/a.py: constant: 1  ->  2"}


def test_the_table_has_a_row_a_room_and_names_what_nobody_noticed():
    mutant = next(mutants_of("x = 1\n"))
    cases = [
        mutate.Case(room, Path("a.py"), mutant, ended)
        for room, ended in (("a", "killed"), ("a", "survived"), ("b", "timeout"))
    ]
    text = mutate.table(cases)
    _, of_a, of_b, *_ = text.splitlines()
    assert of_a.split() == ["a", "2", "1", "0", "1", "0", "50%"]
    assert of_b.split() == ["b", "1", "0", "1", "0", "0", "100%"]
    assert "Not noticed: 1" in text
    assert text.count("a.py:1") == 1


@each(
    "words, sentence",
    (["a", "--sample", "0"], "argument --sample: 0 is less than 1"),
    (["a", "--sample", "-1"], "argument --sample: -1 is less than 1"),
    (["nosuchroom"], "there is no room nosuchroom below olr_cli/; take one such as answers"),
    (["olr_cli/b.py"], "there is no room olr_cli/b.py below"),
    (["a,nosuch"], "there is no room nosuch below"),
    (["__init__"], "nothing in __init__ can be changed"),
)  # fmt: skip
def test_words_that_name_no_change_are_refused(
    project, monkeypatch, capsys, words, sentence
):
    monkeypatch.setattr(sys, "argv", ["mutate.py", *words, "--list"])
    with pytest.raises(SystemExit) as ended:
        mutate.main()
    assert ended.value.code == 2
    assert f"mutate.py: error: {sentence}" in capsys.readouterr().err


def track(project):
    """Make the project a git repository whose tests run, and track its files."""
    (project / "conftest.py").write_text("import sys; sys.path += ['.', 'tests']\n")
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=project, check=True)


@each("stop", signal.SIGINT, signal.SIGTERM)
def test_a_stop_ends_the_tests_and_removes_the_copy(project, stop):
    pids, temporary = project / "pids", project / "temporary"
    temporary.mkdir()
    (project / "tests/a/test_less.py").write_text(
        "import os, subprocess\nfrom olr_cli.a.less import is_less\n"
        "def test_less():\n"
        "    worker = subprocess.Popen(['sleep', '600'])\n"
        f"    open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{worker.pid}}.')\n"
        "    worker.wait()\n"
    )
    track(project)
    program = (
        "import sys, mutate; mutate._HEAVY.clear(); sys.argv[1:] = ['a']; mutate.main()"
    )
    tools = str(Path(mutate.__file__).parent)
    run = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": tools, "TMPDIR": str(temporary)},
        stderr=subprocess.DEVNULL,
    )
    while not (pids.exists() and pids.read_text().endswith(".")):
        assert run.poll() is None
        time.sleep(0.02)
    run.send_signal(stop)
    assert run.wait() == 128 + stop
    assert not [*temporary.iterdir()]
    for pid in pids.read_text().strip(".").split():
        assert any(has_ended(pid) for _ in range(500))


def has_ended(pid):
    """Whether a process has ended, perhaps as a zombie; if not, the result comes a little later."""
    try:
        if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            return True
    except (FileNotFoundError, ProcessLookupError):
        return True
    time.sleep(0.02)
    return False


@pytest.mark.slow
def test_a_change_that_no_test_notices_is_named(project):
    track(project)
    done = subprocess.run(
        [sys.executable, mutate.__file__, "a", "--sample", "1", "--seed", "2"],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "killed" in done.stderr or "survived" in done.stderr
    assert "Not noticed" in done.stdout
