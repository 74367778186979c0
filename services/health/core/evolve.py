"""What a fact, heard or said, changes in a node."""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from schemas.base import Envelope, fact_type
from schemas.fleet import (
    DrainAcknowledged,
    DrainCompleted,
    DrainLifted,
    DrainRequested,
    IncidentCleared,
    IncidentEscalated,
    IncidentOpened,
    NodeChanged,
    NodeDiscovered,
    NodeRetired,
    Severity,
)
from schemas.ids import fact_id
from schemas.runtime import ObservationReported
from schemas.workload import RequestOrdered
from services.health.core.view import Beat, Drain, DrainState, Incident, Node, Order, Rank

DrainFact = DrainRequested | DrainAcknowledged | DrainCompleted | DrainLifted
IncidentFact = IncidentOpened | IncidentEscalated | IncidentCleared


def evolve(node: Node, heard: Envelope, *, now: datetime) -> Node:
    """Return the node after a fact about it; ``now`` is the database's time of the turn.

    The outcome depends on which facts came, not on their order or number: of orders, reports and inventory's words
    the newest of each kind counts.
    """
    match heard.data:
        case RequestOrdered() as fact:
            return _ordered(node, fact, Rank(heard.version, heard.time))
        case ObservationReported() as fact:
            return replace(node, beat=Beat(fact.incarnation, fact.sequence, now)) if is_newer(fact, node.beat) else node
        case NodeDiscovered() | NodeChanged() as fact if heard.version > node.known_version:
            marks = {mark.drain: mark.effect for mark in fact.info.marks}
            return replace(node, known_version=heard.version, retired=False, marks=marks)
        case NodeRetired() if heard.version > node.known_version:
            return replace(node, known_version=heard.version, retired=True, marks={})
        case _:
            return node


def is_newer(fact: ObservationReported, beat: Beat | None) -> bool:
    """Say whether a report is newer than the newest: its number is higher, or another agent says hello.

    The number is drawn from the node's clock, which may have been put back before that agent started.
    """
    if beat is None or fact.sequence > beat.sequence:
        return True
    return fact.hello and fact.incarnation != beat.incarnation


def _ordered(node: Node, fact: RequestOrdered, rank: Rank) -> Node:
    known = node.orders.get(fact.order)
    if known is not None and known.rank >= rank:
        return node
    order = Order(rank, fact.owner, fact.reason, fact.session)
    return replace(node, orders={**node.orders, fact.order: order})


def said_drain(node: Node, fact: DrainFact, *, now: datetime) -> Node:
    """Return the node after this was said of its drain."""
    known = node.drain
    version = known.version + 1 if known else 1
    identity = fact_id(fact_type(type(fact)), fact.drain, version)
    match fact:
        case DrainRequested():
            drain = Drain(fact.drain, fact.effect, DrainState.REQUESTED, version, identity, now)
            return replace(node, drain=drain, drains=node.drains + (known is None))
        case DrainAcknowledged() | DrainCompleted():
            assert known is not None, fact
            done = isinstance(fact, DrainCompleted)
            state = DrainState.COMPLETED if done else DrainState.ACKNOWLEDGED
            return replace(node, drain=replace(known, state=state, version=version, since=now))
        case DrainLifted():
            assert known is not None, fact
            over = replace(known, state=DrainState.LIFTED, version=version, fact=identity, since=now)
            return replace(node, drain=None, lifted=(*node.lifted, over))
        case _:
            assert_never(fact)


def said_incident(node: Node, fact: IncidentFact) -> Node:
    """Return the node after this was said of its incident."""
    known = node.incident
    match fact:
        case IncidentOpened():
            incident = Incident(fact.incident, fact.severity, fact.since, 1)
            return replace(node, incident=incident, incidents=node.incidents + 1)
        case IncidentEscalated():
            assert known is not None, fact
            return replace(node, incident=replace(known, severity=Severity.LOST, version=known.version + 1))
        case IncidentCleared():
            assert known is not None, fact
            return replace(node, incident=None, cleared=(*node.cleared, replace(known, version=known.version + 1)))
        case _:
            assert_never(fact)
