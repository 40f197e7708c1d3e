"""The parts of a report: cuts, markup, data blocks, drawings, tables."""

import itertools
import re

import numpy as np
import pytest
from histories import write_history
from hypothesis import given
from hypothesis import strategies as st
from pages import Page, unpacked

from olr_cli.analysis.arms import find_runs, group
from olr_cli.analysis.figures import FIGURES
from olr_cli.analysis.report import cuts
from olr_cli.analysis.report.drawings import drawings, inline_svg
from olr_cli.analysis.report.epochs import epochs
from olr_cli.analysis.report.payload import array_blocks, json_block
from olr_cli.analysis.report.prompt_histories import natural
from olr_cli.tables import Block, Column, Row, Table
from olr_cli.tables.html import blocks, grid
from olr_cli.tables.markup import element, html, text


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(0, 500), st.integers(0, 60))
def test_texts_are_cut_as_little_as_the_budget_allows(lengths, budget, most):
    def size(cut):
        return sum(min(length, cut) for length in lengths)

    cut = cuts.longest(np.array(lengths, dtype=np.int64), budget, most)
    assert 0 <= cut <= most
    assert size(cut) <= budget
    assert cut == most or size(cut + 1) > budget


@given(st.text(max_size=30), st.integers(0, 40))
def test_a_cut_text_keeps_both_ends(whole, length):
    head, tail = cuts.ends(whole, length)
    assert whole.startswith(head) and whole.endswith(tail)
    assert len(head) + len(tail) == min(len(whole), length)
    assert len(whole) > length or (head, tail) == (whole, "")


@given(st.text(), st.text())
def test_any_text_stays_text_and_can_be_written(content, value):
    made = html([element("p", content, title=value)])
    made.encode("utf-8")
    page = Page(made.replace("\r", ""))
    assert page.elements == [("p", {"title": text(value).replace("\r", "")})]
    assert page.texts.get("p", "") == text(content).replace("\r", "")


def test_what_no_html_file_can_hold_is_replaced():
    assert text("a\x00b\ud800c\U0001d465\u2028\t") == "a\ufffdb\ufffdc\U0001d465\u2028\t"


def test_children_come_in_order():
    assert html([element("p", "a", element("b", "c"), "d", None, "e")]) == "<p>a<b>c</b>de</p>"


@pytest.mark.parametrize(("largest", "kind"), [(0, "u8"), (255, "u8"), (256, "u16"), (65536, "u32")])
def test_arrays_are_as_small_as_their_values(largest, kind):
    (block,) = array_blocks("run0", {"votes": np.array([0, largest])})
    assert (block.name, block.kind) == ("run0-votes", kind)
    packed = re.fullmatch(r"<script [^>]*>([A-Za-z0-9+/=]*)</script>", block.html())[1]
    assert unpacked(kind, packed).tolist() == [0, largest]


def test_a_json_block_holds_whatever_a_text_can_be():
    value = {"</script>": ["<!--", "\u2028", "\x00", "\ud800", None, 1.5]}
    (packed,) = re.findall(r">([^<]*)</script>", json_block("x", value).html())
    assert unpacked("json", packed) == value


def test_names_are_sorted_with_their_numbers_as_numbers():
    assert sorted(["a10", "a2", "10", "9", "b", "a\u00b2"], key=natural) == [
        "9",
        "10",
        "a2",
        "a10",
        "a\u00b2",
        "b",
    ]


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    place = tmp_path_factory.mktemp("arms")
    small = {"prompts": 20, "prompts_per_step": 10, "epochs": 4, "store_rollouts": False}
    write_history(place / "a", **small)
    write_history(place / "b", method={"name": "grpo"}, **small)
    return group(find_runs([place]))


def test_drawings_have_no_styles_and_all_references_lead_to_ids_that_are_there_once(arms):
    pages = [Page(html([figure])) for figure in drawings(arms[:1])]
    assert len(pages) >= 3, "coherence, dynamics, composition"
    attributes = [(tag, own) for page in pages for tag, own in page.elements]
    ids = [own["id"] for _, own in attributes if "id" in own]
    assert len(ids) == len(set(ids))
    used = {own["href"][1:] for _, own in attributes if own.get("href", "").startswith("#")}
    used |= {
        name
        for _, own in attributes
        for value in own.values()
        for name in re.findall(r"url\(#(.*?)\)", value)
    }
    assert used and used <= set(ids)
    assert all("style" not in own and tag != "style" for tag, own in attributes)
    assert all(own["href"].startswith("#") for _, own in attributes if "href" in own)


def test_a_drawing_keeps_the_colours_and_shapes_of_the_figure(arms):
    for name in ("coherence", "composition"):
        (chart,) = FIGURES[name].drawn(arms[:1])
        drawn_twice = [html([inline_svg(chart, "x-")]) for _ in range(2)]
        assert drawn_twice[0] == drawn_twice[1]
        page = Page(drawn_twice[0])
        known = {"stroke", "fill", "stroke-width", "stroke-linejoin", "stroke-linecap", "stroke-dasharray"}
        drawn = set(itertools.chain.from_iterable(own for _, own in page.elements))
        assert known - {"stroke-dasharray"} <= drawn
        other = drawn - known - {"stroke-dashoffset", "opacity", "fill-opacity", "fill-rule", "clip-rule"}
        assert other <= {
            *("id", "d", "x", "y", "width", "height", "viewbox", "version", "transform", "href", "clip-path"),
        }, "attributes of SVG, and nothing that was a declaration of CSS alone"


def test_tables_stay_apart_each_under_its_title_with_its_notes_below():
    arms = Block([Column("arm"), Column("n")], [Row(["Block"], "title"), Row(["a|b", "1"])], "A step")
    other = Block([Column(""), Column("h"), Column("n")], [Row(["b", "2", "3"])], "A run", notes=["Own."])
    page = Page(html(blocks(Table([arms, other], {}, notes=["Note."]), "Cost")))
    assert re.findall(r"<caption>(.*?)</caption>", page.source) == ["Cost: A step", "Cost: A run"]
    texts = re.findall(r"<bdi>(.*?)</bdi>", page.source)
    assert texts == ["arm", "n", "Block", "a|b", "1", "", "h", "n", "b", "2", "3", "Own.", "Note."]
    assert ("th", {"colspan": "2", "scope": "rowgroup"}) in page.elements


def test_the_table_of_epochs_has_a_line_an_epoch_and_what_was_measured(arms):
    run = arms[0].runs[0]
    page = Page(html([epochs(run)]))
    lines = re.findall(r"<tr>(.*?)</tr>", page.source)
    assert [re.findall(r"<bdi>(.*?)</bdi>", line)[0] for line in lines] == ["epoch", "0", "1", "2", "3", "4"]
    heads = re.findall(r"<bdi>(.*?)</bdi>", lines[0])
    assert "held-out accuracy, %" in heads and "reward" not in heads
    shown = dict(zip(heads, re.findall(r"<bdi>(.*?)</bdi>", lines[-1]), strict=True))
    noise = run.by_epoch()["label/effective_noise"][-1]
    assert shown["labels wrong, %"] == f"{100 * noise:.1f}"


def test_a_table_is_shown_whole_unless_it_would_fill_several_screens():
    def css(length):
        return grid(["arm", "n"], [["a", "1"]] * length, numbers={1}, caption="Runs").get("class")

    assert (css(40), css(41)) == ("scroll", "scroll long")
