"""The door where shims ask for leave: is the device clear, and does the ledger record the start?"""

import asyncio
import contextlib
import json
import os
import socket
import struct
from typing import Any, Final
from uuid import uuid4

from libs.errors import RefusedError, UnavailableError
from libs.log import get_logger
from libs.questions import answer
from libs.service import Service
from schemas.calls import Claim, ClaimAnswer
from schemas.reasons import Reason
from services.agent.core.identity import Identity
from services.agent.core.proofs import not_clear_for_start
from services.agent.core.runs import Instance, devices_of
from services.agent.handlers.looks import Looks
from services.agent.handlers.notices import Notices
from services.agent.settings import Settings
from services.agent.store.folder import RunFolder
from services.agent.store.node import Node

QUESTION_SECONDS: Final = 5.0  # a shim asks as soon as it is connected
LOOK_AGAIN_SECONDS: Final = 0.1
PEER: Final = struct.Struct("3i")
log = get_logger(__name__)


class Door:
    """Answers shims over a socket in the runtime folder. No answer is no leave; the shim asks again."""

    def __init__(
        self, service: Service, identity: Identity, node: Node, notices: Notices, settings: Settings, *, looks: Looks
    ) -> None:
        self._service, self._identity, self._node = service, identity, node
        self._notices, self._settings, self._looks = notices, settings, looks
        self._server: asyncio.Server | None = None
        self._visitors: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def open(self) -> None:
        """Listen, however long the folder's path is: the kernel takes 107 bytes, so the folder goes by number."""
        path = self._node.folder.socket
        path.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)
        path.chmod(0o600)
        self._server = await asyncio.start_unix_server(self._welcome, sock=listener)

    async def close(self) -> None:
        """Send everybody away; the shims will ask the next agent."""
        if self._server is not None:
            self._server.close()
        for writer in self._visitors.values():
            writer.close()
        if self._visitors:
            await asyncio.wait(set(self._visitors))

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._attend(reader, writer))
        self._visitors[task] = writer
        task.add_done_callback(self._visitors.pop)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TimeoutError):
            async with asyncio.timeout(QUESTION_SECONDS):
                asked = json.loads(await reader.readline())
            run, instance = self._asker(asked, writer)
            reply = await self._answer(run, instance, reader)
            if writer.is_closing():  # sent away meanwhile: it asks the next agent
                return
            writer.write(json.dumps(reply).encode() + b"\n")
            if "start" in reply and await reader.readline():
                self._notices.wake()
        writer.close()

    def _asker(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> tuple[RunFolder, Instance]:
        """Return whose question this is. Raises ValueError for anyone but the shim of that very run."""
        run = self._node.folder.of_grant(asked["ask"], asked["epoch"])
        instance = run.instance if run else None
        peer: socket.socket = writer.get_extra_info("socket")
        pid, _, _ = PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
        if run is None or instance is None or (instance.id, instance.pid) != (asked["instance"], pid):
            raise ValueError("a question of no shim of ours")
        return run, instance

    async def _answer(self, run: RunFolder, instance: Instance, asker: asyncio.StreamReader) -> dict[str, Any]:
        """Return ``start``, ``refused`` or nothing. First the node's own proofs, then the ledger's record (G3, R2)."""
        if self._node.folder.blind:
            return _refused(self._notices.blindness())
        if self._node.folder.fresh:
            return {}  # the ledger has not yet said whether starts of this boot could be hidden here (G6)
        why = await self._not_clear(run, instance)
        if why:
            return _refused(why)
        if asker.at_eof():  # gone, and asks again: a leave would come to nobody
            return {}
        try:
            return await self._claim(run, instance)
        except (UnavailableError, RefusedError) as error:
            log.warning("no word of the ledger", run=run.path.name, why=str(error))
            return {}

    async def _not_clear(self, run: RunFolder, instance: Instance) -> Reason | None:
        """Look until the devices are clear or the time for it is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.clear_wait_seconds
        while True:
            glance = await self._looks.holders()
            why = not_clear_for_start(await asyncio.to_thread(self._node.looks_for_start, run, instance, glance))
            if why is None or loop.time() >= deadline:
                return why
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _claim(self, run: RunFolder, instance: Instance) -> dict[str, Any]:
        order, nonce = run.order, uuid4().hex
        claim = Claim(
            grant=order.grant,
            epoch=order.epoch,
            node=self._identity.node,
            cluster=order.cluster or self._identity.cluster,
            boot=self._identity.boot,
            instance=instance.id,
            nonce=nonce,
            devices=devices_of(order),
        )
        body = await self._service.call("call.grant.claim", claim, timeout=self._settings.claim_seconds)
        said = answer(ClaimAnswer, body, "call.grant.claim")
        if (said.grant, said.nonce) != (order.grant, nonce):
            return {}
        log.info("claim", run=order.run, epoch=order.epoch, granted=said.granted)
        if said.granted:
            return {"start": instance.id}
        return _refused(said.reason) if said.reason else {}


def _refused(reason: Reason) -> dict[str, Any]:
    return {"refused": reason.model_dump(mode="json")}
