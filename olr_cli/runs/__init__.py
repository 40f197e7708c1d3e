"""A run directory: layout, manifest, Parquet store, checkpoints, resume. Knows nothing of engines."""
