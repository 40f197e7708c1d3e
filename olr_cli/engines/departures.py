"""Where what an engine computes departs from the authors' run (R17), in sentences for a run's manifest."""

from __future__ import annotations

from olr_cli.recipe.schema import Recipe


def loss_average_departure(recipe: Recipe) -> str:
    """How the loss is averaged, and how the authors' was.

    Their `balance_batch` sorts samples by length, mini-batches are cut without shuffling, and the loss is the mean of
    the token means of micro-batches of 4: `benchmarks/step_order.py` shows what each response then weighs.
    """
    authors = "the authors' mean of token means over micro-batches of 4 responses of like length"
    if recipe.train.loss_average == "token":
        return (
            f"the loss is one mean over a mini-batch's response tokens, and long responses weigh more; {authors} is in"
            " effect a mean over responses (train.loss_average sequence)"
        )
    return f"the loss is exactly a mean over a mini-batch's responses; {authors} comes close to it"
