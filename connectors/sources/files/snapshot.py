"""What files of this machine look like before a row of them is read: evidence by which unchanged ones are known again.

How their rows are read is `file_source`'s; what follows from unchanged files is the caller's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from connectors.sources.clockwork import REAL, Clockwork
from connectors.sources.contract import stamp_of_all
from connectors.sources.files.choice import FileChoice
from connectors.sources.files.local import LocalFiles
from connectors.sources.files.opened_file import FoundFile, OpenStored, digest_of
from connectors.sources.files.source import stamp_of_files
from mappings.errors import SyncError
from mappings.spec.source import AnySource, FileSource
from mappings.spec.source_words import is_dated, is_pattern

SETTLED_S = 60.0
"""A file that was changed less than so long ago may change again without its times telling: they are as coarse as the disk's."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One file as it stands now, and what opens it."""

    found: FoundFile
    open: OpenStored

    def digest(self) -> bytes | None:
        """Digest its bytes, as they are stored, with its name: one pass over them; None where it is another file by now."""
        with self.open() as stored:
            content = digest_of(stored.stream) if stored.stamp == self.found.version else ""
        with self.open() as again:
            is_same = bool(content) and again.stamp == self.found.version
        return f"{self.found.label}\0{self.found.day or ''}\0{content}\0".encode("utf-8", "surrogateescape") if is_same else None

    def is_settled(self, now: float) -> bool:
        """Whether nobody has changed it for a while, so that a change would show in its times."""
        return now - max(self.found.changed_at or 0.0, self.found.placed_at or 0.0) > SETTLED_S


@dataclass(frozen=True, slots=True)
class FileSnapshot:
    """The files of a source as they stand now. `stamp`: evidence of which they are, and of their sizes and times; `read_as`: the
    very stamp of a reading of them; `size` in bytes, of all together.

    `is_settled`: nobody has changed them for a while, so that a change would show in the stamp.
    """

    stamp: str
    read_as: str
    size: int
    is_settled: bool
    files: tuple[SnapshotFile, ...]

    def digest(self) -> str:
        """Digest the bytes of all files: one pass over them; "" where one is another file by now, or out of reach."""
        digest = hashlib.blake2b(digest_size=16)
        try:
            for file in self.files:
                told = file.digest()
                if told is None:
                    return ""
                digest.update(told)
        except (SyncError, OSError):
            return ""
        return digest.hexdigest()


TakeSnapshot = Callable[[], FileSnapshot | None]
"""Looks at what a source would read now; None where it cannot be told by a look."""


def take_snapshot(spec: AnySource, base: Path, clockwork: Clockwork = REAL) -> FileSnapshot | None:
    """Look at the files of this machine that a source reads, its second tables among them; None where there are none, for every
    other source, and for files that may have to be waited for, or that are read once each.
    """
    own = _look_at_files(spec, base, clockwork) if isinstance(spec, FileSource) else None
    if own is None:
        return None
    sights = [own]
    for join in spec.join:
        beside = take_snapshot(join.source, base, clockwork)
        if beside is None:
            return None
        sights.append(beside)
    return FileSnapshot(
        stamp=" ".join(sight.stamp for sight in sights),
        read_as=stamp_of_all([sight.read_as for sight in sights]),
        size=sum(sight.size for sight in sights),
        is_settled=all(sight.is_settled for sight in sights),
        files=tuple(file for sight in sights for file in sight.files),
    )


def _look_at_files(spec: FileSource, base: Path, clockwork: Clockwork) -> FileSnapshot | None:
    if not spec.is_at_hand or spec.files == "new" or spec.settle is not None or spec.marker:
        return None
    local = LocalFiles(base)
    try:
        found = FileChoice(spec, local, clockwork).all_finished()
    except SyncError:
        return None  # whoever reads it says what is wrong
    files = tuple(SnapshotFile(file, partial(local.open, file.path)) for file in found)
    is_choice = is_pattern(spec.path) or is_dated(spec.path)
    now = clockwork.now()
    return FileSnapshot(
        stamp=_stamp(found),
        read_as=stamp_of_files((file.name, file.version) for file in found) if is_choice else found[0].version,
        size=sum(file.size or 0 for file in found),
        is_settled=all(file.is_settled(now) for file in files),
        files=files,
    )


def _stamp(files: Sequence[FoundFile]) -> str:
    """Their numbers on the disk are part of it: a link may lead to a neighbour of the same size, made in the same instant."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(file.evidence + f"{file.number}\0".encode())
    return digest.hexdigest()
