"""Axes, sizes and files of figures, and labels at the ends of lines that never overlap."""

import itertools

import polars as pl
import pytest
from cases import each, refusal
from hypothesis import given, strategies as st
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from olr_cli.analysis import figures
from olr_cli.analysis.figures import style
from olr_cli.analysis.figures.sheet import Sheet, declutter, save
from olr_cli.analysis.figures.style import Look

ROWS = pl.DataFrame(
    {
        "metric": ["m"] * 3,
        "epoch": [1, 2, 3],
        "mean": [0.2, 0.4, 0.5],
        "sd": [0.1, None, 0.05],
    }
)


def chart(name="chart"):
    with style.applied():
        sheet = Sheet(1, 1, width=3.25, panel_height=2.0)
        axes = sheet.panels[0]
        style.epoch_axis(axes, 3)
        style.percent_axis(axes, style.percent_limits(ROWS))
        sheet.lines(
            axes,
            {"m": Look("line", style.BLUE), "absent": Look("absent", style.BLACK)},
            ROWS,
        )
        assert [text.get_text() for text in axes.texts] == ["line"], (
            "one without rows is not named"
        )
        return sheet.chart(name, ROWS)


@pytest.mark.real_figures
def test_a_chart_is_saved_as_png_of_300_dpi_pdf_and_csv(tmp_path):
    png, pdf, csv = save(chart(), tmp_path / "new" / "folder", pdf=True)
    header = png.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    size = int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")
    assert size == (975, 600)
    assert pdf.read_bytes().startswith(b"%PDF")
    assert pl.read_csv(csv).equals(ROWS)
    assert sorted(file.name for file in png.parent.iterdir()) == [
        "chart.csv",
        "chart.pdf",
        "chart.png",
    ]


def test_charts_of_one_name_are_separate_files(tmp_path):
    files = figures.save(
        [chart("same"), chart("Same"), chart("在线"), chart("same")], tmp_path
    )
    assert [file.name for file in files if file.suffix == ".png"] == [
        "same.png",
        "Same-2.png",
        "在线.png",
        "same-3.png",
    ]
    assert all(file.exists() for file in files)


def spread(rows, limits=(0, 1)):
    """The caption of a chart that draws these runs' mean and sd, within limits."""
    rows = pl.DataFrame(rows, ["epoch", "mean", "sd", "runs"], orient="row").with_columns(
        metric=pl.lit("m")
    )
    with style.applied():
        sheet = Sheet(1, 1, width=3.25, panel_height=2.0)
        sheet.panels[0].set_ylim(limits)
        sheet.lines(sheet.panels[0], {"m": Look("line", style.BLUE)}, rows)
        return sheet.chart("chart", rows, caption="More.").caption


@each(
    "rows, caption",
    ([(1, 0.5, None, 1), (2, 0.7, None, 1)], "One run each. More."),
    (
        [(1, 0.5, 0.1, 3), (2, 0.7, 0.0, 3), (3, 0.7, None, 1)],
        "Means of 1 to 3 runs; bands: ±1 sd. More.",
    ),
    ([(1, 0.5, 0.1, 3), (2, 0.7, None, 1)], "Means of 1 to 3 runs. More."),
    ([(1, 0.5, 0.1, 3)], "Means of 3 runs. More."),
    (
        [(1, 0.95, 0.1, 3), (2, 0.02, 0.1, 3)],
        "Means of 3 runs; bands: ±1 sd, cut at 0% and 100%. More.",
    ),
)
def test_the_caption_says_how_many_runs_what_bands_are_and_where_they_are_cut(
    rows, caption
):
    assert spread(rows) == caption


def test_a_caption_and_a_legend_make_the_figure_higher_and_hide_nothing():
    names = [f"_{'long ' * number}name ${number}$" for number in range(1, 9)]
    with style.applied():
        sheet = Sheet(1, 1, width=3.25, panel_height=1.0)
        sheet.legend([Line2D([], [], label=name) for name in names])
        figure = sheet.chart("chart", ROWS, caption="Many words. " * 30).figure
        figure.draw_without_rendering()
    (legend,) = figure.legends
    page = figure.get_window_extent()
    texts = [*legend.get_texts(), figure.texts[-1]]
    assert sorted(text.get_text().strip() for text in legend.get_texts()) == sorted(names)
    for text in texts:
        box = text.get_window_extent()
        assert (
            page.x0 <= box.x0
            and box.x1 <= page.x1
            and page.y0 <= box.y0
            and box.y1 <= page.y1
        )
    assert figure.axes[0].get_window_extent().height > 0.4 * figure.dpi


def test_lines_of_a_panel_differ_without_colour():
    looks = style.looks([str(number) for number in range(12)])
    marks = [
        {name: value for name, value in look.plot.items() if name != "color"}
        for look in looks
    ]
    assert all(one != other for one, other in itertools.combinations(marks, 2))
    assert {"markerfacecolor" in mark for mark in marks} == {True, False}, (
        "filled and hollow ones"
    )


def test_a_folder_that_cannot_be_written_is_the_users_to_mend(tmp_path, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    assert "the disk is full" in refusal(save, chart(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_same_rows_give_the_same_bytes_whatever_the_users_own_matplotlib_settings_are(
    tmp_path,
):
    import matplotlib

    plain = save(chart(), tmp_path / "plain")
    with matplotlib.rc_context(
        {"font.size": 30, "axes.facecolor": "red", "savefig.dpi": 10}
    ):
        styled = save(chart(), tmp_path / "styled")
        assert matplotlib.rcParams["font.size"] == 30
    assert [file.read_bytes() for file in plain] == [file.read_bytes() for file in styled]


@pytest.mark.parametrize(
    ("epochs", "ticks"), [(1, [1]), (4, [1, 2, 3, 4]), (10, [2, 4, 6, 8, 10])]
)
def test_ticks_of_epochs_are_few_whole_and_within_the_run(epochs, ticks):
    sheet = Sheet(1, 1, width=3.25, panel_height=2.0)
    style.epoch_axis(sheet.panels[0], epochs)
    low, high = sheet.panels[0].get_xlim()
    assert [tick for tick in sheet.panels[0].get_xticks() if low <= tick <= high] == ticks


@given(st.lists(st.tuples(st.floats(0, 1), st.none() | st.floats(0, 0.5)), max_size=6))
def test_limits_of_shares_hold_the_bands_and_stay_within_0_and_100_percent(points):
    rows = pl.DataFrame(points, schema={"mean": pl.Float64, "sd": pl.Float64}, orient="row")
    low, high = style.percent_limits(rows)
    assert 0 <= low < high <= 1
    assert high - low >= 0.2 - 1e-9
    for mean, sd in points:
        assert low <= max(mean - (sd or 0), 0) + 1e-9
        assert high >= min(mean + (sd or 0), 1) - 1e-9


LABELS = st.lists(st.tuples(st.floats(0, 100), st.floats(5, 20)), min_size=1, max_size=8)


@given(LABELS)
def test_labels_keep_their_order_do_not_overlap_and_stay_between_the_limits(labels):
    wanted, heights = zip(*labels, strict=True)
    placed = declutter(wanted, heights, 0, 200)
    stack = sorted(range(len(placed)), key=lambda i: placed[i])
    for lower, upper in itertools.pairwise(stack):
        assert placed[upper] - placed[lower] >= (heights[upper] + heights[lower]) / 2 - 1e-6
        assert wanted[upper] >= wanted[lower]
    assert placed[stack[0]] - heights[stack[0]] / 2 >= -1e-6
    assert placed[stack[-1]] + heights[stack[-1]] / 2 <= 200 + 1e-6


@each(
    "wanted, heights, placed",
    ([50, 10, 30], [8, 8, 8], [50, 10, 30]),
    ([30, 30], [10, 10], [35, 25]),
    ([30, 30, 60], [20, 10, 10], [37.5, 22.5, 60]),
    ([], [], []),
)
def test_labels_with_room_stay_and_crowded_ones_share_the_displacement(
    wanted, heights, placed
):
    assert declutter(wanted, heights, 0, 100) == pytest.approx(placed)


def test_the_written_labels_do_not_overlap_on_the_page():
    with style.applied():
        sheet = Sheet(2, 2, width=5.5, panel_height=1.6)
        for axes in sheet.panels:
            axes.set_ylim(0, 1)
            for y, text in (
                (0.5, "one"),
                (0.51, "two\nlines"),
                (0.49, "three"),
                (1.0, "top"),
                (0.0, "low"),
            ):
                sheet.label(axes, y, text, style.BLUE)
        figure = sheet.chart("labels", ROWS).figure
        figure.draw_without_rendering()
        for axes in sheet.panels:
            texts = [text for text in axes.texts if isinstance(text, Annotation)]
            assert len(texts) == 5
            boxes = sorted(
                (text.get_window_extent() for text in texts), key=lambda box: box.y0
            )
            for lower, upper in itertools.pairwise(boxes):
                assert upper.y0 >= lower.y1 - 1
            page = figure.get_window_extent()
            assert all(page.x0 <= box.x0 and box.x1 <= page.x1 for box in boxes)


def test_rows_of_panels_are_as_long_as_each_other_as_can_be():
    assert [style.columns_of(panels, 4) for panels in (1, 4, 5, 6, 7, 17)] == [
        1,
        4,
        3,
        3,
        4,
        4,
    ]
    assert [style.columns_of(panels, 3) for panels in (2, 4, 5)] == [2, 2, 3]


@pytest.mark.parametrize(("width", "size", "signs"), [(5.5, 7.0, 101), (3.25, 7.5, 55)])
def test_so_many_signs_fit_into_a_width_in_inches(width, size, signs):
    assert style.signs(width, size) == signs


def test_panels_with_their_titles_and_axes_stay_within_the_page_and_apart():
    with style.applied():
        sheet = Sheet(4, 2, width=5.5, panel_height=1.4)
        for axes in sheet.panels:
            axes.set(title="two\nlines", xlabel="across", ylabel="up\nwards", ylim=(0, 1e5))
        figure = sheet.chart("chart", ROWS).figure
        page, boxes = (
            figure.get_window_extent(),
            [it.get_tightbbox() for it in sheet.panels],
        )
    for box in boxes:
        assert (
            page.x0 <= box.x0 < box.x1 <= page.x1 and page.y0 <= box.y0 < box.y1 <= page.y1
        )
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
