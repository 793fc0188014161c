"""Reload Dagster's definitions when mapping files change: read the folder, compare digests, watch for changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import watchfiles

from mappings.errors import MappingFileError, SyncError
from mappings.yaml.loader import SUFFIXES, FeedFolder, load_folder
from pipelines.orchestration.webserver import Webserver

QUIET_MS = 300
"""A file is read once nothing has changed for so long: an editor, or a checkout, writes more than once."""
LONGEST_MS = 3_000
RETRY_S = 10.0

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FolderVersion:
    """The mapping files of a folder at one moment. `digest`: of all that Dagster shows of them."""

    folder: FeedFolder
    digest: bytes

    @property
    def broken(self) -> tuple[MappingFileError, ...]:
        """The files that cannot be used."""
        return self.folder.broken

    def __str__(self) -> str:
        """Return the sentence for people."""
        count = len(self.folder.feeds)
        text = f"{count} feed{'s' * (count != 1)}"
        return f"{text}, {len(self.broken)} broken" if self.broken else text


def read_folder_version(folder: Path) -> FolderVersion:
    """Read all mapping files of a folder, with what they include and look up."""
    loaded = load_folder(folder)
    digest = hashlib.blake2b(digest_size=16)
    for feed in loaded.feeds:
        digest.update(f"{feed.path}\0".encode("utf-8", "surrogateescape") + feed.mapping.digest + _bytes_of(feed.path))
    for error in loaded.broken:
        digest.update(f"{error.path}\0{error}\0".encode("utf-8", "surrogateescape"))
    return FolderVersion(loaded, digest.digest())


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@dataclass(slots=True)
class Reloader:
    """Has the Dagster behind `server` reload the mapping files of `folder`. `shown`: the digest of the version that it has."""

    server: Webserver
    folder: Path
    shown: bytes = b""

    def reload(self) -> FolderVersion:
        """Reload the files, whether they differ or not.

        Raises:
            SyncError: Dagster does not answer, or cannot load its definitions.
        """
        version = read_folder_version(self.folder)
        self._reload(version)
        return version

    def reload_if_changed(self, report: Report) -> bool:
        """Reload the files if they differ from those that Dagster has, and report it; return whether Dagster has them now."""
        version = read_folder_version(self.folder)
        if version.digest == self.shown:
            return True
        try:
            self._reload(version)
        except SyncError as error:
            report(f"the mapping files have changed, but {error}; trying again")
            return False
        report(f"the mapping files have changed, and Dagster has reloaded them: {version}")
        for broken in version.broken:
            report(str(broken))
        return True

    def _reload(self, version: FolderVersion) -> None:
        self.server.reload()
        self.shown = version.digest


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """The folders of mapping files and of what they read, and the files that they read."""

    folders: frozenset[Path]
    beside: frozenset[Path] = field(default_factory=frozenset)

    def concerns(self, _change: watchfiles.Change, path: str) -> bool:
        """Whether a change is one of a mapping file, of what it reads, or of the `..data` link of a mounted ConfigMap."""
        changed = Path(path)
        return changed.suffix in SUFFIXES or changed in self.beside or changed.name.startswith("..")


def files_to_watch(folder: Path) -> WatchedFiles:
    """Return what to watch for a folder's feeds: it, and what they include and look up, as far as those folders exist."""
    beside = frozenset(
        (feed.path.parent / name).resolve()
        for feed in load_folder(folder).feeds
        for name in (*feed.mapping.include, *feed.mapping.tables)
    )
    folders = {folder, *(path.parent for path in beside)}
    return WatchedFiles(frozenset(one for one in folders if one.is_dir()), beside)


def watch(reloader: Reloader, report: Report, stop: Event) -> None:
    """Reload at each change of the mapping files, until `stop` is set."""
    while not stop.is_set():
        if not reloader.reload_if_changed(report):
            stop.wait(RETRY_S)
            continue
        _wait_for_change(reloader, files_to_watch(reloader.folder), stop)


def _wait_for_change(reloader: Reloader, files: WatchedFiles, stop: Event) -> None:
    """Return once something has changed, also between the last reload and the beginning of the watch."""
    if not files.folders:
        stop.wait(RETRY_S)
        return
    is_first = True
    for changes in _changes(files, stop):
        if changes or (is_first and read_folder_version(reloader.folder).digest != reloader.shown):
            return
        is_first = False


def _changes(files: WatchedFiles, stop: Event) -> Iterator[AbstractSet[object]]:
    """Yield what has changed, and an empty set each second."""
    return watchfiles.watch(
        *files.folders,
        watch_filter=files.concerns,
        debounce=LONGEST_MS,
        step=QUIET_MS,
        rust_timeout=1_000,
        stop_event=stop,
        raise_interrupt=False,
        recursive=False,
        yield_on_timeout=True,
    )
