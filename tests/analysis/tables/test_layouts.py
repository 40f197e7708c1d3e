"""The paper's other tables: rows, references, published numbers, and runs that the paper does not have."""

import csv
from collections import defaultdict

import pytest
from paper_runs import NINE, row, table_of, write_evaluated, write_run
from rendered import rendered

from olr_cli import tables
from olr_cli.analysis.tables import PAPER_TABLES
from olr_cli.analysis.tables.layouts import LAYOUTS
from olr_cli.analysis.tables.paper import OTHERS
from olr_cli.evaluation.benchmark import PAPER
from olr_cli.evaluation.published import RESULTS


def olr(threshold="0.02", warmup=3, **others):
    return {"name": "olr", "slope_threshold": threshold, "warmup_epochs": warmup, **others}


def names(table, block):
    return [each.name for each in table.rows if each.block == block]


def write_sweep(folder):
    """Two seeds of GRPO and of OLR with thresholds of the paper and of ours."""
    for seed in (1, 2):
        for noise, lift in (("active", 0.0), ("inactive", 0.1)):
            write_run(folder / f"{noise}-grpo-{seed}", "grpo", 0.5 + lift, seed=seed, noise=noise)
            for threshold, end in (("0.1", 0.55), ("0.02", 0.7), ("0.05", 0.65), ("0.01", 0.6)):
                run = folder / f"{noise}-{threshold}-{seed}"
                write_run(run, olr(threshold), end + lift + 0.01 * seed, seed=seed, noise=noise)
    return folder


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return write_sweep(tmp_path_factory.mktemp("runs"))


def test_every_table_of_the_published_scores_has_a_layout():
    with RESULTS.open(encoding="utf-8") as lines:
        printed = dict.fromkeys(line["table"] for line in csv.DictReader(lines))
    assert tuple(printed) == tuple(LAYOUTS) == PAPER_TABLES
    assert all(layout.name == name for name, layout in LAYOUTS.items())


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_published_numbers_are_the_papers_cells(name, tmp_path):
    run = write_run(tmp_path / "run")
    write_evaluated(run / "evaluation" / "step-000001", NINE, step=1)
    with RESULTS.open(encoding="utf-8") as lines:
        cells = [line for line in csv.DictReader(lines) if line["table"] == name]
    expected = defaultdict(dict)
    for cell in cells:
        columns = ("method", "noise_type", "noise_ratio", "slope_threshold", "warmup_epochs")
        expected[tuple(cell[column] for column in columns)][cell["benchmark"]] = cell["score"]
    shown = [
        {benchmark: f"{100 * each.published[benchmark].value:.1f}" for benchmark in PAPER}
        for each in table_of(tmp_path, name=name).rows
        if each.published
    ]
    assert shown == list(expected.values())


LAYOUT = {
    "noise_ratios": {
        "": ["before training"],
        "Inactive noise": [f"{name} at 0.{ratio}" for ratio in (1, 3, 5, 7, 9) for name in ("GRPO", "OLR")],
        "Active noise": [f"{name} at 0.{ratio}" for ratio in (1, 3, 5, 7, 9) for name in ("GRPO", "OLR")],
    },
    "scale_4k": {"Active noise 0.5": ["GRPO", "OLR"], "Inactive noise 0.5": ["GRPO", "OLR"]},
    "qwen3_8b": {
        "": ["before training"],
        "Active noise 0.5": ["GRPO", "OLR"],
        "Inactive noise 0.5": ["GRPO", "OLR"],
    },
    "slope_sensitivity": {
        "": ["before training"],
        "Active noise 0.5": [
            "GRPO",
            *(f"OLR at delta {x}" for x in ("0.0", "0.025", "0.05", "0.075", "0.1", "0.2")),
        ],
    },
    "warmup_sensitivity": {
        "": ["before training"],
        "Active noise 0.5": ["GRPO", *(f"OLR at T = {t} (printed {t - 1})" for t in (3, 5, 7, 9))],
    },
    "ablation": {
        "Active noise 0.5": ["OLR", "OLR without slope", "OLR without consistency"],
        "Inactive noise 0.5": ["OLR", "OLR without slope", "OLR without consistency"],
    },
}
LAYOUT["llama_8b"] = LAYOUT["qwen3_8b"]


@pytest.mark.parametrize("name", LAYOUT)
def test_rows_stand_in_the_papers_groups_and_order(name, tmp_path):
    write_run(tmp_path / "run")
    table = table_of(tmp_path, name=name)
    blocks = list(dict.fromkeys(each.block for each in table.rows))
    assert [block for block in blocks if block in LAYOUT[name]] == list(LAYOUT[name])
    for block, labels in LAYOUT[name].items():
        assert names(table, block) == labels


def test_runs_with_other_thresholds_than_the_papers_come_after_it_in_their_order(sweep):
    table = table_of(sweep, name="slope_sensitivity")
    assert names(table, OTHERS) == [
        "OLR, active 0.5, delta 0.01",
        "OLR, active 0.5, delta 0.02",
        "OLR, inactive 0.5, delta 0.01",
        "OLR, inactive 0.5, delta 0.02",
    ]
    assert row(table, "OLR at delta 0.05", "Active noise 0.5").cells["eval/avg"].value == pytest.approx(0.665)
    other = row(table, "OLR, inactive 0.5, delta 0.02").cells["eval/avg"]
    assert other.change.value == pytest.approx(0.815 - 0.6), "to GRPO under the same noise"


def test_warmups_are_counted_as_epochs_that_keep_the_label_and_named_as_printed(tmp_path):
    for warmup in (4, 3, 2, 5):
        write_run(tmp_path / str(warmup), olr("0.05", warmup), 0.5 + 0.01 * warmup)
    table = table_of(tmp_path, name="warmup_sensitivity")
    ours = {each.name: each.cells["eval/avg"].value for each in table.rows if each.cells}
    assert ours == {
        "before training": 0.4,
        "OLR at T = 3 (printed 2)": pytest.approx(0.53),
        "OLR at T = 5 (printed 4)": pytest.approx(0.55),
        "OLR, active 0.5, T = 2": pytest.approx(0.52),
        "OLR, active 0.5, T = 4": pytest.approx(0.54),
    }
    assert names(table, OTHERS) == ["OLR, active 0.5, T = 2", "OLR, active 0.5, T = 4"]
    assert any("start_select_epoch, which is T - 1" in note for note in table.notes)
    published = row(table, "OLR at T = 5 (printed 4)", "Active noise 0.5").published["in"]
    assert round(100 * published.value, 1) == 41.9
    assert round(100 * published.change.value, 1) == 6.4


def test_the_ablation_compares_with_olr_under_both_criteria(tmp_path):
    for seed in (1, 2):
        write_run(tmp_path / f"both{seed}", olr(), 0.7, seed=seed)
        write_run(tmp_path / f"consistency{seed}", olr(criteria=["consistency"]), 0.72, seed=seed)
        write_run(tmp_path / f"none{seed}", olr(criteria=[]), 0.6, seed=seed)
        write_run(tmp_path / f"grpo{seed}", "grpo", 0.5, seed=seed)
        write_run(tmp_path / f"ttrl{seed}", "ttrl", 0.55, seed=seed)
    table = table_of(tmp_path, name="ablation")
    block = "Active noise 0.5"

    def change(label, block=None):
        found = row(table, label, block).cells["eval/avg"].change
        return found and round(found.value, 6)

    assert change("OLR", block) is None
    assert change("OLR without slope", block) == 0.02
    assert change("OLR, every majority, active 0.5") == -0.1
    assert change("GRPO, active 0.5") == -0.2
    assert change("TTRL") is None
    published = row(table, "OLR without slope", block).published["in"].change.value
    assert round(100 * published, 1) == -4.9
    assert any(note.startswith("Differences are to OLR with both criteria") for note in table.notes)
    heads = [column.full for column in table.table().blocks[0].columns]
    assert "to OLR [95 %]" in heads and "to GRPO [95 %]" not in heads


def test_noise_ratios_that_the_paper_has_not_come_after_its_own(tmp_path):
    for ratio in (0.75, 0.25, 0.5):
        for method in ("grpo", olr()):
            write_run(tmp_path / f"{ratio}{len(method)}", method, ratio=ratio)
    table = table_of(tmp_path, name="noise_ratios")
    assert names(table, OTHERS) == [
        "GRPO, active 0.25",
        "OLR, active 0.25",
        "GRPO, active 0.75",
        "OLR, active 0.75",
    ]
    assert row(table, "OLR at 0.5", "Active noise").arm == "active 0.5 olr"
    assert any(
        "inactive noise: GRPO at 0.1, OLR at 0.1" in note for note in table.notes if "No runs of" in note
    )


def test_runs_of_other_sizes_and_policies_do_not_stand_in_the_papers_rows(tmp_path):
    for method in ("grpo", olr()):
        write_run(tmp_path / str(len(method)), method)
    scale, model = table_of(tmp_path, name="scale_4k"), table_of(tmp_path, name="qwen3_8b")
    assert names(scale, OTHERS) == [
        "before training",
        "GRPO, active 0.5, 4 prompts",
        "OLR, active 0.5, 4 prompts",
    ]
    assert names(model, OTHERS) == [
        f"{name}, builtin:addition-easier"
        for name in ("before training", "GRPO, active 0.5", "OLR, active 0.5")
    ]
    assert row(model, "before training", "").cells == {}
    assert row(model, "OLR, active 0.5, builtin:addition-easier").cells["eval/avg"].change.value == 0


def test_runs_of_the_papers_policy_stand_in_its_rows_with_their_start(tmp_path):
    for method in ("grpo", olr("0.05", 5)):
        run = write_run(tmp_path / str(len(method)), method)
        recipe = run / "recipe.yaml"
        recipe.write_text(recipe.read_text().replace("builtin:addition-easier", "Qwen/Qwen3-8B-Base"))
        write_evaluated(run / "evaluation" / "step-000001", NINE, step=1)
    start = write_evaluated(tmp_path / "base", dict.fromkeys(PAPER, 0.1), name="Qwen/Qwen3-8B-Base")
    table = table_of(*find_places(tmp_path), models=[start], name="qwen3_8b")
    assert row(table, "before training", "").cells["in"].value == pytest.approx(0.1)
    assert row(table, "OLR", "Active noise 0.5").cells["in"].change.value == 0
    assert names(table, OTHERS) == []


def find_places(folder):
    return [place for place in sorted(folder.iterdir()) if (place / "manifest.json").is_file()]


def test_settings_that_are_not_the_papers_are_named_but_not_what_the_table_varies(tmp_path):
    write_run(tmp_path / "run", olr("0.02", 3))

    def departures(name):
        return [note for note in table_of(tmp_path, name=name).notes if "in ours and" in note]

    delta = "OLR's slope_threshold (delta) is 0.02 in ours and 0.05 in the paper."
    warmup = "OLR's warmup_epochs (T) is 3 in ours and 5 in the paper."
    assert departures("noise_ratios") == [delta, warmup]
    assert departures("slope_sensitivity") == [warmup]
    assert departures("warmup_sensitivity") == [delta]
    write_run(tmp_path / "own" / "run", olr("0.05", 5))
    assert [note for note in table_of(tmp_path / "own", name="ablation").notes if "in ours and" in note] == []


def test_csv_says_which_threshold_a_line_is_of(sweep):
    lines = table_of(sweep, name="slope_sensitivity").table().data["rows"]
    runs = {
        line["slope_threshold"]: line["n"]
        for line in lines
        if (line["method"], line["noise"], line["column"]) == ("olr", "active 0.5", "eval/avg")
    }
    assert runs == {
        "0.0": 0, "0.025": 0, "0.05": 2, "0.075": 0, "0.1": 2, "0.2": 0, "0.01": 2, "0.02": 2,
    }  # fmt: skip


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_every_table_is_text_in_every_format(name, sweep):
    table = table_of(sweep, name=name)
    latex, markdown = tables.latex(table.table()), tables.markdown(table.table())
    assert latex.count("{") == latex.count("}")
    assert set(filter(lambda sign: not sign.isascii(), latex)) <= {"±"}
    assert markdown.count("**Not in the paper's table**") == bool(names(table, OTHERS))
    assert len(table.table().data["rows"]) == 3 * len(table.rows)


def test_a_table_that_begins_with_a_title_has_its_heads_above_it(sweep):
    lines = rendered(table_of(sweep, name="ablation").table()).splitlines()
    assert "to OLR" in lines[0] and "% ± sd" in lines[1]
    assert lines[2] == "Active noise 0.5"
