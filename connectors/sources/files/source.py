"""One file or several as a source: read together, or each once, as they are delivered."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from connectors.sources.contract import REAL_CLOCK, Clock, Ending, Reading, Source, unchanged
from connectors.sources.errors import SourceUnavailableError
from connectors.sources.files.choice import FileChoice, Files, LocalFiles, beside
from connectors.sources.files.opened_file import FileAt, FoundFile, OpenStored, StoredFile, stamp_of_files
from connectors.sources.files.web import WebFiles, name_of
from connectors.sources.files.web_requests import LARGEST_BYTES, FetchLimits
from connectors.sources.rows import ColumnRequest
from mappings.outcome import RowLocation, SourceRow
from mappings.spec.source import FileSource
from mappings.spec.source_words import is_address, is_dated, is_pattern, is_web_address, marker_of

NO_FILES = "files.1:"
"""The cursor of an earlier reading that covers none of the files there are: all are read, and none at all is no mistake."""
_MOST_KEPT = 100
"""Copies of files from elsewhere that one reading keeps open; further files are fetched for their header and for their rows."""
_DIGEST_BYTES = 9
_DIGEST_LETTERS = _DIGEST_BYTES * 4 // 3
_MOST_SHOWN = 3
ReadAs = Callable[[FileAt], Source]
"""Reads a file as one of its format."""
OpenOne = Callable[[OpenStored], Source]


def open_files(
    spec: FileSource, base: Path, asked: ColumnRequest, read_as: ReadAs, *, since: str = "", clock: Clock = REAL_CLOCK
) -> Source:
    """Return the source of a file, or of several, each read by `read_as`; nothing is opened before its `read()`.

    `since`: the cursor of an earlier reading. Files elsewhere are not fetched while they have not changed since; those
    that are read once each (`files: new`) are read if they came or changed since.
    """
    choice = choice_of(spec, base, clock)
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
            return open_one(partial(files.open, spec.path))
    return ManyFiles(choice, open_one, columns, since)


def file_at(path: str, base: Path) -> FileAt:
    """Return a single file as it can be opened, of any format."""
    return FileAt(partial(_files(path, base, FetchLimits()).open, path))


def choice_of(spec: FileSource, base: Path, clock: Clock) -> FileChoice:
    """Return the choice of the files that a source means, wherever they are."""
    settle_s = None if spec.settle is None else spec.settle.total_seconds()
    bounds = FetchLimits(largest=spec.largest or LARGEST_BYTES, settle_s=settle_s, clock=clock)
    return FileChoice(spec, _files(spec.path, base, bounds), clock)


def _files(path: str, base: Path, bounds: FetchLimits) -> Files:
    if is_web_address(path):
        return WebFiles(bounds)
    if not is_address(path):
        return LocalFiles(base)
    # Here, as importing fsspec takes long and few feeds need it.
    from connectors.sources.files.stores import StoreFiles  # noqa: PLC0415

    return StoreFiles(bounds)


@dataclass(frozen=True, slots=True)
class WebSource:
    """One file on the web; `since`: its version at an earlier reading, at which it is not fetched again."""

    spec: FileSource
    files: WebFiles
    open_one: OpenOne
    columns: tuple[str, ...]
    since: str = ""

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`."""
        name = name_of(self.spec.path)
        if self.spec.marker:
            marker = marker_of(self.spec.marker, name)
            if self.files.find(beside(self.spec.path, marker)) is None:
                raise self._unfinished(f"its marker {marker} is not there yet")
        with self.files.fetched_if_changed(self.spec.path, self.since) as stored:
            if stored is None:
                yield unchanged(self.columns, self.since, name)
                return
            self._check_finished(stored)
            with self.open_one(stored.reopened).read() as reading:
                yield replace(reading, ending=lambda: Ending(stored.version))

    def _check_finished(self, stored: StoredFile) -> None:
        """Ask for a young file, or one of unknown age, once more after a while: it should be the same."""
        settle_s = self.spec.settle.total_seconds() if self.spec.settle else 0.0
        if self.spec.settle is None or (stored.age_s is not None and stored.age_s >= settle_s):
            return
        self.files.bounds.clock.sleep(settle_s)
        with self.files.fetched_if_changed(self.spec.path, stored.stamp) as again:
            if again is not None and again.stamp != stored.stamp:
                raise self._unfinished(f"it changed within {settle_s:.0f} s")

    def _unfinished(self, why: str) -> SourceUnavailableError:
        message = f"{self.files.shown(self.spec.path)} is still being written: {why}"
        return SourceUnavailableError(message, hint="run again later; nothing was read")


@dataclass(frozen=True, slots=True)
class ManyFiles:
    """All files of a choice, read one after the other. `since`: the version of all of them together at an earlier reading."""

    choice: FileChoice
    open_one: OpenOne
    columns: tuple[str, ...]
    since: str = ""

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`: every file's header is read before the first row of the first."""
        with self.choice.connected() as choice:
            files = choice.all_finished()
            version = "" if isinstance(choice.files, LocalFiles) else _version_of(files)
            if version and version == self.since:
                yield unchanged(self.columns, version, files[-1].label)
                return
            with _opened_together(files, choice, self.open_one) as (columns, parts), closing(_rows(parts, columns)) as rows:
                stamp = stamp_of_files((part.file.name, part.stamp) for part in parts)
                has_known_end = all(part.has_known_end for part in parts)
                yield Reading(columns, rows, stamp, ending=lambda: Ending(version), has_known_end=has_known_end)


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Files that are delivered one after another: each is read once, and again when it changes; no row of them vanishes.

    `since`: a cursor of an earlier reading: the digests of the files that were read.
    """

    choice: FileChoice
    open_one: OpenOne
    columns: tuple[str, ...]
    since: str = ""

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`.

        All files behind the first unread one are read again, so that the later word on a row comes last. An unfinished file
        is left for later. No file at all is a mistake at first, and a quiet day later. The cursor covers exactly the files
        all of whose rows were given, among those that are there.
        """
        with self.choice.connected() as choice:
            known, there = _digests_in(self.since), choice.found()
            if not there and not self.since.startswith(NO_FILES):
                raise choice.nothing_there()
            fresh = {file for file in there if file_digest(file) not in known}
            unfinished = choice.unfinished([file for file in there if file in fresh])
            if unfinished and choice.spec.days.are_given:
                message = "; ".join(map(str, unfinished[:_MOST_SHOWN]))
                raise SourceUnavailableError(message, hint="run again later; nothing was read, so that no half of a day counts")
            waiting = {one.file for one in unfinished}
            left = [file for file in there if file not in waiting]
            first = next((place for place, file in enumerate(left) if file in fresh), len(left))
            covered = known.intersection(map(file_digest, there))
            notices = (_files_read(left[first:]), *(f"{one}; it is left for a later run" for one in unfinished[:_MOST_SHOWN]))

            def rows_of(parts: Sequence[FilePart], columns: tuple[str, ...]) -> Generator[SourceRow]:
                for part in parts:
                    yield from part.rows(columns)
                    # One whose version is no evidence yet, as it is so fresh, is read once more rather than never again.
                    if part.file.version:
                        covered.add(file_digest(part.file))

            with (
                _opened_together(left[first:], choice, self.open_one, has_unique_places=True) as (columns, parts),
                closing(rows_of(parts, columns)) as rows,
            ):
                yield Reading(
                    columns or self.columns,
                    rows,
                    is_whole=False,
                    ending=lambda: Ending(NO_FILES + "".join(sorted(covered)), notices),
                )


def file_digest(file: FoundFile) -> str:
    """Return what stands for this version of a file in a cursor: no name, no address, and so no secret."""
    return base64.urlsafe_b64encode(hashlib.blake2b(file.evidence, digest_size=_DIGEST_BYTES).digest()).decode("ascii")


def _digests_in(cursor: str) -> set[str]:
    if not cursor.startswith(NO_FILES):
        return set()
    digests = cursor.removeprefix(NO_FILES)
    return {digests[place : place + _DIGEST_LETTERS] for place in range(0, len(digests), _DIGEST_LETTERS)}


def _files_read(files: Sequence[FoundFile]) -> str:
    names = ", ".join(file.label for file in files[:_MOST_SHOWN])
    more = f" and {len(files) - _MOST_SHOWN} more" if len(files) > _MOST_SHOWN else ""
    return f"files read: {names}{more}" if files else "no new file has come"


@dataclass(frozen=True, slots=True)
class FilePart:
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
                origin = RowLocation(f"{self.folder}{row.location.place}", row.location.number)
                yield replace(row, location=origin, cells={**blank, **row.cells})


@contextmanager
def _opened_together(
    files: Sequence[FoundFile], choice: FileChoice, open_one: OpenOne, *, has_unique_places: bool = False
) -> Iterator[tuple[tuple[str, ...], Sequence[FilePart]]]:
    """Read every file's header; give the columns of all of them together, and the files, to be read one by one.

    `has_unique_places`: the places of their rows differ from those of files that were or will be read at other times too.
    """
    is_far = not isinstance(choice.files, LocalFiles)
    names = Counter(file.name for file in files)
    with ExitStack() as open_things:
        parts = list[FilePart]()
        for file in files:
            open_stored: OpenStored = partial(choice.files.open, file.path)
            if is_far and len(parts) < _MOST_KEPT:
                open_stored = open_things.enter_context(open_stored()).reopened
            source = open_one(open_stored)
            with source.read() as reading:
                folder = _folder(file, choice) if has_unique_places or names[file.name] > 1 else ""
                parts.append(FilePart(file, source, folder, reading.columns, reading.stamp, reading.has_known_end))
        yield tuple(dict.fromkeys(column for part in parts for column in part.columns)), parts


def _version_of(files: Sequence[FoundFile]) -> str:
    digest = hashlib.blake2b(b"".join(file.evidence for file in files), digest_size=16)
    return f"files={digest.hexdigest()}" if all(file.version for file in files) else ""


def _folder(file: FoundFile, choice: FileChoice) -> str:
    """Return what distinguishes a file from its namesakes: its folders, as far as they differ, else its day."""
    day = "" if file.day is None or is_dated(choice.spec.path.rpartition("/")[2]) else file.day.isoformat()
    return f"{file.label.rpartition('/')[0] or day}/".lstrip("/")


def _rows(parts: Sequence[FilePart], columns: tuple[str, ...]) -> Generator[SourceRow]:
    for part in parts:
        yield from part.rows(columns)
