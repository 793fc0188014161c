"""What no door of the ledger does: damage, another version's values, and the databases' own housekeeping.

All statements of the tests that name a table or a column of the ledger are here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, Table, delete, func, insert, literal, select, text, update
from sqlalchemy.exc import IntegrityError

from mappings.row_key import RowKey
from state.database import reading, writing
from state.tables import ATTEMPT, BODY, DUPLICATE_MARK, ENTRY, METADATA, OBSERVATION, PROBLEM, RUN, SCOPE

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
ENTRIES = ENTRY.name
"""The table of which every row of a source has a row: that which locks, exports and backups are seen by."""


def put(engine: Engine, key: str, **columns: object) -> None:
    """Write columns of a row's entry."""
    with writing(engine) as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == key).values(**columns))


# Another version's values


def rename_row(engine: Engine, old: str, new: RowKey, fingerprint: str) -> None:
    """Let a row have a key that is longer than ours may be, as version 0.1 took it in. Raises `IntegrityError` if it is taken."""
    with engine.begin() as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == old).values(row_key=new, fingerprint=fingerprint))


def forget_marks(engine: Engine, upto: int = 2**62) -> None:
    """Take the oldest entries out of the index of duplicates."""
    with writing(engine) as connection:
        connection.execute(delete(DUPLICATE_MARK).where(DUPLICATE_MARK.c.entry_id <= upto))


def forget_all_marks(engine: Engine) -> None:
    """Leave the index of duplicates as a version without one does."""
    forget_marks(engine)
    with writing(engine) as connection:
        connection.execute(update(SCOPE).values(marked_id=0))


# Damage, with the findings of `state verify`


def damage_answers(engine: Engine, key: str) -> str:
    """Leave a row's last answer unreadable. Returns what is found."""
    put(engine, key, answer="not json")
    return "the last answer cannot be read"


def give_event(engine: Engine, key: str, event_id: int) -> None:
    """Say that a delivered row has this event. Raises `IntegrityError` if another row of its feed has it."""
    with engine.begin() as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == key).values(event_id=event_id))


def contradict(engine: Engine) -> list[str]:
    """Write what does not go together in rows b to g, and return what is found."""
    put(engine, "b", outcome="moved")
    put(engine, "d", answer="not json")
    with writing(engine) as connection:
        (of_e, of_f) = (connection.execute(select(ENTRY.c.id).where(ENTRY.c.row_key == key)).scalar_one() for key in "ef")
        connection.execute(delete(BODY).where(BODY.c.entry_id == of_e))
        connection.execute(update(BODY).where(BODY.c.entry_id == of_f).values(body=b"[]"))
    return [
        "b body: it has a body, and nothing is pinned",
        "b entry: it is superseded, and no entry has its event",
        "d entry: the last answer cannot be read",
        "e body: it has no body",
        "f body: the pinned body is not the one whose fingerprint is on record",
    ]


def damage_body(engine: Engine, key: str, body: bytes) -> None:
    """Replace what is sent of a row, and not its fingerprint."""
    of_row = select(ENTRY.c.id).where(ENTRY.c.row_key == key).scalar_subquery()
    with writing(engine) as connection:
        connection.execute(update(BODY).where(BODY.c.entry_id == of_row).values(body=body))


def try_nonsense(engine: Engine) -> Iterator[str]:
    """Try to write what means nothing, and yield what the database has taken."""
    for table, columns in (
        (ENTRY, {"outcome": "sideways"}),
        (ENTRY, {"outcome": "owed", "event_id": 7}),
        (ENTRY, {"outcome": "created", "event_id": None}),
        (ENTRY, {"revision": -1}),
        (BODY, {"cover_url": "https://img.example/x"}),
        (ATTEMPT, {"requests": 1, "since": None}),
        (ATTEMPT, {"granted": "leave"}),
        (OBSERVATION, {"kind": "edited", "body": None}),
        (OBSERVATION, {"kind": "gone", "body": None, "fingerprint": None, "rule": "rule 2"}),
        (OBSERVATION, {"candidate_id": 1}),
    ):
        with suppress(IntegrityError), engine.begin() as connection:
            if connection.execute(update(table).values(columns)).rowcount:
                yield f"{table.name}: {columns}"


def damage_run(engine: Engine, run_id: str, **columns: str) -> None:
    """Write the `read_account` and `stage_report` of a run."""
    with writing(engine) as connection:
        connection.execute(update(RUN).where(RUN.c.id == run_id).values(columns))


@contextmanager
def without_a_table(engine: Engine) -> Iterator[str]:
    """Drop a table, and add one that is not ours; all tables go at the end. Yields what is found."""
    with writing(engine) as connection:
        connection.execute(text("DROP TABLE side_by_side"))
        connection.execute(text("CREATE TABLE somebody_elses (id INTEGER)"))
    try:
        yield "table side_by_side is missing"
    finally:
        with writing(engine) as connection:
            connection.execute(text("DROP TABLE somebody_elses"))
            if engine.dialect.name == "postgresql":
                connection.execute(text("DROP SCHEMA public CASCADE; CREATE SCHEMA public"))


def spoil_copies(engine: Engine) -> str:
    """Let the database change each image that it is given. Returns what is found of one image."""
    spoil = "CREATE TRIGGER spoil AFTER INSERT ON media BEGIN UPDATE media SET media_id = 9; END"
    with writing(engine) as connection:
        connection.execute(text(spoil))
    return r"media \(1 rows, then 1\)"


# Another time


def age(engine: Engine) -> None:
    """Let all that was read, sent and met lie years back, and the problems be mended."""
    with writing(engine) as connection:
        connection.execute(update(PROBLEM).values(seen_at=LONG_AGO, listed_run=""))
        connection.execute(update(RUN).values(started_at=LONG_AGO))
        connection.execute(update(ENTRY).values(changed_at=LONG_AGO))


def end_event(engine: Engine, key: str) -> None:
    """Let the event of a row be over."""
    put(engine, key, ends_at=LONG_AGO)


def end_runs(engine: Engine, at: str) -> None:
    """Let all runs have ended then."""
    with writing(engine) as connection:
        connection.execute(update(RUN).values(finished_at=datetime.fromisoformat(at)))


def enter_as_delivered(engine: Engine) -> None:
    """Let every row that still waits have an event of its own, a part at a time: to send a million takes an hour."""
    with reading(engine) as connection:
        last = connection.execute(select(func.coalesce(func.max(ENTRY.c.id), 0))).scalar_one()
    delivered = update(ENTRY).values(outcome="created", event_id=100_000_000 + ENTRY.c.id)
    for begin in range(0, last + 1, 100_000):
        with writing(engine) as connection:
            connection.execute(delivered.where(ENTRY.c.id.between(begin, begin + 99_999), ENTRY.c.outcome == "owed"))


def lose_runs(engine: Engine) -> None:
    """Let all runs have been killed, as the next one writes down."""
    with writing(engine) as connection:
        connection.execute(update(RUN).values(outcome="lost", exit_code=None))


def let_leases_run_out(engine: Engine) -> None:
    """Let more time go by than a lease lives, as far as PostgreSQL knows. Raises `OperationalError` while a run holds a lock."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL lock_timeout = '200ms'"))
        times = ", ".join(f"{name} = {name} - interval '1 hour'" for name in ("heartbeat_at", "expires_at"))
        connection.execute(text(f"UPDATE lease SET {times}"))


def lose_answer(engine: Engine, key: str) -> None:
    """Let the answer to a delivered row have been lost years ago."""
    put(engine, key, outcome="unclear", event_id=None)
    with writing(engine) as connection:
        of_row = select(
            ENTRY.c.id, ENTRY.c.revision, literal(1), literal(False), *[literal(LONG_AGO, ATTEMPT.c.since.type)] * 2, literal(1)
        )
        names = ("entry_id", "revision", "requests", "is_limited", "since", "last_at", "run")
        connection.execute(insert(ATTEMPT).from_select(names, of_row.where(ENTRY.c.row_key == key)))


def move_feeds(engine: Engine, namespace: str, service: str) -> None:
    """Let the feeds of a namespace be another service's."""
    with writing(engine) as connection:
        columns = {"service": service, "destination": f"{service}#{namespace}"}
        connection.execute(update(SCOPE).where(SCOPE.c.namespace == namespace).values(columns))


# The database's own


def call_schema(engine: Engine, revision: str) -> None:
    """Say that the tables are of another version."""
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def count_marks(engine: Engine) -> int:
    """Count the marks in the index of duplicates."""
    with reading(engine) as connection:
        return connection.execute(select(func.count()).select_from(DUPLICATE_MARK)).scalar_one()


def gather_no_statistics(engine: Engine) -> None:
    """Let PostgreSQL know nothing about the tables."""
    with writing(engine) as connection:
        for table in METADATA.sorted_tables:
            connection.execute(text(f"ALTER TABLE {table.name} SET (autovacuum_enabled = off)"))


def call_tables_empty(engine: Engine) -> None:
    """Let PostgreSQL believe that the tables are empty."""
    names = ", ".join(f"'{table.name}'" for table in METADATA.sorted_tables)
    with writing(engine) as connection:
        connection.execute(text(f"UPDATE pg_class SET reltuples = 0, relpages = 1 WHERE relname IN ({names})"))


@contextmanager
def a_stage_that_begins(engine: Engine) -> Iterator[None]:
    """Hold the gate of all feeds, and close it at the end, as the first transaction of a stage does."""
    with writing(engine) as stage:
        stage.execute(select(SCOPE.c.gate).with_for_update())
        yield
        stage.execute(update(SCOPE).values(gate="staging", gate_reason=""))


def times_kept(engine: Engine) -> Iterator[tuple[str, datetime]]:
    """Yield every time of day that is kept, with its column; the times of events are none."""
    columns = [one for table in METADATA.sorted_tables for one in table.columns if one.name.endswith(("_at", "_until"))]
    with reading(engine) as connection:
        for column in columns:
            if column.name != "ends_at":
                found = connection.execute(select(column).where(column.is_not(None))).scalars()
                yield from ((str(column), at) for at in found)


def empty(engine: Engine) -> None:
    """Delete every row of every table; faster than TRUNCATE on PostgreSQL, which makes new files."""
    with writing(engine) as connection:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(delete(table))


def restart_ids(engine: Engine) -> None:
    """Let the ids begin anew."""
    restarts = {
        "postgresql": "SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, 1, false) FROM pg_sequences",
        "sqlite": "DELETE FROM sqlite_sequence",
    }
    with writing(engine) as connection:
        connection.execute(text(restarts[engine.dialect.name]))


Copy = dict[Table, list[dict[str, Any]]]


def copy_of(engine: Engine) -> Copy:
    """Return every row of every table."""
    with reading(engine) as connection:
        return {table: [dict(row._mapping) for row in connection.execute(select(table))] for table in METADATA.sorted_tables}


def put_back(engine: Engine, copy: Copy) -> None:
    """Let the tables have these rows alone."""
    empty(engine)
    with writing(engine) as connection:
        for table, rows in copy.items():
            if rows:
                connection.execute(insert(table), rows)
