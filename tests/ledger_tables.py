"""What no door of the ledger does: damage, another version's values, and the databases' own housekeeping.

All statements of the tests that name a table or a column of the ledger are here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, Table, delete, func, insert, select, text, update

from mappings.row_key import IdempotencyKey, RowKey
from state.database import reading, writing
from state.tables import DUPLICATE_MARK, ENTRY, METADATA, PROBLEM, RUN, SCOPE

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
ENTRIES = ENTRY.name
"""The table of which every row of a source has a row: that which locks, exports and backups are seen by."""


def put(engine: Engine, key: str, **columns: object) -> None:
    """Write columns of a row's entry."""
    with writing(engine) as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == key).values(**columns))


# Another version's values


def rename_row(engine: Engine, old: str, new: RowKey, key: IdempotencyKey, fingerprint: str) -> None:
    """Let a row have a key that is longer than ours may be, as version 0.1 took it in. Raises `IntegrityError` if it is taken."""
    columns = {"row_key": new, "idempotency_key": key, "fingerprint": fingerprint}
    with engine.begin() as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == old).values(columns))


def hold_without_a_body(engine: Engine, key: str) -> None:
    """Leave a held row as an upgrade from 0.1 does."""
    put(engine, key, body=b"", fingerprint="", row_digest=b"")


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


def damage_key(engine: Engine, key: str) -> None:
    """Give a row a key that is not its own."""
    put(engine, key, idempotency_key="es2-0")


def give_event(engine: Engine, key: str, event_id: int | None = None) -> None:
    """Say that a delivered row has this event, or none."""
    put(engine, key, event_id=event_id)


def contradict(engine: Engine, entry_of_d: int) -> list[str]:
    """Write columns that do not go together or mean nothing in the rows a to g, and return what is found."""
    put(engine, "a", state="held", attempts=2)
    put(engine, "b", state="superseded", candidate_id=entry_of_d)
    put(engine, "c", state="superseded", candidate_id=999)
    put(engine, "d", baseline_fingerprint="0" * 32, answer="not json", event_id=None)
    put(engine, "e", state="held", attempts=0, event_id=77)
    put(engine, "f", baseline_body=b"[]", baseline_fingerprint="1" * 32, drift_kind="sideways", attempts=-1)
    put(engine, "g", baseline_body=b'{"title":"x"}', baseline_fingerprint="1" * 32)
    return [
        "a entry: it is held, and counts 2 attempts",
        "c entry: it is superseded, and no entry has its event",
        "d entry: its baseline has a body or a fingerprint, and not both",
        "d entry: the last answer cannot be read",
        "d event: it is delivered, and has no event id",
        "e entry: it is held, and has event 77",
        "f body: the baseline is no JSON object",
        "f entry: it counts -1 attempts",
        "f entry: its drift is 'sideways', which is not a known value",
        "g body: the baseline is not the one whose fingerprint is on record",
    ]


def damage_body(engine: Engine, key: str, body: bytes) -> None:
    """Replace what is sent of a row, and not its fingerprint."""
    put(engine, key, body=body)


def damage_held_body(engine: Engine, key: str) -> None:
    """Let a row be held with a body whose fingerprint is another's."""
    put(engine, key, state="held", body=b"{}", fingerprint="0" * 32, attempts=0, event_id=None)


def write_nonsense(engine: Engine, key: str) -> None:
    """Try to write a state that no entry can have. Raises `IntegrityError`."""
    with engine.begin() as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == key).values(state="sideways"))


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
        connection.execute(update(ENTRY).values(updated_at=LONG_AGO))


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
    delivered = update(ENTRY).values(state="delivered", event_id=100_000_000 + ENTRY.c.id, attempts=1)
    for begin in range(0, last + 1, 100_000):
        with writing(engine) as connection:
            connection.execute(delivered.where(ENTRY.c.id.between(begin, begin + 99_999), ENTRY.c.state == "pending"))


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
    put(engine, key, state="uncertain", event_id=None, unanswered_at=LONG_AGO)


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
    """Let PostgreSQL's ids begin anew."""
    sequences = "SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, 1, false) FROM pg_sequences"
    with writing(engine) as connection:
        connection.execute(text(sequences))


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
