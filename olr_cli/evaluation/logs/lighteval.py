"""placeholder"""

from pathlib import Path

from olr_cli.evaluation.logs.log import Log

PATTERN = "details_*.parquet"


def read(files: list[Path]) -> Log:
    """Read."""
    raise NotImplementedError
