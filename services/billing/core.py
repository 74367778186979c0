"""What was used and what it costs: pure. Facts may come in any order and more than once; the result is the same."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from pydantic import ValidationError

from schemas.base import Envelope
from schemas.ids import DeviceId, GrantId, JobId, NodeId, TenantId, UsageId, derive
from schemas.ledger import UsageLine, UsageRated
from schemas.reasons import Code
from schemas.spec.gpuclass import GpuClass
from schemas.workload import GrantConfirmed, GrantIssued, GrantPart, GrantReleased, GrantRevoked, RequestApplied

PLATFORM_LOSS: Final = "platform-loss"  # pays for what was held and served nobody
HOUR_MICROSECONDS: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """What an hour of one device costs from a time on. ``generation`` counts the class's documents from 1."""

    gpu_class: str
    generation: int
    applied_at: datetime
    micros_per_hour: int
    currency: str


@dataclass(frozen=True, slots=True)
class Held:
    """Devices, and since when."""

    devices: tuple[DeviceId, ...]
    since: datetime


@dataclass(frozen=True, slots=True)
class Issue:
    """What only the grant's issue says."""

    queue: str
    gpu_class: str
    held: Held


@dataclass(frozen=True, slots=True)
class Revocation:
    """Why no start passes any more; ``lost``: the node was given up, and with it the attempt."""

    lost: bool
    revoked_at: datetime


@dataclass(frozen=True, slots=True)
class Release:
    """How the part ended. ``lost_at``: when it was put before a person, since its proof was overdue."""

    claimed: bool
    released_at: datetime
    lost_at: datetime | None = None


PartKey = tuple[GrantId, NodeId]
Span = tuple[datetime, datetime]
Heard = GrantIssued | GrantConfirmed | GrantRevoked | GrantReleased


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a grant, as far as facts about it were heard."""

    grant: GrantId
    node: NodeId
    job: JobId
    attempt: int
    tenant: TenantId
    issue: Issue | None = None
    claim: Held | None = None
    revocation: Revocation | None = None
    release: Release | None = None

    @property
    def key(self) -> PartKey:
        """Names the part."""
        return self.grant, self.node

    @property
    def whole(self) -> bool:
        """All that will ever be said about the part was heard: a claimed part is revoked before it is released.

        The release of a part that was revoked alone says that itself.
        """
        if self.issue is None or self.release is None:
            return False
        return not self.release.claimed or (self.claim is not None and self.revocation is not None)


@dataclass(frozen=True, slots=True)
class View:
    """What billing remembers: prices by class, in order of generation, and the parts that are not rated yet."""

    prices: Mapping[str, tuple[Price, ...]] = field(default_factory=dict)
    parts: Mapping[PartKey, Part] = field(default_factory=dict)


def decide(view: View) -> Iterator[UsageRated]:
    """Yield the usage of each part that is over and whose price is known, in the order of their keys."""
    for _, part in sorted(view.parts.items()):
        if part.issue is None or part.release is None or not part.whole:
            continue
        price = in_force(view.prices.get(part.issue.gpu_class, ()), part.issue.held.since)
        if price is not None:
            yield from _rated(part, part.issue, price)


def evolve(view: View, envelope: Envelope) -> View:
    """Return the view after a fact. What was heard before changes nothing. Raises ValueError for a bad document."""
    match envelope.data:
        case RequestApplied(kind="GpuClass") as fact:
            return _with_price(view, price_of(fact, envelope))
        case GrantIssued() | GrantConfirmed() | GrantRevoked() | GrantReleased() as fact:
            return replace(view, parts={**view.parts, **{part.key: _merged(view, part) for part in parts_of(fact)}})
        case _:
            return view


def price_of(fact: RequestApplied, envelope: Envelope) -> Price:
    """Return the price that a class's document declares. Raises ValueError when it is none."""
    try:
        micros, currency = GpuClass.model_validate(fact.document).spec.price()
    except ValidationError as error:
        raise ValueError(f"the document of class {fact.name} does not fit: {error.error_count()} faults") from error
    return Price(fact.name, envelope.version, envelope.time, micros, currency)


def parts_of(fact: Heard) -> list[Part]:
    """Return what a fact says about parts."""
    match fact:
        case GrantIssued():
            return [
                Part(fact.grant, part.node, fact.job, fact.attempt, fact.tenant, issue=_issue(fact, part))
                for part in fact.parts
            ]
        case GrantConfirmed():
            claim = Held(tuple(sorted(fact.devices)), fact.claimed_at)
            return [Part(fact.grant, fact.node, fact.job, fact.attempt, fact.tenant, claim=claim)]
        case GrantRevoked():
            revocation = Revocation(fact.reason.code is Code.NODE_LOST, fact.revoked_at)
            return [
                Part(fact.grant, node, fact.job, fact.attempt, fact.tenant, revocation=revocation)
                for node in fact.nodes
            ]
        case GrantReleased():
            release = Release(fact.claimed, fact.released_at, fact.lost_at)
            alone = Revocation(lost=False, revoked_at=fact.released_at) if fact.alone else None
            return [Part(fact.grant, fact.node, fact.job, fact.attempt, fact.tenant, revocation=alone, release=release)]


def in_force(prices: tuple[Price, ...], at: datetime) -> Price | None:
    """Return the newest price applied until then, or the first if all are newer; None while that is not certain.

    It is certain when no generation is missing up to the one that comes after it.
    """
    found: Price | None = None
    for expected, price in enumerate(prices, 1):
        if price.generation != expected:
            return None
        if found is not None and price.applied_at > at:
            return found
        found = price
    return found


def accounts(part: Part) -> dict[str, dict[DeviceId, Span]]:
    """Return who pays for which time of each device. The part must be whole.

    The platform pays for a part that never started, for a part of a lost node from its revocation on, and for one that
    was put before a person from then on.
    """
    assert part.release is not None, part
    held, release, revocation = intervals(part), part.release, part.revocation
    if not release.claimed:
        return {PLATFORM_LOSS: held}
    losses = [release.lost_at, revocation.revoked_at if revocation and revocation.lost else None]
    cut = min((loss for loss in losses if loss is not None), default=None)
    if cut is None:
        return {part.tenant: held}
    served = {device: (start, min(end, cut)) for device, (start, end) in held.items() if start < cut}
    lost = {device: (max(start, cut), end) for device, (start, end) in held.items() if cut < end}
    return {account: spans for account, spans in ((part.tenant, served), (PLATFORM_LOSS, lost)) if spans}


def intervals(part: Part) -> dict[DeviceId, Span]:
    """Return from when to when each device was held; never a negative time. The part must be whole.

    A part may start on other devices than it was issued: those count from the claim, the left ones until it.
    """
    assert part.issue is not None, part
    assert part.release is not None, part
    issued, end = part.issue.held, max(part.release.released_at, part.issue.held.since)
    if not part.release.claimed:
        return dict.fromkeys(issued.devices, (issued.since, end))
    assert part.claim is not None, part
    kept, started, claimed_at = set(issued.devices), set(part.claim.devices), min(part.claim.since, end)
    left = dict.fromkeys(kept - started, (issued.since, claimed_at))
    taken = dict.fromkeys(started - kept, (claimed_at, end))
    return dict.fromkeys(kept & started, (issued.since, end)) | left | taken


def amount_micros(micros_per_hour: int, duration: timedelta) -> int:
    """Return the cost of a duration in millionths of the currency, rounded half up."""
    microseconds = duration // timedelta(microseconds=1)
    return (micros_per_hour * microseconds * 2 + HOUR_MICROSECONDS) // (2 * HOUR_MICROSECONDS)


def _with_price(view: View, price: Price) -> View:
    known = {each.generation: each for each in view.prices.get(price.gpu_class, ())}
    known.setdefault(price.generation, price)
    return replace(view, prices={**view.prices, price.gpu_class: tuple(known[n] for n in sorted(known))})


def _merged(view: View, heard: Part) -> Part:
    known = view.parts.get(heard.key, heard)
    return replace(
        known,
        issue=known.issue or heard.issue,
        claim=known.claim or heard.claim,
        revocation=known.revocation or heard.revocation,
        release=known.release or heard.release,
    )


def _issue(fact: GrantIssued, part: GrantPart) -> Issue:
    devices = tuple(sorted(device.device for device in part.devices))
    return Issue(fact.queue, fact.gpu_class, Held(devices, fact.issued_at))


def _rated(part: Part, issue: Issue, price: Price) -> Iterator[UsageRated]:
    for account, spans in accounts(part).items():
        yield UsageRated(
            usage=UsageId(derive("usage", part.grant, part.node, account)),
            grant=part.grant,
            job=part.job,
            attempt=part.attempt,
            tenant=part.tenant,
            account=account,
            queue=issue.queue,
            gpu_class=issue.gpu_class,
            node=part.node,
            currency=price.currency,
            lines=tuple(_line(device, *span, price) for device, span in sorted(spans.items())),
        )


def _line(device: DeviceId, start: datetime, end: datetime, price: Price) -> UsageLine:
    return UsageLine(
        device=device,
        started_at=start,
        ended_at=end,
        price_micros_per_hour=price.micros_per_hour,
        amount_micros=amount_micros(price.micros_per_hour, end - start),
    )
