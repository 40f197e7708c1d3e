"""LaTeX: text that a paper can take over as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_SIGNS = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_ESCAPES = str.maketrans(_SIGNS | {sign: f"\\{sign}" for sign in "&%$#_{}"})


def escaped(text: str) -> str:
    """Text with the signs that LaTeX would read as commands escaped."""
    return text.translate(_ESCAPES)


def number(text: str) -> str:
    """A number with its sd or interval, as in ``+4.3 [+1.1, +7.5]``, in math mode; nothing stays nothing."""
    return f"${text.replace('±', chr(92) + 'pm').replace(' [', chr(92) + ';[')}$" if text else ""


def tabular(heads: Sequence[str], lines: Iterable[str], notes: Iterable[str]) -> str:
    """A `tabular` with the rules of booktabs; the first column holds names, the others numbers.

    Args:
        heads: of the columns, escaped.
        lines: of the body, each a `row` or a rule.
        notes: go in front as comments.
    """
    return "\n".join(
        [
            *(f"% {note}" for note in notes),
            "% Needs \\usepackage{booktabs}.",
            f"\\begin{{tabular}}{{l{'c' * (len(heads) - 1)}}}",
            "\\toprule",
            f"{' & '.join(heads)} \\\\",
            "\\midrule",
            *lines,
            "\\bottomrule",
            "\\end{tabular}",
        ]
    )


def row(cells: Iterable[str]) -> str:
    """A line of the body."""
    return f"{' & '.join(cells)} \\\\"
