"""Snapshots of files of this machine: evidence of their content, taken without reading a row, to recognise unchanged ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from connectors.sources.contract import stamp_of_all
from connectors.sources.environment import REAL_CLOCK, Clock
from connectors.sources.files.choice import FileChoice
from connectors.sources.files.local import LocalFiles
from connectors.sources.files.opened_file import FoundFile, OpenStored, digest_of
from connectors.sources.files.source import stamp_of_files
from mappings.errors import SyncError
from mappings.spec.source import AnySource, FileSource
from mappings.spec.source_words import is_dated, is_pattern

SETTLED_S = 60.0
"""A file that was changed less than so long ago may change again unnoticed: its times are as coarse as the disk's."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One file as it stands now, and what opens it."""

    found: FoundFile
    open: OpenStored

    def digest(self) -> bytes:
        """Digest its bytes, as they are stored, with its name; b"" where it is another file by now. One pass over them."""
        with self.open() as stored:
            content = digest_of(stored.stream) if stored.stamp == self.found.version else ""
        with self.open() as again:
            if not content or again.stamp != self.found.version:
                return b""
        return f"{self.found.label}\0{self.found.day or ''}\0{content}\0".encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class FileSnapshot:
    """The files of a source as they stand now. `stamp`: evidence of which they are, and of their sizes and times; `read_as`: the
    very stamp of a reading of them; `size` in bytes, of all together.

    `is_settled`: they have been unchanged for a while, so that a change would show in the stamp.
    """

    stamp: str
    read_as: str
    size: int
    is_settled: bool
    files: tuple[SnapshotFile, ...]

    def digest(self) -> str:
        """Digest the bytes of all files; "" where one is another file by now, or out of reach."""
        try:
            digests = [file.digest() for file in self.files]
        except (SyncError, OSError):
            return ""
        return hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest() if all(digests) else ""


TakeSnapshot = Callable[[], FileSnapshot | None]
"""Takes a snapshot of what a source would read now; None where none can be taken."""


def take_snapshot(spec: AnySource, base: Path, clock: Clock = REAL_CLOCK) -> FileSnapshot | None:
    """Take a snapshot of the files of this machine that a source reads, its second tables among them.

    None for every other source, for missing files, and for files that may have to be waited for, or are read once each.
    """
    parts = [_own_files(spec, base, clock), *(take_snapshot(join.source, base, clock) for join in spec.join)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return FileSnapshot(
        stamp=" ".join(part.stamp for part in known),
        read_as=stamp_of_all([part.read_as for part in known]),
        size=sum(part.size for part in known),
        is_settled=all(part.is_settled for part in known),
        files=tuple(file for part in known for file in part.files),
    )


def _own_files(spec: AnySource, base: Path, clock: Clock) -> FileSnapshot | None:
    if not isinstance(spec, FileSource) or not spec.is_at_hand or spec.files == "new" or spec.settle is not None or spec.marker:
        return None
    local = LocalFiles(base)
    try:
        found = FileChoice(spec, local, clock).all_finished()
    except SyncError:
        return None  # reading them says what is wrong
    # Inodes count: a link may lead to a neighbour of the same size, made in the same instant.
    evidence = b"".join(file.evidence + f"{file.number}\0".encode() for file in found)
    is_choice = is_pattern(spec.path) or is_dated(spec.path)
    last_change = max(max(file.changed_at or 0.0, file.placed_at or 0.0) for file in found)
    return FileSnapshot(
        stamp=hashlib.blake2b(evidence, digest_size=16).hexdigest(),
        read_as=stamp_of_files((file.name, file.version) for file in found) if is_choice else found[0].version,
        size=sum(file.size or 0 for file in found),
        is_settled=clock.now() - last_change > SETTLED_S,
        files=tuple(SnapshotFile(file, partial(local.open, file.path)) for file in found),
    )
