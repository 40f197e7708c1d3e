"""Prompts: their schema, readers and writers, the built-in arithmetic task, and noise injection."""
