"""Recorded rollouts, as another trainer would pass them to olr."""

import itertools

from olr_cli.runs.store import scan_labels, scan_rollouts

METHOD = {"slope_threshold": 0.02, "warmup_epochs": 3}
"""The method of the runs that `histories.write_history` writes."""


def batches(run):
    """Yield for each step of a stored run its number and the keyword arguments of a call of `OnlineLabelRefinement`.

    The completions of a prompt are adjacent.
    """
    labels = scan_labels(run).collect()
    facts = {row["prompt_id"]: row for row in labels.iter_rows(named=True)}
    rollouts = scan_rollouts(run).sort("step", "sample", maintain_order=True).collect()
    for step, rows in itertools.groupby(
        rollouts.iter_rows(named=True), lambda row: row["step"]
    ):
        rows = list(rows)
        row_facts = [facts[row["prompt_id"]] for row in rows]
        yield (
            step,
            {
                "prompts": [f"Question {row['prompt_id']}" for row in rows],
                "completions": [row["response"] for row in rows],
                "labels": [fact["given_label"] for fact in row_facts],
                "prompt_ids": [row["prompt_id"] for row in rows],
                "true_answers": [fact["true_answer"] for fact in row_facts],
                "noise_types": [fact["noise_type"] for fact in row_facts],
            },
        )


def feed(olr, run, after=0, until=None):
    """Call `olr` with each recorded step after step `after`, up to `until` (None: the last); return the last result."""
    for step, batch in batches(run):
        if step > after and (until is None or step <= until):
            result = olr(**batch, step=step)
    return result


def decisions(run):
    """Return the labels table of a run, by prompt and visit."""
    return scan_labels(run).sort("prompt_id", "visit").collect()
