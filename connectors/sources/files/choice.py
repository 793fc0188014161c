"""Which files a source means today: those that match its path and its days, the newest of them, those that are finished."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit
from zoneinfo import ZoneInfo

from connectors.sources.environment import Clock
from connectors.sources.errors import NoFolderError, SourceRefusedError, SourceUnavailableError
from connectors.sources.files.opened_file import FoundFile, StoredFile
from mappings.spec.source import FileSource
from mappings.spec.source_words import is_address, is_dated, is_pattern, marker_of, on_day

_DIGITS = re.compile(r"(\d+)")
_MOST_FILES = 10_000


class Files(Protocol):
    """Where files are: on this machine, on the web, in a store."""

    def connected(self, path: str) -> AbstractContextManager[Files]:
        """Use one connection for the length of the block; `path` is one of the files, or a pattern."""
        ...

    def shown(self, path: str) -> str:
        """Return a path as it may be shown to people."""
        ...

    def find(self, path: str) -> FoundFile | None:
        """Return the file at a path, None if there is none."""
        ...

    def matching(self, pattern: str) -> Sequence[FoundFile]:
        """Return the files that match, in no order.

        Raises:
            NoFolderError: the folder that they should lie in is not there.
        """
        ...

    def open(self, path: str) -> AbstractContextManager[StoredFile]:
        """Open the file at a path: where it is, or a nameless copy of it.

        Raises:
            SourceRefusedError: no such file, no access, too large, or a redirect leads astray.
            SourceUnavailableError: it did not come, or not whole, or changed meanwhile.
            ConfigError: the driver of this kind of address is not installed.
        """
        ...


@dataclass(frozen=True, slots=True)
class UnfinishedFile:
    """A file that may still be being written, and how that is known."""

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
        if unfinished := self.unfinished(meant, is_patient=True):
            message = "; ".join(map(str, unfinished[:3]))
            raise SourceUnavailableError(message, hint="run again later; nothing was read, so that no half of a file counts")
        return meant

    def unfinished(
        self, files: Sequence[FoundFile], *, is_patient: bool = False, may_wait: bool = True
    ) -> tuple[UnfinishedFile, ...]:
        """Return the files that may still be being written.

        A file younger than `settle` is one of them, unless `is_patient`: then it may show by not changing for so long that it
        is finished, as a file of unknown age always may. Without `may_wait` such a file counts as finished.
        """
        settle_s = self.spec.settle.total_seconds() if self.spec.settle else 0.0
        unfinished, again = list[UnfinishedFile](), list[FoundFile]()
        too_young = f"it changed less than {settle_s:.0f} s ago"
        for file in files:
            age_s = self._age_s(file)
            if self.spec.marker and self.files.find(beside(file.path, marker_of(self.spec.marker, file.name))) is None:
                why = f"its marker {marker_of(self.spec.marker, file.name)} is not there yet"
                unfinished.append(UnfinishedFile(file, why))
            elif self.spec.settle is None or (age_s is not None and age_s >= settle_s):
                continue
            elif may_wait and (is_patient or age_s is None):
                again.append(file)
            elif age_s is not None:
                unfinished.append(UnfinishedFile(file, too_young))
        if again:
            self.clock.sleep(settle_s)
        return (
            *unfinished,
            *(UnfinishedFile(file, too_young) for file in again if not _is_same(file, self.files.find(file.path))),
        )

    def nothing_there(self) -> SourceRefusedError:
        """Return the error of a source without any file."""
        return SourceRefusedError(f"no file matches {self.shown}", hint="has the partner delivered it? Check `source.path`")

    @property
    def shown(self) -> str:
        """The path, for people."""
        return self.files.shown(self.spec.path)

    def _all(self) -> Iterator[FoundFile]:
        """A day on which nothing came has no folder; where no day has one, it is their common place that is not there."""
        paths, missing = self._paths(), 0
        for path, day in paths:
            try:
                found = self.files.matching(path) if is_pattern(path) else [self.files.find(path)]
            except NoFolderError:
                missing += 1
                if missing == len(paths):
                    raise
            else:
                yield from (replace(file, day=day) for file in found if file)

    def _paths(self) -> list[tuple[str, date | None]]:
        if not is_dated(self.spec.path):
            return [(self.spec.path, None)]
        today = datetime.fromtimestamp(self.clock.now(), UTC).astimezone(ZoneInfo(self.spec.days.zone)).date()
        return [(on_day(self.spec.path, day), day) for day in self.spec.days.around(today)]

    def _age_s(self, file: FoundFile) -> float | None:
        """A file from the future has another clock than ours: nothing is known of its age."""
        if file.changed_at is None or file.changed_at > self.clock.now():
            return None
        return self.clock.now() - file.changed_at


def beside(path: str, name: str) -> str:
    """Return the path of a file's neighbour; of an address with its user and its query."""
    if not is_address(path):
        return str(Path(path).with_name(name))
    parts = urlsplit(path)
    return urlunsplit(parts._replace(path=f"{parts.path.rpartition('/')[0]}/{name}"))


def _is_same(before: FoundFile, after: FoundFile | None) -> bool:
    return after is not None and (before.size, before.version, before.changed_at) == (after.size, after.version, after.changed_at)


def _order(file: FoundFile) -> tuple[date, Sequence[tuple[int, str]], Sequence[tuple[int, str]], str]:
    """A name that goes on where another ends comes after it with any ending: 2026.csv, then 2026-late.csv."""
    folder, _, name = file.label.rpartition("/")
    return file.day or date.min, _by_number(f"{folder}/{name.partition('.')[0]}"), _by_number(name), file.path


def _by_number(text: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(text))
