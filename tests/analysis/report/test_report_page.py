"""The whole report as a file, and the command that writes it."""

import base64
import hashlib
import json
import re
from functools import partial

import commands
import pytest
from histories import write_history
from pages import read, report
from samples import json_lines

from olr_cli.analysis.audit.verdicts import STATUSES
from olr_cli.analysis.report.words import RIGHT, SOURCES
from olr_cli.data.verified import VERDICTS
from olr_cli.runs.locks import held

SMALL = {"prompts": 20, "prompts_per_step": 10, "epochs": 4}


olr, refused = partial(commands.done, "analyze"), partial(commands.refused, "analyze")


@pytest.fixture
def run(tmp_path):
    return write_history(tmp_path / "run", **SMALL)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    run = write_history(tmp_path_factory.mktemp("page") / "run", **SMALL)
    return read(report(run, notes=["A <note>."], with_figures=True))


def test_nothing_runs_or_looks_but_what_the_policy_names(page):
    (policy,) = (each["content"] for each in page.all("meta") if "http-equiv" in each)

    def allowed(content):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        return f"'sha256-{digest}'"

    (style,) = re.findall(r"<style>(.*?)</style>", page.source, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", page.source, re.DOTALL)
    assert policy.startswith("default-src 'none'; ")
    assert (
        f"script-src {allowed(script)};" in policy
        and f"style-src {allowed(style)};" in policy
    )
    assert "unsafe" not in policy and "<!--" not in script
    assert [each for each in page.all("script") if each.get("type") != "text/plain"] == [{}]
    assert page.elements.index(("style", {})) > page.elements.index(
        ("meta", {"http-equiv": "Content-Security-Policy", "content": policy})
    )


def test_every_kind_source_status_and_verdict_has_its_word(page):
    (words,) = re.findall(
        r'<script type="text/plain" id="words">(.*?)</script>', page.source
    )
    words = json.loads(words)
    assert set(words["sources"]) == set(SOURCES) and list(words["verdicts"]) == list(
        VERDICTS
    )
    assert [kind["name"] for kind in words["kinds"]][RIGHT] == "the true answer"
    offered = [own["value"] for own in page.all("option")]
    assert {*STATUSES, *VERDICTS} <= {*offered}


def test_the_page_needs_nothing_from_elsewhere(page):
    addresses = [
        own[name] for _, own in page.elements for name in ("src", "href") if name in own
    ]
    assert addresses and all(address.startswith(("#", "data:")) for address in addresses)
    assert all(not name.startswith("on") for _, own in page.elements for name in own)
    assert "{{" not in page.source


def test_ids_are_there_once_and_links_lead_to_them(page):
    ids = [own["id"] for _, own in page.elements if "id" in own]
    assert len(ids) == len(set(ids))
    assert {own["href"][1:] for tag, own in page.elements if tag == "a"} <= set(ids)


def test_the_summary_tells_outcome_settings_and_notes(page):
    shown = re.sub("<[^>]+>", " ", page.source.split('id="figures"')[0])
    shown = " ".join(shown.split())
    for told in (
        "held-out accuracy (avg)",
        "labels replaced by the majority",
        "wrong labels, last epoch",
        "status finished",
        "method olr (criteria: slope and consistency; \u03b4 = 0.02, T = 3 epochs of warm-up)",
        "noise active 0.5",
        "4 epochs, 10 prompts a step, 8 rollouts a prompt",
        "A &lt;note&gt;.",
    ):
        assert told in shown


def test_figures_tables_and_recipe_are_there(page):
    captions = re.findall(r"<figcaption><b><bdi>(.*?)</bdi>", page.source)
    assert captions[:4] == ["learning", "coherence", "dynamics", "composition"]
    assert len(page.all("img")) == len(captions)
    assert "Epochs" in page.texts["caption"]
    assert "slope_threshold: 0.02" in page.texts["pre"]


def test_the_data_of_the_list_are_in_the_page(page):
    header = page.blocks["run0-header"]
    assert header["ids"] == [str(number) for number in range(20)]
    assert (
        "not to be read" in header["questionsNote"]
        or "does not hold" in header["questionsNote"]
    )
    assert len(page.blocks["run0-kind"]) == 20 * 4
    stored = page.blocks["run0-responses-0"]
    assert [len(each) for each in stored] == [4 * 4] * 20, "of every visit, as they fit"


def test_the_same_runs_give_the_same_bytes(run, tmp_path):
    assert (
        report(run, out=tmp_path / "a").read_bytes()
        == report(run, out=tmp_path / "b").read_bytes()
    )


def test_the_report_goes_where_figures_go_and_replaces_an_older_one(run):
    file = run / "figures" / "report.html"
    file.parent.mkdir()
    file.write_text("old")
    result = olr(run, "--report", "--figure", "coherence")
    assert f"Wrote {file} (" in result.output and "MB), for any browser" in result.output
    assert file.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert {each.stem for each in file.parent.iterdir()} == {"report", "coherence"}


def test_several_runs_make_one_page_beside_them(tmp_path, monkeypatch):
    monkeypatch.setattr("olr_cli.analysis.report.prompts.MOST_RUNS", 2)
    for arm, seed in (("a", 1), ("a", 2), ("b", 1)):
        write_history(
            tmp_path / f"{arm}{seed}", arm=arm, seed=seed, method={"name": "grpo"}, **SMALL
        )
    result = olr(tmp_path, "--report", "--table", "noise_ratios", "--json")
    told = json.loads(result.stdout)
    assert told["written"] == [str(tmp_path / "figures" / "report.html")]
    assert (
        told["notes"][-1]
        == "Prompts can be browsed of 2 of 3 runs: a (seed 1), b (seed 1)."
    )
    page = read(tmp_path / "figures" / "report.html")
    for caption in ("Runs", "Table: arms", "Table: noise_ratios"):
        assert caption in page.texts["caption"]
    assert page.texts["option"].startswith("a, seed 1b, seed 1")
    assert {name.split("-")[0] for name in page.blocks} == {"run0", "run1"}
    assert page.source.count("<details>") == 2


def status(file):
    return re.search(r"<dt>status</dt><dd><bdi>(.*?)</bdi>", file.read_text("utf-8"))[1]


def test_a_run_in_training_is_reported_up_to_its_last_complete_step(tmp_path):
    run = write_history(tmp_path / "run", steps=5, **SMALL)
    manifest = json.loads((run / "manifest.json").read_text()) | {"status": "running"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    with held(run):
        file = report(run)
    assert status(file) == "running: 2 of 4 epochs"
    page = read(file)
    assert page.blocks["run0-last"].tolist() == [3] * 10 + [2] * 10
    assert "3 (under way)" in page.source
    assert status(report(run)).startswith("crashed: ")


def test_rollouts_without_training_are_called_so(run):
    manifest = json.loads((run / "manifest.json").read_text()) | {"kind": "rollouts"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    shown = report(run).read_text("utf-8")
    assert "without training: 4 visits, 10 prompts a step, 8 rollouts a prompt" in shown
    assert "<dt>method</dt>" not in shown and "learning rate" not in shown


def test_labels_of_unknown_quality_are_reported_too(tmp_path):
    run = write_history(
        tmp_path / "run", noise=None, knows_truth=False, knows_noise=False, **SMALL
    )
    page = read(report(run))
    assert page.blocks["run0-header"]["noiseTypes"] == [""]
    assert not page.blocks["run0-true"].any()


def test_metrics_that_a_run_lacks_are_said_to_be_missing(run):
    file = run / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line.pop("eval/majority", None)
    json_lines(file, *lines)
    majority = "<dt>held-out accuracy (majority)</dt><dd><b>not in metrics.jsonl</b>"
    assert majority in report(run).read_text("utf-8")
    file.write_text('{"step": 1, "epoch": 1}\n')
    assert "none of the metrics that are shown by epoch" in report(run).read_text("utf-8")


def test_a_report_needs_runs_and_whole_files(run, tmp_path):
    assert "name run directories" in refused("--report")
    shard = run / "rollouts" / "step-000001.parquet"
    shard.write_bytes(shard.read_bytes()[:100])
    assert f"{shard} is not a whole Parquet file" in refused(run, "--report")
    (tmp_path / "file").write_text("")
    other = write_history(tmp_path / "other", **SMALL)
    assert "a file" in refused(other, "--report", "--out", tmp_path / "file")
    assert not (run / "figures").exists()
