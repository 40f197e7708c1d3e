"""The measure of how dense code is counts what its docstring says."""

import sys

import density

SOURCE = '''"""A module."""

LIMIT = 3
"""A field's docstring."""


def squeezed(values, a, b, c, d, e):
    """The squares of small values."""
    # why: a comment
    return [value**2 for value in values if value < LIMIT and value] or None


class Holder:
    @property
    def size(self):
        """The size."""
        return 1 if self else 0

    def fill(self, values):
        """Fill the holder."""
        for value in values:

            def inner():
                if value:
                    return 1

            inner()
'''


def test_statements_branches_arguments_verbs_and_comments_are_counted():
    room = density.measure(SOURCE, "a.py")
    by_name = {function.place.split()[1]: function for function in room.functions}
    assert room.lines == 27 and room.comments == 1
    # LIMIT, squeezed and its return, Holder, size and its return, fill, for, inner, if, return, inner()
    assert room.statements == 12
    # A for, an and, an or; a comprehension's if is part of its for
    assert by_name["squeezed"].branches == 3
    assert by_name["squeezed"].arguments == 6 and by_name["fill"].arguments == 1
    assert (by_name["fill"].branches, by_name["inner"].branches) == (1, 1)
    assert (
        by_name["squeezed"].begins_with_verb is False and by_name["fill"].begins_with_verb
    )
    assert (
        by_name["size"].begins_with_verb is None
        and by_name["inner"].begins_with_verb is None
    )
    assert by_name["squeezed"].lines == 1


def test_the_table_has_a_row_a_room_and_the_worst_functions(tmp_path, monkeypatch, capsys):
    for name in ("one/a.py", "one/b.py", "two.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SOURCE)
    monkeypatch.setattr(sys, "argv", ["density.py", str(tmp_path), "--worst", "1"])
    density.main()
    head, one, two, whole, worst = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "room" and [
        line.split()[:2] for line in (one, two, whole)
    ] == [
        ["one", "2"],
        ["two.py", "1"],
        ["all", "3"],
    ]
    assert whole.split()[2:4] == ["81", "36"] and worst.endswith(":7 squeezed")
