"""A label rule of the user's own is a method like any other."""

import json
from pathlib import Path

import polars as pl
import pytest
from cases import each
from commands import done, olr, refused
from histories import write_history
from polars.testing import assert_frame_equal

from olr_cli.api import OnlineLabelRefinement
from olr_cli.recipe.methods import OwnMethod
from olr_cli.runs.directory import read_manifest, read_recipe, write_manifest, write_recipe
from olr_cli.runs.store import scan_labels
from olr_cli.supervision.own_rule import rule_facts

EXAMPLES = Path(__file__).parents[2] / "examples" / "label_rules.py"
QUICK = [
    *(
        "data.limit=16",
        "data.test=null",
        "train.evaluate_every=null",
        "train.rollouts_per_prompt=4",
    ),
    *("train.epochs=3", "train.prompts_per_step=16", "train.mini_batch_prompts=16"),
]
OWN = """
from olr_cli.api import keep, replace_by_majority


def rule(visit, least=2):
    return replace_by_majority(visit) if visit.number > 1 and visit.majority_count >= least else keep(visit)


def raises(visit):
    return keep(visit) if visit.number < 2 else 1 / 0


def returns(visit):
    return visit.majority


def invents(visit):
    return keep(visit)._replace(answers=("42",))
"""


@pytest.fixture
def folder(here):
    """The user's folder, with a file of rules."""
    (here / "mine.py").write_text(OWN)
    return here


def settings(*words):
    return [word for setting in (*QUICK, *words) for word in ("--set", setting)]


def replayed(run, *words):
    """The labels of a replay."""
    done(
        "replay",
        run,
        "--out",
        "labels.parquet",
        *(word for s in words for word in ("--set", s)),
    )
    labels = pl.read_parquet("labels.parquet")
    Path("labels.parquet").unlink()
    return labels


@each(
    "own, built_in",
    ("olr", {}),
    ("without_slope", {"criteria": ["consistency"]}),
    ("without_consistency", {"criteria": ["slope"]}),
)
@pytest.mark.parametrize("delta", [0.0, 0.05, -1.0])
def test_the_papers_rule_and_its_ablations_written_as_rules_decide_as_the_built_in_ones(
    folder, own, built_in, delta
):
    run = write_history(folder / "run", prompts=24, epochs=6)
    method = {"name": "olr", **built_in, "slope_threshold": delta, "warmup_epochs": 2}
    rule = {
        "name": f"{EXAMPLES}:{own}",
        "T": 2,
        **({} if own == "without_slope" else {"delta": delta}),
    }
    mine, theirs = (replayed(run, f"method={json.dumps(it)}") for it in (rule, method))
    assert_frame_equal(mine, theirs)
    assert mine["is_selected"].n_unique() == 2


def test_it_trains_is_stored_with_its_text_resumed_and_replayed(folder):
    name = "method.name=mine.py:rule"
    done(
        "train", "laptop/quickstart", *settings(name, "method.least=1"), "--run-dir", "run"
    )
    rule = read_manifest(Path("run"))["rule"]
    assert (rule["function"], rule["source"], rule["defaults"]) == (
        "mine.py:rule",
        OWN,
        {"least": 2},
    )
    labels = scan_labels(Path("run")).collect()
    is_later = pl.col("visit") > 1
    assert labels.filter(is_later & (pl.col("majority_count") > 0))["is_selected"].all()
    assert not labels.filter(~is_later)["is_selected"].any()

    assert f"set {name} again" in refused("replay", "run")
    stored = scan_labels(Path("run")).collect()
    assert_frame_equal(
        replayed("run", name).select(stored.columns), stored, check_row_order=False
    )
    fewer = replayed("run", name, "method.least=4")
    assert 0 < fewer["is_selected"].sum() < labels["is_selected"].sum()

    more = ["--set", name, "--set", "train.epochs=4"]
    assert "only a stored file names a function" in refused(
        "train", "--resume", "--run-dir", "run", "--set", "train.epochs=4"
    )
    done("train", "--resume", "--run-dir", "run", *more)
    assert scan_labels(Path("run")).collect()["visit"].max() == 4
    (folder / "mine.py").write_text(OWN + "\n# another text\n")
    more[-1] = "train.epochs=5"
    assert "another text of mine.py:rule" in refused_resume("run", *more)


def test_a_run_of_it_has_its_name_in_tables_which_do_not_run_it(folder):
    done(
        "train",
        "laptop/quickstart",
        *settings("method.name=mine.py:rule"),
        "--run-dir",
        "runs/mine",
    )
    done(
        "train",
        "laptop/quickstart",
        *settings("method.name=grpo"),
        "--run-dir",
        "runs/grpo",
    )
    (folder / "mine.py").unlink()
    assert "active 0.5 rule" in done("analyze", "runs", "--table", "arms").stdout


def test_runs_are_compared_over_a_key_of_the_rule_that_some_leave_at_its_default(folder):
    for name, given in {"default": {}, "three": {"least": 3}}.items():
        run = write_history(
            folder / "runs" / name, method={"name": "grpo"}, prompts=20, epochs=4
        )
        recipe = read_recipe(run)
        write_recipe(
            run,
            recipe.model_copy(update={"method": OwnMethod(name="mine.py:rule", **given)}),
        )
        manifest = read_manifest(run)
        manifest |= rule_facts(OwnMethod(name="mine.py:rule"))
        write_manifest(run, manifest)
    (folder / "mine.py").unlink()  # what counted stands in the runs
    assert (
        "over-method.least.png" in done("analyze", "runs", "--over", "method.least").stdout
    )
    drawn = pl.read_csv("runs/figures/over-method.least.csv")
    assert sorted(drawn.drop_nulls("value")["value"].unique()) == [2, 3]
    assert "method.last" in refused("analyze", "runs", "--over", "method.last")


def test_defaults_of_a_rule_are_those_of_plain_values(folder):
    (folder / "other.py").write_text(
        "def rule(visit, a=1, *, b='x', c=None, d=0.5, e=True, f=print, g, **more): ...\n"
    )
    facts = rule_facts(OwnMethod(name="other.py:rule"))["rule"]
    assert facts["defaults"] == {"a": 1, "b": "x", "c": None, "d": 0.5, "e": True}


def test_a_dry_run_and_the_first_line_of_a_run_say_which_code_runs(folder):
    words = ["train", "laptop/quickstart", *settings("method.name=mine.py:rule")]
    said = "Runs code that the recipe names: mine.py:rule (method.name)."
    assert said in done(*words, "--dry-run").stdout
    assert done(*words).stderr.startswith(said) or done(*words).stdout.startswith(said)


@each(
    "setting, sentence",
    ("mine.py:raises", r"visit 2: the rule raised ZeroDivisionError: division by zero"),
    ("mine.py:returns", "visit 1: the rule returned"),
    ("mine.py:invents", "it must return keep(visit)"),
    ("mine.py:absent", "has no function absent"),
    ("yours.py:rule", "yours.py does not exist"),
    ("no_module:rule", "importing no_module"),
    ("os:getcwd", "give package.module:function, of a module of your own"),
)
def test_what_is_wrong_with_it_is_said_in_one_sentence(folder, setting, sentence):
    assert sentence in refused_train(f"method.name={setting}")


def refused_train(*words):
    """The sentence of a training run that ends with an error, after what it has shown."""
    return last_line("train", "laptop/quickstart", *settings(*words), "--run-dir", "bad")


def refused_resume(run, *words):
    """The same of a resume."""
    return last_line("train", "--resume", "--run-dir", run, *words)


def last_line(*words):
    """The one error of a command."""
    result = olr(*words)
    *_, line = result.stderr.splitlines()
    assert result.exit_code == 2 and line.startswith("Error: ")
    return line


def test_keys_that_it_does_not_take_are_named(folder):
    line = refused_train("method.name=mine.py:rule", "method.most=3")
    assert "mine.py:rule cannot be called with" in line and "most" in line


def test_warm_up_keeps_labels_without_asking_it(folder):
    done(
        "train",
        "laptop/quickstart",
        *settings("method.name=mine.py:rule", "method.warmup_epochs=2", "method.least=1"),
        *("--run-dir", "run"),
    )
    selected = scan_labels(Path("run")).filter(pl.col("is_selected")).collect()
    assert set(selected["visit"]) == {3}


def test_the_api_takes_it(folder):
    recipe = {"method": {"name": "mine.py:rule", "least": 3}}
    boxed = [r"\boxed{7}"] * 3 + [r"\boxed{8}"]
    with OnlineLabelRefinement("run", recipe) as supervised:
        first, second = (supervised(["3 + 4?"] * 4, boxed, ["8"] * 4) for _ in range(2))
    assert [step.labels[0].effective_label for step in (first, second)] == ["8", "7"]
    assert second.rewards == (1.0, 1.0, 1.0, 0.0)
