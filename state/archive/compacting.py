"""Making the state DB smaller: bodies of delivered rows are packed by pages, and the file gives back what room is free.

How one body is packed is `packing`'s. Runs may be at work meanwhile; what may still be sent is left as it is, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, Table, bindparam, func, select, update

from state.database import reading, shrink, size_of, writing
from state.enums import EntryState
from state.packing import PACKED, Packer
from state.tables import EARLIER, ENTRY, SCOPE

_PAGE = 1_000

_IS_DELIVERED = ENTRY.c.state == EntryState.DELIVERED.value


@dataclass(frozen=True, slots=True)
class Compaction:
    """`packed`: bodies that are packed by now and were not before; `spared`: bytes that they take less; `before`, `after`:
    bytes of the whole, which on PostgreSQL stays until its own vacuum has used the room again.
    """

    packed: int
    spared: int
    before: int
    after: int


def compact(engine: Engine, tell: Callable[[int], None]) -> Compaction:
    """Pack what is delivered and not packed yet, then let SQLite write its file anew. `tell` hears how many rows are done.

    Raises `StateUnavailableError` or `StateBusyError`; what was packed by then stays so, and every body reads as before.
    """
    before, packed, spared = size_of(engine), 0, 0
    for scope_id, packer in _packers(engine).items():
        of_feed = (ENTRY.c.scope_id == scope_id, _IS_DELIVERED)
        entries = select(ENTRY.c.id, ENTRY.c.body).where(*of_feed, _is_plain(ENTRY))
        ours = EARLIER.c.entry_id.in_(select(ENTRY.c.id).where(ENTRY.c.scope_id == scope_id))
        earlier = select(EARLIER.c.entry_id.label("id"), EARLIER.c.body).where(ours, _is_plain(EARLIER))
        for query, table, key in ((entries, ENTRY, ENTRY.c.id), (earlier, EARLIER, EARLIER.c.entry_id)):
            for bodies in _pages(engine, query, key):
                less = _pack(engine, table, key, [(row.id, bytes(row.body), packer.pack(bytes(row.body))) for row in bodies])
                packed, spared = packed + len(less), spared + sum(less)
                tell(len(bodies))
    shrink(engine)
    return Compaction(packed, spared, before, size_of(engine))


def _packers(engine: Engine) -> dict[int, Packer]:
    """Return a packer for each feed that has delivered rows; where it had no base, its youngest body becomes that, for life."""
    found: dict[int, Packer] = {}
    with writing(engine) as connection:
        for scope_id in connection.execute(select(SCOPE.c.id).order_by(SCOPE.c.id)).scalars().all():
            base = _base(connection, scope_id)
            if base is not None:
                found[scope_id] = Packer(base)
    return found


def _base(connection: Connection, scope_id: int) -> bytes | None:
    of_feed = (ENTRY.c.scope_id == scope_id, _IS_DELIVERED)
    youngest = select(ENTRY.c.body).where(*of_feed).order_by(ENTRY.c.id.desc()).limit(1).scalar_subquery()
    connection.execute(update(SCOPE).where(SCOPE.c.id == scope_id, SCOPE.c.body_base.is_(None)).values(body_base=youngest))
    base = connection.execute(select(SCOPE.c.body_base).where(SCOPE.c.id == scope_id)).scalar_one()
    return None if base is None else bytes(base)


def _is_plain(table: Table) -> ColumnElement[bool]:
    return func.substr(table.c.body, 1, 1) != PACKED


def _pages(engine: Engine, query: Select[Any], key: ColumnElement[int]) -> Any:
    after = 0
    while page := _page(engine, query.where(key > after).order_by(key).limit(_PAGE)):
        yield page
        after = page[-1].id


def _page(engine: Engine, query: Select[Any]) -> Sequence[Row[*tuple[Any, ...]]]:
    with reading(engine) as connection:
        return connection.execute(query).all()


def _pack(engine: Engine, table: Table, key: ColumnElement[int], bodies: Sequence[tuple[int, bytes, bytes]]) -> list[int]:
    """Write those that are shorter now, and return by how much, unless a run has put another body there meanwhile."""
    smaller = [(row_id, body, packed) for row_id, body, packed in bodies if len(packed) < len(body)]
    is_same = (key == bindparam("row"), table.c.body == bindparam("plain", type_=table.c.body.type))
    is_kept = (_IS_DELIVERED,) if table is ENTRY else ()
    write = update(table).where(*is_same, *is_kept).values(body=bindparam("packed", type_=table.c.body.type))
    if smaller:
        with writing(engine) as connection:
            connection.execute(write, [{"row": row_id, "plain": body, "packed": packed} for row_id, body, packed in smaller])
    return [len(body) - len(packed) for _, body, packed in smaller]
