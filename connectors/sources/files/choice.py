"""The choice of the files to read: patterns and days; local files, and their snapshots to detect changes."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath
from typing import Protocol, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from connectors.sources.contract import REAL_CLOCK, Clock, NoFolderError, SourceRefusedError, SourceUnavailableError, stamp_of_all
from connectors.sources.files.opened_file import StoredFile, digest_of
from mappings.allowed_files import allowed_path
from mappings.errors import SyncError
from mappings.spec.source_base import AnySource, FileSource
from mappings.spec.source_words import is_dated, is_pattern, on_day, without_secrets

_DIGITS = re.compile(r"(\d+)")
_MOST_FILES = 10_000


@dataclass(frozen=True, slots=True)
class FoundFile:
    """An existing file. `path`: its full path or address with secrets; `label`: distinguishes it from the other files
    (`lisbon/agenda.csv`).

    `version`: evidence of its content, "" if none. `changed_at`: seconds since 1970; `size`: bytes; None if unknown. `day`: the
    day in its name.
    """

    path: str = field(repr=False)
    label: str
    version: str = ""
    changed_at: float | None = None
    size: int | None = None
    day: date | None = None

    @property
    def name(self) -> str:
        """The file's name for people."""
        return self.label.rpartition("/")[2]

    @property
    def evidence(self) -> bytes:
        """Bytes that identify this version of this file, since two files may have equal versions."""
        return f"{self.label}\0{self.day or ''}\0{self.version}\0".encode("utf-8", "surrogateescape")


def stamp_of_files(files: Iterable[tuple[str, str]]) -> str:
    """Return the combined stamp of several files, given their names and stamps; "" if one of them has none."""
    named = list(files)
    return "; ".join(f"{name} {stamp}" for name, stamp in named) if all(stamp for _, stamp in named) else ""


class Files(Protocol):
    """Access to files: on this machine, on the web, or in a store."""

    def connected(self, path: str) -> AbstractContextManager[Self]:  # noqa: ARG002  # needed where there are connections
        """Return a context manager that uses one connection; `path` is one of the files, or a pattern."""
        return nullcontext(self)

    def shown(self, path: str) -> str:
        """Return a path for display."""
        return without_secrets(path)

    def find(self, path: str) -> FoundFile | None:
        """Return the file at a path, None if there is none."""
        ...

    def matching(self, pattern: str) -> Sequence[FoundFile]:
        """Return the files that match a pattern, unordered.

        Raises:
            NoFolderError: the pattern's folder does not exist.
        """
        found = self.find(pattern)
        return [found] if found else []

    def open(self, path: str) -> AbstractContextManager[StoredFile]:
        """Open the file at a path, or an unnamed temporary copy of it.

        Raises:
            SourceRefusedError: no such file, no access, too large, or a forbidden redirect.
            SourceUnavailableError: it did not arrive, or not completely, or changed meanwhile.
            ConfigError: the driver for this kind of address is not installed.
        """
        ...


@dataclass(frozen=True, slots=True)
class FileChoice:
    """The files of `files` that `spec` describes."""

    spec: FileSource
    files: Files
    clock: Clock

    @contextmanager
    def connected(self) -> Iterator[FileChoice]:
        """Return a context manager for the same choice over one connection."""
        with self.files.connected(self.spec.path) as files:
            yield replace(self, files=files)

    def found(self) -> tuple[FoundFile, ...]:
        """Return the existing files, finished or not: by day, then by name (`9` before `10`, `9.csv` before `9-late.csv`).

        Raises:
            SourceRefusedError: too many files, or the folder does not exist.
            SourceUnavailableError: the folder could not be listed.
        """
        single = list({file.path: file for file in sorted(self._all(), key=_order)}.values())
        if not is_dated(self.spec.path):
            single = [file for file in single if self.spec.days.has_changed(file.changed_at)]
        if len(single) > _MOST_FILES and self.spec.files != "newest":
            message = f"{len(single)} files match {self.files.shown(self.spec.path)}"
            raise SourceRefusedError(message, hint="narrow `source.path`, or write `files: newest`")
        return tuple(single)

    def all_finished(self) -> tuple[FoundFile, ...]:
        """Return the files to read, once all are finished; waits at most once, for the time of `settle`.

        Raises:
            SourceRefusedError: as `found`, or there is no file.
            SourceUnavailableError: one of them is still being written.
        """
        found = self.found()
        if not found:
            raise self.nothing_there()
        meant = found[-1:] if self.spec.files == "newest" else found
        if unfinished := list(self.unfinished(meant, is_patient=True).values()):
            message = "; ".join(unfinished[:3])
            raise SourceUnavailableError(message, hint="run again later; nothing was read, because the file may be incomplete")
        return meant

    def unfinished(self, files: Sequence[FoundFile], *, is_patient: bool = False, may_wait: bool = True) -> dict[FoundFile, str]:
        """Return the files that may still be written to, each with the reason as a sentence.

        A file younger than `settle` is one. With `is_patient` it is watched for that time instead, like every file of unknown
        age. Without `may_wait` files that would have to be watched count as finished.
        """
        if self.spec.settle is None:
            return {}
        settle_s = self.spec.settle.total_seconds()
        young, again = list[FoundFile](), list[FoundFile]()
        for file in files:
            # A file from the future has another clock than ours: nothing is known of its age.
            age_s = None if file.changed_at is None or file.changed_at > self.clock.now() else self.clock.now() - file.changed_at
            if age_s is not None and age_s >= settle_s:
                continue
            if may_wait and (is_patient or age_s is None):
                again.append(file)
            elif age_s is not None:
                young.append(file)
        if again:
            self.clock.sleep(settle_s)
        young += (file for file in again if not _is_same(file, self.files.find(file.path)))
        return {file: f"{file.label} is still being written: it changed less than {settle_s:.0f} s ago" for file in young}

    def nothing_there(self) -> SourceRefusedError:
        """Return the error for a source without any file."""
        message = f"no file matches {self.files.shown(self.spec.path)}"
        return SourceRefusedError(message, hint="check `source.path`, and that the partner has delivered it")

    def _all(self) -> Iterator[FoundFile]:
        """Yield the files of all patterns. A day without files may have no folder; if no day has one, their common folder must
        exist.
        """
        paths: list[tuple[str, date | None]] = [(self.spec.path, None)]
        if is_dated(self.spec.path):
            today = datetime.fromtimestamp(self.clock.now(), UTC).astimezone(ZoneInfo(self.spec.days.zone)).date()
            paths = [(on_day(self.spec.path, day), day) for day in self.spec.days.around(today)]
        missing = 0
        for path, day in paths:
            try:
                found = self.files.matching(path) if is_pattern(path) else [self.files.find(path)]
            except NoFolderError:
                missing += 1
                if missing == len(paths):
                    raise
            else:
                yield from (replace(file, day=day) for file in found if file)


def name_of(address: str) -> str:
    """Return the display name of the file at an address: its name, or its host."""
    parts = urlsplit(address.rpartition("::")[2])
    return PurePosixPath(parts.path).name or parts.hostname or without_secrets(address)


def _is_same(before: FoundFile, after: FoundFile | None) -> bool:
    return after is not None and (before.size, before.version, before.changed_at) == (after.size, after.version, after.changed_at)


def _order(file: FoundFile) -> tuple[object, ...]:
    """Return the sort key of a file. A name that continues another sorts after it, whatever their endings: 2026.csv, then
    2026-late.csv.
    """

    def by_number(text: str) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(text)]

    folder, _, name = file.label.rpartition("/")
    return file.day or date.min, by_number(f"{folder}/{name.partition('.')[0]}"), by_number(name), file.path


def fixed_folder(pattern: str) -> str:
    """Return the leading folders of a pattern without wildcards."""
    parts = pattern.split("/")[:-1]
    fixed = next((place for place, part in enumerate(parts) if any(mark in part for mark in "*?[")), len(parts))
    return "/".join(parts[:fixed])


@dataclass(frozen=True, slots=True)
class LocalFiles(Files):
    """Local files below the folder `base`, where relative paths start, and below `folders`.

    Each method raises OutsideError for a path that leads out of them.
    """

    base: Path
    folders: Sequence[Path] = ()

    def shown(self, path: str) -> str:
        """Return the full path, for display."""
        return str((self.base / Path(path).expanduser()).absolute())

    def find(self, path: str) -> FoundFile | None:
        """Return the file at a path, None if there is none."""
        full = self._full(path)
        try:
            status = full.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise SourceUnavailableError(f"{full} could not be checked: {error.strerror}") from error
        return FoundFile(str(full), full.name, _version(status), status.st_mtime, status.st_size)

    def matching(self, pattern: str) -> Sequence[FoundFile]:
        """Return the files that match a pattern, unordered.

        Raises:
            NoFolderError: the pattern's folder does not exist.
        """
        full = self.shown(pattern)
        fixed = self._full(fixed_folder(full) or "/")
        if not fixed.is_dir():
            raise NoFolderError(f"there is no folder {fixed}, where {full} is looked for", hint="check `source.path`")
        paths = (path for path in glob.iglob(full, recursive=True) if Path(path).is_file())  # noqa: PTH207  # pathlib's knows no absolute patterns
        found = ((path, self.find(path)) for path in paths)
        return [replace(one, label=os.path.relpath(path, fixed)) for path, one in found if one]

    @contextmanager
    def open(self, path: str) -> Iterator[StoredFile]:
        """Open the file in place."""
        full = self._full(path)
        try:
            # Asked before it is opened: opening a pipe would wait for a writer.
            if not stat.S_ISREG(full.stat().st_mode):
                kind = "a folder" if full.is_dir() else "not a regular file"
                raise SourceRefusedError(f"{full} is {kind}", hint="give the path of the file itself in `source.path`")
            stream = full.open("rb")
        except FileNotFoundError as error:
            missing = (
                "check that the partner has delivered it;"
                if full.parent.is_dir()
                else f"the folder {full.parent} does not exist either;"
            )
            hint = f"{missing} a relative `source.path` starts at the mapping file's folder"
            raise SourceRefusedError(f"there is no file {full}", hint=hint) from error
        except (PermissionError, NotADirectoryError) as error:
            raise SourceRefusedError(f"we may not read {full}: {error.strerror}", hint="let this user read the file") from error
        except OSError as error:
            raise SourceUnavailableError(f"{full} could not be opened: {error.strerror}") from error
        with stream:
            yield StoredFile(stream, full.name, _version(os.fstat(stream.fileno())))

    def check(self, path: str) -> None:
        """Raise OutsideError for a path that leads out of the folders."""
        self._full(path)

    def _full(self, path: str) -> Path:
        return allowed_path(path, self.base, self.folders)


def _version(status: os.stat_result) -> str:
    # The time of the last change of any kind: a copy that keeps its age, put in the file's place, has another one.
    return f"size={status.st_size} mtime_ns={status.st_mtime_ns} ctime_ns={status.st_ctime_ns}"


@dataclass(frozen=True, slots=True)
class FileSnapshot:
    """The files of a source. `content`: digest of their names and bytes; `read_as`: the stamp that a reading of them has."""

    content: str
    read_as: str


TakeSnapshot = Callable[[], FileSnapshot | None]
"""Takes a snapshot of the files that a source would read now; None if that is not possible."""


def take_snapshot(spec: AnySource, base: Path, clock: Clock = REAL_CLOCK, folders: Sequence[Path] = ()) -> FileSnapshot | None:
    """Digest the local files that a source reads, including joined tables; `folders`: as on opening it.

    Return None for other sources, files that cannot be read or are replaced meanwhile, files that may still be written to, and
    files that are read once each.
    """
    parts = [_own_files(spec, LocalFiles(base, folders), clock)]
    parts += (take_snapshot(join.source, base, clock, folders) for join in spec.join)
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return FileSnapshot(" ".join(part.content for part in known), stamp_of_all([part.read_as for part in known]))


def _own_files(spec: AnySource, local: LocalFiles, clock: Clock) -> FileSnapshot | None:
    if not isinstance(spec, FileSource) or not spec.is_at_hand or spec.files == "new" or spec.settle is not None:
        return None
    digest = hashlib.blake2b(digest_size=16)
    try:
        found = FileChoice(spec, local, clock).all_finished()
        for file in found:
            with local.open(file.path) as stored:
                content = digest_of(stored.stream)
            after = local.find(file.path)
            if after is None or not stored.stamp == file.version == after.version:
                return None
            digest.update(f"{file.label}\0{file.day or ''}\0{content}\0".encode("utf-8", "surrogateescape"))
    except (SyncError, OSError):
        return None  # reading them says what is wrong
    is_choice = is_pattern(spec.path) or is_dated(spec.path)
    read_as = stamp_of_files((file.name, file.version) for file in found) if is_choice else found[0].version
    return FileSnapshot(digest.hexdigest(), read_as)
