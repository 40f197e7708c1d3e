"""What the built-in prompts say their data source is, known to those who make them and to those who grade them."""

ARITHMETIC_SOURCES = frozenset({"arithmetic", "arithmetic-addition", "arithmetic-subtraction"})
"""A user's own source may well begin with the same word: only these names mean the arithmetic task."""
