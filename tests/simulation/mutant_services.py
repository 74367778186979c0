"""Admission, dispatch and the inbox with one rule left out; see ``mutants``."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar
from uuid import UUID

from schemas.base import Envelope
from schemas.ids import JobId
from schemas.lifecycle import JobState
from schemas.workload import RunFailed, RunSucceeded
from services.admission.core import Job, QueueKey, View
from tests.simulation.admission import NOTHING, AdmissionDesk, Desks
from tests.simulation.dispatch import DispatchDesk, Runs
from tests.simulation.store import Turn

S = TypeVar("S")
Keys: TypeAlias = Collection[QueueKey]
Jobs: TypeAlias = Collection[JobId]
Wished: TypeAlias = Mapping[QueueKey, int]


class EndNotFinal(AdmissionDesk):
    """An end can be followed by another [C2]."""

    def load(self, turn: Turn[Desks], keys: Keys, jobs: Jobs, *, makes_room: bool, wished: Wished = NOTHING) -> View:
        view = super().load(turn, keys, jobs, makes_room=makes_room, wished=wished)
        open_ = {key: replace(job, state=JobState.ADMITTED) for key, job in view.jobs.items() if job.ended}
        return replace(view, jobs={**view.jobs, **open_})


class AnyAttemptCounts(AdmissionDesk):
    """The result of any attempt counts as that of the current one [C1]."""

    def workload(self, turn: Turn[Desks], batch: Sequence[Envelope]) -> None:
        jobs = turn.state.view.jobs
        super().workload(turn, [_as_current(envelope, jobs) for envelope in batch])


class ChargeEndsEarly(AdmissionDesk):
    """The charge ends with the attempt, not with the release [C4]."""

    def workload(self, turn: Turn[Desks], batch: Sequence[Envelope]) -> None:
        super().workload(turn, batch)
        view = turn.state.view
        charges = {
            key: replace(charge, over=charge.over or view.jobs[key[0]].ended) for key, charge in view.charges.items()
        }
        turn.state = replace(turn.state, view=replace(view, charges=charges))


class QuotaForgotten(AdmissionDesk):
    """What is charged is not looked at when the next is admitted."""

    def load(self, turn: Turn[Desks], keys: Keys, jobs: Jobs, *, makes_room: bool, wished: Wished = NOTHING) -> View:
        view = super().load(turn, keys, jobs, makes_room=makes_room, wished=wished)
        return replace(view, used={})


class NothingTwice(DispatchDesk):
    """Results are said once, whether anybody hears them or not."""

    def unanswered(self, turn: Turn[Runs]) -> list[UUID]:
        del turn
        return []

    def again(self, turn: Turn[Runs], batch: Sequence[Envelope]) -> None:
        del turn, batch


class JobsNotRepeated(AdmissionDesk):
    """What admission says of jobs is said once, whether anybody hears it or not."""

    def unanswered(self, turn: Turn[Desks]) -> list[UUID]:
        del turn
        return []

    def again(self, turn: Turn[Desks], batch: Sequence[Envelope]) -> None:
        del turn, batch


class WithdrawalForgotten(AdmissionDesk):
    """A wish to cancel that overtakes the wish for the job is forgotten."""

    def load(self, turn: Turn[Desks], keys: Keys, jobs: Jobs, *, makes_room: bool, wished: Wished = NOTHING) -> View:
        return replace(super().load(turn, keys, jobs, makes_room=makes_room, wished=wished), withdrawn={})


class AnybodyGoes(AdmissionDesk):
    """Whoever is admitted is ended for whoever waits, whatever their priorities."""

    def load(self, turn: Turn[Desks], keys: Keys, jobs: Jobs, *, makes_room: bool, wished: Wished = NOTHING) -> View:
        view, whole = super().load(turn, keys, jobs, makes_room=makes_room, wished=wished), turn.state.view
        beside = [job for job in whole.jobs.values() if job.state is JobState.ADMITTED and job.queue in view.queues]
        return replace(
            view,
            jobs={**view.jobs, **{job.id: replace(job, priority=-1) for job in beside}},
            charges={**view.charges, **{key: each for key, each in whole.charges.items() if each.queue in view.queues}},
            leaving={},
        )


class LeavingForgotten(AdmissionDesk):
    """What attempts that are over still keep is not counted before others are ended."""

    def load(self, turn: Turn[Desks], keys: Keys, jobs: Jobs, *, makes_room: bool, wished: Wished = NOTHING) -> View:
        return replace(super().load(turn, keys, jobs, makes_room=makes_room, wished=wished), leaving={})


class EarlierForgotten(AdmissionDesk):
    """Attempts before are not looked for when a job that waits is admitted."""

    def load(self, turn: Turn[Desks], keys: Keys, jobs: Jobs, *, makes_room: bool, wished: Wished = NOTHING) -> View:
        view = super().load(turn, keys, jobs, makes_room=makes_room, wished=wished)
        kept = {
            key: each for key, each in view.charges.items() if key[0] in jobs or key[1] == view.jobs[key[0]].attempt
        }
        return replace(view, charges=kept)


def _as_current(envelope: Envelope, jobs: Mapping[JobId, Job]) -> Envelope:
    fact = envelope.data
    if not isinstance(fact, RunSucceeded | RunFailed) or fact.job not in jobs:
        return envelope
    return replace(envelope, data=fact.model_copy(update={"attempt": jobs[fact.job].attempt}))
