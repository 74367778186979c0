"""For whom room is held that a grant had: jobs that lost a node and wish to come back on it, each until its time."""

from alembic import op

revision = "0012"
down_revision = "0011"

COMEBACKS = """
    CREATE TABLE comebacks (
        job text PRIMARY KEY,
        grant_id text NOT NULL REFERENCES grants,
        seconds integer NOT NULL,
        until timestamptz NOT NULL
    )
"""


def upgrade() -> None:
    op.execute(COMEBACKS)


def downgrade() -> None:
    raise NotImplementedError("a ledger is not taken back; restore a backup")
