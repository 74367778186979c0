"""What a person reads of something that is not known: the evidence in words, and the commands that settle it."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from schemas.calls import Escalation, Subject
from schemas.lifecycle import DeviceState, PartState
from schemas.reasons import Code

_UNITS: Final = (("h", 3_600), ("m", 60), ("s", 1))


def evidence(item: Escalation, now: datetime) -> tuple[str, ...]:
    """Return what was last heard and seen, in words."""
    return tuple(_evidence(item, now))


def commands(item: Escalation) -> tuple[str, ...]:
    """Return what settles it, the surest first. A line that begins with # is to be done on the node or seen there."""
    return tuple(_commands(item))


def _evidence(item: Escalation, now: datetime) -> Iterator[str]:
    if item.subject is Subject.LEDGER:
        yield f"ledger at {item.reason.numbers['ledger_epoch']}, world at {item.reason.numbers['lease_epoch']}"
        return
    if item.subject in {Subject.PART, Subject.NODE}:
        yield f"node last heard {_ago(item.heard_at, now)}"
    if item.claimed_at is not None:
        yield f"claimed {_ago(item.claimed_at, now)} by {item.instance} in boot {item.boot}"
    if item.revoked_at is not None:
        yield f"revoked {_ago(item.revoked_at, now)}"
    if item.seals_asked:
        yield f"asked {item.seals_asked} times for a seal: {item.seal or 'no answer yet'}"


def _commands(item: Escalation) -> Iterator[str]:
    node = item.node_name or item.node
    if item.subject is Subject.LEDGER:
        yield "triplane nodes"
        yield "triplane lift-stop --by YOUR-NAME"
    elif item.subject is Subject.DRIFT:
        yield "triplane events --type workload.drift --after 0"
        if item.node is not None and item.waits_for_person:
            yield f"# on {node}: see what runs there, and let it end"
    elif item.subject is Subject.DEVICE:
        yield f"# on {node}: end the process, or let it end"
        yield f"triplane cordon {node} --reason 'used outside Triplane'"
    elif item.reason.code is Code.NODE_BLIND:
        yield f"# on {node}: let what runs there end, then restart the machine"
    elif item.part is PartState.RELEASED:
        yield f"# on {node}: start the agent, or keep the machine off"
    else:
        yield from _for_part(item, f"{node}")


def _for_part(item: Escalation, node: str) -> Iterator[str]:
    if item.state in {DeviceState.SUSPECT, DeviceState.LOST}:
        yield f"# on {node}: start the agent again; a restart of the machine is proof, too"
    else:
        yield f"triplane explain {item.job}"
        yield f"# on {node}: end the processes of {item.instance}, or restart the machine"
    if item.part is PartState.CLAIMED:
        yield f"triplane drain {node} --reason 'silent'"
    if item.waits_for_person:
        yield f"triplane escalations settle {item.grant} {item.node} --reason 'what you saw'"


def _ago(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "never"
    seconds = max(int((now - moment).total_seconds()), 0)
    unit, size = next((pair for pair in _UNITS if seconds >= pair[1]), _UNITS[-1])
    return f"{seconds // size} {unit} ago"
