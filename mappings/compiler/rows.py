"""The rules about rows, in the order of the file: what leaves a row out, what it expands to, and which outcomes it then gives."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from itertools import chain, groupby
from typing import Any, Protocol, TypeVar, assert_never

from mappings.compiler.base import Compiler, nothing, unknown_name
from mappings.compiler.conditions import Holds
from mappings.compiler.evaluation import Getter, RowState, read_cell
from mappings.compiler.expand import OVER, TOO_FAR, Expand, ExpandedRow, compile_explosion, given_day
from mappings.compiler.payload import compile_payload, once
from mappings.compiler.recurrence import LONG_OVER, DayRange, FirstDay, RunDays, compile_first_day, compile_recurrence
from mappings.errors import ConfigError
from mappings.outcome import Absorbed, Absorption, Gone, MappedRow, Part, Rejection, RowOutcome, Silence, Skipped, SourceRow
from mappings.positions import Loc, MappingProblem, ValuePosition
from mappings.refusals import Reason, ReasonCode, Refusal, did_you_mean
from mappings.row_key import RowKey
from mappings.spec.feed import FeedMapping
from mappings.spec.rules import (
    Assert,
    Cancelled,
    Choosing,
    Duplicates,
    Explode,
    Group,
    Grouping,
    Keep,
    Recur,
    Rule,
    Skip,
    WindowRule,
    WindowSpan,
)
from mappings.spec.values import All, Condition, Fields, Not, Test
from mappings.spec.values import Any as AnyOf
from mappings.steps.step import Kind
from mappings.zones import TimeOfDay, find_zone

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
        place = row.location.place
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
                    yield Absorbed(row.location, group.key, Absorption.DUPLICATE)

    return choose


def _first_of_each(mapper: SingleRowMapper, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
    """Nothing needs to wait: only the keys are remembered."""
    seen: set[RowKey] = set()
    for row in rows:
        key = _key_of(mapper, row)
        if key is not None and key in seen:
            yield Absorbed(row.location, key, Absorption.DUPLICATE)
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
    yield from (Absorbed(row.location, group.key or RowKey(""), Absorption.GROUPED) for row in others)


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


LeaveOut = Callable[[RowState], str]
"""Returns the label under which the row is left out, "" if it is wanted; raises Refusal."""
TOO_LONG = "longer than wanted"
AnyRule = TypeVar("AnyRule", bound=Rule)


def compile_rule(compiler: Compiler, rule: Rule, loc: Loc) -> LeaveOut | None:
    """Compile a rule that looks at the cells and values of a row or of one of its events; None for any other kind."""
    match rule:
        case Skip():
            return _leave_out(compiler.condition(rule.skip, (*loc, "skip")), rule.because, when=True)
        case Keep():
            return _leave_out(compiler.condition(rule.keep, (*loc, "keep")), rule.because, when=False)
        case Cancelled():
            return _cancel(compiler.condition(rule.cancelled, (*loc, "cancelled")), rule.because)
        case Assert():
            return _demand(compiler.condition(rule.asserted, (*loc, "assert")), rule)
        case Explode() | Recur() | Group() | Duplicates() | WindowRule():
            return None
        case _:
            assert_never(rule)


def only(rules: tuple[Rule, ...], kind: type[AnyRule]) -> AnyRule | None:
    """Return the rule of a kind of which a file has one at most."""
    return next((rule for rule in rules if isinstance(rule, kind)), None)


def window_of(rules: tuple[Rule, ...]) -> WindowSpan | None:
    """Return the window among the rules, if there is one."""
    rule = only(rules, WindowRule)
    return None if rule is None else rule.window


def compile_window(rules: tuple[Rule, ...], as_of: datetime | None) -> CompiledWindow | None:
    """Compile the window among the rules, as seen from the aware moment `as_of`; None where there is none, or no moment."""
    placed = (
        CompiledWindow(rule.window, place, as_of) for place, rule in enumerate(rules, 1) if as_of and isinstance(rule, WindowRule)
    )
    return next(placed, None)


@dataclass(frozen=True, slots=True)
class CompiledWindow:
    """A window as seen from the aware moment `as_of`; `place` is the rule's under `rows:`, from 1."""

    span: WindowSpan
    place: int
    as_of: datetime

    @property
    def reads(self) -> frozenset[str]:
        """The fields of the payload that it looks at."""
        is_end_read = self.span.past == "skip" or self.span.longest is not None
        return frozenset({"startAt", "endAt"} if is_end_read else {"startAt"})

    def outside(self, payload: Mapping[str, Any]) -> str:
        """Return the label under which an event is outside, "" if it is inside or its times cannot be read.

        Raises:
            Refusal: the event is longer than wanted.
        """
        start = _moment(payload.get("startAt"))
        end = _moment(payload["endAt"]) if "endAt" in payload and "endAt" in self.reads else start
        if start is None or end is None:
            return ""
        if self.span.past == "skip" and end < self.as_of:
            return OVER
        if self.span.horizon is not None and start > self.as_of + self.span.horizon:
            return TOO_FAR
        return "" if self.span.longest is None else _too_long(self.span, end - start, self.span.longest)


def _too_long(span: WindowSpan, length: timedelta, longest: timedelta) -> str:
    if length <= longest:
        return ""
    if span.on_longer == "skip":
        return TOO_LONG
    found = f"{length.days} days" if length.days else f"{length.total_seconds() / 3600:.1f} hours"
    raise Refusal(ReasonCode.ASSERTION, f"at most {_days(longest)} from start to end would be accepted", found=found)


def _days(length: timedelta) -> str:
    return f"{length.days} days" if not length.seconds else f"{length.total_seconds() / 3600:.1f} hours"


def _leave_out(holds: Holds, because: str, *, when: bool) -> LeaveOut:
    return lambda row: because if holds(row) is when else ""


def _cancel(holds: Holds, because: str) -> LeaveOut:
    """A cancelled row goes on: its window and the keys of its events decide what there is to call off."""

    def cancel(row: RowState) -> str:
        if not row.cancelled and not row.rejected_by and holds(row):
            row.cancelled = because
        return ""

    return cancel


def _demand(holds: Holds, rule: Assert) -> LeaveOut:
    column = _column_of(rule.asserted)

    def demand(row: RowState) -> str:
        if not holds(row):
            found = read_cell(row.cells, column) if column else ""
            reason = Reason(ReasonCode.ASSERTION, "", column, found, rule.message, "assert")
            (row.reasons if rule.severity == "reject" else row.warnings).append(reason)
            row.is_draft = row.is_draft or rule.severity == "draft"
        return ""

    return demand


def _column_of(condition: Condition) -> str:
    """Return the first column that a condition looks at, "" if it looks at values only."""
    match condition:
        case Test():
            return condition.column or ""
        case Not():
            return _column_of(condition.negated)
        case All():
            parts = condition.all
        case AnyOf():
            parts = condition.any
        case _:
            assert_never(condition)
    return next((column for column in map(_column_of, parts) if column), "")


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None


_ONCE = (Explode, Recur, Group, Duplicates, WindowRule)
PlacedRule = tuple[int, LeaveOut]
"""A rule with its place under `rows:`, from 1."""


@dataclass(slots=True)
class Expansion:
    """A rule that makes several events of one, and the rules that are asked of each of them."""

    expand: Expand
    rules: list[PlacedRule]


@dataclass(frozen=True, slots=True)
class RowRules:
    """The compiled rules of a feed. `rules` are asked of a row before the first of the `expansions`; `window` of a payload.

    `days`: what a run looks at, where events recur.
    """

    rules: tuple[PlacedRule, ...]
    expansions: tuple[Expansion, ...]
    window: CompiledWindow | None
    join: MapGroups | None
    days: RunDays | None


def compile_plan(compiler: Compiler, mapping: FeedMapping, as_of: datetime | None) -> RowRules:
    """Compile the rules of a feed for a run that starts at the aware moment `as_of`."""
    compiler.problems.extend(_misplaced(mapping))
    days = _days_of_rows(mapping, as_of)
    first_day = _compile_day(compiler, mapping)
    before: list[PlacedRule] = []
    expansions: list[Expansion] = []
    for position, rule in enumerate(mapping.rows):
        loc = ("rows", position)
        if isinstance(rule, Explode):
            expansions.append(Expansion(compile_explosion(compiler, rule.explode), []))
        elif isinstance(rule, Recur):
            expansions.append(Expansion(compile_recurrence(compiler, rule.recur, loc, days, first_day), []))
        elif (leave_out := compile_rule(compiler, rule, loc)) is not None:
            (expansions[-1].rules if expansions else before).append((position + 1, leave_out))
    return RowRules(
        rules=tuple(before),
        expansions=tuple(expansions),
        window=compile_window(mapping.rows, as_of),
        join=_join(compiler, mapping),
        days=days if only(mapping.rows, Recur) else None,
    )


def is_expanding(rules: tuple[Rule, ...]) -> bool:
    """Return whether a row may stand for several events."""
    return any(isinstance(rule, Explode | Recur) for rule in rules)


def needs_the_moment(rules: tuple[Rule, ...]) -> bool:
    """Whether a feed cannot be compiled for a run without the moment at which the run starts."""
    recur = only(rules, Recur)
    return window_of(rules) is not None or (recur is not None and recur.recur.horizon is not None)


def leaves_for_later(rules: tuple[Rule, ...]) -> bool:
    """Return whether rows or days are left out, for being beyond a horizon, that come within it as time goes by."""
    recur, span = only(rules, Recur), window_of(rules)
    return (span is not None and span.horizon is not None) or (recur is not None and recur.recur.horizon is not None)


def _compile_day(compiler: Compiler, mapping: FeedMapping) -> FirstDay:
    """Compile the first day of the rows that recur, before anything may look at `$day`."""
    for position, rule in enumerate(mapping.rows):
        if isinstance(rule, Recur):
            known = len(compiler.problems)
            first_day = compile_first_day(compiler, rule.recur, ("rows", position))
            compiler.problems[known:] = map(_of_first_day, compiler.problems[known:])
            compiler.given = {**compiler.given, "day": given_day(first_day)}
            return first_day
    return nothing


def _of_first_day(problem: MappingProblem) -> MappingProblem:
    if problem.message != unknown_name("day"):
        return problem
    return MappingProblem(problem.loc, "$day cannot say on which day a recurrence begins", "name the column with the first day")


def _join(compiler: Compiler, mapping: FeedMapping) -> MapGroups | None:
    for position, rule in enumerate(mapping.rows):
        match rule:
            case Group():
                return compile_grouping(compiler, rule.group, mapping.event, ("rows", position))
            case Duplicates():
                return compile_choice(compiler, rule.duplicates, ("rows", position))
            case _:
                continue
    return None


def _days_of_rows(mapping: FeedMapping, as_of: datetime | None) -> RunDays:
    """Return the days that a run looks at: those long over are left to the window, if that leaves out what is over."""
    recur, span = only(mapping.rows, Recur), window_of(mapping.rows)
    if recur is None or as_of is None:
        return RunDays(None, DayRange())
    zone = _zone(mapping)
    horizon = recur.recur.horizon
    is_past_skipped = span is not None and span.past == "skip"
    first = (as_of - LONG_OVER).astimezone(zone).date() if is_past_skipped else date.min
    last = date.max if horizon is None else (as_of + horizon).astimezone(zone).date()
    return RunDays(as_of.astimezone(zone).date(), DayRange(first, last))


def _zone(mapping: FeedMapping) -> tzinfo:
    """Return the zone in which the feed's days begin, as far as the file names one for all of its events."""
    named = mapping.event.root.get("timezone")
    return (find_zone(named) if isinstance(named, str) else None) or UTC


def _misplaced(mapping: FeedMapping) -> Iterator[MappingProblem]:
    """Yield the rules that do not go together."""
    kinds = [type(rule) for rule in mapping.rows]
    for kind in (kind for kind, count in Counter(kinds).items() if count > 1 and kind in _ONCE):
        last = len(kinds) - 1 - kinds[::-1].index(kind)
        yield MappingProblem(("rows", last), f'the rule "{next(iter(kind.model_fields))}" stands twice', "one of them is enough")
    if Group in kinds and Duplicates in kinds:
        hint = "rows with one key are made one event, or one of them is chosen"
        yield MappingProblem(("rows", kinds.index(Duplicates)), "group and duplicates do not go together", hint)
    if Explode in kinds and Recur in kinds[: kinds.index(Explode)]:
        yield MappingProblem(("rows", kinds.index(Explode)), "explode comes before recur", "each item may have days of its own")
    for name in (name for name in _given(mapping) if name in mapping.let):
        yield MappingProblem(
            ("let", name), f'"${name}" is what each event of a row is told apart by', "call this value otherwise"
        )


def _given(mapping: FeedMapping) -> Iterator[str]:
    if only(mapping.rows, Explode):
        yield "item"
    if only(mapping.rows, Recur):
        yield "day"


_MOST_REASONS = 20
"""Twenty of a row's sixty bad dates are enough to report."""


def as_one_row(
    outcomes: Sequence[RowOutcome], expanded: Sequence[ExpandedRow], stem: RowKey, days: RunDays | None
) -> tuple[RowOutcome, ...]:
    """Return the outcomes of one row, whose own key is the `stem` of theirs; `expanded` are what they came from.

    Where all are rejected, or all left out for one reason, that is the row's: its events are then neither wanted nor gone.
    Days that are over are dropped beside others: they need not be reported in every run.
    """
    silent = Part(silence=Silence(stem)) if stem else Part()
    rejections = [outcome for outcome in outcomes if isinstance(outcome, Rejection)]
    if len(rejections) == len(outcomes):
        reasons = chain.from_iterable(_unmuted(*pair) for pair in zip(rejections, expanded, strict=True))
        return (replace(rejections[0], row_key=stem, reasons=once(reasons)[:_MOST_REASONS], part=silent),)
    labels = {_label(outcome) for outcome in outcomes}
    if len(labels) == 1 and ("", 0) not in labels:
        return (replace(outcomes[0], row_key=stem, part=silent),)
    kept = [pair for pair in zip(outcomes, expanded, strict=True) if not _is_of_the_past(*pair, days)]
    if not kept:
        return (Skipped(outcomes[0].location, OVER, stem, part=silent),)
    return tuple(
        replace(outcome, part=Part(len(kept), place > 0, _silence(event))) for place, (outcome, event) in enumerate(kept)
    )


def _silence(event: ExpandedRow) -> Silence | None:
    return Silence(event.key) if event.is_refused and event.key else event.silence


def _unmuted(rejection: Rejection, event: ExpandedRow) -> Iterator[Reason]:
    """Yield the reasons, without those that come of reading a whole list where an item was meant."""
    muted = (*event.muted, *(f"{column}." for column in event.muted))
    for reason in rejection.reasons:
        if reason.step == "explode" or not (reason.column in muted or reason.column.startswith(muted[len(event.muted) :])):
            yield reason


def _label(outcome: RowOutcome) -> tuple[str, int]:
    return (outcome.because, outcome.rule) if isinstance(outcome, Skipped) and not outcome.is_cancelled else ("", 0)


def _is_of_the_past(outcome: RowOutcome, event: ExpandedRow, days: RunDays | None) -> bool:
    if days is None or days.today is None or event.state.day is None:
        return False
    is_over = outcome.outside == OVER if isinstance(outcome, MappedRow) else _label(outcome) == (OVER, 0)
    return is_over and event.state.day < days.today
