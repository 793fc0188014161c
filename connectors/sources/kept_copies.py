"""Copies of files from elsewhere, kept for as long as one reading lasts: each is fetched once, though it is opened twice.

Files of this machine are opened where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Self

from connectors.sources.file_choice import Files
from connectors.sources.found_file import FoundFile, KeptFile, OpenStored

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
