"""What follows from not hearing a node: an incident, later a worse one; and when it is rather we who are deaf."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from schemas.fleet import IncidentEscalated, IncidentOpened, Severity
from schemas.ids import IncidentId, derive
from schemas.reasons import Code, Layer, Reason, reason
from services.health.core.view import Node, Policy


@dataclass(frozen=True, slots=True)
class Fleet:
    """How many nodes talk, how many fell silent and are not lost yet, and when the fleet was last silent."""

    talking: int
    fallen: int
    silent_at: datetime | None = None

    def is_silent(self, policy: Policy) -> bool:
        """Say whether so many nodes fell silent together that the fault is likely ours.

        Nodes that were lost one by one are in neither number, so that old losses do not make us deaf for ever.
        """
        share = 100 * self.fallen > policy.fleet_silent_percent * (self.talking + self.fallen)
        return share and self.fallen >= policy.fleet_silent_nodes


def judge(node: Node, fleet: Fleet, policy: Policy, *, now: datetime) -> IncidentOpened | IncidentEscalated | None:
    """Return what the silence of a known node means now; None: nothing, or nothing new.

    While the fleet is silent incidents only open, as FleetSilent. Afterwards a node that is silent still has its
    whole time once more before it is lost: until then nobody could have heard it.
    """
    if node.beat is None or not node.known_version or node.retired:
        return None
    silent_seconds = (now - node.beat.at) / timedelta(seconds=1)
    if silent_seconds < policy.stale_seconds:
        return None
    why = _why(fleet, policy, int(silent_seconds), node.beat.at)
    if node.incident is None:
        return IncidentOpened(
            incident=IncidentId(derive("incident", node.id, node.incidents + 1)),
            cluster=node.cluster,
            node=node.id,
            severity=Severity.STALE,
            reason=why,
            since=node.beat.at,
        )
    if node.incident.severity is Severity.LOST or fleet.is_silent(policy) or not _is_lost(node, fleet, policy, now):
        return None
    return IncidentEscalated(
        incident=node.incident.id,
        cluster=node.cluster,
        node=node.id,
        severity=Severity.LOST,
        reason=why,
        since=node.incident.since,
    )


def _is_lost(node: Node, fleet: Fleet, policy: Policy, now: datetime) -> bool:
    assert node.beat is not None, node
    judged_from = max(node.beat.at, fleet.silent_at or node.beat.at)
    return now - judged_from >= timedelta(seconds=policy.lost_seconds)


def _why(fleet: Fleet, policy: Policy, silent_seconds: int, since: datetime) -> Reason:
    if fleet.is_silent(policy):
        text = f"{fleet.fallen} of {fleet.fallen + fleet.talking} nodes fell silent together: the fault is likely ours"
        numbers = {"fallen": fleet.fallen, "talking": fleet.talking, "silent_seconds": silent_seconds}
        return reason(Layer.FLEET, Code.FLEET_SILENT, text, **numbers).model_copy(update={"since": since})
    text = f"not heard for {silent_seconds} s"
    why = reason(Layer.FLEET, Code.HEARTBEAT_LOST, text, silent_seconds=silent_seconds)
    return why.model_copy(update={"since": since})
