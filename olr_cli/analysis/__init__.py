"""What stored runs show: figures (`figures.FIGURES`) and tables (`tables.count`), read from run directories alone.

To add a figure, write a function from arms to charts and add its line to `FIGURES`; for a table of the paper, a line in
`tables.layouts` and its name in `tables.PAPER_TABLES`. Modules are imported when needed.

Whatever reads runs raises `UserError` for a run without a complete step and for a damaged file; docstrings name other
errors alone.
"""
