"""The plan of a run: steps, rows and learning rates depend on nothing that is computed, and on no later epoch."""

import pytest
import torch
from hypothesis import given, strategies as st
from transformers import get_scheduler

from olr_cli.recipe.layers import validate
from olr_cli.runs.schedule import Schedule

SIZES = st.integers(1, 12)


@given(SIZES, SIZES, st.integers(1, 5), st.integers(0, 3), st.integers(0, 9))
def test_the_rows_of_a_step_do_not_depend_on_the_number_of_epochs(
    prompts, size, epochs, more, seed
):
    few = Schedule(prompts, size, size, epochs, seed)
    many = Schedule(prompts, size, size, epochs + more, seed)
    assert [few.rows(step) for step in few.after(0)] == [
        many.rows(step) for step in few.after(0)
    ]


@given(SIZES, SIZES, st.integers(1, 4))
def test_every_epoch_visits_every_prompt_once(prompts, size, epochs):
    schedule = Schedule(prompts, size, size, epochs, seed=1)
    visited = {epoch: [] for epoch in range(1, epochs + 1)}
    for step in schedule.after(0):
        assert 0 < len(schedule.rows(step)) <= size
        visited[schedule.epoch(step)] += schedule.rows(step)
    assert all(sorted(rows) == list(range(prompts)) for rows in visited.values())


@given(SIZES, SIZES, SIZES, st.integers(1, 4))
def test_updates_are_the_mini_batches_of_the_steps_so_far(prompts, size, mini, epochs):
    train = {"epochs": epochs, "prompts_per_step": size, "mini_batch_prompts": mini}
    schedule = Schedule.of(validate({"train": train}, "test"), prompts)
    counted = 0
    for step in schedule.after(0):
        assert schedule.updates_before(step) == counted
        updates = -(-len(schedule.rows(step)) // mini)
        assert len(schedule.learning_rates(step)) == updates
        counted += updates
    assert schedule.updates_before(schedule.last + 1) == counted


@pytest.mark.parametrize("done", [0, 1, 3, 5, 9])
def test_a_run_that_goes_on_makes_the_steps_that_are_left(done):
    schedule = Schedule.of(
        validate({"train": {"epochs": 3, "prompts_per_step": 8}}, "test"), prompts=20
    )
    assert schedule.last == 9
    assert [*range(1, done + 1), *schedule.after(done)] == list(range(1, 10))


def test_something_is_due_every_so_many_steps_and_at_the_last():
    schedule = Schedule(prompts=20, size=8, mini=8, epochs=3, seed=0)
    assert [step for step in range(10) if schedule.is_due(step, 4)] == [0, 4, 8, 9]
    assert [step for step in range(10) if schedule.is_due(step, None)] == [9]


@pytest.mark.parametrize("warmup_ratio", [0.0, 0.01, 0.1, 0.25, 0.99])
@pytest.mark.parametrize("decay", ["constant", "linear", "cosine", "cosine_with_min_lr"])
def test_learning_rates_are_those_of_transformers_to_the_last_bit(decay, warmup_ratio):
    schedule = Schedule(
        20, 8, 3, 7, 0, highest=3e-4, decay=decay, warmup_ratio=warmup_ratio
    )
    updates = schedule.updates_before(schedule.last + 1)
    optimizer = torch.optim.SGD([torch.zeros(())], lr=3e-4)
    theirs = get_scheduler(
        "constant_with_warmup" if decay == "constant" else decay,
        optimizer,
        num_warmup_steps=-int(-(warmup_ratio * updates) // 1),
        num_training_steps=updates,
        scheduler_specific_kwargs={"min_lr_rate": 0.1}
        if decay == "cosine_with_min_lr"
        else None,
    )
    for update in range(updates):
        assert schedule.learning_rate(update) == optimizer.param_groups[0]["lr"]
        optimizer.step()
        theirs.step()
    rates = [rate for step in schedule.after(0) for rate in schedule.learning_rates(step)]
    assert rates == [schedule.learning_rate(update) for update in range(updates)]


def test_without_other_settings_the_learning_rate_is_one_throughout():
    schedule = Schedule(prompts=20, size=8, mini=4, epochs=2, seed=0)
    rates = [rate for step in schedule.after(0) for rate in schedule.learning_rates(step)]
    assert rates == [1.0] * 10
