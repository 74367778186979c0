"""The stack's own gateway: how to reach it, and handing it documents."""

from collections.abc import Mapping

import yaml

from deploy.embedded.failures import BadDocumentError
from deploy.embedded.files import write_private
from deploy.embedded.state import StateFolder
from libs.client import calls
from libs.client.client import AsyncClient
from libs.client.config import CLIENT_FILE, Access, remember_state


def access_of(address: str, token: str) -> Access:
    """Return how to reach it as somebody."""
    return Access(address, token, "the stack itself")


def address_of(ports: Mapping[str, int]) -> str:
    """Return where it listens."""
    return f"http://127.0.0.1:{ports['gateway']}"


def tell_clients(folder: StateFolder, access: Access) -> None:
    """Write where commands find address and token (mode 0600), and that this stack is the newest here."""
    write_private(folder.root / CLIENT_FILE, yaml.safe_dump({"address": access.address, "token": access.token}))
    try:
        remember_state(folder.root)
    except OSError as error:
        print(f"Commands need --state or TRIPLANE_STATE={folder.root}: {error.filename} cannot be written.")


async def declare(client: AsyncClient, text: str, *, dry_run: bool = False) -> None:
    """Hand in documents; all must be taken. Raises BadDocumentError with every fault, ClientError.

    ``dry_run``: they are checked only, so that the good ones among bad ones change nothing.
    """
    answer = await client.ask(calls.submit(text.encode(), dry_run=dry_run))
    faults = [f"{result.kind} {result.name}: {fault}" for result in answer.results for fault in result.faults]
    if faults:
        raise BadDocumentError("\n".join(faults))
