"""What clients and gateway say to each other about nodes that move."""

from datetime import datetime

from pydantic import ConfigDict

from libs.client.models import Model, Words


class MoveWish(Model):
    """Let a node move to another cluster. ``owner``: who stands for it; left out: who asks. ``stop``: end what runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    to: Words
    reason: Words
    owner: Words | None = None
    stop: bool = False


class MoveEnd(Model):
    """Why a move is given up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: Words


class MoveLine(Model):
    """A move. ``told``: what it waits for, in words; ``code``: why it does not go on, None: it does.

    ``escalated``: it has waited for too long, and ``commands`` settle it. ``already``: it was under way when asked for.
    """

    id: str
    node: str
    node_name: str
    source: str
    target: str
    owner_epoch: int
    state: str
    told: str
    code: str | None
    owner: str
    reason: str
    stop: bool
    requested_at: datetime
    since: datetime
    age_seconds: int
    escalated: bool
    commands: tuple[str, ...]
    already: bool = False
