"""Label decisions from stored rollouts under other criteria: one setting, or a grid of them."""
