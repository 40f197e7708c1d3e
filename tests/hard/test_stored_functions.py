"""A function that a run or an evaluation has stored runs only if the command names it again."""

import os

import pytest
from cases import each
from conftest import MODEL

READER = "odd_reader:read"
SMALL = ["--limit", "4", "--max-new-tokens", "6", "--backend", "transformers"]
SETTING = ["--set", f"data.extractor={READER}"]
MODULE = """\
from pathlib import Path

Path("ran").touch()


def read(response):
    return response[::-1].strip()
"""


@pytest.fixture(scope="module")
def stored(workshop):
    """A workshop with a run, `odd-run`, and an evaluation, `odd-evaluation`, whose answers a function has read."""
    (workshop.folder / "odd_reader.py").write_text(MODULE)
    short = ["--set", "train.epochs=2", "--set", f"data.extractor={READER}"]
    evaluate = ["evaluate", MODEL, *SMALL, "--samples", "2", "--extractor", READER]
    for words in (
        ["train", "tiny.yaml", "--run-dir", "odd-run", *short],
        [*evaluate, "--out", "odd-evaluation"],
    ):
        status, done = workshop.olr(*words)
        assert status == 0, done.err
        (workshop.folder / "ran").unlink()
    return workshop


@each(
    "words, named",
    (["evaluate", "odd-run", *SMALL], ["--extractor", READER]),
    (["regrade", "odd-evaluation"], ["--extractor", READER]),
    (["train", "--resume", "--run-dir", "odd-run", "--dry-run"], SETTING),
    (["train", "odd-run/recipe.yaml", "--dry-run"], SETTING),
)
def test_a_stored_function_runs_only_when_named_again(stored, words, named):
    mark = stored.folder / "ran"
    status, refused = stored.olr(*words)
    assert (
        status == 2 and " ".join(named).removeprefix("--set ") in refused.out + refused.err
    )
    assert not mark.exists()
    assert stored.olr(*words, *named)[0] == 0
    mark.unlink()


@pytest.mark.parametrize(
    "words", [["replay"], ["audit"], ["runs"], ["analyze", "--table", "arms"]]
)
def test_what_a_run_has_read_is_read_without_it(stored, words):
    status, done = stored.olr(*words, "." if words == ["runs"] else "odd-run")
    assert status == 0, done.err
    assert not (stored.folder / "ran").exists()


def test_a_run_goes_on_with_its_recipe_given_again(stored):
    recipe = (stored.folder / "tiny.yaml").read_text().replace("reversed_digits", READER)
    (stored.folder / "odd.yaml").write_text(recipe.replace("epochs: 5", "epochs: 3"))
    status, done = stored.olr("train", "odd.yaml", "--resume", "--run-dir", "odd-run")
    assert status == 0, done.err
    os.remove(stored.folder / "ran")


def test_code_of_a_model_that_a_stored_recipe_trusts_runs_only_when_trusted_again(
    workshop, tmp_path
):
    file, trust = tmp_path / "recipe.yaml", "model.trust_remote_code"
    recipe = (workshop.folder / "tiny.yaml").read_text()
    file.write_text(recipe.replace('easier"}', 'easier", trust_remote_code: true}'))
    assert workshop.olr("train", file, "--dry-run")[0] == 0  # a recipe of the user's own
    (tmp_path / "manifest.json").touch()
    status, refused = workshop.olr("train", file, "--dry-run")
    assert status == 2 and f"if you trust it too, set {trust}=true again" in refused.err
    assert workshop.olr("train", file, "--dry-run", "--set", f"{trust}=true")[0] == 0
