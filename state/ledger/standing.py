"""What waits for a person: the rules of `state.facts` as SQL, the counts that every run records, and records for people.

Ignored entries and events that are over are on no list.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa
from pydantic import TypeAdapter

from mappings.delivery import Answer
from mappings.outcome import shown_place
from mappings.reasons import ReasonCode
from mappings.row_key import FeedName, IdempotencyKey, RowKey
from state import facts
from state.database import in_pages, reading, rounded
from state.enums import Decision, DriftKind, EntryState, Observed, Outcome, ProblemKind, Waiting
from state.ledger import entries
from state.ledger.accounts import load_answer, load_read
from state.ledger.entries import IS_IGNORED, IS_OPEN, OBSERVED, SOME, TRIED, in_facts, is_forgotten, is_to_come
from state.ledger.problems import is_listed_warning, last_read
from state.tables import ATTEMPT, BODY, DECISION, ENTRY, OBSERVATION, PROBLEM, RUN, SCOPE

T = TypeVar("T")
_Row = sa.Row[*tuple[Any, ...]]
KEY_MEMORY_S = 86_400.0
_NAMED = 3
_OTHER, _SEEN, _TRIED, _WARNED = ENTRY.alias(), OBSERVATION.alias(), ATTEMPT.alias(), PROBLEM.alias()
_REMOVED_KEY = (
    sa.select(sa.func.max(DECISION.c.revision))
    .where(DECISION.c.entry_id == _TRIED.c.entry_id, DECISION.c.revision < ENTRY.c.revision)
    .where(DECISION.c.option == Decision.REMOVED.value)
    .correlate(_TRIED, ENTRY)
    .scalar_subquery()
)
_REQUESTS = (
    sa.select(sa.func.coalesce(sa.func.sum(_TRIED.c.requests), 0))
    .where(_TRIED.c.entry_id == ENTRY.c.id, _TRIED.c.revision > sa.func.coalesce(_REMOVED_KEY, -1))
    .scalar_subquery()
)
COPIES = sa.case((sa.and_(ENTRY.c.event_id.is_not(None), _REQUESTS == 0), 1), else_=_REQUESTS)
"""How many events of an entry may exist if the service ignores idempotency keys. Once a row is sent again after its event was
removed by hand, that one does not count.
"""
IS_RESENT = sa.and_(ENTRY.c.id.in_(sa.select(_TRIED.c.entry_id).where(_TRIED.c.requests > 0)), COPIES > 1)
"""An entry may have several events."""
_IGNORED = sa.select(DECISION.c.entry_id).where(DECISION.c.option == Decision.IGNORE.value)
IS_SET_ASIDE = sa.and_(ENTRY.c.id.in_(_IGNORED), IS_IGNORED)
"""As `IS_IGNORED`, but only the few entries with such a decision are looked at."""


@dataclass(frozen=True, slots=True)
class OpenRows:
    """A number of rows, and the keys of the oldest three."""

    count: int = 0
    first: tuple[RowKey, ...] = ()

    def __str__(self) -> str:
        named = ", ".join(self.first)
        return f"{self.count:,} ({named}{', …' if self.count > len(self.first) else ''})" if named else f"{self.count:,}"


_NONE = OpenRows()


@dataclass(frozen=True, slots=True)
class Copies:
    """Rows that may have several events if the service ignores idempotency keys, counted over all runs.

    `first`: the three with the most, each with that number.
    """

    count: int = 0
    first: tuple[tuple[RowKey, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """All entries of a feed that wait for a person, read in this run or not.

    `uncertain`: the next run sends them again; `forgotten`: uncertain, and too old for that without a person's decision.
    `faults`: rejected because of a bug in eventsync. `drifts`: the drift by kind. `asked`: how many events the source asks for
    now, 0 if nothing is refused. `copies`: rows that may exist more than once and were sent since the last report of a run; no
    row waits for that reason alone.
    """

    conflict: OpenRows = _NONE
    blocked: OpenRows = _NONE
    uncertain: OpenRows = _NONE
    forgotten: OpenRows = _NONE
    refused: OpenRows = _NONE
    held: OpenRows = _NONE
    unconfirmed: OpenRows = _NONE
    drift: OpenRows = _NONE
    vanished: OpenRows = _NONE
    warning: OpenRows = _NONE
    faults: OpenRows = _NONE
    drifts: Mapping[DriftKind, int] = field(default_factory=dict)
    asked: int = 0
    copies: Copies = field(default_factory=Copies)

    @property
    def rows(self) -> dict[Waiting, OpenRows]:
        """The rows by kind, without empty kinds."""
        every: dict[Waiting, OpenRows] = {kind: getattr(self, kind.name.lower()) for kind in Waiting}
        first = (*self.forgotten.first, *self.uncertain.first)[:_NAMED]
        every[Waiting.UNCERTAIN] = OpenRows(self.forgotten.count + self.uncertain.count, first)
        return {kind: rows for kind, rows in every.items() if rows.count}

    @property
    def counts(self) -> dict[str, int]:
        """The number of entries by kind."""
        return {kind.value: rows.count for kind, rows in self.rows.items()}


NOTHING = Standing()
"""The standing of a feed for which nothing waits."""
_KINDS, _STORED = frozenset(Waiting), TypeAdapter(dict[Waiting, OpenRows])


def load_standing(stored: str) -> Mapping[Waiting, OpenRows]:
    """Parse the result of `dump_standing`, without kinds that are no longer known."""
    return _STORED.validate_python({kind: rows for kind, rows in json.loads(stored).items() if kind in _KINDS})


def dump_standing(standing: Standing) -> str:
    """Return the counts and first keys as JSON in ASCII."""
    return json.dumps({kind: asdict(rows) for kind, rows in standing.rows.items()})


def waits(kind: Waiting, scope_id: int, now: datetime | None, *, is_ignored: bool = False) -> sa.ColumnElement[bool]:
    """Return the SQL condition for a feed's entries that wait for this reason, or would if a person had not ignored them.

    `now`: events that are over by then do not wait.
    """
    is_meant: sa.ColumnElement[bool]
    if kind is Waiting.WARNING:
        is_warned = (_OTHER.c.scope_id == scope_id, _OTHER.c.row_key == _WARNED.c.row_key)
        found = sa.select(_OTHER.c.id).where(*is_warned, is_listed_warning(scope_id, _WARNED))
        is_meant = sa.and_(ENTRY.c.outcome.not_in([Outcome.IDLE, Outcome.MOVED, Outcome.REMOVED]), ~entries.IS_GONE)
    else:
        which = facts.those(lambda *of_entry: kind in facts.waits(*of_entry))
        found, is_meant = _find(scope_id, which), in_facts(which)
    return sa.and_(ENTRY.c.id.in_(found), is_meant, is_to_come(now), IS_SET_ASIDE if is_ignored else ~IS_SET_ASIDE)


def by_id(scope_id: int) -> sa.ColumnElement[bool]:
    """Return the condition that entries are a feed's, where they are found by their ids, or read in that order.

    As a sum, no database reads the index of all its entries for it.
    """
    return ENTRY.c.scope_id + 0 == scope_id


def _find(scope_id: int, which: Iterable[facts.Facts]) -> sa.Select[Any]:
    """Return the query for the ids of the entries that may have one of these combinations; indexes of few entries answer it."""
    outcomes = {outcome for outcome, _, observed in which if observed is Observed.SAME}
    kinds = {observed for outcome, _, observed in which if outcome not in outcomes}
    is_open = _OTHER.c.outcome != sa.literal_column(f"'{Outcome.CREATED}'")
    by_outcome = sa.select(_OTHER.c.id).where(_OTHER.c.scope_id == scope_id, _OTHER.c.outcome.in_(sorted(outcomes)), is_open)
    by_kind = sa.select(_SEEN.c.entry_id).where(_SEEN.c.scope_id == scope_id, _SEEN.c.kind.in_(sorted(kinds)))
    return sa.select(sa.union(by_outcome, by_kind).subquery().c.id)


def read_standing(
    connection: sa.Connection, scope_id: int, now: datetime | None, key_memory_s: float | None = None, run: int | None = None
) -> Standing:
    """Return what waits for a person.

    `key_memory_s`: for how many seconds the service remembers the key of an attempt; None: for ever. `run`: the run that
    `copies` is for, which names what it and killed runs before it have sent; None: it has sent nothing.
    """
    is_late = sa.false() if key_memory_s is None or now is None else is_forgotten(now, key_memory_s)
    is_listed = (is_to_come(now), ~IS_SET_ASIDE)
    found = _find(scope_id, facts.those(lambda *of_entry: bool(facts.waits(*of_entry))))
    of_entry = (ENTRY.c.outcome, TRIED.label("tried"), OBSERVED.label("observed"), is_late.label("is_late"))
    each = sa.select(*of_entry).where(ENTRY.c.id.in_(found), *is_listed).subquery()
    numbers, drifts, rows = Counter[tuple[Waiting, bool]](), Counter[DriftKind](), dict[str, OpenRows]()
    for row in connection.execute(sa.select(*each.c, sa.func.count().label("number")).group_by(*each.c)):
        for kind in facts.waits(Outcome(row.outcome), facts.Tried(row.tried), Observed(row.observed)):
            numbers[kind, kind is Waiting.UNCERTAIN and bool(row.is_late)] += row.number
            drifts.update({DriftKind(row.observed): row.number} if kind is Waiting.DRIFT else {})
    for (kind, is_old), count in numbers.items():
        of_age = is_late if is_old else ~is_late if kind is Waiting.UNCERTAIN else sa.true()
        first = sa.select(ENTRY.c.row_key).where(waits(kind, scope_id, now), of_age).order_by(ENTRY.c.id).limit(_NAMED)
        rows["forgotten" if is_old else kind.name.lower()] = OpenRows(count, tuple(connection.execute(first).scalars()))
    warned = sa.select(ENTRY.c.row_key).where(waits(Waiting.WARNING, scope_id, now)).order_by(ENTRY.c.id)
    reported = sa.select(sa.func.coalesce(sa.func.max(RUN.c.number), 0)).where(RUN.c.scope_id == scope_id, RUN.c.number != run)
    reported = reported.where(RUN.c.publish_account.is_not(None), RUN.c.exit_code.is_not(None))
    is_new = (_TRIED.c.requests > 0, _TRIED.c.run > reported.scalar_subquery())
    sent = ENTRY.c.id.in_(sa.select(_TRIED.c.entry_id).where(*is_new))
    several = sa.select(ENTRY.c.row_key, COPIES).where(by_id(scope_id), sent, COPIES > 1, *is_listed)
    several = several.order_by(COPIES.desc(), ENTRY.c.id)
    read = connection.execute(last_read(scope_id)).first()
    is_listed_now = (PROBLEM.c.scope_id == scope_id, PROBLEM.c.listed_run == (read.id if read else ""))
    is_fault = (PROBLEM.c.kind == ProblemKind.REJECTED.value, PROBLEM.c.reasons.contains(json.dumps(ReasonCode.INTERNAL_ERROR)))
    faults = sa.select(PROBLEM.c.row_key, PROBLEM.c.origin).where(*is_listed_now, *is_fault).order_by(PROBLEM.c.id)
    if "refused" not in rows:
        asked = 0
    elif read and read.is_whole:
        asked = load_read(read.read_account).wanted
    else:
        asked = entries.count_in_source(connection, scope_id, 2**62)
    return Standing(
        **rows,
        warning=OpenRows(*_first_of(connection, warned, lambda row: RowKey(row.row_key))),
        faults=OpenRows(*_first_of(connection, faults, lambda row: RowKey(row.row_key or shown_place(row.origin)))),
        drifts=drifts,
        asked=asked,
        copies=Copies(*_first_of(connection, several, lambda row: (row[0], row[1]))) if run is not None else Copies(),
    )


def _first_of(connection: sa.Connection, query: sa.Select[Any], name: Callable[[_Row], T]) -> tuple[int, tuple[T, ...]]:
    """Return how many rows a query has, and the names of the first three."""
    rows = connection.execute(query.add_columns(sa.func.count().over().label("number")).limit(_NAMED)).all()
    return (rows[0].number if rows else 0), tuple(map(name, rows))


@dataclass(frozen=True, slots=True)
class FeedScope:
    """One feed at one destination."""

    destination: str
    feed: FeedName


@dataclass(frozen=True, slots=True)
class OtherEntry:
    """An entry that another one refers to; `feed` and `namespace` are "" if they are the same."""

    row_key: RowKey
    feed: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        of_feed = f" of {self.feed}" if self.feed else ""
        return f"{self.row_key}{of_feed}" + (f" in namespace {self.namespace}" if self.namespace else "")


@dataclass(frozen=True, slots=True)
class RowRecord:
    """One ledger entry. `drift_body`: what the source asks for now, if that differs from `body`.

    `is_asked_for`: the source has not withdrawn it since it was refused. `copies`: how many events of it may exist if the
    service ignores idempotency keys. `is_denied`: the service has denied access under this key, and may repeat that for ever;
    `is_refused`: it has refused an attempt under this key.
    """

    entry_id: int
    row_key: RowKey
    state: EntryState
    key: IdempotencyKey
    revision: int
    body: bytes
    channel_id: int
    event_id: int | None
    attempts: int
    unanswered_at: datetime | None
    answer: Answer | None
    drift_body: bytes | None
    drift_kind: DriftKind | None
    vanished_at: datetime | None
    origin: str
    staged_run: str
    sent_run: str
    created_at: datetime
    updated_at: datetime
    decision: Decision | None = None
    decided_at: datetime | None = None
    decided_by: str = ""
    is_asked_for: bool = True
    copies: int = 0
    is_denied: bool = False
    is_refused: bool = False
    baseline_body: bytes | None = None
    """What the service shows according to a person, None if that is `body`."""
    ends_at: datetime | None = None
    past_at: datetime | None = None
    removed_at: datetime | None = None
    vanished_by: str = ""
    candidate_id: int | None = None
    candidate: OtherEntry | None = None
    """The entry that a held row resembles, or that has the event of a superseded one."""

    @property
    def is_set_aside(self) -> bool:
        """Whether a person has ignored it, so that it is on no list until its row changes."""
        return self.decision is Decision.IGNORE

    @property
    def shown(self) -> bytes:
        """The baseline: what the service shows as far as we know; `{}` if another row has the event."""
        return (self.body if self.baseline_body is None else self.baseline_body) or b"{}"

    @property
    def event(self) -> dict[str, Any]:
        """The baseline as a payload."""
        return dict(json.loads(self.shown))


RECORDS = (
    sa.select(
        *ENTRY.c,
        *(SCOPE.c.destination, SCOPE.c.feed, SCOPE.c.namespace, BODY.c.body, COPIES.label("copies")),
        *(column for column in ATTEMPT.c if column.name not in ("entry_id", "revision")),
        *(OBSERVATION.c.kind, OBSERVATION.c.body.label("asked_body"), OBSERVATION.c.candidate_id),
        *(OBSERVATION.c.rule, OBSERVATION.c.seen_at),
    )
    .select_from(entries.FACTS.join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id))
    .outerjoin(BODY, BODY.c.entry_id == ENTRY.c.id)
)
"""The query for the rows that `as_records` converts."""
# What few entries have is read beside their rows: PostgreSQL plans a join with all of it for longer than it runs.
_IS_CURRENT = sa.and_(DECISION.c.wish == entries.WISH, ~entries.IS_GONE_SINCE)
_DECIDED = sa.select(DECISION, _IS_CURRENT.label("is_current"))
_DECIDED = _DECIDED.join(ENTRY, ENTRY.c.id == DECISION.c.entry_id).where(SOME).order_by(DECISION.c.id)
_RUNS = sa.select(RUN.c.number, RUN.c.id).where(RUN.c.number.in_(sa.bindparam("runs", expanding=True)))
_OTHERS = sa.select(ENTRY.c.id, ENTRY.c.row_key, SCOPE.c.feed, SCOPE.c.namespace)
_OTHERS = _OTHERS.join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id).where(SOME)
_SAME = frozenset(each.name for each in fields(RowRecord)) & frozenset(RECORDS.selected_columns.keys())
_UNANSWERED = (Outcome.OWED, Outcome.REFUSED, Outcome.DENIED, Outcome.UNCLEAR, Outcome.CONFLICT)
_DRIFTS = {kind.value: kind for kind in DriftKind}
_USED_UP = {Decision.RETRY: Decision.RETRIED, Decision.RESEND: Decision.RESENT}


def as_records(connection: sa.Connection, rows: Iterable[_Row]) -> Iterator[RowRecord]:
    """Yield entries as records for people, in the order of their rows of `RECORDS`."""
    for page in in_pages(rows):
        last, removed_at = dict[int, _Row](), dict[int, datetime]()
        for decided in connection.execute(_DECIDED, {"entries": rounded([row.id for row in page])}):
            last[decided.entry_id] = decided
            if decided.option == Decision.REMOVED:
                removed_at[decided.entry_id] = decided.decided_at
        sent = {row.id: row.run if row.requests else row.sent_run for row in page}
        numbers = rounded([*sent.values(), *(row.staged_run for row in page)])
        runs: dict[int | None, str] = dict(map(tuple, connection.execute(_RUNS, {"runs": numbers})))
        moved = [row.id for row in page if row.outcome == Outcome.MOVED]
        takers = entries.find_takers(connection, moved) if moved else {}
        related = {row.id: other for row in page if (other := takers.get(row.id, row.candidate_id)) is not None}
        named = connection.execute(_OTHERS, {"entries": rounded(related.values())}) if related else ()
        others = {row.id: row for row in named}
        for row in page:
            yield _as_record(
                row,
                last.get(row.id),
                staged_run=runs.get(row.staged_run, ""),
                sent_run=runs.get(sent[row.id], ""),
                removed_at=removed_at.get(row.id) if row.outcome == Outcome.REMOVED else None,
                candidate_id=related.get(row.id),
                candidate=_named_beside(row, others[related[row.id]]) if row.id in related else None,
            )


def _named_beside(row: _Row, other: _Row) -> OtherEntry:
    feed, namespace = (
        "" if getattr(other, name) == getattr(row, name) else getattr(other, name) for name in ("feed", "namespace")
    )
    return OtherEntry(RowKey(other.row_key), feed, namespace)


def _as_record(row: _Row, last: _Row | None, **more: Any) -> RowRecord:
    outcome, attempts, drift = Outcome(row.outcome), entries.attempts_of(row), _DRIFTS.get(row.kind)
    decision = _decision_of(row, last, attempts)
    body, baseline = row.asked_body if outcome is Outcome.HELD else row.body, None
    if last is not None and decision is Decision.APPLIED:
        body, baseline = last.body, row.body
    more |= {"body": body or b"", "baseline_body": baseline, "answer": row.answer and load_answer(row.answer)}
    more |= {"decided_at": last.decided_at, "decided_by": last.decided_by} if last else {}
    return RowRecord(
        **{name: getattr(row, name) for name in _SAME} | more,
        entry_id=row.id,
        state=facts.state_of(outcome, attempts.tried, has_event_id=row.event_id is not None),
        key=entries.key_of(row),
        attempts=attempts.requests or int(outcome is not Outcome.OWED and row.answer is not None),
        unanswered_at=(row.since or (row.last_at if attempts.is_limited else None)) if outcome in _UNANSWERED else None,
        drift_body=row.asked_body if drift else None,
        drift_kind=drift,
        vanished_at=row.seen_at if row.kind == Observed.VANISHED else None,
        past_at=row.seen_at if row.kind == Observed.GONE else None,
        vanished_by=row.rule or "",
        updated_at=row.changed_at,
        decision=decision,
        is_asked_for=outcome is not Outcome.IDLE,
        is_denied=attempts.denied_id is not None,
        is_refused=attempts.refused_id is not None,
    )


def _decision_of(row: _Row, last: _Row | None, attempts: facts.Attempts) -> Decision | None:
    """Return the last decision if it is about what the source says now; the sending of a row again is used up by the next
    request.
    """
    if last is None or row.outcome == Outcome.MOVED or (last.option == Decision.IGNORE and not last.is_current):
        return None
    decision = Decision(last.option)
    is_new_key = last.outcome in (Outcome.CONFLICT, Outcome.USED, Outcome.REMOVED)
    is_due = is_new_key and row.outcome == Outcome.OWED and attempts.tried is facts.Tried.NO
    return decision if attempts.granted is not None or is_due else _USED_UP.get(decision, decision)


SEEKABLE = (EntryState.DELIVERED_UNCONFIRMED, EntryState.UNCERTAIN, EntryState.CONFLICT)
"""States of entries whose events may be found in the service's list."""


def read_reconcile_candidates(
    engine: sa.Engine, feed: FeedScope, now: datetime, key_memory_s: float
) -> Iterator[tuple[RowRecord, bool]]:
    """Yield the entries of a destination without an event id whose events may be in the service's list, and whether each is a
    rival.

    A rival is not searched for, but may own an event: a row of another feed, an ignored one, or one that the next run asks
    about itself. `key_memory_s`: an attempt unanswered for more seconds is searched for; the next run asks about a younger one
    with its key.
    """
    is_settled = entries.in_outcomes(lambda outcome, tried: facts.state_of(outcome, tried) in SEEKABLE)
    is_sought = sa.and_(SCOPE.c.feed == feed.feed, sa.or_(is_settled, is_forgotten(now, key_memory_s)), ~IS_SET_ASIDE)
    page = RECORDS.add_columns(is_sought.label("is_sought")).order_by(ENTRY.c.id).limit(500)
    outcomes = {outcome for outcome, *_ in facts.those(lambda outcome, tried, _: facts.has_event(outcome, tried))}
    is_open = sa.and_(ENTRY.c.outcome.in_(sorted(outcomes - {Outcome.CREATED})), IS_OPEN)
    page = page.where(SCOPE.c.destination == feed.destination, is_open, entries.MAY_HAVE_EVENT)
    after: int | None = 0
    while after is not None:
        with reading(engine) as connection:
            rows = connection.execute(page.where(ENTRY.c.id > after)).all()
            records = list(as_records(connection, rows))
        yield from ((record, not row.is_sought) for record, row in zip(records, rows, strict=True))
        after = rows[-1].id if rows else None
