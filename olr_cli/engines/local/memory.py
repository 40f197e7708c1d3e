"""Memory that a step frees is kept for the next."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # in malloc.h
_NEVER = -1
_LARGEST_KEPT = 32 << 20
"""The most that glibc takes; a larger tensor's memory comes from the system each time."""


def keep_freed_memory() -> None:
    """Let this process keep the memory it frees, where the C library is glibc.

    Every step allocates and frees the same tensors. Had the system their memory in between, every page of it would
    come back through a fault, and filled with zeros.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, _NEVER)
