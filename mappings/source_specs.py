"""Where a feed's rows come from, as its mapping file says it: one model per kind of source, a closed union.

How a source is read is `connectors.sources`'s.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mappings.strict import Strict


class Header(Strict):
    """Where the names of the columns stand.

    `row`: the header's row, from 1; 0 says that the file has none. `names`: the names to use instead of what stands
    there (required with row 0); rows up to and including `row` are then passed over.
    """

    row: int = Field(default=1, ge=0, le=1000, description="The header's row, counted from 1; 0: the file has no header.")
    names: tuple[str, ...] = Field(default=(), description="Names for the columns, in order, instead of those in the file.")


class CsvSource(Strict):
    """A delimited text file: a path beside the mapping file, an absolute path, or any address that fsspec opens."""

    kind: Literal["csv"]
    path: str = Field(description="Path (relative to the mapping file) or URL of the file.")
    encoding: tuple[str, ...] = Field(
        default=("utf-8",), min_length=1, description="Encodings to try, in order; the first that decodes the whole file wins."
    )
    delimiter: str = Field(default=",", min_length=1, max_length=1, description='One character; "\\t" for tab.')
    quote: str = Field(default='"', min_length=1, max_length=1, description="The quote character.")
    escape: str | None = Field(
        default=None, min_length=1, max_length=1, description="Escape character, if quotes are not doubled."
    )
    header: Header = Header()
    required: tuple[str, ...] = Field(default=(), description="Columns without which the feed must not run.")
    long_rows: Literal["reject", "cut"] = Field(
        default="reject", description="Rows with more cells than the header: reject them, or cut the surplus."
    )


SourceSpec = CsvSource
"""The closed union of source kinds, discriminated by `kind`."""
