"""Find the parts that are not rated among all that ever were."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("CREATE INDEX parts_not_rated ON parts (state) WHERE state <> 'rated'")


def downgrade() -> None:
    op.execute("DROP INDEX parts_not_rated")
