"""What nodes named in their last reports, and where records differ."""

from alembic import op

revision = "0004"
down_revision = "0003"

TABLES = (
    """
    CREATE TABLE held (
        node text NOT NULL,
        grant_id text NOT NULL,
        instance text NOT NULL,
        since timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (node, grant_id, instance)
    )
    """,
    # since NULL: it is over; the row stays for its version, by which its facts are ordered
    """
    CREATE TABLE drifts (
        drift text PRIMARY KEY,
        kind text NOT NULL,
        subject text NOT NULL,
        node text,
        since timestamptz,
        found_at timestamptz,
        gone_at timestamptz,
        version integer NOT NULL DEFAULT 0
    )
    """,
    "CREATE INDEX drifts_standing ON drifts (kind) WHERE since IS NOT NULL",
)


def upgrade() -> None:
    for table in TABLES:
        op.execute(table)


def downgrade() -> None:
    raise NotImplementedError("a ledger is not taken back; restore a backup")
