"""Read-only queries of the ledger for people: feeds, runs, entries, problems, as plain records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from mappings.reasons import Reason
from mappings.row_key import FeedName, IdempotencyKey, RowKey
from state import facts
from state.backfills import count_slices_left
from state.database import reading
from state.enums import DriftKind, EntryState, Outcome, Phase, ProblemKind, Waiting
from state.ledger import standing
from state.ledger.accounts import PublishAccount, ReadAccount, StageReport, load_publish, load_read, load_reasons, load_report
from state.ledger.entries import IS_OPEN, TRIED, count_entries, find_owners, in_outcomes, key_of
from state.ledger.gate import Gate, read_gate
from state.ledger.lease import Holder, LeaseClock, is_at_work, is_running, server_now
from state.ledger.problems import last_read
from state.ledger.standing import FeedScope, OtherEntry, RowRecord
from state.tables import BODY, ENTRY, LEASE, PROBLEM, RUN, SCOPE


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The holder of the lease of a feed. If `expires_at` is past, or `is_gone` (its process ended on this host), the next run
    takes over.
    """

    name: str
    host: str
    pid: int
    acquired_at: datetime
    expires_at: datetime
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The record of one run; steps that it did not reach are None. `notices`: messages about the service as a whole.

    `pace`: its speed, in numbers; empty if it sent nothing.
    """

    book: FeedScope
    run_id: str
    started_at: datetime
    finished_at: datetime | None
    launched_by: str
    dagster_run_id: str | None
    phase: Phase
    outcome: str | None
    exit_code: int | None
    message: str
    read: ReadAccount | None
    stage_report: StageReport | None
    publish: PublishAccount | None
    brakes: tuple[str, ...]
    notices: tuple[str, ...] = ()
    pace: Mapping[str, float] = field(default_factory=dict)
    standing: Mapping[Waiting, standing.OpenRows] | None = None
    """What waited for a person at its end; None for runs of earlier versions."""


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """The status of one feed. `counts`: entries by state. Of the drift that waits for a person (`drifted`), `to_publish` are
    drafts that the source calls published, `cancelled` cancelled events, `returned` rows whose events were removed. `waiting`:
    what waits for a person, by the names of `rows --state`; `set_aside`: what a person has ignored, also in `counts`.
    `last_read`: the last run that read the source. `slices_left`: of open backfills.
    """

    book: FeedScope
    counts: Mapping[EntryState, int]
    drifted: int
    to_publish: int
    vanished: int
    gate: Gate
    lease: LeaseHolder | None
    last_whole_read: int | None
    last_run: RunRecord | None
    waiting: Mapping[str, int] = field(default_factory=dict)
    set_aside: int = 0
    last_read: RunRecord | None = None
    cancelled: int = 0
    slices_left: int = 0
    returned: int = 0


@dataclass(frozen=True, slots=True)
class ProblemRecord:
    """One row that people must see, with its raw cells; `run_id`: the last run that met it.

    `event_id`: the event of an earlier version of the row, which is online; `candidate`: the entry that a held row resembles.
    """

    problem_id: int
    kind: ProblemKind
    row_key: RowKey
    origin: str
    reasons: tuple[Reason, ...]
    cells: Mapping[str, str]
    run_id: str
    first_seen_at: datetime
    seen_at: datetime
    event_id: int | None
    candidate: OtherEntry | None


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A filter of entries: `states` (empty: any); `row_key`: the entry's key; `is_resent`: resent ones only; `name`: the
    idempotency key of an entry, or the id of its event. An idempotency key cannot be inverted: those of all entries are derived.

    `waiting`: those that wait for a person for this reason; `is_ignored`: ignored ones, together with `waiting` those that
    would wait; `is_kept`: without those whose events were removed by hand.
    """

    states: frozenset[EntryState] = field(default_factory=frozenset)
    row_key: RowKey | None = None
    is_resent: bool = False
    is_ignored: bool = False
    is_kept: bool = False
    waiting: Waiting | None = None
    name: IdempotencyKey | int | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """What is delivered of a feed. `version`: a digest of the ids and payloads of all its events; `event_ids`: the lowest of the
    events that one run delivered.
    """

    version: str
    event_ids: tuple[int, ...]


_Row = sa.Row[*tuple[Any, ...]]
_PAGE = 500
_NEWER = PROBLEM.alias()
_DETAILED = (Outcome.REFUSED.value, Outcome.REMOVED.value)
"""Outcomes whose state depends on more."""
_PLACES = sa.select(ENTRY.c.row_key, ENTRY.c.origin).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
_DELIVERED = (ENTRY.c.event_id.is_not(None), ENTRY.c.outcome == Outcome.CREATED.value)
_EVENTS = sa.select(ENTRY.c.event_id, ENTRY.c.fingerprint, ENTRY.c.sent_run).where(*_DELIVERED).order_by(ENTRY.c.event_id)
_RUNS = sa.select(RUN, SCOPE.c.destination, SCOPE.c.feed).join(SCOPE, SCOPE.c.id == RUN.c.scope_id)


@dataclass(frozen=True, slots=True)
class LedgerQueries:
    """Queries over all feeds of a state DB. Pages are sorted by age: pass the last record's id as `after` for the next page.

    `now`: the clock by which past events do not wait for a person; without it, none is past.
    """

    engine: sa.Engine
    now: Callable[[], datetime] | None = None

    def known(self, *, destination: str | None = None, feed: FeedName | None = None) -> tuple[FeedScope, ...]:
        """Return all feeds, by destination and name, without counting their entries."""
        scopes = sa.select(SCOPE.c.destination, SCOPE.c.feed).order_by(SCOPE.c.destination, SCOPE.c.feed)
        with reading(self.engine) as connection:
            return tuple(FeedScope(*scope) for scope in connection.execute(_of(scopes, destination, feed)))

    def status(self, *, destination: str | None = None, feed: FeedName | None = None) -> tuple[FeedStatus, ...]:
        """Return the status of each feed, by destination and name."""
        scopes = _of(sa.select(SCOPE), destination, feed).order_by(SCOPE.c.destination, SCOPE.c.feed)
        with reading(self.engine) as connection:
            return tuple(_status(connection, scope, self._now()) for scope in connection.execute(scopes).all())

    def run(self, destination: str, feed: FeedName, run_id: str) -> RunRecord | None:
        """Return one run, None if it has no record."""
        with reading(self.engine) as connection:
            row = connection.execute(_of(_RUNS, destination, feed).where(RUN.c.id == run_id)).first()
            return _run(row) if row else None

    def runs(self, *, destination: str | None = None, feed: FeedName | None = None, limit: int = 20) -> tuple[RunRecord, ...]:
        """Return the latest runs, newest first."""
        runs = _of(_RUNS, destination, feed).order_by(RUN.c.started_at.desc(), RUN.c.id).limit(limit)
        with reading(self.engine) as connection:
            return tuple(map(_run, connection.execute(runs)))

    def rows(self, book: FeedScope, which: RowFilter, *, after: int = 0, limit: int = _PAGE) -> tuple[RowRecord, ...]:
        """Return one page of a feed's entries, oldest first."""
        with reading(self.engine) as connection:
            scope_id = _scope_id(connection, book)
            page = standing.RECORDS.where(*_filtered(connection, which, scope_id, self._now()), ENTRY.c.id > after)
            found = connection.execute(page.order_by(ENTRY.c.id).limit(limit)).all()
            return tuple(standing.as_records(connection, found))

    def count(self, book: FeedScope, which: RowFilter) -> int:
        """Count a feed's entries."""
        with reading(self.engine) as connection:
            scope_id = _scope_id(connection, book)
            return count_entries(connection, *_filtered(connection, which, scope_id, self._now()))

    def every_row(self, book: FeedScope, which: RowFilter) -> Iterator[RowRecord]:
        """Yield all of a feed's entries that match, oldest first, however many there are."""
        page = self.rows(book, which)
        yield from page
        while len(page) == _PAGE:
            page = self.rows(book, which, after=page[-1].entry_id)
            yield from page

    def problems(
        self, book: FeedScope, kind: ProblemKind, *, run_id: str | None = None, after: int = 0, limit: int = _PAGE
    ) -> tuple[ProblemRecord, ...]:
        """Return one page of the rows that people must see, as listed by a run; without `run_id`, by the last that staged.

        The list of a run that read only a part of the source includes what earlier runs listed. Held rows and warnings are
        listed in all runs while their entries wait.
        """
        with reading(self.engine) as connection:
            scope_id = _scope_id(connection, book)
            run = str(connection.execute(last_read(scope_id)).scalar() or "") if run_id is None else run_id
            page = sa.select(PROBLEM).where(*_listed(kind, scope_id, run, self._now()), PROBLEM.c.id > after)
            rows = connection.execute(page.order_by(PROBLEM.c.id).limit(limit)).all()
            is_named = (ENTRY.c.scope_id == scope_id, ENTRY.c.row_key.in_({row.row_key for row in rows if row.row_key}))
            named = connection.execute(standing.RECORDS.where(*is_named)).all()
            records = {record.row_key: record for record in standing.as_records(connection, named)}
        return tuple(_problem(row, records.get(row.row_key)) for row in rows)

    def every_problem(self, book: FeedScope, kind: ProblemKind, *, run_id: str | None = None) -> Iterator[ProblemRecord]:
        """Yield all problems of one kind, however many there are."""
        after = 0
        while page := self.problems(book, kind, run_id=run_id, after=after):
            yield from page
            after = page[-1].problem_id

    def owners(self, destination: str, event_ids: Collection[int]) -> dict[int, str]:
        """Return the owner of each of these event ids that belongs to a row already, as text with row and feed."""
        with reading(self.engine) as connection:
            return find_owners(connection, destination, event_ids)

    def first_met(self, problems: Collection[ProblemRecord], *, is_same: bool = True) -> dict[int, datetime]:
        """Return since when each of these problems has been listed, by its id, wherever its row was.

        `is_same` False: since when its row has had any problem.
        """
        named, names = PROBLEM.alias(), ("scope_id", "row_key", *(("kind", "reasons") if is_same else ()))
        same = (named.c[name] == PROBLEM.c[name] for name in names)
        first = sa.select(named.c.id, sa.func.min(PROBLEM.c.first_seen_at)).join(PROBLEM, sa.and_(*same)).group_by(named.c.id)
        first = first.where(named.c.id.in_([one.problem_id for one in problems]), PROBLEM.c.row_key != "")
        with reading(self.engine) as connection:
            return {one.problem_id: one.first_seen_at for one in problems} | dict(map(tuple, connection.execute(first)))

    def delivered(self, book: FeedScope, run_id: str, limit: int) -> Delivered:
        """Return the version of what is delivered of a feed, and the ids of the events that a run delivered, at most `limit`."""
        digest, ids = hashlib.blake2b(digest_size=8), list[int]()
        with reading(self.engine) as connection:
            scope_id = _scope_id(connection, book)
            number = connection.execute(sa.select(RUN.c.number).where(RUN.c.scope_id == scope_id, RUN.c.id == run_id)).scalar()
            events = _EVENTS.where(ENTRY.c.scope_id == scope_id)
            for page in connection.execution_options(yield_per=_PAGE).execute(events).partitions():
                event_ids, fingerprints, runs = zip(*page, strict=True)
                digest.update(f"{event_ids} {fingerprints}".encode())
                ids += [one for one, run in zip(event_ids, runs, strict=True) if run == number][: limit - len(ids)]
        return Delivered(digest.hexdigest(), tuple(ids))

    def drafts(self, book: FeedScope, run_id: str) -> int:
        """Count the events that a run was the last to deliver, as drafts."""
        runs = sa.select(RUN.c.number).where(RUN.c.scope_id == SCOPE.c.id, RUN.c.id == run_id)
        bodies = sa.select(BODY.c.body).join(ENTRY, ENTRY.c.id == BODY.c.entry_id).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
        bodies = bodies.where(*_DELIVERED, ENTRY.c.sent_run.in_(runs))
        bodies = _of(bodies, book.destination, book.feed)
        with reading(self.engine) as connection:
            streamed = connection.execution_options(yield_per=_PAGE).execute(bodies)
            return sum(json.loads(body).get("status") == "draft" for body in streamed.scalars())

    def places(self, book: FeedScope) -> Iterator[tuple[RowKey, str]]:
        """Yield the keys of all rows in the feed's ledger, each with the place where it was last read."""
        with reading(self.engine) as connection:
            streamed = connection.execution_options(yield_per=_PAGE)
            yield from map(tuple, streamed.execute(_of(_PLACES, book.destination, book.feed)))

    def _now(self) -> datetime | None:
        return self.now and self.now()


def _listed(kind: ProblemKind, scope_id: int, run_id: str, now: datetime | None) -> Iterator[sa.ColumnElement[bool]]:
    yield PROBLEM.c.scope_id == scope_id
    yield PROBLEM.c.kind == kind.value
    if kind is ProblemKind.REJECTED:
        yield PROBLEM.c.listed_run == run_id
        return
    yield PROBLEM.c.row_key.in_(sa.select(ENTRY.c.row_key).where(standing.waits(Waiting(kind.value), scope_id, now)))
    if kind is ProblemKind.WARNING:
        yield PROBLEM.c.listed_run != ""
    else:
        same = (_NEWER.c.scope_id == scope_id, _NEWER.c.kind == kind.value, _NEWER.c.row_key == PROBLEM.c.row_key)
        is_newer = sa.tuple_(_NEWER.c.seen_at, _NEWER.c.id) > sa.tuple_(PROBLEM.c.seen_at, PROBLEM.c.id)
        yield ~sa.exists().where(*same, is_newer)


def _of(query: sa.Select[Any], destination: str | None, feed: FeedName | None) -> sa.Select[Any]:
    if destination is not None:
        query = query.where(SCOPE.c.destination == destination)
    return query if feed is None else query.where(SCOPE.c.feed == feed)


def _scope_id(connection: sa.Connection, book: FeedScope) -> int:
    """Return the id of the feed's scope, 0 (which no scope has) if it was never run."""
    ours = (SCOPE.c.destination == book.destination, SCOPE.c.feed == book.feed)
    return int(connection.execute(sa.select(SCOPE.c.id).where(*ours)).scalar() or 0)


def _filtered(
    connection: sa.Connection, which: RowFilter, scope_id: int, now: datetime | None
) -> Iterator[sa.ColumnElement[bool]]:
    """Yield the conditions of a filter on entries."""
    is_open = bool(which.states) and EntryState.DELIVERED not in which.states
    has_index = is_open or which.row_key is not None or isinstance(which.name, int)
    yield ENTRY.c.scope_id == scope_id if has_index else standing.by_id(scope_id)
    if which.states:
        yield sa.and_(IS_OPEN if is_open else sa.true(), _has_state(which.states))
    if which.row_key is not None:
        yield ENTRY.c.row_key == which.row_key
    if isinstance(which.name, int):
        yield ENTRY.c.event_id == which.name
    elif which.name is not None:
        yield ENTRY.c.id == _entry_of(connection, scope_id, which.name)
    if which.waiting is not None:
        yield standing.waits(which.waiting, scope_id, now, is_ignored=which.is_ignored)
    elif which.is_ignored:
        yield standing.IS_SET_ASIDE
    if which.is_resent:
        yield standing.IS_RESENT
    if which.is_kept:
        yield ENTRY.c.outcome != Outcome.REMOVED.value


def _has_state(states: Collection[EntryState]) -> sa.ColumnElement[bool]:
    """Return the condition for entries in one of these states."""

    def is_meant(outcome: Outcome, tried: facts.Tried, *, has_event_id: bool) -> bool:
        return facts.state_of(outcome, tried, has_event_id=has_event_id) in states

    with_id, without = (partial(is_meant, has_event_id=has_event_id) for has_event_id in (True, False))
    outcomes = {outcome for outcome, tried, _ in facts.combinations() if with_id(outcome, tried) or without(outcome, tried)}
    details = sa.case((ENTRY.c.event_id.is_(None), in_outcomes(without)), else_=in_outcomes(with_id))
    return sa.and_(ENTRY.c.outcome.in_(sorted(outcomes)), details)


def _entry_of(connection: sa.Connection, scope_id: int, key: IdempotencyKey) -> int:
    """Return the id of the entry with an idempotency key, 0 without one. The keys of the feed's entries are derived in turn."""
    entries = sa.select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.revision, SCOPE.c.namespace, SCOPE.c.feed)
    entries = entries.join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id).where(ENTRY.c.scope_id == scope_id)
    with connection.execute(entries, execution_options={"yield_per": _PAGE}) as found:
        return next((row.id for row in found if key_of(row) == key), 0)


def _status(connection: sa.Connection, scope: _Row, now: datetime | None) -> FeedStatus:
    waiting = standing.read_standing(connection, scope.id, now)
    last = _RUNS.where(RUN.c.scope_id == scope.id).order_by(RUN.c.started_at.desc(), RUN.c.id).limit(1)
    rows = (connection.execute(one).first() for one in (last, last.where(RUN.c.read_account.is_not(None))))
    run, read = (_run(row) if row else None for row in rows)
    return FeedStatus(
        book=FeedScope(scope.destination, FeedName(scope.feed)),
        counts=_count_states(connection, scope.id),
        drifted=waiting.drift.count,
        to_publish=waiting.drifts.get(DriftKind.TO_PUBLISH, 0),
        vanished=waiting.vanished.count,
        gate=read_gate(connection, scope.id),
        lease=_holder(connection, scope.id),
        last_whole_read=scope.last_whole_read,
        last_run=run,
        waiting=_rejected(connection, scope.id, read, now) | waiting.counts,
        set_aside=count_entries(connection, standing.by_id(scope.id), standing.IS_SET_ASIDE),
        last_read=read,
        cancelled=waiting.drifts.get(DriftKind.CANCELLED, 0),
        slices_left=count_slices_left(connection, scope.destination, FeedName(scope.feed)),
        returned=waiting.drifts.get(DriftKind.RETURNED, 0),
    )


def _count_states(connection: sa.Connection, scope_id: int) -> dict[EntryState, int]:
    """Count a feed's entries by state. Only those refused or removed are read; indexes have the number of the others."""
    counts, of_feed, is_detailed = dict.fromkeys(EntryState, 0), ENTRY.c.scope_id == scope_id, ENTRY.c.outcome.in_(_DETAILED)
    has_event_id = ENTRY.c.event_id.is_not(None).label("has_event_id")
    each = sa.select(ENTRY.c.outcome, TRIED.label("tried"), has_event_id, sa.func.count()).where(of_feed, IS_OPEN, is_detailed)
    alike = sa.select(ENTRY.c.outcome, sa.literal(facts.Tried.NO.value), sa.true(), sa.func.count())
    alike = alike.where(of_feed, IS_OPEN, ~is_detailed).group_by(ENTRY.c.outcome)
    both = sa.union_all(alike, each.group_by("outcome", "tried", "has_event_id"))
    for outcome, tried, has_id, count in connection.execute(both):
        counts[facts.state_of(Outcome(outcome), facts.Tried(tried), has_event_id=bool(has_id))] += count
    counts[EntryState.DELIVERED] += count_entries(connection, of_feed) - sum(counts.values())
    return counts


def _rejected(connection: sa.Connection, scope_id: int, last_read: RunRecord | None, now: datetime | None) -> dict[str, int]:
    """Count the rows rejected by the last read, and those that earlier reads rejected and that it has not read again."""
    if last_read is None or last_read.read is None:
        return {}
    listed = _listed(ProblemKind.REJECTED, scope_id, last_read.run_id, now)
    others = sa.select(sa.func.count()).select_from(PROBLEM).where(*listed, PROBLEM.c.run_id != last_read.run_id)
    count = last_read.read.rejected + connection.execute(others).scalar_one()
    return {ProblemKind.REJECTED.value: count} if count else {}


def _holder(connection: sa.Connection, scope_id: int) -> LeaseHolder | None:
    row = connection.execute(sa.select(LEASE).where(LEASE.c.scope_id == scope_id, LEASE.c.holder != "")).first()
    if row is None:
        return None
    is_gone = not is_running(Holder(row.holder, row.host, row.pid, row.process_started, row.boot))
    return LeaseHolder(row.holder, row.host.partition(" ")[0], row.pid, row.acquired_at, row.expires_at, is_gone)


_SAME_IN_RUNS = frozenset(each.name for each in fields(RunRecord)) & frozenset(RUN.c.keys())
_SAME_IN_PROBLEMS = frozenset(each.name for each in fields(ProblemRecord)) & frozenset(PROBLEM.c.keys())


def _run(row: _Row) -> RunRecord:
    columns: dict[str, Any] = {name: getattr(row, name) for name in _SAME_IN_RUNS} | {
        "book": FeedScope(row.destination, FeedName(row.feed)),
        "run_id": row.id,
        "phase": Phase(row.phase),
        "read": row.read_account and load_read(row.read_account),
        "stage_report": row.stage_report and load_report(row.stage_report),
        "publish": row.publish_account and load_publish(row.publish_account),
        "brakes": tuple(json.loads(row.brakes)),
        "notices": tuple(json.loads(row.notices)),
        "pace": json.loads(row.pace),
        "standing": row.standing and standing.load_standing(row.standing),
    }
    return RunRecord(**columns)


def _problem(row: _Row, entry: RowRecord | None) -> ProblemRecord:
    columns: dict[str, Any] = {name: getattr(row, name) for name in _SAME_IN_PROBLEMS} | {
        "problem_id": row.id,
        "kind": ProblemKind(row.kind),
        "reasons": load_reasons(row.reasons),
        "cells": json.loads(row.cells),
        "event_id": entry.event_id if entry and entry.removed_at is None else None,
        "candidate": entry.candidate if entry and row.kind == ProblemKind.HELD else None,
    }
    return ProblemRecord(**columns)


def _each_feed(engine: sa.Engine, destination: str, query: sa.Select[Any]) -> dict[FeedName, Any]:
    """Return the first value of a query about the scope of each feed, without feeds that have none."""
    value = query.limit(1).correlate(SCOPE).scalar_subquery().label("value")
    with reading(engine) as connection:
        rows = connection.execute(sa.select(SCOPE.c.feed, value).where(SCOPE.c.destination == destination)).all()
    return {FeedName(row.feed): row.value for row in rows if row.value is not None}


def last_done(engine: sa.Engine, destination: str | None = None) -> Mapping[FeedScope, datetime]:
    """Return when the last run of each feed ended that published with exit code 0; feeds without one are absent."""
    latest = sa.select(SCOPE.c.destination, SCOPE.c.feed, sa.func.max(RUN.c.finished_at)).join(
        SCOPE, SCOPE.c.id == RUN.c.scope_id
    )
    ended = latest.where(RUN.c.exit_code == 0, RUN.c.publish_account.is_not(None)).group_by(SCOPE.c.destination, SCOPE.c.feed)
    with reading(engine) as connection:
        rows = connection.execute(ended if destination is None else ended.where(SCOPE.c.destination == destination)).all()
    return {FeedScope(row[0], FeedName(row[1])): row[2] for row in rows}


def last_came(engine: sa.Engine, destination: str, silent: Collection[int], beside: str) -> Mapping[FeedName, datetime]:
    """Return when each feed last ran: the end of its latest run, or the start of one without an end; feeds without runs are
    absent.

    Runs with a `silent` exit code have not run the feed; those launched `beside` its schedule do not count.
    """
    says = sa.or_(RUN.c.exit_code.is_(None), RUN.c.exit_code.not_in(sorted(silent)))
    latest = sa.select(sa.func.coalesce(RUN.c.finished_at, RUN.c.started_at)).where(RUN.c.scope_id == SCOPE.c.id)
    return _each_feed(engine, destination, latest.where(RUN.c.launched_by != beside, says).order_by(RUN.c.started_at.desc()))


def last_read_rows(engine: sa.Engine, destination: str) -> Mapping[FeedName, int]:
    """Return how many rows the last read of each feed had; feeds that were never read are absent."""
    read = last_read(SCOPE.c.id).with_only_columns(RUN.c.read_account)
    return {feed: load_read(account).read for feed, account in _each_feed(engine, destination, read).items()}


def held_leases(engine: sa.Engine, destination: str, clock: LeaseClock) -> Iterator[tuple[FeedName, str, bool]]:
    """Yield the leases that were not released: feed, holder, and whether it is at work."""
    server = server_now() if clock.is_servers else sa.null()
    held = sa.select(LEASE, SCOPE.c.feed, server.label("server_now")).join(SCOPE, SCOPE.c.id == LEASE.c.scope_id)
    with reading(engine) as connection:
        rows = connection.execute(held.where(SCOPE.c.destination == destination, LEASE.c.holder != "")).all()
    for row in rows:
        yield FeedName(row.feed), row.holder, is_at_work(row, clock.now)
