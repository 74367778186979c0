"""One connection that is kept for single questions: a pool costs more than the script that it asks."""

import asyncio
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as CutError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as SlowError

from libs.errors import says_cut


class Line:
    """Puts one question after the other over a connection of its own, beside the pool of the same client."""

    def __init__(self, redis: Redis) -> None:
        self._pool = redis.connection_pool
        self._connection: AbstractConnection | None = None
        self._turn = asyncio.Lock()

    @property
    def busy(self) -> bool:
        """Whether a question is out: a server that hangs must not make others wait here."""
        return self._turn.locked()

    async def ask(self, *words: str | int) -> Any:
        """Return the answer to a command. Raises RedisError."""
        async with self._turn:
            try:
                return await self._put(words)
            except (CutError, SlowError):  # such as an idle connection that was cut; every question may be put twice
                return await self._put(words)

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.disconnect()

    async def _put(self, words: tuple[str | int, ...]) -> Any:
        """Leave no answer behind for the next question, also when this one is given up."""
        if self._connection is None:
            self._connection = self._pool.connection_class(**self._pool.connection_kwargs)
        answered = False
        try:
            await self._connection.send_packed_command(self._connection.pack_command(*words))
            answer = await self._connection.read_response()
            answered = True
        except ResponseError:
            answered = True
            raise
        except RuntimeError as error:
            if says_cut(error):
                raise CutError("the connection is gone") from error
            raise
        finally:
            if not answered:
                await self._connection.disconnect(nowait=True)
        return answer
