"""Label rules as a recipe can name them: the paper's rule, its ablations, and one of another kind.

olr replay RUN --set method.name=examples/label_rules.py:cautious     # what it would have decided, in seconds
olr train laptop/quickstart --set method.name=examples/label_rules.py:cautious
"""

from olr_cli.api import Label, Visit, keep, replace_by_majority


def olr(visit: Visit, delta: float = 0.05, T: int = 5) -> Label:
    """The paper's rule (Eq. effective_label)."""
    if visit.number > T and visit.slope > delta and visit.is_consistent:
        return replace_by_majority(visit)
    return keep(visit)


def without_slope(visit: Visit, T: int = 5) -> Label:
    """The historical majority, whatever its pass rate does."""
    if visit.number > T and visit.is_consistent:
        return replace_by_majority(visit)
    return keep(visit)


def without_consistency(visit: Visit, delta: float = 0.05, T: int = 5) -> Label:
    """Any majority, once the pass rate rises."""
    is_rising = visit.number > T and visit.slope > delta
    if is_rising and visit.majority is not None:
        return replace_by_majority(visit)
    return keep(visit)


def cautious(visit: Visit, least: int = 6) -> Label:
    """A majority of at least so many rollouts; a prompt whose label nobody gives teaches nothing."""
    if visit.number > 3 and visit.majority_count >= least:
        return replace_by_majority(visit)
    return keep(visit)


def margin(visit: Visit, lead: float = 0.25, T: int = 5) -> Label:
    """A majority that leads the label that it replaces by at least this share of the rollouts."""
    if visit.number > T and visit.majority is not None:
        ahead = visit.majority_count - (visit.label_count or 0)
        if ahead >= lead * visit.rollouts:
            return replace_by_majority(visit)
    return keep(visit)
