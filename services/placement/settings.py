"""Placement's numbers, each with its unit and its reason. ``TRIPLANE_PLACEMENT_…`` sets one."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.placement.core.silence import Limits


class Settings(BaseSettings):
    """How often placement looks, and how long it waits before something follows."""

    model_config = SettingsConfigDict(env_prefix="TRIPLANE_PLACEMENT_", frozen=True, extra="ignore")

    cycle_seconds: float = 1.0  # a cycle is woken by what it waits for; this catches what woke another replica
    cycle_gangs: int = Field(default=200, ge=1)  # granted in one transaction: its locks are held for milliseconds
    pending_attempts: int = Field(default=10_000, ge=1)  # looked at in a whole look, the most urgent first
    urgent_attempts: int = Field(default=1_000, ge=1)  # looked at in the cycles between whole looks
    whole_look_seconds: float = Field(default=1.0, ge=0)  # between whole looks; only these say why attempts wait
    refusal_repeat_seconds: float = 10.0  # how old a waiting job's numbers get, as long as few wait
    refusals_per_second: float = Field(default=20.0, gt=0)  # numbers said again, of all that wait: never a flood
    start_deadline_seconds: int = 300  # pulling images and reading checkpoints comes after the claim
    late_start_grace_seconds: float = 10.0  # for claims that waited while placement was deaf, or its clock jumped
    suspect_after_seconds: int = 30  # three heartbeats
    node_lost_after_seconds: int = 300  # a reboot takes less
    cluster_lost_after_seconds: int = 900  # a network outage is mended rather than moved away from
    breaker_nodes: int = 8  # so many nodes silent at once, and half the fleet: the fault is rather ours
    stuck_after_seconds: int = 120  # past the grace: a kill that takes longer does not work
    deadline_seconds: float = 5.0  # how often deadlines are looked at
    seal_seconds: float = 1.0  # how often seals are asked for that are due; the end of a run asks at once
    seal_call_seconds: float = 5.0  # an agent looks at its devices in less
    seals_at_once: int = 64  # nodes asked at the same time
    renew_seconds: float = 10.0  # a third of a lease
    lease_seconds: int = 30  # three renewals
    pending_lease_seconds: int = 5  # gate to commit takes milliseconds
    unanswered_seconds: int = 60  # a fact that nobody answered for so long is said again
    sweep_seconds: float = Field(default=60.0, gt=0)  # how often such facts are looked for
    recovery_seconds: float = Field(default=2.0, gt=0)  # how often nodes are asked after the ledger went back
    reconcile_seconds: float = Field(default=30.0, gt=0)  # how often all records are compared
    reconcile_call_seconds: float = 5.0  # a page of charges or runs takes milliseconds
    drift_after_seconds: float = 90.0  # a sweep and its answer: what differs for longer is no fact on its way
    drifts_a_round: int = Field(default=100, ge=1)  # noted at once: a flood is told, not copied
    connections: int = 8  # turns of the durables, calls and loops at the same time

    @property
    def silence(self) -> Limits:
        """The limits of silence."""
        return Limits(
            self.suspect_after_seconds,
            self.node_lost_after_seconds,
            self.cluster_lost_after_seconds,
            self.breaker_nodes,
        )
