"""Holds of whole nodes that move to another destination, and the owner epoch that each part was issued at."""

from alembic import op

revision = "0007"
down_revision = "0006"

STEPS = (
    # dropped_at: it stays, so that a request which comes late takes nothing again
    """
    CREATE TABLE holds (
        hold text PRIMARY KEY,
        kind text NOT NULL CHECK (kind IN ('transfer')),
        node text NOT NULL,
        owner_epoch bigint NOT NULL,
        stop boolean NOT NULL,
        owner text NOT NULL,
        reason text NOT NULL,
        session text NOT NULL,
        since timestamptz NOT NULL DEFAULT now(),
        held_at timestamptz,
        dropped_at timestamptz
    )
    """,
    "CREATE UNIQUE INDEX holds_standing ON holds (node) WHERE dropped_at IS NULL",
    "ALTER TABLE lines ADD COLUMN hold text REFERENCES holds",
    "ALTER TABLE lines ADD CONSTRAINT one_holder CHECK ((kind = 'grant') = (grant_id IS NOT NULL))",
    "CREATE INDEX lines_hold ON lines (hold) WHERE hold IS NOT NULL",
    "ALTER TABLE nodes ADD COLUMN owner_epoch bigint NOT NULL DEFAULT 1",
    "ALTER TABLE parts ADD COLUMN owner_epoch bigint NOT NULL DEFAULT 1",
)


def upgrade() -> None:
    for step in STEPS:
        op.execute(step)


def downgrade() -> None:
    raise NotImplementedError("a ledger is not taken back; restore a backup")
