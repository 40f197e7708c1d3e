"""What one call of `olr analyze` is asked for, and what it proposes next."""

import json

import pytest
from histories import SMALL, write_history

from olr_cli.analysis.request import Request, carry_out
from olr_cli.errors import UserError


@pytest.fixture
def run(tmp_path):
    return write_history(tmp_path / "a folder" / "run", **SMALL)


def make_rollouts(run):
    """Let a run be one of `olr rollouts`."""
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"kind": "rollouts"}))


def proposals(*places, **asked):
    return list(carry_out(Request(places, **asked)).next)


def test_how_training_went_is_shown_unless_something_else_alone_is_wanted():
    assert Request([]).wanted_figures == ["learning"]
    assert Request([], shape="json").wanted_figures == ["learning"]
    for alone in ({"table": "arms"}, {"report": True}, {"shape": "csv"}):
        assert Request([], **alone).wanted_figures == []
        assert Request([], figure=["arms"], **alone).wanted_figures == ["arms"]


def test_after_one_run_come_other_criteria_and_the_report_unless_it_was_made(run, tmp_path):
    replay = f"olr replay '{run}' --set method.slope_threshold=0.1"
    asked = {"figure": ["coherence"], "out": tmp_path / "out"}
    assert proposals(run, **asked) == [replay, f"olr analyze '{run}' --report"]
    assert proposals(run, report=True, out=tmp_path / "out") == [replay]


def test_after_rollouts_without_training_comes_the_audit(run, tmp_path):
    make_rollouts(run)
    first, _ = proposals(run, figure=["coherence"], out=tmp_path / "out")
    assert first == f"olr audit '{run}'"


def test_rollouts_without_training_are_no_method_in_the_papers_tables(run, tmp_path):
    grpo = {"name": "grpo"}
    make_rollouts(
        write_history(tmp_path / "rollouts", method=grpo, **(SMALL | {"epochs": 2}))
    )
    answer = carry_out(Request([run, tmp_path / "rollouts"], table="noise_ratios"))
    rows = answer.result["tables"]["noise_ratios"].rows
    found = {
        (row["method"], row["noise"])
        for row in rows
        if row["n"] and row["method"] != "base"
    }
    assert found == {("olr", "active 0.5")}
    assert any("rollouts holds rollouts without training" in note for note in answer.notes)
    assert not any("different numbers of epochs" in note for note in answer.notes)
    with pytest.raises(
        UserError, match=r"table ablation: this needs training runs; .* holds rollouts"
    ):
        carry_out(Request([tmp_path / "rollouts"], table="ablation"))


def test_after_a_table_come_the_published_numbers_then_markdown(run):
    again = "the same command with"
    assert proposals(run, table="arms") == [f"{again} --format markdown"]
    assert proposals(run, table="noise_ratios") == [f"{again} --paper"]
    assert proposals(run, table="noise_ratios", paper=True) == [
        f"{again} --format markdown"
    ]


def test_a_table_without_a_value_is_refused_in_a_sentence_and_left_out_where_nobody_asked(
    tmp_path,
):
    for name, method in (("a", "grpo"), ("b", "olr")):
        run = write_history(
            tmp_path / name, method={"name": method}, noise=None, knows_truth=False, knows_noise=False, **SMALL,
        )  # fmt: skip
        (run / "metrics.jsonl").write_text(
            '{"step": 1, "epoch": 1, "rollout/reward": 0.5}\n'
        )
    for table in ("arms", "noise_ratios"):
        with pytest.raises(
            UserError, match=f"table {table}: this needs held-out accuracy .*, and these"
        ):
            carry_out(Request([tmp_path], table=table))
    answer = carry_out(Request([tmp_path], out=tmp_path / "out"))
    assert answer.result["tables"] == {} and next(iter(answer.next)).endswith(
        "--figure all"
    )


def test_a_table_of_the_paper_has_no_row_that_is_blank(run):
    def rows(**asked):
        [table] = carry_out(Request([run], table="noise_ratios", **asked)).tables
        return {(row["method"], row["noise"]) for row in table.rows}, " ".join(table.notes)

    ours, notes = rows()
    assert (
        ours == {("base", ""), ("olr", "active 0.5")}
        and "No runs of inactive noise: GRPO at 0.1" in notes
    )
    assert len(rows(paper=True)[0]) > 5
