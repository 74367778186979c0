"""Admission decides when an attempt may start and how a job ends. Pure: views in, facts out."""

from services.admission.core.decide import decide, overdue
from services.admission.core.evolve import evolve
from services.admission.core.quota import admit
from services.admission.core.view import Account, Charge, Job, Policy, Queue, QueueKey, View

__all__ = [
    "Account",
    "Charge",
    "Job",
    "Policy",
    "Queue",
    "QueueKey",
    "View",
    "admit",
    "decide",
    "evolve",
    "overdue",
]
