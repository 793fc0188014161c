"""Several files of one kind as one source: their rows one file after the other, and what their places are called.

Which files those are is `file_choice`'s, how one of them is read its kind's; files that are read once each are `deliveries`'.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

from connectors.sources.contract import Ending, Reading, Source, unchanged
from connectors.sources.errors import SourceUnavailableError
from connectors.sources.file_choice import FileChoice
from connectors.sources.found_file import FoundFile, OpenStored
from connectors.sources.kept_copies import KeptCopies
from mappings.outcome import RowLocation, SourceRow
from mappings.spec.source_words import is_dated

OpenOne = Callable[[OpenStored], Source]


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
