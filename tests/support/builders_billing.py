"""Builders for billing: classes with a price, and grants as stretches of minutes."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from schemas.base import Envelope
from schemas.workload import GrantIssued, GrantReleased, GrantRevoked, RequestApplied
from tests.support.builders import a_grant, a_part, an_envelope, at, confirmed, released, revoked


def a_class(name: str = "h100", price: str = "2.00 USD") -> RequestApplied:
    """Return a class's declaration with the price of an hour of one device."""
    document: dict[str, Any] = {
        "apiVersion": "triplane/v1",
        "kind": "GpuClass",
        "metadata": {"name": name},
        "spec": {"match": {"model": f"Model {name}"}, "pricePerHour": price},
    }
    return RequestApplied(kind="GpuClass", tenant=None, name=name, document=document, applied_by="ops")


def a_price(
    name: str = "h100", price: str = "2.00 USD", *, generation: int = 1, minute: float = -60, scope: str = "fleet"
) -> Envelope:
    """Return a class's declaration on its way, applied at this minute after noon."""
    envelope = an_envelope(a_class(name, price), key=f"class_{name}", version=generation, scope=scope)
    return replace(envelope, time=at(minute * 60))


def said(
    grant: GrantIssued, *releases: GrantReleased, claims: bool = True, revocation: GrantRevoked | None = None
) -> list[Envelope]:
    """Return the facts of a grant in the order of their versions: issued, claimed, revoked, released."""
    claimed = [confirmed(grant, part, when=at_claim(grant)) for part in range(len(grant.parts))] if claims else []
    facts = [grant, *claimed, revocation or revoked(grant, when=releases[0].released_at), *releases]
    return [an_envelope(fact, key=grant.grant, version=version) for version, fact in enumerate(facts, 1)]


def at_claim(grant: GrantIssued) -> datetime:
    """Return when parts of a grant are claimed: 30 seconds after the issue."""
    return grant.issued_at + timedelta(seconds=30)


def a_stretch(
    name: str, first: float, last: float, *, devices: int = 1, gpu_class: str = "h100", node: str = "n1"
) -> list[Envelope]:
    """Return the facts of a grant that held devices of one node from a minute after noon to another."""
    grant = a_grant(name, a_part(node, devices), issued=at(first * 60)).model_copy(update={"gpu_class": gpu_class})
    return said(grant, released(grant, when=at(last * 60)))


def orders(facts: Sequence[Envelope]) -> list[list[Envelope]]:
    """Return ways in which a bus may deliver facts: as said, twice, reversed, twice and reversed."""
    return [list(facts), [*facts, *facts], list(reversed(facts)), [each for each in reversed(facts) for _ in range(2)]]
