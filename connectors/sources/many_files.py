"""Several files of one kind as one source: which files a pattern means, and their rows one file after the other.

How one of them is read is its kind's matter.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from connectors.sources.contract import Reading, Source
from connectors.sources.errors import SourceRefusedError, SourceUnavailableError
from connectors.sources.opened_file import is_address
from mappings.source_bases import FileSource
from mappings.vocabulary import Origin, SourceRow

_DIGITS = re.compile(r"(\d+)")
_MOST_FILES = 10_000


def is_pattern(path: str) -> bool:
    """Whether a path means all the files that match it; an address never does."""
    return not is_address(path) and any(mark in path for mark in "*?[")


def files_of(spec: FileSource, base: Path) -> tuple[str, ...]:
    """Return the files that a pattern means, in the order of their names (`9` before `10`, `9.csv` before `9-late.csv`).

    Raises:
        SourceRefusedError: there is none, or far too many.
    """
    pattern = str(Path(base, spec.path).expanduser())
    found = [path for path in glob.iglob(pattern, recursive=True) if Path(path).is_file()]  # noqa: PTH207  # pathlib's knows no absolute patterns
    if not found:
        raise SourceRefusedError(f"no file matches {pattern}", hint="has the partner delivered it? Check `source.path`")
    if len(found) > _MOST_FILES:
        raise SourceRefusedError(f"{len(found)} files match {pattern}", hint="narrow `source.path`, or say `files: newest`")
    ordered = sorted(found, key=_natural)
    return tuple(ordered[-1:] if spec.files == "newest" else ordered)


def _natural(path: str) -> tuple[Sequence[tuple[int, str]], Sequence[tuple[int, str]], str]:
    """A name that goes on where another ends comes after it, whatever the ending: 2026.csv, then 2026-late.csv."""
    name = Path(path).name
    return _counted(path.removesuffix(name) + name.partition(".")[0]), _counted(name), path


def _counted(text: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(text))


@dataclass(frozen=True, slots=True)
class ManyFiles:
    """The files that `find` gives, each opened as a source by `open_one`; what a row's place is, its file says."""

    find: Callable[[], Sequence[str]]
    open_one: Callable[[str], Source]

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`: every file's header is looked at before the first row of the first."""
        paths = self.find()
        parts: list[_Part] = []
        for path in paths:
            source = self.open_one(path)
            with source.read() as reading:
                parts.append(_Part(source, path, _folder(path, paths), reading.columns, reading.stamp))
        columns = tuple(dict.fromkeys(column for part in parts for column in part.columns))
        stamps = [f"{Path(path).name} {part.stamp}" for path, part in zip(paths, parts, strict=True) if part.stamp]
        with closing(_rows(parts, columns)) as rows:
            yield Reading(columns, rows, "; ".join(stamps) if len(stamps) == len(parts) else "")


@dataclass(frozen=True, slots=True)
class _Part:
    """One file as it was found; `folder` is put before its rows' places where two files have one name."""

    source: Source
    path: str
    folder: str
    columns: tuple[str, ...]
    stamp: str


def _folder(path: str, paths: Sequence[str]) -> str:
    name = Path(path).name
    return f"{Path(path).parent.name}/" if sum(Path(other).name == name for other in paths) > 1 else ""


def _rows(parts: Sequence[_Part], columns: tuple[str, ...]) -> Generator[SourceRow]:
    blank = dict.fromkeys(columns, "")
    for part in parts:
        with part.source.read() as reading:
            if reading.stamp != part.stamp:
                raise SourceUnavailableError(f"{part.path} changed while we read the files before it", hint="run again")
            if reading.columns == columns and not part.folder:
                yield from reading.rows
                continue
            for row in reading.rows:
                origin = Origin(f"{part.folder}{row.origin.place}", row.origin.number)
                yield replace(row, origin=origin, cells={**blank, **row.cells})
