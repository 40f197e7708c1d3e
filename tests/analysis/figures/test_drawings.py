"""What figures are made of: sizes, titles, axes, lines, areas, bars and words, as `fixtures/drawings` has them.

Where the layout puts things is left out. After a change that is meant, look at the picture, and write them anew by
`pytest tests/analysis/figures/test_drawings.py --rewrite`.
"""

import re
from itertools import product

import matplotlib
import pytest
from cases import each
from histories import arms_of, write_history
from matplotlib.colors import to_hex
from matplotlib.text import Annotation
from paper_runs import NINE, write_evaluated, write_run
from samples import json_lines

from olr_cli.analysis import figures
from olr_cli.analysis.figures import by_epoch, learning, style, variations

GRPO = {"name": "grpo"}
LINE = (
    "color",
    "linestyle",
    "linewidth",
    "marker",
    "markersize",
    "markerfacecolor",
    "alpha",
    "zorder",
    "markevery",
    "markeredgewidth",
    "clip_on",
)


def olr(**others):
    return {"name": "olr", "slope_threshold": 0.02, "warmup_epochs": 2, **others}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of each arm, by whose names the tests take them."""
    folder = tmp_path_factory.mktemp("runs")
    small = {"prompts": 20, "prompts_per_step": 10, "epochs": 4}

    def write(name, method, **settings):
        write_history(folder / name, method=method, **{**small, **settings})

    for seed in (1, 2):
        write(f"pair/grpo{seed}", GRPO, seed=seed, arm="grpo")
        write(f"pair/olr{seed}", olr(), seed=seed, arm="olr")
    for seed in range(5):
        write(f"five/{seed}", olr(), seed=seed, arm="olr")
    write("pair/inactive", olr(), seed=3, arm="inactive", noise="inactive")
    write("untold", olr(), knows_truth=False, knows_noise=False)
    write("short", GRPO, epochs=1)
    write("seven", GRPO, epochs=7)
    for threshold in (0.0, 0.05, 0.1):
        write(f"threshold/{threshold}", olr(slope_threshold=threshold))
    write("threshold/again", olr(slope_threshold=0.1), seed=1)
    write("threshold/grpo", GRPO)
    write("threshold/inactive", olr(slope_threshold=0.05), noise="inactive")
    write("threshold/inactive-0.1", olr(slope_threshold=0.1), noise="inactive")
    for number, criteria in enumerate([["slope", "consistency"], ["slope"], []]):
        write(f"criteria/{number}", olr(criteria=criteria))
    write("criteria/grpo", GRPO)
    for seed in range(1, 5):
        write(f"criteria/again-{seed}", olr(criteria=["slope"]), seed=seed)
    write("criteria/two", olr(criteria=[]), seed=1)
    for ratio in (0.2, 0.6):
        for name, method in (("grpo", GRPO), ("olr", olr())):
            write(f"ratio/{name}-{ratio}", method, ratio=ratio)
    for ratio, rate in product((0.2, 0.6), (1e-6, 2e-6)):
        run = folder / f"scored/{ratio}-{rate}"
        write_run(run, "grpo", ratio=ratio, train={"learning_rate": rate})
        if rate == 1e-6:
            write_evaluated(run / "evaluation" / "step-000001", NINE, step=1)
    for seed in (0, 1):
        write(f"measured/{seed}", olr(), seed=seed)
        measure(folder / f"measured/{seed}", steps=100 - 40 * seed)
    write("two arms/grpo", GRPO)
    write("two arms/olr", olr())
    for name in ("grpo", "olr"):
        measure(folder / f"two arms/{name}", steps=100)
    return folder


def measure(run, *, steps):
    """Write what a run of so many steps measured: numbers of all sizes, that move little or much."""
    lines = [
        {
            "step": step,
            "epoch": 1,
            "rollout/reward": 0.5 + 0.0001 * step,
            "policy/entropy": 2.0 - 0.01 * step,
            "rollout/length": 1200.0 + 10 * step,
            "rollout/truncated": 0.3,
            "policy/kl": 0.001 * (step % 3),
            "rollout/zero_variance_groups": step / 100,
            **({"eval/avg": 0.01 * step} if step % 20 == 0 else {}),
        }
        for step in range(1, steps + 1)
    ]
    json_lines(run / "metrics.jsonl", *lines)


@each(
    "figure, runs",
    ("learning", "pair"),
    ("learning", "five"),
    ("learning", "untold"),
    ("learning", "measured"),
    ("learning", "measured/0"),
    ("learning", "two arms"),
    ("coherence", "pair"),
    ("coherence", "five"),
    ("coherence", "pair/olr1"),
    ("dynamics", "pair/olr1"),
    ("dynamics", "pair/grpo1"),
    ("dynamics", "five"),
    ("dynamics", "untold"),
    ("dynamics", "short"),
    ("dynamics", "seven"),
    ("composition", "pair/olr1"),
    ("composition", "pair"),
    ("composition", "two arms"),
    ("composition", "short"),
    ("arms", "pair"),
    ("over-method.slope_threshold", "threshold"),
    ("over-method.criteria", "criteria"),
    ("over-noise.ratio", "ratio"),
    ("over-noise.ratio", "scored"),
)
def test_a_figure_is_drawn_as_it_was_looked_at(figure, runs, folder, is_as_stored):
    charts = figures.charts_of(figure, arms_of(folder / runs))
    name = f"{figure}-{runs.replace('/', '-').replace(' ', '-')}"
    is_as_stored(f"drawings/{name}.txt", "\n".join(map(described, charts)))


def test_the_style_is_the_one_that_was_looked_at(is_as_stored):
    with style.applied():
        settings = {name: matplotlib.rcParams[name] for name in style._SETTINGS}
    constants = {name for name in vars(style) if re.fullmatch("[A-Z_]+", name)}
    constants = sorted(constants - {"TYPE_CHECKING", "_HOLLOW", "_SETTINGS"})
    named = {name: getattr(style, name) for name in constants}
    lines = [f"{name}: {value}" for name, value in {**named, **settings}.items()]
    is_as_stored("drawings/style.txt", "\n".join(lines) + "\n")


@each(
    "name, function",
    ("learning", learning.learning),
    ("coherence", by_epoch.coherence),
    ("dynamics", by_epoch.dynamics),
    ("composition", by_epoch.composition),
    ("arms", variations.arms_at_the_end),
    ("over-noise.ratio", variations.over),
)
def test_the_caption_of_a_figure_is_the_first_line_of_its_function(name, function):
    assert figures.caption(name) == function.__doc__.splitlines()[0]


def described(chart):
    width, height = chart.figure.get_size_inches()
    lines = [f"{chart.name}: {width:.2f} x {height:.2f} inches"]
    lines += [text for text in (chart.note, chart.caption) if text]
    for legend in chart.figure.legends:
        names = [text.get_text() for text in legend.get_texts()]
        lines.append(
            f"legend in {legend._ncols} columns, frame {legend.get_frame_on()}: {names}"
        )
    lines += [words(text) for text in chart.figure.texts]
    for axes in chart.figure.axes:
        lines += ["", *panel(axes)]
    return "\n".join(lines) + "\n"


def panel(axes):
    title, pad = axes.get_title("left"), axes.titleOffsetTrans.transform((0, 0))[1]
    yield f"panel {title!r}, x {axes.get_xlabel()!r}, y {axes.get_ylabel()!r}"
    sides = [side for side, spine in axes.spines.items() if spine.get_visible()]
    grids = [
        name
        for name, axis in (("x", axes.xaxis), ("y", axes.yaxis))
        if axis.majorTicks[0].gridline.get_visible()
    ]
    pad = 72 * pad / axes.figure.dpi
    yield f"  title {number(pad)} above, lines at {' '.join(sides)}, grid {' '.join(grids)}"
    for name, axis, limits in (
        ("x", axes.xaxis, axes.get_xlim()),
        ("y", axes.yaxis, axes.get_ylim()),
    ):
        low, high = sorted(limits)
        room = 1e-6 * (high - low)
        places = axis.get_majorticklocs()
        places = [place for place in places if low - room <= place <= high + room]
        labels = axis.get_major_formatter().format_ticks(places)
        shown = [
            label for label in labels if label and axis.majorTicks[0].label1.get_visible()
        ]
        yield f"  {name} from {number(limits[0])} to {number(limits[1])}: {' '.join(shown)}"
    for line in axes.lines:
        xy = [f"{number(x)},{number(y)}" for x, y in zip(*line.get_data(), strict=True)]
        yield f"  line {look(line, *LINE)}: {middle(xy)}"
    for area in axes.collections:
        box = area.get_datalim(axes.transData)
        colours = [to_hex(colour, keep_alpha=True) for colour in area.get_facecolor()]
        yield f"  area {colours} {look(area, 'linewidth', 'alpha', 'hatch')}: {extent(box)}"
    for patch in axes.patches:
        yield f"  bar {look(patch, 'facecolor', 'hatch', 'alpha')}: {extent(patch.get_bbox())}"
    for text in axes.texts:
        yield f"  {words(text)}"


def words(text):
    """A text, and in a panel where it stands, if that is no matter of layout."""
    where = f"{text.get_ha()} {text.get_va()}"
    if text.axes is not None and not isinstance(text, Annotation):
        where += " at " + " ".join(map(number, text.get_position()))
    return f"text {text.get_text()!r} {to_hex(text.get_color())} {text.get_fontsize():g} {where}"


def look(artist, *properties):
    found = []
    for name in properties:
        value = getattr(artist, f"get_{name}")()
        if "color" in name:
            value = "none" if isinstance(value, str) and value == "none" else to_hex(value)
        elif hasattr(value, "tolist"):
            value = value.tolist()
        if value is not None:
            found.append(f"{name}={value}")
    return " ".join(found)


def extent(box):
    return " ".join(map(number, (box.x0, box.y0, box.x1, box.y1)))


def middle(points):
    """The first, a middle and the last point, and how many there are."""
    if len(points) > 3:
        points = [points[0], points[len(points) // 2], f"{points[-1]} of {len(points)}"]
    return " ".join(points)


def number(value):
    return f"{float(value):.3g}"
