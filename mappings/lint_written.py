"""Columns that a mapping file both reads and has written back to: what became of a row must not change what it says.

What is merely unwise is `lint`'s.
"""

from __future__ import annotations

from collections.abc import Iterator

from mappings.schema import FeedMapping
from mappings.sheet_specs import GoogleSheetsSource
from mappings.source_parts import WriteBack
from mappings.spots import Problem


def find_read_and_written(mapping: FeedMapping, columns: frozenset[str]) -> Iterator[Problem]:
    """Yield a problem for each of the `columns` that the mapping reads and `write_back` names."""
    match mapping.source:
        case GoogleSheetsSource(write_back=WriteBack() as written):
            for name in written.names:
                if name in columns:
                    hint = "give a column that the mapping does not read"
                    yield Problem(("source", "write_back"), f'the mapping reads "{name}", and writes into it', hint)
        case _:
            return
