"""Logs of lm-eval and of trainers become evaluations."""

import json
import shutil
from functools import partial
from pathlib import Path

import commands
import polars as pl
import pytest
from cases import each
from samples import SAME_QUESTION, json_lines, questions

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"
LM_EVAL = LOGS / "lm-eval" / "SmolLM2-135M-Instruct"
[SUMS] = LM_EVAL.glob("samples_sums_*")
[SCIENCE] = LM_EVAL.glob("samples_science_2*")
[LIKELIHOOD] = LM_EVAL.glob("samples_science_likelihood_*")


answered, refused = (
    partial(run, "regrade") for run in (commands.answered, commands.refused)
)


def scores(plain):
    [evaluation] = plain["evaluations"]
    return {
        score["benchmark"]: (score["samples"], score["avg"])
        for score in evaluation["scores"]
    }


pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def benchmark(tmp_path):
    """The problems of the logs' task `sums` as a benchmark of the user's own, under names of its own."""
    golds = {"5": "5", "1/2": "0.5", "3.0": "3", "10 - 4": "6", "never asked": "1"}
    rows = [
        {"id": f"p{i}", "question": q, "answer": a}
        for i, (q, a) in enumerate(golds.items())
    ]
    json_lines(tmp_path / "mine.jsonl", *rows)
    fields = "{id: id, problem: question, answer: answer}"
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: mine\nsource: {{file: mine.jsonl}}\nfields: {fields}\n")
    return file


def test_a_log_of_lm_eval_is_graded_by_value_and_by_letter():
    plain, said = answered(LM_EVAL)
    assert scores(plain) == {"science": (1, 0.5), "sums": (2, 0.75)}
    itself = "lm-eval 0.4.13 itself scored sums: exact_match,boxed 25.0, exact_match,last-number 25.0."
    assert itself in plain["notes"]
    assert (
        "science_likelihood has likelihoods of given answers and no generated text; left out"
        in said
    )
    record = json.loads(
        Path("evaluations/SmolLM2-135M-Instruct-lm-eval/evaluation.json").read_text()
    )
    assert record["sampling"]["temperature"] == 0.6
    assert record["sampling"]["max_new_tokens"] == 16
    assert "unknown: top_p, top_k, min_p" in " ".join(plain["notes"])


@each("scores_file", None, [], {"results": []}, {"results": {"sums": {}}})
def test_a_log_without_scores_of_its_own_has_none_in_the_record(tmp_path, scores_file):
    shutil.copy(SUMS, tmp_path / SUMS.name)
    if scores_file is not None:
        [file] = LM_EVAL.glob("results_*")
        (tmp_path / file.name).write_text(json.dumps(scores_file), encoding="utf-8")
    plain, _ = answered(tmp_path)
    assert not any("itself scored" in note for note in plain["notes"])
    [record] = Path("evaluations").rglob("evaluation.json")
    assert json.loads(record.read_text())["origin"]["metrics"] == {"sums": {}}


def test_what_a_log_does_not_say_is_unknown():
    plain, _ = answered(SUMS)
    [score] = plain["evaluations"][0]["scores"]
    assert score["truncated"] is score["mean_tokens"] is None
    commands.done("regrade", "evaluations/SmolLM2-135M-Instruct-lm-eval")


def test_a_log_of_a_benchmark_is_compared_problem_by_problem(benchmark):
    answered(SUMS, "--benchmarks", benchmark, "--out", "lm-eval")
    words = ["--benchmarks", benchmark, "--out", "again", "--compare", "lm-eval"]
    plain, _ = answered(SUMS, *words)
    [row] = plain["rows"]
    assert (row["benchmark"], row["difference"], row["pairs"]) == ("mine", 0.0, 4)
    rows = pl.read_parquet("again/generations/mine.parquet")
    assert rows["problem_id"].unique(maintain_order=True).to_list() == [
        "p0",
        "p1",
        "p2",
        "p3",
    ]
    assert rows["gold"].unique(maintain_order=True).to_list() == ["5", "0.5", "3", "6"]


def test_problems_of_a_benchmark_are_found_in_every_form_of_their_questions(tmp_path):
    """R24."""
    asked = questions(2 * len(SAME_QUESTION))
    rows = [
        {"id": f"p{at}", "question": text, "answer": "1"} for at, text in enumerate(asked)
    ]
    json_lines(tmp_path / "mine.jsonl", *rows)
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nsource: {file: mine.jsonl}\nfields: {id: id, problem: question, answer: answer}\n"
    )
    texts = [
        form(text) for form, text in zip(SAME_QUESTION.values(), asked[::-2], strict=True)
    ]
    logged = [LINE | {"doc_id": at, "doc": {"q": text}} for at, text in enumerate(texts)]
    answered(
        write(tmp_path, "samples_x_1.jsonl", *map(json.dumps, logged)), "--benchmarks", "mine.yaml", "--out", "o",
    )  # fmt: skip
    found = pl.read_parquet("o/generations/mine.parquet")["problem_id"].to_list()
    assert found == [f"p{at}" for at in range(len(asked))][::-2]


def test_an_extractor_reads_the_answers_otherwise_also_afterwards(benchmark):
    words = [SUMS, "--benchmarks", benchmark]
    plain, _ = answered(*words, "--out", "numbers", "--extractor", "last_number")
    assert scores(plain)["mine"] == (2, 0.75)
    rows = pl.read_parquet("numbers/generations/mine.parquet")
    # The first response has no box
    assert rows.filter(problem_id="p3")["answer"].to_list() == [
        "20",
        "10",
    ]
    plain, _ = answered(*words, "--out", "boxes", "--compare", "numbers")
    assert any("graded with extractor boxed" in note for note in plain["notes"])
    commands.done("regrade", "numbers", "--extractor", "boxed")
    assert pl.read_parquet("numbers/generations/mine.parquet").equals(
        pl.read_parquet("boxes/generations/mine.parquet")
    )


def test_the_latest_log_of_a_task_counts(tmp_path):
    logs = tmp_path / "logs" / "model"
    logs.mkdir(parents=True)
    shutil.copy(SCIENCE, logs / "samples_science_2025-01-01T00-00-00.000000.jsonl")
    later = SCIENCE.read_text().replace(r"\\boxed{A) Iron}", r"\\boxed{C}")
    (logs / "samples_science_2025-01-02T00-00-00.000000.jsonl").write_text(later)
    plain, _ = answered(logs)
    assert scores(plain) == {"science": (1, 1.0)}


def test_an_evaluation_is_never_overwritten():
    answered(SCIENCE)
    assert "exists already; choose another name" in refused(SCIENCE)


ASKED = {"gen_args_0": {"arg_0": "?", "arg_1": {}}}
LINE = {
    "doc_id": 0,
    "doc": {},
    "target": "1",
    "arguments": ASKED,
    "resps": [["\\boxed{1}"]],
}


def write(tmp_path, name, *lines):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(line + "\n" for line in lines))
    return file


@each(
    "lines",
    ["{"],
    ["[1]"],
    ['{"doc_id": 0}'],
    [],
    [json.dumps(LINE | {"resps": 7})],
    [json.dumps(LINE | {"resps": [[{}]]})],
    [json.dumps(LINE | {"resps": [[]]})],
    ['{"doc_id": 0, "doc": ' + "[" * 900 + "]" * 900 + "}"],
    [json.dumps(LINE | {"arguments": None})],
    [
        json.dumps(
            LINE | {"arguments": {"a": {"arg_0": "?", "arg_1": {"temperature": "hot"}}}}
        )
    ],
)
def test_what_is_no_log_is_named(tmp_path, lines):
    file = write(tmp_path, "samples_x_1.jsonl", *lines)
    assert str(file) in refused(file)


@each(
    "target, right",
    (["2", "7"], ["7", "2"]),
    (["so\n#### 2", ["7"], 8], ["7", "8"]),
    ("['2', \"7'\"]", ["2"]),
    (["B", "(C)"], ["C", "B"]),
    ("[2, 7]", ["[2, 7]"]),
    ("so\n#### 2", ["2"]),
    (["1", "1.0"], ["1"]),
    (3, ["3"]),
)
def test_any_answer_of_a_target_is_right_also_when_it_is_graded_again(
    tmp_path, target, right
):
    asked = [f"\\boxed{{{answer}}}" for answer in [*right, "5"]]
    file = write(
        tmp_path,
        "samples_x_1.jsonl",
        json.dumps(LINE | {"target": target, "resps": [asked]}),
    )
    plain, _ = answered(file, "--out", "o")
    assert scores(plain)["x"] == (len(asked), len(right) / len(asked))
    assert "0 grades changed" in answered("o")[1]


def test_a_response_that_is_null_is_empty(tmp_path):
    lines = (
        LINE | {"doc_id": at, "resps": [[text]]}
        for at, text in enumerate([None, "\\boxed{1}"])
    )
    plain, said = answered(write(tmp_path, "samples_x_1.jsonl", *map(json.dumps, lines)))
    assert scores(plain) == {"x": (1, 0.5)} and "without a response" not in said


@each(
    "arguments, drawn",
    (
        {},
        {
            "temperature": 0.0,
            "max_new_tokens": 256,
            "top_p": 1.0,
            "top_k": None,
            "stop": [],
        },
    ),
    (
        {"temperature": 0.7, "do_sample": False, "max_new_tokens": 9},
        {"temperature": 0.0, "max_new_tokens": 9},
    ),
    (
        {"temperature": 0.7, "top_p": 0.9, "top_k": 0, "until": ["Q:", ""]},
        {
            "temperature": 0.7,
            "top_p": 0.9,
            "top_k": None,
            "min_p": "unknown",
            "stop": ["Q:"],
        },
    ),
    (
        {"temperature": 0.7},
        {"temperature": 0.7, "top_p": "unknown", "top_k": "unknown", "min_p": "unknown"},
    ),
)
def test_how_a_log_was_sampled_is_what_its_requests_say_and_else_unknown(
    tmp_path, arguments, drawn
):
    asked = {"gen_args_0": {"arg_0": "?", "arg_1": arguments}}
    plain, _ = answered(
        write(tmp_path, "samples_x_1.jsonl", json.dumps(LINE | {"arguments": asked})),
        "--out",
        "o",
    )
    assert (
        drawn.items() <= json.loads(Path("o/scores.json").read_text())["sampling"].items()
    )
    assert ("; unknown: " in plain["notes"][1]) == ("unknown" in drawn.values())
    assert json.loads(Path("o/scores.json").read_text())["seed"] == (
        "unknown" if drawn["temperature"] else 0
    )


def test_half_a_surrogate_pair_is_replaced(tmp_path):
    file = write(
        tmp_path, "samples_x_1.jsonl", json.dumps(LINE | {"resps": [["\ud800 \\boxed{1}"]]})
    )
    plain, _ = answered(file)
    assert scores(plain) == {"x": (1, 1.0)}


def test_a_target_that_is_no_gold_is_named_and_a_response_that_failed_is_empty(tmp_path):
    lines = [
        json.dumps(LINE | {"doc_id": at, "resps": [[text]]})
        for at, text in enumerate((None, "\\boxed{1}"))
    ]
    assert scores(answered(write(tmp_path, "samples_x_1.jsonl", *lines))[0]) == {
        "x": (1, 0.5)
    }
    file = write(tmp_path, "samples_x_1.jsonl", json.dumps(LINE | {"target": {"a": 1}}))
    assert f"line 1 of {file}: 'target' is a dict" in refused(file)


@each(
    "words, sentence",
    ([LIKELIHOOD], "likelihoods of given answers and no generated text"),
    (["nowhere"], "nowhere does not exist"),
    ([LOGS], "logs is no sample log of lm-eval; name another"),
    ([LOGS.parent / "metrics"], "no column prompt and no column response"),
    ([SCIENCE, "--benchmarks", "mine.yaml"], "asks other problems than mine"),
    (
        [SCIENCE, "--data", "mine.jsonl"],
        "--benchmarks: data are the problems of a benchmark",
    ),
)
def test_what_cannot_be_imported_is_refused(benchmark, words, sentence):
    assert sentence in refused(*words)


def test_logs_of_two_models_are_refused(tmp_path):
    for model in ("one", "two"):
        write(tmp_path, f"{model}/samples_x_1.jsonl", *SCIENCE.read_text().splitlines())
    assert "logs of 2 models; name one of" in refused(tmp_path)


TRL = LOGS / "trl" / "messages"


def test_a_trainers_log_is_one_benchmark_with_its_own_golds():
    plain, said = answered(TRL, "--extractor", "reversed_digits")
    right = pl.read_parquet(TRL / "*.parquet")["accuracy_reward"].eq(1).mean()
    assert scores(plain) == {"messages": (4, pytest.approx(right))}
    assert "was read as a log of TRL" in said
    assert any("How the responses were drawn is unknown" in note for note in plain["notes"])
    stored = json.loads(Path("evaluations/messages-TRL/scores.json").read_text())
    assert {*stored["sampling"].values(), stored["seed"]} == {"unknown"}
    assert "0 grades changed" in answered("evaluations/messages-TRL")[1]


VERL = {"input": "3+4", "output": r"\boxed{7}", "gts": "7", "score": 1.0, "step": 2}


def test_the_last_visits_are_scored_by_golds_and_not_by_rewards(tmp_path):
    others = [
        VERL | {"input": "8+8", "gts": "16", "output": text}
        for text in (r"\boxed{16}", "16")
    ]
    before = [VERL | {"step": 1, "output": "none"}] * 2
    file = json_lines(
        tmp_path / "dump.jsonl", *before, VERL | {"score": 0.0}, VERL, VERL, *others
    )
    plain, said = answered(file)
    assert scores(plain) == {"dump": (2, 0.75)}
    assert "Of each prompt, the rollouts of its last visit count." in said
    assert "Of each prompt, the first 2 rollouts count: some have no more." in said


def test_a_trainers_log_is_compared_with_an_evaluation_of_the_benchmark_that_it_asks(
    benchmark, tmp_path
):
    file = json_lines(
        tmp_path / "dump.jsonl",
        VERL | {"input": "10 - 4", "gts": None, "output": r"\boxed{6}"},
    )
    answered(SUMS, "--benchmarks", benchmark, "--out", "lm-eval")
    plain, _ = answered(
        file, "--benchmarks", benchmark, "--out", "o", "--compare", "lm-eval"
    )
    assert (scores(plain)["mine"], plain["rows"][0]["pairs"]) == ((1, 1.0), 1)
    assert (
        "dump.jsonl: problem" in (sentence := refused(file, "--out", "p"))
        and "has no gold" in sentence
    )


def test_the_columns_of_any_other_log_are_named(tmp_path):
    file = json_lines(
        tmp_path / "mine.jsonl",
        {"q": "3+4", "said": r"\boxed{7}", "right": 7, "letter": "B"},
    )
    names = "{{prompt: q, response: said, true_answer: {}}}"
    assert scores(answered(file, "--columns", names.format("right"), "--out", "o")[0]) == {
        "mine": (1, 1.0)
    }
    assert scores(answered(file, "--columns", names.format("letter"), "--out", "p")[0]) == {
        "mine": (1, 0.0)
    }
    assert "--columns is for a log" in refused("o", "--columns", names.format("right"))


def test_a_table_needs_responses_of_which_one_may_be_missing(tmp_path):
    row = {"prompt_id": "a", "visit": 1, "given_label": "7"}
    answers = json_lines(tmp_path / "answers.jsonl", row | {"answer": "7"})
    assert "answers.jsonl has answers and no responses" in refused(answers)
    file = json_lines(
        tmp_path / "mine.jsonl", row | {"response": r"\boxed{7}"}, row | {"response": None}
    )
    assert scores(answered(file)[0]) == {"mine": (2, 0.5)}


@each(
    "target, score",
    (["1", "1.0"], 0.5),
    (["7", "1"], 0.5),
    (["1", "2"], 1.0),
    ("so\n#### 2", 0.5),
    (3, 0.0),
)
def test_any_of_the_golds_of_a_log_is_right(tmp_path, target, score):
    line = LINE | {"target": target, "resps": [["\\boxed{1}", "\\boxed{2}"]]}
    plain, _ = answered(
        write(tmp_path, "samples_x_1.jsonl", json.dumps(line)), "--out", "o"
    )
    assert scores(plain) == {"x": (2, score)}
    regraded, _ = answered("o")
    assert scores(regraded) == scores(plain)


def inspect_log(tmp_path, name="log.json", **facts):
    """As inspect_ai writes its format json (inspect_ai/log/_log.py)."""
    said = {"output": {"completion": r"\boxed{7}"}, "input": "3+4", "target": "7"} | facts
    samples = [{"id": 1, "epoch": at, "scores": {}} | said for at in (1, 2)]
    log = {"version": 2, "eval": {"model": "openai/m"}, "samples": samples}
    (file := tmp_path / name).parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(log, indent=2))
    return file


@each(
    "facts, score",
    ({}, 1.0),
    ({"target": ["8", "7"]}, 1.0),
    ({"target": "8"}, 0.0),
    ({"choices": ["x", "y"], "target": "B", "output": {"completion": "ANSWER: B"}}, 1.0),
    ({"choices": ["x", "y"], "target": "A", "output": {"completion": "ANSWER: B"}}, 0.0),
)
def test_a_log_of_inspect_ai_is_graded_with_its_model_its_epochs_and_its_targets(
    tmp_path, facts, score
):
    plain, said = answered(inspect_log(tmp_path, **facts), "--out", "o")
    assert scores(plain) == {"log": (2, score)}
    assert "was read as a log of inspect_ai: target as given_label" in said
    assert json.loads(Path("o/evaluation.json").read_text())["model"] == "openai/m"
    assert "0 grades changed" in answered("o")[1]


def test_several_logs_of_inspect_ai_are_not_one_evaluation(tmp_path):
    for name in ("logs/1_a.json", "logs/2_b.json"):
        inspect_log(tmp_path, name)
    assert "holds several logs of inspect_ai; name one of them" in refused(
        tmp_path / "logs"
    )
