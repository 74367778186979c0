"""A part that was revoked alone: by which fact, and when. Both are NULL of parts that are revoked with their grant."""

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.execute("ALTER TABLE parts ADD COLUMN revocation integer, ADD COLUMN narrowed_at timestamptz")


def downgrade() -> None:
    raise NotImplementedError("a ledger is not taken back; restore a backup")
