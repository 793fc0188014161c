"""Verifies a state DB without changing it: its file, its tables, every entry of the ledger, every account of a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, Row, and_, exists, func, select

from mappings.row_key import fingerprint, idempotency_key
from state.database import log_of, reading
from state.enums import Decision, DriftKind, EntryState
from state.errors import StateDamagedError
from state.ledger.accounts import load_answer, load_publish, load_read, load_report
from state.ledger.entries import MARK
from state.migrations.upgrade import HEAD, differences, is_known
from state.opening import schema_revision
from state.tables import DUPLICATE_MARK, ENTRY, RUN, SCOPE

Check = Literal["file", "tables", "entry", "key", "body", "event", "account"]
"""The subject of a finding: the file, the tables, an entry, its key, its pinned body, its event id, or a run's accounts."""
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
_RUNS = select(RUN, SCOPE.c.destination, SCOPE.c.feed).join(SCOPE, SCOPE.c.id == RUN.c.scope_id).order_by(RUN.c.started_at)
_ROWS = select(SCOPE.c.destination, SCOPE.c.feed, ENTRY.c.row_key).join(ENTRY, ENTRY.c.scope_id == SCOPE.c.id)


@dataclass(frozen=True, slots=True)
class Finding:
    """One error in the state DB. `which`: the row's key or the run's id, "" if it is neither."""

    check: Check
    problem: str
    destination: str = ""
    feed: str = ""
    which: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of a verification. `schema`: the revision of the tables, None without any."""

    schema: str | None
    entries: int
    runs: int
    findings: tuple[Finding, ...]


def examine(engine: Engine) -> Examination:
    """Verify a state DB in one read transaction. Unreadable parts of a damaged file are findings too.

    Raises `StateUnavailableError` or `StateBusyError` if the state DB cannot be read at all.
    """
    findings: list[Finding] = []
    counts = Counter[str]()
    schema: str | None = None
    try:
        schema = schema_revision(engine)
        with reading(engine) as connection:
            findings += _check_file(connection)
            findings += _check_schema(connection, schema)
            if schema == HEAD and not any(finding.check == "tables" for finding in findings):
                findings += _check_rows(connection, counts)
                findings += _check_uniqueness(connection)
                findings += _check_marks(connection)
                for run in _streamed(connection, _RUNS):
                    counts["runs"] += 1
                    findings += _check_run(run)
    except StateDamagedError as damage:
        findings.append(Finding("file", f"{damage}"))
    return Examination(schema, counts["entries"], counts["runs"], tuple(findings))


def find_left_log(engine: Engine) -> Finding | None:
    """Return the finding of a write-ahead log beside a SQLite file, which may belong to another file; None if there is none."""
    log = log_of(engine.url)
    if log is None:
        return None
    why = "its changes count as those of the file, and may belong to another one"
    what = f"if the file was restored and no command is at work, delete {log} and {engine.url.database}-shm, then verify again"
    return Finding("file", f"{log} lies beside it: {why}; {what}")


def _check_rows(connection: Connection, counts: Counter[str]) -> Iterator[Finding]:
    """Check the entries.

    A body that does not match its fingerprint is reported only if its feed has no images: an unusable image was left out of its
    body together with its address, so such a body is sound.
    """
    with_covers: set[tuple[str, str]] = set()
    in_doubt: list[Finding] = []
    for row in _streamed(connection, _ENTRIES):
        due = idempotency_key(row.namespace, row.feed, row.row_key, revision=row.revision)
        if row.idempotency_key != due:
            yield _finding("key", f"it is {row.idempotency_key}, and should be {due}", row)
        yield from (_finding("entry", problem, row) for problem in (*_unknown_words(row), *_contradictions(row)))
        if row.state == EntryState.DELIVERED and row.event_id is None:
            yield _finding("event", "it is delivered, and has no event id", row)
        counts["entries"] += 1
        for what, body, on_record, cover_url in _bodies_of(row):
            if cover_url or _COVER in body:
                with_covers.add((row.destination, row.feed))
            if not _is_payload(body):
                yield _finding("body", f"the {what} is no JSON object", row)
            elif on_record and _COVER not in body and fingerprint(body, cover_url) != on_record:
                in_doubt.append(_finding("body", f"the {what} is not the one whose fingerprint is on record", row))
    yield from (finding for finding in in_doubt if (finding.destination, finding.feed) not in with_covers)


def _bodies_of(row: Record) -> Iterator[tuple[str, bytes, str | None, str]]:
    yield "pinned body", row.body, row.fingerprint, row.cover_url or ""
    if row.baseline_body is not None:
        yield "baseline", row.baseline_body, row.baseline_fingerprint, row.cover_url or ""


def _finding(check: Check, problem: str, row: Record) -> Finding:
    return Finding(check, problem, row.destination, row.feed, row.row_key)


def _is_payload(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


def _unknown_words(entry: Record) -> Iterator[str]:
    for name, column, known in _CLOSED_CHOICES:
        value = getattr(entry, column)
        if value is not None and value not in known:
            yield f"its {name} is {value!r}, which is not a known value"
    try:
        _ = entry.answer and load_answer(entry.answer)
    except ValueError:
        yield "the last answer cannot be read"


def _contradictions(entry: Record) -> list[str]:
    is_held, is_superseded = entry.state == EntryState.HELD, entry.state == EntryState.SUPERSEDED
    has_half = (entry.baseline_body is None) != (entry.baseline_fingerprint is None)
    problems = {
        "its baseline has a body or a fingerprint, and not both": has_half,
        f"it is {entry.state}, and has event {entry.event_id}": (is_held or is_superseded) and entry.event_id is not None,
        f"it is held, and counts {entry.attempts} attempts": is_held and entry.attempts,
        "it is superseded, and no entry has its event": is_superseded and not entry.has_candidate,
        f"it counts {entry.attempts} attempts": entry.attempts < 0,
    }
    return [problem for problem, is_there in problems.items() if is_there]


def _streamed(connection: Connection, query: Any) -> Iterator[Record]:
    yield from connection.execution_options(yield_per=_PAGE).execute(query)


def _check_file(connection: Connection) -> Iterator[Finding]:
    """Check each page and index of a SQLite file; PostgreSQL checks its own."""
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
            what = "open it once with version 0.2" if schema < HEAD else "a newer version wrote it"
        yield Finding("tables", f"the schema is {schema}, ours is {HEAD}: {what}")
    else:
        yield from (Finding("tables", difference) for difference in differences(connection))


def _check_uniqueness(connection: Connection) -> Iterator[Finding]:
    """Check that a row has one entry, and that an event belongs to one row of its destination."""
    names = (SCOPE.c.destination, SCOPE.c.feed, ENTRY.c.row_key)
    for row in connection.execute(_ROWS.add_columns(func.count().label("times")).group_by(*names).having(func.count() > 1)):
        yield Finding("entry", f"the row has {row.times} entries", row.destination, row.feed, row.row_key)
    events = _ROWS.add_columns(ENTRY.c.event_id).subquery()
    event = (events.c.destination, events.c.event_id)
    taken = select(*event).where(events.c.event_id.is_not(None)).group_by(*event).having(func.count() > 1).subquery()
    is_taken = and_(taken.c.destination == events.c.destination, taken.c.event_id == events.c.event_id)
    for row in connection.execute(select(events).join(taken, is_taken)):
        problem = f"event {row.event_id} is another row's too, or occurs here twice"
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
