"""What health says of one node: the difference between what is wanted, what is, and what was said."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from schemas.fleet import (
    DrainAcknowledged,
    DrainCompleted,
    DrainLifted,
    DrainRequested,
    IncidentCleared,
    MarkEffect,
)
from schemas.ids import DrainId, derive
from services.health.core.evolve import DrainFact, IncidentFact, said_drain, said_incident
from services.health.core.view import Drain, DrainState, Node, Order, Policy, Verb

EFFECTS: tuple[tuple[Verb, MarkEffect], ...] = (("drain", MarkEffect.DRAIN), ("cordon", MarkEffect.NO_SCHEDULE))
"""What orders want, the stronger first."""


@dataclass(frozen=True, slots=True)
class Said:
    """A fact with its entity and the version that this has by it."""

    fact: DrainFact | IncidentFact
    key: str
    version: int


def decide(node: Node, policy: Policy, *, now: datetime) -> tuple[Node, tuple[Said, ...]]:
    """Return all that is to be said of a node's drain, and of its incident's end, with the node after it."""
    facts: list[Said] = []
    if node.incident is not None and (node.retired or _heard_since(node, node.incident.since)):
        node, fact = say_incident(node, _cleared(node, now))
        facts.append(fact)
    while (step := _next_step(node, policy, now)) is not None:
        version = node.drain.version + 1 if node.drain else 1
        node = said_drain(node, step, now=now)
        facts.append(Said(step, step.drain, version))
    return node, tuple(facts)


def say_incident(node: Node, fact: IncidentFact) -> tuple[Node, Said]:
    """Return the node after a fact about its incident, and the fact with its version."""
    version = node.incident.version + 1 if node.incident else 1
    return said_incident(node, fact), Said(fact, fact.incident, version)


def wanted(node: Node) -> tuple[MarkEffect, Order] | None:
    """Return the strongest effect of the orders that are newer than the newest ``uncordon``; None: in service."""
    lift = node.orders.get("uncordon")
    for verb, effect in EFFECTS:
        order = node.orders.get(verb)
        if order is not None and (lift is None or order.rank > lift.rank):
            return effect, order
    return None


def _next_step(node: Node, policy: Policy, now: datetime) -> DrainFact | None:
    asked, drain = wanted(node), node.drain
    if asked is not None and (drain is None or drain.effect is not asked[0]):
        return _requested(node, *asked, now)
    if drain is None:
        return None
    if asked is None:
        return _lifted(node, drain)
    if drain.state is DrainState.REQUESTED and (node.retired or node.marks.get(drain.id) is drain.effect):
        return DrainAcknowledged(drain=drain.id, cluster=node.cluster, node=node.id)
    if drain.state is DrainState.ACKNOWLEDGED and _is_empty(node, drain, policy, now):
        return DrainCompleted(drain=drain.id, cluster=node.cluster, node=node.id, completed_at=now)
    return None


def _is_empty(node: Node, drain: Drain, policy: Policy, now: datetime) -> bool:
    """A cordon waits for nobody; a drain until nothing is granted, with time to hear of what was just granted."""
    if drain.effect is MarkEffect.NO_SCHEDULE:
        return True
    return not node.granted and now - drain.since >= timedelta(seconds=policy.settle_seconds)


def _requested(node: Node, effect: MarkEffect, order: Order, now: datetime) -> DrainRequested:
    identity = node.drain.id if node.drain else DrainId(derive("drain", node.id, node.drains + 1))
    return DrainRequested(
        drain=identity,
        cluster=node.cluster,
        node=node.id,
        effect=effect,
        owner=order.owner,
        reason=order.reason,
        session=order.session,
        requested_at=now,
    )


def _lifted(node: Node, drain: Drain) -> DrainLifted:
    order = node.orders["uncordon"]
    return DrainLifted(drain=drain.id, cluster=node.cluster, node=node.id, lifted_by=order.owner, reason=order.reason)


def _heard_since(node: Node, moment: datetime) -> bool:
    return node.beat is not None and node.beat.at != moment


def _cleared(node: Node, now: datetime) -> IncidentCleared:
    assert node.incident is not None, node
    return IncidentCleared(incident=node.incident.id, cluster=node.cluster, node=node.id, cleared_at=now)
