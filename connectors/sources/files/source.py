"""Reads one or several files as a source: together, or as deliveries, each of which is read once."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from connectors.sources.contract import REAL_CLOCK, Clock, Ending, OpenReading, Reading, SourceUnavailableError, unchanged
from connectors.sources.files.choice import FileChoice, Files, FoundFile, LocalFiles, stamp_of_files
from connectors.sources.files.opened_file import OpenStored
from connectors.sources.rows import BESIDE
from mappings.outcome import RowLocation, SourceRow
from mappings.spec.source_base import FileSource
from mappings.spec.source_words import TheseDays, is_address, is_dated, is_pattern, is_web_address

NO_FILES = "files.1:"
"""The prefix of cursors of deliveries, and the cursor that covers no file: all are read, and having no file is not an error."""

_MOST_KEPT = 100
"""The most copies of remote files that a reading keeps open; further files are fetched twice, for their header and their rows."""

_DIGEST_BYTES = 9
_DIGEST_LETTERS = _DIGEST_BYTES * 4 // 3
_MOST_SHOWN = 3

ReadAs = Callable[[OpenStored], AbstractContextManager[Reading]]
"""Reads a file in one format."""


def open_files(choice: FileChoice, columns: frozenset[str], read_as: ReadAs, since: str) -> OpenReading:
    """Return a function that reads one or several files, each by `read_as`.

    `since`: the cursor of an earlier reading. Unchanged remote files are not fetched again; with `files: new` only new and
    changed files are read. `columns`: those of an empty reading.
    """
    spec, ordered = choice.spec, tuple(sorted(columns))
    if spec.files == "new":
        return partial(_read_deliveries, choice, read_as, ordered, since)
    if not is_pattern(spec.path) and not is_dated(spec.path):
        if spec.settle is not None:
            return partial(_read_together, choice, read_as, ordered, since)
        if is_web_address(spec.path):
            from connectors.sources.files.web import WebFiles, read_web_file  # noqa: PLC0415  # imported already, by the choice

            if isinstance(choice.files, WebFiles):
                return partial(read_web_file, spec.path, choice.files, read_as, ordered, since)
        if isinstance(choice.files, LocalFiles):
            return partial(read_as, partial(choice.files.open, spec.path))
    return partial(_read_together, choice, read_as, ordered, since)


def file_at(path: str, base: Path, folders: Sequence[Path] = ()) -> OpenStored:
    """Return a function that opens a single file of any format."""
    return partial(_files(path, LocalFiles(base, folders)).open, path)


def choice_of(spec: FileSource, base: Path, clock: Clock, folders: Sequence[Path] = ()) -> FileChoice:
    """Return the choice of a source's files, local or remote; local ones lie below `base` or one of the `folders`."""
    return FileChoice(spec, _files(spec.path, LocalFiles(base, folders), clock), clock)


def _files(path: str, local: LocalFiles, clock: Clock = REAL_CLOCK) -> Files:
    if not is_address(path):
        return local
    # Here, as importing httpx and fsspec takes long and few feeds need them.
    from connectors.sources.files.web import FetchLimits, WebFiles  # noqa: PLC0415

    bounds = FetchLimits(clock=clock)
    if is_web_address(path):
        return WebFiles(bounds)
    from connectors.sources.files.stores import StoreFiles  # noqa: PLC0415

    return StoreFiles(bounds, local)


@contextmanager
def _read_together(own: FileChoice, read_as: ReadAs, columns: tuple[str, ...], since: str) -> Iterator[Reading]:
    """Read all files of a choice, one after the other; all headers are read before the first row."""
    with own.connected() as choice:
        files = choice.all_finished()
        version = ""
        if not isinstance(choice.files, LocalFiles) and all(file.version for file in files):
            version = f"files={hashlib.blake2b(b''.join(file.evidence for file in files), digest_size=16).hexdigest()}"
        if version and version == since:
            yield unchanged(columns, version, files[-1].label)
            return
        with _opened_together(files, choice, read_as) as (present, parts), closing(_rows(parts, present)) as rows:
            stamp = stamp_of_files((part.file.name, part.seen.stamp) for part in parts)
            has_known_end = all(part.seen.has_known_end for part in parts)

            def ending() -> Ending:
                ended = [part.seen.ending() for part in parts]
                notices = tuple(dict.fromkeys(notice for one in ended for notice in one.notices))
                return Ending(version, notices, any(one.is_short for one in ended))

            yield Reading(present, rows, stamp, ending=ending, has_known_end=has_known_end, headers=_headers(parts))


@contextmanager
def _read_deliveries(own: FileChoice, read_as: ReadAs, columns: tuple[str, ...], since: str) -> Iterator[Reading]:
    """Read deliveries: each file once, and again when it changes; their rows never vanish.

    All files after the first unread one are read again, so that the latest version of a row comes last. An unfinished file is
    left for a later run. Having no file is an error at first, later not. The cursor covers exactly the existing files whose
    rows were all returned.
    """
    with own.connected() as choice:
        there, known = choice.found(), set[str]()
        if since.startswith(NO_FILES):
            digests = since.removeprefix(NO_FILES)
            known = {digests[at : at + _DIGEST_LETTERS] for at in range(0, len(digests), _DIGEST_LETTERS)}
        elif not there:
            raise choice.nothing_there()
        fresh = {file for file in there if file_digest(file) not in known}
        unfinished = choice.unfinished([file for file in there if file in fresh])
        waiting = list(unfinished.values())[:_MOST_SHOWN]
        if unfinished and isinstance(choice.spec.days, TheseDays):
            hint = "run again later; nothing was read, because the day may be incomplete"
            raise SourceUnavailableError("; ".join(waiting), hint=hint)
        left = [file for file in there if file not in unfinished]
        files = left[next((place for place, file in enumerate(left) if file in fresh), len(left)) :]
        covered = known.intersection(map(file_digest, there))
        more = f" and {len(files) - _MOST_SHOWN} more" if len(files) > _MOST_SHOWN else ""
        names = ", ".join(file.label for file in files[:_MOST_SHOWN])
        read = f"files read: {names}{more}" if files else "no new file has come"
        notices = (read, *(f"{why}; it is left for a later run" for why in waiting))
        with (
            _opened_together(files, choice, read_as, has_unique_places=True) as (present, parts),
            closing(_rows(parts, present, covered)) as rows,
        ):
            yield Reading(
                present or columns,
                rows,
                is_whole=False,
                ending=lambda: Ending(NO_FILES + "".join(sorted(covered)), notices),
                headers=_headers(parts),
            )


def file_digest(file: FoundFile) -> str:
    """Return the digest of a file's version for a cursor; it contains no name or address, and so no secret."""
    return base64.urlsafe_b64encode(hashlib.blake2b(file.evidence, digest_size=_DIGEST_BYTES).digest()).decode("ascii")


@dataclass(frozen=True, slots=True)
class FilePart:
    """One file of several; `folder` is prefixed to its rows' places if another file may have the same name.

    `seen`: the reading of its header.
    """

    file: FoundFile
    read: OpenReading
    folder: str
    seen: Reading


def _headers(parts: Sequence[FilePart]) -> Mapping[str, str]:
    """Return the names of each column in the files."""
    found: dict[str, dict[str, None]] = {}
    for part in parts:
        for column, text in part.seen.headers.items():
            found.setdefault(column, {})[text] = None
    return {column: BESIDE.join(texts) for column, texts in found.items()}


@contextmanager
def _opened_together(
    files: Sequence[FoundFile], choice: FileChoice, read_as: ReadAs, *, has_unique_places: bool = False
) -> Iterator[tuple[tuple[str, ...], Sequence[FilePart]]]:
    """Read every file's header; yield the union of their columns, and the files, to be read one by one.

    `has_unique_places`: places must also differ from those of files read at other times.
    """
    is_far = not isinstance(choice.files, LocalFiles)
    has_dated_names = is_dated(choice.spec.path.rpartition("/")[2])
    names = Counter(file.name for file in files)
    with ExitStack() as open_things:
        parts = list[FilePart]()
        for file in files:
            open_stored: OpenStored = partial(choice.files.open, file.path)
            if is_far and len(parts) < _MOST_KEPT:
                open_stored = open_things.enter_context(open_stored()).reopened
            read = partial(read_as, open_stored)
            with read() as reading:
                # What distinguishes a file from its namesakes: its folders, as far as they differ, else its day.
                day = "" if file.day is None or has_dated_names else file.day.isoformat()
                place = f"{file.label.rpartition('/')[0] or day}/".lstrip("/")
                folder = place if has_unique_places or names[file.name] > 1 else ""
                parts.append(FilePart(file, read, folder, reading))
        yield tuple(dict.fromkeys(column for part in parts for column in part.seen.columns)), parts


def _rows(parts: Sequence[FilePart], columns: tuple[str, ...], covered: set[str] | None = None) -> Generator[SourceRow]:
    """Yield the rows of one file after the other, with all columns; add the evidence of each file read to `covered`.

    Raises:
        SourceUnavailableError: a file was replaced meanwhile.
    """
    blank = dict.fromkeys(columns, "")
    for part in parts:
        with part.read() as reading:
            if reading.stamp != part.seen.stamp:
                message = f"{part.file.label} changed while we read the files before it"
                raise SourceUnavailableError(message, hint="run again")
            if reading.columns == columns and not part.folder:
                yield from reading.rows
            else:
                for row in reading.rows:
                    location = RowLocation(f"{part.folder}{row.location.place}", row.location.number)
                    yield replace(row, location=location, cells={**blank, **row.cells})
        # One whose version is no evidence yet, as it is so fresh, is read once more rather than never again.
        if covered is not None and part.file.version:
            covered.add(file_digest(part.file))
