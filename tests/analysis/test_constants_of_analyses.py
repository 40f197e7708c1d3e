"""Numbers of analyses, figures and tables that stand once in the package, a second time."""

import errno
from types import ModuleType

import numpy as np
from cases import each

from olr_cli import files
from olr_cli.analysis import frame, histories, log_tables
from olr_cli.analysis.audit import calibration, export
from olr_cli.analysis.figures import learning, style, variations
from olr_cli.analysis.report import page, prompts, texts, words
from olr_cli.cli import check, inject_noise, options
from olr_cli.tables import html, render


@each(
    "module, constants",
    # of rollouts that are read and shown
    (histories, {"CHUNK": 200_000, "_MOST_CONTRADICTIONS": 0.1}),
    (log_tables, {"_COMPARED": 1000}),
    (export, {"_VERIFY": 50}),
    (texts, {"SAMPLES": 4, "LONGEST": 4000, "LONGEST_ANSWER": 300, "_HEAD": 1 / 3}),
    (prompts, {"MOST_RUNS": 10, "MOST_PROMPTS": 5000, "MOST_TEXT": 16_000_000, "PROMPTS_A_BLOCK": 50}),
    (prompts, {"_MOST_ANSWERS": 6}),
    # of what is drawn
    (frame, {"SMALLEST_GAP": 0.05}),
    (learning, {"_WINDOWS": 15, "_MARKERS": 5, "_LEAST_SPANS": {"rollout/reward": 0.1, "policy/entropy": 0.1,
                                                                 "policy/kl": 0.01}}),
    (variations, {"_LONGEST_LINE": 18}),
    (style, {"TEXT_WIDTH": 5.5, "COLUMN_WIDTH": 3.25, "FONT_SIZE": 7, "TITLE_SIZE": 7.5, "FEW": 4, "LABEL_GAP": 4}),
    (page, {"_PIXELS_A_POINT": 1.6}),
    (words, {"NO_VISIT": 0, "NO_MAJORITY": 1, "RIGHT": 2, "WRONG_LABEL": 3, "GIVEN": 4, "OTHER": 5}),
    # of what is printed
    (check, {"_WIDTH": 60}),
    (inject_noise, {"_EXAMPLES": 3, "_PROMPT_WIDTH": 68}),
    (options, {"FORMATS": ("terminal", "markdown", "latex", "csv"), "DEVICES": ("auto", "cpu", "cuda")}),
    (render, {"_WIDTH": 80, "_SHORTEST_NAME": 12, "_LONGEST_NAME": 24, "_INDENT": " " * 4}),
    (html, {"_LONGEST": 40}),
    # of the system
    (files, {"_NO_SYNC": {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}}),
    (files, {"_STAYS": {errno.EBUSY, errno.ENOTEMPTY, errno.EIO, errno.EACCES, errno.EPERM, errno.EROFS}}),
    ids=lambda it: it.__name__ if isinstance(it, ModuleType) else "",
)  # fmt: skip
def test_a_constant_is_what_it_was(module, constants):
    assert {name: getattr(module, name) for name in constants} == constants


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
