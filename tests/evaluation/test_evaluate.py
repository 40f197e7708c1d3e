"""An evaluation: what is generated, what is stored, and how it goes on; with a backend that needs no model."""

import json
import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import asdict
from datetime import date

import polars as pl
import pyarrow.parquet as pq
import pytest
from cases import each, refusal
from commands import contents
from sums import CHUNK, FACTS, PROBLEMS, SAMPLES, Backend, Silent, run, sums

from olr_cli.engines.backends import BackendOptions
from olr_cli.engines.digests import model_digest
from olr_cli.errors import UserError
from olr_cli.evaluation import plan, scores, store
from olr_cli.evaluation.evaluate import evaluate
from olr_cli.evaluation.plan import Evaluation, EvaluationRequest
from olr_cli.evaluation.pool import sample_seed
from olr_cli.evaluation.store import EvaluationStore, Target
from olr_cli.recipe.sampling import Sampling
from olr_cli.runs.interrupts import Interrupted
from olr_cli.runs.locks import held
from olr_cli.tables import as_json


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "evaluations" / "model"


def lose_a_row(file, number):
    table = pq.read_table(file)
    pq.write_table(
        table.take([row for row in range(table.num_rows) if row != number]), file
    )


@pytest.fixture
def uninterrupted(tmp_path, benchmark):
    run(tmp_path / "uninterrupted", [benchmark], Backend())
    return contents(tmp_path / "uninterrupted")


def interrupted_by(error, at, folder):
    """A backend that is interrupted before its chunk number `at`, as soon as the earlier ones are stored."""

    def before_chunk(number):
        if number == at:
            parts = folder / "generations" / "sums.parts"
            while len(list(parts.glob("part-*.parquet"))) < at - 1:
                time.sleep(0.01)
            raise error

    return Backend(before_chunk)


def test_every_sample_is_stored_with_its_prompt_its_grade_and_its_seed(folder, benchmark):
    [score] = run(folder, [benchmark], Backend(), seed=3)
    rows = pl.read_parquet(folder / "generations" / "sums.parquet")
    assert rows.height == PROBLEMS * SAMPLES
    assert rows["sample"].to_list() == [*range(SAMPLES)] * PROBLEMS
    first = rows.row(0, named=True)
    assert first["prompt"].endswith("\\boxed{}.\n0 + 7 = ?")
    assert first["seed"] == sample_seed(3, "sums", first["problem_id"], 0)
    assert (first["gold"], first["choices"]) == ("7", None)
    for row in rows.iter_rows(named=True):
        assert row["response"] == f"It is \\boxed{{{row['answer']}}}."
        assert row["is_correct"] == (row["answer"] == row["gold"])
    assert score.avg == rows["is_correct"].mean()
    assert score.truncated == rows["truncated"].mean() > 0
    stored = json.loads((folder / "scores.json").read_text())["scores"]
    assert stored == [json.loads(json.dumps(as_json(score)))]


def test_a_greedy_evaluation_takes_one_sample_unless_told_otherwise(folder, benchmark):
    [score] = run(folder / "1", [benchmark], Backend(), sampling=Sampling(temperature=0))
    assert score.samples == 1
    [score] = run(
        folder / "2", [benchmark], Backend(), sampling=Sampling(temperature=0), samples=3
    )
    assert score.samples == 3


@pytest.mark.parametrize("has_chat_template", [True, False])
def test_a_model_without_a_chat_template_is_named(folder, benchmark, has_chat_template):
    progress = Silent()
    run(
        folder, [benchmark], Backend(has_chat_template=has_chat_template), progress=progress
    )
    told = [words[1] for words in progress.told if words[0] == "say"]
    warning = "Warning: someone/model has no chat template: prompts are given to it as plain text, roles left"
    assert any(sentence.startswith(warning) for sentence in told) == (not has_chat_template)


def test_a_finished_evaluation_needs_no_model(folder, benchmark):
    before = run(folder, [benchmark], Backend()), contents(folder)
    assert (run(folder, [benchmark]), contents(folder)) == before


def test_after_an_interruption_only_the_missing_problems_are_generated(
    folder, benchmark, uninterrupted
):
    with pytest.raises(KeyboardInterrupt):
        run(folder, [benchmark], interrupted_by(KeyboardInterrupt, 2, folder))
    assert not (folder / "scores.json").exists()
    backend, progress = Backend(), Silent()
    run(folder, [benchmark], backend, progress=progress)
    assert sum(map(len, backend.asked)) == PROBLEMS - CHUNK
    assert progress.told[0] == ("start", PROBLEMS * SAMPLES, CHUNK * SAMPLES)
    assert contents(folder) == uninterrupted


def test_an_evaluation_that_goes_on_on_another_day_asks_as_on_its_first(
    folder, benchmark, monkeypatch
):
    asked = []

    def begun_on(day, opened):
        class Day(date):
            @classmethod
            def today(cls):
                return day

        def open_on(_self, _model, chat):
            asked.append(chat.day)
            return opened

        monkeypatch.setattr(plan, "date", Day)
        monkeypatch.setattr(BackendOptions, "open", open_on)
        request = EvaluationRequest()
        target = Target("someone/model", folder, "some model", {})
        evaluate(Evaluation(target, request.tasks([benchmark]), request), Silent())

    first = date(2025, 3, 9)
    with pytest.raises(KeyboardInterrupt):
        begun_on(first, interrupted_by(KeyboardInterrupt(), 2, folder))
    begun_on(date(2025, 4, 17), Backend())
    assert asked == [first, first]
    assert EvaluationStore(folder).record().day == first


def test_killed_while_parts_are_put_together_nothing_is_counted_twice(
    folder, benchmark, uninterrupted, monkeypatch
):
    def killed(folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", killed)
        run(folder, [benchmark], Backend())
    assert len(list((folder / "generations" / "sums.parts").iterdir())) == 3
    run(folder, [benchmark])
    assert contents(folder) == uninterrupted


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_request_to_stop_lets_the_chunk_be_stored(
    folder, benchmark, uninterrupted, number, status
):
    backend = Backend(lambda chunk: os.kill(os.getpid(), number) if chunk == 2 else None)
    progress = Silent()
    with pytest.raises(Interrupted) as stop:
        run(folder, [benchmark], backend, progress=progress)
    assert stop.value.exit_status == status
    assert len(backend.asked) == 2
    assert len(list((folder / "generations" / "sums.parts").iterdir())) == 2
    said = [words[1] for words in progress.told if words[0] == "say"]
    assert said == [
        "Stopping when the finished samples are stored; Ctrl-C again stops at once."
    ]
    run(folder, [benchmark], Backend())
    assert contents(folder) == uninterrupted


def test_a_missing_sample_is_an_error_and_the_same_command_makes_it_again(
    folder, benchmark, uninterrupted
):
    run(folder, [benchmark], Backend())
    file = folder / "generations" / "sums.parquet"
    lose_a_row(file, 20)
    assert "has 15 stored samples, not the 16 numbered 0 to 15" in refusal(
        EvaluationStore(folder).scores
    )
    backend = Backend()
    run(folder, [benchmark], backend)
    assert backend.asked == [["1 + 7 = ?"]]
    assert contents(folder) == uninterrupted


def test_a_torn_part_is_named_and_made_again_once_it_is_removed(
    folder, benchmark, uninterrupted
):
    with pytest.raises(KeyboardInterrupt):
        run(folder, [benchmark], interrupted_by(KeyboardInterrupt, 3, folder))
    part = folder / "generations" / "sums.parts" / "part-000001.parquet"
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(
        UserError, match=r"part-000001\.parquet is not a whole Parquet file.*remove it"
    ):
        run(folder, [benchmark], Backend())
    part.unlink()
    backend = Backend()
    run(folder, [benchmark], backend)
    assert len(backend.asked) == 2
    assert contents(folder) == uninterrupted


def test_benchmarks_can_be_added_and_are_worked_on_in_order(folder, benchmark, tmp_path):
    other = sums(tmp_path, "others", first=50)
    run(folder, [benchmark], Backend())
    backend, progress = Backend(), Silent()
    scores = run(folder, [other, benchmark], backend, progress=progress)
    assert [score.benchmark for score in scores] == ["others", "sums"]
    assert all(
        question.startswith(("5", "6")) for chunk in backend.asked for question in chunk
    )
    assert ("say", f"others: {100 * scores[0].avg:.1f}%") in progress.told
    stored = json.loads((folder / "scores.json").read_text())
    assert [score["benchmark"] for score in stored["scores"]] == ["sums", "others"]


def test_each_benchmark_is_scored_once(folder, benchmark, tmp_path, monkeypatch):
    """The score that is shown when a benchmark is done is the one that is stored and returned."""
    scored = []

    def score(benchmark, *words, **names):
        scored.append(benchmark.name)
        return scores.score(benchmark, *words, **names)

    monkeypatch.setattr(store, "score", score)
    run(folder, [sums(tmp_path, "others", first=50), benchmark], Backend())
    assert sorted(scored) == ["others", "sums"]


def test_a_larger_limit_goes_on_from_a_smaller_one(folder, benchmark, uninterrupted):
    [score] = run(folder, [benchmark], Backend(), limit=5)
    assert score.problems == 5
    backend = Backend()
    run(folder, [benchmark], backend)
    assert sum(map(len, backend.asked)) == PROBLEMS - 5
    assert contents(folder) == uninterrupted


@pytest.mark.parametrize("stopped", [False, True])
def test_more_samples_are_added_to_those_that_are_there(
    folder, benchmark, uninterrupted, stopped
):
    run(folder, [benchmark], Backend(), samples=5)
    if stopped:
        with pytest.raises(KeyboardInterrupt):
            run(folder, [benchmark], interrupted_by(KeyboardInterrupt(), 2, folder))
    display = Silent()
    run(folder, [benchmark], Backend(), progress=display)
    new = sum(
        samples
        for kind, *samples in display.told
        if kind == "advance"
        for samples in samples
    )
    missing = PROBLEMS - CHUNK * stopped
    assert new == missing * (SAMPLES - 5)
    assert ("start", PROBLEMS * SAMPLES, PROBLEMS * SAMPLES - new) in display.told
    assert contents(folder) == uninterrupted


def refused(folder, benchmarks, backend=None, **settings):
    before = contents(folder)
    said = refusal(run, folder, benchmarks, backend, **settings)
    assert contents(folder) == before
    return said


@each(
    "settings, told",
    (
        {"sampling": Sampling(0.7, 100)},
        "temperature: 0.6 -> 0.7; max_new_tokens: 4096 -> 100",
    ),
    (
        {"seed": 1, "samples": 4},
        "seed: 0 -> 1; samples of sums: 16 -> 4, which can only be raised",
    ),
    ({"limit": 3}, "problems of sums: 12 -> 3"),
    ({"model": "other/model"}, "model: someone/model -> other/model"),
    ({"extractor": "reversed_digits"}, "extractor of sums: boxed -> reversed_digits"),
    ({"tolerance": 0.05}, "tolerance of sums: 0.0 -> 0.05"),
    ({"first": 1}, "sums has other problems or golds"),
)
def test_an_evaluation_goes_on_only_if_it_is_asked_as_before(
    folder, benchmark, tmp_path, settings, told
):
    run(folder, [benchmark], Backend())
    keys = {
        key: settings.pop(key)
        for key in ("extractor", "tolerance", "first")
        if key in settings
    }
    said = refused(folder, [sums(tmp_path, **keys)], **settings)
    assert told in said and "or choose another name" in said


def test_what_decides_nothing_may_change(folder, benchmark):
    before = run(folder, [benchmark], Backend())
    run(
        folder,
        [
            benchmark.model_copy(
                update={"title": "Sums", "licence": "MIT", "samples": SAMPLES}
            )
        ],
    )
    assert json.loads((folder / "scores.json").read_text())["scores"][0]["title"] == "Sums"
    assert asdict(before[0])["title"] == "sums"


@each(
    "fact, told",
    ({"model_digest": "sha256:5678"}, "other weights (sha256:1234 -> sha256:5678)"),
    ({"name": "vllm"}, "another backend (transformers -> vllm)"),
    ({"dtype": "bfloat16"}, "another number format (float32 -> bfloat16)"),
)
def test_samples_of_another_model_or_backend_are_not_added(folder, benchmark, fact, told):
    run(folder, [benchmark], Backend(), limit=5)
    assert told in refused(folder, [benchmark], Backend(**fact))


def test_other_versions_may_go_on_and_are_noted(folder, benchmark):
    run(folder, [benchmark], Backend(torch="2.1"), limit=5)
    run(folder, [benchmark], Backend(torch="2.2"))
    noted = json.loads((folder / "evaluation.json").read_text())["generated_by"]
    assert [facts["torch"] for facts in noted] == ["2.1", "2.2"]
    assert all(facts["model_digest"] == FACTS["model_digest"] for facts in noted)


def test_a_model_folder_is_known_by_its_weights_not_by_its_place(
    folder, benchmark, tmp_path
):
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    run(
        folder,
        [benchmark],
        Backend(model_digest=model_digest(str(model), None)),
        model=model,
    )
    moved = model.rename(tmp_path / "moved")
    run(folder, [benchmark], model=moved)
    (moved / "model.safetensors").write_bytes(b"others")
    assert "other weights" in refused(folder, [benchmark], model=moved)


def test_a_folder_in_use_or_of_something_else_is_refused(folder, benchmark):
    with (
        held(folder, make=True),
        pytest.raises(UserError, match=r"is in use by process .* another folder"),
    ):
        run(folder, [benchmark], Backend())
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("mine")
    assert "holds something that is no evaluation" in refusal(
        run, folder, [benchmark], Backend()
    )
    assert [file.name for file in folder.iterdir() if file.name != ".lock"] == [
        "thesis.tex"
    ]


@pytest.mark.parametrize("at", [0, 1])
def test_nothing_is_left_of_an_evaluation_that_never_had_a_sample(
    folder, benchmark, tmp_path, at
):
    class Failing(Backend):
        def __enter__(self):
            if at == 0:
                raise UserError("no such model", "check it")
            return self

    def fail(number):
        raise UserError("prompts leave no room", "shorten them")

    with pytest.raises(UserError):
        run(folder, [benchmark], Failing(fail))
    assert list(tmp_path.glob("evaluations/*")) == []


@each(
    "content, told",
    (
        '{"schema_version": 99}',
        "was written by a newer olr (schema 99, this one reads 1); upgrade olr",
    ),
    ('{"schema_version": 1}', "is no evaluation's record"),
    ("[]", "is no evaluation's record"),
    ("{", "is not valid JSON"),
)
def test_a_record_that_cannot_be_read_is_named(folder, benchmark, content, told):
    run(folder, [benchmark], Backend())
    (folder / "evaluation.json").write_text(content)
    assert told in refused(folder, [benchmark])


def test_a_benchmark_without_problems_is_refused(folder, benchmark, tmp_path):
    (tmp_path / "sums.jsonl").write_text("")
    assert "sums" in refusal(run, folder, [benchmark], Backend())
    assert not folder.exists()


@each("error", None, RuntimeError, KeyboardInterrupt)
def test_the_display_ends_however_the_evaluation_does(folder, benchmark, error):
    display, ended = Silent(), []
    display.stop = lambda: ended.append(len(display.told))

    def fails(_number):
        if error is not None:
            raise error

    with suppress(*filter(None, [error])):
        run(folder, [benchmark], Backend(fails), progress=display)
    assert ended == [len(display.told)] and ended != [0]
    run(folder, [benchmark], Backend(), progress=display)
    finished = Silent()
    run(folder, [benchmark], progress=finished)  # nothing is left to show
    assert finished.told == []
