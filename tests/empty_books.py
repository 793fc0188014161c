"""An empty SQLite state DB, to be copied: making its tables takes longer than most tests do."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from state.opening import open_database

_SHELF = Path("/dev/shm")  # what is tested with it is a killed process, not a power cut: the disk need not be waited for
_ROOM = 512 * 1024**2
"""Several times what a test takes; containers often have less there."""


def lay_out(place: Path) -> Path:
    """Put an empty state DB there, and return the place."""
    shutil.copy(Path(_made().name) / "empty.db", place)
    return place


def folder_in_memory() -> tempfile.TemporaryDirectory[str]:
    """A folder that no disk has to be waited for, where the machine has such, with room."""
    has_room = _SHELF.is_dir() and os.access(_SHELF, os.W_OK) and shutil.disk_usage(_SHELF).free > _ROOM
    return tempfile.TemporaryDirectory(dir=_SHELF if has_room else None)


@cache
def _made() -> tempfile.TemporaryDirectory[str]:
    """The folder with the original; it goes with this process."""
    folder = tempfile.TemporaryDirectory()
    open_database(f"sqlite:///{folder.name}/empty.db").dispose()
    return folder
