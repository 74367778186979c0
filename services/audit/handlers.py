"""What audit does in a turn: add what was heard to the chain; answer questions about it."""

from collections.abc import Collection, Sequence
from uuid import UUID

from pydantic import ValidationError

from libs.bus.batch import Remembering
from libs.bus.turn import Turn
from libs.errors import PoisonError
from libs.log import get_logger
from schemas.base import Envelope
from schemas.calls import AuditPage, AuditQuery
from schemas.codec import as_said
from services.audit import store
from services.audit.core import Head, chained, follows, page
from services.audit.settings import Settings

log = get_logger(__name__)


class Trail(Remembering):
    """The turns over facts. The trail holds each for good, so it is the memory of what was heard, too."""

    async def unseen(self, turn: Turn, ids: Collection[UUID]) -> set[UUID]:
        """Return what the chain does not hold. Planes and replicas take turns: the head of the chain is their lock."""
        await store.lock_head(turn.connection)
        return set(ids) - await store.known(turn.connection, ids)

    async def __call__(self, turn: Turn, facts: Sequence[Envelope]) -> None:
        """Add facts to the chain."""
        head = await store.head(turn.connection)
        await store.append(turn.connection, list(chained(head, map(as_said, facts), now=turn.now)))


class Handlers:
    """The turns over questions."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def query(self, turn: Turn, questions: Sequence[bytes]) -> Sequence[AuditPage]:
        """Return a page of entries for each question, and the state of the chain where it was asked for.

        Raises PoisonError for a question that cannot be read.
        """
        asked = [_question(body) for body in questions]
        broken_at = await self._broken_at(turn) if any(question.verify for question in asked) else None
        return [await self._page(turn, question, broken_at) for question in asked]

    async def _page(self, turn: Turn, question: AuditQuery, broken_at: int | None) -> AuditPage:
        limit = max(0, min(question.limit, self._settings.page_entries))
        entries = page(await store.find(turn.connection, question, limit=limit))
        if not question.verify:
            return AuditPage(entries=entries)
        return AuditPage(entries=entries, intact=broken_at is None, broken_at=broken_at)

    async def _broken_at(self, turn: Turn) -> int | None:
        """Return the number of the first entry that is not as it was written, or is gone. O(entries).

        Facts may be added meanwhile: what lies behind the end that was read first has to follow it, too.
        """
        end, head = await store.head(turn.connection), Head()
        async for entry in store.everything(turn.connection):
            if not follows(entry, head) or (entry.sequence == end.sequence and entry.head != end):
                break
            head = entry.head
        else:
            if head.sequence >= end.sequence:
                return None
        log.error("the audit trail is broken", sequence=head.sequence + 1)
        return head.sequence + 1


def _question(body: bytes) -> AuditQuery:
    try:
        return AuditQuery.model_validate_json(body)
    except ValidationError as error:
        raise PoisonError(f"not a question to the audit trail: {error.error_count()} faults") from error
