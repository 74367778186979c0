"""When nodes were last heard, in a service's table ``nodes (heard_at)``, after the store's clock was put right."""

from typing import Final

from libs.pg.pool import Connection

# who was heard since the clock jumped has its right time already: it would be ahead of now, or is not
_SHIFT: Final = """
    UPDATE nodes SET heard_at = least(heard_at + make_interval(secs => $1), now()) WHERE $1 > 0 OR heard_at > now()
"""
_PUT_BACK: Final = "UPDATE nodes SET heard_at = now() WHERE heard_at > now() + interval '5 seconds'"


async def shift(connection: Connection, seconds: float) -> None:
    """Correct the times after a jump of the clock by so much."""
    await connection.execute(_SHIFT, seconds)


async def put_back(connection: Connection) -> None:
    """Let what is ahead be of now: the clock was put back while nobody looked."""
    await connection.execute(_PUT_BACK)
