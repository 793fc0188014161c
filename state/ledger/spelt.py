"""A statement that runs for every row, spelt once for the driver: its rows go past the statement layer.

Which statements take this way, and what their values mean, is told where they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Connection, Dialect
from sqlalchemy.sql import ClauseElement

from state.tables import UtcTime

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler

Values = Mapping[str, object]
"""What a statement's parameters are for one row, by name."""


@dataclass(frozen=True, slots=True)
class _Spelling:
    """A statement in a driver's words. `in_order` puts values in their places, None where the driver knows their names."""

    words: str
    constants: Values
    in_order: Callable[[Values], Any] | None


class RowStatement:
    """One statement for many rows at a time: building their parameters costs as much again as the database's work.

    Values are given as the driver takes them: a text that is not ours as `storable` leaves it, a time as `bound` does.
    """

    def __init__(self, statement: ClauseElement) -> None:
        self._statement = statement
        self._spellings: dict[str, _Spelling] = {}

    def run(self, connection: Connection, rows: Sequence[Values]) -> int:
        """Run it for every row, of which there is at least one; return how many rows of the table it changed."""
        spelling = self._spellings.get(connection.dialect.name) or self._spelt(connection.dialect)
        whole: list[Any] = [{**spelling.constants, **row} for row in rows]
        if spelling.in_order is not None:
            whole = list(map(spelling.in_order, whole))
        return connection.exec_driver_sql(spelling.words, whole).rowcount

    def _spelt(self, dialect: Dialect) -> _Spelling:
        compiled = cast("SQLCompiler", self._statement.compile(dialect=dialect))
        constants = {name: value for name, value in compiled.params.items() if value is not None}
        in_order = itemgetter(*compiled.positiontup) if compiled.positiontup else None
        spelling = self._spellings[dialect.name] = _Spelling(str(compiled), constants, in_order)
        return spelling


def bound(connection: Connection, instant: datetime) -> object:
    """Return an instant as the driver takes it."""
    return UtcTime().process_bind_param(instant, connection.dialect)
