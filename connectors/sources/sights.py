"""What a file of this machine looks like before a row of it is read: evidence by which an unchanged one is known again.

How its rows are read is `file_source`'s; what follows from an unchanged file is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from connectors.sources.clockwork import REAL, Clockwork
from connectors.sources.found_file import OpenStored, digest_of
from connectors.sources.local_files import LocalFiles
from mappings.errors import SyncError
from mappings.file_names import is_dated, is_pattern
from mappings.source_bases import AnySource, FileSource

SETTLED_S = 60.0
"""A file that was changed less than so long ago may change again without its times telling: they are as coarse as the disk's."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A file as it stands now. `stamp`: its size and times, the very stamp of a reading of it; `size` in bytes.

    `is_settled`: nobody has changed it for a while, so that a change would show in the stamp.
    """

    stamp: str
    size: int
    is_settled: bool
    _open: OpenStored

    def digest(self) -> str:
        """Digest its bytes, as they are stored: one pass over them; "" where it is another file by now, or out of reach."""
        try:
            with self._open() as stored:
                digest = digest_of(stored.stream) if stored.stamp == self.stamp else ""
            with self._open() as again:
                return digest if again.stamp == self.stamp else ""
        except SyncError:
            return ""


Look = Callable[[], Sight | None]
"""Looks at what a source would read now; None where it cannot be told by a look."""


def look_at(spec: AnySource, base: Path, clockwork: Clockwork = REAL) -> Sight | None:
    """Look at the one file of this machine that a source reads; None for every other source, and where there is no such file.

    A second file beside it, a choice of several, or one that may have to be waited for is not told by a look.
    """
    if not isinstance(spec, FileSource) or not spec.is_at_hand or spec.join or spec.files == "new":
        return None
    if is_pattern(spec.path) or is_dated(spec.path) or spec.settle is not None or spec.marker:
        return None
    files = LocalFiles(base)
    try:
        found = files.look(spec.path)
    except SyncError:
        return None  # whoever reads it says what is wrong
    if found is None or found.size is None:
        return None
    age_s = clockwork.now() - max(found.changed_at or 0.0, found.placed_at or 0.0)
    return Sight(found.version, found.size, age_s > SETTLED_S, files.at(spec.path))
