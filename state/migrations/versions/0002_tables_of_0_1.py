"""The tables of version 0.1; its own migrations, 0001 and 0002, led to them."""

from __future__ import annotations

from alembic import op

from state.migrations.upgrade import run_sql

revision = "0002"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql(op.get_bind(), __file__)
