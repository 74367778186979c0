import pytest

from tests.tidy import tree
from tests.tidy.rules import sql

ASSEMBLED = [
    'query = f"SELECT * FROM {table}"',
    'query = f"INSERT INTO usage VALUES ({grant})"',
    "query = \"DELETE FROM usage WHERE id = '%s'\" % grant",
    'query = "UPDATE usage SET account = " + account',
    'query = "SELECT * FROM {}".format(table)',
]
WHOLE = [
    'query = "SELECT * FROM usage WHERE id = ANY($1)"',
    'query = "SELECT id " "FROM usage"',
    'text = f"{count} parts selected from {node}"',
    'statement = f"CREATE ROLE {role} LOGIN"',
]
LOOPED = [
    "async def load(c, ids):\n    for i in ids:\n        await c.fetch(ONE, i)",
    "async def load(c, ids):\n    while ids:\n        await c.execute(ONE, ids.pop())",
    "async def load(c, ids):\n    return [await c.fetchrow(ONE, i) for i in ids]",
]
ONCE = [
    "for statement in TABLES:\n    op.execute(statement)",
    "async def load(c, ids):\n    for row in await c.fetch(ALL, ids):\n        yield row",
    "async def load(c, ids):\n    return [row['id'] for row in await c.fetch(ALL, ids)]",
]


@pytest.mark.parametrize("source", ASSEMBLED)
def test_a_statement_put_together_from_values_is_found(source: str) -> None:
    assert sql.assembled(source) == ["1: SQL put together"]


@pytest.mark.parametrize("source", WHOLE)
def test_a_whole_statement_is_not(source: str) -> None:
    assert sql.assembled(source) == []


@pytest.mark.parametrize("source", LOOPED)
def test_a_query_in_a_loop_is_found(source: str) -> None:
    assert [fault.partition(": ")[2] for fault in sql.in_loops(source)] == ["a query in a loop"]


@pytest.mark.parametrize("source", ONCE)
def test_a_loop_over_one_query_is_not(source: str) -> None:
    assert sql.in_loops(source) == []


def test_no_statement_of_this_tree_is_put_together() -> None:
    modules = tree.modules("libs", "services", "cli", "deploy", "tests", "benchmarks")
    assert [f"{place}:{fault}" for place, source in modules for fault in sql.assembled(source)] == []


def test_no_store_asks_in_a_loop() -> None:
    stores = (
        (p, s)
        for p, s in tree.modules("services", "libs")
        if "store" in (p.stem, p.parent.name) or p.parts[:2] == ("libs", "pg")
    )
    assert [f"{place}:{fault}" for place, source in stores for fault in sql.in_loops(source)] == []
