"""GRPO on OpenRLHF: Ray, vLLM and DeepSpeed, from one GPU to many nodes.

Three processes take part:

    olr train        engine.py    writes OpenRLHF's input, starts the job, follows metrics.jsonl, shows and logs it
    the job          job.py       bridges gaps of the machine, puts our classes in place, runs OpenRLHF
    the controller   trainer.py   OpenRLHF's PPOTrainer, a Ray actor: supervises every step's groups, stores records

No code of OpenRLHF is copied. Some of its classes are subclassed (`trainer.py`, `experience_maker.py`, `actor.py`,
`vllm_actor.py`), and its command line runs unmodified.
"""

import warnings

from olr_cli.packages import TESTED

OPENRLHF_VERSION = "0.11.2"
"""The version of OpenRLHF for which the subclasses and bridges are written."""

WRITTEN_FOR = {
    "openrlhf": OPENRLHF_VERSION,
    "vllm": "0.29.0",
    "ray": "2.55.0",
    "deepspeed": "0.19.6",
    **TESTED,
}
"""Versions, or the first parts of versions, with which the engine was written and tried (requirements/)."""

# OpenRLHF needs the package pynvml, and torch warns about it at every start. The user cannot do anything about it.
warnings.filterwarnings("ignore", message="The pynvml package is deprecated")
