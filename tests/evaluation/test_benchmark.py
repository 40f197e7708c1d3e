"""Which benchmarks there are (R19), how they are named, and benchmarks of one's own."""

import re
from pathlib import Path

import pytest
from cases import each, refusal

from olr_cli.evaluation.benchmark import (
    PAPER,
    Benchmark,
    ProblemSource,
    _free_name,
    choose,
    find_benchmark,
    listing,
    registry,
)

OWN = """
name: planets
problems: 2
source: {file: data/planets.jsonl}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "planets.yaml"
    file.write_text(OWN)
    return file


def test_the_papers_nine_are_there_with_its_sizes_samples_and_groups():
    rows = {
        name: (b.problems, b.samples, b.distribution, b.grader)
        for name, b in registry().items()
        if name in PAPER
    }
    assert rows == {
        "aime24": (30, 32, "in", "math"), "aime25": (30, 32, "in", "math"), "amc": (83, 32, "in", "math"),
        "math500": (500, 1, "in", "math"), "minerva": (272, 1, "in", "math"), "olympiad": (675, 1, "in", "math"),
        "arc_c": (1172, 1, "out", "choice"), "gpqa_diamond": (198, 1, "out", "choice"),
        "mmlu_pro": (12032, 1, "out", "choice"),
    }  # fmt: skip
    assert tuple(rows) == PAPER


def test_every_hub_source_is_pinned_but_the_one_whose_file_says_why_and_has_licence_and_page():
    hub = {
        name: benchmark for name, benchmark in registry().items() if benchmark.source.hub
    }
    assert tuple(hub) == PAPER
    revisions = {name: benchmark.source.revision or "" for name, benchmark in hub.items()}
    assert [
        name for name, it in revisions.items() if not re.fullmatch(r"[0-9a-f]{40}", it)
    ] == ["olympiad"]
    assert [name for name, benchmark in hub.items() if benchmark.source.gated] == [
        "gpqa_diamond"
    ]
    for benchmark in hub.values():
        assert benchmark.licence
        assert benchmark.page == f"https://huggingface.co/datasets/{benchmark.source.hub}"


@each(
    "alias, name",
    ("aime", "aime24"), ("math", "math500"), ("olympiad_bench", "olympiad"), ("gpqa", "gpqa_diamond"),
    ("arithmetic-addition", "arithmetic"), ("arithmetic:subtraction", "arithmetic:subtraction"),
)  # fmt: skip
def test_a_benchmark_is_found_by_the_names_that_files_give_it(alias, name):
    assert find_benchmark(alias).name == name


def test_no_name_means_two_benchmarks():
    names = [name for benchmark in registry().values() for name in benchmark.names]
    assert len(names) == len(set(names))


@each(
    "wrong, expected",
    ("olympiads", "did you mean 'olympiad'?"),
    ("xyz", "known: all, aime24"),
)
def test_an_unknown_name_is_refused_with_a_suggestion(wrong, expected):
    caught = refusal(find_benchmark, wrong)
    assert f"'{wrong}'" in caught and expected in caught


def test_all_means_the_papers_nine_in_its_order_each_once():
    assert tuple(b.name for b in choose("all")) == PAPER
    assert [b.name for b in choose("amc, all,arithmetic")] == [
        "amc",
        *(name for name in PAPER if name != "amc"),
        "arithmetic",
    ]


def test_a_list_names_benchmarks_aliases_and_files(own):
    assert [b.name for b in choose(f"math,{own},math500")] == ["math500", "planets"]
    assert "name some" in refusal(choose, " , ")


def test_two_benchmarks_of_one_name_are_refused(own):
    own.write_text(OWN.replace("planets\n", "aime24\n"))
    assert "two different benchmarks are called 'aime24'" in refusal(
        choose, f"aime24,{own}"
    )


def test_the_file_of_an_own_benchmark_lies_beside_its_yaml(own, monkeypatch, tmp_path):
    benchmark = find_benchmark(str(own))
    assert benchmark.source == ProblemSource(file=str(tmp_path / "data" / "planets.jsonl"))
    assert (benchmark.title, benchmark.samples, benchmark.distribution) == (
        "planets",
        1,
        None,
    )


@each(
    "text, expected",
    (OWN + "sample: 4", "unknown key 'sample' (did you mean 'samples'?)"),
    (OWN + "samples: 0", "samples is 0: input should be greater than 0"),
    ("name: planets", "field required"),
    ("name: planets\nsource: {path: x}", "unknown key 'source.path'"),
    (
        "name: planets\nsource: {file: x, task: y}",
        "'source' needs one of hub, file and task",
    ),
    (
        "name: planets\nsource: {hub: org/name, spilt: test}",
        "'source.spilt' (did you mean 'split'?)",
    ),
    ("name: planets\nsource: {hub: name}", "source.hub is 'name'"),
    (OWN + "prompt: Answer!", "prompt has no {problem}"),
    *(
        (
            OWN + text,
            "multiple choice needs grader choice, fields.choices (the columns of the options)",
        )
        for text in (
            "prompt: '{problem} {choices}'",
            "fields: {problem: q, answer: a, choices: c}",
            "fields: {problem: q, answer: a, shuffle: true}",
            "fields: {problem: q, answer: a}\ngrader: choice",
        )
    ),
    (
        OWN + "fields: {problem: q, answer: a, choice: c}",
        "'fields.choice' (did you mean 'choices'?)",
    ),
    (OWN + "extractor: boxd", "did you mean 'boxed'?"),
    (OWN + "extractor: {regex: '('}", "regular expression '(' is not valid"),
    (
        OWN + "extractor: {before: x}",
        "expected a name, or one of regex, after, tag, function",
    ),
    ("name: [", "is not valid YAML"),
)
def test_what_is_wrong_with_an_own_benchmark_is_one_sentence(own, text, expected):
    own.write_text(text)
    caught = refusal(find_benchmark, str(own))
    assert str(own) in caught and expected in caught


def test_only_the_placeholders_of_a_prompt_are_filled_in():
    benchmark = Benchmark(
        name="x",
        source=ProblemSource(file="x"),
        grader="choice",
        fields={"problem": "q", "answer": "a", "choices": "c"},
        prompt=r"{problem} {choices} in \boxed{} {x}",
    )
    assert (
        benchmark.ask("Is {choices} a set?", "A) yes")
        == r"Is {choices} a set? A) yes in \boxed{} {x}"
    )


def test_a_benchmark_survives_the_way_through_json():
    for benchmark in registry().values():
        assert Benchmark.model_validate_json(benchmark.model_dump_json()) == benchmark


@each(
    "name, text",
    ("aime24", """\
aime24 (also: aime): AIME24
    30 problems, avg@32, math, in distribution
    HuggingFaceH4/aime_2024:train@2fe88a2f; not stated (Apache-2.0 for AI-MO/aimo-validation-aime, which it is a\
 part of)
    https://huggingface.co/datasets/HuggingFaceH4/aime_2024"""),
    ("gpqa_diamond", """\
gpqa_diamond (also: gpqa): GPQA
    198 problems, pass@1, choice, out of distribution
    Idavidrein/gpqa/gpqa_diamond:train@633f5ee8 (gated); CC-BY-4.0; its authors ask not to publish the problems in\
 plain text
    https://huggingface.co/datasets/Idavidrein/gpqa"""),
    ("olympiad", """\
olympiad (also: olympiad_bench): Olympiad
    675 problems, pass@1, math, in distribution
    zwhe99/simplerl-OlympiadBench:test; Apache-2.0 (as Hothan/OlympiadBench says of the original)
    https://huggingface.co/datasets/zwhe99/simplerl-OlympiadBench"""),
    ("arithmetic", """\
arithmetic (also: arithmetic-addition, arithmetic:addition): Addition
    400 problems, pass@1, math
    built in: arithmetic; Apache-2.0 (generated by olr)"""),
    ids=["sampled", "gated", "not pinned", "built in"],
)  # fmt: skip
def test_a_listing_has_these_lines_of_a_benchmark(name, text):
    said = "\n".join(listing().parts)
    assert f"\n{text}\n" in f"\n{said}\n"
    assert find_benchmark(name).title in text


@each(
    "file, called",
    ("exam.jsonl", "exam"), ("my exam.csv", "my-exam"), ("exam.v2", "exam.v2"), ("aime24.jsonl", "aime24-data"),
    ("math.parquet", "math-data"), ("-.csv", "data"), (f"{'x' * 120}.csv", "x" * 100),
)  # fmt: skip
def test_a_file_gives_its_benchmark_a_name_that_no_other_has(file, called):
    assert _free_name(file) == called


def test_a_listing_says_what_is_measured_how_and_where_it_is_from():
    said = listing().parts
    assert [*listing().result["benchmarks"]] == [*registry().values()]
    first = said.index("aime24 (also: aime): AIME24")
    assert said[first + 1].split() == [
        "30",
        "problems,",
        "avg@32,",
        "math,",
        "in",
        "distribution",
    ]
    assert said[first + 2].split(";")[0].strip() == "HuggingFaceH4/aime_2024:train@2fe88a2f"
    assert any("gpqa_diamond:train@633f5ee8 (gated);" in line for line in said)
    assert any(
        "12,032 problems, pass@1, choice, out of distribution" in line for line in said
    )
    assert any("built in: arithmetic;" in line for line in said)
