"""The mapper: one mapping file compiled once, then one row after another becomes events, a rejection or a skip.

Pure: no network, no database, no clock; the moment of the run is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import chain
from operator import itemgetter
from typing import Any

from mappings.compiler.base import Compiler, RowState, Watch, cells_reader
from mappings.compiler.expand import OVER, ReadKey, compile_key, is_of_item
from mappings.compiler.payload import Payload, Validator, compile_payload
from mappings.compiler.rows import JoinedRows, PlacedRule, RowRules, as_one_row, compile_rules, needs_the_moment, only
from mappings.compiler.values import compile_value
from mappings.errors import ConfigError
from mappings.event import Directory
from mappings.outcome import Gone, MappedRow, RowOutcome, Skipped, SourceRow
from mappings.positions import MappingProblem
from mappings.reasons import REASON_TEXTS, Refusal
from mappings.row_key import NO_KEY, RowKey, row_digester
from mappings.spec.feed import FeedMapping
from mappings.spec.rules import Explode
from mappings.zones import EndOfDay

BLANK = "blank row"
"""The label of rows whose cells are all blank."""


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
        opened = self.open_row(row)
        if isinstance(opened, Skipped) and self._rules.expansions:
            return as_one_row([opened], [], opened.row_key, None)
        if not isinstance(opened, RowState):
            return (opened,)
        if not self._rules.expansions:
            return (self._map(row, opened, joined),)
        expanded = self._expand(opened)
        if not opened.key or row.problems:
            expanded = expanded[:1]
        return as_one_row([self._map(row, event, joined) for event in expanded], expanded, opened.key, self._rules.days)

    def open_row(self, row: SourceRow) -> RowState | Skipped | Gone:
        """Return a row before it is mapped, or why it is left out. Without a usable key, its key is ""."""
        found = self._read_key(row.cells)
        key, problems = (found, ()) if isinstance(found, str) else (NO_KEY, found)
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
        found = self._read_key(row.cells)
        return found if isinstance(found, str) else NO_KEY

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
        key = self._read_key(row.cells)
        return (key, self.digest(row)) if isinstance(key, str) else None

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

    def _expand(self, opened: RowState) -> list[RowState]:
        """Return the events that a row stands for, each with the label under which it is left out, if it is."""
        rows = [opened]
        for expansion in self._rules.expansions:
            rows = [event for row in rows for event in ([row] if row.label or row.is_refused else expansion.expand(row))]
            for event in rows:
                if not (event.label or event.is_refused):
                    _apply_rules(expansion.rules, event)
        return rows

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

    Raises:
        ConfigError: a channel that the key does not have, or a window without the moment of the run.
    """
    mapper, problems = compile_with_problems(mapping, directory, as_of)
    if problems:
        message = "\n".join(f"{problem.message}, {problem.hint}" if problem.hint else problem.message for problem in problems)
        raise ConfigError(
            f"{mapping.path.name}: {message}", hint="mend the mapping, or the key's access, then run `eventsync check --live`"
        )
    if as_of is None and (needs_the_moment(mapping.rows) or mapper.reads_run_date):
        message = f"{mapping.path.name} has a window or asks for the day of the run, and the moment of the run was not said"
        raise ConfigError(message, hint="hand in as_of")
    return mapper


def compile_with_problems(
    mapping: FeedMapping, directory: Directory, as_of: datetime | None = None, watch: Watch | None = None
) -> tuple[RowMapper, tuple[MappingProblem, ...]]:
    """Compile as far as possible: the mapper, and what could not be compiled (the mapper is then not to be used).

    `watch` is called for every step that a row passes.
    """
    explode = only(mapping.rows, Explode)
    compiler = Compiler(mapping.let, mapping.tables, directory.channels, compile_value, watch, as_of)
    rules = compile_rules(compiler, mapping, as_of)
    payload = compile_payload(compiler, mapping.event)
    columns = compiler.columns | {column.column for column in mapping.key_columns}
    mapper = RowMapper(
        columns=frozenset(column for column in columns if explode is None or not is_of_item(explode.explode, column)),
        _read_key=compile_key(mapping.key_columns),
        _rules=rules,
        _payload=payload,
        _validator=Validator(
            payload=payload,
            slugs=directory.classifications,
            used=cells_reader(sorted(columns)),
            digest_cells=row_digester(mapping.digest),
            joined={", ".join(join.by): join.prefix for join in mapping.source.join},
            drafts_warned=mapping.publish.draft_on_warning,
        ),
        _named=compiler.named_count,
        _run_dates=frozenset(compiler.run_dates),
        _reads_row_number=compiler.reads_row_number,
    )
    return mapper, tuple(compiler.problems)


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
    """One step of one value. `field` is the payload's path, or `$name` for a named value; `refused` says why, if it did."""

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

    @property
    def outcome(self) -> RowOutcome:
        """What became of the row; the first of its outcomes, where there are several."""
        return self.outcomes[0]


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
