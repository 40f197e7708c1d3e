"""What the local engine does with memory between steps."""

import ctypes
import subprocess
import sys

import pytest

PAGE_FAULTS = """
import ctypes, resource
from olr_cli.engines.local.loop import keep_freed_memory

libc, size = ctypes.CDLL(None), ctypes.c_size_t(20 << 20)
libc.malloc.restype = ctypes.c_void_p

def step():
    places = [ctypes.c_void_p(libc.malloc(size)) for _ in range(3)]
    for place in places:
        libc.memset(place, 1, size)
    for place in places:
        libc.free(place)

{first}
step(), step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(first=""):
    """Faults of a step that takes and frees 60 MiB, in a process of its own that began with `first`."""
    program = PAGE_FAULTS.format(first=first)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return int(ran.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library than glibc")
def test_memory_that_a_step_frees_serves_the_next_step_without_page_faults():
    assert page_faults("keep_freed_memory()") < 100
    assert page_faults() > 1000
