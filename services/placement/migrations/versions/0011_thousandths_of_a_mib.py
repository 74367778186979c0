"""Lines in thousandths of a MiB, each on its own device: whole, or within the memory that the device is known to have.

A device's units begin at ordinal·2³¹ (libs/resources/span.py). A line of a process that still counts in thousandths
of a device is off its device, and is refused.
"""

from typing import Final

from alembic import op

revision = "0011"
down_revision = "0010"

STEPS: Final = (
    """
    CREATE FUNCTION whole(ordinal bigint) RETURNS int8multirange LANGUAGE sql IMMUTABLE AS
    'SELECT int8multirange(int8range(ordinal * 2147483648, (ordinal + 1) * 2147483648))'
    """,
    # for the time of the change the same number may say two things
    "ALTER TABLE lines DROP CONSTRAINT one_owner",
    "UPDATE lines l SET span = whole(d.ordinal) FROM devices d WHERE d.device = l.device",
    "ALTER TABLE lines ADD CONSTRAINT one_owner EXCLUDE USING gist (span WITH &&) WHERE (live)",
    # not a CHECK: it looks at another table
    """
    CREATE FUNCTION refuse_what_is_off_its_device() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    DECLARE stray record;
    BEGIN
        SELECT l.device, l.span, d.ordinal, d.memory_mib INTO stray
        FROM added l JOIN devices d ON d.device = l.device
        WHERE l.span <> whole(d.ordinal) AND NOT l.span <@ int8range(
            d.ordinal * 2147483648, d.ordinal * 2147483648 + least(d.memory_mib * 1000, 2147483648)
        )
        LIMIT 1;
        IF FOUND THEN
            RAISE 'a line % is off its device %, which has ordinal % and % MiB',
                stray.span, stray.device, stray.ordinal, stray.memory_mib
                USING ERRCODE = 'check_violation', CONSTRAINT = 'on_its_device';
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER on_its_device AFTER INSERT ON lines REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_what_is_off_its_device()
    """,
)


def upgrade() -> None:
    for step in STEPS:
        op.execute(step)


def downgrade() -> None:
    raise NotImplementedError("a ledger is not taken back; restore a backup")
