"""The `window`, `group` and `duplicates` rules: which events are outside the window, and what becomes of rows with the same
key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import MAXYEAR, date, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any, ParamSpec, Protocol, TypeVar

from dateutil.relativedelta import relativedelta

from mappings.compiler.base import Compiler, Getter, RowState, Watch, as_list
from mappings.errors import ConfigError
from mappings.outcome import OVER, TOO_FAR, Absorbed, Absorption, Gone, MappedRow, Rejection, RowOutcome, Skipped, SourceRow
from mappings.positions import Loc, ValuePosition
from mappings.reasons import Detail, Particular, Reason, ReasonCode, Refusal
from mappings.row_key import NO_KEY, RowKey
from mappings.spec import rules as spec
from mappings.steps.step import Kind
from mappings.zones import TimeOfDay

P = ParamSpec("P")
T = TypeVar("T")
_HELD_AT_MOST = 100_000
"""How many rows may wait in memory for the end of the file; about 100 MB."""
_RANKED = (Kind.DATE, Kind.WALL, Kind.MOMENT, Kind.NUMBER, Kind.ANY)
"""Kinds of values that can decide which row is the newest."""


@dataclass(frozen=True, slots=True)
class CompiledWindow:
    """A window of a run at the aware time `as_of`; each use is reported to `watch`. `place`: the rule's number, from 1."""

    span: spec.WindowSpan
    place: int
    as_of: datetime
    watch: Watch | None = None

    @property
    def reads(self) -> frozenset[str]:
        """The payload fields that the window reads."""
        is_end_read = self.span.past == "skip" or self.span.longest is not None
        return frozenset({"startAt", "endAt"} if is_end_read else {"startAt"})

    def outside(self, payload: dict[str, Any]) -> str:
        """Return the label for an event outside the window, "" if it is inside or its times cannot be read.

        Raises:
            Refusal: the event is longer than `longest`.
        """
        label = self._outside(payload)
        if self.watch is not None:
            times = {name: payload[name] for name in ("startAt", "endAt") if name in payload}
            self.watch(f"rule {self.place}", "window", times | {"as of": self.as_of.replace(microsecond=0)}, left_out(label))
        return label

    def _outside(self, payload: dict[str, Any]) -> str:
        span, start = self.span, read_moment(payload.get("startAt"))
        end = read_moment(payload["endAt"]) if "endAt" in payload and "endAt" in self.reads else start
        if start is None or end is None:
            return ""
        if span.past == "skip" and end < self.as_of:
            return OVER
        if span.horizon is not None and start > self.as_of + span.horizon:
            return TOO_FAR
        length = end - start
        if span.longest is None or length <= span.longest:
            return ""
        found = f"{length.days} days" if length.days else _hours(length)
        longest = _hours(span.longest) if span.longest.seconds else f"{span.longest.days} days"
        raise Refusal(ReasonCode.ASSERTION, f"at most {longest} from start to end are allowed", found=found)


def left_out(label: str) -> str:
    """Return how `explain` words the result of a rule with this label."""
    return f"left out: {label}" if label else "goes on"


def _hours(length: timedelta) -> str:
    return f"{length.total_seconds() / 3600:.1f} hours"


def read_moment(text: Any) -> datetime | None:
    """Return an ISO date and time with offset, None for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None


_BUDDHIST_ERA = 543
"""The years by which the Buddhist calendar of Thailand is ahead."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far ahead events may be: `years` after the year `now` of the run, until the ISO day `last`."""

    now: int
    years: int
    last: str

    @classmethod
    def of(cls, as_of: datetime, years: int) -> Reach:
        """Return the reach of a run that starts at `as_of`."""
        return cls(as_of.year, years, str(as_of.date() + relativedelta(years=min(years, MAXYEAR - as_of.year))))

    def refusal(self, day: str) -> Refusal:
        """Return the refusal of a later ISO day."""
        common = int(day[:4]) - _BUDDHIST_ERA
        hint = f"{day} is more than {self.years} years after the run"
        particulars: dict[str, Particular] = {"day": day, "years": self.years}
        if not self.now - 1 <= common <= self.now + self.years:
            return Refusal(ReasonCode.FAR_AHEAD, f"{hint} (publish: years_ahead)", particulars=particulars)
        hint += f"; {day[:4]} looks like a year of the Buddhist calendar, {common} elsewhere (publish: years_ahead)"
        particulars |= {"year": day[:4], "common": str(common)}
        return Refusal(ReasonCode.FAR_AHEAD, hint, detail=Detail.BUDDHIST_YEAR, particulars=particulars)


class TooManyHeldError(ConfigError):
    """Too many rows would wait in memory for others with the same key."""


KeyOf = Callable[[SourceRow], "RowKey | None"]
"""Returns the key by which a row is grouped, None for a row that is never grouped."""


def row_groups(
    rows: Iterable[SourceRow], key_of: KeyOf, *, is_sorted: bool, held_at_most: int = _HELD_AT_MOST
) -> Iterator[tuple[RowKey | None, list[SourceRow]]]:
    """Yield rows in groups: those with the same key together, in their order; rows without a group key alone.

    Raises:
        TooManyHeldError: the file is not declared as sorted and has more than `held_at_most` rows.
    """
    held: dict[RowKey, list[SourceRow]] = {}
    count = 0
    for key, together in groupby(rows, key_of):
        if key is None:
            yield from ((None, [row]) for row in together)
        elif is_sorted:
            yield key, list(together)
        else:
            for row in together:
                count += 1
                if count > held_at_most:
                    why = "rows with the same key are combined, so all rows are kept in memory until the file ends"
                    hint = "ask for the file sorted by its key, and write `sorted: true` beside that rule"
                    raise TooManyHeldError(f"{why}: more than {held_at_most:,}", hint=hint)
                held.setdefault(key, []).append(row)
    yield from held.items()


class SingleRowMapper(Protocol):
    """The part of a mapper that maps a single row."""

    def open_row(self, row: SourceRow) -> RowState | Skipped | Gone: ...
    def guarded(self, row: SourceRow, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Rejection: ...
    def outcomes(self, row: SourceRow, joined: JoinedRows | None = None) -> tuple[RowOutcome, ...]: ...
    def digest(self, row: SourceRow) -> bytes: ...


MapGroups = Callable[[SingleRowMapper, Iterable[SourceRow]], Iterator[RowOutcome]]
"""Maps the rows of a source, combining those with the same key."""


@dataclass(slots=True)
class JoinedRows:
    """The later rows of an event, with their values for the fields that are collected from all rows."""

    fields: tuple[str, ...]
    rows: list[tuple[SourceRow, RowState, dict[str, Any]]] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)

    def into(self, state: RowState, payload: dict[str, Any]) -> None:
        """Add the collected values, reasons and warnings to the event of the first row."""
        for name in self.fields:
            found = [one for said in (payload, *(each for _, _, each in self.rows)) for one in as_list(said.get(name))]
            if found:
                payload[name] = [one for place, one in enumerate(found) if one not in found[:place]]
        for row, other, _ in self.rows:
            state.reasons.extend(_located(reason, row) for reason in other.reasons)
            state.warnings.extend(_located(reason, row) for reason in (*row.warnings, *other.warnings))
            state.is_draft = state.is_draft or other.is_draft

    def signed(self, outcome: RowOutcome) -> RowOutcome:
        """Return the first row's outcome with a digest over all rows of the event."""
        if not self.digests or not isinstance(outcome, MappedRow):
            return outcome
        return replace(
            outcome, row_digest=hashlib.blake2b(b"".join((outcome.row_digest, *self.digests)), digest_size=16).digest()
        )


def _located(reason: Reason, row: SourceRow) -> Reason:
    where = f"the row at {row.location}"
    return replace(reason, hint=f"{reason.hint} ({where})" if reason.hint else where)


def compile_grouping(grouping: spec.Grouping, build: Getter) -> MapGroups:
    """Compile a `group` rule: one event from all rows with the same key. `build` returns the values to collect from a row."""

    def map_groups(mapper: SingleRowMapper, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
        for key, group in row_groups(rows, _key_reader(mapper), is_sorted=grouping.is_sorted):
            first, joined = group[0], JoinedRows(grouping.collect)
            if len(group) > 1:
                found = mapper.guarded(first, join, mapper, group)
                if isinstance(found, Rejection):
                    yield found
                else:
                    first, joined = found
                    yield from mapper.outcomes(first, joined)
            else:
                yield from mapper.outcomes(first, joined)
            yield from (Absorbed(row.location, key or NO_KEY, Absorption.GROUPED) for row in group if row is not first)

    def join(mapper: SingleRowMapper, group: list[SourceRow]) -> tuple[SourceRow, JoinedRows]:
        opened = [(row, state) for row in group if isinstance(state := mapper.open_row(row), RowState)]
        # Rows that are called off join it no more, unless all of them are.
        (first, _), *others = [pair for pair in opened if not pair[1].cancelled] or opened
        rows = [(row, state, build(state) or {}) for row, state in others]
        return first, JoinedRows(grouping.collect, rows, [mapper.digest(row) for row, _ in others])

    return map_groups


def compile_choice(compiler: Compiler, choosing: spec.Choosing, loc: Loc) -> MapGroups:
    """Compile a `duplicates` rule: one row is chosen among those with the same key."""
    if choosing.keep == "first":
        return _first_of_each
    rank = None if choosing.by is None else _compile_rank(compiler, choosing.by, ValuePosition((*loc, "duplicates", "by")))

    def choose(mapper: SingleRowMapper, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
        for key, group in row_groups(rows, _key_reader(mapper), is_sorted=choosing.is_sorted):
            best = group[-1:] if rank is None else mapper.guarded(group[-1], _newest, mapper, group, rank)
            if isinstance(best, Rejection):
                yield best
                yield from (Absorbed(row.location, key or NO_KEY, Absorption.DUPLICATE) for row in group[:-1])
                continue
            for row in group:
                if key is None or any(row is one for one in best):
                    yield from mapper.outcomes(row)
                else:
                    yield Absorbed(row.location, key, Absorption.DUPLICATE)

    return choose


def _first_of_each(mapper: SingleRowMapper, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
    """Yield the outcomes of the first row of each key; only keys are kept in memory, no rows."""
    key_of, seen = _key_reader(mapper), set[RowKey]()
    for row in rows:
        key = key_of(row)
        if key is None or key not in seen:
            yield from mapper.outcomes(row)
        else:
            yield Absorbed(row.location, key, Absorption.DUPLICATE)
        if key is not None:
            seen.add(key)


def _key_reader(mapper: SingleRowMapper) -> KeyOf:
    """Return the function that gives the key by which a row is grouped; rows without a key or left out are not grouped."""

    def key_of(row: SourceRow) -> RowKey | None:
        opened = mapper.guarded(row, mapper.open_row, row)
        return opened.key if isinstance(opened, RowState) and opened.key and not row.problems else None

    return key_of


def _compile_rank(compiler: Compiler, by: Any, spot: ValuePosition) -> Getter:
    compiled = compiler.value(by, spot)
    if compiled.constant is not None or compiled.flow.is_list or compiled.flow.kind not in _RANKED:
        hint = 'name the column, and read it: {from: UPDATED, do: [{datetime: "%Y-%m-%d %H:%M"}]}'
        return compiler.misfit(spot, "a date, a moment or a number is needed, to decide which row is newest", hint).get
    return compiled.get


def _newest(mapper: SingleRowMapper, rows: list[SourceRow], rank: Getter) -> list[SourceRow]:
    """Return the newest row; all rows if that is undecided, so that differing rows are rejected as duplicates."""
    ranks = []
    for row in rows:
        opened = mapper.open_row(row)
        try:
            found = rank(opened) if isinstance(opened, RowState) else None
        except Refusal:
            return rows
        if not isinstance(found, date | TimeOfDay | Decimal | int | float):
            return rows
        ranks.append(found)
    try:
        newest: Any = max(ranks)
    except TypeError:
        return rows
    return [row for row, found in zip(rows, ranks, strict=True) if found == newest]
