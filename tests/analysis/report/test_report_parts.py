"""The parts of a report: markup, data, drawings, tables, cuts."""

import re
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from histories import SMALL, arms_of, write_history
from hypothesis import given, strategies as st
from pages import Page, unpacked

from olr_cli.analysis.figures import draw
from olr_cli.analysis.report import texts
from olr_cli.analysis.report.page import drawings, epochs
from olr_cli.analysis.report.prompts import array_data, json_data
from olr_cli.data.log_files import natural
from olr_cli.tables.html import element, html, text


@given(st.text(max_size=30), st.integers(0, 40))
def test_a_cut_text_keeps_both_ends(whole, length):
    head, tail = texts.ends(whole, length)
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
    assert (
        html([element("p", "a", element("b", "c"), "d", None, "e")]) == "<p>a<b>c</b>de</p>"
    )


def data(element):
    """Kind and content of an element of data."""
    kind, packed = re.fullmatch(
        r'<script [^>]*data-kind="(\w+)"[^>]*>([^<]*)</script>', html([element])
    ).groups()
    return kind, unpacked(kind, packed)


@pytest.mark.parametrize(
    ("largest", "kind"), [(0, "u8"), (255, "u8"), (256, "u16"), (65536, "u32")]
)
def test_arrays_are_as_small_as_their_values(largest, kind):
    smallest, values = data(array_data("run0-votes", np.array([0, largest])))
    assert (smallest, values.tolist()) == (kind, [0, largest])


def test_json_data_hold_whatever_a_text_can_be():
    value = {"</script>": ["<!--", "\u2028", "\x00", "\ud800", None, 1.5]}
    assert data(json_data("x", value)) == ("json", value)


def test_names_are_sorted_with_their_numbers_as_numbers():
    in_order = ["9", "10", "a2", "a10", "a\u00b2", "b"]
    assert sorted(sorted(in_order), key=natural) == in_order


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    return arms_of(
        write_history(tmp_path_factory.mktemp("arms") / "a", arm="<!--&--> ]]>", **SMALL)
    )


def test_drawings_are_images_without_fonts_or_dates_and_the_same_each_time(arms):
    names = ["coherence", "composition"]
    figures = list(drawings(draw(names, arms)))
    images = [figure.find(".//img") for figure in figures]
    assert len(images) == 2
    assert all(image.get("alt") and int(image.get("width")) > 200 for image in images)
    for image in images:
        kind, svg = unquote(image.get("src")).split(",", 1)
        root = ElementTree.fromstring(svg)
        assert (
            kind == "data:image/svg+xml" and root.tag == "{http://www.w3.org/2000/svg}svg"
        )
        assert not {"text", "date"} & {part.tag.rpartition("}")[2] for part in root.iter()}
    assert html(figures) == html(drawings(draw(names, arms)))


def test_images_say_in_words_how_many_runs_a_mean_is_of_and_what_bands_are(tmp_path, arms):
    single = "".join(html([figure]) for figure in drawings(draw(["coherence"], arms)))
    assert "bands" not in single, "a single run has no spread"
    runs = [write_history(tmp_path / f"{seed}", seed=seed, **SMALL) for seed in (1, 2, 3)]
    words = {
        figure.find("figcaption/b/bdi").text: figure.find(".//img").get("alt")
        for figure in drawings(draw(["coherence"], arms_of(*runs)))
    }
    assert "Means of 3 runs; dots: single runs" in words["coherence"]


def test_the_table_of_epochs_has_a_row_an_epoch_and_what_was_measured(arms):
    (run,) = arms[0].runs
    (block,) = epochs(run).blocks
    columns, rows = block.grid("document")
    assert [texts[0] for _, texts in rows] == ["0", "1", "2", "3", "4"]
    heads = [column.head for column in columns]
    assert "held-out accuracy, %" in heads and "reward" not in heads
    noise = arms[0].by_epoch()[0]["label/effective_noise"][-1]
    assert (
        dict(zip(heads, rows[-1][1], strict=True))["labels wrong, %"]
        == f"{100 * noise:.1f}"
    )
