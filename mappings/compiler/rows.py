"""The rules about rows, in the order of the file: what leaves a row out, what it expands to, and what rows of one key become."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any, Protocol, TypeVar, assert_never

from mappings.compiler.base import (
    CompiledValue,
    Compiler,
    Flow,
    Getter,
    RowState,
    as_list,
    nothing,
    once,
    read_cell,
    unknown_name,
)
from mappings.compiler.expand import (
    OVER,
    TOO_FAR,
    Expand,
    FirstDay,
    RunDays,
    compile_explosion,
    compile_first_day,
    compile_recurrence,
)
from mappings.compiler.payload import compile_payload
from mappings.compiler.values import Holds, columns_of, compile_condition
from mappings.errors import ConfigError
from mappings.outcome import Absorbed, Absorption, Gone, MappedRow, Part, Rejection, RowOutcome, Silence, Skipped, SourceRow
from mappings.positions import Loc, MappingProblem, ValuePosition
from mappings.reasons import Reason, ReasonCode, Refusal, did_you_mean
from mappings.row_key import NO_KEY, RowKey
from mappings.spec import rules as spec
from mappings.spec.feed import FeedMapping
from mappings.spec.rules import Rule
from mappings.spec.values import Fields
from mappings.steps.step import Kind
from mappings.zones import TimeOfDay, find_zone

_ONCE = (spec.Explode, spec.Recur, spec.Group, spec.Duplicates, spec.WindowRule)
LeaveOut = Callable[[RowState], str]
"""Returns the label under which the row is left out, "" if it is wanted; raises Refusal."""
PlacedRule = tuple[int, LeaveOut]
"""A rule with its place under `rows:`, from 1."""
TOO_LONG = "longer than wanted"
_LONG_OVER = timedelta(days=31)
"""An event that began longer ago is over, of any length, where a feed leaves out events that are over."""
_HELD_AT_MOST = 100_000
"""So many rows wait in memory for the end of the file; some 100 MB."""
_RANKED = (Kind.DATE, Kind.WALL, Kind.MOMENT, Kind.NUMBER, Kind.ANY)
_MOST_REASONS = 20
"""Twenty of a row's sixty bad dates are enough to report."""
AnyRule = TypeVar("AnyRule", bound=Rule)


@dataclass(slots=True)
class Expansion:
    """A rule that makes several events of one, and the rules that are applied to each of them."""

    expand: Expand
    rules: list[PlacedRule] = field(default_factory=list)


@dataclass(slots=True)
class RowRules:
    """The compiled rules of a feed. `rules` apply to a row before the first of the `expansions`; `window` to a payload.

    `days`: what a run looks at, where events recur.
    """

    rules: list[PlacedRule] = field(default_factory=list)
    expansions: list[Expansion] = field(default_factory=list)
    window: CompiledWindow | None = None
    join: MapGroups | None = None
    days: RunDays | None = None


def compile_rules(compiler: Compiler, mapping: FeedMapping, as_of: datetime | None) -> RowRules:
    """Compile the rules of a feed for a run that starts at the aware moment `as_of`."""
    compiler.problems.extend(_misplaced(mapping))
    found, explode = RowRules(), only(mapping.rows, spec.Explode)
    if explode is not None:
        compiler.given["item"] = CompiledValue(lambda row: row.item, Flow(Kind.TEXT), explode.explode.columns[0])
    first_day = _compile_day(compiler, mapping)
    for position, rule in enumerate(mapping.rows):
        loc = ("rows", position)
        match rule:
            case spec.Explode():
                found.expansions.append(Expansion(compile_explosion(compiler, rule.explode)))
            case spec.Recur():
                found.days = _run_days(mapping, as_of)
                found.expansions.append(Expansion(compile_recurrence(compiler, rule.recur, loc, found.days, first_day)))
            case spec.Group():
                found.join = _compile_grouping(compiler, rule.group, mapping.event, loc)
            case spec.Duplicates():
                found.join = _compile_choice(compiler, rule.duplicates, loc)
            case spec.WindowRule():
                found.window = None if as_of is None else CompiledWindow(rule.window, position + 1, as_of)
            case _:
                rules = found.expansions[-1].rules if found.expansions else found.rules
                rules.append((position + 1, _compile_rule(compiler, rule, loc)))
    return found


def _compile_rule(compiler: Compiler, rule: spec.Skip | spec.Keep | spec.Cancelled | spec.Assert, loc: Loc) -> LeaveOut:
    """Compile a rule that looks at the cells and values of a row or of one of its events."""
    match rule:
        case spec.Skip():
            skipped = compile_condition(compiler, rule.skip, (*loc, "skip"))
            return lambda row: rule.because if skipped(row) else ""
        case spec.Keep():
            wanted = compile_condition(compiler, rule.keep, (*loc, "keep"))
            return lambda row: "" if wanted(row) else rule.because
        case spec.Cancelled():
            cancelled = compile_condition(compiler, rule.cancelled, (*loc, "cancelled"))

            def cancel(row: RowState) -> str:
                """Let a cancelled row go on: its window and the keys of its events decide what there is to call off."""
                if not row.cancelled and not row.rejected_by and cancelled(row):
                    row.cancelled = rule.because
                return ""

            return cancel
        case spec.Assert():
            return _demand(compile_condition(compiler, rule.asserted, (*loc, "assert")), rule)
        case _:
            assert_never(rule)


def _demand(holds: Holds, rule: spec.Assert) -> LeaveOut:
    column = next(iter(columns_of(rule.asserted)), "")

    def demand(row: RowState) -> str:
        if not holds(row):
            found = read_cell(row.cells, column) if column else ""
            reason = Reason(ReasonCode.ASSERTION, "", column, found, rule.message, "assert")
            (row.reasons if rule.severity == "reject" else row.warnings).append(reason)
            row.is_draft = row.is_draft or rule.severity == "draft"
        return ""

    return demand


@dataclass(frozen=True, slots=True)
class CompiledWindow:
    """A window as seen from the aware moment `as_of`; `place` is the rule's under `rows:`, from 1."""

    span: spec.WindowSpan
    place: int
    as_of: datetime

    @property
    def reads(self) -> frozenset[str]:
        """The fields of the payload that it looks at."""
        is_end_read = self.span.past == "skip" or self.span.longest is not None
        return frozenset({"startAt", "endAt"} if is_end_read else {"startAt"})

    def outside(self, payload: dict[str, Any]) -> str:
        """Return the label under which an event is outside, "" if it is inside or its times cannot be read.

        Raises:
            Refusal: the event is longer than wanted.
        """
        span, start = self.span, _moment(payload.get("startAt"))
        end = _moment(payload["endAt"]) if "endAt" in payload and "endAt" in self.reads else start
        if start is None or end is None:
            return ""
        if span.past == "skip" and end < self.as_of:
            return OVER
        if span.horizon is not None and start > self.as_of + span.horizon:
            return TOO_FAR
        length = end - start
        if span.longest is None or length <= span.longest:
            return ""
        if span.on_longer == "skip":
            return TOO_LONG
        found = f"{length.days} days" if length.days else _hours(length)
        longest = _hours(span.longest) if span.longest.seconds else f"{span.longest.days} days"
        raise Refusal(ReasonCode.ASSERTION, f"at most {longest} from start to end would be accepted", found=found)


def _hours(length: timedelta) -> str:
    return f"{length.total_seconds() / 3600:.1f} hours"


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None


def only(rules: tuple[Rule, ...], kind: type[AnyRule]) -> AnyRule | None:
    """Return the rule of a kind of which a file has one at most."""
    return next((rule for rule in rules if isinstance(rule, kind)), None)


def is_expanding(rules: tuple[Rule, ...]) -> bool:
    """Return whether a row may stand for several events."""
    return any(isinstance(rule, spec.Explode | spec.Recur) for rule in rules)


def needs_the_moment(rules: tuple[Rule, ...]) -> bool:
    """Whether a feed cannot be compiled for a run without the moment at which the run starts."""
    return only(rules, spec.WindowRule) is not None or leaves_for_later(rules)


def leaves_for_later(rules: tuple[Rule, ...]) -> bool:
    """Return whether rows or days are left out, for being beyond a horizon, that come within it as time goes by."""
    recur, window = only(rules, spec.Recur), only(rules, spec.WindowRule)
    return (window is not None and window.window.horizon is not None) or (recur is not None and recur.recur.horizon is not None)


def _compile_day(compiler: Compiler, mapping: FeedMapping) -> FirstDay:
    """Compile the first day of the rows that recur, before anything may look at `$day`."""
    recur = only(mapping.rows, spec.Recur)
    if recur is None:
        return nothing
    known = len(compiler.problems)
    first_day = compile_first_day(compiler, recur.recur, ("rows", mapping.rows.index(recur)))
    for place, problem in enumerate(compiler.problems[known:], known):
        if problem.message == unknown_name("day"):
            message = "$day cannot say on which day a recurrence begins"
            compiler.problems[place] = MappingProblem(problem.loc, message, "name the column with the first day")
    # That of each event after the recurrence, the row's own before it.
    compiler.given["day"] = CompiledValue(lambda row: first_day(row) if row.day is None else row.day, Flow(Kind.DATE))
    return first_day


def _run_days(mapping: FeedMapping, as_of: datetime | None) -> RunDays:
    """Return the days that a run looks at, in the zone that the file names for all of its events, if it does.

    Those long over are left to the window, if that leaves out what is over.
    """
    if as_of is None:
        return RunDays()
    recur, window = only(mapping.rows, spec.Recur), only(mapping.rows, spec.WindowRule)
    named = mapping.event.root.get("timezone")
    zone = (find_zone(named) if isinstance(named, str) else None) or UTC
    horizon = None if recur is None else recur.recur.horizon
    is_past_skipped = window is not None and window.window.past == "skip"
    first = (as_of - _LONG_OVER).astimezone(zone).date() if is_past_skipped else date.min
    last = date.max if horizon is None else (as_of + horizon).astimezone(zone).date()
    return RunDays(as_of.astimezone(zone).date(), first, last)


def _misplaced(mapping: FeedMapping) -> Iterator[MappingProblem]:
    """Yield the rules that do not go together."""
    kinds = [type(rule) for rule in mapping.rows]
    for kind, count in Counter(kinds).items():
        if count > 1 and kind in _ONCE:
            last = len(kinds) - 1 - kinds[::-1].index(kind)
            yield MappingProblem(
                ("rows", last), f'the rule "{next(iter(kind.model_fields))}" stands twice', "one of them is enough"
            )
    if spec.Group in kinds and spec.Duplicates in kinds:
        hint = "rows with one key are made one event, or one of them is chosen"
        yield MappingProblem(("rows", kinds.index(spec.Duplicates)), "group and duplicates do not go together", hint)
    if spec.Explode in kinds and spec.Recur in kinds[: kinds.index(spec.Explode)]:
        yield MappingProblem(
            ("rows", kinds.index(spec.Explode)), "explode comes before recur", "each item may have days of its own"
        )
    for kind, name in ((spec.Explode, "item"), (spec.Recur, "day")):
        if kind in kinds and name in mapping.let:
            message = f'"${name}" is what distinguishes the events of a row'
            yield MappingProblem(("let", name), message, "call this value otherwise")


def as_one_row(
    outcomes: Sequence[RowOutcome], expanded: Sequence[RowState], stem: RowKey, days: RunDays | None
) -> tuple[RowOutcome, ...]:
    """Return the outcomes of one row, whose own key is the `stem` of theirs; `expanded` are what they came from.

    Where all are rejected, or all left out for one reason, that is the row's: its events are then neither wanted nor gone.
    Days that are over are dropped beside others: they need not be reported in every run.
    """
    silent = Part(silence=Silence(stem)) if stem else Part()
    first, labels = outcomes[0], {_label(outcome) for outcome in outcomes}
    rejections = [outcome for outcome in outcomes if isinstance(outcome, Rejection)]
    if len(rejections) == len(outcomes):
        reasons = once(reason for pair in zip(rejections, expanded, strict=True) for reason in _unmuted(*pair))
        return (replace(rejections[0], row_key=stem, reasons=reasons[:_MOST_REASONS], part=silent),)
    if len(labels) == 1 and ("", 0) not in labels:
        return (replace(first, row_key=stem, part=silent),)
    wanted = [pair for pair in zip(outcomes, expanded, strict=True) if not _is_of_the_past(*pair, days)]
    if not wanted:
        return (Skipped(first.location, OVER, stem, part=silent),)
    silences = [Silence(event.key) if event.is_refused and event.key else event.silence for _, event in wanted]
    parts = [Part(len(wanted), place > 0, silence) for place, silence in enumerate(silences)]
    return tuple(replace(outcome, part=part) for (outcome, _), part in zip(wanted, parts, strict=True))


def _unmuted(rejection: Rejection, event: RowState) -> Iterator[Reason]:
    """Yield the reasons, without those that come of reading a whole list where an item was meant."""
    inside = tuple(f"{column}." for column in event.muted)
    for reason in rejection.reasons:
        if reason.step == "explode" or not (reason.column in event.muted or reason.column.startswith(inside)):
            yield reason


def _label(outcome: RowOutcome) -> tuple[str, int]:
    return (outcome.because, outcome.rule) if isinstance(outcome, Skipped) and not outcome.is_cancelled else ("", 0)


def _is_of_the_past(outcome: RowOutcome, event: RowState, days: RunDays | None) -> bool:
    if days is None or days.today is None or event.day is None:
        return False
    is_over = outcome.outside == OVER if isinstance(outcome, MappedRow) else _label(outcome) == (OVER, 0)
    return is_over and bool(event.day < days.today)


class TooManyHeldError(ConfigError):
    """More rows wait for others of their key than memory should hold."""


KeyOf = Callable[[SourceRow], "RowKey | None"]
"""Returns the key of a row that others may join, None for any other."""


def row_groups(
    rows: Iterable[SourceRow], key_of: KeyOf, *, is_sorted: bool, held_at_most: int = _HELD_AT_MOST
) -> Iterator[tuple[RowKey | None, list[SourceRow]]]:
    """Yield every row in exactly one group: rows of one key in their order; a row that no other can join alone, without a key.

    Raises:
        TooManyHeldError: the file is not said to be sorted, and is too long to be held.
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
                    why = "rows of one key are put together, so all have to be held to the end of the file"
                    hint = "have the file sorted by its key, and write `sorted: true` beside that rule"
                    raise TooManyHeldError(f"{why}: more than {held_at_most:,}", hint=hint)
                held.setdefault(key, []).append(row)
    yield from held.items()


class SingleRowMapper(Protocol):
    """A mapper of rows that know nothing of each other."""

    def open_row(self, row: SourceRow) -> RowState | Skipped | Gone: ...
    def outcomes(self, row: SourceRow, joined: JoinedRows | None = None) -> tuple[RowOutcome, ...]: ...
    def digest(self, row: SourceRow) -> bytes: ...


MapGroups = Callable[[SingleRowMapper, Iterable[SourceRow]], Iterator[RowOutcome]]
"""Maps the rows of a source, those of one key together."""


@dataclass(slots=True)
class JoinedRows:
    """The later rows of an event, with what they say of the fields that are collected from all of them."""

    fields: tuple[str, ...]
    rows: list[tuple[SourceRow, RowState, dict[str, Any]]] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)

    def into(self, state: RowState, payload: dict[str, Any]) -> None:
        """Put it all into the event of the first row."""
        for name in self.fields:
            found = [one for said in (payload, *(each for _, _, each in self.rows)) for one in as_list(said.get(name))]
            if found:
                payload[name] = [one for place, one in enumerate(found) if one not in found[:place]]
        for row, other, _ in self.rows:
            state.reasons.extend(_located(reason, row) for reason in other.reasons)
            state.warnings.extend(_located(reason, row) for reason in (*row.warnings, *other.warnings))
            state.is_draft = state.is_draft or other.is_draft

    def signed(self, outcome: RowOutcome) -> RowOutcome:
        """Return the outcome of the first row with the digest of all."""
        if not self.digests or not isinstance(outcome, MappedRow):
            return outcome
        return replace(
            outcome, row_digest=hashlib.blake2b(b"".join((outcome.row_digest, *self.digests)), digest_size=16).digest()
        )


def _located(reason: Reason, row: SourceRow) -> Reason:
    where = f"the row at {row.location.place}"
    return replace(reason, hint=f"{reason.hint} ({where})" if reason.hint else where)


def _compile_grouping(compiler: Compiler, grouping: spec.Grouping, event: Fields, loc: Loc) -> MapGroups:
    """Compile the rule that makes one event of all rows with one key."""
    unknown = [name for name in grouping.collect if name not in event.root]
    if unknown:
        hint = did_you_mean(unknown[0], event.root) or f"the fields of the event are {', '.join(event.root)}"
        compiler.problems.append(MappingProblem((*loc, "group", "collect"), f'the event has no field "{unknown[0]}"', hint))
    collected = Fields.model_construct({name: event.root[name] for name in grouping.collect if name in event.root})
    build = compile_payload(compiler, collected).build

    def map_groups(mapper: SingleRowMapper, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
        for key, group in row_groups(rows, _key_reader(mapper), is_sorted=grouping.is_sorted):
            first, joined = group[0], JoinedRows(grouping.collect)
            if len(group) > 1:
                opened = [(row, state) for row in group if isinstance(state := mapper.open_row(row), RowState)]
                # Rows that are called off join it no more, unless all of them are.
                (first, _), *others = [pair for pair in opened if not pair[1].cancelled] or opened
                joined.rows = [(row, state, build(state) or {}) for row, state in others]
                joined.digests = [mapper.digest(row) for row, _ in others]
            yield from mapper.outcomes(first, joined)
            yield from (Absorbed(row.location, key or NO_KEY, Absorption.GROUPED) for row in group if row is not first)

    return map_groups


def _compile_choice(compiler: Compiler, choosing: spec.Choosing, loc: Loc) -> MapGroups:
    """Compile the rule that chooses among rows with one key."""
    if choosing.keep == "first":
        return _first_of_each
    rank = None if choosing.by is None else _compile_rank(compiler, choosing.by, ValuePosition((*loc, "duplicates", "by")))

    def choose(mapper: SingleRowMapper, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
        for key, group in row_groups(rows, _key_reader(mapper), is_sorted=choosing.is_sorted):
            best = group[-1:] if rank is None else _newest(mapper, group, rank)
            for row in group:
                if key is None or any(row is one for one in best):
                    yield from mapper.outcomes(row)
                else:
                    yield Absorbed(row.location, key, Absorption.DUPLICATE)

    return choose


def _first_of_each(mapper: SingleRowMapper, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
    """Yield the outcomes of the first row of each key: nothing needs to wait, only the keys are remembered."""
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
    """Return the key under which other rows may join one; a row without a key, or left out, stands alone."""

    def key_of(row: SourceRow) -> RowKey | None:
        opened = mapper.open_row(row)
        return opened.key if isinstance(opened, RowState) and opened.key and not row.problems else None

    return key_of


def _compile_rank(compiler: Compiler, by: Any, spot: ValuePosition) -> Getter:
    compiled = compiler.value(by, spot)
    if compiled.constant is not None or compiled.flow.is_list or compiled.flow.kind not in _RANKED:
        hint = 'name the column, and read it: {from: UPDATED, do: [{datetime: "%Y-%m-%d %H:%M"}]}'
        return compiler.misfit(spot, "a date, a moment or a number is needed, to decide which row is newest", hint).get
    return compiled.get


def _newest(mapper: SingleRowMapper, rows: list[SourceRow], rank: Getter) -> list[SourceRow]:
    """Return the newest row, or all of them where that cannot be decided: rows that differ are then rejected as duplicates."""
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
