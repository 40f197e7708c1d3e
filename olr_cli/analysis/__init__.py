"""What stored runs show: figures (`figures.FIGURES`) and tables (`tables.count`), read from run directories alone.

To add a figure, write a function from arms to charts and add its line to `FIGURES`. Modules are imported when needed.

Whatever reads runs raises `UserError` for a run without a complete step and for a damaged file; docstrings name other
errors alone.
"""
