"""What a node runs of a grant that the ledger holds otherwise: its devices are kept from everybody until a seal."""

from alembic import op

revision = "0009"
down_revision = "0008"

STEPS = (
    "ALTER TABLE forgotten ADD COLUMN epoch bigint, ADD COLUMN stranger boolean NOT NULL DEFAULT false",
    "UPDATE forgotten SET epoch = (launch ->> 'epoch')::bigint",
    "ALTER TABLE forgotten ALTER COLUMN epoch SET NOT NULL",
    # a node may run what one grant was under two epochs, when a backup was restored in between
    "ALTER TABLE forgotten DROP CONSTRAINT forgotten_pkey, ADD PRIMARY KEY (grant_id, node, epoch)",
    # devices that nodes told to be used by what the ledger has no part for
    """
    CREATE VIEW occupied AS
    SELECT DISTINCT device ->> 'device' AS device
    FROM forgotten f,
         json_array_elements(f.launch -> 'replicas') AS replica,
         json_array_elements(replica -> 'devices') AS device
    """,
)


def upgrade() -> None:
    for step in STEPS:
        op.execute(step)


def downgrade() -> None:
    raise NotImplementedError("a ledger is not taken back; restore a backup")
