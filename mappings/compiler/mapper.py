"""The mapper: one mapping file compiled once, then one row after another becomes events, a rejection or a skip.

Pure: no network, no database, no clock; the moment of the run is handed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from itertools import chain
from operator import itemgetter
from typing import Any
from zoneinfo import ZoneInfo

from mappings.compiler.base import CompiledValue, Compiler, Flow, Holds, RowState, Watch, nothing, read_cell, unknown_name
from mappings.compiler.expand import (
    Expand,
    FirstDay,
    RunDays,
    as_one_row,
    compile_explosion,
    compile_first_day,
    compile_recurrence,
    is_of_item,
)
from mappings.compiler.key import ReadKey, compile_key
from mappings.compiler.payload import Payload, Validator
from mappings.compiler.rows import CompiledWindow, JoinedRows, MapGroups, compile_choice, compile_grouping, left_out
from mappings.compiler.values import VALUE_COMPILERS, column_of, compile_condition
from mappings.errors import ConfigError
from mappings.event import Directory
from mappings.outcome import OVER, Alternatives, Gone, MappedRow, RowOutcome, Skipped, SourceRow
from mappings.positions import Loc, MappingProblem
from mappings.reasons import REASON_TEXTS, Detail, Reason, ReasonCode, Refusal, did_you_mean
from mappings.row_key import RowKey, row_digester
from mappings.spec import rules as spec
from mappings.spec.feed import FeedMapping
from mappings.spec.values import Fields
from mappings.steps.step import Kind
from mappings.zones import EndOfDay, find_zone

BLANK = "blank row"
"""The label of rows whose cells are all blank."""
_ONCE = (spec.Explode, spec.Recur, spec.Group, spec.Duplicates, spec.WindowRule)
LeaveOut = Callable[[RowState], str]
"""Returns the label under which the row is left out, "" if it is wanted; raises Refusal."""
PlacedRule = tuple[int, LeaveOut]
"""A rule with its place under `rows:`, from 1."""
_LONG_OVER = timedelta(days=31)
"""An event that began longer ago is over, of any length, where a feed leaves out events that are over."""


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
    found, explode = RowRules(), mapping.rule(spec.Explode)
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
                expand = compile_recurrence(compiler, rule.recur, loc, found.days, first_day)
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
    """Compile a rule that looks at the cells and values of a row or of one of its events."""
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
    """Return the same rule, each use of which is reported."""
    name = next(iter(type(rule).model_fields))
    spelt = f"{type(rule).__name__.lower()} {getattr(rule, name)}"

    def reported(row: RowState) -> str:
        before = row.cancelled
        label = leave_out(row)
        if not isinstance(rule, spec.Assert):  # what that demands is in its condition
            called_off = "" if before else row.cancelled
            watch(f"rule {place}", spelt, None, left_out(label or called_off))
        return label

    return reported


def _reported_days(expand: Expand, days: RunDays, place: int, watch: Watch) -> Expand:
    """Return the same recurrence, each use of which is reported with the days that the run looks at."""

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
    """Compile the first day of the rows that recur, before anything may look at `$day`."""
    recur = mapping.rule(spec.Recur)
    if recur is None:
        return nothing
    known = len(compiler.problems)
    first_day = compile_first_day(compiler, recur.recur, ("rows", mapping.rows.index(recur)))
    for place, problem in enumerate(compiler.problems[known:], known):
        if problem.message == unknown_name("day"):
            message = "$day cannot say on which day a recurrence begins"
            compiler.problems[place] = MappingProblem(problem.where, message, "name the column with the first day")
    # That of each event after the recurrence, the row's own before it.
    compiler.given["day"] = CompiledValue(lambda row: first_day(row) if row.day is None else row.day, Flow(Kind.DATE))
    return first_day


def _run_days(mapping: FeedMapping, as_of: datetime | None) -> RunDays:
    """Return the days that a run looks at, in the zone that the file names for all of its events, if it does.

    Those long over are left to the window, if that leaves out what is over.
    """
    if as_of is None:
        return RunDays()
    recur, window = mapping.rule(spec.Recur), mapping.rule(spec.WindowRule)
    zone = zone_of_events(mapping) or as_of.tzinfo
    horizon = None if recur is None else recur.recur.horizon
    is_past_skipped = window is not None and window.window.past == "skip"
    first = (as_of - _LONG_OVER).astimezone(zone).date() if is_past_skipped else date.min
    last = date.max if horizon is None else (as_of + horizon).astimezone(zone).date()
    return RunDays(as_of.astimezone(zone).date(), first, last)


def zone_of_events(mapping: FeedMapping) -> ZoneInfo | None:
    """Return the zone that the file names for all of its events, None where it names none."""
    named: object = mapping.event.root.get("timezone")
    if isinstance(named, str) and named.startswith("$"):
        named = mapping.let.get(named[1:])
    return find_zone(named) if isinstance(named, str) else None


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


@dataclass(frozen=True, slots=True)
class RowMapper:
    """One feed's mapping, compiled. It never raises for a row's sake.

    `over` maps the rows of a source; `outcomes` one row by itself; a call one row of a feed in which a row is an event.
    """

    columns: frozenset[str]
    """The source columns that the mapping reads, those of the key included."""
    _read_key: ReadKey
    _rules: RowRules
    _payload: Payload
    _validator: Validator
    _named: int
    _run_dates: frozenset[str]
    _reads_row_number: bool
    _alternatives: Callable[[Mapping[str, str]], Alternatives] | None = None

    def over(self, rows: Iterable[SourceRow]) -> Iterator[RowOutcome]:
        """Yield what becomes of all rows of a source: every row is in exactly one outcome, or gives several.

        Raises:
            ConfigError: rows of one key are to be put together, and there are more of them than memory should hold.
        """
        if self._rules.join is not None:
            return self._rules.join(self, rows)
        return chain.from_iterable(map(self.outcomes, rows))

    def __call__(self, row: SourceRow) -> RowOutcome:
        """Return what becomes of a row: an event, a rejection with all its reasons, or a labelled skip.

        Of a row that gives several events, the first one.
        """
        return self.outcomes(row)[0]

    def outcomes(self, row: SourceRow, joined: JoinedRows | None = None) -> tuple[RowOutcome, ...]:
        """Return all that becomes of a row, and of the parts of other rows that `joined` it: one outcome at least."""
        if self._alternatives is None:
            return self._outcomes(row, joined)
        known_as = self._alternatives(row.cells)
        return tuple(replace(outcome, known_as=known_as) for outcome in self._outcomes(row, joined))

    def _outcomes(self, row: SourceRow, joined: JoinedRows | None) -> tuple[RowOutcome, ...]:
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

    def open_row(self, row: SourceRow) -> RowState | Skipped | Gone:
        """Return a row before it is mapped, or why it is left out. Without a usable key, its key is ""."""
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
        """Return the row's key without mapping it, "" where it has none that can be used."""
        return self._read_key(row.cells)[0]

    def alternatives_of(self, row: SourceRow) -> Alternatives:
        """Return each key that the row fills; none where it has none that can be used."""
        if self._alternatives is not None:
            return self._alternatives(row.cells)
        return tuple(("", key) for key in (self.key_of(row),) if key)

    def digest(self, row: SourceRow) -> bytes:
        """Digest the cells of a row that the mapping uses, with the mapping's own digest."""
        return self._validator.digest(row.cells)

    def digest_of_cells(self, columns: Sequence[str]) -> Callable[[Sequence[str]], bytes]:
        """Return what digests a row of all its cells in the order of `columns`, as `digest` does (budget 2)."""
        places = {column: place for place, column in enumerate(columns)}
        used, digest = [places[column] for column in sorted(self.columns)], self._validator.digest_cells
        pick = itemgetter(*used) if len(used) > 1 else itemgetter(slice(used[0], used[0] + 1))
        return lambda cells: digest(pick(cells))

    def key_and_digest(self, row: SourceRow) -> tuple[RowKey, bytes] | None:
        """Return the row's key and digest without mapping it, or None where it has no key.

        A row whose digest is as recorded cannot have changed, nor can the mapping have: it need not be mapped.
        """
        key, problems = self._read_key(row.cells)
        return None if problems else (key, self.digest(row))

    @property
    def reads_run_date(self) -> bool:
        """Whether a value is the day of the run."""
        return bool(self._run_dates)

    @property
    def seen_on(self) -> str | None:
        """What outcomes depend on beside the row: the days that the run looks at. None: any moment may change them.

        A window lets rows in and out at any time of a day; rows that happen again, and values that are the day of the run, change
        with the days that they look at.
        """
        if self._rules.window is not None:
            return None
        days = self._rules.days
        looked_at = () if days is None else (days.today, days.first, days.last)
        return " ".join([*sorted(self._run_dates), *map(str, looked_at)])

    @property
    def needs_all_rows(self) -> bool:
        """Whether an event may come of several rows, so that changed rows cannot be mapped without the others."""
        return self._rules.join is not None

    @property
    def takes_rows_alone(self) -> bool:
        """Whether a row is one event that depends on its own text alone: not on other rows, nor on its place."""
        return not (self.needs_all_rows or self._rules.expansions or self._reads_row_number)

    @property
    def field_columns(self) -> Mapping[str, str]:
        """The column that a person would look at for each field of the payload, "" where there is none."""
        return self._payload.columns

    @property
    def days(self) -> tuple[str, str] | None:
        """The first and the last ISO day of recurring events whose absence means something; None where none recur."""
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
        """Return the label of the window that an event is outside of, "" if it is wanted or rejected by what the window reads."""
        window = self._rules.window
        if window is None or 0 < event.rejected_by < window.place:
            return ""
        self._validator.check_order(event, payload)
        if any(reason.field in window.reads for reason in event.reasons):
            return ""
        try:
            return window.outside(payload)
        except Refusal as refusal:
            event.reasons.append(refusal.about(self._payload.columns.get("endAt", ""), "", "window").reason("endAt"))
            return ""


def compile_feed(mapping: FeedMapping, directory: Directory, as_of: datetime | None = None) -> RowMapper:
    """Compile a mapping for a run that starts at the aware moment `as_of` (needed by feeds with a window or a horizon).

    Where the file names no zone, the day of the run is the one in the zone of `as_of`.

    Raises:
        ConfigError: a channel that the key does not have, or a window without the moment of the run.
    """
    mapper, problems = compile_with_problems(mapping, directory, as_of)
    if problems:
        message = "\n".join(f"{problem.message}, {problem.hint}" if problem.hint else problem.message for problem in problems)
        raise ConfigError(
            f"{mapping.path.name}: {message}", hint="mend the mapping, or the key's access, then run `eventsync check --live`"
        )
    if as_of is None and (mapping.needs_the_moment or mapper.reads_run_date):
        message = f"{mapping.path.name} has a window or asks for the day of the run, and the moment of the run was not said"
        raise ConfigError(message, hint="hand in as_of")
    return mapper


def compile_with_problems(
    mapping: FeedMapping, directory: Directory, as_of: datetime | None = None, watch: Watch | None = None
) -> tuple[RowMapper, tuple[MappingProblem, ...]]:
    """Compile as far as possible: the mapper, and what could not be compiled (the mapper is then not to be used).

    `watch` is called for every step that a row passes.
    """
    explode = mapping.rule(spec.Explode)
    compiler = Compiler(mapping.let, mapping.tables, directory.channels, VALUE_COMPILERS, compile_condition, watch, as_of)
    rules = compile_rules(compiler, mapping, as_of)
    payload = Payload(compiler, mapping.event)
    key = compile_key(mapping, compiler.problems, watch)
    columns = compiler.columns | key.columns
    mapper = RowMapper(
        columns=frozenset(column for column in columns if explode is None or not is_of_item(explode.explode, column)),
        _read_key=key.read,
        _alternatives=key.alternatives,
        _rules=rules,
        _payload=payload,
        _validator=Validator(
            payload=payload,
            slugs=directory.classifications,
            used=_cells_reader(sorted(columns)),
            digest_cells=row_digester(mapping.digest),
            joined={", ".join(join.by): join.prefix for join in mapping.source.join},
            drafts_warned=mapping.publish.draft_on_warning,
        ),
        _named=compiler.named_count,
        _run_dates=frozenset(compiler.run_dates),
        _reads_row_number=compiler.reads_row_number,
    )
    return mapper, tuple(compiler.problems)


def _cells_reader(columns: Sequence[str]) -> Callable[[Mapping[str, str]], Sequence[str]]:
    """Return what gives the raw texts of some columns, one at least, "" for those that the row does not have."""
    pick: Callable[[Any], Sequence[str]] = itemgetter(*columns) if len(columns) > 1 else lambda cells: (cells[columns[0]],)

    def read(cells: Mapping[str, str]) -> Sequence[str]:
        try:
            return pick(cells)
        except KeyError:
            return [cells.get(column, "") for column in columns]

    return read


def _apply_rules(rules: Sequence[PlacedRule], state: RowState) -> None:
    """Note the label and the place of the rule that leaves a row out, if one does.

    The first rule that rejects the row or leaves it out decides. A rejected row is held against the later rules too, until one
    leaves it out, so that all of its problems are reported at once.
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


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One step of one value, or one condition. `field` is the payload's path, `$name` for a named value, or `rule N` for a rule
    under `rows:`; `refused` says why, if it did.
    """

    field: str
    step: str
    goes_in: str
    comes_out: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What became of a row, and every step on the way, in the order in which they were taken.

    A row that stands for several events has several outcomes, and the steps of each.
    """

    steps: tuple[TracedStep, ...]
    outcomes: tuple[RowOutcome, ...]


def explain_row(mapping: FeedMapping, directory: Directory, row: SourceRow, as_of: datetime | None = None) -> Explanation:
    """Map one row and keep what every step did."""
    steps: list[TracedStep] = []

    def watch(field: str, step: str, goes_in: Any, comes_out: Any) -> None:
        refused = ""
        if isinstance(comes_out, Refusal):
            text = REASON_TEXTS[comes_out.code]
            refused = f"{text.removesuffix('.')}: {comes_out.hint}" if comes_out.hint else text
        steps.append(TracedStep(field, step, _shown(goes_in), "" if refused else _shown(comes_out), refused))

    mapper, _ = compile_with_problems(mapping, directory, as_of, watch)
    return Explanation(outcomes=mapper.outcomes(row), steps=tuple(steps))


def _shown(value: Any) -> str:
    match value:
        case None:
            return ""
        case list():
            return " | ".join(map(_shown, value))
        case date() | time() | EndOfDay():
            return value.isoformat()
        case dict():
            return ", ".join(f"{name}: {_shown(part)}" for name, part in value.items())
        case _:
            return str(value)
