"""What only a real NATS shows: how streams are kept, what the server itself tells, and its memory for message ids."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from nats.js.api import DiscardPolicy, StorageType
from nats.js.errors import NotFoundError
from pydantic import BaseModel

from libs.bus.jetstream import DELETED_SECONDS, JetStreamBus
from libs.bus.streams import stream_config
from libs.errors import UnavailableError
from libs.pg.pool import Pool
from schemas.catalog import STREAMS
from schemas.ids import fact_id
from tests.support.eventually import eventually
from tests.support.shell_services import SUBMITTED, admission, gateway, submitted, wish
from tests.support.shell_worlds import RealWorld


class Echo(BaseModel):
    """An answer."""

    text: str


async def test_streams_are_kept_on_disk_and_bounded(real: RealWorld) -> None:
    async with real.running(admission(real)):
        info = await real.operator.jetstream().stream_info("WORKLOAD")
    config = info.config
    assert (config.storage, config.discard, config.duplicate_window) == (StorageType.FILE, DiscardPolicy.OLD, 120)
    assert (config.max_age, config.max_bytes, config.max_msg_size) == (7 * 86_400, 1 << 30, 1 << 20)


async def test_the_server_s_index_of_subjects_does_not_grow_with_what_facts_are_about(real: RealWorld) -> None:
    async with real.running(admission(real)):
        await real.say(*(submitted(f"job-{number}") for number in range(50)))
        state = (await real.operator.jetstream().stream_info("WORKLOAD", subjects_filter=f"{SUBMITTED}.>")).state
    assert state.subjects == {f"{SUBMITTED}.acme": 50}


async def test_a_durable_delivers_a_bounded_number_of_times_and_never_backs_off_by_itself(real: RealWorld) -> None:
    async with real.running(admission(real, ack_wait_seconds=7)):
        info = await real.operator.jetstream().consumer_info("WORKLOAD", "admission-workload")
    config = info.config
    assert config is not None
    assert (config.max_deliver, config.max_ack_pending, config.ack_wait, config.backoff) == (8, 1_000, 7, None)


async def test_streams_and_durables_are_changed_to_what_the_catalogue_says(real: RealWorld) -> None:
    operator = real.operator.jetstream()
    stale = stream_config(STREAMS[0])
    stale.max_age = 600
    await operator.add_stream(stale)
    async with real.running(admission(real, ack_wait_seconds=7)):
        assert (await operator.stream_info("WORKLOAD")).config.max_age == 7 * 86_400
    async with real.running(admission(real, ack_wait_seconds=9)):
        info = await operator.consumer_info("WORKLOAD", "admission-workload")
    assert info.config is not None
    assert info.config.ack_wait == 9


async def test_a_stream_is_made_again_only_when_the_server_has_deleted_its_files(real: RealWorld) -> None:
    """NATS forgets the name first and moves the folder away later: a stream made between has no files any more."""
    async with real.running(admission(real)):
        before = (await real.operator.jetstream().stream_info("WORKLOAD")).created
        await real.delete_stream("WORKLOAD")
        deleted = datetime.now(UTC)
        created = await eventually(lambda: _created(real, "WORKLOAD"))
    assert before is not None
    assert created is not None
    assert before < deleted < created - timedelta(seconds=DELETED_SECONDS - 0.1)


async def test_a_client_that_has_given_up_ends_its_process(real: RealWorld) -> None:
    """As it does when a server turns it away once: it closes for good, and the server is there again."""
    service = admission(real)
    async with real.running(service):
        assert isinstance(service.bus, JetStreamBus)
        await service.bus.client.close()
        with pytest.raises(UnavailableError, match="the client makes none"):
            await asyncio.wait_for(service.bus.died(stuck_seconds=0.2), timeout=30)


async def test_a_server_that_stays_away_ends_no_process(real: RealWorld) -> None:
    service = admission(real)
    async with real.running(service):
        assert isinstance(service.bus, JetStreamBus)
        await real.bus_away()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(service.bus.died(stuck_seconds=0.2), timeout=1.5)
        await real.bus_back()


async def test_a_message_that_every_process_died_of_becomes_a_dead_letter(real: RealWorld) -> None:
    operator = real.operator.jetstream()
    async with real.running(admission(real, ack_wait_seconds=0.2)):
        pass
    await real.say(submitted("killer"))
    dying = await operator.pull_subscribe_bind(durable="admission-workload", stream="WORKLOAD")
    for _ in range(8):
        await dying.fetch(1, timeout=30)
    async with real.running(admission(real, ack_wait_seconds=0.2)):
        (letter,) = await eventually(lambda: real.stored("DEAD"))
    assert letter.subject == "dead.admission.admission-workload"
    assert letter.headers["Triplane-Kind"] == "crashed"
    assert letter.headers["Triplane-Origin"].startswith("WORKLOAD/1/")


async def test_s51_a_stream_that_remembers_an_id_it_has_lost_gets_the_fact_under_a_new_one(real: RealWorld) -> None:
    sayer = gateway(real)
    async with real.running(sayer):
        await real.say(submitted("one"))
        await real.delete_last("WORKLOAD", 1)  # the id is still in the stream's memory
        await wish(sayer, "one")
        (stored,) = await eventually(lambda: real.stored("WORKLOAD"))
        assert stored.headers["Nats-Msg-Id"] == f"{fact_id(SUBMITTED, 'one', 1)}.2"
        await eventually(lambda: _all_sent(sayer.pool))


async def test_s51_a_broker_that_restarts_between_two_sends_costs_no_second_effect(real: RealWorld) -> None:
    async with real.running(admission(real)):
        await real.say(submitted("one"))
        await eventually(lambda: _effects(real, ["one"]))
        await real.bus_away()
        await real.bus_back()
        await real.say(submitted("one"))
        await real.say(submitted("one"), time=2)  # beyond the window the id is new to the stream
        await real.say(submitted("two"))
        await eventually(lambda: _effects(real, ["one", "two"]))


async def test_a_service_may_not_say_what_another_owns(real: RealWorld) -> None:
    service = admission(real)
    async with real.running(service):
        with pytest.raises(Exception, match="not stored"):
            await asyncio.wait_for(service.publish([submitted("forged")]), 30)
        assert await real.stored("WORKLOAD") == []


async def test_a_service_that_waits_for_a_server_can_be_told_to_end(real: RealWorld) -> None:
    await real.bus_away()
    service = admission(real)
    running = asyncio.ensure_future(service.run())
    await eventually(lambda: service.probes.port)
    service.end()
    await asyncio.wait_for(running, 30)
    await real.bus_back()


async def test_readiness_tells_which_server_is_away(real: RealWorld) -> None:
    service = admission(real)
    async with real.running(service):
        assert service.missing() == []
        await real.store_away()
        await eventually(lambda: service.missing() == ["Postgres is away"])
        await real.bus_away()
        await eventually(lambda: service.missing() == ["NATS is away", "Postgres is away"])
        await real.store_back()
        await real.bus_back()
        await eventually(lambda: service.missing() == [], seconds=30)


async def _effects(real: RealWorld, expected: list[str]) -> bool:
    assert await real.effects("admission") == expected
    return True


async def _all_sent(pool: Pool) -> bool:
    count = await pool.fetchval("SELECT count(*) FROM outbox WHERE sent_at IS NULL")
    assert count == 0
    return True


@pytest.mark.parametrize("within", ["soon", "", "nan", "-1", "1e400", "\u00e9"])
async def test_a_patience_that_is_no_number_of_seconds_counts_as_none_said(real: RealWorld, within: str) -> None:
    service = real.service("audit")

    async def echo(question: bytes) -> Echo:
        return Echo(text=question.decode())

    service.answer_plain("call.audit.query", echo)
    async with real.running(service):
        answer = await real.operator.request("call.audit.query", b"a", timeout=30, headers={"Triplane-Within": within})
    assert answer.data == b'{"text":"a"}'


async def _created(world: RealWorld, stream: str) -> datetime | None:
    try:
        info = await world.operator.jetstream().stream_info(stream)
    except NotFoundError:
        return None
    return info.created
