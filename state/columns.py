"""Column types that mean the same on SQLite and PostgreSQL. Which table has which column is `tables`'."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import BigInteger, DateTime, Dialect, Integer, String, Text
from sqlalchemy.types import TypeDecorator, TypeEngine


class UtcTime(TypeDecorator[datetime]):
    """An instant: aware and in UTC on the way in and on the way out; a naive value is refused.

    SQLite has no such type: there it is ISO 8601 text of one fixed width, which sorts as time does.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[datetime] | TypeEngine[str]:
        """Text on SQLite, `timestamptz` elsewhere."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String(32))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | str | None:
        """Refuse a naive time, store any other in UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone cannot be stored: {value!r}")
        instant = value.astimezone(UTC)
        return instant.isoformat(timespec="microseconds") if dialect.name == "sqlite" else instant

    def process_result_value(self, value: datetime | str | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 # the signature is SQLAlchemy's
        """Return an aware UTC time."""
        if value is None:
            return None
        return (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)


class PlainText(TypeDecorator[str]):
    """Text that both databases take: what neither of them can keep is spelt out on the way in, see `storable`."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002 # the signature is SQLAlchemy's
        """Spell out what cannot be kept."""
        return None if value is None else storable(value)


def storable(text: str) -> str:
    r"""Spell out what no database takes as text: NUL, and the halves of characters that a bad encoding leaves behind.

    Texts that differ stay different as long as a backslash in them is doubled, as it is in row keys.
    """
    if text.isprintable():  # neither of the two is, and asking costs next to nothing
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


BIG_ID = BigInteger().with_variant(Integer(), "sqlite")
"""64-bit identity; SQLite counts by itself only in a column of the exact type INTEGER."""
