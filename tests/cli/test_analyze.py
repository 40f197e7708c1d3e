"""`olr analyze` as a user types it."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import commands
import polars as pl
import pytest
from cases import each
from histories import write_history
from paper_runs import write_evaluated
from samples import json_lines

from olr_cli.analysis import figures
from olr_cli.analysis.tables import PAPER_TABLES

SMALL = {"prompts": 20, "prompts_per_step": 10, "epochs": 5, "store_rollouts": False}
GRPO = {"name": "grpo"}
TRL = Path(__file__).parents[1] / "fixtures" / "logs" / "trl"


olr = partial(commands.done, "analyze")
refused = partial(commands.refused, "analyze")


def names(folder):
    return sorted(file.name for file in folder.iterdir())


@pytest.fixture
def run(tmp_path):
    return write_history(tmp_path / "run", **SMALL)


@pytest.fixture
def arms(tmp_path):
    for seed in (1, 2):
        write_history(tmp_path / f"grpo{seed}", arm="grpo", method=GRPO, seed=seed, **SMALL)
        write_history(tmp_path / f"olr{seed}", arm="olr", seed=seed, **SMALL)
    return tmp_path


@pytest.mark.real_figures
def test_a_figure_of_one_run_goes_into_the_run(run):
    result = olr(run, "--figure", "dynamics")
    assert names(run / "figures") == ["dynamics.csv", "dynamics.pdf", "dynamics.png"]
    assert all(file.stat().st_size > 1000 for file in (run / "figures").iterdir())
    assert f"Wrote {run / 'figures' / 'dynamics.png'}, .pdf and .csv" in result.output
    after, last = result.output.splitlines()[-2:]
    assert after.startswith(f"Next: olr replay {run} --set method.slope_threshold=0.1 ")
    assert last.startswith(f"  or: olr analyze {run} --report ")


def test_figures_can_be_asked_for_several_times_and_learning_is_the_default(run, tmp_path):
    olr(run, "--figure", "coherence", "--figure", "composition", "--out", tmp_path / "out")
    assert {file.stem for file in (tmp_path / "out").iterdir()} == {
        "coherence",
        "composition",
    }
    olr(run)
    assert {file.stem for file in (run / "figures").iterdir()} == {"learning"}
    olr(run, "--figure", "all")
    by_epoch = {"coherence", "dynamics", "composition"}
    assert {file.stem for file in (run / "figures").iterdir()} == {"learning", *by_epoch}


def test_a_run_without_truth_leaves_out_what_would_be_blank_and_says_so(tmp_path):
    run = write_history(tmp_path / "run", **SMALL, knows_truth=False)
    result = olr(run, "--figure", "all", "--json")
    drawn = {Path(file).stem for file in json.loads(result.stdout)["written"]}
    assert drawn == {"learning", "dynamics"}
    notes = " ".join(json.loads(result.stdout)["notes"])
    assert "dynamics leaves out (a) Majority accuracy" in notes
    assert "--figure coherence: this needs true answers" in refused(
        run, "--figure", "coherence"
    )


def test_logs_of_other_trainers_show_what_they_have(run, tmp_path):
    log = TRL / "text"
    olr(log, "--out", tmp_path / "one")
    assert {file.name for file in (tmp_path / "one").iterdir()} == {
        f"learning.{end}" for end in ("png", "csv")
    }, "PDF is for one figure that was named, or --pdf"
    olr(run, *sorted((TRL / "messages").iterdir()), "--out", tmp_path / "two")
    arms = pl.read_csv(tmp_path / "two" / "learning.csv")["arm"].unique()
    assert "TRL: messages" in arms and len(arms) == 2
    for option in (
        ["--figure", "dynamics"],
        ["--report"],
        ["--table", "arms"],
        ["--format", "csv"],
    ):
        said = refused(log, *option, "--out", tmp_path / "no")
        assert (
            "need runs of olr" in said
            or "--figure dynamics: this needs runs of olr" in said
        )
    assert f"`olr audit {log} --report queue.html`" in refused(log, "--report")
    assert "no column response" in refused(
        json_lines(tmp_path / "x.jsonl", {"question": "3+4"})
    )
    named = json_lines(
        tmp_path / "y.jsonl", {"question": "3+4", "said": "7", "points": 0.5}
    )
    olr(named, "--columns", "{response: said, reward: points}", "--out", tmp_path)
    assert pl.read_csv(tmp_path / "learning.csv").filter(metric="rollout/reward")[
        "mean"
    ].to_list() == [0.5]


def test_several_arms_are_drawn_beside_each_other_and_compared(arms):
    result = olr(arms, "--figure", "coherence")
    assert pl.read_csv(arms / "figures" / "coherence.csv")[
        "arm"
    ].unique().sort().to_list() == [
        "grpo",
        "olr",
    ]
    assert "held-out accuracy, %" in result.output
    assert "Differences are to grpo" in result.output
    again = olr(*sorted(arms.iterdir()), "--figure", "coherence", "--baseline", "olr")
    assert "Differences are to olr" in again.output


STARTS = {
    ("arms", "csv"): "metric,arm,baseline,n,",
    ("arms", "markdown"): "| arm | n |",
    ("arms", "latex"): "% Mean ± sd",
    ("baselines", "csv"): "block,method,detail,noise,column,n,mean,sd,",
    ("baselines", "markdown"): "|  | n | held-out",
    ("baselines", "latex"): "% Ours",
}


@pytest.mark.parametrize(("table", "shape"), STARTS)
def test_tables_for_other_programs_stand_alone_on_standard_output(arms, table, shape):
    result = olr(arms, "--format", shape, *(() if table == "arms" else ("--table", table)))
    assert result.stdout.startswith(STARTS[table, shape])
    assert "Next" not in result.stdout
    assert not (arms / "figures").exists()


@pytest.mark.parametrize("table", PAPER_TABLES)
def test_every_table_of_the_paper_is_printed_and_draws_nothing(arms, table):
    result = olr(arms, "--table", table)
    assert not (arms / "figures").exists()
    assert "OLR" in result.stdout
    assert "aper ID" not in result.stdout and "Published" not in result.stdout
    last = result.stdout.splitlines()[-1]
    assert last.startswith("Next: the same command with --paper ")


def test_the_published_numbers_stand_beside_on_request(arms):
    result = olr(arms, "--table", "baselines", "--paper")
    assert "Published: Qwen3-4B-Base trained on 800 prompts" in result.stdout
    for words, published in (([], set()), (["--paper"], {"published"})):
        rows = json.loads(olr(arms, "--table", "baselines", *words, "--json").stdout)[
            "tables"
        ]["baselines"]["rows"]
        assert {"published"} & {
            key for row in rows for key, value in row.items() if value is not None
        } == published


def test_an_evaluation_of_the_policy_before_training_goes_with_the_papers_tables_only(
    arms, tmp_path
):
    model = tmp_path / "model"
    write_evaluated(model, {"amc": 0.25}, name="base")
    result = olr(arms, model, "--table", "baselines", "--json")
    told = json.loads(result.stdout)["tables"]["baselines"]
    (line,) = (
        line for line in told["rows"] if (line["method"], line["column"]) == ("base", "amc")
    )
    assert line["mean"] == 0.25


def test_figures_over_a_key_are_part_of_all_only_where_runs_differ_in_it(arms, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", {"coherence": figures.FIGURES["coherence"]})
    others = {
        "name": "olr",
        "slope_threshold": 0.02,
        "warmup_epochs": 3,
        "criteria": ["slope"],
    }
    write_history(arms / "slope", arm="slope", method=others, **SMALL)
    olr(arms, "--figure", "all")
    drawn = {file.stem for file in (arms / "figures").iterdir()}
    assert drawn == {"coherence", "over-method.criteria"}


def test_json_says_what_was_written_and_counted(arms):
    result = olr(arms, "--figure", "composition", "--json")
    told = json.loads(result.stdout)
    assert [file.rpartition("/")[2] for file in told["written"]] == [
        f"composition.{x}" for x in ("png", "pdf", "csv")
    ]
    pairs = {(row["arm"], row["baseline"]) for row in told["tables"]["arms"]["rows"]}
    assert pairs == {("grpo", None), ("olr", "grpo")}
    assert all("by construction" in note for note in told["notes"])
    assert json.loads(olr(arms, "--table", "arms", "--json").stdout)["written"] == []


def test_an_unfinished_run_is_noted_once(tmp_path):
    run = write_history(tmp_path / "run", steps=5, **SMALL)
    note = "has gone through 2 of 5 epochs"
    assert note in olr(run, "--figure", "dynamics").stderr
    shown = olr(run, "--table", "noise_ratios")
    assert note in " ".join(shown.stdout.split()) and note not in shown.stderr, (
        "it stands below the table"
    )
    piped = olr(run, "--table", "noise_ratios", "--format", "csv")
    assert note not in piped.stdout and note in piped.stderr


TWO_ARMS = ("ARMS/grpo1", "ARMS/olr1")


@each(
    "words, message",
    (
        ("RUN", "--figure", "dynamic"),
        "--figure: there is no 'dynamic' (did you mean 'dynamics'?",
    ),
    (("RUN", "--figure", "learing"), "arms, all"),
    (("RUN", "--figure", "all", "--figure", "dynamic"), "--figure: there is no 'dynamic'"),
    (
        ("ARMS", "--over", "method.criteria"),
        "--over method.criteria: this needs runs that differ in method.criteria, and",
    ),
    (
        ("ARMS", "--figure", "all", "--over", "method.warmup_epochs"),
        "--over method.warmup_epochs: this needs runs that differ in method.warmup_epochs, and",
    ),
    (
        ("ARMS", "--over", "noise.rato"),
        "--over: there is no 'noise.rato' (did you mean 'noise.ratio'?",
    ),
    (("RUN", "--table", "arm"), "--table: there is no 'arm' (did you mean 'arms'?"),
    (("RUN", "--table", "all"), "--table: there is no 'all'"),
    (
        ("RUN", "--table", "baselines", "--baseline", "grpo"),
        "--baseline grpo: this is for the table arms",
    ),
    (
        ("RUN", "--table", "ablation", "--baseline", "olr"),
        "compares with OLR with both criteria",
    ),
    (
        (*TWO_ARMS, "--baseline", "gpro"),
        "--baseline: there is no 'gpro' (did you mean 'grpo'?",
    ),
    (("RUN", "--format", "cvs"), "--format: there is no 'cvs' (did you mean 'csv'?"),
    (("RUN", "--json", "--format", "csv"), "--json and --format csv contradict each other"),
    (("RUN", "--format", "json"), "--format: there is no 'json'; known: terminal, "),
    (("RUN", "--table", "arms", "--paper"), "are for the paper's tables (noise_ratios"),
    (("ARMS", "--paper"), "are for the paper's tables (noise_ratios"),
    ((*TWO_ARMS, "MODEL"), "are for the paper's tables"),
    (("MODEL",), "name run directories too"),
    (("nowhere",), "nowhere does not exist"),
    (("RUN/labels",), "is not a run directory"),
    (("RUN", "--out", "RUN/recipe.yaml"), "could not be written"),
    (("RUN", "OTHER/run"), "--out: the runs stand in several folders"),
    (("--report", "--out", "none"), "no run is named; name run directories"),
    (
        ("ARMS", "--label", "olt=x"),
        "--label: there is no 'olt' (did you mean 'olr'?); known: grpo, olr",
    ),
    (("ARMS", "--label", "olr"), "--label: olr has no text; write it as 'olr=TEXT'"),
    (("ARMS", "--label", "olr=grpo"), "--label: two arms would have one name (grpo, grpo)"),
)
def test_a_mistake_is_one_sentence_and_draws_nothing(places, words, message):
    def placed(word):
        return next(
            (
                word.replace(name, str(place))
                for name, place in places.items()
                if name in word
            ),
            word,
        )

    assert message in refused(*map(placed, words))
    assert not [
        figures for place in places.values() for figures in place.glob("**/figures")
    ]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Runs and an evaluation that nothing is written into."""
    folder = tmp_path_factory.mktemp("places")
    for name, method in (
        ("grpo", GRPO),
        ("olr", {"name": "olr", "slope_threshold": 0.02, "warmup_epochs": 3}),
    ):
        write_history(
            folder / "arms" / f"{name}1", arm=name, method=method, seed=1, **SMALL
        )
    write_evaluated(folder / "model", {"amc": 0.25}, name="base")
    return {
        "RUN": write_history(folder / "a" / "run", seed=1, **SMALL),
        "OTHER": write_history(folder / "b" / "run", seed=2, **SMALL).parent,
        "ARMS": folder / "arms",
        "MODEL": folder / "model",
    }


def test_a_table_and_an_audit_are_written_as_csv_where_the_name_says_so(here):
    run = write_history(here / "runs" / "a")
    for words in (["analyze", "runs"], ["audit", "runs/a"]):
        target = here / f"{words[0]}.csv"
        assert target.name in commands.done(*words, "--out", target.name).stdout
        assert not pl.read_csv(target).is_empty()
        assert "already there" in commands.done(*words, "--out", target.name).stdout
    assert not (run / "figures").exists()


def test_arms_are_called_what_label_says_in_figures_and_tables(arms):
    words = (
        "--label",
        "olr=Active, OLR",
        "--label",
        "grpo=$x^2$ _GRPO_",
        "--baseline",
        "olr",
    )
    result = olr(arms, *words, "--format", "markdown", "--figure", "coherence")
    assert "| Active, OLR | 2 | " in result.output
    drawn = pl.read_csv(arms / "figures" / "coherence.csv")
    assert drawn["arm"].unique().sort().to_list() == ["$x^2$ _GRPO_", "Active, OLR"]


def test_the_shell_completes_names_of_figures_and_tables_without_heavy_imports():
    script = (
        "import sys; from olr_cli.cli.options import figures, tables\n"
        "assert 'dynamics' in figures() and 'qwen3_8b' in tables()\n"
        "assert not {'polars', 'numpy', 'matplotlib', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
