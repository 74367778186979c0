"""Health says what ails a node and what is taken out of service. Pure: nodes in, facts out."""

from services.health.core.decide import Said, decide, say_incident
from services.health.core.evolve import evolve
from services.health.core.silence import Fleet, judge
from services.health.core.view import Beat, Drain, DrainState, Incident, Node, Order, Policy, Rank, Verb

__all__ = [
    "Beat",
    "Drain",
    "DrainState",
    "Fleet",
    "Incident",
    "Node",
    "Order",
    "Policy",
    "Rank",
    "Said",
    "Verb",
    "decide",
    "evolve",
    "judge",
    "say_incident",
]
