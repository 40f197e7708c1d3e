"""The report: one HTML file that shows runs at a glance and every prompt's history, without a network.

`page` builds the file from facts about the runs, tables, figures and `prompts` (the list of prompts and their data).
The browser gets ``page.html``, ``report.css`` and the scripts. The contents of runs (responses, answers, labels, names)
are data from strangers: Python escapes them (`olr_cli.tables.html`), the script writes them as text alone, and the
page's Content-Security-Policy blocks everything else.
"""
