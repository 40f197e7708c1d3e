"""One object writes a run directory: it holds the lock, and notes how an attempt ended."""

import pytest
from cases import each, refusal

from olr_cli.engines.run import Diverged
from olr_cli.errors import UserError
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.checkpoints import checkpoint_steps
from olr_cli.runs.directory import read_manifest, read_recipe, write_manifest
from olr_cli.runs.interrupts import Interrupted
from olr_cli.runs.locks import is_held
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.writer import RunWriter


def begun(path):
    writer = RunWriter.create(path, Recipe())
    writer.begin(after=0, data={}, facts={})
    return writer


@each(
    "error, status",
    (Interrupted(2), "interrupted"), (KeyboardInterrupt(), "interrupted"), (BrokenPipeError(), "interrupted"),
    (Diverged("so", "stop"), "diverged"), (UserError("so", "stop"), "failed"), (MemoryError(), "failed"),
)  # fmt: skip
def test_an_error_names_the_status_of_the_run_that_it_ends(tmp_path, error, status):
    with pytest.raises(type(error)), begun(tmp_path / "run"):
        raise error
    assert read_manifest(tmp_path / "run")["status"] == status
    assert not is_held(tmp_path / "run")


def test_a_run_is_held_until_it_is_closed(tmp_path):
    with begun(tmp_path / "run") as writer:
        assert is_held(tmp_path / "run")
        assert "is in use by process" in refusal(
            RunWriter.resume, tmp_path / "run", Recipe()
        )
        writer.close("finished", steps=3)
        assert not is_held(tmp_path / "run")
    manifest = read_manifest(tmp_path / "run")
    assert (manifest["status"], manifest["steps"]) == ("finished", 3)


def test_a_run_goes_on_only_with_the_text_of_the_label_rule_that_it_began_with(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def rule(visit):\n    return None\n", encoding="utf-8")
    recipe = Recipe(method={"name": f"{file}:rule"})
    with RunWriter.create(tmp_path / "run", recipe) as writer:
        writer.begin(after=0, data={}, facts={})
        writer.close("finished")
    RunWriter.resume(tmp_path / "run", recipe).close("finished")
    file.write_text("def rule(visit):\n    return visit\n", encoding="utf-8")
    sentence = refusal(RunWriter.resume, tmp_path / "run", recipe)
    assert f"was begun with another text of {file}:rule" in sentence
    assert "restore it, or start a new run" in sentence


def test_a_recipe_that_an_attempt_completes_is_the_runs_from_then_on(tmp_path):
    with begun(tmp_path / "run") as writer:
        writer.close("finished", recipe=Recipe(seed=3), steps=1)
    assert read_recipe(tmp_path / "run").seed == 3
    RunWriter.resume(tmp_path / "run", Recipe(seed=3)).close("finished")


def test_an_attempt_names_what_the_file_system_refused_and_else_nothing(
    tmp_path, monkeypatch
):
    for name, refused in (("plain", set()), ("limited", {"no locks", "no fsync"})):
        monkeypatch.setattr("olr_cli.runs.writer.departures", refused)
        with begun(tmp_path / name) as writer:
            writer.close("finished")
        (attempt,) = read_manifest(tmp_path / name)["attempts"]
        assert attempt.get("file_system") == (sorted(refused) or None)


def test_an_error_before_the_attempt_began_leaves_the_manifest_as_it_was(tmp_path):
    with begun(tmp_path) as writer:
        writer.close("finished")
    before = read_manifest(tmp_path)
    with pytest.raises(UserError, match="other data"), RunWriter.resume(tmp_path, Recipe()):
        raise UserError("other data", "choose")
    assert read_manifest(tmp_path) == before


def test_a_folder_that_could_not_become_a_run_is_not_held(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not an empty folder" in refusal(RunWriter.create, tmp_path, Recipe())
    assert not is_held(tmp_path)


def test_whoever_joined_an_attempt_writes_nothing_into_the_next_one(tmp_path):
    with begun(tmp_path):
        joined = RunWriter.join(tmp_path, Recipe())
        joined.log(1, 1, {})

        def fill(_folder):  # meanwhile the run is resumed
            manifest = read_manifest(tmp_path)
            write_manifest(tmp_path, {**manifest, "attempts": [*manifest["attempts"], {}]})

        assert "was resumed by another process" in refusal(joined.checkpoint, 1, fill)
        for write in (
            lambda: joined.store(2, {}, {}),
            lambda: joined.log(2, 1, {}),
            lambda: joined.checkpoint(2, lambda _: pytest.fail("it is filled")),
        ):
            assert "was resumed by another process" in refusal(write)
    assert checkpoint_steps(tmp_path) == []
    assert [line["step"] for line in read_metrics(tmp_path)] == [1]
    assert not (tmp_path / "labels").exists()
