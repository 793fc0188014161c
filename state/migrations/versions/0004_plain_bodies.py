"""Unchanged rows are known by their row digests, in place of the bytes of their records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from state.tables import BIG_ID

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop what the last read of each feed has left: the next one maps every row once."""
    op.drop_table("record_memory")
    op.create_table(
        "row_digest_part",
        sa.Column("scope_id", BIG_ID, nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("digests", sa.LargeBinary(), nullable=False),
        sa.Column("entries", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scope.id"], name="fk_row_digest_part_scope_id_scope"),
        sa.PrimaryKeyConstraint("scope_id", "part", name="pk_row_digest_part"),
    )
