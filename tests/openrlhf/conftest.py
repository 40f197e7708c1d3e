"""Apply the bridges of the CPU rehearsal before any test imports OpenRLHF."""

import os

from olr_cli.engines.openrlhf.bridges import bridge_process, environment

os.environ |= environment(trusts_code=True, device="cpu")
bridge_process()
