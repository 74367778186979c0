"""A grant waits for dispatch's word that its run is over, so that an end which dispatch missed is said again."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("ALTER TABLE grants ADD COLUMN run_over boolean NOT NULL DEFAULT false")
    op.execute("UPDATE grants SET run_over = NOT live")


def downgrade() -> None:
    raise NotImplementedError("a ledger is not taken back; restore a backup")
