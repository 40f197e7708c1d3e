"""Reports as their readers get them: small runs to report on, and the content of a page."""

import base64
import html.parser
import json
import zlib
from dataclasses import dataclass, field, replace

import numpy as np
from decisions import columns
from histories import arms_of
from samples import json_lines

from olr_cli.analysis.figures import draw
from olr_cli.analysis.report.page import write_report
from olr_cli.data.sets import training_prompts
from olr_cli.recipe.layers import validate
from olr_cli.runs.directory import MANIFEST_VERSION, recipe_yaml
from olr_cli.runs.store import RunStore
from olr_cli.supervision.types import LabelRecord, RolloutRecord

# Elements of HTML that have no end tag.
VOID = {"meta", "link", "input", "br", "img"}
KINDS = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32}


@dataclass
class Page(html.parser.HTMLParser):
    """A parsed report.

    Attributes:
        source: its HTML.
        elements: (tag, attributes) of each element, in order.
        texts: by tag, the text inside all elements with this tag.
        blocks: by element id, the unpacked data of elements with a ``data-kind``.
    """

    source: str
    elements: list = field(default_factory=list)
    texts: dict = field(default_factory=dict)
    blocks: dict = field(default_factory=dict)

    def __post_init__(self):
        super().__init__()
        self.open = []
        self.feed(self.source)
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        opened, _ = self.open.pop()
        assert opened == tag

    def handle_data(self, data):
        for tag in {tag for tag, _ in self.open}:
            self.texts[tag] = self.texts.get(tag, "") + data
        if self.open and "data-kind" in self.open[-1][1]:
            attributes = self.open[-1][1]
            self.blocks[attributes["id"]] = unpacked(attributes["data-kind"], data)

    def all(self, tag):
        """Return the attributes of each element with this tag."""
        return [attributes for name, attributes in self.elements if name == tag]


def unpacked(kind, text):
    """Decode a block of data: JSON if `kind` is ``json``, otherwise an array of that type in `KINDS`."""
    content = zlib.decompress(base64.b64decode(text))
    return json.loads(content) if kind == "json" else np.frombuffer(content, KINDS[kind])


def report(*runs, out=None, notes=(), with_figures=False):
    """Write the report of some runs and return its file; the folder is by default ``report`` beside the first run.

    Figures are left out unless asked for, because drawing them takes time.
    """
    arms, folder = arms_of(*runs), out or runs[0].parent / "report"
    return write_report(arms, folder, draw(["all"], arms) if with_figures else {}, notes)[0]


def read(file):
    """Parse the HTML file of a report."""
    return Page(file.read_text("utf-8"))


LABEL = LabelRecord(
    prompt_id="", visit=0, step=0, noise_type="clean",
    true_answer="7", given_label="7", noisy_label=None, majority_answer="7", historical_majority="7",
    true_answer_count=2, given_label_count=2, noisy_label_count=None, majority_count=2, rollouts=2, answered=2,
    pass_rate=1.0, slope=0.0, is_consistent=True, is_selected=False, effective_label="7", label_source="given",
    majority_is_correct=True, majority_is_noisy_label=None, effective_label_is_correct=True,
    reward_mean=1.0, has_zero_variance=True, trains=True,
)  # fmt: skip
ROLLOUT = RolloutRecord(
    "", 0, 0, 0, "original", "seven", "7", "7", 1.0, True, 3, False, None, None, None
)


def label(prompt_id, visit, step, **changes):
    """Return the label record of a clean prompt whose majority is right.

    `visit` counts how often the prompt has been sampled, from 1. `changes` are other values for columns of the record.
    """
    return replace(LABEL, prompt_id=prompt_id, visit=visit, step=step, **changes)


def rollout(prompt_id, visit, step, sample, **changes):
    """Return the record of a right response, number `sample` of its prompt at this visit and step.

    `visit` counts how often the prompt has been sampled, from 1. `changes` are other values for columns of the record.
    """
    return replace(
        ROLLOUT, prompt_id=prompt_id, visit=visit, step=step, sample=sample, **changes
    )


def write_run(run, steps, *, rows=None, arm="", name="run", settings=None):
    """Write a run directory with the given records, and return it.

    Args:
        run: the new directory.
        steps: for each step its label records and its rollout records.
        rows: rows of the training file; None: the file is not there.
        arm: name of the arm of a sweep that the run belongs to.
        name: the recipe's.
        settings: other keys of the recipe.
    """
    run.mkdir(parents=True)
    data = run.parent / f"{run.name}-data.jsonl"
    tree = {
        "name": name,
        "data": {"train": str(data)},
        "model": {"path": "some/model"},
        **(settings or {}),
    }
    recipe = validate(tree, str(run))
    (run / "recipe.yaml").write_text(recipe_yaml(recipe), "utf-8")
    digest = ""
    if rows is not None:
        json_lines(data, *rows)
        digest = training_prompts(recipe).digest
    store = RunStore(run)
    for number, (labels, rollouts) in enumerate(steps, start=1):
        store.append(number, columns(LabelRecord, labels), columns(RolloutRecord, rollouts))
    lines = [
        {"step": step, "epoch": step, "rollout/reward": 1.0}
        for step in range(1, len(steps) + 1)
    ]
    json_lines(run / "metrics.jsonl", *lines)
    prompts = len({each.prompt_id for labels, _ in steps for each in labels})
    manifest = {
        "schema_version": MANIFEST_VERSION,
        "name": name,
        "arm": arm,
        "status": "finished",
        "attempts": [],
        "data": {"train": {"prompts": prompts, "digest": digest, "source": str(data)}},
    }
    (run / "manifest.json").write_text(json.dumps(manifest))
    return run
