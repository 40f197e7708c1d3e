"""Decide which label counts: vote, history, criteria, effective label, reward. No model is loaded here."""

from olr_cli.supervision.columns import (
    ROLLOUT_COLUMNS as ROLLOUT_COLUMNS,
    ColumnSupervisor as ColumnSupervisor,
    decides_in_columns as decides_in_columns,
)
from olr_cli.supervision.history import History as History, Past as Past
from olr_cli.supervision.methods import Method as Method, compose as compose
from olr_cli.supervision.metrics import step_metrics as step_metrics
from olr_cli.supervision.selection import keep_fraction as keep_fraction
from olr_cli.supervision.supervisor import (
    Supervisor as Supervisor,
    make_supervisor as make_supervisor,
)
from olr_cli.supervision.types import (
    SCHEMA_VERSION as SCHEMA_VERSION,
    Decided as Decided,
    LabelRecord as LabelRecord,
    Rollout as Rollout,
    RolloutGroup as RolloutGroup,
    RolloutRecord as RolloutRecord,
    Step as Step,
)
from olr_cli.supervision.visit import (
    Label as Label,
    Visit as Visit,
    keep as keep,
    no_label as no_label,
    replace_by_majority as replace_by_majority,
)
