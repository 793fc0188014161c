"""Stores bodies as sent: those packed by version 0.1 are unpacked, and the packing dictionaries dropped.

Unchanged rows are now recognised by row digests instead of the bytes of their records, so the next read maps every row once.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from state.migrations.upgrade import PACKED, change_rows, run_sql, unpacked

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_SCOPE = sa.table("scope", sa.column("id"), sa.column("body_base", sa.LargeBinary()))
_BINARY = [sa.column(name, sa.LargeBinary()) for name in ("body", "baseline_body")]
_ENTRY = sa.table("ledger_entry", sa.column("id"), sa.column("scope_id"), *_BINARY)
_EARLIER = sa.table("earlier_event", sa.column("entry_id"), sa.column("revision"), sa.column("body", sa.LargeBinary()))


def upgrade() -> None:
    entry_scope = sa.select(_ENTRY.c.scope_id).where(_ENTRY.c.id == _EARLIER.c.entry_id).scalar_subquery()
    _unpack(_ENTRY.c.body, (_ENTRY.c.id,), _ENTRY.c.scope_id)
    _unpack(_ENTRY.c.baseline_body, (_ENTRY.c.id,), _ENTRY.c.scope_id)
    _unpack(_EARLIER.c.body, (_EARLIER.c.entry_id, _EARLIER.c.revision), entry_scope)
    run_sql(op.get_bind(), __file__)


def _unpack(body: sa.ColumnClause[bytes], key: tuple[sa.ColumnClause[int], ...], scope_id: sa.ColumnElement[int]) -> None:
    base = sa.select(_SCOPE.c.body_base).where(_SCOPE.c.id == scope_id).scalar_subquery()
    rows = sa.select(*key, body.label("packed"), base.label("base"))
    is_packed = sa.func.substr(body, 1, 1, type_=sa.LargeBinary()) == PACKED
    change_rows(op.get_bind(), rows.where(is_packed), key, body, lambda row: unpacked(row.packed, row.base))
