"""What is held in its queue for a job that lost a node, until it has devices again or its time is over."""

from alembic import op

revision = "0006"
down_revision = "0005"

STEPS = (
    "ALTER TABLE jobs ADD COLUMN recovery jsonb",
    "CREATE INDEX jobs_to_recover ON jobs (tenant, queue) WHERE recovery IS NOT NULL",
)


def upgrade() -> None:
    for step in STEPS:
        op.execute(step)


def downgrade() -> None:
    op.execute("DROP INDEX jobs_to_recover")
    op.execute("ALTER TABLE jobs DROP COLUMN recovery")
