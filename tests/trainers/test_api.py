"""`olr_cli.api`: what the engines decide, for anybody's loop."""

import json
from collections.abc import Sequence

import polars as pl
import pytest
from cases import each, refusal
from commands import done, refused
from histories import write_history
from recorded import METHOD, batches, decisions, feed
from samples import json_lines

from olr_cli.answers.graded import SENTINEL
from olr_cli.answers.judge import Judge
from olr_cli.api import OnlineLabelRefinement
from olr_cli.data.logs import read_log
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.prompts import Prompt
from olr_cli.errors import UserError
from olr_cli.recipe.methods import OlrMethod
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.locks import is_held
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.store import scan_rollouts
from olr_cli.supervision.methods import compose
from olr_cli.supervision.supervisor import Supervisor
from olr_cli.supervision.types import Rollout, RolloutGroup, Step

RECIPE = {"method": METHOD}
BOXED = [r"\boxed{7}"] * 3 + [r"\boxed{8}"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    run = tmp_path_factory.mktemp("recorded") / "run"
    return write_history(run, noise="inactive", prompts=20, prompts_per_step=10, epochs=6)


def make(run_dir=None, **recipe):
    return OnlineLabelRefinement(run_dir, {**RECIPE, **recipe}, trainer="mine 1.0")


def test_recorded_rollouts_are_decided_as_recorded(recorded, tmp_path):
    with make(tmp_path / "run") as olr:
        feed(olr, recorded)
    assert decisions(tmp_path / "run").equals(decisions(recorded))
    assert read_manifest(tmp_path / "run")["status"] == "finished"


def trained_by_olr(run, prompts, **keys):
    """A small run of `olr train`, and the seed that its decisions depend on."""
    sizes = {"limit": prompts, "prompts_per_step": 8, "epochs": 4, "mini_batch_prompts": 8}
    of_train = {
        f"{'data' if key == 'limit' else 'train'}.{key}": value
        for key, value in sizes.items()
    }
    settings = {**of_train, "data.test": "null", **keys}
    words = [
        word for key, value in settings.items() for word in ("--set", f"{key}={value}")
    ]
    done("train", "laptop/quickstart", *words, "--run-dir", run)
    return read_manifest(run)["seed"]


def test_a_trained_runs_rollouts_are_decided_as_its_engine_did(tmp_path):
    trained = tmp_path / "trained"
    seed = trained_by_olr(
        trained, 16, **{"method.warmup_epochs": 1, "method.slope_threshold": 0}
    )
    method = {"warmup_epochs": 1, "slope_threshold": 0}
    recipe = {"method": method, "data": {"extractor": "reversed_digits"}, "seed": seed}
    with OnlineLabelRefinement(tmp_path / "run", recipe) as olr:
        feed(olr, trained)
    assert decisions(tmp_path / "run").equals(decisions(trained))
    assert decisions(trained)["label_source"].n_unique() == 3  # given, noisy and majority


def test_verified_labels_decide_here_as_in_an_engine(tmp_path):
    trained = tmp_path / "trained"
    method = {"name": "olr", "criteria": ["consistency"], "warmup_epochs": 1}
    keys = {"data.verified": 12, "method": json.dumps(method), "noise.ratio": 0.7}
    seed = trained_by_olr(trained, 24, **keys)
    verified = decisions(trained).filter(pl.col("label_source") == "verified")
    verified.select("prompt_id", "true_answer").unique().write_parquet(
        tmp_path / "verified.parquet"
    )
    data = {"extractor": "reversed_digits", "verified": str(tmp_path / "verified.parquet")}
    olr = OnlineLabelRefinement(
        tmp_path / "run", {"method": method, "data": data, "seed": seed}
    )
    feed(olr, trained, until=7)
    state = json.loads(json.dumps(olr.state_dict()))
    olr.close("interrupted")
    with OnlineLabelRefinement(
        tmp_path / "run", {"method": method}
    ) as again:  # the run knows the rest
        again.load_state_dict(state)
        feed(again, trained, after=7)
    assert decisions(tmp_path / "run").equals(decisions(trained))
    assert {"verified", "majority"} < set(decisions(trained)["label_source"])
    done("replay", tmp_path / "run")


def test_verified_labels_are_found_by_question_too(tmp_path):
    row = {"prompt_id": "another", "question": "3 + 4?", "answer": "8"}
    file = json_lines(tmp_path / "verified.jsonl", row)
    with make(data={"verified": str(file)}) as olr:
        step = olr(["3+4 ?"] * 4 + ["5 + 5?"] * 4, BOXED * 2, ["7"] * 8)
    sources = [(label.label_source, label.effective_label) for label in step.labels]
    assert sources == [("verified", "8"), ("given", "7")]
    assert step.rewards == (0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0)
    with pytest.raises(
        UserError,
        match=r"data\.verified is 5, and labels can't be drawn before all prompts",
    ):
        make(data={"verified": 5})
    json_lines(file, {"prompt_id": "x", "verdict": "wrong"})
    assert "has no true answer in any row" in refusal(make, data={"verified": str(file)})


def test_the_epoch_of_a_step_is_that_of_its_most_visited_prompt(tmp_path):
    once, again = ["2 + 5?"] * 4, ["3 + 4?"] * 4
    with make(tmp_path / "run") as olr:
        for prompts in (again, once + again, again + once):
            olr(prompts, (BOXED * 2)[: len(prompts)], ["7"] * len(prompts))
            olr.log({})
    lines = [line for line in read_metrics(tmp_path / "run") if line["step"]]
    assert [line["epoch"] for line in lines] == [1, 2, 3]


def test_rewards_are_in_the_order_of_the_completions(recorded):
    stored = (
        scan_rollouts(recorded)
        .filter(pl.col("step") == 1)
        .sort("sample", maintain_order=True)
        .collect()
    )
    with make() as olr:
        result = feed(olr, recorded, until=1)
    assert list(result.rewards) == stored["reward"].to_list()
    assert result.trains == (True,) * len(stored)
    names = stored["prompt_id"].unique(maintain_order=True).to_list()
    assert [record.prompt_id for record in result.labels] == names


def test_a_loaded_state_goes_on_as_if_nothing_had_happened(recorded, tmp_path):
    run_dir = tmp_path / "run"
    olr = make(run_dir)
    feed(olr, recorded, until=5)
    state = json.loads(json.dumps(olr.state_dict()))
    lost = feed(olr, recorded, after=5, until=7)
    again = make(run_dir)
    olr.close("interrupted")
    again.load_state_dict(state)
    found = feed(again, recorded, after=5, until=7)
    assert (found.labels, found.rollouts) == (lost.labels, lost.rollouts)
    feed(again, recorded, after=7)
    again.close()
    assert decisions(run_dir).equals(decisions(recorded))
    assert [line["step"] for line in read_metrics(run_dir)] == list(range(1, 13))
    assert read_manifest(run_dir)["data"]["train"]["prompts"] == 20


def test_without_a_run_dir_the_run_lasts_as_long_as_its_object(recorded):
    olr = make()
    feed(olr, recorded, until=5)
    state = olr.state_dict()
    lost = feed(olr, recorded, after=5, until=7)
    olr.load_state_dict(state)
    found = feed(olr, recorded, after=5, until=7)
    assert (found.labels, found.rollouts) == (lost.labels, lost.rollouts)
    feed(olr, recorded, after=7)
    olr.close()
    assert decisions(olr.run_dir).equals(decisions(recorded))
    folder = olr.run_dir.parent
    del olr
    assert not folder.exists()


def test_closing_ends_the_workers_that_read_answers(recorded, tmp_path, monkeypatch):
    ended = []
    close = Judge.close
    monkeypatch.setattr(Judge, "close", lambda judge: (ended.append(judge), close(judge)))
    olr = make(tmp_path / "run")
    feed(olr, recorded, until=1)
    assert not ended
    olr.close()
    assert ended


def test_a_prompt_file_cut_off_by_a_kill_is_mended(recorded, tmp_path):
    olr = make(tmp_path / "run")
    feed(olr, recorded, until=1)
    state = olr.state_dict()
    feed(olr, recorded, after=1, until=2)
    olr.close("interrupted")
    file = tmp_path / "run" / "prompts.jsonl"
    file.write_bytes(file.read_bytes()[:-30])
    again = make(tmp_path / "run")
    again.load_state_dict(state)
    feed(again, recorded, after=1)
    again.close()
    assert decisions(tmp_path / "run").equals(decisions(recorded))
    assert len(file.read_text().splitlines()) == 20


@each(
    "words",
    ["analyze", "{run}", "--figure", "dynamics"],
    ["analyze", "{run}", "--report"],
    ["audit", "{run}", "--export", "{out}/repaired.jsonl"],
    ["replay", "{run}", "--set", "method.warmup_epochs=1"],
    ["replay", "{run}", "--set", "data.extractor=text"],
    ids=" ".join,
)
def test_every_command_reads_its_run(recorded, tmp_path, words):
    run = tmp_path / "run"
    with make(run) as olr:
        feed(olr, recorded)
    result = done(*(word.format(run=run, out=tmp_path) for word in words))
    assert "epochs" not in result.stderr  # none is missing
    assert "olr train" not in result.output  # the run is another trainer's
    if "--report" in words:
        assert (
            "The questions are not shown"
            not in (run / "figures" / "report.html").read_text()
        )


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_with_verified_labels_that_has_moved_can_be_exported(
    recorded, tmp_path, resumed
):
    labels = decisions(recorded).select("prompt_id", true_answer="given_label").drop_nulls()
    labels.unique(maintain_order=True).head(4).write_parquet(tmp_path / "verified.parquet")
    olr = make(tmp_path / "run", data={"verified": str(tmp_path / "verified.parquet")})
    feed(olr, recorded, until=11)
    state = olr.state_dict()
    if not resumed:
        feed(olr, recorded, after=11)
    olr.close("interrupted")
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    if resumed:
        with make(moved) as again:
            again.load_state_dict(state)
            feed(again, recorded, after=11)
    done("audit", moved, "--export", tmp_path / "repaired.jsonl")
    exported = pl.read_ndjson(tmp_path / "repaired.jsonl")
    questions = {turns[-1]["content"] for turns in exported["prompt"]}
    assert questions == {f"Question {number}" for number in range(20)}


def test_olr_train_leaves_it_to_its_trainer(recorded, tmp_path):
    with make(tmp_path / "run") as olr:
        feed(olr, recorded, until=1)
    said = refused("train", tmp_path / "run" / "recipe.yaml", "--dry-run")
    assert "mine 1.0 trains and takes its rewards from olr" in said


def test_prompts_have_the_ids_that_a_file_without_ids_gives(tmp_path):
    questions = ["3 + 4?", "4 + 4?"]
    file = json_lines(
        tmp_path / "mine.jsonl", *({"question": text, "answer": "7"} for text in questions)
    )
    wordings = ["3+4 ?", *questions]  # of which the first two ask the same
    prompts = [text for text in wordings for _ in range(4)]
    with make(tmp_path / "run") as olr:
        before = [label.prompt_id for label in olr(prompts, BOXED * 3, ["7"] * 12).labels]
        state = olr.state_dict()
    assert set(before) > {prompt.prompt_id for prompt in read_prompts(file).prompts}
    assert len(set(before)) == 3
    with make(tmp_path / "run") as again:
        again.load_state_dict(state)
        after = again(prompts[::-1], BOXED * 3, ["7"] * 12).labels
    assert [label.prompt_id for label in after] == before[::-1]


def test_chats_and_rollouts_are_completions_too():
    with make() as olr:
        chat = [{"role": "assistant", "content": [{"type": "text", "text": r"\boxed{7}"}]}]
        question = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "3 + 4?"},
        ]
        result = olr(
            [question] * 3, [chat, r"\boxed{8}", Rollout(r"\boxed{7}", tokens=5)], ["7"] * 3
        )
    assert result.rewards == (1.0, 0.0, 1.0)
    assert [record.tokens for record in result.rollouts] == [None, None, 5]


class Lazy(Sequence):
    """Makes every item when it is asked for, so that its address may be that of another one."""

    def __init__(self, questions):
        self.questions = questions

    def __len__(self):
        return len(self.questions)

    def __getitem__(self, at):
        return [{"role": "user", "content": self.questions[at]}]


@each(
    "prompt",
    "3 + 4 = ?<think>\n",
    [
        {"role": "user", "content": "3 + 4 = ?"},
        {"role": "assistant", "content": "<think>\n"},
    ],
)
def test_what_the_prompt_opened_is_stored_and_read_again_without_the_prompt(
    tmp_path, prompt
):
    cut, ended = "is it 7", r"is it 8? </think> \boxed{7}"
    with make(tmp_path / "run") as olr:
        step = olr([prompt] * 3, [cut, Rollout(ended), f"<think>\n{ended}"], ["7"] * 3)
        assert olr.grade([cut, ended], ["7", "7"], prompts=[prompt] * 2) == [0, 1]
    assert step.rewards == (0, 1, 1)
    assert [row.response for row in step.rollouts] == [
        f"<think>\n{said}" for said in (cut, ended, ended)
    ]
    queue = done("audit", tmp_path / "run", "--set", "data.extractor=last_number", "--json")
    assert json.loads(queue.stdout)["prompts"][0]["given_count"] == 2


def columns_of_datasets(questions):
    rows = [{"prompt": [{"role": "user", "content": text}]} for text in questions]
    return pytest.importorskip("datasets").Dataset.from_list(rows)["prompt"]


@pytest.mark.parametrize("prompts", [Lazy, columns_of_datasets])
def test_prompts_are_grouped_by_their_content(prompts):
    questions = [text for text in ("3 + 4?", "3 + 5?", "3 + 6?") for _ in range(4)]
    with make() as olr:
        result = olr(prompts(questions), BOXED * 3, ["7"] * 12)
    assert [label.rollouts for label in result.labels] == [4, 4, 4]


def test_marks_are_what_label_and_true_answer_say():
    with make() as olr:
        prompts = [name for name in "abcd" for _ in range(4)]
        labels = [text for text in ("7", "8", SENTINEL, "8") for _ in range(4)]
        true = [text for text in ("7", "7", "7", None) for _ in range(4)]
        result = olr(prompts, BOXED * 4, labels, true_answers=true)
    assert [label.noise_type for label in result.labels] == [
        "clean",
        "active_frozen",
        "inactive",
        None,
    ]


def test_held_out_completions_are_graded_and_not_recorded():
    with make() as olr:
        assert olr.grade([r"\boxed{0.5}", r"\boxed{2}", "half"], [r"\frac12"] * 3) == [
            1.0,
            0.0,
            0.0,
        ]
        assert olr.step == 0


def test_the_trainers_metrics_stand_beside_ours(recorded, tmp_path):
    with make(tmp_path / "run") as olr:
        olr.log({"eval/avg": 0.25})
        feed(olr, recorded, until=1)
        olr.log({"policy/kl": 0.5})
    first, second = read_metrics(tmp_path / "run")
    assert (first["step"], first["eval/avg"]) == (0, 0.25)
    assert second["policy/kl"] == 0.5
    assert second["rollout/groups"] == 10


@each(
    "recipe, message",
    ({"method": {"warmup_epoch": 1}}, "unknown key 'method.warmup_epoch' (did you mean"),
    ({"engine": {"name": "openrlhf"}}, "engine.name has no effect under mine 1.0"),
    ({"noise": {"ratio": 0.5}}, "noise.ratio has no effect under mine 1.0"),
    ({"data": {"train": "arithmetic"}}, "data.train has no effect under mine 1.0"),
    ({"data": {"extractor": "boxes"}}, "did you mean 'boxed'?"),
    ({"method": {"name": "random_selection"}}, "set method.keep_fraction"),
    ({"train": {"epochs": 5}}, "train.epochs is a setting of mine 1.0, which has 3"),
)
def test_a_recipe_that_cannot_be_meant_is_refused(recipe, message):
    with pytest.raises(UserError, match="recipe: ") as refusal:
        OnlineLabelRefinement(
            None, recipe, trainer="mine 1.0", settings={"train": {"epochs": 3}}
        )
    assert message in str(refusal.value)


@each(
    "arguments, message",
    ({"completions": BOXED[:3]}, "4 prompts and 3 completions"),
    ({"prompts": ["a", "b", "c", "d"]}, "has one completion, and a vote needs several"),
    ({"labels": ["7", "7", "7", "8"]}, "has two labels, '7' and '8'"),
    ({"labels": [None] * 4}, "has no label, which method olr needs"),
    (
        {"prompts": ["a", "a", "b", "b"], "prompt_ids": ["x"] * 4},
        "has two texts, 'a' and 'b'",
    ),
    (
        {"noise_types": ["wrong"] * 4},
        "there is no noise type 'wrong'; known: clean, inactive",
    ),
    ({"step": 3}, "step 3 came where step 1 is due"),
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    settings = {
        "prompts": ["a"] * 4,
        "completions": BOXED,
        "labels": ["7"] * 4,
        **arguments,
    }
    with make() as olr:
        assert message in refusal(olr, **settings)
    assert olr.step == 0


def test_a_label_that_changes_later_is_refused():
    with make() as olr:
        olr(["a"] * 4, BOXED, ["7"] * 4)
        assert "has two labels, '7' and '8'" in refusal(olr, ["a"] * 4, BOXED, ["8"] * 4)


def test_a_loaded_state_knows_the_prompts_and_labels_of_its_run(tmp_path):
    olr = make(tmp_path / "run")
    olr(["a"] * 4, BOXED, ["7"] * 4)
    state = olr.state_dict()
    olr.close("interrupted")
    with make(tmp_path / "run") as again:
        again.load_state_dict(state)
        assert "has two labels, '7' and '8'" in refusal(again, ["a"] * 4, BOXED, ["8"] * 4)
        again(["a"] * 4, BOXED, ["7"] * 4)
    assert len((tmp_path / "run" / "prompts.jsonl").read_text().splitlines()) == 1


def test_a_run_is_never_overwritten(recorded, tmp_path):
    with make(tmp_path / "run") as olr:
        feed(olr, recorded, until=1)
        state = olr.state_dict()
    _, batch = next(batches(recorded))
    assert "holds a run already (finished)" in refusal(make(tmp_path / "run"), **batch)
    assert "was closed after step 1; load its state to continue" in refusal(olr, **batch)
    with pytest.raises(UserError, match="saved by another run than the one"):
        make(tmp_path / "run").load_state_dict({**state, "run": "another"})
    with pytest.raises(
        UserError, match=r"begun with another recipe \(method.warmup_epochs: 3 -> 1\)"
    ):
        make(tmp_path / "run", method={**METHOD, "warmup_epochs": 1}).load_state_dict(state)
    with pytest.raises(
        UserError, match=r"the state is of a run that is not in .*; name its run_dir"
    ):
        make().load_state_dict(state)
    with pytest.raises(
        UserError, match=r"the state is of a run that is not in .*elsewhere; name its"
    ):
        make(tmp_path / "elsewhere").load_state_dict(state)


def test_answers_that_nobody_reads_are_warned_of_once_with_the_extractor_that_reads_them(
    caplog,
):
    with make() as olr:
        for _ in range(2):
            olr(["1+6="] * 4, ["so 7"] * 3 + ["so 8"], ["7"] * 4)
    (warning,) = caplog.messages
    assert warning == (
        "100% of the responses have no answer; data.extractor may be wrong. The extractor last_number reads 4 of 4"
        " responses."
    )


def test_supervisor_alone_takes_ten_lines():
    supervisor = Supervisor(
        compose(OlrMethod(warmup_epochs=1, slope_threshold="0.01")), Judge(), seed=0
    )
    prompt = Prompt("sum", (), given_label="8", true_answer=None, noise_type=None)
    for visit, right in enumerate([2, 3, 4], start=1):
        responses = [r"\boxed{7}"] * right + [r"\boxed{8}"] + [r"\boxed{9}"] * (4 - right)
        rollouts = tuple(map(Rollout, responses))
        group = RolloutGroup(prompt, visit=visit, step=visit, rollouts=rollouts)
        decided = supervisor.supervise(Step.of([group]))
    supervisor.judge.close()
    assert decided.labels["effective_label"] == ["7"]
    assert decided.rewards == [1.0, 1.0, 1.0, 1.0, 0.0]


def test_a_question_without_an_id_has_the_same_one_in_a_file_a_log_and_a_loop(tmp_path):
    questions = ["What is 3 + 4?", "what is 3+4", "What is 8?"]
    file = json_lines(
        tmp_path / "data.jsonl", *({"question": q, "answer": "7"} for q in questions)
    )
    rows = [{"prompt": q, "response": text, "step": 1} for q in questions for text in BOXED]
    log = json_lines(tmp_path / "log.jsonl", *rows)
    with make(tmp_path / "run") as olr:
        step = olr([q for q in questions for _ in BOXED], BOXED * 3, ["7"] * 12)
    ids = [label.prompt_id for label in step.labels]
    assert ids[1] == f"{ids[0]}-2"  # a near-duplicate is a prompt of its own
    assert ids == [prompt.prompt_id for prompt in read_prompts(file).prompts]
    assert ids == read_log([log]).rows["prompt_id"].unique(maintain_order=True).to_list()
    again = make(tmp_path / "run")
    again.load_state_dict(olr.state_dict())
    with again:
        step = again([q for q in questions[1:] for _ in BOXED], BOXED * 2, ["7"] * 8)
    assert [(label.prompt_id, label.visit) for label in step.labels] == [
        (name, 2) for name in ids[1:]
    ]


@pytest.mark.parametrize("failing", ["create_run", "drop_unfinished", "now"])
def test_a_run_that_could_not_begin_is_not_held(tmp_path, monkeypatch, failing):
    def fails(*_arguments, **_facts):
        raise UserError("the disk is full", "make room")

    path, step = tmp_path / "run", (["1 + 6 ="] * 4, BOXED, ["7"] * 4)
    if failing != "create_run":
        with make(path) as whole:
            whole(*step)
            state = whole.state_dict()
    with monkeypatch.context() as disk:
        disk.setattr(f"olr_cli.runs.writer.{failing}", fails)
        with pytest.raises(UserError, match="disk is full") as _while_its_traceback_lives:
            make(path)(*step) if failing == "create_run" else make(path).load_state_dict(
                state
            )
        assert not is_held(path)
