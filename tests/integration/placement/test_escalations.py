"""What is not known is listed with evidence and commands; a named person's word settles it, and is kept."""

import json
import os
import sys
from asyncio import create_subprocess_exec, subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path

import pytest

from libs.config import Infrastructure
from schemas.calls import (
    Escalation,
    EscalationsPage,
    EscalationsQuery,
    Override,
    OverrideAnswer,
    Subject,
)
from schemas.ids import GrantId, NodeId, TenantId, device_id, node_id
from schemas.lifecycle import DeviceState, PartState
from schemas.reasons import Code
from schemas.runtime import ObservationReported, UnmanagedUse
from schemas.workload import (
    GrantCleared,
    GrantIssued,
    GrantOverridden,
    GrantReleased,
    GrantSuspected,
    ReleaseProof,
)
from tests.support.builders import ACME
from tests.support.eventually import eventually
from tests.support.gateways import ADMIN, Asking, gateway
from tests.support.placements import (
    CLUSTER,
    Agents,
    a_report,
    admitted,
    ask,
    claim,
    ledger,
    placement,
    run_ended,
    say_fleet,
)
from tests.support.servers import Servers
from tests.support.wire import E, Wire

N1 = node_id(CLUSTER, "n1")
SEE = "see 'triplane escalations' for what waits for a person"
SCRAPPED = "the node was scrapped"


async def listed(line: Wire, tenant: str | None = None) -> tuple[Escalation, ...]:
    query = EscalationsQuery(tenant=TenantId(tenant) if tenant else None)
    return (await ask(line, "call.grant.escalations", query, EscalationsPage)).items


async def settled(line: Wire, grant: str, node: NodeId = N1) -> OverrideAnswer:
    word = Override(grant=GrantId(grant), node=node, person="ada", reason=SCRAPPED)
    return await ask(line, "call.grant.override", word, OverrideAnswer)


async def running(line: Wire, name: str = "train", devices: int = 2) -> GrantIssued:
    await line.say(admitted(name, devices))
    issued = (await line.wait(GrantIssued))[-1]
    assert (await claim(line, issued)).granted
    return issued


async def test_r11_an_escalated_part_is_listed_whole_with_what_its_seal_said(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    standing.busy = {N1}
    await say_fleet(line, "n1")
    async with placement(surroundings, stuck_after_seconds=0):
        issued = await running(line)
        await line.say(a_report("n1"), run_ended(issued))
        await line.wait(GrantSuspected)
        await eventually(lambda: len(standing.asked) >= 2)
        (found,) = await listed(line)
        assert await listed(line, "zoo") == ()
        assert await listed(line, ACME) != ()
    times = {"since", "claimed_at", "revoked_at", "heard_at"}
    assert found.model_dump(exclude=times | {"reason", "seals_asked"}) == {
        "subject": Subject.PART,
        "state": DeviceState.QUARANTINED,
        "waits_for_person": True,
        "cluster": CLUSTER,
        "node": N1,
        "node_name": "n1",
        "devices": tuple(device.device for device in issued.parts[0].devices),
        "indexes": (0, 1),
        "tenant": ACME,
        "job": issued.job,
        "job_name": "train",
        "attempt": 1,
        "grant": issued.grant,
        "epoch": issued.epoch,
        "part": PartState.REVOKING,
        "boot": "boot-1",
        "instance": "instance-1",
        "seal": Code.STILL_RUNNING,
    }
    assert (found.reason.code, found.seals_asked >= 2) == (Code.STUCK_TERMINATION, True)
    assert all(isinstance(getattr(found, name), datetime) for name in times)


async def test_r11_a_person_s_word_is_said_and_the_node_is_asked_on_until_it_is_clear(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    standing.busy = {N1}
    await say_fleet(line, "n1")
    async with placement(surroundings, stuck_after_seconds=0), ledger(surroundings) as rows:
        issued = await running(line)
        await line.say(a_report("n1"), run_ended(issued))
        await line.wait(GrantSuspected)
        first, again = await settled(line, issued.grant), await settled(line, issued.grant)
        (overridden,), (released,) = await line.wait(GrantOverridden), await line.wait(GrantReleased)
        standing.asked = []
        await eventually(lambda: standing.asked)  # so that what lives there is stopped (G7)
        (left,) = await listed(line)
        standing.busy = set()
        await rows.execute("UPDATE parts SET next_seal_at = now() WHERE next_seal_at IS NOT NULL")

        async def none_left() -> bool:
            return await listed(line) == ()

        await eventually(none_left)
        kept = await rows.fetch("SELECT person, reason FROM overrides")
    devices = tuple(device.device for device in issued.parts[0].devices)
    assert (first, again) == (OverrideAnswer(done=True, devices=devices),) * 2
    assert (overridden.person, overridden.reason, overridden.devices) == ("ada", SCRAPPED, devices)
    assert (released.proof, standing.asked[0].stop) == (ReleaseProof.OVERRIDE, True)
    assert (left.reason.code, left.part, left.waits_for_person) == (Code.OVERRIDDEN, PartState.RELEASED, False)
    assert [tuple(row) for row in kept] == [("ada", SCRAPPED)]
    assert len(line.facts(GrantOverridden)) == 1


async def test_r11_what_is_not_escalated_or_not_known_is_not_settled_by_a_word(
    surroundings: Infrastructure, line: Wire, standing: Agents
) -> None:
    standing.busy = {N1}
    await say_fleet(line, "n1")
    async with placement(surroundings):
        issued = await running(line)
        refused = await settled(line, issued.grant)
        unknown = await settled(line, "grant_none")
        elsewhere = await settled(line, issued.grant, NodeId("node_none"))
    codes = [answer.reason.code if answer.reason else None for answer in (refused, unknown, elsewhere)]
    assert codes == [Code.NOT_ESCALATED, Code.GRANT_UNKNOWN, Code.GRANT_UNKNOWN]
    assert not any(answer.done for answer in (refused, unknown, elsewhere))
    assert refused.reason is not None
    assert refused.reason.message == "the part is Claimed, and not escalated"


async def test_r7_a_node_that_is_heard_again_is_said_to_be_known_again(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1")
    numbers = count(1)

    async def heard(kind: type[E]) -> list[E]:
        await line.say(a_report("n1", sequence=next(numbers)))
        return line.facts(kind)

    async with placement(surroundings, suspect_after_seconds=1) as (service,):
        await line.say(admitted("train", 2))
        issued = (await eventually(lambda: heard(GrantIssued)))[0]
        assert (await claim(line, issued)).granted
        await line.wait(GrantSuspected)
        (found,) = await listed(line)
        cleared = (await eventually(lambda: heard(GrantCleared)))[0]
        assert service.ready
    assert (found.state, found.reason.code, found.waits_for_person) == (
        DeviceState.SUSPECT,
        Code.HEARTBEAT_LOST,
        False,
    )
    assert (cleared.grant, cleared.node, cleared.attempt) == (issued.grant, N1, 1)


async def test_g6_a_blind_node_and_a_stranger_on_a_device_are_listed_without_any_grant(
    surroundings: Infrastructure, line: Wire
) -> None:
    await say_fleet(line, "n1", "n2")
    use = UnmanagedUse(device=device_id(N1, "GPU-n1-3"), pid=4711, command="python train.py")
    report = a_report("n1")
    assert isinstance(report.data, ObservationReported)
    stranger = report.data.model_copy(update={"unmanaged": (use,)})
    async with placement(surroundings), ledger(surroundings) as rows:

        async def known() -> bool:
            return bool(await rows.fetchval("SELECT count(*) = 2 FROM nodes"))

        await eventually(known)
        await line.say(replace(report, data=stranger), a_report("n2", blind=True))

        async def both() -> tuple[Escalation, ...]:
            found = await listed(line)
            assert len(found) == 2
            return found

        found = {each.subject: each for each in await eventually(both)}
    assert (found[Subject.NODE].node_name, found[Subject.NODE].reason.code) == ("n2", Code.NODE_BLIND)
    device = found[Subject.DEVICE]
    assert (device.devices, device.indexes, device.reason.code, device.reason.message) == (
        (use.device,),
        (3,),
        Code.UNMANAGED_USE,
        "process 4711 (python train.py) uses it outside every grant",
    )


@pytest.fixture
async def asking(servers: Servers) -> AsyncIterator[Asking]:
    async with gateway(servers) as opened:
        yield opened


async def test_r11_a_person_reads_evidence_and_commands_and_settles_by_the_command_alone(
    surroundings: Infrastructure, line: Wire, standing: Agents, asking: Asking, tmp_path: Path
) -> None:
    standing.busy = {N1}
    await say_fleet(line, "n1")
    await asking.admin.post("/v1/tenants", json={"name": ACME})
    operator = await asking.token("operator", "*", "olga")
    async with placement(surroundings, stuck_after_seconds=0):
        issued = await running(line)
        await line.say(a_report("n1"), run_ended(issued))
        await line.wait(GrantSuspected)
        (shown,) = (await asking.admin.get("/v1/escalations")).json()
        command = shown["commands"][-1]
        assert command == f"triplane escalations settle {issued.grant} {N1} --reason 'what you saw'"
        words = ("escalations", "settle", issued.grant, "n1", "--reason", SCRAPPED)
        denied = await triplane(asking, tmp_path, *words, token=operator)
        empty = await triplane(asking, tmp_path, *words[:-1], "")
        done = await triplane(asking, tmp_path, *words)
        twice = await triplane(asking, tmp_path, "escalations", "settle", "grant_none", "n1", "--reason", "x")
        table = await triplane(asking, tmp_path, "escalations")
        (left,) = json.loads((await triplane(asking, tmp_path, "escalations", "-o", "json"))[1])
        (overridden,) = await line.wait(GrantOverridden)
    assert shown["evidence"][-1].endswith("for a seal: StillRunning")
    assert denied[0] == 4
    assert "needs admin" in denied[2]
    assert (empty[0], empty[2].splitlines()[0]) == (2, "triplane: --reason is empty or no line of text")
    assert done == (0, f"released 2 devices of {issued.grant} on the word of administrator\n", "")
    assert (twice[0], twice[2]) == (
        3,
        f"triplane: grant: there is no grant grant_none on node n1\n  → {SEE}\n",
    )
    assert (left["code"], left["state"], left["grant"]) == ("Overridden", "Suspect", issued.grant)
    assert "Overridden" in table[1]
    assert (overridden.person, overridden.reason) == ("administrator", SCRAPPED)


async def triplane(asking: Asking, home: Path, *words: str, token: str = ADMIN) -> tuple[int, str, str]:
    process = await create_subprocess_exec(
        sys.executable,
        "-m",
        "cli.main",
        *words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": str(Path.cwd()),
            "TRIPLANE_ADDRESS": asking.address,
            "TRIPLANE_TOKEN": token,
        },
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()
