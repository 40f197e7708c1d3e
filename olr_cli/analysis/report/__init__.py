"""The report: one HTML file that shows runs at a glance and every prompt's history, without a network.

`build` puts the page together from its parts, one module each; ``page.html``, ``report.css`` and the scripts are
what the browser gets. What runs hold (responses, answers, labels, names) is data from strangers: Python escapes it
(`markup`), the script writes it as text alone, and the page's Content-Security-Policy lets nothing else run or load.
"""
