"""Queues, jobs, charges and withdrawals that came first."""

from alembic import op

from libs.pg.tables import inbox_outbox

revision = "0001"
down_revision = None

TABLES = (
    """
    CREATE TABLE queues (
        tenant text NOT NULL,
        name text NOT NULL,
        strict boolean NOT NULL DEFAULT false,
        nominal jsonb NOT NULL DEFAULT '{}',
        generation integer NOT NULL DEFAULT 0,  -- 0: jobs name it, nobody has declared it yet
        PRIMARY KEY (tenant, name)
    )
    """,
    """
    CREATE TABLE jobs (
        job text PRIMARY KEY,
        tenant text NOT NULL,
        queue text NOT NULL,
        name text NOT NULL,
        priority integer NOT NULL,
        demand jsonb NOT NULL,
        work jsonb NOT NULL,
        retries integer NOT NULL,
        queued_at timestamptz NOT NULL,
        state text NOT NULL,
        attempt integer NOT NULL,
        failures integer NOT NULL,
        evictions integer NOT NULL,
        version integer NOT NULL,
        reason jsonb,
        not_before timestamptz,
        admitted_at timestamptz,
        FOREIGN KEY (tenant, queue) REFERENCES queues (tenant, name)
    )
    """,
    "CREATE INDEX jobs_waiting ON jobs (tenant, queue, priority DESC, queued_at, job) WHERE state = 'Queued'",
    "CREATE INDEX jobs_in_backoff ON jobs (not_before) WHERE state = 'Queued' AND not_before IS NOT NULL",
    "CREATE INDEX jobs_admitted ON jobs (admitted_at) WHERE state = 'Admitted'",
    """
    CREATE TABLE charges (
        job text NOT NULL REFERENCES jobs,
        attempt integer NOT NULL,
        tenant text NOT NULL,
        queue text NOT NULL,
        gpu_class text NOT NULL,
        devices integer NOT NULL CHECK (devices > 0),
        fact uuid NOT NULL,
        account text NOT NULL,
        granted boolean NOT NULL,
        answered boolean NOT NULL,
        over boolean NOT NULL,
        changed_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (job, attempt)
    )
    """,
    "CREATE INDEX charges_open ON charges (tenant, queue, gpu_class) INCLUDE (devices, account) WHERE NOT over",
    "CREATE INDEX charges_unanswered ON charges (changed_at) WHERE NOT over AND NOT answered",
    """
    CREATE TABLE withdrawn (
        job text PRIMARY KEY,
        withdrawn_by text NOT NULL,
        at timestamptz NOT NULL DEFAULT now()
    )
    """,
)


def upgrade() -> None:
    inbox_outbox(op)
    for table in TABLES:
        op.execute(table)


def downgrade() -> None:
    for table in ("withdrawn", "charges", "jobs", "queues"):
        op.execute(f"DROP TABLE {table}")
