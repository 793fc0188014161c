"""The tables of version 0.1; its own migrations, 0001 and 0002, led to them."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = None
branch_labels = None
depends_on = None

_SQLITE_TYPES = {"BIGSERIAL": "INTEGER", "BIGINT": "INTEGER", "BYTEA": "BLOB", "TIMESTAMPTZ": "VARCHAR(32)"}


def upgrade() -> None:
    connection = op.get_bind()
    _, tables = Path(__file__).with_suffix(".sql").read_text("utf-8").split("\n", 1)
    replaced = _SQLITE_TYPES if connection.dialect.name == "sqlite" else {" AUTOINCREMENT": ""}
    for old, new in replaced.items():
        tables = tables.replace(old, new)
    for statement in filter(None, tables.strip().split(";\n")):
        connection.exec_driver_sql(statement.removesuffix(";"))
