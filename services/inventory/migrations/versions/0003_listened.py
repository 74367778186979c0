"""Note when anybody last could hear, so that nobody's silence counts while nobody could."""

from alembic import op

from libs.pg.heard import listened

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    listened(op)


def downgrade() -> None:
    op.execute("DROP TABLE listened")
