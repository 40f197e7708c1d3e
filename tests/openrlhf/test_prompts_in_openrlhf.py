"""OpenRLHF gets the prompts that we wrote, in the order in which the local engine visits them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import datasets
import pytest
from cases import each
from openrlhf.datasets import PromptDataset
from openrlhf.datasets.utils import blending_datasets
from openrlhf.trainer.ppo_utils import samples_generator
from openrlhf.trainer.ppo_utils.samples_generator import (
    SamplesGenerator,
    _collect_prompt_batch,
)

from olr_cli.engines.openrlhf.experience_maker import PromptOrder
from olr_cli.engines.openrlhf.flags import Places, recipe_flags
from olr_cli.engines.openrlhf.job_files import JobFiles, prompt_label, write_rows
from olr_cli.engines.openrlhf.trainer import held_out_samples
from olr_cli.recipe.layers import validate
from olr_cli.runs.schedule import Schedule

EPOCHS, STEP = 3, 4
PLACES = Places("model", Path("p"), None, None, Path("scratch"), 64)
ODD = [
    "1+1=", "two\nlines \r\n and a \u2028 separator", '"quoted" \\boxed{} Ü 漢 \x00', " ", "[1, 2]", "null",
]  # fmt: skip
DAYS = [f"2024-01-0{day}" for day in range(1, 7)]


@each(
    "texts, labels",
    (ODD, ["1", "2", "row-3", "4.0", "true", "null"]),
    (ODD, ["0", "1", "2", "3", "4", "5"]),
    (ODD, DAYS),
    (DAYS, ODD),
    ids=[
        "odd",
        "labels that look like numbers",
        "labels that look like dates",
        "prompts that look like dates",
    ],
)
def test_openrlhf_reads_the_texts_and_labels_that_were_written(
    texts, labels, tmp_path, monkeypatch
):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    args = SimpleNamespace(
        data=SimpleNamespace(input_key="input", label_key="label"), use_ms=False
    )
    strategy = SimpleNamespace(args=args, print=lambda *_: None, is_rank_0=lambda: False)
    file = JobFiles(tmp_path).prompts
    file.parent.mkdir()
    write_rows(file, list(zip(texts, labels, strict=True)))
    read = PromptDataset(blending_datasets(str(file), strategy=strategy), None, strategy)
    assert [read[row][1:3] for row in range(len(read))] == list(
        zip(texts, labels, strict=True)
    )


class Waves(SamplesGenerator):
    """OpenRLHF's sample generator, which notes how many prompts it gives vLLM at a time."""

    def _dispatch_prompts_to_vllm(self, prompts, labels, **settings):
        self.waves.append(len(prompts))
        return [
            [f"{label}:{k}" for k in range(settings["n_samples_per_prompt"])]
            for label in labels
        ]

    def _process_response_into_experience(self, response, **_settings):
        return response


def test_vllm_gets_all_held_out_prompts_at_once(monkeypatch):
    ray = SimpleNamespace(wait=lambda refs, **_: (refs[:1], refs[1:]), get=lambda ref: ref)
    monkeypatch.setattr(samples_generator, "ray", ray)
    args = SimpleNamespace(
        rollout=SimpleNamespace(batch_size=STEP), vllm=SimpleNamespace(enable_sleep=False)
    )
    held_out = [("source", [f"text {row}"], [str(row)], [None]) for row in range(11)]
    generator = Waves(SimpleNamespace(args=args), None, held_out, None, [])
    generator.waves = []
    expected = {f"{row}:{k}" for row in range(11) for k in range(3)}
    assert set(generator.generate_eval_samples(n_samples_per_prompt=3)) == expected
    assert generator.waves == [4, 4, 3]  # by itself

    generator.waves = []
    samples = held_out_samples(generator, {"n_samples_per_prompt": 3})
    assert (set(samples), len(samples)) == (expected, 33)
    assert generator.waves == [11]
    assert args.rollout.batch_size == STEP


def recipe():
    train = {"epochs": EPOCHS, "prompts_per_step": STEP}
    return validate({"train": train, "engine": {"name": "openrlhf"}}, "test")


def due_rows(chosen, prompts):
    """Rows of the prompts of every step."""
    schedule = Schedule.of(chosen, prompts)
    return [schedule.rows(step) for step in schedule.after(0)]


def drawn_in_an_epoch(prompts, rows_of_a_step=STEP):
    """The labels that OpenRLHF's sample generator draws, step by step, until the prompts are used up."""
    rows, exhausted, drawn = iter(prompts), False, []
    while not exhausted:
        _, labels, _, exhausted = _collect_prompt_batch(rows, rows_of_a_step)
        drawn += [labels] if labels else []
    return drawn


@pytest.mark.parametrize("views", [("original",), ("original", "rephrased")])
@pytest.mark.parametrize("prompts", [2 * STEP - 1, 2 * STEP])
@pytest.mark.parametrize("done", range(2 * EPOCHS))
def test_prompts_come_in_the_local_engines_order_in_all_views_also_after_a_resume(
    views, prompts, done
):
    labels = [[prompt_label(view, str(row)) for view in views] for row in range(prompts)]
    due = [
        [label for row in own for label in labels[row]]
        for own in due_rows(recipe(), prompts)
    ]
    rows = [("source", f"text of {label}", label, None) for own in labels for label in own]
    order = PromptOrder(Schedule.of(recipe(), prompts), rows, done)
    flags = recipe_flags(recipe(), replace(PLACES, views=len(views)), "sdpa", done)
    epochs_left = EPOCHS - done // 2
    drawn = [
        own
        for _ in range(epochs_left)
        for own in drawn_in_an_epoch(order, flags["rollout.batch_size"])
    ]
    assert drawn == due[done:]
    assert len(order) == len(views) * prompts
