"""Mapping files as Dagster has seen them and as they stand now: watched, read, and shown to it anew when they differ.

Asking Dagster is `webserver`'s; what it makes of the files `definitions`'. Does not import Dagster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import watchfiles

from mappings.errors import MappingFileError, SyncError
from mappings.yaml.loader import SUFFIXES, FeedFolder, LoadedFeed, load_folder
from pipelines.orchestration.webserver import Webserver

QUIET_MS = 300
"""A file is read once nothing has changed for so long: an editor, or a checkout, writes more than once."""
LONGEST_MS = 3_000
AGAIN_S = 10.0
"""So long after Dagster did not answer it is asked again."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FolderVersion:
    """The mapping files of a folder as they stood at one moment. `digest`: evidence of all that Dagster shows of them."""

    folder: FeedFolder
    digest: bytes

    @property
    def broken(self) -> tuple[MappingFileError, ...]:
        """The files that cannot be used."""
        return self.folder.broken

    def __str__(self) -> str:
        """The sentence for people."""
        count = len(self.folder.feeds)
        told = f"{count} feed{'s' * (count != 1)}"
        return f"{told}, {len(self.broken)} broken" if self.broken else told


def read_folder_version(folder: Path) -> FolderVersion:
    """Read all mapping files of a folder, with what they include and look up."""
    loaded = load_folder(folder)
    digest = hashlib.blake2b(digest_size=16)
    for feed in loaded.feeds:
        digest.update(f"{feed.path}\0".encode("utf-8", "surrogateescape") + feed.mapping.digest + _bytes_of(feed.path))
    for error in loaded.broken:
        digest.update(f"{error.path}\0{error}\0".encode("utf-8", "surrogateescape"))
    return FolderVersion(loaded, digest.digest())


@dataclass(slots=True)
class Reloader:
    """Lets the Dagster behind `server` see the mapping files of `folder`, and knows which of their versions it has seen."""

    server: Webserver
    folder: Path
    shown: bytes = b""

    def reload(self) -> FolderVersion:
        """Show the files as they are now, whether they differ or not.

        Raises:
            SyncError: Dagster does not answer, or cannot load its definitions.
        """
        seen = read_folder_version(self.folder)
        self._show(seen)
        return seen

    def reload_if_changed(self, tell: Report) -> bool:
        """Show the files if they differ from those shown last, and tell so; return whether Dagster has them now."""
        seen = read_folder_version(self.folder)
        if seen.digest == self.shown:
            return True
        try:
            self._show(seen)
        except SyncError as refusal:
            tell(f"the mapping files have changed, but {refusal}; trying again")
            return False
        tell(f"the mapping files have changed, and Dagster has reloaded them: {seen}")
        for error in seen.broken:
            tell(str(error))
        return True

    def _show(self, seen: FolderVersion) -> None:
        self.server.reload()
        self.shown = seen.digest


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """What is watched: the folders in which feeds and what they read beside themselves lie, and those neighbours."""

    folders: frozenset[Path]
    beside: frozenset[Path] = field(default_factory=frozenset)

    def concerns(self, _change: watchfiles.Change, path: str) -> bool:
        """Whether a change is one of a mapping file, of what it reads, or of a link behind which all of them are exchanged."""
        changed = Path(path)
        return changed.suffix in SUFFIXES or changed in self.beside or changed.name.startswith("..")


def files_to_watch(folder: Path) -> WatchedFiles:
    """Return what a folder's feeds make worth watching; folders that are not there cannot be."""
    beside = frozenset(path for feed in load_folder(folder).feeds for path in _beside(feed))
    folders = {folder, *(path.parent for path in beside)}
    return WatchedFiles(frozenset(one for one in folders if one.is_dir()), beside)


def watch(reloader: Reloader, tell: Report, stop: Event) -> None:
    """Show each change of the mapping files to Dagster, until `stop` is set."""
    while not stop.is_set():
        if not reloader.reload_if_changed(tell):
            stop.wait(AGAIN_S)
            continue
        _wait_for_change(reloader, files_to_watch(reloader.folder), stop)


def _wait_for_change(reloader: Reloader, what: WatchedFiles, stop: Event) -> None:
    """Return once something has changed, also before we began to watch: what is watched may be other files by now."""
    if not what.folders:
        stop.wait(AGAIN_S)
        return
    has_looked = False
    for changes in _changes(what, stop):
        if changes or (not has_looked and read_folder_version(reloader.folder).digest != reloader.shown):
            return
        has_looked = True


def _changes(what: WatchedFiles, stop: Event) -> Iterator[AbstractSet[object]]:
    """Yield what has changed, and nothing at all each second."""
    return watchfiles.watch(
        *what.folders,
        watch_filter=what.concerns,
        debounce=LONGEST_MS,
        step=QUIET_MS,
        rust_timeout=1_000,
        stop_event=stop,
        raise_interrupt=False,
        recursive=False,
        yield_on_timeout=True,
    )


def _beside(feed: LoadedFeed) -> Iterator[Path]:
    """Yield the files that a mapping file reads: what it includes, what it looks up in."""
    for name in (*feed.mapping.include, *feed.mapping.tables):
        yield (feed.path.parent / name).resolve()


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
