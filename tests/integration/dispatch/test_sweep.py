"""What the sweep of dispatch says again, on real Postgres."""

from dataclasses import replace
from uuid import uuid4

from libs.pg.pool import connect
from schemas.lifecycle import RunState
from services.dispatch import store
from services.dispatch.core import View, evolve
from tests.support.builders import NOON, a_grant
from tests.support.servers import Servers


async def test_what_is_seen_of_a_run_that_is_over_does_not_put_off_its_result_being_said_again(
    servers: Servers,
) -> None:
    dsn = (await servers.infrastructure("dispatch")).postgres_dsn.get_secret_value()
    connection = await connect(dsn, schema="dispatch")
    grant = a_grant()
    lost = replace(evolve(View(), grant, now=NOON).runs[grant.grant], state=RunState.LOST, fact=uuid4())
    ended, seen = View({grant.grant: lost}), View({grant.grant: replace(lost, tries=1)})
    await store.save(connection, View(), ended)
    await connection.execute("UPDATE runs SET changed_at = now() - interval '1 hour'")
    await store.save(connection, ended, seen)
    now = await connection.fetchval("SELECT now()")
    said = await store.unanswered(connection, now, seconds=60.0)
    await connection.close()
    assert said == [lost.fact]
