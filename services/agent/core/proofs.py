"""Clear, busy or unknown: every proof must say clear, and unknown is never clear."""

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.reasons import Code, Layer, Reason, reason


@dataclass(frozen=True, slots=True)
class Look:
    """What one proof saw: who is there, and what could not be seen. Neither: clear."""

    busy: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def not_clear_for_start(looks: Iterable[Look]) -> Reason | None:
    """Return why nothing may start on the devices; None when every proof is clear."""
    whole = _together(looks)
    if not (whole.busy or whole.unknown):
        return None
    return _reason(Code.DEVICE_NOT_CLEAR, whole)


def not_sealed(looks: Iterable[Look]) -> Reason | None:
    """Return why there is no proof of release; None when every proof is clear."""
    whole = _together(looks)
    if whole.busy:
        return _reason(Code.STILL_RUNNING, whole)
    return _reason(Code.UNKNOWN, whole) if whole.unknown else None


def _together(looks: Iterable[Look]) -> Look:
    seen = list(looks)
    return Look(
        busy=tuple(what for look in seen for what in look.busy),
        unknown=tuple(what for look in seen for what in look.unknown),
    )


def _reason(code: Code, look: Look) -> Reason:
    words = [*look.busy, *(f"unknown: {what}" for what in look.unknown)]
    return reason(Layer.NODE, code, "; ".join(words), busy=len(look.busy), unknown=len(look.unknown))
