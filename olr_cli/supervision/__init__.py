"""Which label counts: vote, history, criteria, effective label, reward. Knows nothing of models."""

from olr_cli.supervision.history import History, Past, Visit
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
    arrow_schema,
)

__all__ = [
    "SCHEMA_VERSION",
    "Decided",
    "History",
    "LabelRecord",
    "Method",
    "Past",
    "Rollout",
    "RolloutGroup",
    "RolloutRecord",
    "Step",
    "Supervisor",
    "Visit",
    "arrow_schema",
    "compose",
    "make_supervisor",
]
