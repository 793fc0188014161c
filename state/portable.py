"""A row of the state DB as one line of JSON that means the same on SQLite and on PostgreSQL, and what many lines come to.

Where lines come from and go to is `contents`' and `export_file`'s.
"""

from __future__ import annotations

import base64
import hashlib
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from sqlalchemy import Boolean, Column, Float, Integer, LargeBinary, String, Table

from state.tables import LEASE, SCOPE, PlainText, UtcTime

BLANK: Mapping[str, Mapping[str, object]] = {LEASE.name: {"holder": ""}, SCOPE.name: {"marked_id": 0}}
"""Columns that say nothing elsewhere: whoever holds a feed holds it where he is. The token goes along, so that it only grows.
Marks of twins are not carried."""
_MODULUS = 1 << 128


class StrangeLineError(ValueError):
    """A line is no row of its table: cut, damaged, or somebody else's."""


@dataclass(slots=True)
class Sum:
    """How many lines there were, and the sum of their digests: the same in whatever order they came."""

    rows: int = 0
    digest: int = 0

    def add(self, line: bytes) -> None:
        """Count a line."""
        self.rows += 1
        self.digest = (self.digest + int.from_bytes(hashlib.blake2b(line, digest_size=16).digest())) % _MODULUS

    def __str__(self) -> str:
        """The digest as text."""
        return f"{self.digest:032x}"


@dataclass(frozen=True, slots=True)
class Form:
    """How the rows of one table are written: as arrays, their columns in the order of the table."""

    table: Table
    columns: tuple[str, ...]
    _write: tuple[Callable[[Any], object] | None, ...]
    _read: tuple[Callable[[Any], object], ...]
    _blank: tuple[tuple[int, object], ...]

    def line(self, row: Sequence[object]) -> bytes:
        """Return a row as it is written, without a line's end."""
        values = [
            value if write is None or value is None else write(value) for write, value in zip(self._write, row, strict=True)
        ]
        for index, blank in self._blank:
            values[index] = blank
        return orjson.dumps(values)

    def row(self, line: bytes) -> dict[str, object]:
        """Return the row of a line, by column.

        Raises:
            StrangeLineError: it is none of this table.
        """
        try:
            values = orjson.loads(line)
            if not isinstance(values, list):
                raise StrangeLineError("it is no array")
            return {name: read(value) for name, read, value in zip(self.columns, self._read, values, strict=True)}
        except (ValueError, TypeError, NotBase64) as error:
            raise StrangeLineError(str(error)) from error


def form_of(table: Table) -> Form:
    """Return the form of a table's rows."""
    columns = tuple(table.columns)
    blank = BLANK.get(table.name, {})
    return Form(
        table,
        tuple(column.name for column in columns),
        tuple(_writer(column) for column in columns),
        tuple(_reader(column) for column in columns),
        tuple((index, blank[column.name]) for index, column in enumerate(columns) if column.name in blank),
    )


def _writer(column: Column[Any]) -> Callable[[Any], object] | None:
    match column.type:
        case UtcTime():
            return _as_text
        case LargeBinary():
            return _as_base64
        case _:
            return None


def _reader(column: Column[Any]) -> Callable[[Any], object]:
    match column.type:
        case UtcTime():
            return _checked(column, str, _instant)
        case LargeBinary():
            return _checked(column, str, _from_base64)
        case PlainText() | String():
            return _checked(column, str, None)
        case Boolean():
            return _checked(column, bool, None)
        case Float():
            return _checked(column, float, None)
        case Integer():
            return _checked(column, int, None)
        case _:
            raise TypeError(f"{column}: a {column.type} has no form of its own")


def _checked(column: Column[Any], kind: type, read: Callable[[Any], object] | None) -> Callable[[Any], object]:
    is_nullable = bool(column.nullable)

    def checked(value: Any) -> object:
        if value is None and is_nullable:
            return None
        if type(value) is not kind:
            raise StrangeLineError(f"{column.name} is a {type(value).__name__}, not a {kind.__name__}")
        return value if read is None else read(value)

    return checked


def _as_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds")


def _instant(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    if value.tzinfo is None:
        raise StrangeLineError(f"{text} is a time without a zone")
    return value


def _as_base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
