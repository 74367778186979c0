"""Prices, parts of grants, and the lines of their usage."""

from alembic import op

from libs.pg.tables import inbox_outbox

revision = "0001"
down_revision = None

TABLES = (
    """
    CREATE TABLE prices (
        gpu_class text NOT NULL,
        generation integer NOT NULL CHECK (generation > 0),
        applied_at timestamptz NOT NULL,
        micros_per_hour bigint NOT NULL CHECK (micros_per_hour >= 0),
        currency text NOT NULL,
        PRIMARY KEY (gpu_class, generation)
    )
    """,
    """
    CREATE TABLE parts (
        grant_id text NOT NULL,
        node text NOT NULL,
        job text NOT NULL,
        attempt integer NOT NULL,
        tenant text NOT NULL,
        queue text,
        gpu_class text,
        issued_devices text[],
        issued_at timestamptz,
        claimed_devices text[],
        claimed_at timestamptz,
        lost boolean,
        revoked_at timestamptz,
        claimed boolean,
        released_at timestamptz,
        heard_at timestamptz NOT NULL DEFAULT now(),
        state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'rated', 'disputed')),
        PRIMARY KEY (grant_id, node)
    )
    """,
    "CREATE INDEX parts_to_rate ON parts (released_at) WHERE state = 'open' AND released_at IS NOT NULL",
    # Spans of one device lie together in the order of this type and never touch another device's, so that the built-in
    # range operators alone keep a device from being billed twice at one time.
    """CREATE TYPE device_time AS (device text COLLATE "C", at timestamptz)""",
    "CREATE TYPE device_span AS RANGE (subtype = device_time)",
    """
    CREATE TABLE lines (
        usage text NOT NULL,
        account text NOT NULL,
        grant_id text NOT NULL,
        node text NOT NULL,
        device text NOT NULL,
        started_at timestamptz NOT NULL,
        ended_at timestamptz NOT NULL,
        currency text NOT NULL,
        micros_per_hour bigint NOT NULL,
        amount_micros bigint NOT NULL CHECK (amount_micros >= 0),
        PRIMARY KEY (usage, device),
        FOREIGN KEY (grant_id, node) REFERENCES parts,
        CHECK (started_at <= ended_at),
        CONSTRAINT billed_once EXCLUDE USING gist (
            device_span(ROW (device, started_at)::device_time, ROW (device, ended_at)::device_time) WITH &&
        )
    )
    """,
    "CREATE INDEX lines_of_part ON lines (grant_id, node)",
)


def upgrade() -> None:
    inbox_outbox(op)
    for table in TABLES:
        op.execute(table)


def downgrade() -> None:
    op.execute("DROP TABLE lines, parts, prices")
    op.execute("DROP TYPE device_span, device_time")
