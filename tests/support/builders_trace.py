"""A job's life as facts with their causes: it waits for quota, is drained once, and succeeds on its second try."""

from collections import Counter
from typing import NamedTuple
from uuid import UUID

from schemas.base import Envelope, Event, fact_type
from schemas.ids import fact_id, run_name
from schemas.reasons import Code
from schemas.workload import (
    GrantIssued,
    JobFinished,
    RequestSubmitted,
    RunAccepted,
    RunLaunched,
    RunSucceeded,
)
from tests.support.builders import (
    ACME,
    DEMO,
    a_grant,
    a_grant_id,
    a_job_id,
    a_part,
    a_submission,
    at,
    released,
    revoked,
    succeeded,
)
from tests.support.builders_gateway import admitted, evicted, finished, held, queued, rated, requeued, reserved, started

JOB = a_job_id()


class Said(NamedTuple):
    """One fact of a life: seconds after noon, by whom, about what, the fact, and the kind of fact that it answers."""

    seconds: float
    service: str
    key: str
    fact: Event
    answers: type[Event] | None = None


def a_life() -> list[Envelope]:
    """Return all that is said of the job, in order."""
    return told([*_first_attempt(), *_second_attempt()])


def told(facts: list[Said]) -> list[Envelope]:
    """Return facts in their envelopes, each with its version and the id of the last fact that it answers."""
    versions: Counter[str] = Counter()
    latest: dict[type[Event], UUID] = {}
    found = []
    for seconds, service, key, fact, answers in facts:
        versions[key] += 1
        kind = fact_type(type(fact))
        identity = latest[type(fact)] = fact_id(kind, key, versions[key])
        cause = latest[answers] if answers else None
        found.append(Envelope(identity, kind, service, at(seconds), ACME, key, versions[key], fact, cause))
    return found


def launched(attempt: int) -> RunLaunched:
    """Return dispatch's first word of a run."""
    run, grant = run_name(JOB, attempt), a_grant_id(attempt=attempt)
    return RunLaunched(run=run, grant=grant, epoch=attempt, job=JOB, attempt=attempt, tenant=ACME, cluster=DEMO)


def accepted(attempt: int) -> RunAccepted:
    """Return the destination's acknowledgement."""
    run, grant = run_name(JOB, attempt), a_grant_id(attempt=attempt)
    return RunAccepted(run=run, grant=grant, epoch=attempt, job=JOB, attempt=attempt, tenant=ACME)


def _first_attempt() -> list[Said]:
    run, grant = run_name(JOB, 1), a_grant("train", a_part("n1", 2))
    return [
        Said(0.000, "gateway", JOB, a_submission()),
        Said(0.012, "admission", JOB, queued(), RequestSubmitted),
        Said(0.012, "admission", JOB, held(), RequestSubmitted),
        Said(10.012, "admission", JOB, held()),
        Said(30.500, "admission", JOB, reserved(devices=2)),
        Said(30.500, "admission", JOB, admitted()),
        Said(30.600, "placement", grant.grant, grant),
        Said(30.608, "dispatch", run, launched(1), GrantIssued),
        Said(30.700, "dispatch", run, accepted(1)),
        Said(31.050, "dispatch", run, started(when=at(31.04))),
        Said(40.000, "placement", grant.grant, revoked(grant, Code.DRAINED)),
        Said(40.020, "admission", JOB, evicted(), None),
        Said(40.020, "admission", JOB, requeued(), None),
        Said(45.000, "placement", grant.grant, released(grant)),
        Said(50.100, "billing", "usage_1", rated("acme")),
    ]


def _second_attempt() -> list[Said]:
    run, grant = run_name(JOB, 2), a_grant("train", a_part("n2", 2), attempt=2, epoch=2)
    return [
        Said(51.000, "admission", JOB, reserved(devices=2, attempt=2)),
        Said(51.000, "admission", JOB, admitted(attempt=2)),
        Said(51.100, "placement", grant.grant, grant),
        Said(51.110, "dispatch", run, launched(2), GrantIssued),
        Said(51.200, "dispatch", run, accepted(2)),
        Said(51.500, "dispatch", run, started(attempt=2, when=at(51.4))),
        Said(90.000, "dispatch", run, succeeded(attempt=2)),
        Said(90.020, "admission", JOB, finished(attempt=2), RunSucceeded),
        Said(90.030, "placement", grant.grant, revoked(grant), JobFinished),
        Said(90.500, "placement", grant.grant, released(grant)),
        Said(95.600, "billing", "usage_2", rated("acme", usage="usage_2").model_copy(update={"attempt": 2})),
    ]
