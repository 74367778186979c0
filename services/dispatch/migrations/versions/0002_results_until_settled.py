"""Results are said again until their runs are settled, not only until something was heard on them."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("DROP INDEX runs_unanswered")
    op.execute("CREATE INDEX runs_unanswered ON runs (changed_at) WHERE NOT settled")


def downgrade() -> None:
    op.execute("DROP INDEX runs_unanswered")
    op.execute("CREATE INDEX runs_unanswered ON runs (changed_at) WHERE NOT answered")
