"""When the marks of a node are to be said again: after an older inventory came back, nodes may bear newer ones."""

from alembic import op

revision = "0005"
down_revision = "0004"

STEPS = (
    # null: they are as they are to be
    "ALTER TABLE nodes ADD COLUMN marks_due_at timestamptz",
    "CREATE INDEX nodes_marks_due ON nodes (marks_due_at) WHERE marks_due_at IS NOT NULL",
)


def upgrade() -> None:
    for step in STEPS:
        op.execute(step)


def downgrade() -> None:
    op.execute("ALTER TABLE nodes DROP COLUMN marks_due_at")
