"""Users, with the gateway that speaks for them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Final
from uuid import UUID

from schemas.base import Envelope
from schemas.ids import JobId
from schemas.workload import JobCancelled, JobFinished, JobRejected, RequestSubmitted
from tests.simulation.ground import Ground
from tests.simulation.host import Host, listen
from tests.simulation.nodes import APART_KEY, CODE_KEY, DEAF_KEY, OPEN_KEY, SECONDS_KEY, START_KEY
from tests.simulation.store import Store, Turn
from tests.support.builders import ACME, a_demand, a_queue, a_submission, a_withdrawal, some_work

ENDS: Final = JobFinished | JobCancelled | JobRejected
SWEEP_SECONDS: Final = 20.0
STALE_SECONDS: Final = 10
ENDLESS: Final = "1000000"
RECOVERIES: Final = (None, 10, 60)  # by turns: what no dice choose lets seeds tell their stories as before
CLASSES: Final = ("h100", "a100")


@dataclass(frozen=True, slots=True)
class Crowd:
    """How users behave: seconds between two jobs, shapes (replicas, devices of each), seconds that they run."""

    pauses: tuple[float, ...]
    shapes: tuple[tuple[int, int], ...]
    seconds: tuple[str, ...]
    priorities: tuple[int, ...]


ORDINARY: Final = Crowd(
    pauses=(0.1, 1.0, 3.0, 6.0, 12.0),
    shapes=((1, 1), (1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (3, 1), (3, 2), (2, 4), (2, 3), (2, 4), (1, 5), (4, 4)),
    seconds=("0", "1", "5", "20", "60", ENDLESS),
    priorities=(0, 0, 10),
)
CROWDED: Final = Crowd(
    pauses=(0.1, 0.4, 1.5),
    shapes=((1, 1), (1, 2), (1, 4), (2, 2)),
    seconds=("0", "1", "5"),
    priorities=(0, 5, 10, 20),
)
"""Many want the same devices, for a short while: races come often."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A job that was wished for, and what the gateway has heard of it."""

    name: str
    submitted: UUID
    endless: bool = False
    withdrawn: UUID | None = None
    heard: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Wishes:
    """The gateway's memory."""

    jobs: dict[JobId, Wish] = field(default_factory=dict)
    queues: dict[str, int] = field(default_factory=dict)


class Gateway(Host[Wishes]):
    """Says wishes until somebody was heard on them."""

    def __init__(self, store: Store[Wishes], ground: Ground) -> None:
        super().__init__(store, ground)
        self._names = 0
        self.sweep(self._unanswered, SWEEP_SECONDS)
        listen([self], "gateway-workload", [self._heard], only="workload.job.")

    def declare(self, queue: str, *, strict: bool, preempts: bool, quota: dict[str, int]) -> None:
        """Declare a queue."""

        def work(turn: Turn[Wishes]) -> None:
            version = turn.state.queues.get(queue, 0) + 1
            fact = a_queue(queue, tenant=ACME, strict=strict, preempts=preempts, **quota)
            turn.emit(fact, scope=ACME, key=f"queue_{queue}", version=version)
            turn.state = replace(turn.state, queues={**turn.state.queues, queue: version})

        self.survive(lambda: self.turn(work))

    def submit(self, dice: Random, crowd: Crowd) -> None:
        """Wish for a job of some shape."""
        self._names += 1
        name = f"j{self._names}"

        def work(turn: Turn[Wishes]) -> None:
            fact = _a_job(name, dice, crowd)
            identity = turn.emit(fact, scope=ACME, key=fact.job, version=1)
            wish = Wish(name, identity, endless=fact.work.env[SECONDS_KEY] == ENDLESS)
            turn.state = replace(turn.state, jobs={**turn.state.jobs, fact.job: wish})

        self.survive(lambda: self.turn(work))

    def withdraw(self, dice: Random) -> None:
        """Wish a job away that has not ended yet."""
        open_ = [job for job, wish in self.store.state.jobs.items() if not wish.ended and wish.withdrawn is None]
        if open_:
            self.withdraw_job(dice.choice(open_))

    def withdraw_job(self, job: JobId) -> None:
        """Wish away a job, unless it has ended or was wished away before."""
        wish = self.store.state.jobs[job]
        if not wish.ended and wish.withdrawn is None:
            self.survive(lambda: self.turn(lambda turn: self._withdraw(turn, job)))

    def withdraw_endless(self) -> None:
        """Wish away what would never end by itself."""
        for job, wish in self.store.state.jobs.items():
            if wish.endless and not wish.ended and wish.withdrawn is None:
                self.survive(partial(self.turn, partial(self._withdraw, job=job)))

    def _withdraw(self, turn: Turn[Wishes], job: JobId) -> None:
        wish = turn.state.jobs[job]
        identity = turn.emit(a_withdrawal(wish.name), scope=ACME, key=job, version=2)
        turn.state = replace(turn.state, jobs={**turn.state.jobs, job: replace(wish, withdrawn=identity)})

    def _heard(self, turn: Turn[Wishes], batch: Sequence[Envelope]) -> None:
        jobs = dict(turn.state.jobs)
        for envelope in batch:
            job = getattr(envelope.data, "job", None)
            if job in jobs:
                ended = jobs[job].ended or isinstance(envelope.data, ENDS)
                jobs[job] = replace(jobs[job], heard=True, ended=ended)
        turn.state = replace(turn.state, jobs=jobs)

    def _unanswered(self, turn: Turn[Wishes]) -> list[UUID]:
        wishes = turn.state.jobs.values()
        unheard = [wish.submitted for wish in wishes if not wish.heard]
        return unheard + [wish.withdrawn for wish in wishes if wish.withdrawn is not None and not wish.ended]


def _a_job(name: str, dice: Random, crowd: Crowd) -> RequestSubmitted:
    """Return a gang of some shape: most end, some fail, some hang, some ask for what there never will be."""
    replicas, each = dice.choice(crowd.shapes)
    asked = dice.choice(((), (), CLASSES[:1], tuple(reversed(CLASSES))))
    level = dice.choice((None, None, None, "rack"))
    demand = a_demand(
        each,
        replicas=replicas,
        classes=tuple(asked),
        topology_level=level,
        topology_required=level is not None and dice.random() < 0.5,
        cpu_milli_per_replica=dice.choice((0, 1_000)),
        recovery_seconds=RECOVERIES[int(name[1:]) % len(RECOVERIES)],
    )
    env = {
        SECONDS_KEY: dice.choice(crowd.seconds),
        START_KEY: dice.choice(("0", "0", "2", "10")),
        APART_KEY: dice.choice(("0", "2", "6", "20")) if replicas > 1 else "0",
        OPEN_KEY: dice.choice(("0", "0", "0", "1", "6", "15")),
    }
    env |= {CODE_KEY: "1"} if dice.random() < 0.2 else {}
    env |= {DEAF_KEY: "1"} if dice.random() < 0.1 else {}
    limit = dice.choice((None, None, 10))
    return a_submission(
        name,
        queue=dice.choice(("main", "main", "side", "strict")),
        priority=dice.choice(crowd.priorities),
        retries=dice.choice((0, 0, 2)),
        demand=demand,
        work=some_work(env=env, grace_seconds=dice.choice((0, 2, 5)), time_limit_seconds=limit),
    )
