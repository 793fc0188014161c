"""Verifies a state DB without changing it: its file, its tables, every entry of the ledger, every account of a run.

The tables have constraints for what one row may say; here is what they cannot express.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from sqlalchemy import Connection, Engine, Row, select, text

from mappings.row_key import fingerprint
from state.database import log_of, reading
from state.errors import StateDamagedError
from state.export import count_rows, pages_of
from state.ledger.accounts import PublishAccount, ReadAccount, load_answer, load_publish, load_read, load_report
from state.migrations.upgrade import HEAD, differences, is_known
from state.opening import schema_revision
from state.tables import BODY, ENTRY, RUN, SCOPE

Check = Literal["file", "tables", "entry", "key", "body", "event", "account"]
"""The subject of a finding: the file, the tables, an entry, its key, its pinned body, its event id, or a run's accounts."""
Record = Row[*tuple[Any, ...]]
_COVER = b'"coverImage"'
_ENTRIES = (
    select(*(SCOPE.c.destination, SCOPE.c.feed, ENTRY.c.row_key, ENTRY.c.fingerprint, ENTRY.c.answer, BODY.c.body))
    .add_columns(BODY.c.cover_url)
    .select_from(ENTRY.outerjoin(BODY, BODY.c.entry_id == ENTRY.c.id).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id))
    .order_by(ENTRY.c.id)
)
_RUNS = select(RUN, SCOPE.c.destination, SCOPE.c.feed).join(SCOPE, SCOPE.c.id == RUN.c.scope_id).order_by(RUN.c.started_at)
_OF_FEED = "FROM entry JOIN scope ON scope.id = scope_id WHERE"
_ROWS = f"SELECT destination, feed, row_key, event_id AS found {_OF_FEED}"  # all of this is ours
_COUNT = "SELECT '' AS destination, '' AS feed, '' AS row_key, count(*) AS found FROM"
_HAS_BODY = "EXISTS (SELECT 1 FROM body WHERE entry_id = entry.id)"
_HAS_TAKER = "EXISTS (SELECT 1 FROM decision WHERE other_id = entry.id AND option = 'same_as')"
_HAS_MARK = "EXISTS (SELECT 1 FROM duplicate_mark WHERE mark = substr(twin_digest, 1, 8) AND entry_id = entry.id)"
_HAS_NO_ENTRY = "NOT EXISTS (SELECT 1 FROM entry WHERE id = entry_id) HAVING count(*) > 0"
_EVENT = "destination, event_id"
_SHARED = f"SELECT {_EVENT} {_OF_FEED} event_id IS NOT NULL GROUP BY {_EVENT} HAVING count(*) > 1"  # as above
_UNMARKED = f"entry.id <= marked_id AND outcome <> 'held' AND NOT {_HAS_MARK}"
_SOUGHT: tuple[tuple[Check, str, str], ...] = (
    ("entry", "it is superseded, and no entry has its event", f"{_ROWS} outcome = 'moved' AND NOT {_HAS_TAKER}"),
    ("body", "it has a body, and nothing is pinned", f"{_ROWS} outcome IN ('held', 'moved') AND {_HAS_BODY}"),
    ("body", "it has no body", f"{_ROWS} outcome NOT IN ('held', 'moved') AND NOT {_HAS_BODY}"),
    ("event", "event {} is another row's too, or occurs here twice", f"{_ROWS} ({_EVENT}) IN ({_SHARED})"),
    ("tables", "{} rows of body belong to no entry", f"{_COUNT} body WHERE {_HAS_NO_ENTRY}"),
    ("tables", "{} rows of attempt belong to no entry", f"{_COUNT} attempt WHERE {_HAS_NO_ENTRY}"),
    (
        "tables",
        "{} entries are not in the index of duplicates: copies of them would not be held",
        f"SELECT destination, feed, '' AS row_key, count(*) AS found {_OF_FEED} {_UNMARKED} GROUP BY destination, feed",
    ),
)
"""For each thing that no entry may have: the finding, and the query of it; `found` is put into the sentence."""


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
    schema: str | None = None
    entries = runs = 0
    try:
        schema = schema_revision(engine)
        with reading(engine) as connection:
            findings += _check_file(connection)
            findings += _check_schema(connection, schema)
            if schema == HEAD and not any(finding.check == "tables" for finding in findings):
                for check, problem, query in _SOUGHT:
                    found = connection.execute(text(query))
                    findings += [_finding(check, problem.format(row.found), row) for row in found]
                findings += _check_contents(connection)
                findings += chain.from_iterable(map(_check_run, chain.from_iterable(pages_of(connection, _RUNS))))
                entries, runs = count_rows(connection, [ENTRY]), count_rows(connection, [RUN])
    except StateDamagedError as damage:
        findings.append(Finding("file", f"{damage}"))
    return Examination(schema, entries, runs, tuple(findings))


def find_left_log(engine: Engine) -> Finding | None:
    """Return the finding of a write-ahead log beside a SQLite file, which may belong to another file; None if there is none."""
    log = log_of(engine.url)
    if log is None:
        return None
    why = "its changes count as those of the file, and may belong to another one"
    what = f"if the file was restored and no command is at work, delete {log} and {engine.url.database}-shm, then verify again"
    return Finding("file", f"{log} lies beside it: {why}; {what}")


def _check_contents(connection: Connection) -> Iterator[Finding]:
    """Check the answer and the body of each entry.

    A body that does not match its fingerprint is reported only if its feed has no images: an unusable image was left out of its
    body together with its address, so such a body is sound.
    """
    with_covers: set[tuple[str, str]] = set()
    in_doubt: list[Finding] = []
    for row in chain.from_iterable(pages_of(connection, _ENTRIES)):
        try:
            _ = row.answer and load_answer(row.answer)
        except ValueError:
            yield _finding("entry", "the last answer cannot be read", row)
        if row.cover_url or _COVER in (row.body or b""):
            with_covers.add((row.destination, row.feed))
        elif row.body is not None and fingerprint(row.body) != row.fingerprint:
            in_doubt.append(_finding("body", "the pinned body is not the one whose fingerprint is on record", row))
    yield from (finding for finding in in_doubt if (finding.destination, finding.feed) not in with_covers)


def _finding(check: Check, problem: str, row: Record) -> Finding:
    return Finding(check, problem, row.destination, row.feed, row.row_key)


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


def _check_run(run: Record) -> Iterator[Finding]:
    """Check that the accounts of a run can be read, and add up."""
    for what, stored, load in (
        ("account of rows read", run.read_account, load_read),
        ("account of rows owed", run.publish_account, load_publish),
        ("report of its stage", run.stage_report, load_report),
    ):
        try:
            record: Any = load(stored) if stored else None
        except ValueError:
            yield Finding("account", f"the {what} cannot be read", run.destination, run.feed, run.id)
            continue
        if isinstance(record, ReadAccount | PublishAccount) and (off := record.imbalance()):
            yield Finding("account", f"the {what} does not add up, by {off}", run.destination, run.feed, run.id)
