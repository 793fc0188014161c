"""One file on the web as a source: fetched and read, or not even fetched if it has not changed since.

How a file is fetched is `web_files`', how it is read its kind's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from connectors.sources.contract import Ending, Reading, unchanged
from connectors.sources.errors import SourceUnavailableError
from connectors.sources.file_choice import beside
from connectors.sources.found_file import KeptFile
from connectors.sources.many_files import OpenOne
from connectors.sources.web_files import WebFiles, name_of
from mappings.spec.source import FileSource
from mappings.spec.source_words import marker_of


@dataclass(frozen=True, slots=True)
class WebSource:
    """The file at an address of the web, opened as a source by `open_one`. `since`: its version when it was read before."""

    spec: FileSource
    files: WebFiles
    open_one: OpenOne
    columns: tuple[str, ...]
    since: str = ""

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`."""
        self._await_marker()
        with self.files.fetched_if_changed(self.spec.path, self.since) as kept:
            if kept is None:
                yield unchanged(self.columns, self.since, name_of(self.spec.path))
                return
            self._await_end(kept)
            with self.open_one(kept.opened).read() as reading:
                yield replace(reading, ending=lambda: Ending(kept.version), records=None)

    def _await_marker(self) -> None:
        if self.spec.marker:
            marker = beside(self.spec.path, marker_of(self.spec.marker, name_of(self.spec.path)))
            if self.files.look(marker) is None:
                raise self._unfinished(f"its marker {name_of(marker)} is not there yet")

    def _await_end(self, kept: KeptFile) -> None:
        """A young file, or one of unknown age, is asked for once more, after a while: it should be the same."""
        settle = self.spec.settle
        if settle is None or (kept.age_s is not None and kept.age_s >= settle.total_seconds()):
            return
        self.files.bounds.clockwork.sleep(settle.total_seconds())
        with self.files.fetched_if_changed(self.spec.path, kept.stamp) as again:
            if again is not None and again.stamp != kept.stamp:
                raise self._unfinished(f"it changed within {settle.total_seconds():.0f} s")

    def _unfinished(self, why: str) -> SourceUnavailableError:
        said = f"{self.files.shown(self.spec.path)} is still being written: {why}"
        return SourceUnavailableError(said, hint="run again later; nothing was read")
