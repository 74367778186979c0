"""A ledger in a line: it answers agents as the grant protocol says, and asks them for seals."""

from dataclasses import dataclass, field
from uuid import uuid4

from libs.bus.memory import MemoryBus, MemoryServer
from libs.config import Infrastructure
from libs.errors import UnavailableError
from libs.service import Service
from schemas.calls import (
    Claim,
    ClaimAnswer,
    Find,
    FindAnswer,
    Hello,
    HelloAnswer,
    HolderVerdict,
    Launch,
    LaunchAnswer,
    LaunchOrder,
    LaunchReply,
    Logs,
    LogsAnswer,
    Seal,
    SealAnswer,
    Stop,
    StopAnswer,
    Verdict,
)
from schemas.ids import GrantId, NodeId
from schemas.reasons import Code, Layer, reason


@dataclass
class Book:
    """``claimed`` maps a part to who claimed it (instance, boot); a grant in ``over`` is refused."""

    claims: list[Claim] = field(default_factory=list)
    claimed: dict[tuple[GrantId, NodeId], tuple[str, str]] = field(default_factory=dict)
    over: set[GrantId] = field(default_factory=set)
    silent: bool = False

    async def claim(self, claim: Claim) -> ClaimAnswer:
        """Answer as R2 says."""
        self.claims.append(claim)
        if self.silent:
            raise UnavailableError("the ledger is away")
        who = (claim.instance, claim.boot)
        code = Code.GRANT_OVER if claim.grant in self.over else None
        if code is None and self.claimed.setdefault((claim.grant, claim.node), who) != who:
            code = Code.ALREADY_STARTED
        why = reason(Layer.PLACEMENT, code) if code else None
        return ClaimAnswer(grant=claim.grant, nonce=claim.nonce, granted=code is None, reason=why)


@dataclass(kw_only=True)
class Ledger(Book):
    """A book that answers on a bus. ``deaf``: hellos are heard, and their answers get lost; ``boots`` it knows."""

    service: Service
    hellos: list[Hello] = field(default_factory=list)
    verdicts: dict[GrantId, Verdict] = field(default_factory=dict)
    boot_known: bool = False
    deaf: bool = False
    boots: int = 0

    def answer(self) -> None:
        """Begin to answer agents."""
        self.service.answer_plain("call.grant.claim", self._claim)
        self.service.answer_plain("call.grant.hello", self._hello)

    async def launch(self, order: LaunchOrder) -> LaunchReply:
        """Ask a node to start a run."""
        body = await self.service.call(f"call.node.{order.node}.launch", Launch(orders=(order,)), timeout=30)
        return LaunchAnswer.model_validate_json(body).replies[0]

    async def find(self, order: LaunchOrder) -> FindAnswer:
        """Ask a node what became of a run."""
        body = await self.service.call(f"call.node.{order.node}.find", Find(runs=(order.run,)), timeout=30)
        return FindAnswer.model_validate_json(body)

    async def stop(self, order: LaunchOrder, grace_seconds: int = 1) -> StopAnswer:
        """Revoke a grant and ask its node to stop the run."""
        self.over.add(order.grant)
        stop = Stop(run=order.run, grant=order.grant, epoch=order.epoch, grace_seconds=grace_seconds)
        return StopAnswer.model_validate_json(await self.service.call(f"call.node.{order.node}.stop", stop, timeout=30))

    async def seal(self, order: LaunchOrder, *, stop: bool = True, grace_seconds: int = 1) -> SealAnswer:
        """Revoke a grant and ask its node for the proof of release."""
        self.over.add(order.grant)
        seal = a_seal(order, stop=stop, grace_seconds=grace_seconds)
        body = await self.service.call(f"call.node.{order.node}.seal", seal, timeout=30)
        return SealAnswer.model_validate_json(body)

    async def logs(self, order: LaunchOrder, rank: int = 0, offset: int = 0, limit: int = 65_536) -> LogsAnswer:
        """Ask for a piece of a replica's output."""
        asked = Logs(run=order.run, rank=rank, offset=offset, limit=limit)
        return LogsAnswer.model_validate_json(
            await self.service.call(f"call.node.{order.node}.logs", asked, timeout=30)
        )

    async def _claim(self, body: bytes) -> ClaimAnswer:
        return await self.claim(Claim.model_validate_json(body))

    async def _hello(self, body: bytes) -> HelloAnswer:
        hello = Hello.model_validate_json(body)
        self.hellos.append(hello)
        if self.deaf:
            raise UnavailableError("the answer got lost")
        verdicts = (
            HolderVerdict(grant=each.grant, verdict=self.verdicts.get(each.grant, Verdict.KEEP))
            for each in hello.holders
        )
        boots = None if hello.boots == self.boots else self.boots
        return HelloAnswer(boot_known=self.boot_known, verdicts=tuple(verdicts), boots=boots)


def a_ledger(server: MemoryServer, infrastructure: Infrastructure) -> Ledger:
    """A ledger on a bus in memory, not yet started."""
    return Ledger(
        service=Service(f"placement-{uuid4().hex[:6]}", infrastructure, postgres=False, bus=MemoryBus(server))
    )


def a_seal(order: LaunchOrder, *, stop: bool, grace_seconds: int = 1) -> Seal:
    """The question for the proof of release of an order's part."""
    return Seal(
        run=order.run,
        grant=order.grant,
        epoch=order.epoch,
        node=order.node,
        devices=tuple(device.device for replica in order.replicas for device in replica.devices),
        revocation=2,
        stop=stop,
        grace_seconds=grace_seconds,
    )
