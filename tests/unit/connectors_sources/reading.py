"""Reading a file's content with a source as a mapping file would describe it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from connectors.sources.catalogue import open_source
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


def cells(rows: list[SourceRow]) -> list[list[str]]:
    """Return the cells of the rows."""
    return [list(row.cells.values()) for row in rows]


def column(rows: list[SourceRow], name: str) -> list[str]:
    """Return the cells of one column."""
    return [row.cells[name] for row in rows]


def count_rows(folder: Path, content: bytes, **spec: Any) -> int:
    """Return how many rows the content has, without keeping any."""
    (folder / "events.file").write_bytes(content)
    with open_source(SPEC.validate_python({"path": "events.file", **spec}), folder, frozenset()).read() as reading:
        return sum(1 for _ in reading.rows)
