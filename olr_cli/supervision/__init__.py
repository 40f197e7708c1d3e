"""Which label counts: vote, history, criteria, effective label, reward. Knows nothing of models."""

from olr_cli.supervision.history import History as History
from olr_cli.supervision.history import MajorityVote as MajorityVote
from olr_cli.supervision.history import Past as Past
from olr_cli.supervision.methods import Method as Method
from olr_cli.supervision.methods import compose as compose
from olr_cli.supervision.supervisor import Supervisor as Supervisor
from olr_cli.supervision.supervisor import make_supervisor as make_supervisor
from olr_cli.supervision.types import SCHEMA_VERSION as SCHEMA_VERSION
from olr_cli.supervision.types import Decided as Decided
from olr_cli.supervision.types import LabelRecord as LabelRecord
from olr_cli.supervision.types import Rollout as Rollout
from olr_cli.supervision.types import RolloutGroup as RolloutGroup
from olr_cli.supervision.types import RolloutRecord as RolloutRecord
from olr_cli.supervision.types import Step as Step
from olr_cli.supervision.visit import Label as Label
from olr_cli.supervision.visit import Visit as Visit
from olr_cli.supervision.visit import keep as keep
from olr_cli.supervision.visit import no_label as no_label
from olr_cli.supervision.visit import replace_by_majority as replace_by_majority
