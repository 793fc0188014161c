"""What a mapping file may do and had better not: keys that partners edit, examples that prove nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mappings.compiler.mapper import RowMapper
from mappings.lint.rules import find_unreachable
from mappings.lint.values import find_weak_values
from mappings.positions import MappingProblem
from mappings.refusals import did_you_mean
from mappings.spec.feed import FeedMapping
from mappings.spec.source import GoogleSheetsSource
from mappings.spec.source_words import WriteBack

_EDITED = ("title", "startAt", "endAt", "locationName")


def find_unwise(document: Mapping[str, Any]) -> tuple[MappingProblem, ...]:
    """Return what is unwise in a file, well-formed or not: rules, values and names that do not do what they seem to."""
    return (*find_unreachable(document), *find_weak_values(document))


def find_warnings(mapping: FeedMapping, mapper: RowMapper) -> tuple[MappingProblem, ...]:
    """Return what is unwise, for the command check to show."""
    return (
        *_edited_keys(mapping, mapper.field_columns),
        *_weak_examples(mapping),
        *_misspelt_columns(mapping, mapper.columns),
    )


def _edited_keys(mapping: FeedMapping, columns: Mapping[str, str]) -> Iterator[MappingProblem]:
    for position, part in enumerate(mapping.key_columns):
        fields = [field for field in _EDITED if columns.get(field) == part.column]
        if fields:
            message = f'the key uses "{part.column}", which partners edit (it fills {fields[0]})'
            yield MappingProblem(("key", position), message, "an edit makes the row look new: prefer an identifier that stays")


def _misspelt_columns(mapping: FeedMapping, columns: Collection[str]) -> Iterator[MappingProblem]:
    for position, example in enumerate(mapping.examples):
        absent = set(columns) - example.row.keys()
        for name in example.row.keys() - set(columns):
            near = did_you_mean(name, sorted(absent))
            if near:
                yield MappingProblem(("examples", position, "row", name), f'the mapping reads no column "{name}"', near)


def _weak_examples(mapping: FeedMapping) -> Iterator[MappingProblem]:
    if not mapping.examples:
        yield MappingProblem(("feed",), "the feed has no examples", "add a row with its event, and one that must be rejected")
    elif not any(example.rejected is not None for example in mapping.examples):
        yield MappingProblem(("examples",), "no example is a rejection", "add a row that must be rejected, and why")


def find_read_and_written(mapping: FeedMapping, columns: frozenset[str]) -> Iterator[MappingProblem]:
    """Yield a problem for each of the `columns` that the mapping reads and `write_back` names."""
    match mapping.source:
        case GoogleSheetsSource(write_back=WriteBack() as written):
            for name in written.names:
                if name in columns:
                    hint = "give a column that the mapping does not read"
                    yield MappingProblem(("source", "write_back"), f'the mapping reads "{name}", and writes into it', hint)
        case _:
            return
