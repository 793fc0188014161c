"""The kinds of source that the contract suite (`test_sources*.py`) asks, and how a test puts rows where a source finds them.

**To add a kind**: write a module beside this one (`sheet_kinds.py`, say) with a `Stand` and a list of `Kind`s, and add
the list to `KINDS` in `every_kind.py`: one line. Nothing else is needed: the suite asks each kind all that it promises.

* A `Stand` is the place for one test: a folder, or a local service that answers as the real one does. `Kind.stand` opens
  it for a folder of the test's own.
* `put(grid)` makes the place hold exactly these rows, the first line being the columns' names; it may be called again, and
  means then that somebody edited: a row is known by its first cell. A service that calls its columns otherwise than the
  grid says so in the spec's `columns`.
* What a kind cannot do is said in `Kind`, with the reason where it is not plain: `accepts` (text that it cannot hold),
  `is_grid`, `first`, `is_measured`.
* A kind with `is_incremental` returns from `put` a spec that reads by cursor; the suite then also edits, deletes, and reads
  on. `access` is who we are; `environment` the same for a process of its own; `secrets` must come up nowhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from connectors.sources.catalogue import open_source
from connectors.sources.contract import NO_ACCESS, Access, Clock, Source
from mappings.spec.source import FileSource, SourceSpec

Grid = Sequence[Sequence[str]]


class Stand(Protocol):
    """Where rows of one kind are put for one test."""

    base: Path
    """The folder of the mapping file that a relative path would start from."""
    place: str
    """What a message about this source as a whole must name, so that a person knows which one is meant."""
    access: Access
    environment: Mapping[str, str]
    secrets: Sequence[str]
    port: int
    """Where the service listens on loopback, 0 if there is none: no connection to it may be left open."""

    def put(self, grid: Grid) -> SourceSpec:
        """Make the place hold exactly these rows; none at all, not even columns, if the grid is empty."""
        ...

    def take_away(self) -> None:
        """Take the whole place away (the file, the sheet, the object), or our leave to see it."""
        ...

    def break_off(self) -> None:
        """Let what is there end in the middle of a row from now on, however often it is asked for."""
        ...


@dataclass(frozen=True)
class Kind:
    """A kind of source.

    `first` is the number of the first row, None where numbers count something else (lines of records of any length).
    `is_grid`: columns have names of their own, which may stand twice, be padded or be wanted by their position.
    `ends_at_filled`: blank rows below the last filled one are none. `is_measured`: this process holds the source's memory
    only, and not that of the service which answers it as well. `knows_versions`: its cursor says that nothing at all has
    changed, and it then gives no rows. `is_dear`: to open it takes so long that few examples must do.
    """

    name: str
    stand: Callable[[Path], AbstractContextManager[Stand]]
    accepts: Callable[[str], bool] = lambda _: True
    first: int | None = 2
    is_grid: bool = True
    ends_at_filled: bool = False
    is_incremental: bool = False
    is_measured: bool = True
    knows_versions: bool = False
    is_dear: bool = False


def opened(stand: Stand, grid: Grid, columns: frozenset[str] = frozenset(), *, since: str = "") -> Source:
    """Put a grid where the source finds it, and return the source."""
    return open_source(stand.put(grid), stand.base, columns, access=stand.access, since=since, clock=in_no_time())


def in_no_time() -> Clock:
    """Return a clock on which every wait is over at once: sources insist on services that stumble for minutes."""
    waited: list[float] = []
    return Clock(
        now=lambda: time.time() + sum(waited),
        clock_s=lambda: time.monotonic() + sum(waited),
        sleep=waited.append,
        chance=lambda: 0.5,
    )


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
