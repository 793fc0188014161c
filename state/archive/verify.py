"""Whether a state DB still says what it must: its file, its tables, every entry of the ledger, every account of a run.

What one entry must look like is told in `entry_checks`; nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, Row, and_, exists, func, select, union_all

from state.archive.entry_checks import Finding, Signs, check_earlier, check_entry
from state.database import reading, schema_revision
from state.enums import EntryState
from state.ledger.accounts import load_publish, load_read, load_report
from state.ledger.duplicates import MARK
from state.migrations.upgrade import HEAD, differences, is_known
from state.tables import DUPLICATE_MARK, EARLIER, ENTRY, RUN, SCOPE
from state.trouble import StateDamagedError

_PAGE = 1_000
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
_IN_SCOPE = select(SCOPE.c.destination, SCOPE.c.feed, ENTRY.c.row_key)
_EVENTS = union_all(
    _IN_SCOPE.add_columns(ENTRY.c.event_id).join(ENTRY, ENTRY.c.scope_id == SCOPE.c.id),
    _IN_SCOPE.add_columns(EARLIER.c.event_id)
    .join(ENTRY, ENTRY.c.scope_id == SCOPE.c.id)
    .join(EARLIER, EARLIER.c.entry_id == ENTRY.c.id),
).subquery()
_TAKEN_TWICE = (
    select(_EVENTS.c.destination, _EVENTS.c.event_id)
    .where(_EVENTS.c.event_id.is_not(None))
    .group_by(_EVENTS.c.destination, _EVENTS.c.event_id)
    .having(func.count() > 1)
)
_TWO_OF_ONE_ROW = (
    select(SCOPE.c.destination, SCOPE.c.feed, ENTRY.c.row_key, func.count().label("times"))
    .join(ENTRY, ENTRY.c.scope_id == SCOPE.c.id)
    .group_by(SCOPE.c.destination, SCOPE.c.feed, ENTRY.c.row_key)
    .having(func.count() > 1)
)
_ITS_MARK = and_(DUPLICATE_MARK.c.mark == MARK, DUPLICATE_MARK.c.entry_id == ENTRY.c.id)
_UNMARKED = (
    select(SCOPE.c.destination, SCOPE.c.feed, func.count().label("entries"))
    .join(ENTRY, ENTRY.c.scope_id == SCOPE.c.id)
    .where(ENTRY.c.id <= SCOPE.c.marked_id, ENTRY.c.state != EntryState.HELD.value, ~exists().where(_ITS_MARK))
    .group_by(SCOPE.c.destination, SCOPE.c.feed)
)


@dataclass(frozen=True, slots=True)
class Examination:
    """What was looked at, and everything that was found. `schema` is the revision of the tables, None without any."""

    schema: str | None
    entries: int
    runs: int
    findings: tuple[Finding, ...]


def examine(engine: Engine) -> Examination:
    """Look at all of it, in one reading. Where the file is damaged, what could not be read is a finding too.

    Raises `StateUnavailableError` or `StateBusyError` where the state DB cannot be read at all.
    """
    examiner = _Examiner()
    schema: str | None = None
    try:
        schema = schema_revision(engine)
        with reading(engine) as connection:
            examiner.look(connection, schema)
    except StateDamagedError as damage:
        examiner.findings.append(Finding("file", f"{damage}"))
    return Examination(schema, examiner.entries, examiner.runs, tuple(examiner.findings))


class _Examiner:
    """One examination under way."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.entries = 0
        self.runs = 0

    def look(self, connection: Connection, schema: str | None) -> None:
        """Look at the file first, then at the tables, then at what they say: each is of no use without the one before."""
        self.findings += _in_file(connection)
        self.findings += _in_schema(connection, schema)
        if schema != HEAD or any(finding.check == "tables" for finding in self.findings):
            return
        self._look_at_entries(connection)
        self.findings += _same_row_twice(connection)
        self.findings += _same_event_twice(connection)
        self.findings += _without_marks(connection)
        for run in _streamed(connection, _RUNS):
            self.runs += 1
            self.findings += _in_run(run)

    def _look_at_entries(self, connection: Connection) -> None:
        signs = Signs()
        for entry in _streamed(connection, _ENTRIES):
            self.entries += 1
            self.findings += check_entry(entry, entry.namespace, signs)
        for event in _streamed(connection, _EARLIER):
            self.findings += check_earlier(event, event.namespace, signs)
        self.findings += signs.bodies_in_doubt()


def _streamed(connection: Connection, query: Any) -> Iterator[Row[*tuple[Any, ...]]]:
    yield from connection.execution_options(yield_per=_PAGE).execute(query)


def _in_file(connection: Connection) -> Iterator[Finding]:
    """SQLite looks at each page and each index; PostgreSQL looks after its own."""
    if connection.dialect.name != "sqlite":
        return
    for reply in connection.exec_driver_sql("PRAGMA integrity_check").scalars():
        if reply != "ok":
            yield Finding("file", str(reply))
    for table, row_id, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield Finding("tables", f"row {row_id} of {table} belongs to a row of {parent} that is not there")


def _in_schema(connection: Connection, schema: str | None) -> Iterator[Finding]:
    if schema is None:
        yield Finding("tables", "there are none of ours: the first run makes them")
    elif schema != HEAD:
        what = "`eventsync status` or the next run upgrades it" if is_known(schema) else "a newer version wrote it"
        yield Finding("tables", f"the schema is {schema}, ours is {HEAD}: {what}")
    else:
        yield from (Finding("tables", difference) for difference in differences(connection))


def _same_row_twice(connection: Connection) -> Iterator[Finding]:
    for row in connection.execute(_TWO_OF_ONE_ROW):
        yield Finding("entry", f"the row has {row.times} entries", row.destination, row.feed, row.row_key)


def _same_event_twice(connection: Connection) -> Iterator[Finding]:
    for taken in connection.execute(_TAKEN_TWICE).all():
        same = select(_EVENTS).where(_EVENTS.c.destination == taken.destination, _EVENTS.c.event_id == taken.event_id)
        for row in connection.execute(same):
            problem = f"event {taken.event_id} is another row's too, or stands here twice"
            yield Finding("event", problem, row.destination, row.feed, row.row_key)


def _without_marks(connection: Connection) -> Iterator[Finding]:
    for row in connection.execute(_UNMARKED):
        problem = f"{row.entries} entries are not in the index of duplicates: copies of them would not be held"
        yield Finding("tables", problem, row.destination, row.feed)


def _in_run(run: Row[*tuple[Any, ...]]) -> Iterator[Finding]:
    for name, stored, load in (
        ("rows read", run.read_account, load_read),
        ("rows owed", run.publish_account, load_publish),
    ):
        try:
            off = load(stored).imbalance() if stored else 0
        except ValidationError:
            yield Finding("account", f"the account of {name} cannot be read", run.destination, run.feed, run.id)
            continue
        if off:
            yield Finding("account", f"the {name} do not add up, by {off}", run.destination, run.feed, run.id)
    try:
        _ = run.stage_report and load_report(run.stage_report)
    except ValueError:  # of JSON, or of pydantic
        yield Finding("account", "the report of its stage cannot be read", run.destination, run.feed, run.id)
