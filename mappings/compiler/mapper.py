"""The mapper: compiles one mapping file, then maps each row to events, a rejection or a skip.

Pure: no network, database or clock; the time of the run is a parameter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from operator import itemgetter
from typing import Any, ParamSpec, TypeVar

from mappings.compiler.base import (
    CompiledValue,
    Compiler,
    Flow,
    Holds,
    RowState,
    Watch,
    nothing,
    read_cell,
    unknown_name,
)
from mappings.compiler.expand import (
    Expand,
    FirstDay,
    RunDays,
    as_one_row,
    compile_explosion,
    compile_first_day,
    compile_recurrence,
    compile_zone,
    is_of_item,
)
from mappings.compiler.key import ReadKey, compile_key
from mappings.compiler.payload import Payload, Validator
from mappings.compiler.rows import CompiledWindow, JoinedRows, MapGroups, Reach, compile_choice, compile_grouping, left_out
from mappings.compiler.values import VALUE_COMPILERS, column_of, compile_condition
from mappings.errors import ConfigError, SyncError
from mappings.event import Directory
from mappings.faults import FaultLog
from mappings.outcome import (
    OVER,
    WHOLE_ROW,
    Gone,
    MappedRow,
    Part,
    Rejection,
    RowOutcome,
    Silence,
    Skipped,
    SourceRow,
    Unread,
)
from mappings.positions import Loc, MappingProblem
from mappings.reasons import Detail, Reason, ReasonCode, Refusal, did_you_mean
from mappings.row_key import NO_KEY, RowKey, row_digester
from mappings.spec import rules as spec
from mappings.spec.feed import FeedMapping
from mappings.spec.source import IcsSource
from mappings.spec.values import Fields
from mappings.steps.step import Kind

BLANK = "blank row"
"""The label of rows whose cells are all blank."""
P = ParamSpec("P")
T = TypeVar("T")
_ONCE = (spec.Explode, spec.Recur, spec.Group, spec.Duplicates, spec.WindowRule)
LeaveOut = Callable[[RowState], str]
"""Returns the label of a rule that leaves the row out, "" if it does not; raises Refusal if the row is rejected."""
PlacedRule = tuple[int, LeaveOut]
"""A rule with its number under `rows:`, counted from 1."""
_LONG_OVER = timedelta(days=31)
"""An event that began longer ago counts as over without a look at its end, if the feed skips past events."""


@dataclass(slots=True)
class Expansion:
    """An `explode` or `recur` rule, and the rules that are applied to each of the resulting events."""

    expand: Expand
    rules: list[PlacedRule] = field(default_factory=list)


@dataclass(slots=True)
class RowRules:
    """The compiled rules of a feed. `rules` apply to the row before the first of the `expansions`; `window` applies to the
    payload.

    `days`: the days of the run, if the feed has a `recur` rule. `reach`: how far ahead events may be; None without a run.
    """

    rules: list[PlacedRule] = field(default_factory=list)
    expansions: list[Expansion] = field(default_factory=list)
    window: CompiledWindow | None = None
    join: MapGroups | None = None
    days: RunDays | None = None
    reach: Reach | None = None


def compile_rules(compiler: Compiler, mapping: FeedMapping, as_of: datetime | None) -> RowRules:
    """Compile the rules of a feed for a run that starts at the aware moment `as_of`."""
    compiler.problems.extend(_misplaced(mapping))
    reach = None if as_of is None else Reach.of(as_of, mapping.publish.years_ahead)
    found, explode = RowRules(reach=reach), mapping.rule(spec.Explode)
    if explode is not None:
        compiler.given["item"] = CompiledValue(lambda row: row.item, Flow(Kind.TEXT), explode.explode.columns[0])
    first_day = _compile_day(compiler, mapping)
    for position, rule in enumerate(mapping.rows):
        loc = ("rows", position)
        match rule:
            case spec.Explode():
                found.expansions.append(Expansion(compile_explosion(compiler, rule.explode)))
            case spec.Recur():
                found.days = replace(_run_days(mapping, as_of), reach=reach)
                zone = compile_zone(compiler, rule.recur, mapping.event.root.get("timezone"))
                expand = compile_recurrence(compiler, rule.recur, loc, found.days, first_day, zone)
                if compiler.watch is not None:
                    expand = _reported_days(expand, found.days, position + 1, compiler.watch)
                found.expansions.append(Expansion(expand))
            case spec.Group():
                found.join = _compile_grouping(compiler, rule.group, mapping.event, loc)
            case spec.Duplicates():
                found.join = compile_choice(compiler, rule.duplicates, loc)
            case spec.WindowRule():
                found.window = None if as_of is None else CompiledWindow(rule.window, position + 1, as_of, compiler.watch)
            case _:
                rules = found.expansions[-1].rules if found.expansions else found.rules
                leave_out = _compile_rule(compiler, rule, loc)
                if compiler.watch is not None:
                    leave_out = _reported(leave_out, rule, position + 1, compiler.watch)
                rules.append((position + 1, leave_out))
    return found


def _compile_grouping(compiler: Compiler, grouping: spec.Grouping, event: Fields, loc: Loc) -> MapGroups:
    unknown = [name for name in grouping.collect if name not in event.root]
    if unknown:
        hint = did_you_mean(unknown[0], event.root) or f"the fields of the event are {', '.join(event.root)}"
        compiler.problems.append(MappingProblem((*loc, "group", "collect"), f'the event has no field "{unknown[0]}"', hint))
    collected = Fields.model_construct({name: event.root[name] for name in grouping.collect if name in event.root})
    return compile_grouping(grouping, Payload(compiler, collected).build)


def _compile_rule(compiler: Compiler, rule: spec.Skip | spec.Keep | spec.Cancelled | spec.Assert, loc: Loc) -> LeaveOut:
    """Compile a rule that tests the cells and values of a row or event."""
    match rule:
        case spec.Skip(skip=condition) | spec.Keep(keep=condition):
            is_skip = isinstance(rule, spec.Skip)
            holds = compiler.condition(condition, (*loc, "skip" if is_skip else "keep"))
            return lambda row: rule.because if holds(row) is is_skip else ""
        case spec.Cancelled():
            cancelled = compiler.condition(rule.cancelled, (*loc, "cancelled"))

            def cancel(row: RowState) -> str:
                """Let a cancelled row go on: its window and the keys of its events decide what there is to call off."""
                if not row.cancelled and not row.rejected_by and cancelled(row):
                    row.cancelled = rule.because
                return ""

            return cancel
        case spec.Assert():
            return _demand(compiler.condition(rule.asserted, (*loc, "assert")), rule)


def _reported(
    leave_out: LeaveOut, rule: spec.Skip | spec.Keep | spec.Cancelled | spec.Assert, place: int, watch: Watch
) -> LeaveOut:
    """Wrap a rule so that each use is reported to `watch`."""
    name = next(iter(type(rule).model_fields))
    spelt = f"{type(rule).__name__.lower()} {getattr(rule, name)}"

    def reported(row: RowState) -> str:
        before = row.cancelled
        label = leave_out(row)
        if not isinstance(rule, spec.Assert):  # an assert is reported by its condition
            called_off = "" if before else row.cancelled
            watch(f"rule {place}", spelt, None, left_out(label or called_off))
        return label

    return reported


def _reported_days(expand: Expand, days: RunDays, place: int, watch: Watch) -> Expand:
    """Wrap a recurrence so that each use is reported to `watch` with the days of the run."""

    def reported(row: RowState) -> list[RowState]:
        events = expand(row)
        label = next((event.label for event in events), "")
        if not row.is_refused:
            watch(
                f"rule {place}",
                "recur",
                {"from": days.first, "to": days.last},
                left_out(label) if label else [one.day for one in events],
            )
        return events

    return reported


def _demand(holds: Holds, rule: spec.Assert) -> LeaveOut:
    column = column_of(rule.asserted)

    def demand(row: RowState) -> str:
        if not holds(row):
            found = read_cell(row.cells, column) if column else ""
            own = {"message": rule.message}
            reason = Reason(ReasonCode.ASSERTION, "", column, found, rule.message, "assert", Detail.OWN_RULE, own)
            (row.reasons if rule.severity == "reject" else row.warnings).append(reason)
            row.is_draft = row.is_draft or rule.severity == "draft"
        return ""

    return demand


def _compile_day(compiler: Compiler, mapping: FeedMapping) -> FirstDay:
    """Compile the first day of a `recur` rule, before any other value may use `$day`."""
    recur = mapping.rule(spec.Recur)
    if recur is None:
        return nothing
    known = len(compiler.problems)
    first_day = compile_first_day(compiler, recur.recur, ("rows", mapping.rows.index(recur)))
    for place, problem in enumerate(compiler.problems[known:], known):
        if problem.message == unknown_name("day"):
            message = "$day cannot be the first day of a recurrence"
            compiler.problems[place] = MappingProblem(problem.where, message, "name the column with the first day")
    # That of each event after the recurrence, the row's own before it.
    compiler.given["day"] = CompiledValue(lambda row: first_day(row) if row.day is None else row.day, Flow(Kind.DATE))
    return first_day


def _run_days(mapping: FeedMapping, as_of: datetime | None) -> RunDays:
    """Return the days of the run in the zone that the file gives for all events, else in the zone of `as_of`.

    Days long past are excluded only if the feed's window skips past events.
    """
    if as_of is None:
        return RunDays()
    recur, window = mapping.rule(spec.Recur), mapping.rule(spec.WindowRule)
    zone = mapping.zone_of_events or as_of.tzinfo
    horizon = None if recur is None else recur.recur.horizon
    is_past_skipped = window is not None and window.window.past == "skip"
    first = (as_of - _LONG_OVER).astimezone(zone).date() if is_past_skipped else date.min
    last = date.max if horizon is None else (as_of + horizon).astimezone(zone).date()
    return RunDays(as_of.astimezone(zone).date(), first, last)


def _misplaced(mapping: FeedMapping) -> Iterator[MappingProblem]:
    """Yield a problem for each pair of rules that cannot be combined."""
    kinds = [type(rule) for rule in mapping.rows]
    for kind, count in Counter(kinds).items():
        if count > 1 and kind in _ONCE:
            last = len(kinds) - 1 - kinds[::-1].index(kind)
            yield MappingProblem(("rows", last), f'the rule "{next(iter(kind.model_fields))}" occurs twice', "keep one of them")
    if spec.Group in kinds and spec.Duplicates in kinds:
        hint = "group makes one event of the rows with one key, duplicates chooses one of them: keep one of the two rules"
        yield MappingProblem(("rows", kinds.index(spec.Duplicates)), "group and duplicates cannot be combined", hint)
    if spec.Explode in kinds and spec.Recur in kinds[: kinds.index(spec.Explode)]:
        yield MappingProblem(
            ("rows", kinds.index(spec.Explode)), "explode must come before recur", "move it up: each item may have its own days"
        )
    for kind, name in ((spec.Explode, "item"), (spec.Recur, "day")):
        if kind in kinds and name in mapping.let:
            message = f'"${name}" is reserved: it distinguishes the events of a row'
            yield MappingProblem(("let", name), message, "give this value another name")


@dataclass(frozen=True, slots=True)
class RowMapper:
    """The compiled mapping of one feed. It never raises an exception because of a row.

    `over` maps all rows of a source, `outcomes` a single row. Calling the mapper maps a row of a feed with one event per row.
    """

    columns: frozenset[str]
    """The source columns that the mapping reads, including those of the key."""
    _read_key: ReadKey
    _rules: RowRules
    _payload: Payload
    _validator: Validator
    _named: int
    _run_dates: frozenset[str]
    _reads_row_number: bool
    _faults: FaultLog = field(default_factory=FaultLog, compare=False)

    def over(self, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
        """Map all rows of a source; each row ends in exactly one outcome, or in several if it is split.

        Raises:
            ConfigError: rows with the same key are combined, and the file has more rows than fit into memory.
        """
        if self._rules.join is not None:
            return self._rules.join(self, rows)
        return chain.from_iterable(map(self.outcomes, rows))

    def __call__(self, row: SourceRow) -> RowOutcome:
        """Map a row to an event, a rejection with all its reasons, or a skip with its label; return the first event only."""
        return self.outcomes(row)[0]

    def outcomes(self, row: SourceRow, joined: JoinedRows | None = None) -> tuple[RowOutcome, ...]:
        """Map a row, together with the rows that `joined` it, to at least one outcome."""
        try:
            return self._outcomes(row, joined)
        except (SyncError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours in one row harms one row
            return (self._rejected_by_fault(row, error),)

    def guarded(self, row: SourceRow, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Rejection:
        """Return the result of work on a row, or the row's rejection if that raises an exception that no code expects."""
        try:
            return work(*args, **kwargs)
        except (SyncError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours in one row harms one row
            return self._rejected_by_fault(row, error)

    def _rejected_by_fault(self, row: SourceRow, fault: Exception) -> Rejection:
        """Return the rejection of a row for an exception that no code expects; its stack trace is logged once."""
        key = NO_KEY
        with suppress(Exception):  # the key may be what cannot be read
            key = self.key_of(row)
        return self._faults.rejection(fault, row, key, is_expanding=bool(self._rules.expansions))

    def _outcomes(self, row: SourceRow, joined: JoinedRows | None) -> tuple[RowOutcome, ...]:
        if row.unread is not None:
            return (self._unread(row, row.unread),)
        opened = self.open_row(row)
        if isinstance(opened, Skipped) and self._rules.expansions:
            return as_one_row([opened], [], opened.row_key, None)
        if not isinstance(opened, RowState):
            return (opened,)
        if not self._rules.expansions:
            return (self._map(row, opened, joined),)
        # The events that the row stands for, each with the label under which it is left out, if it is.
        expanded = [opened]
        for expansion in self._rules.expansions:
            expanded = [one for row in expanded for one in ([row] if row.label or row.is_refused else expansion.expand(row))]
            for one in expanded:
                if not (one.label or one.is_refused):
                    _apply_rules(expansion.rules, one)
        if not opened.key or row.problems:
            expanded = expanded[:1]
        return as_one_row([self._map(row, event, joined) for event in expanded], expanded, opened.key, self._rules.days)

    def _unread(self, row: SourceRow, unread: Unread) -> Skipped | Rejection:
        """Return the outcome of a row that stands for occurrences of its series that were not read: they have not vanished."""
        key, _ = self._read_key(row.cells)
        part = Part(silence=Silence(RowKey(key[:-1]), unread.after)) if key.endswith("|") else WHOLE_ROW
        if not row.problems:
            return Skipped(row.location, unread.because, part=part)
        cells = {column: row.cells.get(column, "") for column in sorted(self.columns)}
        return Rejection(row.location, key, row.problems, cells, part)

    def open_row(self, row: SourceRow) -> RowState | Skipped | Gone:
        """Read the row's key. Return the state for mapping it, or the outcome of a row that is blank or deleted. An unusable
        key is "".
        """
        if row.unread is not None and not row.problems:
            return Skipped(row.location, row.unread.because)
        key, problems = self._read_key(row.cells)
        if row.is_gone:
            return Gone(row.location, key, bool(self._rules.expansions))
        if not key.strip("|") and not row.problems and all(not text or text.isspace() for text in row.cells.values()):
            return Skipped(row.location, BLANK)
        state = RowState(row.cells, self._named, row.location, key)
        if self._rules.rules:
            _apply_rules(self._rules.rules, state)
            if state.label and not row.problems:
                return Skipped(row.location, state.label, key, rule=state.rule)
            state.label = ""
        state.reasons += problems
        return state

    def key_of(self, row: SourceRow) -> RowKey:
        """Return the row's key without mapping it, "" if it has no usable key."""
        return self._read_key(row.cells)[0]

    def digest(self, row: SourceRow) -> bytes:
        """Return the digest of the cells that the mapping uses, combined with the mapping's own digest."""
        return self._validator.digest(row.cells)

    def digest_of_cells(self, columns: Sequence[str]) -> Callable[[Sequence[str]], bytes]:
        """Return a function with the results of `digest` for rows that are sequences of cells in the order of `columns` (budget
        2).
        """
        places = {column: place for place, column in enumerate(columns)}
        used, digest = [places[column] for column in sorted(self.columns)], self._validator.digest_cells
        pick = itemgetter(*used) if len(used) > 1 else itemgetter(slice(used[0], used[0] + 1))
        return lambda cells: digest(pick(cells))

    @property
    def reads_run_date(self) -> bool:
        """Whether a value depends on the day of the run."""
        return bool(self._run_dates)

    @property
    def seen_on(self) -> str | None:
        """Return a text of the days on which outcomes depend in addition to the row, None if they may change at any time.

        With a window, outcomes may change at any time; with `recur` or `run_date` they change with the day.
        """
        if self._rules.window is not None:
            return None
        days = self._rules.days
        looked_at = () if days is None else (days.today, days.first, days.last)
        return " ".join([*sorted(self._run_dates), *map(str, looked_at)])

    @property
    def needs_all_rows(self) -> bool:
        """Whether an event may combine several rows, so that changed rows cannot be mapped alone."""
        return self._rules.join is not None

    @property
    def takes_rows_alone(self) -> bool:
        """Whether each row is one event that depends on the row's own text only, not on other rows or its position."""
        return not (self.needs_all_rows or self._rules.expansions or self._reads_row_number)

    @property
    def field_columns(self) -> Mapping[str, str]:
        """The column to show for each field of the payload, "" if it has none."""
        return self._payload.columns

    @property
    def days(self) -> tuple[str, str] | None:
        """The first and last ISO day of recurring events: only events between them can vanish. None without `recur`."""
        days = self._rules.days
        return None if days is None else ((days.today or days.first).isoformat(), days.last.isoformat())

    def _map(self, row: SourceRow, event: RowState, joined: JoinedRows | None) -> RowOutcome:
        if event.label and not row.problems:
            return Skipped(row.location, event.label, event.key, rule=event.rule)
        payload = self._payload.build(event) or {}
        outside = "" if row.problems or event.is_refused else self._outside(event, payload)
        if event.cancelled and not row.problems and outside != OVER:
            return Skipped(row.location, event.cancelled, event.key, is_cancelled=True)
        if joined is not None:
            joined.into(event, payload)
        outcome = self._validator.outcome(row, event, payload)
        if outside:
            if event.cancelled or not isinstance(outcome, MappedRow):
                return Skipped(row.location, outside, event.key)
            outcome.outside = outside
        return outcome if joined is None else joined.signed(outcome)

    def _outside(self, event: RowState, payload: dict[str, Any]) -> str:
        """Return the label of the window that leaves the event out, "" if the event is inside or its times are rejected."""
        window = self._rules.window
        if window is None or 0 < event.rejected_by < window.place:
            return ""
        self._validator.check_times(event, payload)
        if any(reason.field in window.reads for reason in event.reasons):
            return ""
        try:
            return window.outside(payload)
        except Refusal as refusal:
            event.reasons.append(refusal.about(self._payload.columns.get("endAt", ""), "", "window").reason("endAt"))
            return ""


def compile_feed(mapping: FeedMapping, directory: Directory, as_of: datetime | None = None) -> RowMapper:
    """Compile a mapping for a run that starts at the aware time `as_of` (required for feeds with a window or horizon).

    If the file gives no zone for all events, the day of the run is the one in the zone of `as_of`.

    Raises:
        ConfigError: the key has no such channel, or `as_of` is missing.
    """
    mapper, problems = compile_with_problems(mapping, directory, as_of)
    if problems:
        message = "\n".join(f"{problem.message}, {problem.hint}" if problem.hint else problem.message for problem in problems)
        raise ConfigError(
            f"{mapping.path.name}: {message}",
            hint="correct the mapping, or give the key access, then run `eventsync check --live`",
        )
    if as_of is None and (mapping.needs_the_moment or mapper.reads_run_date):
        message = f"{mapping.path.name} has a window or uses the day of the run, and the time of the run was not given"
        raise ConfigError(message, hint="hand in as_of")
    return mapper


def compile_with_problems(
    mapping: FeedMapping, directory: Directory, as_of: datetime | None = None, watch: Watch | None = None
) -> tuple[RowMapper, tuple[MappingProblem, ...]]:
    """Compile a mapping as far as possible. Return the mapper and the problems; with problems the mapper must not be used.

    `watch` is called for each step that a row passes through.
    """
    explode = mapping.rule(spec.Explode)
    compiler = Compiler(mapping.let, mapping.tables, directory.channels, VALUE_COMPILERS, compile_condition, watch, as_of)
    rules = compile_rules(compiler, mapping, as_of)
    payload = Payload(compiler, mapping.event)
    if watch is not None and mapping.is_expanding:
        payload.announce(watch)
    key = compile_key(mapping, compiler.problems, watch)
    columns = compiler.columns | key.columns
    mapper = RowMapper(
        columns=frozenset(column for column in columns if explode is None or not is_of_item(explode.explode, column)),
        _read_key=key.read,
        _rules=rules,
        _payload=payload,
        _validator=Validator(
            payload=payload,
            slugs=directory.classifications,
            used=_cells_reader(sorted(columns)),
            digest_cells=row_digester(mapping.digest),
            joined={", ".join(join.by): join.prefix for join in mapping.source.join},
            drafts_warned=mapping.publish.draft_on_warning,
            reach=rules.reach,
        ),
        _named=compiler.named_count,
        _run_dates=frozenset(compiler.run_dates) | _day_of_series(mapping, as_of),
        _reads_row_number=compiler.reads_row_number,
    )
    return mapper, tuple(compiler.problems)


def _day_of_series(mapping: FeedMapping, as_of: datetime | None) -> frozenset[str]:
    """Return the day on which the occurrences of a calendar's series that are read depend."""
    if as_of is None or not isinstance(mapping.source, IcsSource):
        return frozenset()
    return frozenset({as_of.astimezone(UTC).date().isoformat()})


def _cells_reader(columns: Sequence[str]) -> Callable[[Mapping[str, str]], Sequence[str]]:
    """Return a function that picks the raw texts of at least one column, "" for missing ones."""
    pick: Callable[[Any], Sequence[str]] = itemgetter(*columns) if len(columns) > 1 else lambda cells: (cells[columns[0]],)

    def read(cells: Mapping[str, str]) -> Sequence[str]:
        try:
            return pick(cells)
        except KeyError:
            return [cells.get(column, "") for column in columns]

    return read


def _apply_rules(rules: Sequence[PlacedRule], state: RowState) -> None:
    """Apply rules to a row, and record the first rule that rejects it or leaves it out.

    A rejected row is tested by the later rules too, until one leaves it out, so that all its problems are reported at once.
    """
    for place, rule in rules:
        count = len(state.reasons)
        try:
            label = rule(state)
        except Refusal as refusal:
            state.reasons.append(refusal.reason(""))
            label = ""
        if not state.rejected_by and len(state.reasons) > count:
            state.rejected_by = place
        if label:
            if not state.rejected_by:
                state.label, state.rule = label, place
            return
