"""The report: one HTML file that shows runs at a glance and every prompt's history, without a network.

`page` puts the file together from what the runs were, tables, figures and `prompts` (the list of prompts
and their data); ``page.html``, ``report.css`` and the scripts are what the browser gets. What runs hold (responses,
answers, labels, names) is data from strangers: Python escapes it (`olr_cli.tables.html`), the script writes it as text
alone, and the page's Content-Security-Policy lets nothing else run or load.
"""
