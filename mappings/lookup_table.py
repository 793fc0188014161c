"""Lookup tables: rows of text under named columns, indexed by one or several columns.

The loader reads the CSV file; this module only parses its text.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

INVISIBLE = "\u200b\u200c\u2060\ufeff\u180e\u00ad"
SPACES = "".join(chr(code) for code in range(0x3001) if chr(code).isspace()) + INVISIBLE
"""Every Unicode space, and the invisible characters."""
_ORDINARY = {0x2010: "-", 0x2011: "-", **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}}
"""The ordinary signs for the hyphens that are not ASCII, and for full-width signs."""
_VARIANTS = frozenset(map(chr, (0x034F, *range(0x180B, 0x180E), *range(0xFE00, 0xFE10))))
"""Marks without a width of their own that Unicode does not count as format characters."""
Ignorable = Literal["case", "accents", "spaces", "punctuation"]
Result = str | Mapping[str, str]
_STROKES = str.maketrans("łŁøØđĐħĦı", "lLoOdDhHi")
"""Letters with a stroke or without a dot, which Unicode does not treat as accents, but which users type without them."""


def plain(text: str) -> str:
    """Return a text as it is to be parsed for a date, time or number; cells and keys stay as they are.

    Without format characters (Unicode's category Cf: zero-width, directional, soft hyphens) and variation selectors; every
    space within a line is a plain one, every digit one of ASCII, and each hyphen and full-width sign the ordinary one.
    """
    return text if text.isascii() else "".join(map(_plain, text)).translate(_ORDINARY)


def _plain(char: str) -> str:
    match unicodedata.category(char):
        case "Cf":
            return ""
        case "Zs":
            return " "
        case "Nd":
            return str(unicodedata.decimal(char))
        case _:
            return "" if char in _VARIANTS else char


class TableError(ValueError):
    """A problem of a lookup table, worded for the author of the feed."""


@dataclass(frozen=True, slots=True)
class Table:
    """One lookup file: `columns` in order, `rows` of equally many trimmed texts."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def parse_table(name: str, text: str) -> Table:
    """Read CSV text (comma or semicolon, header in the first row; blank rows are passed over).

    Raises:
        TableError: a header cell is empty, or a row has another number of cells.
    """
    header_line = text.split("\n", 1)[0]
    delimiter = ";" if header_line.count(";") > header_line.count(",") else ","
    lines = csv.reader(io.StringIO(unicodedata.normalize("NFC", text)), delimiter=delimiter)
    try:
        rows = [(lines.line_num, tuple(cell.strip() for cell in cells)) for cells in lines if any(map(str.strip, cells))]
    except csv.Error as error:
        raise TableError(f"line {lines.line_num} of the lookup file {name} cannot be read: {error}") from error
    if not rows:
        raise TableError(f"the lookup file {name} is empty")
    columns = rows[0][1]
    if "" in columns:
        raise TableError(f"the header of the lookup file {name} has an empty column")
    for line, cells in rows[1:]:
        if len(cells) != len(columns):
            raise TableError(f"line {line} of the lookup file {name} has {len(cells)} cells, the header {len(columns)}")
    return Table(name, columns, tuple(cells for _, cells in rows[1:]))


def _without_accents(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char)).translate(_STROKES)


def _without_punctuation(text: str) -> str:
    return "".join(char for char in text if unicodedata.category(char)[0] not in "PS").strip()


_WITHOUT: Mapping[Ignorable, Callable[[str], str]] = {
    "case": str.casefold,
    "accents": _without_accents,
    "spaces": lambda text: "".join(text.split()),
    "punctuation": _without_punctuation,
}


def normaliser(ignore: Sequence[Ignorable]) -> Callable[[str], str]:
    """Return a function that normalises a key for comparison: NFC, trimmed, without the ignored differences."""
    steps = [_WITHOUT[difference] for difference in dict.fromkeys(ignore)]

    def normalise(text: str) -> str:
        text = text.strip() if text.isascii() else unicodedata.normalize("NFC", text).strip()
        for step in steps:
            text = step(text)
        return text

    return normalise
