"""Evaluation of models: benchmarks, sampling, grading, scores and tables (R19 to R22)."""
