"""Which classifications a mapping can give, as far as its file and lookup files tell without a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mappings.lookup_table import Table
from mappings.spec.feed import FeedMapping
from mappings.spec.values import Choose, FirstOf, From, Items, TableValue, Value
from mappings.steps.lookups import LastIn, Lookup, Map, split_columns
from mappings.strict import Policy, Use

_OWN_FILE = "the mapping file"

Named = tuple[str, str]
"""A slug, and the file that names it."""


def slugs_named(mapping: FeedMapping) -> dict[str, str]:
    """Return the slugs that the mapping names for `classifications`, each with the file that names it."""
    value = mapping.event.root.get("classifications")
    return {} if value is None else dict(_of(value, mapping))


def _of(value: Value, mapping: FeedMapping) -> Iterator[Named]:
    if isinstance(value, str):
        yield from _of_text(value, mapping)
        return
    yield from _of_block(value, mapping)
    if isinstance(value, From | FirstOf | Choose | TableValue):
        yield from _of_policies((value.on_empty, value.on_error))


def _of_text(text: str, mapping: FeedMapping) -> Iterator[Named]:
    if not text.startswith("$"):
        yield text, _OWN_FILE
    elif text[1:] in mapping.let:
        yield from _of(mapping.let[text[1:]], mapping)


def _of_block(value: Value, mapping: FeedMapping) -> Iterator[Named]:
    match value:
        case Items():
            yield from _of_all(value.root, mapping)
        case FirstOf() if not value.do:
            yield from _of_all(value.first_of, mapping)
        case Choose():
            otherwise = () if value.otherwise is None else (value.otherwise,)
            yield from _of_all((*(choice.then for choice in value.choose), *otherwise), mapping)
        case From():
            yield from _of_steps(value, mapping)
        case TableValue():
            yield from _of_table(mapping.tables[value.lookup], len(value.by), value.take)
            yield from _of_policies((value.on_miss,))
        case _:
            return


def _of_all(values: Iterable[Value], mapping: FeedMapping) -> Iterator[Named]:
    for value in values:
        yield from _of(value, mapping)


def _of_steps(value: From, mapping: FeedMapping) -> Iterator[Named]:
    """Only the last step's results are the value's."""
    match value.do[-1] if value.do else None:
        case Map() as step:
            yield from ((slug, _OWN_FILE) for slugs in step.table.values() for slug in slugs)
            yield from _of_policies((step.policy,))
        case Lookup() | LastIn() as step:
            yield from _of_table(mapping.tables[step.file], 1, step.take)
            yield from _of_policies((step.policy,))
        case None if value.source.startswith("$"):
            yield from _of(value.source, mapping)
        case _:
            return


def _of_table(table: Table, keys: int, take: tuple[str, ...] | None) -> Iterator[Named]:
    results = split_columns(table, keys, take)[1]
    places = [table.columns.index(column) for column in results]
    yield from ((row[place], table.name) for row in table.rows for place in places if row[place])


def _of_policies(policies: Iterable[Policy | None]) -> Iterator[Named]:
    for policy in policies:
        if isinstance(policy, Use):
            slugs = (policy.use,) if isinstance(policy.use, str) else policy.use
            yield from ((slug, _OWN_FILE) for slug in slugs)
