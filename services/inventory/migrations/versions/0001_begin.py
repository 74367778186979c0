"""Clusters, classes, nodes, marks on nodes, and what is granted where."""

from alembic import op

from libs.pg.tables import inbox_outbox

revision = "0001"
down_revision = None

TABLES = (
    """
    CREATE TABLE clusters (
        cluster text PRIMARY KEY,
        name text NOT NULL DEFAULT '',
        backend text NOT NULL DEFAULT '',
        levels text[] NOT NULL DEFAULT '{}',
        generation bigint NOT NULL DEFAULT 0,  -- 0: something names it, nobody has declared it yet
        version bigint NOT NULL DEFAULT 0
    )
    """,
    """
    CREATE TABLE classes (
        name text PRIMARY KEY,
        model text NOT NULL,
        generation bigint NOT NULL
    )
    """,
    """
    CREATE TABLE nodes (
        node text PRIMARY KEY,
        cluster text NOT NULL REFERENCES clusters,
        name text NOT NULL,
        standing text NOT NULL,
        place jsonb NOT NULL,
        cpu_milli bigint NOT NULL,
        memory_mib bigint NOT NULL,
        devices jsonb NOT NULL,
        reported boolean NOT NULL,
        machine_cpu_milli bigint NOT NULL,
        machine_memory_mib bigint NOT NULL,
        incarnation text,
        sequence bigint,
        heard_at timestamptz,
        stale boolean NOT NULL,
        left_out_at timestamptz,
        retired boolean NOT NULL,
        version bigint NOT NULL,
        said jsonb  -- null: nothing was said of it, or that it was retired
    ) WITH (fillfactor = 70)  -- a heartbeat rewrites the row in its page
    """,
    "CREATE INDEX nodes_cluster ON nodes (cluster)",
    # no reference to nodes: a mark may come before its node, and outlives it
    """
    CREATE TABLE marks (
        drain text PRIMARY KEY,
        node text NOT NULL,
        version bigint NOT NULL,
        mark jsonb  -- null: lifted
    )
    """,
    "CREATE INDEX marks_node ON marks (node)",
    "CREATE INDEX marks_standing ON marks (node) WHERE mark IS NOT NULL",
    """
    CREATE TABLE grants (
        grant_id text NOT NULL,
        node text NOT NULL,
        gpu_class text NOT NULL,
        devices integer NOT NULL,
        live boolean NOT NULL,  -- false: its release was heard before its issue
        PRIMARY KEY (grant_id, node)
    )
    """,
    "CREATE INDEX grants_node ON grants (node) WHERE live",
)


def upgrade() -> None:
    inbox_outbox(op)
    for table in TABLES:
        op.execute(table)


def downgrade() -> None:
    for table in ("grants", "marks", "nodes", "classes", "clusters"):
        op.execute(f"DROP TABLE {table}")
