"""Which models a command names, where their evaluations go, and what they are compared with."""

import shutil

import pytest
from cases import each, refusal
from histories import write_history
from samples import json_lines
from sums import Backend, run, sums

from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.sets import held_out_prompts
from olr_cli.engines.backends import BackendOptions
from olr_cli.engines.models import policy_path
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import PAPER, choose, file_benchmarks
from olr_cli.evaluation.plan import EvaluationRequest, default_benchmarks, plan
from olr_cli.evaluation.problems import load_problems
from olr_cli.evaluation.results import check_reference, paper_row, scores_answer
from olr_cli.evaluation.store import Target, evaluations_at
from olr_cli.evaluation.targets import all_targets, targets, with_runs_of_folders
from olr_cli.runs.checkpoints import checkpoint_path
from olr_cli.runs.directory import read_manifest, read_recipe, write_manifest


@pytest.fixture
def trained(tmp_path):
    path = write_history(tmp_path / "runs" / "mine", steps=4)
    for step in (2, 4):
        checkpoint_path(path, step).mkdir(parents=True)
    return path


def test_a_model_is_evaluated_below_the_current_folder(here):
    [target] = targets("builtin:subtraction", [], None)
    assert target.model == str(policy_path("subtraction"))
    assert str(target.folder) == "evaluations/builtin-subtraction"
    [target] = targets("Qwen/Qwen3-4B-Base", [], None)
    assert (target.model, str(target.folder)) == (
        "Qwen/Qwen3-4B-Base",
        "evaluations/Qwen-Qwen3-4B-Base",
    )
    (here / "model").mkdir()
    (here / "model" / "config.json").write_text("{}")
    [target] = targets("./model/", [], here / "out")
    assert (target.model, target.folder) == (str(here / "model"), here / "out")


def test_a_run_is_evaluated_in_its_own_directory_and_says_which_checkpoint(trained):
    [target] = targets(str(trained), [], None)
    assert target.model == str(checkpoint_path(trained, 4))
    assert target.folder == trained / "evaluation" / "step-000004"
    assert target.name == "mine step 4"
    assert target.origin == {"run": str(trained), "step": 4, "chosen": "last"}
    found = targets(str(trained), ["2", "last", "4"], trained / "elsewhere")
    assert [target.folder.name for target in found] == ["step-000002", "step-000004"]
    assert found[0].origin["chosen"] == "named"


def set_status(run, status):
    write_manifest(run, {**read_manifest(run), "status": status})


def test_a_folder_stands_for_the_finished_runs_below_it(tmp_path):
    sweep = tmp_path / "sweep"
    for name in ("b", "a", "deeper/c", "failed", "untrained"):
        path = write_history(sweep / name, steps=2)
        set_status(path, "failed" if name == "failed" else "finished")
        if name != "untrained":
            checkpoint_path(path, 2).mkdir(parents=True)
    said = []
    found = with_runs_of_folders(
        ["builtin:sums", str(sweep), str(sweep / "a")], said.append
    )
    assert found == [
        "builtin:sums",
        *(str(sweep / name) for name in ("a", "b", "deeper/c")),
    ]
    assert said == [
        f"{sweep}: 2 of 5 runs are left out: failed (failed), untrained (no checkpoint)."
    ]


def test_a_folder_without_a_finished_run_is_refused(tmp_path):
    write_history(tmp_path / "sweep" / "one", steps=2)
    problem = f"no run below {tmp_path}/sweep can be scored: one \\(stopped\\); `olr runs .*sweep`"
    with pytest.raises(UserError, match=problem):
        with_runs_of_folders([str(tmp_path / "sweep")])


def test_a_model_folder_with_runs_in_it_is_the_model(trained):
    model = trained.parent
    (model / "config.json").write_text("{}")
    assert with_runs_of_folders([str(model), "org/name"]) == [str(model), "org/name"]


def test_the_best_checkpoint_is_the_best_on_the_validation_set(trained):
    lacks = r"has no validation set \(data.validation\), or its best checkpoint is gone; there are"
    with pytest.raises(UserError, match=f"{lacks} 2, 4"):
        targets(str(trained), ["best"], None)
    shares = {0: 0.9, 2: 0.5, 3: 0.1, 4: 0.4}
    lines = [
        {"step": step, "epoch": 0, "validation/avg": avg} for step, avg in shares.items()
    ]
    json_lines(trained / "metrics.jsonl", *lines)
    [target] = targets(str(trained), ["best"], None)
    assert target.origin == {
        "run": str(trained),
        "step": 2,
        "chosen": "best on the validation set",
    }
    shutil.rmtree(checkpoint_path(trained, 2))
    with pytest.raises(UserError, match=f"{lacks} 4"):
        targets(str(trained), ["best"], None)


def test_what_is_neither_model_nor_run_is_told_apart(trained, tmp_path):
    def refused(model, *checkpoints):
        return refusal(all_targets, [str(model)], checkpoints, None)

    assert "has no such checkpoint; there are 2, 4, last and best" in refused(trained, "3")
    toy = "builtin:subtraction"
    assert f"only runs have checkpoints, and {toy} is none" in refused(toy, "3")
    assert "no built-in policy 'substraction' (did you mean 'subtraction'?)" in refused(
        "builtin:substraction"
    )
    assert "neither a model (it has no config.json) nor a run" in refused(trained.parent)
    assert "neither a model (it has no config.json) nor a run" in refused(tmp_path)
    assert "does not exist" in refused(tmp_path / "nowhere")
    assert "../nowhere does not exist" in refused("../nowhere")
    mistyped = trained.with_name(f"{trained.name}x")
    assert f"{mistyped} does not exist (did you mean '{trained}'?)" in refused(mistyped)
    shutil.rmtree(trained / "checkpoints")
    assert "has no checkpoint; train it further" in refused(trained)


def names_by_default(*models, data=None, **options):
    chosen = default_benchmarks(list(map(str, models)), data, **options)
    return [benchmark.name for benchmark in chosen.benchmarks]


def write_rows(file, *sources):
    rows = [
        {"question": f"{number}+1?", "answer": number + 1}
        | ({"data_source": source} if source else {})
        for number, source in enumerate(sources)
    ]
    return json_lines(file, *rows)


def test_the_default_benchmarks_fit_the_models(trained):
    assert names_by_default("org/model", "org/other") == list(PAPER)
    assert names_by_default("builtin:subtraction") == ["arithmetic:subtraction"]
    assert names_by_default(trained, "builtin:addition-harder") == ["arithmetic"]
    with pytest.raises(UserError, match=r"different benchmarks by default .*; name some"):
        names_by_default(trained, "org/model")


@each(
    "sources, names, note",
    (["math", "aime", "aime", "dapo"], ["aime24", "math500"], "rows of dapo are left out"),
    (["dapo", "dapo"], ["mine"], "is scored as mine"),
    ([None, None], ["mine"], None),
)
def test_data_are_the_papers_benchmarks_or_one_of_their_own(tmp_path, sources, names, note):
    file = write_rows(tmp_path / "mine.jsonl", *sources)
    chosen = default_benchmarks(["builtin:subtraction"], file)
    assert [benchmark.name for benchmark in chosen.benchmarks] == names
    assert chosen.note is None if note is None else note in chosen.note


def test_a_run_is_scored_on_what_it_holds_out(tmp_path):
    file = write_rows(tmp_path / "held out.jsonl", None, None)
    data = {"test": str(file), "extractor": "last_number", "system_prompt": "Think first."}
    run = write_history(tmp_path / "mine", data=data, steps=2)
    (benchmark,), note, *_ = default_benchmarks([str(run), "org/model"], None)
    assert (benchmark.name, benchmark.extractor) == ("held-out", "last_number")
    assert "is held out from training" in note
    held_out = held_out_prompts(read_recipe(run), str(file), "test").prompts
    problems = load_problems(benchmark)
    assert [(p.messages, p.gold) for p in problems] == [
        (p.messages, p.gold) for p in held_out
    ]
    assert names_by_default(run, of_the_paper=True) == ["arithmetic"]
    file.unlink()
    with pytest.raises(
        UserError, match=r"held-out prompts of .*does not exist.* or name benchmarks"
    ):
        default_benchmarks([str(run)], None)


@each(
    "names, path",
    (("Frage", "key", "uid"), "key"),
    (("Frage", "key", "uid"), "key.gold"),
    (("question", "answer", "id"), "key"),
)
def test_what_a_run_holds_out_has_the_columns_of_its_recipe_or_those_of_standard_names(
    tmp_path, names, path
):
    golds = [{"gold": str(n + 1)} if "." in path else str(n + 1) for n in range(3)]
    rows = [
        dict(zip(names, (f"{n}+1?", gold, f"p{n}"), strict=True))
        for n, gold in enumerate(golds)
    ]
    columns = {"question": "Frage", "answer": path, "id": "uid"}
    data = {"test": str(json_lines(tmp_path / "exam.jsonl", *rows)), "columns": columns}
    run = write_history(tmp_path / "run", data=data, steps=2)
    [benchmark] = default_benchmarks([str(run)], None).benchmarks
    problems = [(p.messages[-1].content, p.gold) for p in load_problems(benchmark)]
    assert problems == [(f"{n}+1?", str(n + 1)) for n in range(3)]


def test_a_file_is_asked_as_in_training(tmp_path):
    rows = [
        {"prompt": [{"role": "user", "content": f"{n}?"}], "answer": str(n)}
        for n in range(3)
    ]
    (benchmark,) = file_benchmarks(json_lines(tmp_path / "math.jsonl", *rows))
    assert benchmark.name == "math-data"  # math is MATH-500
    prompts = read_prompts(tmp_path / "math.jsonl").prompts
    assert [problem.messages for problem in load_problems(benchmark)] == [
        p.messages for p in prompts
    ]
    assert choose("math,math-data", own=[benchmark])[1] == benchmark


def test_how_a_file_was_read_is_noted(tmp_path):
    rows = [
        {"question": f"What is {n}+1?", "options": ["one", "two"], "answer": "AB"[n]}
        for n in range(2)
    ]
    (benchmark,) = file_benchmarks(json_lines(tmp_path / "mine.jsonl", *rows))
    assert benchmark.notes == read_prompts(tmp_path / "mine.jsonl").notes
    assert any("'options'" in note for note in benchmark.notes)


def test_golds_of_a_file_that_no_answer_can_match_are_told_before_anything_is_sampled(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    json_lines(
        tmp_path / "exam.jsonl",
        {"frage": "1?", "antwort": "1"},
        {"frage": "2?", "antwort": "N/A"},
    )
    fields = "fields: {problem: frage, answer: antwort}"
    (tmp_path / "mine.yaml").write_text(
        f"{{name: mine, source: {{file: exam.jsonl}}, {fields}}}"
    )
    server, said = BackendOptions(url="http://localhost:1/v1"), []
    plan(EvaluationRequest(["model"], benchmarks="mine.yaml", backend=server), said.append)
    assert said[-1].startswith(
        "Warning: olr check finds 1 thing in 2 rows (1 placeholder for a label): olr check "
    )


def test_a_file_with_columns_of_other_names_needs_a_benchmark_file_that_names_them(
    tmp_path,
):
    file = json_lines(tmp_path / "exam.jsonl", {"frage": "1?", "antwort": "1"})
    with pytest.raises(
        UserError,
        match=r"`{name: mine, source: {file: exam.jsonl}, fields: {problem: COLUMN",
    ):
        file_benchmarks(file)


def test_several_models_have_a_folder_each(trained, tmp_path):
    named = all_targets(["builtin:subtraction", str(trained)], ["2", "4"], tmp_path / "out")
    folders = [target.folder.name for group in named.values() for target in group]
    assert folders == ["builtin-subtraction", "mine-step-000002", "mine-step-000004"]
    assert {target.folder.parent for group in named.values() for target in group} == {
        tmp_path / "out"
    }
    with pytest.raises(
        UserError,
        match="only runs have checkpoints, and builtin:subtraction, org/model is none",
    ):
        all_targets(["builtin:subtraction", "org/model"], ["last"], None)
    with pytest.raises(UserError, match="have the same folder for results"):
        all_targets(["org/model", "org-model"], [], None)


@pytest.fixture
def evaluated(tmp_path):
    """Two evaluations of one benchmark, the second of fewer samples."""
    benchmark = sums(tmp_path)
    for name, samples in (("one", 16), ("two", 8)):
        run(tmp_path / "all" / name, [benchmark], Backend(), samples=samples)
    found = evaluations_at(tmp_path / "all")
    pairs = zip(found, (16, 8), strict=True)
    return [(target, run(target.folder, [benchmark], samples=n)) for target, n in pairs]


def test_evaluations_are_found_at_in_and_below_a_place(evaluated, tmp_path, trained):
    folders = [target.folder for target, _ in evaluated]
    assert [folder.name for folder in folders] == ["one", "two"]
    assert [target.folder for target in evaluations_at(folders[0])] == folders[:1]
    shutil.copytree(tmp_path / "all", trained / "evaluation")
    assert [target.folder.name for target in evaluations_at(trained)] == ["one", "two"]
    with pytest.raises(UserError, match=r"nowhere does not exist"):
        evaluations_at(tmp_path / "nowhere")


def test_an_evaluation_among_those_shown_is_what_the_others_are_compared_with(evaluated):
    rows = scores_answer(evaluated, evaluated[0][0].folder).result["rows"]
    assert {row["model"] for row in rows} == {str(evaluated[1][0].folder)}
    assert next(row["pairs"] for row in rows if row["benchmark"] == "sums") == 12


def test_the_last_evaluation_at_a_place_is_compared_with_and_named(evaluated, tmp_path):
    check_reference(tmp_path / "all", [evaluated[0][0]])
    data = scores_answer(evaluated[:1], tmp_path / "all").result
    assert {row["model"] for row in data["rows"]} == {"some model"}
    second = str(evaluated[1][0].folder)
    assert {row["reference"] for row in data["rows"]} == {second}, (
        "both are called some model"
    )
    last = evaluated[1][0].folder
    assert data["notes"][-1].endswith(
        f"all holds 2 evaluations; {last}, the last by name, is compared with."
    )
    assert "holds" not in str(scores_answer(evaluated[:1], last).notes)
    with pytest.raises(UserError, match="nowhere does not exist"):
        check_reference(tmp_path / "nowhere", [evaluated[0][0]])


def test_the_papers_row_is_that_of_the_model_or_run(trained, tmp_path):
    def target(model, folder=tmp_path, **origin):
        return Target(model, folder, model, origin)

    base = target("/models/Qwen3-4B-Base")
    assert str(paper_row([base, target("Qwen/Qwen3-4B-Base")]).setting) == "Qwen3-4B-Base"
    with pytest.raises(
        UserError, match="have different rows in the paper; compare them one at a time"
    ):
        paper_row([base, target("Qwen/Qwen3-8B-Base")])
    with pytest.raises(UserError, match="the paper has no scores of 'tiny'"):
        check_reference("paper", [target("org/tiny")])
    moved = target("step", trained / "evaluation" / "step-000004", run="/gone")
    with pytest.raises(
        UserError, match="the paper has no scores of 'builtin:addition-easier'"
    ):
        paper_row([moved])
