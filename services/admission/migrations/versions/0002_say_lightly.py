"""Let a receipt touch no index of the outbox."""

from alembic import op

from libs.pg.tables import say_lightly

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    say_lightly(op)


def downgrade() -> None:
    raise NotImplementedError("an outbox is not taken back; restore a backup")
