"""Row rules: stored row policies and column masks."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "row_rules",
        sa.Column("object", name, primary_key=True),
        sa.Column("masked_column", name, primary_key=True),
        sa.Column("id", name, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
