"""Shared by all tests: one thread, no network, no deadlines that a busy machine would miss."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("NO_COLOR", "1")

settings.register_profile("olr", deadline=None)
settings.load_profile("olr")
