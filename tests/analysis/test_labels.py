"""Labels at the ends of lines never overlap."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Annotation

from olr_cli.analysis import style
from olr_cli.analysis.labels import declutter

LABELS = st.lists(st.tuples(st.floats(0, 100), st.floats(5, 20)), min_size=1, max_size=8)


@given(LABELS)
def test_labels_do_not_overlap_and_keep_their_order(labels):
    wanted, heights = zip(*labels, strict=True)
    placed = declutter(wanted, heights, 0, 200)
    stack = sorted(range(len(placed)), key=lambda i: placed[i])
    for lower, upper in itertools.pairwise(stack):
        assert placed[upper] - placed[lower] >= (heights[upper] + heights[lower]) / 2 - 1e-6
        assert wanted[upper] >= wanted[lower]


@given(LABELS)
def test_labels_stay_between_the_limits_where_there_is_room(labels):
    wanted, heights = zip(*labels, strict=True)
    for middle, height in zip(declutter(wanted, heights, 0, 200), heights, strict=True):
        assert middle - height / 2 >= -1e-6
        assert middle + height / 2 <= 200 + 1e-6


def test_labels_with_room_stay_where_they_are():
    assert declutter([50, 10, 30], [8, 8, 8], 0, 60) == pytest.approx([50, 10, 30])


def test_crowded_labels_share_the_displacement():
    assert declutter([30, 30], [10, 10], 0, 100) == pytest.approx([25, 35])
    assert declutter([30, 30, 60], [10, 20, 10], 0, 100) == pytest.approx([22.5, 37.5, 60])


def test_nothing_to_place_is_no_error():
    assert declutter([], [], 0, 1) == []


def test_the_written_labels_do_not_overlap_on_the_page():
    with style.applied():
        sheet = style.Sheet(2, 2, width=5.5, panel_height=1.6)
        for axes in sheet.panels:
            axes.set_ylim(0, 1)
            for y, text in (
                (0.5, "one"),
                (0.51, "two\nlines"),
                (0.49, "three"),
                (1.0, "top"),
                (0.0, "bottom"),
            ):
                sheet.label(axes, y, text, style.BLUE)
        figure = sheet.finish()
        figure.draw_without_rendering()
        for axes in sheet.panels:
            texts = [text for text in axes.texts if isinstance(text, Annotation)]
            assert len(texts) == 5
            boxes = sorted((text.get_window_extent() for text in texts), key=lambda box: box.y0)
            for lower, upper in itertools.pairwise(boxes):
                assert upper.y0 >= lower.y1 - 1
            page = figure.get_window_extent()
            assert all(page.x0 <= box.x0 and box.x1 <= page.x1 for box in boxes)
