"""Where records of grants differ. Owner: placement."""

from datetime import datetime
from enum import StrEnum

from schemas.base import Event
from schemas.ids import DriftId, NodeId


class DriftKind(StrEnum):
    """What two records tell differently. The ledger is placement's; the other is named first."""

    LEASE_MISSING = "LeaseMissing"
    LEASE_OF_NOBODY = "LeaseOfNobody"
    CHARGE_WITHOUT_GRANT = "ChargeWithoutGrant"
    GRANT_WITHOUT_CHARGE = "GrantWithoutCharge"
    RUN_WITHOUT_GRANT = "RunWithoutGrant"
    GRANT_WITHOUT_RUN = "GrantWithoutRun"
    HOLDER_OF_ENDED_GRANT = "HolderOfEndedGrant"
    HOLDER_OF_UNKNOWN_GRANT = "HolderOfUnknownGrant"
    CLAIM_WITHOUT_HOLDER = "ClaimWithoutHolder"


class DriftFound(Event):
    """Two records of one thing differ for longer than facts are on their way. Key of drift facts: drift.

    ``subject`` is what they differ about: a device, a grant, or an attempt's run name. ``heals``: what mends it by
    itself is under way; else a person must look.
    """

    drift: DriftId
    kind: DriftKind
    subject: str
    node: NodeId | None = None
    heals: bool
    since: datetime
    found_at: datetime


class DriftCleared(Event):
    """The records agree again."""

    drift: DriftId
    kind: DriftKind
    subject: str
    cleared_at: datetime
