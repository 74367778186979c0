"""Rules L1 to L5 on real servers."""

import asyncio

import pytest
from redis import Redis

from libs.errors import UnavailableError
from libs.leases import Lease, Leases, Raised


async def test_l2_a_gang_takes_all_of_its_devices_or_none(leases: Leases) -> None:
    assert await leases.acquire_many({"g1": ["d1", "d2"]}) == {"g1": ()}
    assert await leases.acquire_many({"g2": ["d2", "d3"], "g3": ["d4"]}) == {"g2": ("d2",), "g3": ()}
    assert await leases.read_many(["d1", "d2", "d3", "d4"]) == {
        "d1": Lease("d1", "g1"),
        "d2": Lease("d2", "g1"),
        "d3": None,
        "d4": Lease("d4", "g3"),
    }


async def test_l3_the_same_gang_may_ask_again_after_a_lost_answer(leases: Leases) -> None:
    assert await leases.acquire_many({"g1": ["d1", "d2"]}) == {"g1": ()}
    assert await leases.acquire_many({"g1": ["d1", "d2"]}) == {"g1": ()}


async def test_l3_a_pending_lease_goes_after_its_five_seconds_and_a_full_one_after_thirty(
    leases: Leases, redis: Redis
) -> None:
    await leases.acquire_many({"g1": ["d1"]})
    await leases.raise_many([Lease("d2", "g2", 7)])
    assert 4_000 < redis.pttl("dev:d1") <= 5_000
    assert 29_000 < redis.pttl("dev:d2") <= 30_000


async def test_l2_a_key_only_rises_in_epoch(leases: Leases) -> None:
    await leases.acquire_many({"g1": ["d1"]})
    assert await leases.raise_many([Lease("d1", "g5", 5)]) == Raised()
    assert await leases.raise_many([Lease("d1", "g4", 4)]) == Raised(higher=(Lease("d1", "g5", 5),))
    assert await leases.raise_many([Lease("d1", "g6", 6)]) == Raised()
    assert await leases.read_many(["d1"]) == {"d1": Lease("d1", "g6", 6)}


async def test_l2_epochs_beyond_the_exact_numbers_of_lua_still_rise(leases: Leases) -> None:
    high = 2**62 + 1
    await leases.raise_many([Lease("d1", "g1", high)])
    assert await leases.raise_many([Lease("d1", "g0", high - 1)]) == Raised(higher=(Lease("d1", "g1", high),))
    assert await leases.raise_many([Lease("d1", "g2", high + 1)]) == Raised()


async def test_l2_a_live_lease_is_not_taken_by_a_gang(leases: Leases) -> None:
    await leases.raise_many([Lease("d1", "g1", 3)])
    assert await leases.acquire_many({"g2": ["d1"]}) == {"g2": ("d1",)}


async def test_l2_giving_back_compares_grant_and_epoch(leases: Leases) -> None:
    await leases.raise_many([Lease("d1", "g1", 3), Lease("d2", "g2", 4)])
    assert await leases.release_many([Lease("d1", "g1"), Lease("d1", "g2", 3), Lease("d2", "g2", 4)]) == 1
    assert await leases.read_many(["d1", "d2"]) == {"d1": Lease("d1", "g1", 3), "d2": None}


async def test_l4_renewal_writes_what_is_missing_and_says_so(leases: Leases, redis: Redis) -> None:
    live = [Lease(f"d{n}", f"g{n}", n + 1) for n in range(1_300)]
    assert await leases.rebuild(live) == Raised(missing=tuple(lease.device for lease in live))
    assert await leases.verify(live) == ()
    redis.delete("dev:d7")
    assert await leases.verify(live) == (live[7],)
    assert await leases.renew_many(live) == Raised(missing=("d7",))
    redis.flushall()
    await leases.rebuild(live)
    assert await leases.verify(live) == ()


async def test_l5_an_epoch_above_the_ledgers_is_a_result_of_its_own(leases: Leases) -> None:
    await leases.raise_many([Lease("d1", "later", 41)])
    assert await leases.renew_many([Lease("d1", "restored", 40), Lease("d2", "g2", 12)]) == Raised(
        missing=("d2",), higher=(Lease("d1", "later", 41),)
    )


async def test_l5_one_epoch_given_twice_is_told_too(leases: Leases) -> None:
    await leases.raise_many([Lease("d1", "first", 41)])
    assert await leases.renew_many([Lease("d1", "second", 41)]) == Raised(higher=(Lease("d1", "first", 41),))


async def test_a_gang_of_several_scripts_gives_everything_back_when_one_is_refused(leases: Leases) -> None:
    devices = [f"d{n:04d}" for n in range(1_024)]
    await leases.acquire_many({"small": ["d0700"]})
    assert await leases.acquire_many({"huge": devices}) == {"huge": ("d0700",)}
    found = await leases.read_many(devices)
    assert {device for device, lease in found.items() if lease} == {"d0700"}
    await leases.release_many([Lease("d0700", "small")])
    assert await leases.acquire_many({"huge": devices}) == {"huge": ()}


async def test_scripts_come_back_after_the_server_forgot_them(leases: Leases, redis: Redis) -> None:
    await leases.acquire_many({"g1": ["d1"]})
    redis.script_flush()
    assert await leases.acquire_many({"g2": ["d1"]}) == {"g2": ("d1",)}


async def test_redis_away_is_said_as_unavailable() -> None:
    away = Leases("redis://127.0.0.1:1/0", socket_seconds=0.2)
    with pytest.raises(UnavailableError, match="leases"):
        await away.acquire_many({"g1": ["d1"]})
    await away.close()


async def test_a_question_that_was_given_up_leaves_its_answer_to_nobody(leases: Leases, redis: Redis) -> None:
    await leases.acquire_many({"warm": ["warm"]})
    redis.client_pause(300, all=True)
    asked = asyncio.ensure_future(leases.acquire_many({"a": ["d1", "d2"]}))
    await asyncio.sleep(0)  # it is out
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert await leases.acquire_many({"b": ["d3"]}) == {"b": ()}
    assert await leases.acquire_many({"c": ["d3", "d4"]}) == {"c": ("d3",)}


async def test_gangs_that_ask_at_once_get_each_its_own_answer(leases: Leases) -> None:
    await leases.acquire_many({"first": [f"d{number}" for number in range(0, 40, 2)]})
    asked = await asyncio.gather(*(leases.acquire_many({f"g{number}": [f"d{number}"]}) for number in range(40)))
    expected = [{f"g{number}": () if number % 2 else (f"d{number}",)} for number in range(40)]
    assert asked == expected


async def test_a_connection_that_was_cut_is_made_anew(leases: Leases, redis: Redis) -> None:
    await leases.acquire_many({"a": ["d1"]})
    redis.client_kill_filter(_type="normal", skipme=True)
    assert await leases.acquire_many({"b": ["d2"]}) == {"b": ()}


async def test_a_server_that_restarts_between_script_and_question_is_asked_again(lease_url: str, redis: Redis) -> None:
    class Unlucky(Leases):
        restarts = 2

        async def _load(self, script: str) -> str:
            digest = await super()._load(script)
            if self.restarts:
                self.restarts -= 1
                redis.script_flush()
            return digest

    unlucky = Unlucky(lease_url)
    assert await unlucky.acquire_many({"g1": ["d1"]}) == {"g1": ()}
    unlucky.restarts = 1_000
    with pytest.raises(UnavailableError, match="forgotten"):
        await unlucky.acquire_many({"g2": ["d2"]})
    await unlucky.close()
