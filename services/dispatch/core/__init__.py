"""Dispatch brings grants to destinations and says how runs go. Pure: views in, facts out."""

from services.dispatch.core.decide import decide
from services.dispatch.core.evolve import evolve, is_news
from services.dispatch.core.plan import Plan, plan
from services.dispatch.core.view import Part, PartState, Run, Sighting, View

__all__ = ["Part", "PartState", "Plan", "Run", "Sighting", "View", "decide", "evolve", "is_news", "plan"]
