"""Whether a state DB is sound: its file, its tables, every entry of the ledger, every account of a run. Changes nothing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, Row, and_, exists, func, select, union_all

from mappings.row_key import fingerprint, idempotency_key
from state.database import reading, schema_revision
from state.enums import Decision, DriftKind, EntryState
from state.errors import StateDamagedError
from state.ledger.accounts import load_answer, load_publish, load_read, load_report
from state.ledger.entries import MARK
from state.migrations.upgrade import HEAD, OLDEST, differences, is_known
from state.tables import DUPLICATE_MARK, EARLIER, ENTRY, RUN, SCOPE

Check = Literal["file", "tables", "entry", "key", "body", "event", "account"]
"""What is checked: the file and its tables as such, an entry, its key, its pinned body, its event id, a run's accounts."""
Record = Row[*tuple[Any, ...]]

_PAGE = 1_000
_CLOSED_CHOICES = (
    ("state", "state", frozenset(EntryState)),
    ("drift", "drift_kind", frozenset(DriftKind)),
    ("decision", "decision", frozenset(Decision)),
)
_COVER = b'"coverImage"'
_OF_FEED = (SCOPE.c.destination, SCOPE.c.namespace, SCOPE.c.feed)
_CANDIDATE = ENTRY.alias()
_ENTRIES = (
    select(ENTRY, *_OF_FEED, _CANDIDATE.c.id.is_not(None).label("has_candidate"))
    .join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
    .outerjoin(_CANDIDATE, _CANDIDATE.c.id == ENTRY.c.candidate_id)
    .order_by(ENTRY.c.id)
)
_EARLIER = (
    select(EARLIER, ENTRY.c.row_key, *_OF_FEED)
    .join(ENTRY, ENTRY.c.id == EARLIER.c.entry_id)
    .join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
    .order_by(EARLIER.c.entry_id)
)
_RUNS = select(RUN, SCOPE.c.destination, SCOPE.c.feed).join(SCOPE, SCOPE.c.id == RUN.c.scope_id).order_by(RUN.c.started_at)
_ROWS = select(SCOPE.c.destination, SCOPE.c.feed, ENTRY.c.row_key).join(ENTRY, ENTRY.c.scope_id == SCOPE.c.id)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it must be. `which`: the row's key, or the run's id, "" where it is neither."""

    check: Check
    problem: str
    destination: str = ""
    feed: str = ""
    which: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """What was checked, and everything that was found. `schema` is the revision of the tables, None without any."""

    schema: str | None
    entries: int
    runs: int
    findings: tuple[Finding, ...]


def examine(engine: Engine) -> Examination:
    """Check all of it, in one reading. Where the file is damaged, what could not be read is a finding too.

    Raises `StateUnavailableError` or `StateBusyError` where the state DB cannot be read at all.
    """
    examiner = _Examiner()
    schema: str | None = None
    try:
        schema = schema_revision(engine)
        with reading(engine) as connection:
            examiner.check(connection, schema)
    except StateDamagedError as damage:
        examiner.findings.append(Finding("file", f"{damage}"))
    return Examination(schema, examiner.entries, examiner.runs, tuple(examiner.findings))


class _Examiner:
    """One examination.

    A body that does not agree with its fingerprint is in doubt until all entries were read: an image that could not be used
    was left out of its body, with its address. In a feed with images such a body is sound.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.entries = 0
        self.runs = 0
        self._with_covers: set[tuple[str, str]] = set()
        self._in_doubt: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)

    def check(self, connection: Connection, schema: str | None) -> None:
        """Check the file first, then the tables, then what they hold: each is of no use without the one before."""
        self.findings += _check_file(connection)
        self.findings += _check_schema(connection, schema)
        if schema != HEAD or any(finding.check == "tables" for finding in self.findings):
            return
        for entry in _streamed(connection, _ENTRIES):
            self.entries += 1
            self._check_entry(entry)
        for event in _streamed(connection, _EARLIER):
            self._check_key(event)
            self._check_body(event, "pinned body", event.body, event.fingerprint, "")
        self.findings += (one for feed, found in self._in_doubt.items() if feed not in self._with_covers for one in found)
        self.findings += _check_uniqueness(connection)
        self.findings += _check_marks(connection)
        for run in _streamed(connection, _RUNS):
            self.runs += 1
            self.findings += _check_run(run)

    def _check_entry(self, entry: Record) -> None:
        self._check_key(entry)
        if entry.state != EntryState.HELD or entry.fingerprint or entry.body:
            self._check_body(entry, "pinned body", entry.body, entry.fingerprint, entry.cover_url or "")
        if entry.baseline_body is not None:
            self._check_body(entry, "baseline", entry.baseline_body, entry.baseline_fingerprint, entry.cover_url or "")
        for problem in (*_unknown_words(entry), *_contradictions(entry)):
            self._add("entry", problem, entry)
        if entry.state == EntryState.DELIVERED and entry.event_id is None:
            self._add("event", "it is delivered, and has no event id", entry)

    def _check_key(self, record: Record) -> None:
        due = idempotency_key(record.namespace, record.feed, record.row_key, revision=record.revision)
        if record.idempotency_key != due:
            self._add("key", f"it is {record.idempotency_key}, and should be {due}", record)

    def _check_body(self, record: Record, what: str, body: bytes, on_record: str | None, cover_url: str) -> None:
        feed = (record.destination, record.feed)
        if cover_url or _COVER in body:
            self._with_covers.add(feed)
        if not _is_payload(body):
            self._add("body", f"the {what} is no JSON object", record)
        elif on_record and _COVER not in body and fingerprint(body, cover_url) != on_record:
            problem = f"the {what} is not the one whose fingerprint is on record"
            self._in_doubt[feed].append(Finding("body", problem, *feed, record.row_key))

    def _add(self, check: Check, problem: str, record: Record) -> None:
        self.findings.append(Finding(check, problem, record.destination, record.feed, record.row_key))


def _is_payload(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


def _unknown_words(entry: Record) -> Iterator[str]:
    for name, column, known in _CLOSED_CHOICES:
        value = getattr(entry, column)
        if value is not None and value not in known:
            yield f"its {name} is {value!r}, which means nothing to us"
    try:
        _ = entry.answer and load_answer(entry.answer)
    except ValueError:
        yield "the last answer cannot be read"


def _contradictions(entry: Record) -> Iterator[str]:
    if (entry.baseline_body is None) != (entry.baseline_fingerprint is None):
        yield "its baseline has a body or a fingerprint, and not both"
    if entry.state in {EntryState.HELD, EntryState.SUPERSEDED} and entry.event_id is not None:
        yield f"it is {entry.state}, and has event {entry.event_id}"
    if entry.state == EntryState.HELD and entry.attempts:
        yield f"it is held, and counts {entry.attempts} attempts"
    if entry.state == EntryState.SUPERSEDED and not entry.has_candidate:
        yield "it is superseded, and no entry has its event"
    if entry.attempts < 0:
        yield f"it counts {entry.attempts} attempts"


def _streamed(connection: Connection, query: Any) -> Iterator[Record]:
    yield from connection.execution_options(yield_per=_PAGE).execute(query)


def _check_file(connection: Connection) -> Iterator[Finding]:
    """SQLite checks each page and each index; PostgreSQL looks after its own."""
    if connection.dialect.name != "sqlite":
        return
    for reply in connection.exec_driver_sql("PRAGMA integrity_check").scalars():
        if reply != "ok":
            yield Finding("file", str(reply))
    for table, row_id, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield Finding("tables", f"row {row_id} of {table} belongs to a row of {parent} that is not there")


def _check_schema(connection: Connection, schema: str | None) -> Iterator[Finding]:
    if schema is None:
        yield Finding("tables", "there are none of ours: the first run makes them")
    elif schema != HEAD:
        what = "`eventsync status` or the next run upgrades it"
        if not is_known(schema):
            what = "open it once with version 0.1" if schema < OLDEST else "a newer version wrote it"
        yield Finding("tables", f"the schema is {schema}, ours is {HEAD}: {what}")
    else:
        yield from (Finding("tables", difference) for difference in differences(connection))


def _check_uniqueness(connection: Connection) -> Iterator[Finding]:
    """Check that a row has one entry, and that an event belongs to one row of its destination."""
    names = (SCOPE.c.destination, SCOPE.c.feed, ENTRY.c.row_key)
    for row in connection.execute(_ROWS.add_columns(func.count().label("times")).group_by(*names).having(func.count() > 1)):
        yield Finding("entry", f"the row has {row.times} entries", row.destination, row.feed, row.row_key)
    own = _ROWS.add_columns(ENTRY.c.event_id)
    earlier = _ROWS.add_columns(EARLIER.c.event_id).join(EARLIER, EARLIER.c.entry_id == ENTRY.c.id)
    events = union_all(own, earlier).subquery()
    event = (events.c.destination, events.c.event_id)
    taken = select(*event).where(events.c.event_id.is_not(None)).group_by(*event).having(func.count() > 1).subquery()
    is_taken = and_(taken.c.destination == events.c.destination, taken.c.event_id == events.c.event_id)
    for row in connection.execute(select(events).join(taken, is_taken)):
        problem = f"event {row.event_id} is another row's too, or stands here twice"
        yield Finding("event", problem, row.destination, row.feed, row.row_key)


def _check_marks(connection: Connection) -> Iterator[Finding]:
    its_mark = and_(DUPLICATE_MARK.c.mark == MARK, DUPLICATE_MARK.c.entry_id == ENTRY.c.id)
    names = (SCOPE.c.destination, SCOPE.c.feed)
    unmarked = (
        select(*names, func.count().label("entries"))
        .join(ENTRY, ENTRY.c.scope_id == SCOPE.c.id)
        .where(ENTRY.c.id <= SCOPE.c.marked_id, ENTRY.c.state != EntryState.HELD.value, ~exists().where(its_mark))
        .group_by(*names)
    )
    for row in connection.execute(unmarked):
        problem = f"{row.entries} entries are not in the index of duplicates: copies of them would not be held"
        yield Finding("tables", problem, row.destination, row.feed)


def _check_run(run: Record) -> Iterator[Finding]:
    where = (run.destination, run.feed, run.id)
    for name, stored, load in (("rows read", run.read_account, load_read), ("rows owed", run.publish_account, load_publish)):
        try:
            off = load(stored).imbalance() if stored else 0
        except ValidationError:
            yield Finding("account", f"the account of {name} cannot be read", *where)
            continue
        if off:
            yield Finding("account", f"the {name} do not add up, by {off}", *where)
    try:
        _ = run.stage_report and load_report(run.stage_report)
    except ValueError:  # of JSON, or of pydantic
        yield Finding("account", "the report of its stage cannot be read", *where)
