"""What a mapping file may do and had better not: keys that partners edit, and examples that prove nothing.

What shows in the file's plain text is `lint_rules`' and `lint_values`'; what may not be is `soundness`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mappings.compiler.mapper import RowMapper
from mappings.lint.rules import find_unreachable
from mappings.lint.values import find_weak_values
from mappings.positions import Problem
from mappings.refusals import did_you_mean
from mappings.spec.feed import FeedMapping
from mappings.spec.source import GoogleSheetsSource
from mappings.spec.source_words import WriteBack

_EDITED = ("title", "startAt", "endAt", "locationName")


def find_unwise(document: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Return what is unwise in a file, well-formed or not: rules, values and names that do not do what they seem to."""
    return (*find_unreachable(document), *find_weak_values(document))


def find_warnings(mapping: FeedMapping, mapper: RowMapper) -> tuple[Problem, ...]:
    """Return what is unwise, for the command check to show."""
    return (
        *_edited_keys(mapping, mapper.field_columns),
        *_weak_examples(mapping),
        *_misspelt_columns(mapping, mapper.columns),
    )


def _edited_keys(mapping: FeedMapping, columns: Mapping[str, str]) -> Iterator[Problem]:
    for position, part in enumerate(mapping.key_columns):
        fields = [field for field in _EDITED if columns.get(field) == part.column]
        if fields:
            message = f'the key uses "{part.column}", which partners edit (it fills {fields[0]})'
            yield Problem(("key", position), message, "an edit makes the row look new: prefer an identifier that stays")


def _misspelt_columns(mapping: FeedMapping, columns: Collection[str]) -> Iterator[Problem]:
    for position, example in enumerate(mapping.examples):
        absent = set(columns) - example.row.keys()
        for name in example.row.keys() - set(columns):
            near = did_you_mean(name, sorted(absent))
            if near:
                yield Problem(("examples", position, "row", name), f'the mapping reads no column "{name}"', near)


def _weak_examples(mapping: FeedMapping) -> Iterator[Problem]:
    if not mapping.examples:
        yield Problem(("feed",), "the feed has no examples", "add a row with its event, and one that must be rejected")
    elif not any(example.rejected is not None for example in mapping.examples):
        yield Problem(("examples",), "no example is a rejection", "add a row that must be rejected, and why")


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
