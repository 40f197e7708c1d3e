"""Ports to listen on that the kernel does not meanwhile give to somebody's connection."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_FROM = 20_000
"""Ray's worker processes listen on 10002 to 19999."""

_KERNELS_OWN = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 100


def free_port() -> int:
    """A port that nobody listens on, drawn below those that the kernel gives to connections, if there is room.

    OpenRLHF and vLLM ask the kernel for a port and listen on it seconds later, when their process has started. Until
    then the kernel gives it to any connection, of which Ray makes hundreds, and the job ends with EADDRINUSE.
    """
    drawn = random.SystemRandom()  # a job's processes have the same seed
    below = _kernels_first()
    for _ in range(_TRIES if below > _FROM else 0):
        port = drawn.randrange(_FROM, below)
        if _is_free(port):
            return port
    with socket.socket() as any_port:
        any_port.bind(("", 0))
        return int(any_port.getsockname()[1])


def _kernels_first() -> int:
    """The lowest port that the kernel gives to connections; 0 where it does not say."""
    try:
        return int(_KERNELS_OWN.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _is_free(port: int) -> bool:
    with socket.socket() as listening:
        try:
            listening.bind(("", port))
        except OSError:
            return False
    return True
