"""Where a month is played: in memory, where this machine has room for it there. Dagster waits for a disk at each event."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")
_ROOM = 512 * 1024**2
"""Several times what a month takes; containers often have less there."""


@contextmanager
def empty_folder() -> Iterator[Path]:
    """Make an empty folder for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="month-", dir=_IN_MEMORY if _has_room() else None) as folder:
        yield Path(folder)


def _has_room() -> bool:
    return os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free > _ROOM
