"""Private files and folders: what we store contains partners' rows and the bodies of events."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

OURS = ".eventsync"
"""Folders with this name are ours anywhere, so their permissions may be restricted; other existing folders are left as they
are.
"""

_OTHERS = 0o077


def keep_private() -> None:
    """Make all files that this process and its children create private: for processes that write the state.

    Files that a person asked for at a path follow the umask; commands that write such files do not call this.
    """
    os.umask(_OTHERS)


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents, all private; restrict those that are ours.

    Raises `OSError`.
    """
    for part in (*reversed(folder.parents), folder):
        if not part.exists():
            part.mkdir(mode=0o700, exist_ok=True)
        elif OURS in part.parts:
            narrow(part)


def make_private_file(file: Path) -> None:
    """Create an empty private file, or restrict an existing one; failures are left to the caller to notice.

    An existing file is never opened: closing it would release SQLite's locks on it in this process.
    """
    with suppress(OSError):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    narrow(file)


def narrow(path: Path) -> None:
    """Remove the permissions of other users from a file or folder of this user."""
    with suppress(OSError):
        found = path.stat()
        if found.st_mode & _OTHERS and found.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
