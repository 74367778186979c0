"""What the substrate alone does in the same minute: raw JetStream publishes and pulls of bodies as long as a fact."""

import asyncio
import time

from nats.js.api import ConsumerConfig, StreamConfig

from benchmarks.pipeline.stack import Stack
from libs.bus.steady import connected

MESSAGES, WINDOW, BODY = 10_000, 256, b"x" * 541


async def rate(stack: Stack) -> float:
    """Return messages a second, published with receipts in windows and then pulled and acknowledged in batches."""
    users = stack.secrets["nats"]
    assert isinstance(users, dict)
    line = await connected(f"nats://127.0.0.1:{stack.ports['nats']}", user="triplane", password=users["triplane"])
    jetstream = line.jetstream()
    await jetstream.add_stream(StreamConfig(name="ANCHOR", subjects=["anchor.>"]))
    started = time.perf_counter()
    for _ in range(0, MESSAGES, WINDOW):
        await asyncio.gather(*(jetstream.publish("anchor.a", BODY) for _ in range(WINDOW)))
    puller = await jetstream.pull_subscribe("anchor.>", "anchor", config=ConsumerConfig(max_ack_pending=MESSAGES))
    taken = 0
    while taken < MESSAGES:
        batch = await puller.fetch(WINDOW, timeout=5)
        await asyncio.gather(*(message.ack() for message in batch))
        taken += len(batch)
    spent = time.perf_counter() - started
    await jetstream.delete_stream("ANCHOR")
    await line.close()
    return taken / spent
