"""Rewards for other trainers, each in the form that its trainer takes: TRL's and verl's (docs/trainers.md)."""
