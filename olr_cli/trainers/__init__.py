"""Rewards for other trainers, TRL and verl, each in the form that the trainer expects (docs/trainers.md)."""
