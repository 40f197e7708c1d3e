"""Ports to listen on that the kernel does not give to another connection meanwhile."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_LOWEST_PORT = 20_000
"""Ray's worker processes listen on 10002 to 19999, so begin above these."""

_KERNEL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The file with the first and the last port that the kernel gives to connections."""
_TRIES = 100


def free_port() -> int:
    """Return a free TCP port, if possible one that the kernel does not give to connections.

    Such a port is at least 20000 and lies below the range from which the kernel chooses. If none is found, the kernel
    chooses the port.
    """
    # OpenRLHF and vLLM would ask the kernel for a port, and listen on it seconds later, when their process has started.
    # Meanwhile the kernel might give the port to one of Ray's hundreds of connections, and the job would end with
    # EADDRINUSE.
    # Not seeded: all processes of a job have one seed and would draw one port.
    generator = random.SystemRandom()
    limit = _first_kernel_port()
    for _ in range(_TRIES if limit > _LOWEST_PORT else 0):
        port = generator.randrange(_LOWEST_PORT, limit)
        if _is_free(port):
            return port
    # The kernel's range leaves no room below it, so take the kernel's choice with its risk.
    with socket.socket() as any_port:
        any_port.bind(("", 0))
        return int(any_port.getsockname()[1])


def _first_kernel_port() -> int:
    """Return the lowest port that the kernel chooses for outgoing connections, or 0 if it is unknown."""
    try:
        return int(_KERNEL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _is_free(port: int) -> bool:
    """Return whether no process listens on a TCP port."""
    with socket.socket() as listening:
        try:
            listening.bind(("", port))
        except OSError:
            return False
    return True
