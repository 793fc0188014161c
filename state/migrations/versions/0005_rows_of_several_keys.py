"""The keys that a row was met under, where a feed's rows may be known by several."""

from __future__ import annotations

from alembic import op

from state.migrations.upgrade import run_sql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql(op.get_bind(), __file__)
