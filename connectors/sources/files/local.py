"""Files of this machine: found, listed and opened where they are."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from connectors.sources.errors import NoFolderError, SourceRefusedError, SourceUnavailableError
from connectors.sources.files.opened_file import FoundFile, StoredFile


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files beside the folder `base`."""

    base: Path

    def connected(self, _path: str) -> AbstractContextManager[LocalFiles]:
        """Return the same files: there is no connection."""
        return nullcontext(self)

    def shown(self, path: str) -> str:
        """Return a path as people can use it."""
        return str(self._full(path))

    def find(self, path: str) -> FoundFile | None:
        """Return the file at a path, None if there is none."""
        full = self._full(path)
        try:
            status = full.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise SourceUnavailableError(f"{full} could not be looked at: {error.strerror}") from error
        found = FoundFile(str(full), full.name, _version(status), status.st_mtime, status.st_size)
        return replace(found, placed_at=status.st_ctime, number=status.st_ino)

    def matching(self, pattern: str) -> Sequence[FoundFile]:
        """Return the files that match, in no order.

        Raises:
            NoFolderError: the folder that they should lie in is not there.
        """
        full = str(self._full(pattern))
        fixed = _fixed_folder(full)
        if not Path(fixed).is_dir():
            raise NoFolderError(f"there is no folder {fixed}, where {full} is looked for", hint="check `source.path`")
        paths = (path for path in glob.iglob(full, recursive=True) if Path(path).is_file())  # noqa: PTH207  # pathlib's knows no absolute patterns
        found = ((path, self.find(path)) for path in paths)
        return [replace(one, label=os.path.relpath(path, fixed)) for path, one in found if one]

    @contextmanager
    def open(self, path: str) -> Iterator[StoredFile]:
        """Open the file where it is."""
        with _opened(self._full(path)) as stream:
            yield StoredFile(stream, Path(path).name, _version(os.fstat(stream.fileno())))

    def _full(self, path: str) -> Path:
        return (self.base / Path(path).expanduser()).absolute()


def _version(status: os.stat_result) -> str:
    # The time of the last change of any kind: a copy that keeps its age, put in the file's place, has another one.
    return f"size={status.st_size} mtime_ns={status.st_mtime_ns} ctime_ns={status.st_ctime_ns}"


def _fixed_folder(pattern: str) -> str:
    parts = Path(pattern).parts[:-1]
    fixed = next((place for place, part in enumerate(parts) if any(mark in part for mark in "*?[")), len(parts))
    return str(Path(*parts[:fixed]))


def _opened(full: Path) -> BinaryIO:
    try:
        # Asked before it is opened: opening a pipe would wait for a writer.
        if not stat.S_ISREG(full.stat().st_mode):
            kind = "a folder" if full.is_dir() else "not a regular file"
            raise SourceRefusedError(f"{full} is {kind}", hint="give the path of the file itself in `source.path`")
        return full.open("rb")
    except FileNotFoundError as error:
        raise SourceRefusedError(f"there is no file {full}", hint=_whereabouts(full)) from error
    except (PermissionError, NotADirectoryError) as error:
        raise SourceRefusedError(f"we may not read {full}: {error.strerror}", hint="let this user read the file") from error
    except OSError as error:
        raise SourceUnavailableError(f"{full} could not be opened: {error.strerror}") from error


def _whereabouts(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist either; a relative `source.path` starts at the mapping file's folder"
    return "has the partner delivered it? A relative `source.path` starts at the mapping file's folder"
