"""Copies of files from elsewhere, kept for as long as one reading lasts: each is fetched once, though it is opened twice.

Files of this machine are opened where they are.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from connectors.sources.clockwork import REAL, Clockwork
from connectors.sources.contract import Ending, Reading, Source, unchanged
from connectors.sources.errors import SourceUnavailableError
from connectors.sources.files.choice import FileChoice, Files, Unfinished, beside
from connectors.sources.files.fetching import LARGEST_BYTES, Fetching
from connectors.sources.files.local import LocalFiles
from connectors.sources.files.opened_file import FileAt, FoundFile, KeptFile, OpenStored
from connectors.sources.files.web import WebFiles, name_of
from connectors.sources.header import Asked
from mappings.outcome import RowLocation, SourceRow
from mappings.spec.source import FileSource
from mappings.spec.source_words import is_address, is_dated, is_pattern, is_web_address, marker_of

MOST_KEPT = 100
"""Each copy is an open file, of which a process may have a thousand; further ones are fetched as often as they are opened."""


@dataclass(slots=True)
class KeptCopies:
    """The copies of one reading."""

    files: Files
    _open_things: ExitStack
    _kept: dict[str, KeptFile] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def of(cls, files: Files) -> Iterator[Self]:
        """Keep copies for the length of the block."""
        with ExitStack() as open_things:
            yield cls(files, open_things)

    def opener(self, file: FoundFile) -> OpenStored:
        """Return what opens a file: where it is, or its copy."""
        fetching = self.files.kept_at(file.path)
        if fetching is None or len(self._kept) >= MOST_KEPT:
            return self.files.at(file.path)
        if file.path not in self._kept:
            self._kept[file.path] = self._open_things.enter_context(fetching)
        return self._kept[file.path].opened


OpenOne = Callable[[OpenStored], Source]
ReadAs = Callable[[FileAt], Source]
"""Reads a file as one of its format."""


@dataclass(frozen=True, slots=True)
class ManyFiles:
    """All files of a choice, each opened as a source by `open_one`; what a row's place is, its file says.

    `since`: the version that all of them together had when they were read before; `keeps_versions`: whether it is worth
    telling, as files elsewhere are dear to fetch.
    """

    choice: FileChoice
    open_one: OpenOne
    columns: tuple[str, ...]
    keeps_versions: bool = False
    since: str = ""

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`: every file's header is looked at before the first row of the first."""
        with self.choice.connected() as choice:
            files = choice.all_finished()
            version = _version_of(files) if self.keeps_versions else ""
            if version and version == self.since:
                yield unchanged(self.columns, version, files[-1].label)
                return
            with opened_together(files, choice, self.open_one) as (columns, parts), closing(_rows(parts, columns)) as rows:
                stamp = stamp_of_files((part.file.name, part.stamp) for part in parts)
                has_known_end = all(part.has_known_end for part in parts)
                yield Reading(columns, rows, stamp, ending=lambda: Ending(version), has_known_end=has_known_end)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of several; `folder` is put before its rows' places where another file may have its name."""

    file: FoundFile
    source: Source
    folder: str
    columns: tuple[str, ...]
    stamp: str
    has_known_end: bool

    def rows(self, columns: tuple[str, ...]) -> Iterator[SourceRow]:
        """Read the file's rows, with all of the columns.

        Raises:
            SourceUnavailableError: it is another file by now.
        """
        blank = dict.fromkeys(columns, "")
        with self.source.read() as reading:
            if reading.stamp != self.stamp:
                raise SourceUnavailableError(f"{self.file.label} changed while we read the files before it", hint="run again")
            if reading.columns == columns and not self.folder:
                yield from reading.rows
                return
            for row in reading.rows:
                origin = RowLocation(f"{self.folder}{row.origin.place}", row.origin.number)
                yield replace(row, origin=origin, cells={**blank, **row.cells})


@contextmanager
def opened_together(
    files: Sequence[FoundFile], choice: FileChoice, open_one: OpenOne, *, is_told_apart: bool = False
) -> Iterator[tuple[tuple[str, ...], Sequence[Part]]]:
    """Look at every file's header; give the columns of all of them together, and the files, to be read one by one.

    `is_told_apart`: the places of their rows differ from those of files that are not among them, but were or will be.
    """
    with ExitStack() as open_things:
        copies = open_things.enter_context(KeptCopies.of(choice.files))
        parts = []
        for file in files:
            source = open_one(copies.opener(file))
            with source.read() as reading:
                folder = _folder(file, choice) if is_told_apart or _has_namesake(file, files) else ""
                parts.append(Part(file, source, folder, reading.columns, reading.stamp, reading.has_known_end))
        yield tuple(dict.fromkeys(column for part in parts for column in part.columns)), parts


def stamp_of_files(files: Iterable[tuple[str, str]]) -> str:
    """Return the stamp of several files that are read as one, given their names and stamps; "" where one gives no evidence."""
    told = list(files)
    return "; ".join(f"{name} {stamp}" for name, stamp in told) if all(stamp for _, stamp in told) else ""


def _version_of(files: Sequence[FoundFile]) -> str:
    if not all(file.version for file in files):
        return ""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(file.evidence)
    return f"files={digest.hexdigest()}"


def _has_namesake(file: FoundFile, files: Sequence[FoundFile]) -> bool:
    return sum(other.name == file.name for other in files) > 1


def _folder(file: FoundFile, choice: FileChoice) -> str:
    """Return what tells a file from its namesakes: its folders, as far as they differ, else its day."""
    day = "" if file.day is None or is_dated(choice.spec.path.rpartition("/")[2]) else file.day.isoformat()
    return f"{file.label.rpartition('/')[0] or day}/".lstrip("/")


def _rows(parts: Sequence[Part], columns: tuple[str, ...]) -> Generator[SourceRow]:
    for part in parts:
        yield from part.rows(columns)


NO_FILES = "files.1:"
"""The cursor of an earlier reading that covers none of the files there are: all are read, and none at all is a quiet day."""
_DIGEST_BYTES = 9
_LETTERS = _DIGEST_BYTES * 4 // 3
_MOST_TOLD = 3


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The files of a choice that were not read before, as `since` says: a cursor of an earlier reading."""

    choice: FileChoice
    open_one: OpenOne
    columns: tuple[str, ...]
    since: str = ""

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`.

        Behind a file that is read all those are read again that come after it, so that the later word on a row comes last.
        A file that is still being written is not there yet. No file at all is a mistake at first, and a quiet day later.
        The cursor covers exactly the files all of whose rows were given, among those that are there.
        """
        with self.choice.connected() as choice:
            progress, finished, unfinished = self._to_read(choice)
            with (
                opened_together(finished, choice, self.open_one, is_told_apart=True) as (columns, parts),
                closing(progress.over(parts, columns)) as rows,
            ):
                ending = _Ended(progress, tuple(finished), unfinished)
                yield Reading(columns or self.columns, rows, is_whole=False, ending=ending)

    def _to_read(self, choice: FileChoice) -> tuple[_Progress, Sequence[FoundFile], tuple[Unfinished, ...]]:
        known = read_marks(self.since)
        there = choice.found()
        if not there and not self.since.startswith(NO_FILES):
            raise choice.nothing_there()
        fresh = [file for file in there if mark_of(file) not in known]
        unfinished = choice.unfinished(fresh, is_patient=False)
        if unfinished and choice.spec.days.are_given:
            told = "; ".join(map(str, unfinished[:_MOST_TOLD]))
            raise SourceUnavailableError(told, hint="run again later; nothing was read, so that no half of a day counts")
        finished = _from_the_first_on(there, set(fresh), {one.file for one in unfinished})
        return _Progress(known.intersection(map(mark_of, there))), finished, unfinished


def _from_the_first_on(there: Sequence[FoundFile], fresh: set[FoundFile], unfinished: set[FoundFile]) -> list[FoundFile]:
    """Return the first file to read and all behind it: what a late or a corrected one says is old news to those."""
    left = [file for file in there if file not in unfinished]
    first = next((place for place, file in enumerate(left) if file in fresh), len(left))
    return left[first:]


def mark_of(file: FoundFile) -> str:
    """Return what stands for a file of this version in a cursor: no name, no address, and so no secret."""
    return base64.urlsafe_b64encode(hashlib.blake2b(file.evidence, digest_size=_DIGEST_BYTES).digest()).decode("ascii")


def read_marks(cursor: str) -> frozenset[str]:
    """Return the marks in a cursor; one that we did not write has none."""
    if not cursor.startswith(NO_FILES):
        return frozenset()
    marks = cursor.removeprefix(NO_FILES)
    return frozenset(marks[place : place + _LETTERS] for place in range(0, len(marks), _LETTERS))


@dataclass(slots=True)
class _Progress:
    """The marks of all files that need not be read again."""

    marks: frozenset[str]

    def over(self, parts: Sequence[Part], columns: tuple[str, ...]) -> Generator[SourceRow]:
        for part in parts:
            yield from part.rows(columns)
            # One whose version is no evidence yet, as it is so fresh, is read once more rather than never again.
            if part.file.version:
                self.marks = self.marks.union({mark_of(part.file)})


@dataclass(frozen=True, slots=True)
class _Ended:
    progress: _Progress
    read: tuple[FoundFile, ...]
    unfinished: tuple[Unfinished, ...]

    def __call__(self) -> Ending:
        return Ending(NO_FILES + "".join(sorted(self.progress.marks)), tuple(self._notices()))

    def _notices(self) -> Iterator[str]:
        names = [file.label for file in self.read]
        more = f" and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else ""
        yield f"files read: {', '.join(names[:_MOST_TOLD])}{more}" if names else "no new file has come"
        yield from (f"{one}; it is left for a later run" for one in self.unfinished[:_MOST_TOLD])


@dataclass(frozen=True, slots=True)
class WebSource:
    """The file at an address of the web, opened as a source by `open_one`. `since`: its version when it was read before."""

    spec: FileSource
    files: WebFiles
    open_one: OpenOne
    columns: tuple[str, ...]
    since: str = ""

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`."""
        self._await_marker()
        with self.files.fetched_if_changed(self.spec.path, self.since) as kept:
            if kept is None:
                yield unchanged(self.columns, self.since, name_of(self.spec.path))
                return
            self._await_end(kept)
            with self.open_one(kept.opened).read() as reading:
                yield replace(reading, ending=lambda: Ending(kept.version), records=None)

    def _await_marker(self) -> None:
        if self.spec.marker:
            marker = beside(self.spec.path, marker_of(self.spec.marker, name_of(self.spec.path)))
            if self.files.look(marker) is None:
                raise self._unfinished(f"its marker {name_of(marker)} is not there yet")

    def _await_end(self, kept: KeptFile) -> None:
        """A young file, or one of unknown age, is asked for once more, after a while: it should be the same."""
        settle = self.spec.settle
        if settle is None or (kept.age_s is not None and kept.age_s >= settle.total_seconds()):
            return
        self.files.bounds.clockwork.sleep(settle.total_seconds())
        with self.files.fetched_if_changed(self.spec.path, kept.stamp) as again:
            if again is not None and again.stamp != kept.stamp:
                raise self._unfinished(f"it changed within {settle.total_seconds():.0f} s")

    def _unfinished(self, why: str) -> SourceUnavailableError:
        said = f"{self.files.shown(self.spec.path)} is still being written: {why}"
        return SourceUnavailableError(said, hint="run again later; nothing was read")


def open_files(
    spec: FileSource, base: Path, asked: Asked, read_as: ReadAs, *, since: str = "", clockwork: Clockwork = REAL
) -> Source:
    """Return the source of a file, or of several, each read as `read_as` says; nothing is opened before its `read()`.

    `since`: the cursor of an earlier reading. Files elsewhere are not fetched while they have not changed since; those
    that are read once each (`files: new`) are read if they came or changed since.
    """
    choice = choice_of(spec, base, clockwork)
    files = choice.files
    columns = tuple(sorted(asked.columns))

    def open_one(open_stored: OpenStored) -> Source:
        return read_as(FileAt(open_stored, spec.member))

    if spec.files == "new":
        return Deliveries(choice, open_one, columns, since)
    if not is_pattern(spec.path) and not is_dated(spec.path):
        if isinstance(files, WebFiles):
            return WebSource(spec, files, open_one, columns, since)
        if isinstance(files, LocalFiles) and spec.settle is None and not spec.marker:
            return open_one(files.at(spec.path))
    return ManyFiles(choice, open_one, columns, keeps_versions=not isinstance(files, LocalFiles), since=since)


def file_at(path: str, base: Path) -> FileAt:
    """Return a single file as it can be opened, whatever it holds."""
    return FileAt(_files(path, base, Fetching()).at(path))


def choice_of(spec: FileSource, base: Path, clockwork: Clockwork) -> FileChoice:
    """Return the choice of the files that a source means, wherever they are."""
    settle_s = None if spec.settle is None else spec.settle.total_seconds()
    bounds = Fetching(largest=spec.largest or LARGEST_BYTES, settle_s=settle_s, clockwork=clockwork)
    return FileChoice(spec, _files(spec.path, base, bounds), clockwork)


def _files(path: str, base: Path, bounds: Fetching) -> Files:
    if is_web_address(path):
        return WebFiles(bounds)
    if not is_address(path):
        return LocalFiles(base)
    # Here, as feeds of files at hand need not wait for what knows all stores.
    from connectors.sources.files.stores import StoreFiles  # noqa: PLC0415

    return StoreFiles(bounds)
