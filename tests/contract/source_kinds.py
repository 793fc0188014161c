"""The kinds of source that the contract suite (`eventsync.testing`, `test_sources.py`) asks; `eventsync.testing` says what a
kind and its stand are.

**To add a kind**: write a module beside this one (`sheet_kinds.py`, say) with a `Stand` and a list of `Kind`s, and add
the list to `KINDS` in `every_kind.py`: one line. Nothing else is needed: the suite asks each kind all that it promises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from connectors.sources.contract import NO_ACCESS, Access
from eventsync.testing import Grid, Kind, Stand, in_no_time, opened
from mappings.spec.source import SourceSpec
from mappings.spec.source_base import FileSource

__all__ = ["Folder", "Grid", "Kind", "Stand", "in_folder", "in_no_time", "opened"]


@dataclass
class Folder:
    """The stand of a file: `write` puts a grid into it and says how it is to be read."""

    base: Path
    write: Callable[[Path, Grid], SourceSpec]
    place: str = ""
    access: Access = NO_ACCESS
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    port: int = 0

    def put(self, grid: Grid) -> SourceSpec:
        spec = self.write(self.base, grid)
        assert isinstance(spec, FileSource)
        self.place = str(self.base / spec.path)
        return spec

    def take_away(self) -> None:
        (self.base / "events.csv").unlink()

    def break_off(self) -> None:
        path = self.base / "events.csv"
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def in_folder(write: Callable[[Path, Grid], SourceSpec]) -> Callable[[Path], AbstractContextManager[Stand]]:
    """Return what opens the stand of a file of one kind."""

    @contextmanager
    def stand(base: Path) -> Iterator[Stand]:
        yield Folder(base, write)

    return stand
