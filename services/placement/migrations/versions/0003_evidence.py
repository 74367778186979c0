"""Since when a node is blind or a device is used by a stranger, and by whom: what a person needs to settle it."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute("ALTER TABLE nodes ADD COLUMN blind_since timestamptz, ADD COLUMN blind_why text")
    op.execute("UPDATE nodes SET blind_since = now() WHERE blind")
    op.execute("ALTER TABLE devices ADD COLUMN unmanaged_since timestamptz, ADD COLUMN unmanaged_by text")
    op.execute("UPDATE devices SET unmanaged_since = now() WHERE unmanaged")
    # also parts that a person released are asked about, until they are seen to be clear
    op.execute("DROP INDEX parts_revoking")
    op.execute("CREATE INDEX parts_to_seal ON parts (next_seal_at) WHERE next_seal_at IS NOT NULL")


def downgrade() -> None:
    raise NotImplementedError("a ledger is not taken back; restore a backup")
