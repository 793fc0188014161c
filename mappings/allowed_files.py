"""The door to local files: what a mapping file names lies below its own folder, or below one that the environment names.

Links are followed before a path is compared. The system's own files, such as a process's environment, are never read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mappings.errors import ConfigError

ANYWHERE = (Path("/"),)
"""The folders for a file that a person names on the command line."""
_SYSTEM = tuple(map(Path, ("/proc", "/sys", "/dev")))
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # a file system of ordinary files


class OutsideError(ConfigError):
    """A mapping file names a file that it may not read."""


def allowed_path(name: str, base: Path, folders: Sequence[Path] = ()) -> Path:
    """Return the full path of a file that a mapping file in the folder `base` names; `folders`: others that it may read.

    Raises:
        OutsideError: the path leads outside of them, or into the system's own files.
    """
    full = Path(os.path.abspath(base / Path(name).expanduser()))  # noqa: PTH100  # pathlib keeps `..`
    try:
        real = Path(os.path.realpath(full))
    except ValueError as error:
        raise OutsideError(f"{name!r} is not a path: {error}", hint="correct the name of the file") from error
    shown = f"{full}, which leads to {real}," if real != full else f"{full}"
    paths = [path for path in (full, real) if not path.is_relative_to(_SHARED_MEMORY)]
    system = next((one for one in _SYSTEM for path in paths if path.is_relative_to(one)), None)
    if system is not None:
        raise OutsideError(f"{shown} is below {system}, from which no feed is read", hint="name a file that holds rows")
    if any(real.is_relative_to(os.path.realpath(folder)) for folder in (base, *folders)):
        return full
    hint = "move the file there, or name its folder in EVENTSYNC_FILES"
    raise OutsideError(f"{shown} is outside of the folder of the mapping file, {base.absolute()}", hint=hint)
