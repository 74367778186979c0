"""The ledger: devices, attempts, grants with their parts, and lines that cannot overlap."""

from typing import Final

from alembic import op

from libs.pg.tables import inbox_outbox

revision = "0001"
down_revision = None

TABLES: Final = (
    # drawn inside the wall's transaction, after the device rows are locked: epochs of one device only rise
    "CREATE SEQUENCE epochs AS bigint",
    """
    CREATE TABLE clusters (
        cluster text PRIMARY KEY,
        name text NOT NULL,
        backend text NOT NULL,
        levels text[] NOT NULL,
        version bigint NOT NULL
    )
    """,
    # version and flag_version order the node's facts; boot is the newest known
    """
    CREATE TABLE nodes (
        node text PRIMARY KEY,
        cluster text NOT NULL,
        name text NOT NULL,
        place jsonb NOT NULL,
        cpu_milli bigint NOT NULL,
        memory_mib bigint NOT NULL,
        marks jsonb NOT NULL,
        drained boolean NOT NULL,
        reported boolean NOT NULL,
        stale boolean NOT NULL,
        retired boolean NOT NULL DEFAULT false,
        version bigint NOT NULL,
        flag_version bigint NOT NULL DEFAULT 0,
        flagged_at timestamptz NOT NULL DEFAULT now(),
        heard_at timestamptz,
        suspect_since timestamptz,
        blind boolean NOT NULL DEFAULT false
    )
    """,
    """
    CREATE TABLE boots (
        node text NOT NULL,
        boot text NOT NULL,
        incarnation text NOT NULL,
        known_at timestamptz NOT NULL DEFAULT now(),
        ended_at timestamptz,
        PRIMARY KEY (node, boot)
    )
    """,
    """
    CREATE TABLE devices (
        device text PRIMARY KEY,
        ordinal bigint NOT NULL UNIQUE GENERATED ALWAYS AS IDENTITY,
        node text NOT NULL,
        index integer NOT NULL,
        uuid text NOT NULL,
        model text NOT NULL,
        memory_mib bigint NOT NULL,
        gpu_class text,
        owner text NOT NULL,
        owner_epoch bigint NOT NULL DEFAULT 1,
        last_epoch bigint NOT NULL DEFAULT 0,
        unmanaged boolean NOT NULL DEFAULT false,
        retired boolean NOT NULL DEFAULT false
    )
    """,
    "CREATE INDEX devices_node ON devices (node)",
    # cause: the last fact that admission said of it
    # a row that is Over without a grant is a withdrawal heard before the admission: it stays and refuses it (R9)
    """
    CREATE TABLE attempts (
        job text NOT NULL,
        attempt integer NOT NULL,
        state text NOT NULL CHECK (state IN ('Pending', 'Granted', 'Refused', 'Over')),
        tenant text NOT NULL,
        name text,
        queue text,
        priority integer,
        gpu_class text,
        demand jsonb,
        work jsonb,
        queued_at timestamptz,
        cause uuid,
        version bigint NOT NULL DEFAULT 0,
        grants integer NOT NULL DEFAULT 0,
        refusals integer NOT NULL DEFAULT 0,
        refusal jsonb,
        refused_at timestamptz,
        PRIMARY KEY (job, attempt)
    )
    """,
    "CREATE INDEX attempts_pending ON attempts (priority DESC, queued_at) WHERE state = 'Pending'",
    """
    CREATE TABLE grants (
        id text PRIMARY KEY,
        epoch bigint NOT NULL UNIQUE,
        job text NOT NULL,
        attempt integer NOT NULL,
        tenant text NOT NULL,
        name text NOT NULL,
        queue text NOT NULL,
        cluster text NOT NULL,
        gpu_class text NOT NULL,
        work jsonb NOT NULL,
        issued_at timestamptz NOT NULL,
        start_deadline timestamptz NOT NULL,
        version integer NOT NULL,
        revoked_at timestamptz,
        revocation integer,
        reason jsonb,
        live boolean NOT NULL,
        FOREIGN KEY (job, attempt) REFERENCES attempts
    )
    """,
    "CREATE UNIQUE INDEX grants_live ON grants (job, attempt) WHERE live",
    """
    CREATE TABLE parts (
        grant_id text NOT NULL REFERENCES grants,
        node text NOT NULL,
        node_name text NOT NULL,
        state text NOT NULL CHECK (state IN ('Issued', 'Claimed', 'Revoking', 'Released')),
        cpu_milli bigint NOT NULL,
        memory_mib bigint NOT NULL,
        instance text,
        boot text,
        claimed_at timestamptz,
        released_at timestamptz,
        proof text,
        exit jsonb,
        suspected_at timestamptz,
        escalated_at timestamptz,
        version integer NOT NULL,
        next_seal_at timestamptz,
        seal_asks integer NOT NULL DEFAULT 0,
        seal_note text,
        PRIMARY KEY (grant_id, node)
    )
    """,
    "CREATE INDEX parts_live ON parts (node) WHERE state <> 'Released'",
    "CREATE INDEX parts_revoking ON parts (next_seal_at) WHERE state = 'Revoking'",
    # the wall: thousandths of the fleet's devices, and no two live lines share one
    """
    CREATE TABLE lines (
        id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        kind text NOT NULL DEFAULT 'grant' CHECK (kind IN ('grant', 'hold')),
        grant_id text,
        node text NOT NULL,
        rank integer,
        device text NOT NULL REFERENCES devices,
        span int8multirange NOT NULL CHECK (NOT isempty(span)),
        live boolean NOT NULL DEFAULT true,
        FOREIGN KEY (grant_id, node) REFERENCES parts,
        CONSTRAINT one_owner EXCLUDE USING gist (span WITH &&) WHERE (live)
    )
    """,
    "CREATE INDEX lines_part ON lines (grant_id, node)",
    "CREATE INDEX lines_device ON lines (device) WHERE live",
    # a row here stops all new grants until a person lifts it (L5)
    """
    CREATE TABLE stops (
        id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        device text NOT NULL,
        lease_grant text NOT NULL,
        lease_epoch bigint NOT NULL,
        ledger_epoch bigint NOT NULL,
        since timestamptz NOT NULL DEFAULT now(),
        lifted_at timestamptz,
        lifted_by text
    )
    """,
    # a person's word for a part whose proof is overdue (R11)
    """
    CREATE TABLE overrides (
        grant_id text NOT NULL,
        node text NOT NULL,
        person text NOT NULL,
        reason text NOT NULL,
        at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (grant_id, node),
        FOREIGN KEY (grant_id, node) REFERENCES parts
    )
    """,
)


def upgrade() -> None:
    inbox_outbox(op)
    for table in TABLES:
        op.execute(table)


def downgrade() -> None:
    raise NotImplementedError("a ledger is not taken back; restore a backup")
