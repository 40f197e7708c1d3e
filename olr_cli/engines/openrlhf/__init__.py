"""GRPO on OpenRLHF: Ray, vLLM and DeepSpeed, from one GPU to many nodes.

Three processes take part:

    olr train        engine.py    writes what OpenRLHF reads, starts the job, follows metrics.jsonl, shows and logs it
    the job          job.py       bridges what the machine lacks, puts our classes in place, runs OpenRLHF
    the controller   trainer.py   OpenRLHF's PPOTrainer, a Ray actor: supervises every step's groups, stores records

Nothing of OpenRLHF is copied: some of its classes are subclassed (`trainer.py`, `experience_maker.py`, `actor.py`,
`vllm_actor.py`), its command line runs unmodified.
"""

import warnings

from olr_cli.packages import TESTED

OPENRLHF_VERSION = "0.11.2"
"""The OpenRLHF that the subclasses and bridges are written for."""

WRITTEN_FOR = {
    "openrlhf": OPENRLHF_VERSION,
    "vllm": "0.29.0",
    "ray": "2.55.0",
    "deepspeed": "0.19.6",
    **TESTED,
}
"""Versions, or the first parts of versions, that the engine was read against and tried with (requirements/)."""

# OpenRLHF needs a package that makes torch warn its users at every start.
warnings.filterwarnings("ignore", message="The pynvml package is deprecated")
