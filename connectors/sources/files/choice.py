"""Which files a source means today: those that match its path and its days, the newest of them, those that are finished.

How files are looked at and opened is the business of where they are (`local_files`, `web_files`, `store_files`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit
from zoneinfo import ZoneInfo

from connectors.sources.clockwork import Clockwork
from connectors.sources.errors import NoFolderError, SourceRefusedError, SourceUnavailableError
from connectors.sources.files.opened_file import FoundFile, KeptFile, OpenStored
from mappings.spec.source import FileSource
from mappings.spec.source_words import is_address, is_dated, is_pattern, marker_of, on_day

_DIGITS = re.compile(r"(\d+)")
_MOST_FILES = 10_000


class Files(Protocol):
    """Where files are: on this machine, on the web, in a store."""

    def connected(self, path: str) -> AbstractContextManager[Files]:
        """Give the same files through one connection for the length of the block; `path` is one of them, or a pattern."""
        ...

    def shown(self, path: str) -> str:
        """Return a path as it may be shown to people."""
        ...

    def look(self, path: str) -> FoundFile | None:
        """Return what is there, None if nothing is."""
        ...

    def matching(self, pattern: str) -> Sequence[FoundFile]:
        """Return the files that match, in no order."""
        ...

    def at(self, path: str) -> OpenStored:
        """Return what opens the file at a path, which need not be there yet."""
        ...

    def kept_at(self, path: str) -> AbstractContextManager[KeptFile] | None:
        """Return what fetches a copy of it, None where files are opened where they are."""
        ...


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A file that somebody may still be writing, and how that is known."""

    file: FoundFile
    why: str

    def __str__(self) -> str:
        """The sentence for people."""
        return f"{self.file.label} is still being written: {self.why}"


@dataclass(frozen=True, slots=True)
class FileChoice:
    """The files that `spec` means among those of `files`."""

    spec: FileSource
    files: Files
    clockwork: Clockwork

    @contextmanager
    def connected(self) -> Iterator[FileChoice]:
        """Give the same choice, made through one connection."""
        with self.files.connected(self.spec.path) as files:
            yield replace(self, files=files)

    def found(self) -> tuple[FoundFile, ...]:
        """Return what is there, finished or not: by day, then by name (`9` before `10`, `9.csv` before `9-late.csv`).

        Raises:
            SourceRefusedError: far too many; or the folder is not there.
            SourceUnavailableError: it could not be looked at.
        """
        found = sorted(self._all(), key=_order)
        single = list({file.path: file for file in found}.values())
        if self.spec.marker:
            markers = {marker_of(self.spec.marker, file.name) for file in single}
            single = [file for file in single if file.name not in markers]
        if not is_dated(self.spec.path):
            single = [file for file in single if self.spec.days.has_changed(file.changed_at)]
        if len(single) > _MOST_FILES and self.spec.files != "newest":
            message = f"{len(single)} files match {self.shown}"
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
        unfinished = self.unfinished(meant, is_patient=True)
        if unfinished:
            told = "; ".join(map(str, unfinished[:3]))
            raise SourceUnavailableError(told, hint="run again later; nothing was read, so that no half of a file counts")
        return meant

    def unfinished(self, files: Sequence[FoundFile], *, is_patient: bool) -> tuple[Unfinished, ...]:
        """Return those that somebody may still be writing. Only the patient wait, once, for files that tell their age."""
        waiting, left = self._waiting(files)
        return (*waiting, *self._moving(left, is_patient=is_patient))

    def known_unfinished(self, files: Sequence[FoundFile]) -> tuple[Unfinished, ...]:
        """Return those of which that is known without any wait: it is not of a file that does not tell its age."""
        waiting, left = self._waiting(files)
        young = (file for file, age in self._young(left).items() if age is not None)
        return (*waiting, *map(self._changed_lately, young))

    def nothing_there(self) -> SourceRefusedError:
        """Return the error of a source without any file."""
        return SourceRefusedError(f"no file matches {self.shown}", hint="has the partner delivered it? Check `source.path`")

    @property
    def shown(self) -> str:
        """The path, for people."""
        return self.files.shown(self.spec.path)

    def _all(self) -> Iterator[FoundFile]:
        """A day on which nothing came has no folder; where no day has one, it is their common place that is not there."""
        paths, lost = self._paths(), 0
        for path, day in paths:
            try:
                yield from self._at(path, day)
            except NoFolderError:
                lost += 1
                if lost == len(paths):
                    raise

    def _paths(self) -> list[tuple[str, date | None]]:
        if not is_dated(self.spec.path):
            return [(self.spec.path, None)]
        today = datetime.fromtimestamp(self.clockwork.now(), UTC).astimezone(ZoneInfo(self.spec.days.zone)).date()
        return [(on_day(self.spec.path, day), day) for day in self.spec.days.around(today)]

    def _at(self, path: str, day: date | None) -> Sequence[FoundFile]:
        if is_pattern(path):
            return [replace(file, day=day) for file in self.files.matching(path)]
        file = self.files.look(path)
        return [replace(file, day=day)] if file else []

    def _marker(self, file: FoundFile) -> str:
        return marker_of(self.spec.marker or "", file.name)

    def _is_marked(self, file: FoundFile) -> bool:
        return not self.spec.marker or self.files.look(beside(file.path, self._marker(file))) is not None

    def _unmarked(self, file: FoundFile) -> Unfinished:
        return Unfinished(file, f"its marker {self._marker(file)} is not there yet")

    def _waiting(self, files: Sequence[FoundFile]) -> tuple[list[Unfinished], list[FoundFile]]:
        """Return the files whose marker is not there yet, and the others."""
        marked = {file: self._is_marked(file) for file in files}
        return [self._unmarked(file) for file in files if not marked[file]], [file for file in files if marked[file]]

    def _moving(self, files: Sequence[FoundFile], *, is_patient: bool) -> list[Unfinished]:
        """A file whose age is not known is looked at twice; so is a young one, if we are patient."""
        young = self._young(files)
        seen_twice = [file for file, age in young.items() if is_patient or age is None]
        if seen_twice:
            self.clockwork.sleep(self._settle_s)
        still = {file for file in seen_twice if not _is_same(file, self.files.look(file.path))}
        return [self._changed_lately(file) for file in young if file in still or file not in seen_twice]

    def _young(self, files: Sequence[FoundFile]) -> Mapping[FoundFile, float | None]:
        """Return, with their ages in seconds, those that may still change; none do where the mapping file does not say so."""
        ages = {file: self._age_s(file) for file in files} if self.spec.settle is not None else {}
        return {file: age for file, age in ages.items() if age is None or age < self._settle_s}

    def _changed_lately(self, file: FoundFile) -> Unfinished:
        return Unfinished(file, f"it changed less than {self._settle_s:.0f} s ago")

    @property
    def _settle_s(self) -> float:
        return self.spec.settle.total_seconds() if self.spec.settle else 0.0

    def _age_s(self, file: FoundFile) -> float | None:
        """A file from the future is one whose clock is not ours: nothing is known of its age."""
        if file.changed_at is None or file.changed_at > self.clockwork.now():
            return None
        return self.clockwork.now() - file.changed_at


def beside(path: str, name: str) -> str:
    """Return the path of a file's neighbour; of an address with its user and its query."""
    if not is_address(path):
        return str(Path(path).with_name(name))
    parts = urlsplit(path)
    return urlunsplit(parts._replace(path=f"{parts.path.rpartition('/')[0]}/{name}"))


def _is_same(before: FoundFile, after: FoundFile | None) -> bool:
    if after is None:
        return False
    return (before.size, before.version, before.changed_at) == (after.size, after.version, after.changed_at)


def _order(file: FoundFile) -> tuple[date, Sequence[tuple[int, str]], Sequence[tuple[int, str]], str]:
    """A name that goes on where another ends comes after it, whatever the ending: 2026.csv, then 2026-late.csv."""
    folder, _, name = file.label.rpartition("/")
    return file.day or date.min, _counted(f"{folder}/{name.partition('.')[0]}"), _counted(name), file.path


def _counted(text: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(text))
