"""Figures (`figures.FIGURES`) and tables (`tables.count`) of stored runs, read from run directories alone.

To add a figure, write a function from arms to charts and add its line to `FIGURES`. Modules are imported when needed.

Every function that reads runs raises `UserError` for a run without a complete step and for a damaged file; docstrings
list only other errors.
"""
