"""The chain of facts, which only grows."""

from alembic import op

from libs.pg.tables import inbox_outbox

revision = "0001"
down_revision = None

STATEMENTS = (
    """
    CREATE TABLE entries (
        sequence bigint PRIMARY KEY CHECK (sequence > 0),
        heard_at timestamptz NOT NULL,
        fact uuid NOT NULL UNIQUE,
        type text COLLATE "C" NOT NULL,
        scope text NOT NULL,
        key text NOT NULL,
        source text NOT NULL,
        tenant text,
        entities text[] NOT NULL,
        body bytea NOT NULL,
        previous bytea NOT NULL,
        hash bytea NOT NULL
    )
    """,
    "CREATE INDEX entries_of_entity ON entries USING gin (entities)",
    "CREATE INDEX entries_of_type ON entries (type, sequence)",
    "CREATE INDEX entries_of_tenant ON entries (tenant, sequence)",
    "CREATE INDEX entries_in_time ON entries (heard_at)",
    # The end of the chain, and the lock of who adds to it: an end that was cut off shows.
    """
    CREATE TABLE head (
        single boolean PRIMARY KEY DEFAULT true CHECK (single),
        sequence bigint NOT NULL,
        hash bytea NOT NULL
    )
    """,
    """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'the audit trail only grows: % of % refused', TG_OP, TG_TABLE_NAME
              USING ERRCODE = 'restrict_violation';
    END $$
    """,
    """
    CREATE TRIGGER only_grows BEFORE UPDATE OR DELETE ON entries FOR EACH ROW EXECUTE FUNCTION refuse()
    """,
    """
    CREATE TRIGGER never_emptied BEFORE TRUNCATE ON entries FOR EACH STATEMENT
    WHEN (current_setting('is_superuser') <> 'on') EXECUTE FUNCTION refuse()
    """,
    """
    CREATE TRIGGER never_removed BEFORE DELETE ON head FOR EACH ROW EXECUTE FUNCTION refuse()
    """,
    """
    CREATE TRIGGER never_back BEFORE UPDATE ON head FOR EACH ROW
    WHEN (new.sequence < old.sequence OR (new.sequence = old.sequence AND new.hash <> old.hash))
    EXECUTE FUNCTION refuse()
    """,
)


def upgrade() -> None:
    inbox_outbox(op)
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE head, entries")
    op.execute("DROP FUNCTION refuse")
