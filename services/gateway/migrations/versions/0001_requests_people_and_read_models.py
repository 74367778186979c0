"""Requests, declarations and orders; tenants and tokens; the read models."""

from alembic import op

from libs.pg.tables import inbox_outbox

revision = "0001"
down_revision = None

TABLES = (
    """
    CREATE TABLE tenant (
        name text PRIMARY KEY,
        created_by text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    """
    CREATE TABLE token (
        id text PRIMARY KEY,
        digest bytea NOT NULL UNIQUE,  -- the secret itself is never kept
        name text NOT NULL,
        role text NOT NULL CHECK (role IN ('viewer', 'submitter', 'operator', 'admin')),
        tenant text NOT NULL,          -- '*': the whole fleet
        created_by text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        expires_at timestamptz,
        revoked_at timestamptz,
        revoked_by text
    )
    """,
    """
    CREATE TABLE request (
        job text PRIMARY KEY,
        tenant text NOT NULL,
        name text NOT NULL,
        generation integer NOT NULL,
        queue text NOT NULL,
        digest text NOT NULL,
        document json NOT NULL,        -- keeps the order in which it was written
        submitted_by text NOT NULL,
        submitted_at timestamptz NOT NULL,
        fact uuid NOT NULL,
        withdrawn_by text,
        withdrawn_at timestamptz,
        withdrawn_fact uuid,
        UNIQUE (tenant, name, generation)
    )
    """,
    "CREATE INDEX request_by_tenant ON request (tenant, submitted_at DESC, job DESC)",
    "CREATE INDEX request_by_time ON request (submitted_at DESC, job DESC)",
    """
    CREATE TABLE declaration (
        kind text NOT NULL,
        tenant text NOT NULL,          -- empty: the whole fleet
        name text NOT NULL,
        id text NOT NULL,
        generation integer NOT NULL,
        digest text NOT NULL,
        document jsonb NOT NULL,
        applied_by text NOT NULL,
        applied_at timestamptz NOT NULL,
        PRIMARY KEY (kind, tenant, name)
    )
    """,
    """
    CREATE TABLE node_order (
        id text PRIMARY KEY,
        verb text NOT NULL,
        cluster text NOT NULL,
        node text NOT NULL,
        owner text NOT NULL,
        reason text NOT NULL,
        fact uuid NOT NULL,
        ordered_at timestamptz NOT NULL,
        answered_at timestamptz
    )
    """,
    """
    CREATE TABLE job_view (
        job text PRIMARY KEY,
        tenant text NOT NULL,
        state text NOT NULL,
        attempt integer NOT NULL,
        ended boolean NOT NULL,
        charge_attempt integer,
        charge_class text,
        charge_devices integer,
        body json NOT NULL             -- json takes whatever a fact may hold; jsonb refuses NUL
    )
    """,
    "CREATE INDEX job_view_alive ON job_view (job) WHERE NOT ended",
    """
    CREATE TABLE job_history (
        fact uuid PRIMARY KEY,
        job text NOT NULL,
        at timestamptz NOT NULL,
        version bigint NOT NULL,       -- orders what one turn said at one time
        body json NOT NULL
    )
    """,
    "CREATE INDEX job_history_by_job ON job_history (job, at, version)",
    """
    CREATE TABLE node_view (
        node text PRIMARY KEY,
        cluster text NOT NULL,
        cluster_name text NOT NULL,
        name text NOT NULL,
        place jsonb NOT NULL,
        classes jsonb NOT NULL,        -- class to devices; devices of no class under the empty name
        marked boolean NOT NULL,
        stale boolean NOT NULL,
        retired boolean NOT NULL,
        body json NOT NULL             -- keeps the order of topology levels
    )
    """,
    "CREATE INDEX node_view_by_name ON node_view (cluster_name, name)",
    """
    CREATE TABLE part (
        grant_id text NOT NULL,
        node text NOT NULL,
        job text NOT NULL,
        attempt integer NOT NULL,
        rank smallint NOT NULL,        -- Issued, Claimed, Revoking, Released: only rises
        named_by smallint NOT NULL,
        lost boolean NOT NULL,         -- charged to the platform's losses, not to the queue
        gpu_class text NOT NULL,
        devices text[] NOT NULL,
        changed_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (grant_id, node)
    )
    """,
    "CREATE INDEX part_held_by_node ON part (node) WHERE rank < 3",
    "CREATE INDEX part_held_by_job ON part (job, attempt) WHERE rank < 3",
    """
    CREATE TABLE latest (
        noun text NOT NULL,            -- cluster, incident, drain
        key text NOT NULL,
        version bigint NOT NULL,
        verb text NOT NULL,
        node text,
        at timestamptz NOT NULL,
        data json NOT NULL,
        PRIMARY KEY (noun, key)
    )
    """,
    "CREATE INDEX latest_by_node ON latest (node, noun)",
    """
    CREATE TABLE usage_line (
        usage text NOT NULL,
        place integer NOT NULL,
        account text NOT NULL,
        tenant text NOT NULL,
        queue text NOT NULL,
        gpu_class text NOT NULL,
        job text NOT NULL,
        currency text NOT NULL,
        started_at timestamptz NOT NULL,
        ended_at timestamptz NOT NULL,
        amount_micros bigint NOT NULL,
        PRIMARY KEY (usage, place)
    )
    """,
    "CREATE INDEX usage_line_by_end ON usage_line (tenant, ended_at)",
    """
    CREATE TABLE event (
        position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        fact uuid NOT NULL UNIQUE,
        type text NOT NULL,
        tenant text,
        job text,
        heard_at timestamptz NOT NULL DEFAULT now(),
        body json NOT NULL
    )
    """,
    "CREATE INDEX event_by_tenant ON event (tenant, position)",
)


def upgrade() -> None:
    inbox_outbox(op)
    for table in TABLES:
        op.execute(table)
