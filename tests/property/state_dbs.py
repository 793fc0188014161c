"""An empty state DB for each example, of either kind: it is emptied in place, so that statements are compiled only once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from empty_books import folder_in_memory, lay_out
from sqlalchemy import text

from state.database import StateDb
from state.opening import open_database
from state.tables import METADATA


@dataclass(frozen=True)
class Books:
    """Where the books are, and how they are lost."""

    engine: StateDb
    empty: Callable[[], None]


def one_file() -> Books:
    """A SQLite file in memory, replaced by an empty one."""
    folder = folder_in_memory()
    place = lay_out(Path(folder.name) / "state.db")
    engine = open_database(f"sqlite:///{place}")

    def empty() -> None:
        engine.dispose()
        for path in Path(folder.name).iterdir():
            path.unlink()
        lay_out(place)

    return Books(engine, empty)


def one_server(url: str) -> Books:
    """A database of a PostgreSQL server."""
    engine = open_database(url)

    def empty() -> None:
        with engine.begin() as connection:
            connection.execute(text(f"TRUNCATE {', '.join(METADATA.tables)} RESTART IDENTITY CASCADE"))

    return Books(engine, empty)
