"""Keep a device from being billed twice by boxes: spans of a type of our own cost more with every line.

A box is a number made of the device (53 bits, so that a float holds it whole) by the time in microseconds. Boxes touch
where their edges meet, so each ends a microsecond early; lines of no time overlap nothing. Devices whose numbers are
the same by chance are told apart by their names.
"""

from typing import Final

from alembic import op

revision = "0003"
down_revision = "0002"

STATEMENTS: Final = (
    """CREATE TYPE device_name AS RANGE (subtype = text, collation = "C")""",
    "ALTER TABLE lines DROP CONSTRAINT billed_once",
    """
    ALTER TABLE lines ADD CONSTRAINT billed_once EXCLUDE USING gist (
        box(
            point((hashtextextended(device, 0) >> 11)::float8,
                  (extract(epoch FROM started_at AT TIME ZONE 'UTC') * 1000000)::float8),
            point((hashtextextended(device, 0) >> 11)::float8,
                  (extract(epoch FROM ended_at AT TIME ZONE 'UTC') * 1000000 - 1)::float8)
        ) WITH &&,
        device_name(device, device, '[]') WITH =
    ) WHERE (started_at < ended_at)
    """,
    "DROP TYPE device_span",
    "DROP TYPE device_time",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("what was billed is not taken back; restore a backup")
