"""What a command that prints nothing for a while says meanwhile, on standard error."""

from __future__ import annotations

import sys
import time

_FIRST = 2.0
"""Seconds of waiting that need no explanation."""
_EVERY = {True: 0.5, False: 30.0}
"""Seconds between two lines: in a terminal, where one replaces the other, and elsewhere."""


class Waiting:
    """Says how far something is, once it takes longer than two seconds."""

    def __init__(self) -> None:
        self._is_live = sys.stderr is not None and sys.stderr.isatty()
        self._due = time.monotonic() + _FIRST
        self._is_shown = False

    def verified(self, done: int, total: int) -> None:
        """So many of the answers that need computer algebra are read or verified."""
        self.say(f"Verified {done:,} of {total:,} answers that need computer algebra")

    def done(self) -> None:
        """Clear the line in a terminal."""
        if self._is_shown and self._is_live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._is_shown = False

    def say(self, sentence: str) -> None:
        """How far it is, without a full stop."""
        now = time.monotonic()
        if now < self._due or sys.stderr is None:
            return
        self._due, self._is_shown = now + _EVERY[self._is_live], True
        sys.stderr.write(f"\r\x1b[K{sentence} …" if self._is_live else f"{sentence} …\n")
        sys.stderr.flush()
