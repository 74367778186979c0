"""What placement said of a grant and may have to say again, and which of its waits are over; see ``ledger``."""

from datetime import datetime, timedelta
from uuid import UUID

from schemas.base import fact_type
from schemas.ids import fact_id
from schemas.lifecycle import PartState
from schemas.workload import GrantIssued, GrantReleased, GrantRevoked
from services.placement.core.grant import Grant, Part


def said_of_ends(grant: Grant) -> list[UUID]:
    """Return what was said of a grant's revocation and of its releases."""
    if grant.revocation is None:
        return []
    revoked = fact_id(fact_type(GrantRevoked), grant.id, grant.revocation)
    over = [part for part in grant.parts if not part.live]
    return [revoked, *(fact_id(fact_type(GrantReleased), grant.id, part.version) for part in over)]


def is_late(grant: Grant, now: datetime) -> bool:
    """Whether a start is past its deadline."""
    return grant.revoked_at is None and grant.start_deadline < now


def is_stuck(grant: Grant, part: Part, now: datetime, seconds: int) -> bool:
    """Whether a part's proof is overdue."""
    limit, since = timedelta(seconds=seconds + grant.work.grace_seconds), part.narrowed_at or grant.revoked_at
    return since is not None and since < now - limit


def unanswered(grant: Grant, *, run_over: bool) -> list[UUID]:
    """Return what is to be said again of a grant that is not over for all who wait for it."""
    issued = fact_id(fact_type(GrantIssued), grant.id, 1)
    if grant.revocation is None:
        return [issued] if any(part.state is PartState.ISSUED for part in grant.parts) else []
    return said_of_ends(grant)[:1] if run_over else [issued, *said_of_ends(grant)]
