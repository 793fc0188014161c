"""Adds the keys under which a row was met, for feeds whose rows have several possible keys."""

from __future__ import annotations

from alembic import op

from state.migrations.upgrade import run_sql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql(op.get_bind(), __file__)
