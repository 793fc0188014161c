"""Files that are delivered one after another: each is read once, and again when it changes; none of them vanishes.

Which files are there, and whether they are finished, is `file_choice`'s; that their rows make events once is the ledger's.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from connectors.sources.contract import Ending, Reading
from connectors.sources.errors import SourceUnavailableError
from connectors.sources.file_choice import FileChoice, Unfinished
from connectors.sources.found_file import FoundFile
from connectors.sources.many_files import OpenOne, Part, opened_together
from mappings.outcome import SourceRow

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
