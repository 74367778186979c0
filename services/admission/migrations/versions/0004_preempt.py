"""Let jobs preempt each other inside a queue: its policy, and the plan for which a job that waits holds room."""

from alembic import op

revision = "0004"
down_revision = "0003"

STEPS = (
    "ALTER TABLE queues ADD COLUMN preempts boolean NOT NULL DEFAULT false",
    "ALTER TABLE jobs ADD COLUMN preemption jsonb, ADD COLUMN held_since timestamptz",
    "CREATE INDEX jobs_held ON jobs (tenant, queue) WHERE held_since IS NOT NULL",
    "CREATE INDEX jobs_to_preempt ON jobs (tenant, queue, priority, admitted_at DESC, job) WHERE state = 'Admitted'",
)


def upgrade() -> None:
    for step in STEPS:
        op.execute(step)


def downgrade() -> None:
    op.execute("DROP INDEX jobs_to_preempt")
    op.execute("DROP INDEX jobs_held")
    op.execute("ALTER TABLE jobs DROP COLUMN preemption, DROP COLUMN held_since")
    op.execute("ALTER TABLE queues DROP COLUMN preempts")
