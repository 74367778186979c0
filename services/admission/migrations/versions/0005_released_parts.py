"""What an attempt is charged goes part by part: which parts were proved free or lost, and what is booked still."""

from alembic import op

revision = "0005"
down_revision = "0004"

STEPS = (
    """
    ALTER TABLE charges ADD COLUMN released jsonb NOT NULL DEFAULT '{}', ADD COLUMN lost jsonb NOT NULL DEFAULT '{}',
                        ADD COLUMN booked integer
    """,
    "UPDATE charges SET booked = devices",
    "ALTER TABLE charges ALTER COLUMN booked SET NOT NULL, ADD CHECK (booked BETWEEN 0 AND devices)",
    "DROP INDEX charges_open",
    "CREATE INDEX charges_open ON charges (tenant, queue, gpu_class) INCLUDE (booked, account) WHERE NOT over",
)


def upgrade() -> None:
    for step in STEPS:
        op.execute(step)


def downgrade() -> None:
    op.execute("DROP INDEX charges_open")
    op.execute(
        "CREATE INDEX charges_open ON charges (tenant, queue, gpu_class) INCLUDE (devices, account) WHERE NOT over"
    )
    op.execute("ALTER TABLE charges DROP COLUMN released, DROP COLUMN lost, DROP COLUMN booked")
