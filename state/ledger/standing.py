"""What waits for a person: the rules of `state.facts` as SQL, the counts that every run records, and records for people.

Ignored entries and events that are over are on no list.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Engine,
    Row,
    Select,
    and_,
    case,
    false,
    func,
    literal_column,
    or_,
    select,
    union,
)

from mappings.delivery import Answer
from mappings.outcome import shown_place
from mappings.reasons import ReasonCode
from mappings.row_key import FeedName, IdempotencyKey, RowKey
from state import facts
from state.database import reading
from state.enums import Decision, DriftKind, EntryState, Observed, Outcome, ProblemKind, Waiting
from state.ledger.accounts import load_answer, load_read
from state.ledger.entries import (
    FACTS,
    IS_GONE,
    IS_IGNORED,
    IS_OPEN,
    OBSERVED,
    TRIED,
    attempts_of,
    count_entries,
    count_in_source,
    in_facts,
    is_forgotten,
    is_to_come,
    key_of,
)
from state.tables import ATTEMPT, BODY, DECISION, ENTRY, OBSERVATION, PROBLEM, RUN, SCOPE

KEY_MEMORY_S = 86_400.0
_NAMED = 3
_OTHER, _SEEN, _TRIED = ENTRY.alias(), OBSERVATION.alias(), ATTEMPT.alias()
_IS_WARNED = and_(ENTRY.c.outcome.not_in([Outcome.IDLE, Outcome.MOVED, Outcome.REMOVED]), ~IS_GONE)
_IS_REMOVAL = DECISION.c.option == Decision.REMOVED.value
_REMOVED_KEY = (
    select(func.max(DECISION.c.revision))
    .where(DECISION.c.entry_id == _TRIED.c.entry_id, DECISION.c.revision < ENTRY.c.revision, _IS_REMOVAL)
    .correlate(_TRIED, ENTRY)
    .scalar_subquery()
)
_REQUESTS = (
    select(func.coalesce(func.sum(_TRIED.c.requests), 0))
    .where(_TRIED.c.entry_id == ENTRY.c.id, _TRIED.c.revision > func.coalesce(_REMOVED_KEY, -1))
    .scalar_subquery()
)
_IGNORED = select(DECISION.c.entry_id).where(DECISION.c.option == Decision.IGNORE.value)
IS_SET_ASIDE = and_(ENTRY.c.id.in_(_IGNORED), IS_IGNORED)
"""As `IS_IGNORED`, but only the few entries with such a decision are looked at."""
COPIES = case((and_(ENTRY.c.event_id.is_not(None), _REQUESTS == 0), 1), else_=_REQUESTS)
"""How many events of an entry may exist if the service ignores idempotency keys. Once a row is sent again after its event was
removed by hand, that one does not count.
"""
IS_RESENT = and_(ENTRY.c.id.in_(select(_TRIED.c.entry_id).where(_TRIED.c.requests > 0)), COPIES > 1)
"""An entry may have several events."""


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
    """Rows that may have several events if the service ignores idempotency keys, over all runs.

    `first`: the three with the most, each with that number.
    """

    count: int = 0
    first: tuple[tuple[RowKey, int], ...] = ()

    def __str__(self) -> str:
        named = ", ".join(f"row {row_key} may exist up to {copies:,} times" for row_key, copies in self.first)
        more = self.count - len(self.first)
        return f"{named} and {more:,} more row{'s' * (more > 1)} more than once" if more else named


@dataclass(frozen=True, slots=True)
class Standing:
    """All entries of a feed that wait for a person, read in this run or not.

    `uncertain`: the next run sends them again; `forgotten`: uncertain, and too old for that without a person's decision.
    `faults`: rejected because of a bug in eventsync. `drifts`: the drift by kind. `asked`: how many events the source asks for
    now, 0 if nothing is refused. `copies`: rows that may exist more than once; no row waits for that reason alone.
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


def waits(kind: Waiting, scope_id: int, now: datetime | None, *, is_ignored: bool = False) -> ColumnElement[bool]:
    """Return the SQL condition on `FACTS` for a feed's entries that wait for this reason, or would if a person had not ignored
    them.

    `now`: events that are over by then do not wait.
    """
    of_feed = (is_to_come(now), IS_SET_ASIDE if is_ignored else ~IS_SET_ASIDE)
    if kind is Waiting.WARNING:
        return and_(
            ENTRY.c.scope_id == scope_id,
            *of_feed,
            ENTRY.c.row_key.in_(select(PROBLEM.c.row_key).where(_is_listed_warning(scope_id))),
            _IS_WARNED,
        )
    which = facts.those(lambda *of_entry: kind in facts.waits(*of_entry))
    return and_(by_id(scope_id), *of_feed, ENTRY.c.id.in_(_found(scope_id, which)), in_facts(which))


def by_id(scope_id: int) -> ColumnElement[bool]:
    """Return the condition that entries are a feed's, where they are found by their ids, or read in that order.

    As a sum, no database reads the index of all its entries for it.
    """
    return ENTRY.c.scope_id + 0 == scope_id


def _found(scope_id: int, which: Iterable[facts.Facts]) -> Select[Any] | CompoundSelect[Any]:
    """Return the query for the ids of the entries that may have one of these combinations; indexes of few entries answer it."""
    outcomes = {outcome for outcome, _, observed in which if observed is Observed.SAME}
    kinds = {observed for outcome, _, observed in which if outcome not in outcomes}
    by_outcome = select(_OTHER.c.id).where(_OTHER.c.scope_id == scope_id, _OTHER.c.outcome.in_(sorted(outcomes)))
    by_outcome = by_outcome.where(_OTHER.c.outcome != literal_column(f"'{Outcome.CREATED}'"))
    by_kind = select(_SEEN.c.entry_id).where(_SEEN.c.scope_id == scope_id, _SEEN.c.kind.in_(sorted(kinds)))
    return by_outcome if not kinds else by_kind if not outcomes else union(by_outcome, by_kind)


def has_warning(scope_id: int, now: datetime | None) -> ColumnElement[bool]:
    """Return the SQL condition for problem rows that are warnings of waiting entries."""
    of_entry = (ENTRY.c.scope_id == scope_id, ENTRY.c.row_key == PROBLEM.c.row_key)
    warned = select(ENTRY.c.id).select_from(FACTS).where(*of_entry, _IS_WARNED, is_to_come(now), ~IS_SET_ASIDE)
    return and_(_is_listed_warning(scope_id), warned.exists())


def read_standing(connection: Connection, scope_id: int, now: datetime | None, key_memory_s: float | None = None) -> Standing:
    """Return what waits for a person.

    `key_memory_s`: for how many seconds the service remembers the key of an attempt; None: for ever.
    """
    is_late = false() if key_memory_s is None or now is None else is_forgotten(now, key_memory_s)
    numbers, drifts = _count(connection, scope_id, now, is_late)

    def of(kind: Waiting, name: str, *more: ColumnElement[bool]) -> OpenRows:
        first = select(ENTRY.c.row_key).select_from(FACTS).where(waits(kind, scope_id, now), *more)
        first = first.order_by(ENTRY.c.id).limit(_NAMED)
        return OpenRows(numbers[name], tuple(connection.execute(first).scalars())) if numbers[name] else _NONE

    several = (by_id(scope_id), IS_RESENT, ENTRY.c.outcome != Outcome.REMOVED, is_to_come(now), ~IS_SET_ASIDE)
    most = select(ENTRY.c.row_key, COPIES).select_from(FACTS).where(*several).order_by(COPIES.desc(), ENTRY.c.id).limit(_NAMED)
    return Standing(
        **{kind.name.lower(): of(kind, kind.name.lower()) for kind in Waiting if kind is not Waiting.UNCERTAIN},
        uncertain=of(Waiting.UNCERTAIN, "uncertain", ~is_late),
        forgotten=of(Waiting.UNCERTAIN, "forgotten", is_late),
        faults=_faults(connection, scope_id),
        drifts=drifts,
        asked=_count_wanted(connection, scope_id) if numbers["refused"] else 0,
        copies=Copies(count_entries(connection, *several), tuple(map(tuple, connection.execute(most)))),
    )


def _count(
    connection: Connection, scope_id: int, now: datetime | None, is_late: ColumnElement[bool]
) -> tuple[Counter[str], Counter[DriftKind]]:
    """Count the waiting entries by the fields of `Standing`, and those with drift by its kind."""
    of_feed = (
        ENTRY.c.id.in_(_found(scope_id, facts.those(lambda *of_entry: bool(facts.waits(*of_entry))))),
        is_to_come(now),
        ~IS_SET_ASIDE,
    )
    combined = select(ENTRY.c.outcome, TRIED.label("tried"), OBSERVED.label("observed"), is_late.label("is_late"))
    each = combined.select_from(FACTS).where(*of_feed).subquery()
    numbers, drifts = Counter[str](), Counter[DriftKind]()
    for *of_entry, is_forgotten_, count in connection.execute(select(*each.c, func.count()).group_by(*each.c)):
        outcome, tried, observed = of_entry
        for kind in facts.waits(Outcome(outcome), facts.Tried(tried), Observed(observed)):
            numbers["forgotten" if kind is Waiting.UNCERTAIN and is_forgotten_ else kind.name.lower()] += count
            if kind is Waiting.DRIFT:
                drifts[DriftKind(observed)] += count
    numbers["warning"] = count_entries(connection, waits(Waiting.WARNING, scope_id, now))
    return numbers, drifts


def _faults(connection: Connection, scope_id: int) -> OpenRows:
    """Return the rows of the last read that a bug in eventsync rejected."""
    reads = select(RUN.c.id).where(RUN.c.scope_id == scope_id, RUN.c.read_account.is_not(None))
    last = reads.order_by(RUN.c.started_at.desc(), RUN.c.id).limit(1).scalar_subquery()
    is_listed = and_(PROBLEM.c.scope_id == scope_id, PROBLEM.c.listed_run == last, PROBLEM.c.kind == ProblemKind.REJECTED.value)
    is_fault = PROBLEM.c.reasons.contains(json.dumps(ReasonCode.INTERNAL_ERROR))
    rows = connection.execute(select(PROBLEM.c.row_key, PROBLEM.c.origin).where(is_listed, is_fault).order_by(PROBLEM.c.id)).all()
    return OpenRows(len(rows), tuple(RowKey(row.row_key or shown_place(row.origin)) for row in rows[:_NAMED]))


def _is_listed_warning(scope_id: int) -> ColumnElement[bool]:
    return and_(PROBLEM.c.scope_id == scope_id, PROBLEM.c.kind == ProblemKind.WARNING.value, PROBLEM.c.listed_run != "")


def _count_wanted(connection: Connection, scope_id: int) -> int:
    """Count the events that the source asks for: those of the last read if it was full, else the known ones."""
    reads = select(RUN.c.is_whole, RUN.c.read_account).where(RUN.c.scope_id == scope_id, RUN.c.read_account.is_not(None))
    last = connection.execute(reads.order_by(RUN.c.started_at.desc(), RUN.c.id).limit(1)).first()
    if last is not None and last.is_whole:
        return load_read(last.read_account).wanted
    return count_in_source(connection, scope_id, 2**62)


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


_LAST = DECISION.alias()
_NUMBER_OF_LAST = select(func.max(DECISION.c.id)).where(DECISION.c.entry_id == ENTRY.c.id).scalar_subquery()
_IS_TAKEN = (DECISION.c.other_id == ENTRY.c.id, DECISION.c.option == Decision.SAME_AS.value)
_TAKER = select(func.max(DECISION.c.entry_id)).where(*_IS_TAKEN).scalar_subquery()
_SENT_RUN = func.coalesce(case((ATTEMPT.c.requests > 0, ATTEMPT.c.run)), ENTRY.c.sent_run)
_REMOVED_AT = select(func.max(DECISION.c.decided_at)).where(DECISION.c.entry_id == ENTRY.c.id, _IS_REMOVAL).scalar_subquery()


def _run_id(number: ColumnElement[int]) -> ColumnElement[str]:
    """Return the id of a run by its number, "" if it was pruned."""
    return func.coalesce(select(RUN.c.id).where(RUN.c.number == number).scalar_subquery(), "")


RECORDS = (
    select(
        *(column for column in ENTRY.c if column.name not in ("staged_run", "sent_run")),
        *(_run_id(ENTRY.c.staged_run).label("staged_run"), _run_id(_SENT_RUN).label("sent_run")),
        *(SCOPE.c.destination, SCOPE.c.feed, SCOPE.c.namespace),
        BODY.c.body,
        *(column for column in ATTEMPT.c if column.name not in ("entry_id", "revision", "run")),
        COPIES.label("copies"),
        *(OBSERVATION.c.kind, OBSERVATION.c.body.label("asked_body"), OBSERVATION.c.rule, OBSERVATION.c.seen_at),
        case((ENTRY.c.outcome == Outcome.MOVED, _TAKER), else_=OBSERVATION.c.candidate_id).label("candidate_id"),
        *(_LAST.c.option, _LAST.c.decided_at, _LAST.c.decided_by, _LAST.c.outcome.label("decided_on")),
        *(_LAST.c.body.label("replaced_body"), IS_IGNORED.label("is_ignored"), _REMOVED_AT.label("removed_at")),
    )
    .select_from(FACTS.join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id))
    .outerjoin(BODY, BODY.c.entry_id == ENTRY.c.id)
    .outerjoin(_LAST, _LAST.c.id == _NUMBER_OF_LAST)
)
"""The query for the rows that `as_record` converts, with `destination`, `feed` and `namespace`."""
_SAME = frozenset(each.name for each in fields(RowRecord)) & frozenset(RECORDS.selected_columns.keys())
_UNANSWERED = (Outcome.OWED, Outcome.REFUSED, Outcome.DENIED, Outcome.UNCLEAR, Outcome.CONFLICT)
_DRIFTS = {kind.value: kind for kind in DriftKind}
_USED_UP = {Decision.RETRY: Decision.RETRIED, Decision.RESEND: Decision.RESENT}


def as_record(row: Row[*tuple[Any, ...]]) -> RowRecord:
    """Return an entry as a record for people."""
    outcome, attempts, drift = Outcome(row.outcome), attempts_of(row), _DRIFTS.get(row.kind)
    decision = _decision_of(row, attempts)
    is_applied = decision is Decision.APPLIED
    is_answered = outcome is not Outcome.OWED and row.answer is not None
    return RowRecord(
        **{name: getattr(row, name) for name in _SAME}
        | {
            "body": (row.replaced_body if is_applied else row.asked_body if outcome is Outcome.HELD else row.body) or b"",
            "answer": row.answer and load_answer(row.answer),
            "decided_by": row.decided_by or "",
            "removed_at": row.removed_at if outcome is Outcome.REMOVED else None,
        },
        entry_id=row.id,
        state=facts.state_of(outcome, attempts.tried, has_event_id=row.event_id is not None),
        key=key_of(row),
        attempts=max(attempts.requests, int(is_answered)),
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
        baseline_body=row.body if is_applied else None,
    )


def _decision_of(row: Row[*tuple[Any, ...]], attempts: facts.Attempts) -> Decision | None:
    """Return the last decision if it is about what the source says now; the sending of a row again is used up by the next
    request.
    """
    if row.option is None or row.outcome == Outcome.MOVED or (row.option == Decision.IGNORE and not row.is_ignored):
        return None
    decision = Decision(row.option)
    is_new_key = row.decided_on in (Outcome.CONFLICT, Outcome.USED, Outcome.REMOVED)
    is_due = is_new_key and row.outcome == Outcome.OWED and attempts.tried is facts.Tried.NO
    return decision if attempts.granted is not None or is_due else _USED_UP.get(decision, decision)


SEEKABLE = (EntryState.DELIVERED_UNCONFIRMED, EntryState.UNCERTAIN, EntryState.CONFLICT)
"""States of entries whose events may be found in the service's list."""


def read_reconcile_candidates(
    engine: Engine, feed: FeedScope, now: datetime, key_memory_s: float
) -> Iterator[tuple[RowRecord, bool]]:
    """Yield the entries of a destination without an event id whose events may be in the service's list, and whether each is a
    rival.

    A rival is not searched for, but may own an event: a row of another feed, an ignored one, or one that the next run asks
    about itself. `key_memory_s`: an attempt unanswered for more seconds is searched for; the next run asks about a younger one
    with its key.
    """
    unknown = facts.those(lambda outcome, tried, _: outcome is not Outcome.CREATED and facts.has_event(outcome, tried))
    settled = facts.those(lambda outcome, tried, _: facts.state_of(outcome, tried) in SEEKABLE)
    is_rival = ~and_(SCOPE.c.feed == feed.feed, or_(in_facts(settled), is_forgotten(now, key_memory_s)), ~IS_SET_ASIDE)
    page = RECORDS.add_columns(is_rival.label("is_rival")).order_by(ENTRY.c.id).limit(500)
    is_open = and_(ENTRY.c.outcome.in_({outcome for outcome, *_ in unknown}), IS_OPEN)
    page = page.where(SCOPE.c.destination == feed.destination, is_open, in_facts(unknown))
    after = 0
    while True:
        with reading(engine) as connection:
            rows = connection.execute(page.where(ENTRY.c.id > after)).all()
        if not rows:
            return
        yield from ((as_record(row), bool(row.is_rival)) for row in rows)
        after = rows[-1].id
