"""Steps of `olr_cli.api`: whole or in parts, what a run says of them, and how it ends."""

import logging

import pytest
from cases import each, refusal
from samples import json_lines

from olr_cli.api import Message, OnlineLabelRefinement, Prompt
from olr_cli.runs.directory import read_manifest, read_recipe
from olr_cli.runs.locks import is_held
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.store import scan_labels

RIGHT, WRONG = r"\boxed{7}", r"\boxed{8}"


def make(run_dir=None, **recipe):
    return OnlineLabelRefinement(run_dir, {"method": {"warmup_epochs": 1}, **recipe})


def groups(*names, right=3):
    """Groups of four completions, `right` of which give 7."""
    completions = [RIGHT] * right + [WRONG] * (4 - right)
    return [
        (Prompt(name, (Message("user", name),), "7", "7", "clean"), completions)
        for name in names
    ]


def test_a_step_may_come_in_parts(tmp_path):
    with make(tmp_path / "run") as olr:
        first = olr.supervise(groups("a", "b"), complete=False)
        assert (olr.step, olr.groups_in_step, first.metrics) == (0, 2, {})
        assert first.rewards == (1, 1, 1, 0) * 2 and first.trains == (True,) * 8
        assert "prompt a comes twice in one step" in refusal(olr.supervise, groups("a"))
        second = olr.supervise(groups("c", right=1), step=1)
        assert (olr.step, olr.groups_in_step, second.step) == (1, 0, 1)
        assert second.rewards == (1, 0, 0, 0)
        assert (second.metrics["rollout/groups"], second.metrics["rollout/reward"]) == (
            3,
            pytest.approx(7 / 12),
        )
        assert olr.finish_step() == {} and olr.step == 1
        olr.supervise(groups("a"), complete=False)
        assert olr.finish_step()["rollout/groups"] == 1
    stored = scan_labels(tmp_path / "run").select("step", "prompt_id").collect().rows()
    assert sorted(stored) == [(1, "a"), (1, "b"), (1, "c"), (2, "a")]
    lines = read_metrics(tmp_path / "run")
    assert [(line["step"], line["epoch"]) for line in lines] == [(1, 1), (2, 2)]
    times = {name for name in lines[0] if name.startswith("time/")}
    assert times == {"time/verification", "time/labels", "time/store"}


def test_what_is_pending_is_stored_with_the_state_and_at_the_end(tmp_path):
    olr = make(tmp_path / "run")
    assert olr.state_dict() == {"run": None, "step": 0}
    olr.supervise(groups("a"), complete=False)
    assert olr.state_dict()["step"] == 1
    olr.supervise(groups("b"), complete=False)
    olr.close()
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [1, 2]


def test_a_run_is_held_from_its_first_step_to_its_end(tmp_path):
    with make(tmp_path / "run") as olr:
        olr.supervise(groups("a"))
        assert is_held(tmp_path / "run")
        state = olr.state_dict()
    assert not is_held(tmp_path / "run")
    with make(tmp_path / "run") as olr:
        olr.load_state_dict(state)
        assert is_held(tmp_path / "run")


def test_a_state_of_no_run_begins_anew():
    olr = make()
    olr.load_state_dict({"run": None, "step": 0})
    assert olr.supervise(groups("a")).step == 1
    olr.load_state_dict({"run": None, "step": 0})
    assert read_manifest(olr.run_dir)["status"] == "interrupted"


def test_completions_of_a_prompt_may_stand_anywhere_in_a_call():
    with make() as olr:
        decided = olr(["a", "b"] * 4, [RIGHT, WRONG] * 3 + [WRONG] * 2, ["7", "8"] * 4)
    assert decided.rewards == (1, 1, 1, 1, 1, 1, 0, 1)
    assert decided.trains == (True,) * 8


@each(
    "error, status",
    (None, "finished"), (KeyboardInterrupt, "interrupted"), (ZeroDivisionError, "failed"),
)  # fmt: skip
def test_the_manifest_says_how_a_run_ended(tmp_path, error, status):
    def train():
        with make(tmp_path / "run") as olr:
            olr.supervise(groups("a"))
            if error is not None:
                raise error

    if error is None:
        train()
    else:
        with pytest.raises(error):
            train()
    assert read_manifest(tmp_path / "run")["status"] == status
    epochs = read_recipe(tmp_path / "run").train.epochs
    assert epochs == (
        1 if status == "finished" else 10
    )  # as many as there were, at the end


def test_a_recipe_has_the_facts_of_its_loop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    json_lines(tmp_path / "known.jsonl", {"prompt_id": "a", "true_answer": "7"})
    settings = {"train": {"epochs": 3, "temperature": 0.7}, "model": {"path": "mine"}}
    with OnlineLabelRefinement(
        "run", {"data": {"verified": "known.jsonl"}}, trainer="x 1", settings=settings
    ) as olr:
        olr.supervise(groups("a", "b", "c"))
    recipe = read_recipe(tmp_path / "run")
    assert (recipe.name, recipe.method.name, recipe.model.path) == ("run", "olr", "mine")
    assert (recipe.engine.name, recipe.engine.trainer) == ("external", "x 1")
    assert recipe.data.train == str(tmp_path / "run" / "prompts.jsonl")
    assert recipe.data.verified == str(tmp_path / "known.jsonl")
    train = recipe.train
    assert (train.prompts_per_step, train.rollouts_per_prompt) == (3, 4)
    assert (train.epochs, train.temperature, train.mini_batch_prompts) == (3, 0.7, None)


@each("name, level", ("a", logging.INFO), ("nobody", logging.WARNING))
def test_verified_labels_for_nobody_are_warned_of_at_the_end(tmp_path, caplog, name, level):
    caplog.set_level(logging.INFO, "olr_cli.api")
    file = json_lines(
        tmp_path / "known.jsonl",
        {"prompt_id": "a", "true_answer": "7"},
        {"prompt_id": name, "true_answer": "7"},
    )
    with make(data={"verified": str(file)}) as olr:
        olr.supervise(groups("a"))
        assert caplog.messages == []
    assert [record.levelno for record in caplog.records] == [level]


@each("unread, is_warned", (9, False), (10, True))
def test_responses_are_hardly_read_above_nine_in_ten(caplog, unread, is_warned):
    completions = ["7"] * unread + [RIGHT] * (10 - unread)
    with make() as olr:
        olr.supervise([(Prompt("a", (), "7", "7", "clean"), completions)])
    assert [message[:4] for message in caplog.messages] == ["100%"] * is_warned


def test_held_out_completions_are_read_as_their_data_source_or_the_recipe_says():
    said, source = ["so 24"], ["arithmetic"]
    with make() as olr:
        assert olr.grade(said, [42]) == [0.0]
        assert olr.grade(["24"], [42], data_sources=source) == [1.0]
    with make(data={"extractor": "last_number"}) as olr:
        assert olr.grade(said, [24]) == olr.grade(said, [24], data_sources=source) == [1.0]


def test_the_manifest_has_a_digest_of_the_prompts_as_they_are_marked(tmp_path):
    file = json_lines(tmp_path / "known.jsonl", {"prompt_id": "a", "true_answer": "8"})
    digests = set()
    for name, names, data in (
        ("a", "a", {}), ("b", "b", {}), ("ab", "ab", {}), ("v", "a", {"verified": str(file)}), ("again", "a", {}),
    ):  # fmt: skip
        with make(tmp_path / name, data=data) as olr:
            olr.supervise(groups(*names))
        digests.add(read_manifest(tmp_path / name)["data"]["train"]["digest"])
    assert len(digests) == 4
