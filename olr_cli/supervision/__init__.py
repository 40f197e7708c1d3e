"""Which label counts: vote, history, criteria, effective label, reward. Knows nothing of models."""

from olr_cli.supervision.history import History, Past, Visit
from olr_cli.supervision.methods import Method, compose
from olr_cli.supervision.supervisor import SupervisedGroup, Supervisor, make_supervisor
from olr_cli.supervision.types import (
    SCHEMA_VERSION,
    LabelRecord,
    Rollout,
    RolloutGroup,
    RolloutRecord,
    arrow_schema,
)

__all__ = [
    "SCHEMA_VERSION",
    "History",
    "LabelRecord",
    "Method",
    "Past",
    "Rollout",
    "RolloutGroup",
    "RolloutRecord",
    "SupervisedGroup",
    "Supervisor",
    "Visit",
    "arrow_schema",
    "compose",
    "make_supervisor",
]
