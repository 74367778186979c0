"""Find the events of one job among all."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("CREATE INDEX event_by_job ON event (job, position) WHERE job IS NOT NULL")


def downgrade() -> None:
    op.execute("DROP INDEX event_by_job")
