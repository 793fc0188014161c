"""Which files a source means today, and those of this machine: found, opened where they are, recognised unchanged (snapshots)."""

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
from urllib.parse import urlsplit, urlunsplit
from zoneinfo import ZoneInfo

from connectors.sources.contract import REAL_CLOCK, Clock, NoFolderError, SourceRefusedError, SourceUnavailableError, stamp_of_all
from connectors.sources.files.opened_file import StoredFile, digest_of
from mappings.errors import SyncError
from mappings.spec.source import AnySource, FileSource
from mappings.spec.source_words import is_address, is_dated, is_pattern, marker_of, on_day, without_secrets

SETTLED_S = 60.0
"""A file that was changed less than so long ago may change again unnoticed: its times are as coarse as the disk's."""
_DIGITS = re.compile(r"(\d+)")
_MOST_FILES = 10_000


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that is there. `path` leads to it, secrets included; `label` distinguishes it from its neighbours
    (`lisbon/agenda.csv`).

    `version` is evidence of its content, "" without any. `changed_at` and `placed_at` (when anything of it changed, its name
    and age included) are seconds since 1970, `size` bytes; None where unknown. `day`: the day that it is named after;
    `number`: its inode.
    """

    path: str = field(repr=False)
    label: str
    version: str = ""
    changed_at: float | None = None
    size: int | None = None
    day: date | None = None
    placed_at: float | None = None
    number: int | None = None

    @property
    def name(self) -> str:
        """What people call it."""
        return self.label.rpartition("/")[2]

    @property
    def evidence(self) -> bytes:
        """Identify this version of this file: two files may call their versions the same."""
        return f"{self.label}\0{self.day or ''}\0{self.version}\0".encode("utf-8", "surrogateescape")


def stamp_of_files(files: Iterable[tuple[str, str]]) -> str:
    """Return the stamp of several files that are read as one, given their names and stamps; "" where one gives no evidence."""
    named = list(files)
    return "; ".join(f"{name} {stamp}" for name, stamp in named) if all(stamp for _, stamp in named) else ""


class Files(Protocol):
    """Where files are: on this machine, on the web, in a store."""

    def connected(self, path: str) -> AbstractContextManager[Self]:  # noqa: ARG002  # needed where there are connections
        """Use one connection for the length of the block; `path` is one of the files, or a pattern."""
        return nullcontext(self)

    def shown(self, path: str) -> str:
        """Return a path as it may be shown to people."""
        return without_secrets(path)

    def find(self, path: str) -> FoundFile | None:
        """Return the file at a path, None if there is none."""
        ...

    def matching(self, pattern: str) -> Sequence[FoundFile]:
        """Return the files that match, in no order.

        Raises:
            NoFolderError: the folder that they should lie in is not there.
        """
        found = self.find(pattern)
        return [found] if found else []

    def open(self, path: str) -> AbstractContextManager[StoredFile]:
        """Open the file at a path: where it is, or a nameless copy of it.

        Raises:
            SourceRefusedError: no such file, no access, too large, or a redirect leads astray.
            SourceUnavailableError: it did not come, or not whole, or changed meanwhile.
            ConfigError: the driver of this kind of address is not installed.
        """
        ...


@dataclass(frozen=True, slots=True)
class FileChoice:
    """The files that `spec` means among those of `files`."""

    spec: FileSource
    files: Files
    clock: Clock

    @contextmanager
    def connected(self) -> Iterator[FileChoice]:
        """Make the same choice through one connection."""
        with self.files.connected(self.spec.path) as files:
            yield replace(self, files=files)

    def found(self) -> tuple[FoundFile, ...]:
        """Return what is there, finished or not: by day, then by name (`9` before `10`, `9.csv` before `9-late.csv`).

        Raises:
            SourceRefusedError: far too many; or the folder is not there.
            SourceUnavailableError: the place could not be listed.
        """
        single = list({file.path: file for file in sorted(self._all(), key=_order)}.values())
        if self.spec.marker:
            markers = {marker_of(self.spec.marker, file.name) for file in single}
            single = [file for file in single if file.name not in markers]
        if not is_dated(self.spec.path):
            single = [file for file in single if self.spec.days.has_changed(file.changed_at)]
        if len(single) > _MOST_FILES and self.spec.files != "newest":
            message = f"{len(single)} files match {self.files.shown(self.spec.path)}"
            raise SourceRefusedError(message, hint="narrow `source.path`, or say `files: newest`")
        return tuple(single)

    def all_finished(self) -> tuple[FoundFile, ...]:
        """Return the files that are read together, once they are finished; waits as long as `settle` says, once.

        Raises:
            SourceRefusedError: as `found`, or there is none.
            SourceUnavailableError: one of them is still being written.
        """
        found = self.found()
        if not found:
            raise self.nothing_there()
        meant = found[-1:] if self.spec.files == "newest" else found
        if unfinished := list(self.unfinished(meant, is_patient=True).values()):
            message = "; ".join(unfinished[:3])
            raise SourceUnavailableError(message, hint="run again later; nothing was read, so that no half of a file counts")
        return meant

    def unfinished(self, files: Sequence[FoundFile], *, is_patient: bool = False, may_wait: bool = True) -> dict[FoundFile, str]:
        """Return the files that may still be being written, each with a sentence that says why.

        A file younger than `settle` is one of them, unless `is_patient`: then it may show by not changing for so long that it
        is finished, as a file of unknown age always may. Without `may_wait` such a file counts as finished.
        """
        settle_s = self.spec.settle.total_seconds() if self.spec.settle else 0.0
        too_young = f"it changed less than {settle_s:.0f} s ago"
        why, again = dict[FoundFile, str](), list[FoundFile]()
        for file in files:
            # A file from the future has another clock than ours: nothing is known of its age.
            age_s = None if file.changed_at is None or file.changed_at > self.clock.now() else self.clock.now() - file.changed_at
            marker = marker_of(self.spec.marker, file.name) if self.spec.marker else ""
            if marker and self.files.find(beside(file.path, marker)) is None:
                why[file] = f"its marker {marker} is not there yet"
            elif self.spec.settle is None or (age_s is not None and age_s >= settle_s):
                continue
            elif may_wait and (is_patient or age_s is None):
                again.append(file)
            elif age_s is not None:
                why[file] = too_young
        if again:
            self.clock.sleep(settle_s)
        why |= dict.fromkeys((file for file in again if not _is_same(file, self.files.find(file.path))), too_young)
        return {file: f"{file.label} is still being written: {reason}" for file, reason in why.items()}

    def nothing_there(self) -> SourceRefusedError:
        """Return the error of a source without any file."""
        message = f"no file matches {self.files.shown(self.spec.path)}"
        return SourceRefusedError(message, hint="has the partner delivered it? Check `source.path`")

    def _all(self) -> Iterator[FoundFile]:
        """A day on which nothing came has no folder; where no day has one, it is their common place that is not there."""
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


def beside(path: str, name: str) -> str:
    """Return the path of a file's neighbour; of an address with its user and its query."""
    if not is_address(path):
        return str(Path(path).with_name(name))
    parts = urlsplit(path)
    return urlunsplit(parts._replace(path=f"{parts.path.rpartition('/')[0]}/{name}"))


def name_of(address: str) -> str:
    """Return what people call the file at an address: its name, or its host."""
    parts = urlsplit(address.rpartition("::")[2])
    return PurePosixPath(parts.path).name or parts.hostname or without_secrets(address)


def _is_same(before: FoundFile, after: FoundFile | None) -> bool:
    return after is not None and (before.size, before.version, before.changed_at) == (after.size, after.version, after.changed_at)


def _order(file: FoundFile) -> tuple[object, ...]:
    """A name that goes on where another ends comes after it with any ending: 2026.csv, then 2026-late.csv."""

    def by_number(text: str) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(text)]

    folder, _, name = file.label.rpartition("/")
    return file.day or date.min, by_number(f"{folder}/{name.partition('.')[0]}"), by_number(name), file.path


def fixed_folder(pattern: str) -> str:
    """Return the folders of a pattern that come before its first wildcard."""
    parts = pattern.split("/")[:-1]
    fixed = next((place for place, part in enumerate(parts) if any(mark in part for mark in "*?[")), len(parts))
    return "/".join(parts[:fixed])


@dataclass(frozen=True, slots=True)
class LocalFiles(Files):
    """The files beside the folder `base`."""

    base: Path

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
        fixed = Path(fixed_folder(full) or "/")
        if not fixed.is_dir():
            raise NoFolderError(f"there is no folder {fixed}, where {full} is looked for", hint="check `source.path`")
        paths = (path for path in glob.iglob(full, recursive=True) if Path(path).is_file())  # noqa: PTH207  # pathlib's knows no absolute patterns
        found = ((path, self.find(path)) for path in paths)
        return [replace(one, label=os.path.relpath(path, fixed)) for path, one in found if one]

    @contextmanager
    def open(self, path: str) -> Iterator[StoredFile]:
        """Open the file where it is."""
        full = self._full(path)
        try:
            # Asked before it is opened: opening a pipe would wait for a writer.
            if not stat.S_ISREG(full.stat().st_mode):
                kind = "a folder" if full.is_dir() else "not a regular file"
                raise SourceRefusedError(f"{full} is {kind}", hint="give the path of the file itself in `source.path`")
            stream = full.open("rb")
        except FileNotFoundError as error:
            missing = (
                "has the partner delivered it?" if full.parent.is_dir() else f"the folder {full.parent} does not exist either;"
            )
            hint = f"{missing} a relative `source.path` starts at the mapping file's folder"
            raise SourceRefusedError(f"there is no file {full}", hint=hint) from error
        except (PermissionError, NotADirectoryError) as error:
            raise SourceRefusedError(f"we may not read {full}: {error.strerror}", hint="let this user read the file") from error
        except OSError as error:
            raise SourceUnavailableError(f"{full} could not be opened: {error.strerror}") from error
        with stream:
            yield StoredFile(stream, full.name, _version(os.fstat(stream.fileno())))

    def _full(self, path: str) -> Path:
        return (self.base / Path(path).expanduser()).absolute()


def _version(status: os.stat_result) -> str:
    # The time of the last change of any kind: a copy that keeps its age, put in the file's place, has another one.
    return f"size={status.st_size} mtime_ns={status.st_mtime_ns} ctime_ns={status.st_ctime_ns}"


@dataclass(frozen=True, slots=True)
class FileSnapshot:
    """The files of a source as they stand now. `stamp`: evidence of which they are, and of their sizes and times; `read_as`: the
    very stamp of a reading of them; `size` in bytes, of all together.

    `is_settled`: they have been unchanged for a while, so that a change would show in the stamp.
    """

    stamp: str
    read_as: str
    size: int
    is_settled: bool
    files: tuple[FoundFile, ...]

    def digest(self) -> str:
        """Digest the bytes of all files, in one pass over them; "" where one is another file by now, or out of reach."""
        try:
            digests = [_digest(file) for file in self.files]
        except (SyncError, OSError):
            return ""
        return hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest() if all(digests) else ""


def _digest(found: FoundFile) -> bytes:
    """Digest a file's bytes, as they are stored, with its name; b"" where it is another file by now."""
    files = LocalFiles(Path())
    with files.open(found.path) as stored:
        content = digest_of(stored.stream) if stored.stamp == found.version else ""
    with files.open(found.path) as again:
        is_same = bool(content) and again.stamp == found.version
    return f"{found.label}\0{found.day or ''}\0{content}\0".encode("utf-8", "surrogateescape") if is_same else b""


TakeSnapshot = Callable[[], FileSnapshot | None]
"""Takes a snapshot of what a source would read now; None where none can be taken."""


def take_snapshot(spec: AnySource, base: Path, clock: Clock = REAL_CLOCK) -> FileSnapshot | None:
    """Take a snapshot of the files of this machine that a source reads, its second tables among them.

    None for every other source, for missing files, and for files that may have to be waited for, or are read once each.
    """
    parts = [_own_files(spec, base, clock), *(take_snapshot(join.source, base, clock) for join in spec.join)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return FileSnapshot(
        stamp=" ".join(part.stamp for part in known),
        read_as=stamp_of_all([part.read_as for part in known]),
        size=sum(part.size for part in known),
        is_settled=all(part.is_settled for part in known),
        files=tuple(file for part in known for file in part.files),
    )


def _own_files(spec: AnySource, base: Path, clock: Clock) -> FileSnapshot | None:
    if not isinstance(spec, FileSource) or not spec.is_at_hand or spec.files == "new" or spec.settle is not None or spec.marker:
        return None
    try:
        found = FileChoice(spec, LocalFiles(base), clock).all_finished()
    except SyncError:
        return None  # reading them says what is wrong
    # Inodes count: a link may lead to a neighbour of the same size, made in the same instant.
    evidence = b"".join(file.evidence + f"{file.number}\0".encode() for file in found)
    is_choice = is_pattern(spec.path) or is_dated(spec.path)
    last_change = max(max(file.changed_at or 0.0, file.placed_at or 0.0) for file in found)
    return FileSnapshot(
        stamp=hashlib.blake2b(evidence, digest_size=16).hexdigest(),
        read_as=stamp_of_files((file.name, file.version) for file in found) if is_choice else found[0].version,
        size=sum(file.size or 0 for file in found),
        is_settled=clock.now() - last_change > SETTLED_S,
        files=found,
    )
