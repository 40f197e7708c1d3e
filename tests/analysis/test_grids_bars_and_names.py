"""Grids of an audit, heights of the bars in a page, and names of figures."""

import numpy as np
from cases import each

from olr_cli.analysis.audit import calibration
from olr_cli.analysis.figures import FIGURES, known_figures
from olr_cli.analysis.report import words


@each(
    "name, first, last, step",
    ("_INTERCEPTS", -10, 6, 0.25),
    ("_LOG_SLOPES", -4, 1.5, 0.125),
)
def test_maps_are_tried_on_a_grid(name, first, last, step):
    assert (
        getattr(calibration, name).tolist() == np.arange(first, last + step, step).tolist()
    )


def test_in_the_page_the_height_of_a_bar_says_what_the_majority_was():
    heights = {kind["name"]: kind["height"] for kind in words.WORDS["kinds"]}
    assert heights == {
        "not visited": 0,
        "no majority": 0.2,
        "another answer": 0.45,
        "a wrong label": 0.7,
        "the given label, truth unknown": 0.85,
        "the true answer": 1,
    }


@each(
    "names, found",
    (["over-seed", "dynamics", "over-seed", "dynamics"], ["dynamics", "over-seed"]),
    (["learning", "dynamics"], ["dynamics", "learning"]),
)
def test_a_figure_that_is_named_twice_is_drawn_once(names, found):
    assert known_figures(names) == sorted(found, key=[*FIGURES, "over-seed"].index)
