"""The command as people run it, against a real gateway; where people look, whole outputs are compared."""

import json
from pathlib import Path
from typing import Any

import yaml

from libs.bus.steady import connected
from schemas.calls import AuditEntry, AuditPage
from schemas.ids import TenantId
from schemas.lifecycle import JobState
from schemas.reasons import Code
from schemas.workload import JobCancelled, Outcome, RequestOrdered, RequestSubmitted
from tests.support.builders import NOON, a_grant, a_job_id, a_node_id, a_part
from tests.support.builders_gateway import (
    a_mark,
    a_node,
    admitted,
    discovered,
    finished,
    held,
    queued,
    rated,
    reserved,
    said,
)
from tests.support.eventually import eventually
from tests.support.gateways import FLEET, a_job, gateway
from tests.support.servers import Servers
from tests.support.triplane_command import Done, Shell

JOB = a_job_id()


async def until(shell: Shell, path: str, **expected: Any) -> None:
    async def look() -> bool:
        seen = (await shell.asking.admin.get(path)).json()
        assert {name: seen[name] for name in expected} == expected
        return True

    await eventually(look)


async def test_a_tenant_is_furnished_and_a_job_submitted_by_command_alone(servers: Servers, tmp_path: Path) -> None:
    async with gateway(servers) as asking:
        shell = Shell(asking, tmp_path)
        for name in ("acme", "zoo"):
            assert await shell.run("tenants", "create", name) == Done(0, f"created tenant {name}\n", "")
        applied = await shell.run("apply", shell.file("fleet.yaml", FLEET))
        assert [line.split()[:3] for line in applied.out.splitlines()] == [
            ["created", "Cluster", "demo"],
            ["created", "GpuClass", "h100"],
            ["created", "Queue", "main"],
            ["created", "Queue", "mine"],
        ]
        made = await shell.run("tokens", "create", "ada", "--role", "submitter", "--tenant", "acme", "--expires", "12h")
        token = made.out.strip()
        done = await shell.run(
            "submit", "--gpus", "2", "--queue", "main", "--name", "hi", "--", "echo", "-o", token=token
        )
        assert done == Done(0, f"created   Job hi ({a_job_id('hi')})\n", "")
        (fact,) = await asking.line.wait(RequestSubmitted)
        assert (fact.work.command, fact.demand.devices, fact.submitted_by) == (("echo", "-o"), 2, "ada")


async def test_files_folders_and_stdin_are_one_text_with_faults_told_by_file_and_line(shell: Shell) -> None:
    shell.file("jobs/a.yaml", a_job("a", queue="new"))
    shell.file("jobs/b.yml", "\n\n" + a_job("b") + "---\n" + a_job("c").replace("queue", "qeue"))
    shell.file("jobs/ignored.txt", "kind: [")
    queue = (
        "apiVersion: triplane/v1\nkind: Queue\nmetadata: {name: new, tenant: acme}\n"
        "spec: {quotas: [{class: h100, nominal: 1}]}\n"
    )
    done = await shell.run("submit", str(shell.home / "jobs"), "-", given=queue)
    where = f"error     Job c in {shell.home}/jobs/b.yml, line 11"
    assert (done.code, done.err) == (
        2,
        (
            f"{where}: spec.queue: is missing; add queue\n"
            f"{where}: spec.qeue: is not a field of this document; did you mean queue?\n"
        ),
    )
    assert [line.split()[:3] for line in done.out.splitlines()] == [
        ["created", "Job", "a"],
        ["created", "Job", "b"],
        ["created", "Queue", "new"],
    ]


async def test_submitting_again_says_so_and_other_content_is_a_conflict(shell: Shell) -> None:
    file = shell.file("job.yaml", a_job())
    tried = Done(0, f"would be created   Job train ({JOB})\n", "")
    assert [await shell.run(word, file, "--dry-run") for word in ("submit", "apply")] == [tried, tried]
    assert await shell.run("submit", file) == Done(0, f"created   Job train ({JOB})\n", "")
    assert await shell.run("submit", file) == Done(0, f"unchanged Job train ({JOB})\n", "")
    other = await shell.run("submit", shell.file("job.yaml", a_job(devices=2)))
    assert (other.code, other.out) == (6, "")
    assert other.err == (
        f"error     Job train in {file}, line 1: spec.devicesPerReplica: job train is alive ({JOB}) "
        "with other content: spec.devicesPerReplica; use another name, or cancel it and submit with --again\n"
    )
    await shell.asking.line.say(said(finished(), key=JOB, version=2))
    await until(shell, "/v1/jobs/train", state=JobState.SUCCEEDED)
    assert (await shell.run("submit", file)).code == 6
    assert (await shell.run("submit", file, "--again")).out == f"created   Job train ({a_job_id(generation=2)})\n"


async def test_waiting_ends_with_the_job_s_own_exit_code(shell: Shell) -> None:
    process = await shell.start("submit", shell.file("job.yaml", a_job()), "--wait")
    await shell.asking.line.wait(RequestSubmitted)
    await shell.asking.line.say(said(queued(), key=JOB, version=1))
    await shell.asking.line.say(said(finished(outcome=Outcome.FAILED, exit_code=42), key=JOB, version=2))
    out, err = await process.communicate()
    assert (process.returncode, out.decode()) == (42, f"created   Job train ({JOB})\n")
    assert err.decode().splitlines()[-1] == "train: Failed"


async def test_jobs_are_listed_for_people_and_for_programs(shell: Shell) -> None:
    await shell.asking.submit(a_job("long-name", devices=8) + "---\n" + a_job())
    grant = a_grant("train", a_part("n1", 1))
    await shell.asking.line.say(
        said(held("long-name", Code.EXCEEDS_QUOTA), key=a_job_id("long-name"), version=2),
        said(reserved(), key=JOB, version=1),
        said(admitted(), key=JOB, version=2),
        said(grant, key=grant.grant, version=1),
    )
    await until(shell, "/v1/jobs/train", state=JobState.GRANTED)
    await until(shell, "/v1/jobs/long-name", reason="ExceedsQuota")
    done = await shell.run("jobs")
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["NAME", "TENANT", "QUEUE", "STATE", "REASON", "GPUS", "CLASS", "NODES", "ATTEMPT", "AGE"]
    assert sorted(row[:-1] for row in rows[1:]) == [
        ["long-name", "acme", "main", "Queued", "ExceedsQuota", "8", "-", "-", "1"],
        ["train", "acme", "main", "Granted", "-", "1", "h100", "n1", "1"],
    ]
    as_json = json.loads((await shell.run("jobs", "--state", "Granted", "-o", "json")).out)
    as_yaml = yaml.safe_load((await shell.run("jobs", "--state", "Granted", "-o", "yaml")).out)
    assert as_json == as_yaml
    assert [(job["id"], job["nodes"]) for job in as_json] == [(JOB, ["n1"])]


FLEET_TABLE = """\
CLUSTER  CLASS  TOTAL  ALLOCATABLE  RESERVED  IDLE  HELD  SILENT
demo     -          2            0         0     0     0       0
demo     h100      16            8         4     4     8       0
"""
NODES_TABLE = """\
NAME  CLUSTER  STATE     GPUS    RESERVED  PLACE    WHY
n1    demo     ready     h100:8         4  rack=r1  -
n2    demo     cordoned  h100:8         0  -        Xid 79 (health)
n3    demo     ready     -:2            0  -        -
"""
QUEUES_TABLE = """\
QUEUE  TENANT  CLASS  QUOTA  USED  WAITING  ADMITTED  ORDER           PREEMPTS  WARNING
main   acme    h100      16     4        1         1  BestEffortFIFO  Never     -
mine   zoo     h100      64     0        0         0  BestEffortFIFO  Never     \
quota 64 is more than the 16 h100 that exist
"""
BILL_TABLE = """\
ACCOUNT  QUEUE  CLASS  GPU TIME     AMOUNT
acme     main   h100         4h  10.00 USD
"""


async def test_the_fleet_its_nodes_queues_and_the_bill_look_as_people_know_them(shell: Shell) -> None:
    grant = a_grant("train", a_part("n1", 4))
    await shell.asking.submit(a_job(devices=4) + "---\n" + a_job("wait"))
    await shell.asking.line.say(
        discovered(a_node("n1", place={"rack": "r1"})),
        discovered(a_node("n2", marks=(a_mark(),))),
        discovered(a_node("n3", 2, gpu_class=None)),
        said(reserved(devices=4), key=JOB, version=1),
        said(admitted(), key=JOB, version=2),
        said(grant, key=grant.grant, version=1),
        said(rated("acme"), key="usage_1", version=1),
    )

    async def looks(command: str, expected: str) -> None:
        async def look() -> bool:
            assert await shell.run(command) == Done(0, expected, "")
            return True

        await eventually(look)

    await looks("fleet", FLEET_TABLE)
    await looks("nodes", NODES_TABLE)
    await looks("queues", QUEUES_TABLE)
    await looks("bill", BILL_TABLE)


async def test_a_job_is_explained_in_words(shell: Shell) -> None:
    await shell.asking.submit(a_job(devices=24))
    await shell.asking.line.say(said(held(code=Code.WAITING_FOR_QUOTA), key=JOB, version=2))
    await until(shell, "/v1/jobs/train", reason="WaitingForQuota")
    told = (await shell.run("explain", "train")).out.splitlines()
    assert told[:3] == [
        "train is Queued (attempt 1)",
        "WaitingForQuota: quota of h100 is 16, used 0, asked 24",
        "  asked 24, nominal 16, used 0",
    ]
    assert told[3].startswith("  since 2026-01-15 12:00:00 (")
    assert told[5].split() == ["AT", "ATTEMPT", "WHAT", "WHY"]
    assert told[6].split() == ["2026-01-15", "12:00:00", "1", "job", "held", "WaitingForQuota"]
    shown = (await shell.run("job", "train")).out.splitlines()
    assert shown[0].split() == ["id", JOB]
    assert "gpus         24 (1 x 24)" in shown


async def test_cancelling_many_goes_on_past_one_that_is_not_there(shell: Shell) -> None:
    await shell.asking.submit(a_job("a") + "---\n" + a_job("b"))
    done = await shell.run("cancel", "a", "nobody", "b", "-m", "enough")
    assert done == Done(
        3,
        f"cancelling a ({a_job_id('a')})\ncancelling b ({a_job_id('b')})\n",
        "triplane: there is no job nobody\n  → see 'triplane jobs' for what there is\n",
    )


async def test_cancelling_what_is_cancelled_says_so(shell: Shell) -> None:
    gone = JobCancelled(job=JOB, attempt=1, tenant=TenantId("acme"), cancelled_by="ada")
    await shell.asking.submit(a_job())
    await shell.asking.line.say(said(gone, key=JOB, version=2))

    async def is_told() -> bool:
        return await shell.run("cancel", "train") == Done(0, f"train ({JOB}) is cancelled\n", "")

    assert await eventually(is_told)


async def test_an_empty_bill_says_when_there_will_be_more(shell: Shell) -> None:
    done = await shell.run("bill")
    assert (done.code, done.err) == (
        0,
        "triplane: nothing is billed yet; what has ended is within some ten seconds\n",
    )


async def test_a_node_is_cordoned_drained_and_taken_back(shell: Shell) -> None:
    await shell.asking.line.say(discovered(a_node("n1")))

    async def known() -> bool:
        return bool((await shell.asking.admin.get("/v1/nodes")).json()["items"])

    await eventually(known)
    for verb in ("cordon", "drain", "uncordon"):
        done = await shell.run(verb, "n1", "--reason", "fan is loud")
        assert (done.code, done.out.startswith(f"{verb} of n1 is ordered (order_")) == (0, True)
    facts = await shell.asking.line.wait(RequestOrdered, 3)
    assert [(fact.order, fact.node, fact.reason) for fact in facts] == [
        (verb, a_node_id("n1"), "fan is loud") for verb in ("cordon", "drain", "uncordon")
    ]
    assert (await shell.run("drain", "n1")).code == 2
    empty = await shell.run("cordon", "n1", "--reason", "", "--owner", "a\tb")
    assert (empty.code, empty.err.splitlines()[0]) == (2, "triplane: --owner and --reason are empty or no line of text")
    assert (await shell.run("drain", "n7", "--reason", "x")).code == 3


async def test_tokens_are_listed_and_revoked(shell: Shell) -> None:
    token = (await shell.run("tokens", "create", "eve", "--role", "viewer", "--tenant", "acme")).out.strip()
    assert (await shell.run("jobs", token=token)).code == 0
    denied = await shell.run("submit", "--gpus", "1", "--", "x", token=token)
    assert (denied.code, "this needs submitter or more" in denied.err) == (4, True)
    nothing = await shell.run("jobs", "--queue", "")
    assert (nothing.code, "queue" in nothing.err) == (2, True)
    assert (await shell.run("fleet", "--token", token)).code == 0
    listed = await shell.run("tokens", "list", "-o", "json")
    assert await shell.run("tokens", "-o", "json") == listed
    assert await shell.run("tenants", "list") == await shell.run("tenants")
    (row,) = [r for r in json.loads(listed.out) if r["name"] == "eve"]
    assert (await shell.run("tokens", "revoke", row["id"])).out == f"revoked eve ({row['id']})\n"
    assert await shell.run("jobs", token=token) == Done(
        4, "", "triplane: token eve is revoked or expired\n  → ask for a new one\n"
    )
    wrong = await shell.run("tokens", "create", "eve", "--role", "king", "--tenant", "acme")
    assert (wrong.code, "role" in wrong.err) == (2, True)


async def test_events_are_shown_as_they_come(shell: Shell) -> None:
    await shell.asking.submit(a_job())
    process = await shell.start("events", "--after", "0", "--job", "train")
    await shell.asking.line.say(said(queued(), key=JOB, version=1), said(held(), key=JOB, version=2))
    assert process.stdout is not None
    lines = [(await process.stdout.readline()).decode().split() for _ in range(2)]
    process.terminate()
    await process.wait()
    assert [line[1:] for line in lines] == [
        ["2026-01-15T12:00:00", "job", "queued", "train"],
        ["2026-01-15T12:00:00", "job", "held", JOB, "WaitingForQuota"],
    ]


async def test_events_in_yaml_are_documents(shell: Shell) -> None:
    await shell.asking.submit(a_job())
    process = await shell.start("events", "--after", "0", "--job", "train", "-o", "yaml")
    await shell.asking.line.say(said(queued(), key=JOB, version=1), said(held(), key=JOB, version=2))
    assert process.stdout is not None
    text = b"".join([await process.stdout.readline() for _ in range(2)])
    process.terminate()
    await process.wait()
    kinds = [event["type"] for event in yaml.safe_load_all(text)]
    assert kinds == ["workload.job.queued.v1", "workload.job.held.v1"]


async def test_a_full_page_of_the_audit_says_how_to_read_on(shell: Shell, servers: Servers) -> None:
    audit = await connected(**servers.operator_nats)

    async def answer(message: Any) -> None:
        await message.respond(AuditPage(entries=(an_entry(7), an_entry(9))).model_dump_json().encode())

    await audit.subscribe("call.audit.query", cb=answer)
    await audit.flush()
    assert (await shell.run("audit", "--limit", "2")).err == "there may be more: --after 9\n"
    assert (await shell.run("audit")).err == ""
    await audit.close()


def an_entry(sequence: int) -> AuditEntry:
    return AuditEntry(
        sequence=sequence,
        heard_at=NOON,
        type="workload.job.queued.v1",
        scope="acme",
        key=JOB,
        source="admission",
        fact={},
        previous_hash="0" * 64,
        hash="1" * 64,
    )


async def test_a_job_without_output_says_so_and_an_audit_that_is_away_is_unreachable(shell: Shell) -> None:
    await shell.asking.submit(a_job())
    assert await shell.run("logs", "train") == Done(
        0, "", "triplane: train has no output yet\n  → see 'triplane explain train'\n"
    )
    away = await shell.run("audit")
    assert (away.code, away.err.endswith("→ try again in a few seconds\n")) == (5, True)
