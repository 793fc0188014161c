"""Files and folders that are for their owner alone: what we keep holds partners' rows and the bodies of events."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

OURS = ".eventsync"
"""The folder of this name is ours wherever it lies, so its rights may be narrowed; other existing folders stay as they are."""

_OTHERS = 0o077


def keep_private() -> None:
    """Make all that this process and its children create from now on private: for processes that write what we keep.

    Files that a person asked for at a path follow the person's umask; commands that write such files do not call this.
    """
    os.umask(_OTHERS)


def make_private_folder(folder: Path) -> None:
    """Make a folder with those above it that are missing, all private; narrow those that are ours.

    Raises `OSError`.
    """
    for part in (*reversed(folder.parents), folder):
        if not part.exists():
            part.mkdir(mode=0o700, exist_ok=True)
        elif OURS in part.parts:
            narrow(part)


def make_private_file(file: Path) -> None:
    """Make an empty file unless it is there, and narrow it otherwise; a place where that fails is left to the caller.

    A file that is there is never opened: closing it would release the locks that SQLite holds on it in this process.
    """
    with suppress(OSError):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    narrow(file)


def narrow(path: Path) -> None:
    """Take the rights of others away from what belongs to this user."""
    with suppress(OSError):
        found = path.stat()
        if found.st_mode & _OTHERS and found.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
