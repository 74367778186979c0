"""Runs, and facts of grants that came before them."""

from alembic import op

from libs.pg.tables import inbox_outbox

revision = "0001"
down_revision = None

TABLES = (
    """
    CREATE TABLE runs (
        grant_id text PRIMARY KEY,
        run text NOT NULL,
        job text NOT NULL,
        attempt integer NOT NULL,
        epoch bigint NOT NULL,
        tenant text NOT NULL,
        job_name text NOT NULL,
        queue text NOT NULL,
        cluster text NOT NULL,
        world_size integer NOT NULL,
        work jsonb NOT NULL,
        start_deadline timestamptz NOT NULL,
        parts jsonb NOT NULL,
        state text NOT NULL,
        version integer NOT NULL,
        revoked jsonb,
        answered boolean NOT NULL,
        tries integer NOT NULL,
        due_at timestamptz,
        fact uuid,
        settled boolean NOT NULL,
        looked_at timestamptz NOT NULL DEFAULT now(),
        changed_at timestamptz NOT NULL DEFAULT now(),
        UNIQUE (job, attempt)
    )
    """,
    "CREATE INDEX runs_open ON runs (due_at NULLS FIRST) WHERE NOT settled",
    "CREATE INDEX runs_to_look_at ON runs (looked_at) WHERE NOT settled",
    "CREATE INDEX runs_unanswered ON runs (changed_at) WHERE NOT answered",
    """
    CREATE TABLE early (
        grant_id text NOT NULL,
        position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        fact bytea NOT NULL,
        at timestamptz NOT NULL DEFAULT now()
    )
    """,
    "CREATE INDEX early_by_grant ON early (grant_id)",
)


def upgrade() -> None:
    inbox_outbox(op)
    for table in TABLES:
        op.execute(table)


def downgrade() -> None:
    for table in ("early", "runs"):
        op.execute(f"DROP TABLE {table}")
