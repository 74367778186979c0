"""Nodes, orders, drains, incidents, what is granted where, and when the fleet was last silent."""

from alembic import op

from libs.pg.tables import inbox_outbox

revision = "0001"
down_revision = None

TABLES = (
    """
    CREATE TABLE nodes (
        node text PRIMARY KEY,
        cluster text NOT NULL,
        known_version bigint NOT NULL DEFAULT 0,  -- 0: inventory has not said it yet
        retired boolean NOT NULL DEFAULT false,
        marks jsonb NOT NULL DEFAULT '{}',
        incarnation text,
        sequence bigint,
        heard_at timestamptz,
        drains integer NOT NULL DEFAULT 0,
        incidents integer NOT NULL DEFAULT 0
    ) WITH (fillfactor = 70)  -- a heartbeat rewrites the row in its page
    """,
    """
    CREATE TABLE orders (
        node text NOT NULL REFERENCES nodes,
        verb text NOT NULL,
        version bigint NOT NULL,
        at timestamptz NOT NULL,
        owner text NOT NULL,
        reason text NOT NULL,
        session text NOT NULL,
        PRIMARY KEY (node, verb)
    )
    """,
    """
    CREATE TABLE drains (
        drain text PRIMARY KEY,
        node text NOT NULL REFERENCES nodes,
        effect text NOT NULL,
        state text NOT NULL,
        version bigint NOT NULL,
        fact uuid NOT NULL,  -- the request, or the lift: what inventory answers
        since timestamptz NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX drains_open ON drains (node) WHERE state <> 'lifted'",  # one drain a node
    """
    CREATE TABLE incidents (
        incident text PRIMARY KEY,
        node text NOT NULL REFERENCES nodes,
        severity text NOT NULL,
        since timestamptz NOT NULL,
        version bigint NOT NULL,
        cleared boolean NOT NULL DEFAULT false
    )
    """,
    "CREATE UNIQUE INDEX incidents_open ON incidents (node) WHERE NOT cleared",  # one incident a node
    """
    CREATE TABLE grants (
        grant_id text NOT NULL,
        node text NOT NULL,
        live boolean NOT NULL,  -- false: its release was heard before its issue
        PRIMARY KEY (grant_id, node)
    )
    """,
    "CREATE INDEX grants_node ON grants (node) WHERE live",
    "CREATE TABLE fleet_silence (one boolean PRIMARY KEY CHECK (one), last_at timestamptz NOT NULL)",
)


def upgrade() -> None:
    inbox_outbox(op)
    for table in TABLES:
        op.execute(table)


def downgrade() -> None:
    for table in ("fleet_silence", "grants", "incidents", "drains", "orders", "nodes"):
        op.execute(f"DROP TABLE {table}")
