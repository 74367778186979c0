"""S05 in the ledger itself: its wall takes exactly the lines that fit on a device, whoever writes them."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest

from libs.config import Infrastructure
from libs.pg import migrate
from libs.resources.span import STRIDE, UNITS_PER_MIB, Device, Lack, Range, Span, driver_reserve, whole
from services.placement.store.grants import span_text
from tests.support.placements import ledger
from tests.support.servers import Servers
from tests.support.shell_worlds import real_world

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
MEMORY_MIB = 46_068
ASK_MIB = 2_000 * UNITS_PER_MIB
DEVICE = """
INSERT INTO devices (device, node, index, uuid, model, memory_mib, owner) VALUES ($1, 'n1', 0, '', '', $2, 'demo')
RETURNING ordinal
"""
LINE = "INSERT INTO lines (kind, node, device, span) VALUES ('hold', 'n1', $1, $2::text::int8multirange)"
OLD_LINE = """
INSERT INTO lines (kind, node, device, span, live)
SELECT 'hold', node, device, int8multirange(int8range(ordinal * 1000, ordinal * 1000 + 1000)), $1 FROM devices
"""
SPANS = "SELECT l.span::text FROM lines l JOIN devices d ON d.device = l.device ORDER BY l.live, d.ordinal"
VERSIONS = Path(migrate.__file__).parents[2] / "services/placement/migrations/versions"


@pytest.fixture
async def rows(surroundings: Infrastructure) -> AsyncIterator[Rows]:
    async with ledger(surroundings) as opened:
        yield opened


async def a_device(rows: Rows, name: str = "d1", *, memory_mib: int = MEMORY_MIB, reserve_percent: int = 0) -> Device:
    """Put a device into the ledger, with a line for what its driver keeps."""
    ordinal = await rows.fetchval(DEVICE, name, memory_mib)
    device = Device(ordinal, memory_mib, driver_reserve(memory_mib, reserve_percent))
    if device.reserve():
        await write(rows, device.reserve(), name)
    return device


async def write(rows: Rows, span: Span, name: str = "d1") -> None:
    await rows.execute(LINE, name, span_text(span))


async def fill(rows: Rows, device: Device, asks: list[int]) -> list[Lack]:
    """Write each ask where the arithmetic says, and return the refusals. Each goes in once, as if two had seen it."""
    taken: list[Span] = []
    refused: list[Lack] = []
    for asked in asks:
        span = device.share(asked, taken)
        if isinstance(span, Lack):
            refused.append(span)
            continue
        await write(rows, span)
        with pytest.raises(asyncpg.ExclusionViolationError):
            await write(rows, span)
        taken.append(span)
    return refused


async def refuse_everywhere(rows: Rows, device: Device, asked: int) -> None:
    """Try a refused ask over the whole device, past its memory and into the next one: no place takes it."""
    base, end = device.ordinal * STRIDE, device.memory_mib * UNITS_PER_MIB
    for start in (*range(0, end + asked, asked // 2), STRIDE - asked, STRIDE - 1, STRIDE):
        with pytest.raises((asyncpg.ExclusionViolationError, asyncpg.CheckViolationError)):
            await write(rows, (Range(base + start, base + start + asked),))


@pytest.mark.parametrize(("reserve_percent", "fit"), [(0, 23), (3, 22)])
async def test_s05_a_b_the_wall_takes_23_lines_of_2000_mib_and_22_beside_a_driver(
    rows: Rows, reserve_percent: int, fit: int
) -> None:
    device = await a_device(rows, reserve_percent=reserve_percent)
    refused = await fill(rows, device, [ASK_MIB] * 24)
    await refuse_everywhere(rows, device, ASK_MIB)
    assert len(refused) == 24 - fit
    assert await rows.fetchval("SELECT count(*) FROM lines") == fit + bool(reserve_percent)


@pytest.mark.parametrize(
    ("milli", "refusals"),
    [
        ([1_000, 1_000], ["asked 46068 MiB, remaining 0 % (0 of 46068 MiB)"]),
        ([100] * 11, ["asked 4606.8 MiB, remaining 0 % (0 of 46068 MiB)"]),
        ([330, 330, 330, 10], []),
    ],
)
async def test_s05_c_d_e_the_wall_takes_thousandths_up_to_a_whole_device_and_no_more(
    rows: Rows, milli: list[int], refusals: list[str]
) -> None:
    device = await a_device(rows)
    refused = await fill(rows, device, [device.thousandths(each) for each in milli])
    await refuse_everywhere(rows, device, device.thousandths(milli[-1]))
    assert [str(lack) for lack in refused] == refusals
    assert await rows.fetchval("SELECT count(*) FROM lines") == len(milli) - len(refusals)


async def test_s05_a_share_a_slice_and_the_whole_of_one_device_exclude_each_other(rows: Rows) -> None:
    device = await a_device(rows, memory_mib=40_960)
    for span in (device.memory_slices(0, 4), device.memory_slices(4, 1)):
        await write(rows, span)
    share = device.share(device.thousandths(375), [device.memory_slices(0, 4), device.memory_slices(4, 1)])
    assert share == device.memory_slices(5, 3)
    await write(rows, device.memory_slices(5, 3))
    for span in (whole(device.ordinal), device.memory_slices(3, 1), device.memory_slices(6, 1)):
        with pytest.raises(asyncpg.ExclusionViolationError):
            await write(rows, span)


async def test_a_device_of_unknown_memory_is_had_whole_and_no_line_lies_beside_its_device(rows: Rows) -> None:
    unknown, other = await a_device(rows, memory_mib=0), await a_device(rows, "d2")
    one = (Range(unknown.ordinal * STRIDE, unknown.ordinal * STRIDE + 1),)
    for span in (one, whole(other.ordinal), other.memory_slices(0, 1)):
        with pytest.raises(asyncpg.CheckViolationError, match="is off its device d1"):
            await write(rows, span)
    with pytest.raises(asyncpg.CheckViolationError):
        await rows.execute(OLD_LINE, True)
    await write(rows, whole(unknown.ordinal))
    assert await rows.fetchval("SELECT span::text FROM lines") == span_text(whole(unknown.ordinal))


async def test_a_ledger_that_counted_thousandths_of_a_device_keeps_its_lines_and_counts_on(
    servers: Servers, tmp_path: Path
) -> None:
    for before in VERSIONS.glob("00*.py"):
        if before.name < "0011":
            shutil.copy(before, tmp_path)
    async with real_world(servers, ["placement"]) as world, ledger(world.surroundings["placement"]) as rows:
        dsn = world.surroundings["placement"].postgres_dsn.get_secret_value()
        await migrate.upgrade(dsn, "placement", versions=tmp_path)
        ordinals = [await rows.fetchval(DEVICE, "d1", 0)]
        # old numbers of the second device are new ones of the first
        await rows.execute("SELECT setval('devices_ordinal_seq', $1)", STRIDE // 1_000)
        ordinals += [await rows.fetchval(DEVICE, "d2", 0)]
        await rows.execute(OLD_LINE, False)
        await rows.execute(OLD_LINE, True)
        await migrate.upgrade(dsn, "placement")
        spans = [row["span"] for row in await rows.fetch(SPANS)]
        with pytest.raises(asyncpg.ExclusionViolationError):
            await write(rows, whole(ordinals[0]))
    assert spans == [span_text(whole(ordinal)) for ordinal in ordinals] * 2
