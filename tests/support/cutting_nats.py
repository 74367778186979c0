"""Something that listens as NATS does, and cuts connections while they are being made."""

import json
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

INFO = (
    b"INFO %b\r\n"
    % json.dumps({"server_id": "x", "version": "2.10.0", "max_payload": 1 << 20, "headers": True}).encode()
)
PAUSES = (0.0, 0.0, 0.0001, 0.0003, 0.001)


@contextmanager
def cutting(cuts: int, heard: list[bytes] | None = None) -> Iterator[str]:
    """Listen, and yield the url; of so many connections after the first every other one is cut after the greeting.

    ``heard`` gets the lines that were said, of all connections; with -1 cuts none is cut.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, cuts, [] if heard is None else heard), daemon=True)
        thread.start()
        yield f"nats://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def _serve(listener: socket.socket, cuts: int, heard: list[bytes]) -> None:
    dice, pause, number = random.Random(1), threading.Event(), 0
    while True:
        try:
            line, _ = listener.accept()
        except OSError:
            return
        with line, suppress(OSError):
            last = number > cuts
            _greet(line, heard, greet_only=bool(number % 2) and not last, stays=last)
            number += 1
            pause.wait(dice.choice(PAUSES))
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end


def _greet(line: socket.socket, heard: list[bytes], *, greet_only: bool, stays: bool) -> None:
    line.sendall(INFO)
    if greet_only:
        return
    with line.makefile("rb") as words:
        for word in words:
            heard.append(word)
            if word.startswith(b"PING"):
                line.sendall(b"PONG\r\n")
            if word.startswith(b"SUB") and not stays:
                return
