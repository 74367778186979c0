"""A part that ended well while others go on: it alone is revoked, and its devices wait for their proof (R13)."""

from dataclasses import replace
from datetime import datetime

from schemas.lifecycle import PartState
from schemas.runtime import ObservationNoticed, RunEvent
from schemas.workload import ExitRecord, GrantNarrowed
from services.placement.core.grant import Grant, Part, Step, say


def narrow(grant: Grant, notice: ObservationNoticed, *, now: datetime) -> Step:
    """Revoke one part alone, for its node says that all ranks there ended well, while other parts go on (R13).

    It is Claimed -> Revoking, as in a revocation, and needs the same proof. What failed, what is not the claimed
    instance, and the last part that goes on change nothing: they end with the attempt.
    """
    part, record = grant.part(notice.node), notice.exit
    if part is None or record is None or not _is_its_end(grant, part, notice) or not record.succeeded:
        return Step(grant)
    if not any(other.goes_on for other in grant.parts if other.node != part.node):
        return Step(grant)
    return _narrowed(grant, part, record, now)


def _is_its_end(grant: Grant, part: Part, notice: ObservationNoticed) -> bool:
    claimed = (PartState.CLAIMED, grant.epoch, part.instance, part.boot)
    ended = notice.event is RunEvent.ENDED
    return ended and claimed == (part.state, notice.epoch, notice.instance, notice.boot)


def _narrowed(grant: Grant, part: Part, record: ExitRecord, now: datetime) -> Step:
    over = replace(part, state=PartState.REVOKING, revocation=grant.version + 1, narrowed_at=now, exit=record)
    fact = GrantNarrowed(
        grant=grant.id,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        tenant=grant.tenant,
        node=part.node,
        devices=part.device_ids,
        exit=record,
        narrowed_at=now,
    )
    return say(grant.with_part(over), fact, part.node)
