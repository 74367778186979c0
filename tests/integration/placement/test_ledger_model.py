"""The ledger of the simulation and the one in Postgres: whatever comes, they answer the same and hold the same rows."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

import pytest

from libs.config import Infrastructure
from libs.leases import Lease
from libs.pg.pool import open_pool
from libs.service import Service
from schemas.base import Envelope, Event
from schemas.calls import Claim, Hello, Seal, SealAnswer
from schemas.fleet import Mark, MarkEffect, NodeFreshened, NodeRetired, NodeWentStale
from schemas.ids import DeviceId, DrainId, GrantId, NodeId, cluster_id, move_id, node_id
from schemas.lifecycle import PartState
from schemas.moves import TransferDrop, TransferHold
from schemas.runtime import Holder, ObservationNoticed, ObservationReported, RunEvent, UnmanagedUse
from schemas.workload import Demand, JobCancelled, RunSucceeded
from services.placement.core.decide import Decision
from services.placement.core.grant import Grant, Part
from services.placement.settings import Settings
from tests.simulation.timeline import START
from tests.support.builders import ACME, a_demand, an_envelope, an_exit
from tests.support.ledger_rows import plain, rows_of_memory, rows_of_postgres
from tests.support.ledger_twins import CLOCK, PATH, MemoryTwin, PostgresTwin, Twin
from tests.support.placements import CLUSTER, a_cluster, a_node_of, a_report, admitted, cancelled, devices_of, owned_by
from tests.support.servers import Servers

NODES: Final = {"n1": 4, "n2": 4, "n3": 2}
SETTINGS: Final = Settings(
    start_deadline_seconds=60, suspect_after_seconds=30, node_lost_after_seconds=90, cluster_lost_after_seconds=120
)
COMMANDS: Final = 60
OTHER: Final = cluster_id("other")
Asked = Callable[[Twin], Awaitable[object]]


@dataclass
class Pair:
    """Both ledgers, the moment, and the decisions that each has not carried out yet."""

    memory: MemoryTwin
    postgres: PostgresTwin
    dice: Random
    now: datetime = START
    decisions: list[tuple[Decision, Decision]] = field(default_factory=list)
    asked: list[Seal] = field(default_factory=list)
    versions: int = 1

    async def both(self, what: str, ask: Asked) -> None:
        """Ask both and compare what they answer, say, say again, and free."""
        answers = [plain(await ask(twin)) for twin in (self.memory, self.postgres)]
        assert answers[0] == answers[1], what
        assert _said(self.memory) == _said(self.postgres), what

    async def compare_rows(self, what: str) -> None:
        """Compare all that they hold."""
        async with self.postgres.turn() as turn:
            rows = await rows_of_postgres(turn.connection)
        mine = rows_of_memory(self.memory.ledger)
        for table, held in rows.items():
            assert _differing(mine[table], held) == {}, f"{table} after {what}: (memory, Postgres)"


@pytest.mark.parametrize("seed", range(8))
async def test_both_ledgers_answer_the_same_and_hold_the_same(
    surroundings: Infrastructure, servers: Servers, seed: int
) -> None:
    connection = await servers.foundation.postgres.connect()
    await connection.execute(CLOCK)
    await connection.close()
    pool = await open_pool(surroundings.postgres_dsn.get_secret_value(), schema=PATH)
    pair = Pair(
        MemoryTwin(SETTINGS, lambda: pair.now),
        PostgresTwin(pool, SETTINGS, lambda: pair.now, Service("placement", surroundings)),
        Random(f"ledger/{seed}"),
    )
    try:
        await _found(pair)
        for number in range(COMMANDS):
            command = pair.dice.choice(COMMANDS_OF)
            await command(pair)
            await pair.compare_rows(f"{number}: {command.__name__}")
    finally:
        await pool.close()


async def _found(pair: Pair) -> None:
    nodes = [a_node_of(name, count) for name, count in NODES.items()]
    await pair.both("the fleet", lambda twin: twin.hear("fleet", [a_cluster(), *nodes]))


async def _time_passes(pair: Pair) -> None:
    pair.now += timedelta(seconds=pair.dice.choice((1, 5, 13, 40, 100)))


async def _admit(pair: Pair) -> None:
    dice = pair.dice
    demand: Demand = a_demand(
        dice.choice((1, 1, 2, 4)), replicas=dice.choice((1, 1, 2)), recovery_seconds=dice.choice((None, 50, 200))
    )
    facts = [_admission(pair, demand) for _ in range(dice.choice((1, 2)))]
    await pair.both("admit", lambda twin: twin.hear("workload", facts))


def _admission(pair: Pair, demand: Demand) -> Envelope:
    name, attempt = f"j{pair.dice.randrange(6)}", pair.dice.choice((1, 1, 2, 3))
    return admitted(name, attempt=attempt, version=_version(pair), demand=demand, after=float(pair.dice.randrange(9)))


async def _end(pair: Pair) -> None:
    fact = cancelled(f"j{pair.dice.randrange(6)}", attempt=pair.dice.choice((1, 1, 2)), version=_version(pair))
    assert isinstance(fact.data, JobCancelled)
    await pair.both("end", lambda twin: twin.hear("workload", [fact]))


async def _run_over(pair: Pair) -> None:
    grant = _some_grant(pair)
    if grant is None:
        return
    fields = {"run": grant.run, "grant": grant.id, "epoch": grant.epoch, "job": grant.job, "attempt": grant.attempt}
    fact = RunSucceeded.model_validate({**fields, "tenant": ACME, "ended_at": pair.now})
    told = an_envelope(fact, key=grant.run, version=5)
    durable = pair.dice.choice(("workload", "workload", "again"))
    await pair.both("run over", lambda twin: twin.hear(durable, [told]))


async def _node(pair: Pair) -> None:
    name = pair.dice.choice(sorted(NODES))
    marks = pair.dice.choice(((), (), (_mark(pair, MarkEffect.DRAIN),), (_mark(pair, MarkEffect.NO_SCHEDULE),)))
    count = pair.dice.choice((NODES[name], NODES[name], 1))
    fact = a_node_of(name, count, version=_version(pair), marks=marks, stale=pair.dice.random() < 0.2)
    await pair.both("node", lambda twin: twin.hear("fleet", [fact]))


async def _owner(pair: Pair) -> None:
    """Some node is another's by its next owner epoch, or an older word of it comes late."""
    name = pair.dice.choice(sorted(NODES))
    epoch = pair.memory.ledger.fleet.nodes[node_id(CLUSTER, name)].info.owner_epoch
    owner = pair.dice.choice((CLUSTER, OTHER))
    fact = owned_by(owner, epoch + pair.dice.choice((0, 1, 1)), name, NODES[name], version=_version(pair))
    await pair.both("owner", lambda twin: twin.hear("fleet", [fact]))


async def _hold(pair: Pair) -> None:
    """A move asks for a node, at its owner epoch or at one that has passed; or it is given up."""
    name, dice = pair.dice.choice(sorted(NODES)), pair.dice
    node = node_id(CLUSTER, name)
    info = pair.memory.ledger.fleet.nodes[node].info
    epoch = info.owner_epoch - dice.choice((0, 0, 0, 1))
    told = {"move": move_id(node, dice.choice((epoch, epoch, epoch + 1))), "node": node, "owner_epoch": epoch}
    why = {"owner": "ada", "reason": "tuesday", "session": "s1"}
    hold = TransferHold.model_validate({**told, **why, "source": info.owned_by, "stop": dice.random() < 0.5})
    if dice.random() < 0.6:
        await pair.both("hold", lambda twin: twin.hold(hold))
    else:
        drop = TransferDrop.model_validate({**told, **why})
        await pair.both("drop", lambda twin: twin.drop(drop))


async def _flag(pair: Pair) -> None:
    node = node_id(CLUSTER, pair.dice.choice(sorted(NODES)))
    fact: Event = pair.dice.choice(
        (
            NodeWentStale(node=node, cluster=CLUSTER, last_report_at=pair.now),
            NodeFreshened(node=node, cluster=CLUSTER, reported_at=pair.now),
            NodeFreshened(node=node, cluster=CLUSTER, reported_at=pair.now),
            NodeRetired(node=node, cluster=CLUSTER),
        )
    )
    told = an_envelope(fact, key=node, version=_version(pair), scope=CLUSTER)
    await pair.both("flag", lambda twin: twin.hear("fleet", [told]))


async def _report(pair: Pair) -> None:
    name = pair.dice.choice(sorted(NODES))
    told = a_report(name, boot=_boot(pair), sequence=_version(pair), blind=pair.dice.random() < 0.1)
    assert isinstance(told.data, ObservationReported)
    if pair.dice.random() < 0.2:
        use = UnmanagedUse(device=devices_of(name, 1)[0], pid=1, command="x")
        told = an_envelope(told.data.model_copy(update={"unmanaged": (use,)}), key=told.key, version=told.version)
    await pair.both("report", lambda twin: twin.hear("runtime", [told]))


async def _end_of_run(pair: Pair) -> None:
    """Some run ended, mostly well; mostly it is the claimed one of its part."""
    held = [(grant, part) for grant in pair.memory.ledger.grants.values() for part in grant.parts]
    claimed = [each for each in held if each[1].state is PartState.CLAIMED]
    if not held:
        return
    grant, part = pair.dice.choice(claimed or held)
    fact = ObservationNoticed(
        node=part.node,
        cluster=CLUSTER,
        boot=part.boot or "boot-1",
        grant=grant.id,
        epoch=grant.epoch,
        job=grant.job,
        attempt=grant.attempt,
        run=grant.run,
        instance=pair.dice.choice((part.instance or "i-1", "i-2")),
        event=RunEvent.ENDED,
        exit=an_exit(pair.dice.choice((0, 0, 0, 1))),
        observed_at=pair.now,
    )
    told = an_envelope(fact, key=part.node, version=_version(pair), scope=CLUSTER)
    await pair.both("end of a run", lambda twin: twin.hear("runtime", [told]))


async def _decide(pair: Pair) -> None:
    mine, theirs = await pair.memory.decide(), await pair.postgres.decide()
    assert (mine is None) == (theirs is None)
    if mine is not None and theirs is not None:
        assert plain(_worded(mine)) == plain(_worded(theirs))
        pair.decisions.append((mine, theirs))


async def _carry_out(pair: Pair) -> None:
    if not pair.decisions:
        return
    mine, theirs = pair.decisions.pop(pair.dice.randrange(len(pair.decisions)))
    await pair.both("grant", lambda twin: twin.grant(mine if twin is pair.memory else theirs))
    await pair.both("refuse", lambda twin: twin.refuse(mine if twin is pair.memory else theirs))


async def _cycle(pair: Pair) -> None:
    await _decide(pair)
    await _carry_out(pair)


async def _claim(pair: Pair) -> None:
    claims = [claim for claim in (_some_claim(pair) for _ in range(pair.dice.choice((1, 1, 2)))) if claim]
    await pair.both("claim", lambda twin: twin.claim(claims))


async def _hello(pair: Pair) -> None:
    node = node_id(CLUSTER, pair.dice.choice(sorted(NODES)))
    held = [_holder(grant, part) for grant in pair.memory.ledger.grants.values() for part in grant.parts]
    holders = tuple(pair.dice.sample(held, min(2, len(held))))
    known = sum(other == node for other, _ in pair.memory.ledger.fleet.boots)
    hello = Hello(
        node=node,
        cluster=CLUSTER,
        boot=_boot(pair),
        incarnation=pair.dice.choice(("agent-1", "agent-2")),
        holders=holders,
        boots=pair.dice.choice((known, known, 0)),
    )
    await pair.both("hello", lambda twin: twin.hello([hello]))


async def _seals(pair: Pair) -> None:
    mine, theirs = await pair.memory.seals(100), await pair.postgres.seals(100)
    assert sorted(mine, key=_seal_key) == sorted(theirs, key=_seal_key)
    pair.asked += mine


async def _seal(pair: Pair) -> None:
    if pair.asked:
        seal = pair.dice.choice(pair.asked)
        answer = SealAnswer(
            grant=seal.grant,
            epoch=seal.epoch,
            node=seal.node,
            revocation=seal.revocation,
            sealed=True,
            boot="boot-1",
            devices=seal.devices,
            observed_at=pair.now,
        )
        await pair.both("seal", lambda twin: twin.seal([answer]))


async def _watch(pair: Pair) -> None:
    heard_seconds = pair.dice.choice((0.0, 15.0, 60.0, 600.0, 600.0))
    await pair.both("watch", lambda twin: twin.watch(heard_seconds))


async def _override(pair: Pair) -> None:
    grant = _some_grant(pair)
    if grant is not None:
        node = pair.dice.choice(grant.parts).node
        await pair.both("override", lambda twin: twin.override(grant.id, node))


async def _leases(pair: Pair) -> None:
    grants = list(pair.memory.ledger.grants.values())
    known = [Lease(device, grant.id, grant.epoch) for grant in grants for p in grant.parts for device in p.device_ids]
    found = pair.dice.sample(known, min(3, len(known)))
    await pair.both("leases", lambda twin: twin.leases(found))


async def _unanswered(pair: Pair) -> None:
    await pair.both("unanswered", lambda twin: twin.unanswered())


COMMANDS_OF: Final = (
    *(_time_passes, _time_passes, _admit, _admit, _admit, _end, _run_over, _node, _flag, _report, _report),
    *(_hold, _hold, _owner),
    *(_decide, _carry_out, _cycle, _cycle, _cycle, _claim, _claim, _claim, _end_of_run, _end_of_run, _hello, _hello),
    *(_seals, _seal, _seal, _watch, _override, _override, _leases, _unanswered),
)


def _differing(mine: dict[Any, Any], theirs: dict[Any, Any]) -> dict[Any, tuple[Any, Any]]:
    keys = {*mine, *theirs}
    return {key: (mine.get(key), theirs.get(key)) for key in keys if mine.get(key) != theirs.get(key)}


def _said(twin: Twin) -> object:
    said = sorted((e.type, e.key, e.version, e.scope, str(e.cause), e.time, repr(plain(e.data))) for e in twin.said)
    freed = sorted((lease.device, lease.grant, lease.epoch) for lease in twin.freed)
    return said, sorted(twin.again), freed


def _worded(decision: Decision) -> object:
    placed = [(p.pending.job, p.pending.attempt, p.cluster, [d.device for d in p.devices]) for p in decision.placements]
    refused = [(r.pending.job, r.pending.attempt, r.final, r.reason.code, r.reason.numbers) for r in decision.refusals]
    return sorted(placed), sorted(refused, key=lambda each: each[:2])


def _some_grant(pair: Pair) -> Grant | None:
    grants = list(pair.memory.ledger.grants.values())
    return pair.dice.choice(grants) if grants else None


def _some_claim(pair: Pair) -> Claim | None:
    grant = _some_grant(pair)
    if grant is None:
        return None
    dice, part = pair.dice, pair.dice.choice(grant.parts)
    return Claim(
        grant=grant.id,
        epoch=grant.epoch,
        node=part.node,
        cluster=grant.cluster,
        boot=_boot(pair),
        instance=dice.choice(("i-1", "i-1", "i-2")),
        nonce="n",
        devices=part.device_ids if dice.random() < 0.7 else _others(pair, part),
    )


def _others(pair: Pair, part: Part) -> tuple[DeviceId, ...]:
    devices = [device for device, each in pair.memory.ledger.fleet.devices.items() if each.node == part.node]
    return tuple(pair.dice.sample(devices, min(len(devices), len(part.devices))))


def _holder(grant: Grant, part: Part) -> Holder:
    return Holder(grant=grant.id, epoch=grant.epoch, run=grant.run, instance="i-1", devices=part.device_ids)


def _mark(pair: Pair, effect: MarkEffect) -> Mark:
    return Mark(drain=DrainId("drain_1"), effect=effect, owner="ops", reason="fans", session="s1", since=pair.now)


def _boot(pair: Pair) -> str:
    return pair.dice.choice(("boot-1", "boot-1", "boot-2", "boot-3"))


def _version(pair: Pair) -> int:
    """Mostly a newer version than any before, sometimes an older one."""
    pair.versions += 1
    return pair.versions if pair.dice.random() < 0.8 else pair.dice.randrange(1, pair.versions)


def _seal_key(seal: Seal) -> tuple[GrantId, NodeId]:
    return seal.grant, seal.node
