"""Lookup files found and read: beside the feed file, else in the folder `lookups` next to the feed's folder.

What a table holds is `tables`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mappings.lookup_table import Table, TableError, parse_table
from mappings.refusals import did_you_mean

FOLDER = "lookups"


@dataclass(slots=True)
class LookupShelf:
    """Lookup files already read, so that the feeds of one folder share them."""

    _tables: dict[Path, Table] = field(default_factory=dict)

    def opener(self, folder: Path) -> Callable[[str], Table]:
        """Return the function that finds a lookup file for the feeds of `folder`, by the name they give."""
        return lambda name: self._open(folder, name)

    def _open(self, folder: Path, name: str) -> Table:
        try:
            path = next((place / name for place in (folder, folder.parent / FOLDER) if (place / name).is_file()), None)
        except OSError as error:
            raise TableError(f"the lookup file cannot be read: {error.strerror}") from error
        if path is None:
            raise TableError(_missing(folder, name))
        return self._read(path, name)

    def _read(self, path: Path, name: str) -> Table:
        path = path.resolve()
        if path not in self._tables:
            try:
                self._tables[path] = parse_table(name, path.read_text("utf-8-sig"))
            except OSError as error:
                raise TableError(f"the lookup file {name} cannot be read: {error.strerror}") from error
            except UnicodeDecodeError as error:
                line = error.object.count(b"\n", 0, error.start) + 1
                raise TableError(f"the lookup file {name} is not UTF-8 from line {line} on: save it as UTF-8") from error
        return self._tables[path]


def _missing(folder: Path, name: str) -> str:
    places = (folder, folder.parent / FOLDER)
    known = [str(path.relative_to(place)) for place in places if place.is_dir() for path in place.rglob("*.csv")]
    near = did_you_mean(name, known)
    where = f"neither beside the feed file nor in {FOLDER}/"
    return f'there is no lookup file "{name}", {where}' + (f", {near}" if near else "")
