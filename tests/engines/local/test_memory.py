"""What the local engine does with memory between steps."""

import ctypes
import inspect
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from olr_cli.engines.local import engine, room

PAGE_FAULTS = """
import ctypes, resource

{function}
libc, size = ctypes.CDLL(None), ctypes.c_size_t(20 << 20)
libc.malloc.restype = ctypes.c_void_p

def step():
    places = [ctypes.c_void_p(libc.malloc(size)) for _ in range(3)]
    for place in places:
        libc.memset(place, 1, size)
    for place in places:
        libc.free(place)

def page_faults():
    step(), step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(page_faults())
keep_freed_memory()
print(page_faults())
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library than glibc"
)
def test_memory_that_a_step_frees_serves_the_next_step_without_page_faults():
    names = ("_M_MMAP_THRESHOLD", "_M_TRIM_THRESHOLD", "_LARGEST_KEPT")
    constants = [f"{name} = {getattr(engine, name)}\n" for name in names]
    function = "".join([*constants, inspect.getsource(engine.keep_freed_memory)])
    # A process without torch starts at once
    program = PAGE_FAULTS.replace("{function}", function)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    without, kept = map(int, ran.stdout.split())
    assert without > 1000 and kept < 100


@pytest.mark.parametrize(("share", "free"), [(1.0, 52), (0.25, 15), (0.05, 0)])
def test_of_a_gpus_memory_a_run_takes_no_more_than_its_share(share, free, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (50, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 12)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 10)
    monkeypatch.setattr(room, "share", share)
    assert room.free_memory(SimpleNamespace(device="cuda")) == free
