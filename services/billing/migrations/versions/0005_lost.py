"""Note when a part was put before a person: from then on its time is the platform's loss."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("ALTER TABLE parts ADD COLUMN lost_at timestamptz")


def downgrade() -> None:
    raise NotImplementedError("what was billed is not taken back; restore a backup")
