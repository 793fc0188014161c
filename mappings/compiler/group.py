"""Rows of one key: one of them is chosen, or they are grouped into one event, whose lists are gathered from all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from itertools import groupby
from typing import Any, Protocol

from mappings.compiler.base import Compiler
from mappings.compiler.evaluation import Getter, RowState
from mappings.compiler.expand import ExpandedRow
from mappings.compiler.payload import compile_payload
from mappings.errors import ConfigError
from mappings.outcome import Absorbed, Absorption, Gone, MappedRow, RowOutcome, Skipped, SourceRow
from mappings.positions import Loc, MappingProblem, ValuePosition
from mappings.refusals import Reason, Refusal, did_you_mean
from mappings.row_key import RowKey
from mappings.spec.rules import Choosing, Grouping
from mappings.spec.values import Fields
from mappings.steps.step import Kind
from mappings.zones import TimeOfDay

HELD_AT_MOST = 100_000
"""So many rows wait in memory for the end of the file; some 100 MB."""


class TooManyHeldError(ConfigError):
    """More rows wait for others of their key than memory should hold."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of one key in the order of the source; a row that no other can join stands alone, without a key."""

    key: RowKey | None
    rows: tuple[SourceRow, ...]


def row_groups(
    rows: Iterable[SourceRow], key_of: Callable[[SourceRow], RowKey | None], *, is_sorted: bool, held_at_most: int = HELD_AT_MOST
) -> Iterator[RowGroup]:
    """Yield every row in exactly one group. `key_of` gives the key of a row that others may join, None for any other.

    Raises:
        TooManyHeldError: the file is not said to be sorted, and is too long to be held.
    """
    return _adjacent(rows, key_of) if is_sorted else _far_apart(rows, key_of, held_at_most)


def _adjacent(rows: Iterable[SourceRow], key_of: Callable[[SourceRow], RowKey | None]) -> Iterator[RowGroup]:
    for key, together in groupby(rows, key_of):
        if key is None:
            yield from (RowGroup(None, (row,)) for row in together)
        else:
            yield RowGroup(key, tuple(together))


def _far_apart(rows: Iterable[SourceRow], key_of: Callable[[SourceRow], RowKey | None], held_at_most: int) -> Iterator[RowGroup]:
    held: dict[RowKey, list[SourceRow]] = {}
    count = 0
    for row in rows:
        key = key_of(row)
        if key is None:
            yield RowGroup(None, (row,))
            continue
        held.setdefault(key, []).append(row)
        count += 1
        if count > held_at_most:
            raise TooManyHeldError(
                f"rows of one key are put together, so all have to be held to the end of the file: more than {held_at_most:,}",
                hint="have the file sorted by its key, and write `sorted: true` beside that rule",
            )
    yield from (RowGroup(key, tuple(together)) for key, together in held.items())


_RANKED = (Kind.DATE, Kind.WALL, Kind.MOMENT, Kind.NUMBER, Kind.ANY)


class SingleRowMapper(Protocol):
    """A mapper of rows that know nothing of each other."""

    def open_row(self, row: SourceRow) -> ExpandedRow | Skipped | Gone:
        """Return what a row is before it is mapped, or why it is left out."""
        ...

    def outcomes(self, row: SourceRow, joined: GroupedParts | None = None) -> tuple[RowOutcome, ...]:
        """Return what becomes of a row, together with the parts of others that joined it."""
        ...

    def digest(self, row: SourceRow) -> bytes:
        """Digest the cells of a row that the mapping uses."""
        ...


MapGroups = Callable[[SingleRowMapper, Iterable[SourceRow]], Iterator[RowOutcome]]
"""Maps the rows of a source, those of one key together."""


@dataclass(slots=True)
class GroupedParts:
    """What later rows add to the event of the first one: lists by field, and what was wrong with them."""

    fields: tuple[str, ...]
    digests: list[bytes] = field(default_factory=list)
    lists: dict[str, list[Any]] = field(default_factory=dict)
    reasons: list[Reason] = field(default_factory=list)
    warnings: list[Reason] = field(default_factory=list)
    is_draft: bool = False

    def add(self, state: RowState, payload: dict[str, Any], row: SourceRow, digest: bytes) -> None:
        """Take what one more row says."""
        for name in self.fields:
            self.lists.setdefault(name, []).extend(_listed(payload.get(name)))
        place = row.origin.place
        self.reasons.extend(_located(reason, place) for reason in state.reasons)
        self.warnings.extend(_located(reason, place) for reason in (*row.warnings, *state.warnings))
        self.is_draft = self.is_draft or state.is_draft
        self.digests.append(digest)

    def into(self, state: RowState, payload: dict[str, Any]) -> None:
        """Put it all into the event of the first row."""
        for name in self.fields:
            found = [*_listed(payload.get(name)), *self.lists.get(name, ())]
            if found:
                payload[name] = [one for place, one in enumerate(found) if one not in found[:place]]
        state.reasons.extend(self.reasons)
        state.warnings.extend(self.warnings)
        state.is_draft = state.is_draft or self.is_draft

    def digest(self, first: bytes) -> bytes:
        """Digest all rows of the event."""
        return hashlib.blake2b(b"".join((first, *self.digests)), digest_size=16).digest() if self.digests else first

    def signed(self, outcome: RowOutcome) -> RowOutcome:
        """Return the outcome of the first row as that of all."""
        return replace(outcome, row_digest=self.digest(outcome.row_digest)) if isinstance(outcome, MappedRow) else outcome


def compile_grouping(compiler: Compiler, asked: Grouping, event: Fields, loc: Loc) -> MapGroups:
    """Compile the rule that makes one event of all rows with one key."""
    unknown = [name for name in asked.collect if name not in event.root]
    if unknown:
        hint = did_you_mean(unknown[0], event.root) or f"the fields of the event are {', '.join(event.root)}"
        compiler.problems.append(MappingProblem((*loc, "group", "collect"), f'the event has no field "{unknown[0]}"', hint))
    collected = Fields.model_construct({name: event.root[name] for name in asked.collect if name in event.root})
    build = compile_payload(compiler, collected).build

    def map_groups(mapper: SingleRowMapper, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
        for group in row_groups(rows, lambda row: _key_of(mapper, row), is_sorted=asked.is_sorted):
            yield from _grouped(mapper, group, GroupedParts(asked.collect), build)

    return map_groups


def compile_choice(compiler: Compiler, asked: Choosing, loc: Loc) -> MapGroups:
    """Compile the rule that chooses among rows with one key."""
    if asked.keep == "first":
        return _first_of_each
    rank = None if asked.by is None else _rank(compiler, asked.by, ValuePosition((*loc, "duplicates", "by")))

    def choose(mapper: SingleRowMapper, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
        for group in row_groups(rows, lambda row: _key_of(mapper, row), is_sorted=asked.is_sorted):
            best = group.rows[-1:] if rank is None else _newest(mapper, group.rows, rank)
            for row in group.rows:
                if group.key is None or any(row is one for one in best):
                    yield from mapper.outcomes(row)
                else:
                    yield Absorbed(row.origin, group.key, Absorption.DUPLICATE)

    return choose


def _first_of_each(mapper: SingleRowMapper, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
    """Nothing needs to wait: only the keys are remembered."""
    seen: set[RowKey] = set()
    for row in rows:
        key = _key_of(mapper, row)
        if key is not None and key in seen:
            yield Absorbed(row.origin, key, Absorption.DUPLICATE)
            continue
        if key is not None:
            seen.add(key)
        yield from mapper.outcomes(row)


def _key_of(mapper: SingleRowMapper, row: SourceRow) -> RowKey | None:
    """Return the key under which other rows may join this one; a row without one, or left out, stands alone."""
    opened = mapper.open_row(row)
    return opened.key if isinstance(opened, ExpandedRow) and opened.key and not row.problems else None


def _grouped(mapper: SingleRowMapper, group: RowGroup, joined: GroupedParts, build: Getter) -> Iterator[RowOutcome]:
    """Yield one event for a group; rows that are called off join it no more, unless all of them are."""
    first, others = group.rows[0], group.rows[1:]
    if others and group.key is not None:
        opened = [
            (row, event) for row, event in ((row, mapper.open_row(row)) for row in group.rows) if isinstance(event, ExpandedRow)
        ]
        (first, _), *wanted = [pair for pair in opened if not pair[1].state.cancelled] or opened
        others = tuple(row for row in group.rows if row is not first)
        for row, event in wanted:
            joined.add(event.state, build(event.state) or {}, row, mapper.digest(row))
    yield from mapper.outcomes(first, joined)
    yield from (Absorbed(row.origin, group.key or RowKey(""), Absorption.GROUPED) for row in others)


def _rank(compiler: Compiler, by: Any, spot: ValuePosition) -> Getter:
    compiled = compiler.value(by, spot)
    if compiled.constant is not None or compiled.flow.is_list or compiled.flow.kind not in _RANKED:
        hint = 'name the column, and read it: {from: UPDATED, do: [{datetime: "%Y-%m-%d %H:%M"}]}'
        return compiler.misfit(spot, "a date, a moment or a number is needed, to decide which row is newest", hint).get
    return compiled.get


def _newest(mapper: SingleRowMapper, rows: Sequence[SourceRow], rank: Getter) -> Sequence[SourceRow]:
    """Return the newest row, or all of them where that cannot be decided: rows that differ are then rejected as duplicates."""
    ranked = [(row, _ranked(mapper, row, rank)) for row in rows]
    if any(found is None for _, found in ranked):
        return rows
    try:
        newest = max(found for _, found in ranked)
    except TypeError:
        return rows
    return [row for row, found in ranked if found == newest]


def _ranked(mapper: SingleRowMapper, row: SourceRow, rank: Getter) -> Any:
    opened = mapper.open_row(row)
    if not isinstance(opened, ExpandedRow):
        return None
    try:
        found = rank(opened.state)
    except Refusal:
        return None
    return found if isinstance(found, date | TimeOfDay | Decimal | int | float) else None


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _located(reason: Reason, place: str) -> Reason:
    hint = f"{reason.hint} (the row at {place})" if reason.hint else f"the row at {place}"
    return Reason(reason.code, reason.field, reason.column, reason.found, hint, reason.step)
