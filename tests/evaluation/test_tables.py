"""Tables of scores: what stands where, on a terminal, in Markdown, LaTeX and JSON."""

import csv
import io
import re
from dataclasses import replace
from decimal import Decimal

import polars as pl
import pytest
from rendered import rendered

from olr_cli import tables
from olr_cli.evaluation.benchmark import PAPER, Benchmark, find_benchmark
from olr_cli.evaluation.published import Setting, published_row
from olr_cli.evaluation.score_table import NamedScores, scores_table
from olr_cli.evaluation.scores import score

OLR = published_row(
    Setting("Qwen3-4B-Base", "olr", "active", Decimal("0.5"), 800, Decimal("0.05"), 5)
)
OWN = Benchmark(name="own_set", title="Own_set & co", source={"file": "own.jsonl"})


def scored(benchmark, right, problems, samples=1, thoughts=None):
    """A score: the first `right` of the problems are solved by every sample, the others by none.

    With `thoughts` the others end inside their thinking.
    """
    samples_of = {
        "gold": "x",
        "answer": "x",
        "answer_class": "x",
        "tokens": 7,
        "truncated": False,
    }
    rows = [
        {"problem_id": f"problem {p}", "sample": s, "is_correct": p < right, **samples_of}
        | {"unfinished_thought": thoughts and p >= right}
        for p in range(problems)
        for s in range(samples)
    ]
    return score(benchmark, pl.DataFrame(rows, infer_schema_length=None), samples)


def evaluation(name, right=10, names=PAPER, problems=20, samples=1):
    return NamedScores(
        name, tuple(scored(find_benchmark(n), right, problems, samples) for n in names)
    )


def test_thinking_that_does_not_end_has_a_column_where_models_think():
    score_of_thinker = scored(OWN, 15, 20, thoughts=True)
    table = scores_table([NamedScores("thinker", (score_of_thinker,))])
    text = rendered(table)
    assert re.search(r"cut no answer +think", text) and re.search(
        r"25\.0 +0\.0 +25\.0", text
    )
    assert any("end inside their thinking" in note for note in table.footnotes)
    assert "think" not in rendered(scores_table([evaluation("plain")]))


def rows_of(table):
    """The lines of a document by their names, the heads by an empty one."""
    [block] = table.shown("document")
    return {"": [column.head for column in block.columns[1:]]} | {
        texts[0]: texts[1:] for _, texts in block.grid("document")[1]
    }


@pytest.fixture(scope="module")
def ours():
    return evaluation("runs/ours step 50", right=12)


@pytest.fixture(scope="module")
def theirs():
    return evaluation("runs/theirs", right=8)


def test_columns_are_in_the_papers_order_with_the_averages_and_own_benchmarks_last():
    shuffled = NamedScores(
        "a", tuple(scored(b, 1, 2) for b in (OWN, *map(find_benchmark, reversed(PAPER))))
    )
    titles = [find_benchmark(name).title for name in PAPER]
    averages = ("in-distribution", "out-of-distr.")
    expected = [*titles[:6], averages[0], *titles[6:], averages[1], "Own_set & co"]
    assert rows_of(scores_table([shuffled]))[""] == expected


def test_one_evaluation_is_shown_in_detail():
    table = scores_table(
        [evaluation("a", right=5, names=("amc", "math500"), problems=20, samples=4)]
    )
    lines = rendered(table).splitlines()
    assert lines[0].startswith("a, %")
    heads = "benchmark problems n avg@n 95 % interval maj@n pass@n cut no answer"
    assert " ".join(lines[1].split()) == heads
    assert lines[2].split()[:4] == ["AMC", "20", "4", "25.0"]
    assert lines[2].split()[-4:] == ["25.0", "25.0", "0.0", "0.0"]
    assert re.search(r"\[ ?\d+\.\d, \d+\.\d\]", lines[2])
    line = rendered(scores_table([evaluation("a", names=("amc",))])).splitlines()[2]
    assert line.split()[-4:] == ["–", "–", "0.0", "0.0"], (
        "one sample has neither maj@n nor pass@n"
    )


def test_several_evaluations_are_shown_side_by_side():
    many = [
        evaluation(f"step {10 * i}", right=i, names=("amc", "math500")) for i in range(1, 8)
    ]
    text = rendered(scores_table(many))
    lines = [line.split() for line in text.splitlines() if line.startswith("AMC")]
    assert lines == [
        ["AMC", "5.0", "10.0", "15.0", "20.0", "25.0"],
        ["AMC", "30.0", "35.0"],
    ]


@pytest.mark.parametrize("count", [1, 2, 6])
def test_a_terminal_of_80_columns_is_enough(count, theirs):
    names = [
        f"runs/a-long-name-of-a-run-{i}/checkpoints/step-000050 [best]"
        for i in range(count)
    ]
    table = scores_table(
        [evaluation(name, right=20 if i else 11) for i, name in enumerate(names)], theirs
    )
    text = rendered(table)
    assert "[best]" in text
    assert "[-" in text or "[+" in text


def test_the_paper_stands_beside_ours_with_the_difference(ours):
    rows = rows_of(scores_table([ours], OLR))
    titles, paper, difference = rows[""], rows["paper"], rows["difference"]
    assert titles[:2] == ["AIME24", "AIME25"]
    assert " ".join(paper) == "20.4 15.4 49.7 81.4 36.4 48.1 41.9 78.5 28.3 54.8 53.9"
    assert [cell.split()[0] for cell in rows["runs/ours step 50"]] == ["60.0"] * 11
    assert difference[:3] == ["+39.6", "+44.6", "+10.3"]
    assert difference[titles.index("MATH-500")] == "-21.4"
    base = rows_of(scores_table([ours], published_row(Setting("Qwen3-4B-Base"))))["paper"]
    assert [base[titles.index(name)] for name in ("in-distribution", "out-of-distr.")] == [
        "24.8",
        "27.7",
    ]


def test_what_the_paper_does_not_have_is_left_open():
    both = NamedScores("a", (scored(find_benchmark("amc"), 1, 2), scored(OWN, 1, 2)))
    rows = rows_of(scores_table([both], OLR))
    assert rows["paper"] == ["49.7", "–"]
    assert rows["difference"] == ["+0.3", "–"]


def test_two_evaluations_are_compared_problem_by_problem(ours, theirs):
    table = scores_table([ours], theirs)
    rows = rows_of(table)
    assert rows["runs/theirs"][0].startswith("40.0 [")
    assert re.fullmatch(r"\+20\.0 \[\+\d+\.\d, \+\d+\.\d\]", rows["difference"][0])
    text = rendered(table)
    assert "runs/ours step 50 against runs/theirs, %" in text
    line = next(
        line for line in text.split("against")[1].splitlines() if line.startswith("AIME24")
    )
    assert line.split()[:4] == ["AIME24", "60.0", "40.0", "+20.0"]


def test_each_of_several_evaluations_has_its_own_line_of_differences(ours, theirs):
    rows = rows_of(scores_table([ours, evaluation("third", right=8)], theirs))
    assert rows[f"difference: {ours.name}"][0].startswith("+20.0")
    assert rows["difference: third"][0] == "+0.0"
    alone = rows_of(scores_table([theirs, ours], theirs))
    assert list(alone) == ["", ours.name, theirs.name, "difference"], (
        "it is not compared with itself"
    )


def test_latex_has_the_papers_heads_and_intervals_as_scripts(ours):
    text = tables.latex(scores_table([ours], OLR))
    assert (
        r" & \multicolumn{7}{c}{In-distribution} & \multicolumn{4}{c}{Out-of-distribution} \\"
        in text
    )
    line = next(line for line in text.splitlines() if line.startswith(ours.name))
    assert re.fullmatch(
        r"runs/ours step 50( & \$60\.0_\{\d+\.\d\}\^\{\d+\.\d\}\$){11} \\\\", line
    )


def test_csv_has_a_line_an_evaluation_and_benchmark(ours, theirs):
    lines = list(
        csv.DictReader(io.StringIO(tables.comma_separated(scores_table([ours], theirs))))
    )
    assert [line["benchmark"] for line in lines] == [*PAPER, "in", "out"]
    first, average = lines[0], lines[-1]
    assert (first["model"], first["problems"], first["samples"]) == (ours.name, "20", "1")
    assert (first["avg"], first["reference_avg"]) == ("0.6", "0.4")
    assert float(first["difference"]) == pytest.approx(0.2)
    assert float(average["low"]) < float(average["avg"]) < float(average["high"])
    assert (first["pairs"], average["problems"]) == ("20", "")
    assert "reference" not in scores_table([ours]).rows[0]


def test_notes_say_what_is_compared_and_what_was_scored_in_part(ours, theirs):
    against_paper = " ".join(scores_table([ours], OLR).notes)
    assert "Qwen3-4B-Base, olr, active noise 0.5 (noise_ratios, baselines" in against_paper
    assert (
        "runs/ours step 50: only some problems were scored (AIME24 20 of 30, "
        in against_paper
    )
    assert "paired by problem" in " ".join(scores_table([ours], theirs).notes)
    whole, part = (
        evaluation("a", names=("amc",)),
        evaluation("b", names=("amc",), problems=15),
    )
    of_both = "differences are of the problems that both have (AMC 15)."
    assert f"a: {of_both}" in scores_table([whole], part).notes
    assert f"b: {of_both}" in scores_table([part], whole).notes
    others = NamedScores(
        "c", (replace(whole.scores[0], by_problem={("problem 0", "another gold"): 1.0}),)
    )
    assert f"a: {of_both.replace('15', '0')}" in scores_table([whole], others).notes
    assert not any(of_both in note for note in scores_table([whole], whole).notes)


def shown_of(table):
    """What a terminal shows, without the blanks at the ends of lines; and the notes."""
    lines = [line.rstrip() for line in rendered(table).strip().splitlines()]
    return "\n".join([*lines, *table.notes])


IN_DETAIL = """\
ours, %
benchmark problems n avg@n 95 % interval maj@n pass@n cut no answer
AMC             20 4  25.0  [10.0, 45.0]  25.0   25.0 0.0       0.0
MATH-500        20 4  25.0  [10.0, 50.0]  25.0   25.0 0.0       0.0

ours against a long name of others, %
benchmark avg@n reference difference 95 % interval
AMC        25.0      53.3      -20.0 [-46.7, -6.7]
MATH-500   25.0      53.3      -20.0 [-46.7, -6.7]
Scores are avg@n; intervals are 95 % bootstrap intervals over problems.
Differences are to a long name of others, in points, paired by problem.
Sampled at temperature 0.6.
ours: only some problems were scored (AMC 20 of 83, MATH-500 20 of 500).
ours: of AMC the server ended 1,203 responses otherwise (tool_calls 3, content_filter 1,200); they are graded by what\
 they say.
ours: differences are of the problems that both have (AMC 15, MATH-500 15)."""

SIDE_BY_SIDE = """\
avg@n, %
benchmark ours third
AMC       25.0  45.0
MATH-500  25.0  45.0

ours against paper, %
benchmark avg@n paper difference 95 % interval
AMC        25.0  49.7      -24.7             –
MATH-500   25.0  81.4      -56.4             –

third against paper, %
benchmark avg@n paper difference 95 % interval
AMC        45.0  49.7       -4.7             –
MATH-500   45.0  81.4      -36.4             –
Scores are avg@n; intervals are 95 % bootstrap intervals over problems.
The paper's row is Qwen3-4B-Base, olr, active noise 0.5 (noise_ratios, baselines, slope_sensitivity,\
 warmup_sensitivity, ablation): 8 samples of AIME and AMC, the authors' grader, no intervals; differences are in points.
ours: Sampled at temperature 0.6.
ours: only some problems were scored (AMC 20 of 83, MATH-500 20 of 500).
ours: of AMC the server ended 1,203 responses otherwise (tool_calls 3, content_filter 1,200); they are graded by what\
 they say.
third: only some problems were scored (AMC 20 of 83, MATH-500 20 of 500)."""

CORRECTED = """\
third, %
benchmark problems n avg@n 95 % interval maj@n pass@n cut no answer
AMC             20 1  45.0  [25.0, 65.0]     –      – 0.0       0.0
MATH-500        20 1  45.0  [25.0, 70.0]     –      – 0.0       0.0

third against old keys, %
benchmark avg@n old keys difference 95 % interval
AMC        45.0     53.3       +6.7 [+0.0, +33.3]
MATH-500   45.0     53.3       +6.7 [+0.0, +33.3]
Scores are avg@n; intervals are 95 % bootstrap intervals over problems.
Differences are to old keys, in points, paired by problem.
third: only some problems were scored (AMC 20 of 83, MATH-500 20 of 500).
third: differences are of the problems that both have (AMC 15, MATH-500 15)."""


def test_the_whole_text_of_one_of_two_and_of_corrected_keys():
    two = ("amc", "math500")
    ours = evaluation("ours", right=5, names=two, samples=4)
    amc = replace(ours.scores[0], ended_by={"tool_calls": 3, "content_filter": 1200})
    notes = ("Sampled at temperature 0.6.",)
    ours = replace(ours, notes=notes, scores=(amc, *ours.scores[1:]))
    theirs = evaluation("a long name of others", right=8, names=two, problems=15)
    third = evaluation("third", right=9, names=two)
    corrected = replace(third, before=replace(theirs, name="old keys"))
    assert shown_of(scores_table([ours], theirs)) == IN_DETAIL
    assert shown_of(scores_table([ours, third], OLR)) == SIDE_BY_SIDE
    assert shown_of(scores_table([corrected])) == CORRECTED


def test_notes_explain_a_missing_interval():
    assert not any(
        "no interval" in note
        for note in scores_table([evaluation("a", names=("amc",))]).notes
    )
    solved = scores_table([evaluation("a", right=20, names=("amc",))])
    assert any("there is no interval" in note for note in solved.notes)
    assert rows_of(solved)["a"] == ["100.0"]
