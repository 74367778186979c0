"""The NATS client and its broker: steady where a server cuts the connection as it is made, and where a ping is sent."""

from asyncio import Future, StreamWriter, get_running_loop
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from faststream.nats import NatsBroker
from nats.aio.client import PING_PROTO, Client, Srv
from nats.aio.transport import TcpTransport

from libs.errors import says_cut


class SteadyTransport(TcpTransport):
    """Says of a cut connection what the client knows, a ConnectionError; of uvloop's word for it the client would die.

    A client that dies so while it reconnects is never connected again.
    """

    def write(self, payload: bytes) -> None:
        """Send bytes. Raises ConnectionError."""
        with self._cut_known() as writer:
            writer.write(payload)

    def writelines(self, payload: list[bytes]) -> None:
        """Send many bytes. Raises ConnectionError."""
        with self._cut_known() as writer:
            writer.writelines(payload)

    async def drain(self) -> None:
        """Wait until what was sent is on its way. Raises ConnectionError."""
        with self._cut_known() as writer:
            await writer.drain()

    @contextmanager
    def _cut_known(self) -> Iterator[StreamWriter]:
        assert self._io_writer is not None, "not connected"
        try:
            yield self._io_writer
        except RuntimeError as error:
            if says_cut(error):
                raise ConnectionResetError("the connection was cut") from error
            raise


class SteadyClient(Client):
    """Speaks over steady transports, and lets no ping overtake what was said before it.

    So ``flush`` means what it says: the server has taken it all, subscriptions too.
    """

    async def _send_ping(self, future: Future[Any] | None = None) -> None:
        self._pongs.append(future or get_running_loop().create_future())
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    async def _connect_to_server(self, s: Srv) -> None:
        await super()._connect_to_server(s)
        if type(self._transport) is TcpTransport:
            self._transport.__class__ = SteadyTransport  # the client has no other way to name it


async def connected(servers: str | list[str], **options: Any) -> SteadyClient:
    """Return a connected client; the options are those of ``nats.connect``."""
    client = SteadyClient()
    await client.connect(servers, **options)
    return client


class SteadyBroker(NatsBroker):
    """Connects a steady client."""

    async def _connect(self) -> Client:
        client = await connected(**self._connection_kwargs)
        self.config.connect(client)
        return client
