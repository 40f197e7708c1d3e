"""The theory of the paper: its formulas, their simulation, and what runs show of them (docs/results/theory.md)."""
