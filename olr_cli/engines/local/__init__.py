"""The local engine: one process, CPU or one GPU, and the built-in policies."""
