"""Makes a running Dagster load the mapping files again after each change."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import watchfiles

from mappings.errors import SyncError
from mappings.yaml.loader import SUFFIXES, FeedFolder, load_folder
from pipelines.cli.webserver import Report, Webserver

QUIET_MS = 300
"""Changes are collected until this long without another: an editor or a checkout writes several times."""
LONGEST_MS = 3_000
RETRY_S = 10.0


@dataclass(frozen=True, slots=True)
class FolderVersion:
    """The mapping files of a folder at one moment, and the digest of all that Dagster shows of them."""

    folder: FeedFolder
    digest: bytes

    def __str__(self) -> str:
        """Return the number of feeds and broken files, for people."""
        count = len(self.folder.feeds)
        text = f"{count} feed{'s' * (count != 1)}"
        return f"{text}, {len(self.folder.broken)} broken" if self.folder.broken else text


def read_folder_version(folder: Path, others: Sequence[Path]) -> FolderVersion:
    """Read all mapping files of a folder with their included and lookup files, which may be in the `others`, too."""
    loaded = load_folder(folder, folders=others, warns=False)
    digest = hashlib.blake2b(digest_size=16)
    for feed in loaded.feeds:
        content = feed.path.read_bytes() if feed.path.is_file() else b""
        digest.update(f"{feed.path}\0".encode("utf-8", "surrogateescape") + feed.digest + content)
    for error in loaded.broken:
        digest.update(f"{error.path}\0{error}\0".encode("utf-8", "surrogateescape"))
    return FolderVersion(loaded, digest.digest())


@dataclass(slots=True)
class Reloader:
    """Makes Dagster at `server` reload the mapping files of `folder`. `shown`: the digest of the version it has.

    `others`: folders in which the files that they name may lie, too.
    """

    server: Webserver
    folder: Path
    others: Sequence[Path] = ()
    shown: bytes = b""

    def reload(self) -> FolderVersion:
        """Reload the files, changed or not; return their version.

        Raises:
            SyncError: Dagster does not answer, or cannot load its definitions.
        """
        version = read_folder_version(self.folder, self.others)
        self.server.reload()
        self.shown = version.digest
        return version

    def reload_if_changed(self, report: Report) -> bool:
        """Reload the files if they differ from those that Dagster has, and report it; return whether Dagster now has them."""
        if read_folder_version(self.folder, self.others).digest == self.shown:
            return True
        try:
            version = self.reload()
        except SyncError as error:
            report(f"the mapping files have changed, but {error}; trying again")
            return False
        report(f"the mapping files have changed, and Dagster has reloaded them: {version}")
        for broken in version.folder.broken:
            report(str(broken))
        return True


def files_to_watch(folder: Path, others: Sequence[Path]) -> tuple[set[Path], set[Path]]:
    """Return the existing folders to watch for the feeds of a folder, and the files that these feeds include or look up."""
    files = {
        (feed.path.parent / name).resolve()
        for feed in load_folder(folder, folders=others, warns=False).feeds
        for name in (*feed.include, *feed.tables)
    }
    return {one for one in (folder, *(path.parent for path in files)) if one.is_dir()}, files


def watch(reloader: Reloader, report: Report, stop: Event) -> None:
    """Reload after each change of the mapping files, until `stop` is set."""
    while not stop.is_set():
        folders, files = files_to_watch(reloader.folder, reloader.others)
        if reloader.reload_if_changed(report) and folders:
            _wait_for_change(reloader, folders, files, stop)
        else:
            stop.wait(RETRY_S)


def _wait_for_change(reloader: Reloader, folders: set[Path], files: set[Path], stop: Event) -> None:
    """Wait for a change, including one between the last reload and the start of the watch."""

    def concerns(_change: watchfiles.Change, path: str) -> bool:
        changed = Path(path)  # `..data` is the link that a mounted ConfigMap turns to its new content
        return changed.suffix in SUFFIXES or changed in files or changed.name.startswith("..")

    pace: dict[str, Any] = {"debounce": LONGEST_MS, "step": QUIET_MS, "rust_timeout": 1_000, "yield_on_timeout": True}
    changes = watchfiles.watch(*folders, watch_filter=concerns, stop_event=stop, recursive=False, raise_interrupt=False, **pace)
    if next(changes, None) or read_folder_version(reloader.folder, reloader.others).digest != reloader.shown:
        return
    next(filter(None, changes), None)
