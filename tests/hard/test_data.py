"""Hostile data: tables of any types and any JSON are read as they are meant, or refused in a sentence."""

import contextlib
import datetime
import functools
import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentences
from cases import each
from hypothesis import HealthCheck, example, given, settings, strategies as st
from sentences import cases, olr, options, write

from olr_cli.analysis.histories import read_history
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.noise import inject
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.prompts import NOISE_TYPES, PromptSet
from olr_cli.data.table_files import matching_files, read_table
from olr_cli.data.verified import VerifiedLabels
from olr_cli.data.writers import encode
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import (
    Benchmark,
    ProblemFields,
    ProblemSource,
    choose,
    read_benchmark,
)
from olr_cli.evaluation.problems import load_problems
from olr_cli.recipe.plain import dump_yaml
from olr_cli.runs.wrong_answers import wrong_answers

LONGEST = 3010
"""Characters of a sentence: it lists the columns of a table."""
sentence = functools.partial(sentences.sentence, longest=LONGEST)
refusal = functools.partial(sentences.refusal, longest=LONGEST)


def parquet(folder: Path, name: str = "x.parquet", **columns: Any) -> Path:
    pq.write_table(pa.table(columns), folder / name)
    return folder / name


def jsonl(folder: Path, content: str | bytes, name: str = "x.jsonl") -> Path:
    return write(folder, content, name)


NAN, INF = float("nan"), float("inf")
MESSAGES = [[{"role": "user", "content": f"q{number}"}] for number in range(3)]


def columns_of_every_type() -> dict[str, pa.Array]:
    """Three values of each type that a Parquet file may have, nulls and strange values among them."""
    moment = datetime.datetime(2020, 1, 1)
    return {
        "int8": pa.array([1, 2, 3], pa.int8()), "int64": pa.array([1, 2, 3]),
        "uint64": pa.array([1, 2, 2**64 - 1], pa.uint64()), "int with null": pa.array([1, None, 3]),
        "float": pa.array([1.0, 2.0, 3.0]), "float with nan": pa.array([1.0, NAN, 3.0]),
        "float with inf": pa.array([1.0, INF, -0.0]), "large floats": pa.array([1e300, 2.5, 1e16]),
        "half": pa.array([1.0, 2.0, 3.0]).cast(pa.float16()), "text": pa.array(["a", "b", "c"]),
        "text with null": pa.array(["a", None, ""]), "blank": pa.array([" ", "\n", "\t"]),
        "large text": pa.array(["a", "b", "c"], pa.large_string()),
        "text view": pa.array(["a", "b", "c"], pa.string_view()),
        "control": pa.array(["a\0b", "\u202eabc", "\x1b[2J"]),
        "noise types": pa.array(["clean", "inactive", None]),
        "sentinel": pa.array([SENTINEL, None, "1"]),
        "binary": pa.array([b"a", b"b", b"\xff"]), "bool": pa.array([True, False, None]), "null": pa.nulls(3),
        "large binary": pa.array([b"a", b"b", b"c"], pa.large_binary()),
        "fixed binary": pa.array([b"ab", b"cd", b"ef"], pa.binary(2)),
        "categories": pa.array(["a", "b", "a"]).dictionary_encode(),
        "categories with null": pa.array(["a", None, "b"]).dictionary_encode(),
        "numbers as categories": pa.array([1, 2, 1]).dictionary_encode(),
        "decimal": pa.array([Decimal("1.50"), Decimal("2.00"), Decimal("3.25")]),
        "whole decimal": pa.array([Decimal(1), Decimal(2), Decimal(3)]),
        "long decimal": pa.array([Decimal("1" * 50), Decimal(2), None], pa.decimal256(60, 0)),
        "moment": pa.array([moment] * 3), "date": pa.array([moment.date()] * 3), "time": pa.array([moment.time()] * 3),
        "moment far away": pa.array([2**62] * 3).cast(pa.timestamp("us")),
        "moment on Mars": pa.array([0, 1, 2], pa.timestamp("s", tz="Mars/Olympus")),
        "duration": pa.array([datetime.timedelta(1)] * 3), "list": pa.array([["a"], ["b", "c"], None]),
        "list of one": pa.array([["a"], ["b"], []]), "list of null": pa.array([[None], ["b"], None]),
        "large list": pa.array([["a"], ["b"], ["c"]], pa.large_list(pa.string())),
        "fixed list": pa.array([["a"], ["b"], ["c"]], pa.list_(pa.string(), 1)),
        "list of lists": pa.array([[["a"]], [["b"]], []]),
        "struct": pa.array([{"x": 1}, {"x": 2}, None]),
        "message": pa.array([{"role": "user", "content": "q"}] * 3),
        "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "messages": pa.array(MESSAGES),
        "message without text": pa.array([[{"role": "user", "content": None}], MESSAGES[1], None]),
        "null for a message": pa.array([[None], MESSAGES[1], []]),
        "number for a text": pa.array([[{"role": "user", "content": 1}]] * 3),
        "parts for a text": pa.array([[{"role": "user", "content": [{"type": "text", "text": "q"}]}]] * 3),
        "large messages": pa.array(
            MESSAGES, pa.large_list(pa.struct([("role", pa.string()), ("content", pa.large_string())]))
        ),
    }  # fmt: skip


TYPES = columns_of_every_type()
BRIEFLY = ["float with nan", "decimal", "long decimal", "moment far away", "moment on Mars", "list", "bool", "binary",
           "text view", "null", "control", "message without text", "duration", "map", "float with inf"]  # fmt: skip


def require_sound(prompts: PromptSet, folder: Path) -> None:
    """Ids tell prompts apart, labels are text or missing, and a written file is read as what was written."""
    ids = [prompt.prompt_id for prompt in prompts.prompts]
    assert len(set(ids)) == len(ids)
    for prompt in prompts.prompts:
        assert all(
            m.role is not None and isinstance(m.content, str) for m in prompt.messages
        )
        for label in (prompt.given_label, prompt.true_answer):
            assert label is None or (isinstance(label, str) and label.strip())
        assert prompt.noise_type in (None, *NOISE_TYPES)
    try:
        noisy = inject(prompts, type="mixed", ratio="0.5", seed=0)
    except UserError as error:
        sentence(error)
        noisy = prompts
    for name in ("again.parquet", "again.jsonl"):
        try:
            (folder / name).write_bytes(encode(noisy, folder / name))
        except UserError as error:
            assert "does not fit JSON" in sentence(error)
            continue
        assert read_prompts(folder / name).digest == noisy.digest


def of_types(
    folder: Path,
    is_long: bool,
    plain: dict[str, Any],
    field: str,
    read: Callable[[Path], Any],
) -> list[Any]:
    """What is read of tables in which `field` has each type; the others are refused, and the file is named."""
    results = []
    for name in TYPES if is_long else BRIEFLY:
        column, (outer, _, inner) = TYPES[name], field.partition(".")
        if inner:
            column = pa.StructArray.from_arrays([column], [inner])
        try:
            results.append(read(parquet(folder, **{**plain, outer: column})))
        except UserError as error:
            assert "x.parquet" in sentence(error)
    return results


FIELDS_OF_PROMPTS = (
    "question answer prompt_id data_source rephrased_prompt reward_model extra_info ability extra_info.index"
    " extra_info.noise_type extra_info.original_ground_truth extra_info.split reward_model.ground_truth"
)
FIELDS_OF_ROLLOUTS = (
    "prompt_id visit response answer given_label true_answer noise_type data_source view tokens"
    " entropy"
)


@pytest.mark.parametrize("field", FIELDS_OF_PROMPTS.split())
def test_a_column_of_any_type_is_understood_or_refused(tmp_path, field, is_long):
    plain = {"question": TYPES["text"], "answer": TYPES["int64"]}
    read = of_types(tmp_path, is_long, plain, field, read_prompts)
    assert read
    for prompts in read:
        require_sound(prompts, tmp_path)


@pytest.mark.parametrize("field", FIELDS_OF_ROLLOUTS.split())
def test_a_history_with_a_column_of_any_type_is_understood_or_refused(
    tmp_path, field, is_long
):
    plain = {"prompt_id": TYPES["text"], "visit": TYPES["int64"], "response": TYPES["text"]}
    for history in of_types(tmp_path, is_long, plain, field, read_history):
        rows = [row for step in history.steps for row in step.iter_rows(named=True)]
        assert len(rows) == 3 and {row["prompt_id"] for row in rows} == set(history.prompts)
        assert all(
            p.given_label is None or p.given_label.strip() for p in history.prompts.values()
        )


def test_whole_numbers_that_an_exporter_made_floats_are_whole_numbers_again(tmp_path):
    """An integer column in which one value is missing becomes floats in pandas and others: 14.0 is the id 14."""
    ids, labels = pa.array([14.0, 15.0]), pa.array([7.0, None])
    prompts = read_prompts(
        parquet(tmp_path, "p.parquet", prompt_id=ids, question=["a", "b"], answer=labels)
    )
    assert [(p.prompt_id, p.given_label) for p in prompts.prompts] == [
        ("14", "7"),
        ("15", None),
    ]
    path = parquet(
        tmp_path, prompt_id=ids, visit=pa.array([1.0, 1.0]), response=["x", "y"], given_label=labels,
        is_correct=[False, False], answer=pa.array([3.0, 2.5]), true_answer=pa.array([Decimal("7.00"), None]),
    )  # fmt: skip
    history = read_history(path)
    known = {name: (p.given_label, p.true_answer) for name, p in history.prompts.items()}
    assert known == {"14": ("7", "7"), "15": (None, None)}
    assert wrong_answers(path, prompts) == {"14": ["3"], "15": ["2.5"]}
    [(prompt_id, label)] = VerifiedLabels.read(path).of(history.prompts.values()).items()
    assert (prompt_id, label.answer) == ("14", "7")


@each(
    "table, expected",
    (pa.table({"question": ["q"], "answer": [1]}).slice(0, 0), "has no rows"),
    (pa.table({}), "has no rows"),
    (pa.table({"Question": ["q"], "Answer": [1]}), "its columns are Question, Answer"),
    (pa.Table.from_arrays([pa.array(["q"])] * 2, ["question", "question"]), "has 'question' twice; rename"),
    (
        pa.table({"extra_info": pa.StructArray.from_arrays([pa.array([1])] * 2, ["index", "index"])}),
        "has 'index' twice in 'extra_info'",
    ),
    (pa.table({f"c{number}": [1] for number in range(1001)}), "no column of prompts"),
    (pa.table({"\x1b[31mred\nnew": ["q"]}), r"its columns are \x1b[31mred\nnew"),
    (pa.table({"x" * 10_000: ["q"]}), "no column of prompts"),
)  # fmt: skip
def test_a_table_that_is_none_of_prompts_is_refused(tmp_path, table, expected):
    pq.write_table(table, tmp_path / "x.parquet")
    assert expected in refusal(lambda: read_prompts(tmp_path / "x.parquet"))


def test_a_torn_or_garbled_parquet_file_is_refused_wherever_it_is_torn(
    tmp_path, is_long, sampled
):
    questions = [f"question {number}" for number in range(200)]
    path = parquet(tmp_path, question=questions, answer=list(range(200)))
    whole = path.read_bytes()
    cuts = (
        range(len(whole))
        if is_long
        else [*range(0, len(whole), 97), *range(len(whole) - 12, len(whole))]
    )
    for cut in cuts:
        path.write_bytes(whole[:cut])
        assert "is not a whole Parquet file" in refusal(lambda: read_prompts(path))
    draw, refused = random.Random(0), 0
    rounds = 20_000 if is_long else sampled(300)
    for _ in range(rounds):
        garbled = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            garbled[draw.randrange(len(garbled))] = draw.randrange(256)
        path.write_bytes(garbled)
        try:
            assert len(read_prompts(path).prompts) == 200, (
                "rows are missing, and nobody is told"
            )
        except UserError as error:
            sentence(error)
            refused += 1
    print(
        f"\n  {len(cuts)} cuts; {rounds} files with other bytes, {refused} of them refused",
        end="",
    )
    footer = range(len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), len(whole))
    for place in draw.sample(footer, sampled(len(footer))):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with contextlib.suppress(UserError):
            assert len(read_prompts(path).prompts) == 200, f"byte {place} of the footer"


def test_lists_of_nulls_are_data(tmp_path):
    path = parquet(tmp_path, question=["p", "q"], answer=[1, 2], hints=[[], [None] * 3])
    assert len(read_prompts(path).prompts) == 2
    pq.write_table(pq.read_table(path), path, use_dictionary=False)
    assert read_table([path])["hints"].to_pylist() == [[], [None] * 3]


ROW = '{"question":"q","answer":1}'
DEEP = 100_000


@each(
    "content, expected",
    *cases('rows'),
    (ROW + ",\n" + ROW, "line 1 is not valid JSON: Extra data"),
    (ROW + ROW, "line 1 is not valid JSON: Extra data"),
    (ROW + '\n{"question":"q","ans', "line 2 is not valid JSON: Unterminated string"),
    ("[" + ROW + ",]", "is not valid JSON: Expecting value"),
    ('{"question":"q","answer":1,"x":' + "[" * DEEP + "]" * DEEP + "}", "nested too deeply"),
    ('{"question":"q","answer":1,"x":' + "[" * 700 + "]" * 700 + "}", "nested too deeply"),
    ('{"question":"q","answer":' + "9" * 5000 + "}", "is not valid JSON: Exceeds the limit (4300 digits)"),
    (b"\x1f\x8b\x08\x00", "is not UTF-8 text"),
    (ROW.encode("utf-16")[:-1], "is not UTF-8 text (truncated data"),
    ('{"question":"q","extra_info":{"noise_type":"' + "x" * 10**6 + '"}}', "is 'xxx"),
)  # fmt: skip
def test_hostile_json_is_refused_in_a_sentence(tmp_path, content, expected):
    path = jsonl(tmp_path, content)
    message = refusal(lambda: read_prompts(path))
    assert expected in message and "x.jsonl" in message


UNICODE = ["e\u0301", "\u00e9", "\u202eright to left", "שלום", "👩\u200d👩\u200d👧", "a\u2028b", "a\u2029b", "a\0b",
           "a\x85b", "\x1b[31mred", "\ufeffmark", "٣", "=cmd|' /C calc'!A0", "../../etc/passwd", "<script>", "a\r\nb",
           "|x|", "\U0010ffff"]  # fmt: skip


def test_text_of_any_kind_comes_back_as_it_was_and_prompts_stay_apart(tmp_path):
    rows = [{"prompt_id": text, "question": text, "answer": f"{text}!"} for text in UNICODE]
    path = jsonl(
        tmp_path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    )
    prompts = read_prompts(path)
    assert [p.prompt_id for p in prompts.prompts] == UNICODE
    assert [p.messages[-1].content for p in prompts.prompts] == UNICODE
    require_sound(prompts, tmp_path)


@each(
    "content, labels",
    (b"\xef\xbb\xbf" + ROW.encode(), ["1"]),
    (ROW + "\r\n" + ROW + "\r\n", ["1", "1"]),
    ("\n\n" + ROW + "\n \t\n" + ROW, ["1", "1"]),
    ('{"question":"q","answer":NaN}', [None]),
    ('{"question":"q","answer":' + "9" * 40 + "}", ["9" * 40]),
    ('{"question":"q","answer":1e3}', ["1000"]),
    ('{"question":"' + "x" * 10_000_000 + '","answer":1}', ["1"]),
    ('{"question":"q","answer":1,"x":' + "[" * 28 + "]" * 28 + "}", ["1"]),
    ('{"question":"q","answer":1,"x":' + '{"a":' * 28 + "1" + "}" * 28 + "}", ["1"]),
    ('{"question":"q","answer":1,"":2}', ["1"]),
    ('{"question":"\\ud83d\\ude00","answer":1}', ["1"]),
)  # fmt: skip
def test_what_is_odd_but_means_something_is_read(tmp_path, content, labels):
    prompts = read_prompts(jsonl(tmp_path, content))
    assert [p.given_label for p in prompts.prompts] == labels
    require_sound(prompts, tmp_path)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.just("q"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
TEXTS = st.text(min_size=1, max_size=12)
MESSAGE_LISTS = st.lists(
    st.fixed_dictionaries({"role": TEXTS, "content": TEXTS}), max_size=3
)
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "question": TEXTS,
    "prompt": MESSAGE_LISTS | TEXTS,
    "answer": TEXTS | st.integers() | st.floats(),
    "prompt_id": TEXTS | st.integers() | st.none(),
    "data_source": TEXTS,
    "rephrased_prompt": TEXTS | MESSAGE_LISTS | st.none(),
    "reward_model": st.fixed_dictionaries(
        {}, optional={"ground_truth": TEXTS | st.integers(), "style": JSON}
    ),
    "extra_info": st.fixed_dictionaries(
        {},
        optional={
            "index": TEXTS | st.integers(),
            "noise_type": st.sampled_from(NOISE_TYPES),
            "x": JSON,
        },
    ),
    "other": JSON,
}
ODD = st.dictionaries(
    st.sampled_from(["question", "answer", "prompt", "extra_info", "x"]), JSON, max_size=4
)
ROWS = st.lists(st.fixed_dictionaries({}, optional=LIKELY) | ODD, min_size=1, max_size=4)


def test_any_rows_are_a_data_set_or_are_refused(tmp_path_factory, is_long, sampled):
    folder, read = tmp_path_factory.mktemp("rows"), []

    @settings(
        max_examples=5_000 if is_long else sampled(120),
        suppress_health_check=list(HealthCheck),
    )
    @given(rows=ROWS)
    # Few of those that are drawn are a data set, or none
    @example(rows=[{"question": "1+1", "answer": "2"}])
    def law(rows: list[dict[str, Any]]) -> None:
        path = jsonl(folder, "".join(json.dumps(row) + "\n" for row in rows))
        read.append(False)
        try:
            prompts = read_prompts(path)
        except UserError as error:
            sentence(error)
            return
        read[-1] = True
        require_sound(prompts, folder)

    law()
    print(f"\n  {len(read)} sets of rows, {sum(read)} of them data sets", end="")
    assert any(read)


def test_what_is_no_file_of_data_is_refused(tmp_path):
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    (tmp_path / "broken.jsonl").symlink_to("nowhere.jsonl")
    (tmp_path / "broken.parquet").symlink_to("nowhere.parquet")
    for name in ("loop.jsonl", "broken.jsonl", "broken.parquet"):
        assert name in refusal(functools.partial(read_prompts, tmp_path / name))
    for source in ["/dev/zero", "x" * 5000, "x" * 5000 + ".jsonl", "~nobody_here/x.jsonl", "a\0b", "[", "x y", "../x",
                   "http://x/y.parquet", "arithmetic:x", "-x", "a\nb.jsonl", "\udcff", "../..:x", "./x"]:  # fmt: skip
        refusal(lambda source=source: read_prompts(source))


def test_of_a_folder_the_data_files_are_read_and_nothing_else(tmp_path):
    jsonl(tmp_path, ROW, "a.jsonl")
    parquet(tmp_path, "b.parquet", question=["p"], answer=[2])
    for name in ("c.csv", "_SUCCESS", "._a.parquet", ".hidden.jsonl"):
        (tmp_path / name).write_text("garbage")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "link.jsonl").symlink_to("nowhere")
    (tmp_path / "sub.jsonl").mkdir()
    assert [p.given_label for p in read_prompts(tmp_path).prompts] == ["1", "2"]
    assert read_table(matching_files(str(tmp_path / "*.jsonl"))).num_rows == 1


# Benchmarks of one's own ------------------------------------------------------------------------------------------

OWN = {
    "name": "mine",
    "source": {"file": "x.parquet"},
    "fields": {"problem": "question", "answer": "answer"},
}
WRONG: list[Any] = [None, True, "", " ", "x", -1, 0, 1.5, NAN, INF, 10**30, [], {}, [None], {"a": 1}, "../../x", "a\nb",
                    "x" * 500, "{problem}{choices}", "{problem!r}", "{problem.__class__}", "\0"]  # fmt: skip
KEYS = [
    *((key,) for key in (*Benchmark.model_fields, "base", "x")),
    *(("source", key) for key in ProblemSource.model_fields),
    *(("fields", key) for key in ProblemFields.model_fields),
]


def test_a_benchmark_takes_what_a_key_means_and_refuses_all_else(tmp_path, is_long):
    parquet(tmp_path, question=TYPES["text"], answer=TYPES["int64"])
    for path in KEYS:
        for value in WRONG if is_long else WRONG[::4]:
            tree: dict[str, Any] = json.loads(json.dumps(OWN))
            inner = tree if len(path) == 1 else tree[path[0]]
            inner[path[-1]] = value
            file = jsonl(tmp_path, dump_yaml(tree), "mine.yaml")
            try:
                benchmark = read_benchmark(file)
                assert Path(benchmark.name).name == benchmark.name
                load_problems(benchmark)
            except UserError as error:
                sentence(error)
    for name in ("x" * 5000, "~nobody/x.yaml", "/dev/zero", "", "a\0b", "../x", "."):
        refusal(lambda name=name: choose(name))


def test_options_of_any_type_are_understood_or_refused(tmp_path, is_long):
    fields = {"problem": "question", "answer": "answer", "choices": "options", "id": "id"}
    tree = OWN | {
        "grader": "choice",
        "prompt": "{problem}\n{choices}",
        "problems": 3,
        "fields": fields,
    }
    plain = {"question": TYPES["text"], "answer": pa.array(["A", "B", "A"]), "id": TYPES["text"],
             "options": pa.array([["x", "y"]] * 3)}  # fmt: skip
    benchmark = read_benchmark(jsonl(tmp_path, dump_yaml(tree), "mine.yaml"))
    for column in fields.values():
        for problems in of_types(
            tmp_path, is_long, plain, column, lambda _: load_problems(benchmark)
        ):
            assert all(problem.gold in ("A", "B") for problem in problems)


# The commands -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_id_or_text_of_the_data_leads_out_of_the_run_or_steers_the_terminal(
    tmp_path, monkeypatch
):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    rows = [{"prompt_id": text, "question": f"{text}{100 + k}+{200 + k}=", "answer": f"{300 + 2 * k}"}
            for k, text in enumerate(UNICODE)]  # fmt: skip
    jsonl(home, "".join(json.dumps(row) + "\n" for row in rows), "hostile.jsonl")
    before = set(tmp_path.rglob("*"))
    settings = ["data.train=hostile.jsonl", "data.test=null", "data.extractor=reversed_digits", "train.epochs=2",
                "train.prompts_per_step=9", "train.mini_batch_prompts=9", "train.rollouts_per_prompt=4",
                "train.max_new_tokens=5", "engine.threads=1", "method.warmup_epochs=1"]  # fmt: skip
    for command in (
        ("train", "laptop/quickstart", "--run-dir", "run", *options(*settings)),
        ("replay", "run", "--out", "labels.parquet"),
        ("audit", "run", "--export", "repaired.jsonl"),
        ("analyze", "run", "--report", "--figure", "dynamics"),
        (
            "inject-noise",
            "--dataset",
            "hostile.jsonl",
            "--type",
            "active",
            "--ratio",
            "0.5",
        ),
    ):
        status, output = olr(*command)
        assert status == 0, (command, output[-500:])
        assert all(line.isprintable() for line in output.split("\n")), command
    made = set(tmp_path.rglob("*")) - before
    assert {path.relative_to(home).parts[0] for path in made} == {
        "run", "labels.parquet", "repaired.jsonl", "repaired.jsonl.md", "data"
    }  # fmt: skip
    assert [p.prompt_id for p in read_prompts("repaired.jsonl").prompts] == UNICODE


def test_a_command_that_refuses_data_says_so_with_status_2(tmp_path):
    path = jsonl(tmp_path, '{"a\\nb\\u001b[2J":1}')
    for command in (
        ("inject-noise", "--dataset", path, "--type", "active", "--ratio", "0.5"),
        ("train", "laptop/quickstart", "--set", f"data.train={path}", "--dry-run"),
        ("audit", path),
        ("evaluate", "builtin:addition-easier", "--data", path, "--benchmarks", "math500"),
    ):
        status, output = olr(*command)
        assert (
            status == 2 and output.startswith("Error: ") and output.strip().isprintable()
        ), command


_LOADED = """
import sys
from olr_cli.data.sets import training_prompts
from olr_cli.recipe.layers import load_recipe
changed = [f"data.train={sys.argv[1]}", "data.limit=null", "noise=null"]
assert len(training_prompts(load_recipe("laptop/quickstart", changed))) == 1_000_000
"""


@pytest.mark.slow
def test_a_million_rows_fit_in_eight_gigabytes(tmp_path, is_long):
    """Prompts through `olr inject-noise` and into a training run, and a log through an audit; memory is linear."""
    if not is_long:
        pytest.skip("it is about a million rows")
    rows = range(1_000_000)
    path = parquet(
        tmp_path,
        question=[f"What is {n} plus {n % 997}, on a day like any other?" for n in rows],
        answer=[n + n % 997 for n in rows],
    )
    rollouts = parquet(  # 8 of each prompt at each of 5 visits
        tmp_path,
        "rollouts.parquet",
        prompt_id=[float(n // 40) for n in rows],
        visit=[n // 8 % 5 for n in rows],
        response=[f"so it is \\boxed{{{n % 8 * n % 3}}}" for n in rows],
        given_label=[n // 40 % 3 for n in rows],
    )
    inject = (
        f"-m olr_cli inject-noise --dataset {path} --type mixed --ratio 0.3 --out".split()
    )
    for command in (
        [*inject, "noisy.parquet"],
        [*inject, "noisy.jsonl"],
        ["-c", _LOADED, "noisy.jsonl"],
        ["-m", "olr_cli", "audit", rollouts, "--out", "audit.parquet"],
    ):
        limit = functools.partial(
            resource.setrlimit, resource.RLIMIT_AS, (8 << 30, 8 << 30)
        )
        words = [sys.executable, *map(str, command)]
        done = subprocess.run(
            words, capture_output=True, text=True, cwd=tmp_path, preexec_fn=limit
        )
        assert done.returncode == 0, done.stderr[-500:]
