"""Adds shards: leases and records of the workers that publish one run's rows together."""

from __future__ import annotations

from alembic import op

from state.migrations.upgrade import run_sql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql(op.get_bind(), __file__)
