"""Which functions of the user's own may run: those that a command names, itself or in a recipe or benchmark file.

What a run or an evaluation has stored may be somebody else's. A function that is named there alone is refused: it could
be any function that is installed, and it would be called with stored responses. So is code that comes with a model.
"""

from __future__ import annotations

from olr_cli.errors import UserError, shortened

_NAMED: set[str] = set()
"""As ``package.module:function``, and `_TRUST`, in this process."""
_TRUST = "model.trust_remote_code"


def name_function(extractor: str | None) -> None:
    """The user names an extractor, which may be a function; None names nothing."""
    if extractor is not None:
        _NAMED.add(extractor)


def name_trust() -> None:
    """The user trusts code that comes with a recipe's model."""
    _NAMED.add(_TRUST)


def require_named_trust(trusts: bool) -> None:
    """Make sure that the user, and not only a stored recipe, trusts code that comes with the model."""
    if trusts and _TRUST not in _NAMED:
        raise UserError(
            f"{_TRUST}: only the stored recipe trusts code that comes with the model; if you trust it too, add"
            f" --set {_TRUST}=true"
        )


def is_function(extractor: str | None) -> bool:
    """Whether an extractor is a function, not one of olr's own or a pattern."""
    kind, colon, _ = (extractor or "").partition(":")
    return bool(colon) and kind not in ("regex", "after", "tag")


def require_named(place: str, option: str) -> None:
    """Make sure that the user has named a function.

    Args:
        place: the function, ``package.module:function``.
        option: what the user calls the setting, for errors.
    """
    if place not in _NAMED:
        again = "--extractor" if option == "--extractor" else "--set data.extractor="
        raise UserError(
            f"{option}: a stored file names the function {shortened(place)}, which runs only if you name it too; if you"
            f" trust it, add {again}{'' if again.endswith('=') else ' '}{shortened(place)}"
        )
