"""`python -m olr_cli` is `olr`."""

from olr_cli.cli import main

main()
