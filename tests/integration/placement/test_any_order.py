"""Whatever comes in whatever order: the ledger's facts keep the promises of the protocol."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from random import Random
from typing import TypeVar

import pytest
from redis.asyncio import Redis

from libs.config import Infrastructure
from schemas.base import Event
from schemas.fleet import Mark, MarkEffect
from schemas.ids import DrainId, node_id
from schemas.workload import GrantConfirmed, GrantIssued, GrantReleased, GrantRevoked, GrantSuspected
from tests.support.eventually import eventually
from tests.support.placements import (
    CLUSTER,
    Agents,
    a_node_of,
    admitted,
    cancelled,
    claim,
    hello,
    ledger,
    placement,
    run_ended,
    say_fleet,
)
from tests.support.servers import Servers
from tests.support.wire import Wire

E = TypeVar("E", bound=Event)
NODES = ("n1", "n2", "n3")
MARK = Mark(
    drain=DrainId("drain_1"),
    effect=MarkEffect.DRAIN,
    owner="ops",
    reason="fans",
    session="s1",
    since=datetime(2026, 3, 1, tzinfo=UTC),
)


@dataclass
class World:
    """Says random things in the names of all around placement."""

    line: Wire
    agents: Agents
    redis: Redis
    dice: Random
    jobs: int = 0
    version: int = 1
    boots: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NODES, 1))
    started: defaultdict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))

    async def step(self) -> None:
        """Do one thing."""
        acts = [self.admit] * 5 + [self.claim] * 6 + [self.end] * 4 + [self.cancel] * 2
        await self.dice.choice([*acts, self.reboot, self.mark, self.wipe, self.stall])()

    async def admit(self) -> None:
        self.jobs += 1
        await self.line.say(admitted(f"job-{self.jobs}", self.dice.randint(1, 4), after=self.jobs))

    async def claim(self) -> None:
        if not (grant := self.some_grant()):
            return
        part = grant.parts[0]
        instance, boot = f"instance-{self.dice.randint(1, 2)}", f"boot-{self.boots[part.node_name]}"
        if (await claim(self.line, grant, instance=instance, boot=boot)).granted:
            self.started[grant.grant, part.node].add(instance)

    async def end(self) -> None:
        if grant := self.some_grant():
            await self.line.say(run_ended(grant))

    async def cancel(self) -> None:
        if self.jobs:
            await self.line.say(cancelled(f"job-{self.dice.randint(1, self.jobs)}"))

    async def reboot(self) -> None:
        node = self.dice.choice(NODES)
        self.boots[node] += 1
        await hello(self.line, node, boot=f"boot-{self.boots[node]}", incarnation=f"agent-{self.boots[node]}")

    async def mark(self) -> None:
        self.version += 1
        marks = self.dice.choice([[MARK], []])
        await self.line.say(a_node_of(self.dice.choice(NODES), 4, version=self.version, marks=marks))

    async def wipe(self) -> None:
        await self.redis.flushall()

    async def stall(self) -> None:
        self.agents.busy ^= {node_id(CLUSTER, self.dice.choice(NODES))}

    async def finish(self) -> None:
        """Let all that stalls go on, and end all jobs."""
        self.agents.busy = set()
        await self.line.say(*(a_node_of(node, 4, version=self.version + 1) for node in NODES))
        await self.line.say(*(cancelled(f"job-{number}") for number in range(1, self.jobs + 1)))

    def some_grant(self) -> GrantIssued | None:
        grants = self.line.facts(GrantIssued)
        return self.dice.choice(grants) if grants else None


@pytest.mark.parametrize("seed", [1, 2])
async def test_parts_end_once_devices_have_one_owner_and_epochs_rise(
    surroundings: Infrastructure, line: Wire, standing: Agents, servers: Servers, seed: int
) -> None:
    await say_fleet(line, *NODES, devices=4)
    async with (
        Redis.from_url(servers.operator_redis_url) as redis,
        placement(surroundings, replicas=2),
        ledger(surroundings) as rows,
    ):
        world = World(line, standing, redis, Random(seed))
        for _ in range(60):
            await asyncio.gather(*(world.step() for _ in range(2)))
        await world.finish()
        await eventually(lambda: rows.fetchval("SELECT count(*) = 0 FROM attempts WHERE state <> 'Over'"), 30)
        await rows.execute("UPDATE parts SET next_seal_at = now() WHERE state = 'Revoking'")
        await eventually(lambda: rows.fetchval("SELECT count(*) = 0 FROM lines WHERE live"), 40)
        await eventually(lambda: rows.fetchval("SELECT count(*) = 0 FROM outbox WHERE sent_at IS NULL"))
        released = await rows.fetchval("SELECT count(*) FROM parts")
    await line.wait(GrantReleased, released)
    check_versions(line)
    check_owners(line)
    assert all(len(instances) == 1 for instances in world.started.values()), world.started
    assert line.facts(GrantIssued)


def check_versions(line: Wire) -> None:
    """Each grant says its versions one by one, issued first, and releases each part once."""
    versions: defaultdict[str, set[int]] = defaultdict(set)
    for envelope in line.heard:
        if isinstance(envelope.data, GrantIssued | GrantConfirmed | GrantRevoked | GrantSuspected | GrantReleased):
            versions[envelope.key].add(envelope.version)
    assert all(seen == set(range(1, len(seen) + 1)) for seen in versions.values()), versions
    parts = [(fact.grant, fact.node) for fact in line.facts(GrantReleased)]
    assert len(parts) == len(set(parts))


def check_owners(line: Wire) -> None:
    """On each device one grant follows the other: by time, and by epoch in the same order."""
    over = {(fact.grant, device): fact for fact in line.facts(GrantReleased) for device in fact.devices}
    held: defaultdict[str, list[tuple[datetime, datetime, int]]] = defaultdict(list)
    for (_, device), fact in over.items():
        held[device].append((fact.issued_at, fact.released_at, fact.epoch))
    for spans in held.values():
        spans.sort()
        for before, after in pairwise(spans):
            assert before[1] <= after[0], spans
            assert before[2] < after[2], spans
