"""A kind of source for eventsync: a file of netstrings, in which each text stands behind its length, `5:Jazz!,`.

The first one is the number of columns; their names follow, then all cells, row by row; `.` ends the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import BinaryIO, Literal

from eventsync.sources import (
    Access,
    Clock,
    ColumnRequest,
    CutOffError,
    EmptySourceError,
    PluginSource,
    Reading,
    RowLocation,
    SourceRefusedError,
    SourceRow,
    header_texts,
    table_columns,
)


class Netstrings(PluginSource):
    """A file of netstrings."""

    kind: Literal["netstrings"]
    file: Path

    @property
    def place(self) -> str:
        return self.file.name

    @contextmanager
    def read(self, asked: ColumnRequest, access: Access, since: str, clock: Clock) -> Iterator[Reading]:
        try:
            stream = self.file.open("rb")
        except OSError as error:
            raise SourceRefusedError(f"{self.file}: {error.strerror}", hint="correct `file`") from error
        with stream:
            width = self._next(stream)
            if width is None:
                raise EmptySourceError(self.place, "it has no columns", hint="ask for the whole file")
            header = header_texts([self._next(stream) or "" for _ in range(int(width))])
            found = table_columns(header, asked, self.place)
            yield Reading(found.names, self._rows(stream, found.names), headers=found.headers).with_empty(found.absent)

    def _rows(self, stream: BinaryIO, names: tuple[str, ...]) -> Iterator[SourceRow]:
        for number in count(1):
            cells = [cell for _ in names if (cell := self._next(stream)) is not None]
            if not cells:
                return
            yield SourceRow(RowLocation(f"{self.place}:{number}", number), dict(zip(names, cells, strict=True)))

    def _next(self, stream: BinaryIO) -> str | None:
        """Return the next text, None at the end of the file."""
        size = b""
        while (mark := stream.read(1)).isdigit():
            size += mark
        if mark == b"." and not size:
            stream.seek(-1, 1)  # it is also the end of what is asked for next
            return None
        text = stream.read(int(size or b"0"))
        if mark != b":" or stream.read(1) != b",":
            raise CutOffError(self.place, "it ends in the middle", hint="ask for the whole file")
        return text.decode()
