"""Which label counts: vote, history, criteria, effective label, reward. Knows nothing of models."""

from olr_cli.supervision.history import History, MajorityVote, Past
from olr_cli.supervision.methods import Method, compose
from olr_cli.supervision.supervisor import Supervisor, make_supervisor
from olr_cli.supervision.types import (
    SCHEMA_VERSION,
    Decided,
    LabelRecord,
    Rollout,
    RolloutGroup,
    RolloutRecord,
    Step,
)
from olr_cli.supervision.visit import Label, Visit, keep, no_label, replace_by_majority

__all__ = [
    "SCHEMA_VERSION",
    "Decided",
    "History",
    "Label",
    "LabelRecord",
    "MajorityVote",
    "Method",
    "Past",
    "Rollout",
    "RolloutGroup",
    "RolloutRecord",
    "Step",
    "Supervisor",
    "Visit",
    "compose",
    "keep",
    "make_supervisor",
    "no_label",
    "replace_by_majority",
]
