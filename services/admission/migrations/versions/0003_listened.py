"""Note when anybody last could hear, so that no wait for devices counts while nobody could."""

from alembic import op

from libs.pg.heard import listened

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    listened(op)


def downgrade() -> None:
    op.execute("DROP TABLE listened")
