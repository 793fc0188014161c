"""An empty state DB for each example, of either kind: it is emptied in place, so that statements are compiled only once."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from empty_books import folder_in_memory, lay_out
from sqlalchemy import Engine, text

from state.opening import open_database
from state.tables import METADATA


class StateDb(Protocol):
    """Where the books are, and how they are lost."""

    engine: Engine

    def empty(self) -> None:
        """Forget all that is in it."""


class OneFile:
    """A SQLite file in memory, replaced by an empty one."""

    def __init__(self) -> None:
        self._folder = folder_in_memory()
        self._place = lay_out(Path(self._folder.name) / "state.db")
        self.engine = open_database(f"sqlite:///{self._place}")

    def empty(self) -> None:
        self.engine.dispose()
        for path in Path(self._folder.name).iterdir():
            path.unlink()
        lay_out(self._place)


class OneServer:
    """A database of a PostgreSQL server."""

    def __init__(self, url: str) -> None:
        self.engine = open_database(url)

    def empty(self) -> None:
        names = ", ".join(METADATA.tables)
        with self.engine.begin() as connection:
            connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))

    def close(self) -> None:
        self.engine.dispose()
