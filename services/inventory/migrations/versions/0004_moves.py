"""Who owns a node, and the moves of nodes from one destination to another."""

from alembic import op

revision = "0004"
down_revision = "0003"

STEPS = (
    # owner null: the cluster that declares the node; moves: how many it ever had
    "ALTER TABLE nodes ADD COLUMN owner text REFERENCES clusters",
    "ALTER TABLE nodes ADD COLUMN owner_name text",
    "ALTER TABLE nodes ADD COLUMN owner_epoch bigint NOT NULL DEFAULT 1",
    "ALTER TABLE nodes ADD COLUMN moves integer NOT NULL DEFAULT 0",
    """
    CREATE TABLE moves (
        move text PRIMARY KEY,
        node text NOT NULL REFERENCES nodes,
        number integer NOT NULL,
        version integer NOT NULL,
        info jsonb NOT NULL,
        open boolean NOT NULL,
        next_at timestamptz NOT NULL DEFAULT now(),
        tries integer NOT NULL DEFAULT 0
    )
    """,
    "CREATE UNIQUE INDEX moves_open ON moves (node) WHERE open",
    "CREATE INDEX moves_due ON moves (next_at) WHERE open",
)


def upgrade() -> None:
    for step in STEPS:
        op.execute(step)


def downgrade() -> None:
    raise NotImplementedError("owners are not taken back; restore a backup")
