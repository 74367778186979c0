"""Health says what ails a node and what is taken out of service. Pure: nodes in, facts out."""

from services.health.core.view import Beat, Drain, DrainState, Incident, Node, Order, Policy, Rank, Verb

__all__ = ["Beat", "Drain", "DrainState", "Incident", "Node", "Order", "Policy", "Rank", "Verb"]
