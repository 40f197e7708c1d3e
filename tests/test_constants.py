"""Numbers that stand once in the package, a second time: a change of one is meant, and made in both places.

What a paper or a stored file depends on is written here; all others are in fixtures/constants.txt, which
`pytest tests/test_constants.py --rewrite` writes after an intended change.
"""

import ast
import errno
import sys
from contextlib import suppress
from dataclasses import is_dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest
from cases import each

import olr_cli
from olr_cli import files
from olr_cli.analysis.audit import reward_rates, verifier_rules
from olr_cli.analysis.report import words
from olr_cli.cli import options
from olr_cli.engines import run
from olr_cli.evaluation import intervals, plan, record, store
from olr_cli.runs import checkpoints, directory, schedule, shards
from olr_cli.supervision import advantages, types

PACKAGE = Path(olr_cli.__file__).parent


@each(
    "module, constants",
    # of the paper and its authors' code (R17, R19)
    (run, {"DUAL_CLIP": 3, "GRADIENT_CLIP": 1, "ADAM_BETAS": (0.9, 0.999), "WEIGHT_DECAY": 0.01}),
    (advantages, {"STD_EPSILON": 0.000_001}),
    (schedule, {"MIN_LR_RATIO": 0.1}),
    (intervals, {"CONFIDENCE": 0.95, "RESAMPLES": 9999}),
    (plan, {"_SAMPLES": {"aime24": 8, "aime25": 8, "amc": 8}}),
    # that are no numbers, or not written as such
    (verifier_rules, {"_NEAR": ("0.001", "0.01", "0.02", "0.05", "0.1", "0.2")}),
    (reward_rates, {"_BY_AGREEMENT": [0, 0, 0, 1], "_OF_GRADER": [0, 2, 1, 3]}),
    (words, {"NO_VISIT": 0, "NO_MAJORITY": 1, "RIGHT": 2, "WRONG_LABEL": 3, "GIVEN": 4, "OTHER": 5}),
    (options, {"FORMATS": ("terminal", "markdown", "latex", "csv"), "DEVICES": ("auto", "cpu", "cuda")}),
    (files, {"_NO_SYNC": {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}}),
    (files, {"_STAYS": {errno.EBUSY, errno.ENOTEMPTY, errno.EIO, errno.EACCES, errno.EPERM, errno.EROFS}}),
    # of stored files
    (types, {"SCHEMA_VERSION": 1}),
    (directory, {"MANIFEST_VERSION": 1}),
    (record, {"VERSION": 1}),
    (store, {"GENERATIONS_VERSION": 1}),
    ids=lambda it: it.__name__ if isinstance(it, ModuleType) else "",
)  # fmt: skip
def test_a_constant_is_what_it_was(module, constants):
    assert {name: getattr(module, name) for name in constants} == constants


def constants_of(file):
    """Yield name and value of the constants of a source file that are written as numbers, or contain numbers.

    Defaults of the fields of its classes count too, flags among them. Values are computed from the text alone, so that
    modules of other environments count. Expressions of other names than the file's own constants are left out.
    """
    known = {"__builtins__": {}, "Fraction": Fraction, "Decimal": Decimal, "len": len}
    tree = ast.parse(file.read_text("utf-8"))
    for name, value in assigned(tree):
        # Functions have no text to compare.
        if any(isinstance(node, ast.Lambda) for node in ast.walk(value)):
            continue
        with suppress(NameError, AttributeError, TypeError, ImportError):
            known[name] = eval(compile(ast.Expression(value), file.name, "eval"), known)
            if name.isupper() and any(map(is_number, ast.walk(value))):
                yield name, known[name]
    for node in ast.walk(tree):
        for name, value in assigned(node) if isinstance(node, ast.ClassDef) else ():
            if is_number(value) or isinstance(getattr(value, "value", None), bool):
                yield f"{node.name}.{name}", value.value


def assigned(node):
    """Yield name and expression of the assignments in the body of a module or class."""
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.Assign(
                targets=[ast.Tuple([ast.Name(), *_] as names)], value=ast.Tuple(values)
            ):
                pairs = zip(names, values, strict=True)
                yield from ((ast.unparse(name), value) for name, value in pairs)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def is_number(node):
    value = getattr(node, "value", None)
    return isinstance(value, int | float) and not isinstance(value, bool)


def in_order(value):
    return sorted(value) if isinstance(value, set | frozenset) else value


def test_numbers_are_what_they_were(is_as_stored):
    lines = [
        f"{file.relative_to(PACKAGE).as_posix()} {name} = {in_order(value)!r}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for name, value in constants_of(file)
    ]
    assert len(lines) > 150
    is_as_stored("constants.txt", "\n".join([*lines, ""]))


def test_a_number_that_changes_is_named_with_its_file_and_the_remedy(
    is_as_stored, request, monkeypatch, tmp_path
):
    monkeypatch.setattr(request.config.option, "rewrite", False)
    (tmp_path / "stored.txt").write_text("a.py ONE = 1\nb.py GONE = 2\nc.py SAME = 3\n")
    with pytest.raises(pytest.fail.Exception) as failure:
        is_as_stored(tmp_path / "stored.txt", "a.py ONE = 11\nc.py SAME = 3\n")
    text = str(failure.value)
    assert "-a.py ONE = 1\n-b.py GONE = 2\n+a.py ONE = 11\n" in text
    assert "SAME" not in text
    assert text.endswith(": pytest tests/test_constants.py --rewrite")


def test_what_is_decided_and_shown_is_never_changed_afterwards():
    modules = [
        module for name, module in sys.modules.items() if name.startswith("olr_cli.")
    ]
    classes = {
        it for module in modules for it in vars(module).values() if isinstance(it, type)
    }
    changeable = {
        it.__name__
        for it in filter(is_dataclass, classes)
        if it.__module__.startswith("olr_cli.") and not it.__dataclass_params__.frozen
    }
    assert changeable <= {"Context", "Group", "Recorder", "_Files", "_Losses"}


@each("kind", checkpoints._NAME, shards._SHARD, ids=["checkpoint", "shard"])
def test_steps_are_numbered_with_six_to_nine_digits(kind):
    ending = kind.pattern.partition(")")[2].replace("\\", "")
    found = {
        digits for digits in range(12) if kind.fullmatch(f"step-{'1' * digits}{ending}")
    }
    assert found == {6, 7, 8, 9}
