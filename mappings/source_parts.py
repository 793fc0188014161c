"""The small words of a mapping file's `source`: marks, encodings, ranges of cells, and where the header stands.

Which kinds of source there are is `source_specs`'s; how one is read is `connectors.sources`'s.
"""

from __future__ import annotations

import codecs
import re
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from mappings.measures import OneOrMany, Pattern, Text, mistake
from mappings.refusals import did_you_mean
from mappings.strict import Strict

CELL_RANGE = re.compile(r"([A-Z]{1,3})?([1-9][0-9]{0,6})?(?::([A-Z]{1,3})?([1-9][0-9]{0,6})?)?")
"""How a part of a sheet is written, in upper case and without dollar signs."""
_ENCODINGS = (
    *("utf-8", "windows-1252", "cp932", "windows-1250", "windows-1251", "iso-8859-1", "iso-8859-2", "iso-8859-15"),
    *("utf-16", "shift_jis", "cp949", "euc-kr", "gb18030", "big5", "koi8-r", "macroman"),
)
"""Those that partners' files are in, to tell an author which was probably meant."""
_NO_CHARSETS = frozenset({"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs", "oem", "utf_7"})
"""Codecs of Python that make texts of bytes, and are no character sets of files; UTF-7 is none of the web (WHATWG), and slow."""


def _spelt_out(text: object) -> object:
    return "\t" if text in ("tab", r"\t") else text


def _no_mark(text: object) -> object:
    return None if text in ("null", "~", "", "none") else text


def _one_character(text: str) -> str:
    if len(text) != 1:
        raise mistake(f'"{text}" is not one character', 'a tab is written "\\t"')
    if text in "\r\n\0":
        raise mistake("cells cannot be parted by a line break", 'a tab is written "\\t"')
    return text


def is_text_encoding(name: str) -> bool:
    """Whether files can be in this encoding: one that Python knows, and not such as `idna` or `hex`."""
    try:
        "".encode(name)  # refuses codecs that turn bytes into bytes
        return codecs.lookup(name).name.replace("-", "_") not in _NO_CHARSETS
    except (LookupError, ValueError):
        return False


def _text_encoding(name: str) -> str:
    if not is_text_encoding(name):
        known = did_you_mean(name, _ENCODINGS) or f"write it like {', '.join(_ENCODINGS[:3])}; `eventsync init FILE` guesses it"
        raise mistake(f'"{name}" is not an encoding that Python knows', known)
    return name


def _cell_range(text: str) -> str:
    plain = text.replace("$", "").upper()
    if not plain or not CELL_RANGE.fullmatch(plain):
        raise mistake(f'"{text}" is not a range of cells', 'write it like "B3:H200", "A:F" or "A5"')
    return plain


Mark = Annotated[
    str,
    BeforeValidator(_spelt_out),
    AfterValidator(_one_character),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 3}),
]
"""One character that parts cells: no line break. A tab may be spelt out."""

OptionalMark = Annotated[
    Mark | None, BeforeValidator(_no_mark), WithJsonSchema({"type": ["string", "null"], "minLength": 1, "maxLength": 4})
]
"""The same, or null: files are text, and `null` is how they say that there is none."""

Encoding = Annotated[str, AfterValidator(_text_encoding)]
"""The name of a text encoding, as Python's `codecs` knows it."""

CellRange = Annotated[str, AfterValidator(_cell_range)]
"""A part of a sheet, in upper case without dollar signs; either half may lack its letters or its number."""

Names = Annotated[tuple[Text, ...], OneOrMany()]
"""Names of columns, or other texts; one needs no list around it."""


class Header(Strict):
    """Where the names of the columns stand.

    `row`: the header's row, from 1; 0 says that the file has none. `matches` looks for it instead: the first row with a
    cell in which the pattern is found. `rows`: the names stand in so many rows, one below the other, and are joined by a
    space. `names`: the names to use instead of what stands there (required with row 0); rows above and the header itself
    are then passed over.
    """

    row: int = Field(
        default=1, ge=0, le=1000, description="The header's row, counted from 1, blank rows too; 0: the file has no header."
    )
    matches: Pattern | None = Field(
        default=None, description="A pattern: the header is the first row (of 1,000) with a cell in which it is found."
    )
    rows: int = Field(default=1, ge=1, le=10, description="How many rows the names take, joined by a space.")
    names: Names = Field(default=(), description="Names for the columns, in order, instead of those in the file.")

    @model_validator(mode="after")
    def _has_names(self) -> Self:
        if self.row == 0 and not self.names:
            raise mistake("row 0 says that the file has no header", "give the columns' names in `names`")
        if self.matches is not None and self.row != 1:
            raise mistake("the header is found by its row or by a pattern", "write one of row, matches")
        return self


class WriteBack(Strict):
    """Columns of the sheet itself that are given to us, to say in them what became of each row.

    They must be there, and the mapping may not read them. All their cells are ours; no other column is ever written.
    """

    status: Text = Field(default="", description="The column for a word: published, draft, rejected, waits.")
    event_id: Text = Field(default="", description="The column for the event's number at the service.")
    problem: Text = Field(default="", description="The column for what is wrong with the row, and what would be right.")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns given."""
        return tuple(filter(None, (self.status, self.event_id, self.problem)))

    @model_validator(mode="after")
    def _some_and_different(self) -> Self:
        if not self.names:
            raise mistake("no column is given", 'give one at least: `write_back: {status: "Status"}`')
        if len(set(self.names)) < len(self.names):
            raise mistake("status, event_id and problem must be different columns")
        return self
