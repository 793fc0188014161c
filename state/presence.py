"""Whether there is a state DB at all: who only asks about it must not make one. Opening and making it is `database`'s."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, make_url
from sqlalchemy.exc import ArgumentError

from state.database import open_database


@contextmanager
def existing_database(url: str, *, upgrades: bool = True) -> Iterator[Engine | None]:
    """Open the state DB at a SQLAlchemy URL for the length of the block; None where none was made yet.

    `upgrades` False leaves its schema as it is.

    Raises what `open_database` raises.
    """
    if not _is_there(url):
        yield None
        return
    engine = open_database(url, upgrades=upgrades)
    try:
        yield engine
    finally:
        engine.dispose()


def _is_there(url: str) -> bool:
    """Only a SQLite file can be missing; whatever else is wrong with the URL, opening it says so."""
    try:
        address = make_url(url)
    except ArgumentError:
        return True
    file = address.database if address.get_backend_name() == "sqlite" else None
    return not file or file.startswith((":memory:", "file:")) or Path(file).exists()
