"""Verifies a state DB without changing it: its file, its tables, every entry of the ledger, every account of a run.

The tables have constraints for what one row may say; here is what they cannot express.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, Row, and_, exists, func, select

from mappings.row_key import fingerprint
from state.database import log_of, reading
from state.enums import Decision, Outcome
from state.errors import StateDamagedError
from state.ledger.accounts import load_answer, load_publish, load_read, load_report
from state.ledger.entries import MARK, PAYLOAD
from state.migrations.upgrade import HEAD, differences, is_known
from state.opening import schema_revision
from state.tables import ATTEMPT, BODY, DECISION, DUPLICATE_MARK, ENTRY, RUN, SCOPE

Check = Literal["file", "tables", "entry", "key", "body", "event", "account"]
"""The subject of a finding: the file, the tables, an entry, its key, its pinned body, its event id, or a run's accounts."""
Record = Row[*tuple[Any, ...]]

_PAGE = 1_000
_COVER = b'"coverImage"'
_IS_TAKEN = and_(DECISION.c.other_id == ENTRY.c.id, DECISION.c.option == Decision.SAME_AS.value)
_ENTRIES = (
    select(*(ENTRY.c[name] for name in ("row_key", "outcome", "fingerprint", "answer")), SCOPE.c.destination, SCOPE.c.feed)
    .add_columns(
        PAYLOAD, BODY.c.cover_url, BODY.c.entry_id.is_not(None).label("has_body"), exists().where(_IS_TAKEN).label("has_taker")
    )
    .select_from(ENTRY.outerjoin(BODY, BODY.c.entry_id == ENTRY.c.id).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id))
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
                findings += _check_events(connection)
                findings += _check_parts(connection)
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
        counts["entries"] += 1
        yield from _check_entry(row)
        body, cover_url = row.body or b"", row.cover_url or ""
        if cover_url or _COVER in body:
            with_covers.add((row.destination, row.feed))
        if row.body is not None and not _is_payload(body):
            yield _finding("body", "the pinned body is no JSON object", row)
        elif row.body is not None and _COVER not in body and fingerprint(body, cover_url) != row.fingerprint:
            in_doubt.append(_finding("body", "the pinned body is not the one whose fingerprint is on record", row))
    yield from (finding for finding in in_doubt if (finding.destination, finding.feed) not in with_covers)


def _check_entry(row: Record) -> Iterator[Finding]:
    try:
        _ = row.answer and load_answer(row.answer)
    except ValueError:
        yield _finding("entry", "the last answer cannot be read", row)
    if row.outcome == Outcome.MOVED and not row.has_taker:
        yield _finding("entry", "it is superseded, and no entry has its event", row)
    if row.has_body == (row.outcome in (Outcome.HELD, Outcome.MOVED)):
        yield _finding("body", "it has a body, and nothing is pinned" if row.has_body else "it has no body", row)


def _finding(check: Check, problem: str, row: Record) -> Finding:
    return Finding(check, problem, row.destination, row.feed, row.row_key)


def _is_payload(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


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


def _check_events(connection: Connection) -> Iterator[Finding]:
    """Check that an event belongs to one row of its destination."""
    events = select(SCOPE.c.destination, SCOPE.c.feed, ENTRY.c.row_key, ENTRY.c.event_id)
    events = events.join(ENTRY, ENTRY.c.scope_id == SCOPE.c.id).where(ENTRY.c.event_id.is_not(None))
    event = (SCOPE.c.destination, ENTRY.c.event_id)
    taken = events.with_only_columns(*event).group_by(*event).having(func.count() > 1).subquery()
    is_taken = and_(taken.c.destination == SCOPE.c.destination, taken.c.event_id == ENTRY.c.event_id)
    for row in connection.execute(events.join(taken, is_taken)):
        yield _finding("event", f"event {row.event_id} is another row's too, or occurs here twice", row)


def _check_parts(connection: Connection) -> Iterator[Finding]:
    """Check that bodies and attempts are of an entry: no database checks it."""
    for table in (BODY, ATTEMPT):
        strays = select(func.count()).select_from(table).where(~exists().where(ENTRY.c.id == table.c.entry_id))
        if count := connection.execute(strays).scalar_one():
            yield Finding("tables", f"{count} rows of {table.name} belong to no entry")


def _check_marks(connection: Connection) -> Iterator[Finding]:
    its_mark = and_(DUPLICATE_MARK.c.mark == MARK, DUPLICATE_MARK.c.entry_id == ENTRY.c.id)
    names = (SCOPE.c.destination, SCOPE.c.feed)
    unmarked = (
        select(*names, func.count().label("entries"))
        .join(ENTRY, ENTRY.c.scope_id == SCOPE.c.id)
        .where(ENTRY.c.id <= SCOPE.c.marked_id, ENTRY.c.outcome != Outcome.HELD.value, ~exists().where(its_mark))
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
