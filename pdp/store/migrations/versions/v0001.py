"""First tables: objects, grants, the log of changes, and the row with epoch and sequence."""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    meta = op.create_table(
        "meta",
        sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True),
        sa.Column("epoch", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "objects",
        sa.Column("key", name, primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("managed", sa.Boolean, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
    )
    op.create_table(
        "grants",
        sa.Column("object", name, primary_key=True),
        sa.Column("privilege", name, primary_key=True),
        sa.Column("principal", name, primary_key=True),
        sa.Column("id", name, primary_key=True),
        sa.Column("added", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "changes",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("changes", sa.Text, nullable=False),
    )
    op.bulk_insert(meta, [{"id": 1, "epoch": secrets.token_hex(6), "sequence": 0}])
