"""The shell's tables and one table of effects, for tests of the shell alone."""

from alembic import op

from libs.pg.tables import inbox_outbox, say_lightly

revision = "0001"
down_revision = None


def upgrade() -> None:
    inbox_outbox(op)
    say_lightly(op)
    op.execute(
        "CREATE TABLE effects (place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text NOT NULL,"
        " at timestamptz NOT NULL DEFAULT clock_timestamp())"
    )
