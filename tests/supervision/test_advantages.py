"""Advantages are Eq. 1, and exactly 0 where a group teaches nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from olr_cli.supervision.advantages import group_advantages


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=9).filter(lambda rewards: np.std(rewards) > 1e-3))
def test_advantages_are_rewards_minus_mean_over_population_std_plus_eps(rewards):
    r = np.array(rewards)
    np.testing.assert_allclose(
        group_advantages(rewards), (r - r.mean()) / (r.std() + 1e-6), rtol=1e-9, atol=1e-9
    )


@given(st.floats(-10, 10), st.integers(1, 9))
def test_a_group_of_equal_rewards_has_advantages_of_exactly_zero(reward, rollouts):
    assert group_advantages([reward] * rollouts) == (0.0,) * rollouts


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=9))
def test_advantages_add_up_to_nothing(rewards):
    assert sum(group_advantages(rewards)) == pytest.approx(0, abs=1e-6)
