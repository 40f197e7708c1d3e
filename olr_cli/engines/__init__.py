"""Engines: they generate rollouts and optimise the policy, and know nothing of labels."""
