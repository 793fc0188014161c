"""Read what a source gives, as a mapping file describes it, on a clock that only waits move."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from connectors.sources.catalogue import open_source
from connectors.sources.contract import Clock, Ending, Source
from mappings.outcome import SourceRow
from mappings.spec.source import SourceSpec

SPEC: TypeAdapter[SourceSpec] = TypeAdapter(SourceSpec)


def read(folder: Path, content: bytes | str, *wanted: str, **spec: Any) -> list[SourceRow]:
    """Put the content into a file of the folder and read it; `spec` is what stands under `source`, `csv` by default."""
    (folder / "events.file").write_bytes(content if isinstance(content, bytes) else content.encode())
    return rows_of(folder, *wanted, **{"kind": "csv", "path": "events.file", **spec})


def rows_of(folder: Path, *wanted: str, **spec: Any) -> list[SourceRow]:
    """Read what the source describes."""
    with open_source(SPEC.validate_python(spec), folder, frozenset(wanted)).read() as reading:
        return list(reading.rows)


@dataclass
class Waits:
    """A clock whose `slept` are the waits; `tick_s`: how much later it is each time that it is read."""

    at: float = 1_800_000_000.0
    tick_s: float = 0.0
    slept: list[float] = field(default_factory=list)

    def look(self) -> float:
        self.at += self.tick_s
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds

    @property
    def clockwork(self) -> Clock:
        return Clock(self.look, self.look, self.sleep, lambda: 1.0)


def far_source(address: str, waits: Waits | None = None, since: str = "", base: Path = Path("/nowhere"), **spec: Any) -> Source:
    parsed = SPEC.validate_python({"kind": "csv", "path": address, **spec})
    return open_source(parsed, base, frozenset({"id"}), since=since, clock=(waits or Waits()).clockwork)


def read_far(address: str, waits: Waits | None = None, since: str = "", **spec: Any) -> tuple[list[list[str]], bool, Ending]:
    """Return the rows, each with its place in front of its cells, whether they are all, and the ending."""
    with far_source(address, waits, since, **spec).read() as reading:
        rows = [[row.location.place, *row.cells.values()] for row in reading.rows]
        return rows, reading.is_whole, reading.ending()


def assert_untold(error: BaseException, *secrets: str, also: str = "") -> None:
    """No secret is in the error, its hint, its causes, or what else was said; lines of code may hold one."""
    said = "".join(line for line in traceback.format_exception(error) if not line.startswith("  File"))
    said += f"{also} {getattr(error, 'hint', '')}"
    assert not [secret for secret in secrets if secret in said]


def cells(rows: list[SourceRow]) -> list[list[str]]:
    """Return the cells of the rows."""
    return [list(row.cells.values()) for row in rows]


def column(rows: list[SourceRow], name: str) -> list[str]:
    """Return the cells of one column."""
    return [row.cells[name] for row in rows]
