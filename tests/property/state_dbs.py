"""An empty state DB for each example, of either kind: it is emptied in place, so that statements are compiled only once."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Protocol

from sqlalchemy import Engine, text

from state.database import open_database
from state.tables import METADATA

IN_MEMORY = Path("/dev/shm")  # a killed process is tested here, not a power cut: the disk need not be waited for


class StateDb(Protocol):
    """Where the books are, and how they are lost."""

    engine: Engine

    def empty(self) -> None:
        """Forget all that is in it."""


class OneFile:
    """A SQLite file in memory, replaced by an empty one: making its tables takes longer than a run."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
        self._new = Path(self._folder.name) / "new.db"
        open_database(f"sqlite:///{self._new}").dispose()
        self._place = Path(self._folder.name) / "state.db"
        shutil.copy(self._new, self._place)
        self.engine = open_database(f"sqlite:///{self._place}")

    def empty(self) -> None:
        self.engine.dispose()
        for path in Path(self._folder.name).glob("state.db*"):
            path.unlink()
        shutil.copy(self._new, self._place)


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
