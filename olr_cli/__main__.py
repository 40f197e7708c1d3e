"""Entry point: `python -m olr_cli` is `olr`. Signals are handled before anything slow is imported."""

from olr_cli.runs.interrupts import heed_signals


def main() -> None:
    """Run the command `olr`."""
    heed_signals()
    from olr_cli.cli import main as olr

    olr()


if __name__ == "__main__":
    main()
