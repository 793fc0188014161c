"""Bodies are stored as they were sent: those that version 0.1 had packed are unpacked, and the packing dictionaries dropped.

Unchanged rows are known by their row digests, in place of the bytes of their records: the next read maps every row once.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Connection

from state.migrations.upgrade import PACKED, unpacked
from state.tables import BIG_ID

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_PAGE = 500
_SCOPE = sa.table("scope", sa.column("id"), sa.column("body_base", sa.LargeBinary()))
_ENTRY = sa.table(
    "ledger_entry",
    *(sa.column(name) for name in ("id", "scope_id")),
    *(sa.column(name, sa.LargeBinary()) for name in ("body", "baseline_body")),
)
_EARLIER = sa.table("earlier_event", sa.column("entry_id"), sa.column("revision"), sa.column("body", sa.LargeBinary()))


def upgrade() -> None:
    connection = op.get_bind()
    entry_scope = sa.select(_ENTRY.c.scope_id).where(_ENTRY.c.id == _EARLIER.c.entry_id).scalar_subquery()
    _unpack(connection, _ENTRY, "body", [_ENTRY.c.id], _ENTRY.c.scope_id)
    _unpack(connection, _ENTRY, "baseline_body", [_ENTRY.c.id], _ENTRY.c.scope_id)
    _unpack(connection, _EARLIER, "body", [_EARLIER.c.entry_id, _EARLIER.c.revision], entry_scope)
    op.drop_column("scope", "body_base")
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


def _unpack(
    connection: Connection,
    table: sa.TableClause,
    name: str,
    key: list[sa.ColumnClause[int]],
    scope_id: sa.ColumnElement[int],
) -> None:
    """Unpack one column, a page of rows at a time."""
    column = table.c[name]
    base = sa.select(_SCOPE.c.body_base).where(_SCOPE.c.id == scope_id).scalar_subquery()
    is_packed = sa.func.substr(column, 1, 1, type_=sa.LargeBinary()) == PACKED
    rows_packed = sa.select(*key, column.label("kept"), base.label("base")).where(is_packed).order_by(*key).limit(_PAGE)
    is_row = sa.and_(*(part == sa.bindparam(f"the_{part.name}") for part in key))
    put = sa.update(table).where(is_row).values({name: sa.bindparam("plain", type_=sa.LargeBinary())})
    after = tuple(-1 for _ in key)
    while rows := connection.execute(rows_packed.where(sa.tuple_(*key) > after)).all():
        keys = [{f"the_{part.name}": getattr(row, part.name) for part in key} for row in rows]
        plain = [{"plain": unpacked(row.kept, row.base)} for row in rows]
        connection.execute(put, [{**which, **body} for which, body in zip(keys, plain, strict=True)])
        after = tuple(keys[-1].values())
