"""Which nodes have told what they run since the ledger went back, and what they run that it does not know."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("ALTER TABLE nodes ADD COLUMN told_at timestamptz")
    op.execute("UPDATE nodes SET told_at = now() WHERE NOT EXISTS (SELECT FROM stops WHERE lifted_at IS NULL)")
    op.execute(
        """
        CREATE TABLE forgotten (
            grant_id text NOT NULL,
            node text NOT NULL,
            boot text NOT NULL,
            instance text NOT NULL,
            launch json NOT NULL,
            since timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (grant_id, node)
        )
        """
    )


def downgrade() -> None:
    raise NotImplementedError("a ledger is not taken back; restore a backup")
