"""Where a feed's rows come from, as its mapping file says it: one model per kind of source, a closed union.

How a source is read is `connectors.sources`'s.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from mappings.measures import OneOrMany, mistake
from mappings.strict import Strict


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


def _text_encoding(name: str) -> str:
    try:
        b"?".decode(name, "replace")
    except (LookupError, UnicodeError):
        raise mistake(f'"{name}" is not an encoding that Python knows, like utf-8, windows-1252 or shift_jis') from None
    return name


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


class Header(Strict):
    """Where the names of the columns stand.

    `row`: the header's row, from 1; 0 says that the file has none. `names`: the names to use instead of what stands
    there (required with row 0); rows up to and including `row` are then passed over.
    """

    row: int = Field(
        default=1, ge=0, le=1000, description="The header's row, counted from 1, blank rows too; 0: the file has no header."
    )
    names: Annotated[tuple[str, ...], OneOrMany()] = Field(
        default=(), description="Names for the columns, in order, instead of those in the file."
    )

    @model_validator(mode="after")
    def _has_names(self) -> Self:
        if self.row == 0 and not self.names:
            raise mistake("row 0 says that the file has no header", "give the columns' names in `names`")
        return self


class CsvSource(Strict):
    """A delimited text file: a path beside the mapping file, an absolute path, or any address that fsspec opens.

    Columns are found by the names in the header, whatever their case, spaces or Unicode form; a column without a name
    is called after its position, `#3`, and of several with one name the later ones are `Name#2`, `Name#3`.
    """

    kind: Literal["csv"] = Field(description="csv: a delimited text file.")
    path: str = Field(min_length=1, description="Path (relative to the mapping file) or URL of the file.")
    encoding: Annotated[tuple[Encoding, ...], OneOrMany()] = Field(
        default=("utf-8",),
        min_length=1,
        description="Encodings to try, in order; the first that decodes the whole file wins. A byte order mark goes before all.",
    )
    delimiter: Mark = Field(default=",", description='One character; "\\t" for tab.')
    quote: OptionalMark = Field(default='"', description="The quote character; null: quotes mean nothing in this file.")
    escape: OptionalMark = Field(default=None, description="Escape character, if quotes are not doubled.")
    header: Header = Field(default=Header(), description="Where the columns' names stand: `row` and `names`.")
    required: Annotated[tuple[str, ...], OneOrMany()] = Field(
        default=(), description="Columns without which the feed must not run."
    )
    long_rows: Literal["reject", "cut"] = Field(
        default="reject", description="Rows with more cells than the header: reject them, or cut the surplus."
    )

    @model_validator(mode="after")
    def _marks_differ(self) -> Self:
        marks = [mark for mark in (self.delimiter, self.quote, self.escape) if mark is not None]
        if len(set(marks)) < len(marks):
            raise mistake("delimiter, quote and escape must be different characters")
        return self


SourceSpec = CsvSource
"""The closed union of source kinds, discriminated by `kind`."""
