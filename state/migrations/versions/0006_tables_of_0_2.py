"""The tables of version 0.2; its own migrations, up to 0006, led to them."""

from __future__ import annotations

from alembic import op

from state.migrations.upgrade import run_sql

revision = "0006"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    connection = op.get_bind()
    run_sql(connection, __file__)
    columns = "(scope_id, kind, row_key)"
    if connection.dialect.name == "postgresql":  # a rejected row's key may be longer than a B-tree takes
        columns = "USING hash (row_key) WHERE kind = 'warning'"
    op.execute(f"CREATE INDEX ix_problem_row_scope_id_kind_row_key ON problem_row {columns}")
