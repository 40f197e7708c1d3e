"""The paper's theory: its formulas, a simulation of them, and what runs show of both (docs/theory.md)."""
