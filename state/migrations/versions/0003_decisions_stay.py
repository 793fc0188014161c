"""What people decide stays: baselines, held rows as entries, removed events; duplicates are found over all feeds of a service.

Delivered bodies become the baselines (NULL in the new columns says so). Rows that were held get entries of their own, with the
decisions of `row_release`; their bodies follow with the next read. Destinations are normalised.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import sqlalchemy as sa
import structlog
from alembic import op
from sqlalchemy import Connection

from mappings.delivery import destination_of, split_destination
from mappings.row_key import FeedName, RowKey, idempotency_key
from state.migrations.upgrade import unpacked
from state.tables import BIG_ID, UtcTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_PAGE = 500
_STATES = (
    *("pending", "delivered", "delivered_unconfirmed", "refused", "blocked", "uncertain", "conflict", "held", "superseded"),
)
_IS_STATE = " OR ".join(f"state = '{state}'" for state in _STATES)
_NEW_COLUMNS = (
    ("ends_at", UtcTime(), None),
    ("baseline_body", sa.LargeBinary(), None),
    ("baseline_fingerprint", sa.Text(), None),
    ("ignored_fingerprint", sa.Text(), None),
    ("candidate_id", BIG_ID, None),
    ("removed_at", UtcTime(), None),
    ("vanished_by", sa.Text(), ""),
    ("undo", sa.Text(), None),
    ("copies", sa.Integer(), "0"),
    ("is_limited", sa.Boolean(), sa.false()),
)
"""Name, type, and the default of a column that is never NULL."""
_RESENT = "ix_ledger_entry_resent"
_OF_DESTINATION = {
    "media": "content_digest",
    "media_address": "url",
    "route_pace": "route",
    "route_worker": "route, worker",
    "service_note": "name",
    "notice_sent": "feed, recipient, cause",
    "backfill": "id",
}
"""Tables that name a destination, with what else is in their primary keys."""


def upgrade() -> None:
    connection = op.get_bind()
    _change_scopes(connection)
    op.add_column("earlier_event", sa.Column("ends_at", UtcTime(), nullable=True))
    op.add_column("earlier_event", sa.Column("removed_at", UtcTime(), nullable=True))
    op.add_column("earlier_event", sa.Column("copies", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("sync_run", sa.Column("standing", sa.Text(), nullable=True))
    if connection.dialect.name == "sqlite":
        _rebuild_entries(connection)
    else:
        for name, kind, default in _NEW_COLUMNS:
            op.add_column("ledger_entry", sa.Column(name, kind, nullable=default is None, server_default=default))
        op.drop_constraint("ck_ledger_entry_state", "ledger_entry", type_="check")
        op.create_check_constraint("ck_ledger_entry_state", "ledger_entry", _IS_STATE)
        where = sa.text("removed_at IS NOT NULL")
        op.create_index("ix_ledger_entry_removed", "ledger_entry", ["scope_id", "removed_at"], postgresql_where=where)
    _count_copies(connection)
    if connection.dialect.name == "sqlite":
        op.create_index("ix_problem_row_scope_id_kind_row_key", "problem_row", ["scope_id", "kind", "row_key"])
    else:  # a rejected row's key may be longer than a B-tree takes
        op.execute("CREATE INDEX ix_problem_row_scope_id_kind_row_key ON problem_row USING hash (row_key) WHERE kind = 'warning'")
    op.create_table(
        "side_by_side",
        sa.Column("scope_id", BIG_ID, nullable=False),
        sa.Column("other_id", BIG_ID, nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scope.id"], name="fk_side_by_side_scope_id_scope"),
        sa.ForeignKeyConstraint(["other_id"], ["scope.id"], name="fk_side_by_side_other_id_scope"),
        sa.PrimaryKeyConstraint("scope_id", "other_id", name="pk_side_by_side"),
    )
    _say_when_events_end(connection)
    _make_entries_of_held_rows(connection)
    _keep_what_was_ignored(connection)
    _keep_warnings(connection)
    _mark_duplicates()
    _read_all_anew(connection)


def _change_scopes(connection: Connection) -> None:
    """Normalise destinations. Where two spellings of one service had the same namespace and feed, the older one is renamed."""
    for name in ("service", "namespace", "key_definition", "stopped_by"):
        op.add_column("scope", sa.Column(name, sa.Text(), nullable=False, server_default=""))
    op.add_column("scope", sa.Column("whole_read_at", UtcTime(), nullable=True))
    op.create_index("ix_scope_service", "scope", ["service"])
    youngest_first = (
        "SELECT scope.id, destination, feed FROM scope LEFT JOIN sync_run ON scope_id = scope.id"
        " GROUP BY scope.id, destination, feed ORDER BY max(started_at) IS NULL, max(started_at) DESC, scope.id"
    )
    scopes = connection.execute(sa.text(youngest_first)).all()
    connection.execute(sa.text("UPDATE scope SET destination = '#' || id || '#' || destination"))  # spellings may trade places
    taken: set[tuple[str, str]] = set()
    for scope in scopes:
        address, namespace = split_destination(scope.destination)
        destination = destination_of(address, namespace)
        while (destination, scope.feed) in taken:
            destination += f" (was at {address})"
            _warn(
                "two spellings of one service: the feed's older ledger is kept beside the newer one",
                feed=scope.feed,
                kept_as=destination,
            )
        taken.add((destination, scope.feed))
        service, _ = split_destination(destination)
        connection.execute(
            sa.text("UPDATE scope SET destination = :destination, service = :service, namespace = :namespace WHERE id = :id"),
            {"destination": destination, "service": service, "namespace": namespace, "id": scope.id},
        )
    connection.exec_driver_sql(
        "UPDATE scope SET whole_read_at = (SELECT max(started_at) FROM sync_run WHERE sync_run.scope_id = scope.id AND is_whole"
        " AND brakes = '[]' AND stage_report IS NOT NULL) WHERE last_whole_read IS NOT NULL"
    )
    _normalise_other_tables(connection)


def _normalise_other_tables(connection: Connection) -> None:
    """Rename destinations elsewhere; what another spelling of the same service knows too is dropped."""
    for table, key in _OF_DESTINATION.items():
        names = connection.execute(sa.text(f"SELECT DISTINCT destination FROM {table} ORDER BY 1")).scalars().all()  # noqa: S608 # our own
        for old in names:
            address, separator, namespace = old.rpartition("#")
            new = destination_of(address, namespace) if separator else old
            if new == old:
                continue
            spelt = {"old": old, "new": new}
            known = f"SELECT {key} FROM {table} WHERE destination = :new"  # noqa: S608 # our own
            connection.execute(sa.text(f"DELETE FROM {table} WHERE destination = :old AND ({key}) IN ({known})"), spelt)  # noqa: S608 # our own
            connection.execute(sa.text(f"UPDATE {table} SET destination = :new WHERE destination = :old"), spelt)  # noqa: S608 # our own


def _rebuild_entries(connection: Connection) -> None:
    """Make `ledger_entry` anew with its new columns and states: SQLite changes no constraint in place."""
    old = [row[1] for row in connection.exec_driver_sql("PRAGMA table_info(ledger_entry)")]
    earlier = [row[1] for row in connection.exec_driver_sql("PRAGMA table_info(earlier_event)")]
    indexes = connection.exec_driver_sql(
        "SELECT sql FROM sqlite_master WHERE tbl_name IN ('ledger_entry', 'earlier_event') AND type = 'index' AND sql IS NOT NULL"
    ).scalars().all()  # fmt: skip
    made = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = 'earlier_event'").scalar_one()
    reflected = sa.Table("ledger_entry", sa.MetaData(), autoload_with=connection)
    kinds = {"created_at", "updated_at", "unanswered_at", "vanished_at", "past_at", "decided_at"}
    columns = [
        sa.Column(
            column.name,
            BIG_ID if column.name == "id" else UtcTime() if column.name in kinds else column.type,
            nullable=column.nullable,
            server_default=column.server_default,
            autoincrement=column.name == "id",
        )
        for column in reflected.columns
    ]
    op.create_table(
        "entry_anew",
        *columns,
        *(sa.Column(name, kind, nullable=default is None, server_default=default) for name, kind, default in _NEW_COLUMNS),
        sa.CheckConstraint(_IS_STATE, name=op.f("ck_ledger_entry_state")),
        sa.ForeignKeyConstraint(["scope_id"], ["scope.id"], name="fk_ledger_entry_scope_id_scope"),
        sa.PrimaryKeyConstraint("id", name="pk_ledger_entry"),
        sa.UniqueConstraint("scope_id", "row_key", name="uq_ledger_entry_scope_id_row_key"),
        sqlite_autoincrement=True,
    )
    run = connection.exec_driver_sql
    run(f"INSERT INTO entry_anew ({', '.join(old)}) SELECT {', '.join(old)} FROM ledger_entry ORDER BY id")  # noqa: S608 # our own
    # An id is never used twice: the highest one that there ever was goes along.
    run("DELETE FROM sqlite_sequence WHERE name = 'entry_anew'")
    run("INSERT INTO sqlite_sequence SELECT 'entry_anew', seq FROM sqlite_sequence WHERE name = 'ledger_entry'")
    run(f"CREATE TEMP TABLE earlier_before AS SELECT {', '.join(earlier)} FROM earlier_event")  # noqa: S608 # our own
    run("DROP TABLE earlier_event")  # before the table that it refers to
    run("DROP TABLE ledger_entry")
    run("ALTER TABLE entry_anew RENAME TO ledger_entry")
    run(made)
    run(f"INSERT INTO earlier_event ({', '.join(earlier)}) SELECT {', '.join(earlier)} FROM earlier_before")  # noqa: S608 # our own
    run("DROP TABLE earlier_before")
    for index in indexes:
        run(index)
    where = sa.text("removed_at IS NOT NULL")
    op.create_index("ix_ledger_entry_removed", "ledger_entry", ["scope_id", "removed_at"], sqlite_where=where)


def _count_copies(connection: Connection) -> None:
    """Count the attempts that may have created an event, from what the columns before said of them: never too few."""
    run = connection.exec_driver_sql
    run(
        "UPDATE ledger_entry SET copies = CASE"
        " WHEN resent_run IS NOT NULL THEN CASE WHEN attempts > 2 THEN attempts ELSE 2 END"
        " WHEN unanswered_at IS NOT NULL THEN CASE WHEN attempts > 1 THEN attempts ELSE 1 END"
        " WHEN state IN ('delivered', 'delivered_unconfirmed') THEN 1 ELSE 0 END"
    )
    run("UPDATE earlier_event SET copies = 1")
    op.drop_index(_RESENT, "ledger_entry")
    op.drop_column("ledger_entry", "resent_run")
    where = sa.text("copies > 1")
    op.create_index("ix_ledger_entry_copies", "ledger_entry", ["scope_id", "copies"], sqlite_where=where, postgresql_where=where)


def _keep_what_was_ignored(connection: Connection) -> None:
    """What a person ignored stays ignored, and is named once: to a person on stderr, to a run in its log."""
    run = connection.exec_driver_sql
    run(
        "UPDATE ledger_entry SET ignored_fingerprint = coalesce(drift_fingerprint, fingerprint)"
        " WHERE decision = 'ignore' AND state <> 'held'"
    )
    ignored = run(
        "SELECT scope.feed, ledger_entry.row_key FROM ledger_entry JOIN scope ON scope.id = ledger_entry.scope_id"
        " WHERE decision = 'ignore' ORDER BY scope.feed, ledger_entry.id"
    ).all()
    feeds: dict[str, list[str]] = {}
    for feed, row_key in ignored:
        feeds.setdefault(feed, []).append(row_key)
    for feed, keys in feeds.items():
        _warn(
            "the state DB was upgraded; rows that were ignored stay ignored until they change (`resolve --undo` lists one again)",
            feed=feed,
            rows=len(keys),
            first=keys[:20],
        )


def _keep_warnings(connection: Connection) -> None:
    """Keep the last warnings of each entry listed; its digest is emptied, so that the next read says which of them still hold."""
    run = connection.exec_driver_sql
    last = (
        "SELECT run_id FROM problem_row AS other WHERE other.scope_id = problem_row.scope_id AND other.kind = 'warning'"
        " AND other.row_key = problem_row.row_key ORDER BY other.seen_at DESC, other.id DESC LIMIT 1"
    )
    run(f"UPDATE problem_row SET listed_run = CASE WHEN run_id = ({last}) THEN run_id ELSE '' END WHERE kind = 'warning'")  # noqa: S608 # our own
    is_warned = (
        "SELECT 1 FROM problem_row WHERE problem_row.scope_id = ledger_entry.scope_id AND kind = 'warning'"
        " AND problem_row.row_key = ledger_entry.row_key"
    )
    connection.execute(
        sa.text(f"UPDATE ledger_entry SET row_digest = :none WHERE EXISTS ({is_warned})").bindparams(  # noqa: S608 # our own
            sa.bindparam("none", b"", sa.LargeBinary())
        )
    )


def _read_all_anew(connection: Connection) -> None:
    """Forget what lets a read be skipped or cut short: the next one fills the entries of held rows and renews the warnings."""
    connection.exec_driver_sql("UPDATE scope SET stamp = '', cursor = ''")
    connection.exec_driver_sql("DELETE FROM record_memory")


def _say_when_events_end(connection: Connection) -> None:
    bases: dict[int, bytes | None] = dict(connection.exec_driver_sql("SELECT id, body_base FROM scope").all())
    entries = "SELECT id, body, scope_id FROM ledger_entry WHERE id > :id ORDER BY id"
    _put_ends(connection, bases, entries, "UPDATE ledger_entry SET ends_at = :ends WHERE id = :id", {"id": 0})
    earlier = (
        "SELECT entry_id, one.revision, one.body, scope_id FROM earlier_event AS one"
        " JOIN ledger_entry ON ledger_entry.id = entry_id WHERE (entry_id, one.revision) > (:entry_id, :revision)"
        " ORDER BY entry_id, one.revision"
    )
    put = "UPDATE earlier_event SET ends_at = :ends WHERE entry_id = :entry_id AND revision = :revision"
    _put_ends(connection, bases, earlier, put, {"entry_id": 0, "revision": -1})


def _put_ends(
    connection: Connection, bases: dict[int, bytes | None], page: str, put: str, after: dict[str, int]
) -> None:  # fmt: skip
    update = sa.text(put).bindparams(sa.bindparam("ends", type_=UtcTime()))
    while rows := connection.execute(sa.text(f"{page} LIMIT {_PAGE}"), after).all():
        keys = [{name: getattr(row, name) for name in after} for row in rows]
        ends = [{"ends": _ends_at(unpacked(bytes(row.body), bases[row.scope_id]))} for row in rows]
        connection.execute(update, [{**key, **end} for key, end in zip(keys, ends, strict=True)])
        after = keys[-1]


def _make_entries_of_held_rows(connection: Connection) -> None:
    """Rows that the last read held, and those that a person decided on, get entries; what they ask for follows with a read."""
    run = connection.execute
    decided = {
        (row.scope_id, row.row_key): row
        for row in run(sa.text("SELECT scope_id, row_key, decision, decided_at, decided_by FROM row_release"))
    }
    last = (
        "(SELECT id FROM sync_run WHERE scope_id = problem_row.scope_id AND read_account IS NOT NULL"
        " ORDER BY started_at DESC, id LIMIT 1)"
    )
    named = "SELECT scope_id, row_key, origin, reasons, first_seen_at FROM problem_row WHERE kind = 'held'"
    held = run(sa.text(f"{named} AND listed_run = {last}")).all()
    listed = {(row.scope_id, row.row_key): row for row in held}
    for which in sorted({*decided, *listed}):
        _make_entry(connection, which, listed.get(which), decided.get(which))
    run(sa.text("DELETE FROM problem_row WHERE kind = 'held' AND listed_run = ''"))
    op.drop_table("row_release")


def _make_entry(
    connection: Connection, which: tuple[int, str], problem: sa.Row[Any] | None, decided: sa.Row[Any] | None
) -> None:  # fmt: skip
    scope_id, row_key = which
    found = sa.text("SELECT id FROM ledger_entry WHERE scope_id = :scope AND row_key = :key")
    if connection.execute(found, {"scope": scope_id, "key": row_key}).first() is not None:
        return
    scope = connection.execute(sa.text("SELECT namespace, feed FROM scope WHERE id = :scope"), {"scope": scope_id}).one()
    candidate = None
    for other in _others(problem.reasons if problem is not None else "[]"):
        candidate = candidate or connection.execute(found, {"scope": scope_id, "key": other}).scalar()
    word = None if decided is None else "ignore" if decided.decision == "ignore" else "release"
    new = sa.text(
        "INSERT INTO ledger_entry (scope_id, row_key, state, idempotency_key, revision, body, fingerprint, row_digest,"
        " twin_digest, channel_id, attempts, refused_request_id, denied_request_id, origin, staged_run, sent_run, created_at,"
        " updated_at, decision, decided_at, decided_by, candidate_id, vanished_by)"
        " VALUES (:scope, :key, 'held', :header, 0, :none, '', :none, :none, 0, 0, '', '', :origin, '', '', :since, :since,"
        " :word, :at, :by, :candidate, '')"
    ).bindparams(sa.bindparam("none", b"", sa.LargeBinary()))
    connection.execute(
        new,
        {
            "scope": scope_id,
            "key": row_key,
            "header": idempotency_key(scope.namespace, FeedName(scope.feed), RowKey(row_key)),
            "origin": problem.origin if problem is not None else "",
            "since": problem.first_seen_at if problem is not None else decided.decided_at if decided is not None else None,
            "word": word,
            "at": decided.decided_at if decided is not None else None,
            "by": decided.decided_by if decided is not None else None,
            "candidate": candidate,
        },
    )


def _warn(what: str, **facts: Any) -> None:
    """Log it; on stderr where no log is set up, as in a command that only looks."""
    log = structlog.get_logger() if structlog.is_configured() else structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    log.warning(what, **facts)


def _others(reasons: str) -> Iterable[str]:
    """Yield the keys that a held row was said to resemble."""
    for reason in json.loads(reasons):
        yield str(reason.get("hint", "")).removeprefix("the other identifier is ")


def _mark_duplicates() -> None:
    op.drop_table("twin_mark")
    op.create_table(
        "duplicate_mark",
        sa.Column("mark", sa.LargeBinary(), nullable=False),
        sa.Column("entry_id", BIG_ID, nullable=False),
        sa.PrimaryKeyConstraint("mark", "entry_id", name="pk_duplicate_mark"),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO duplicate_mark (mark, entry_id) SELECT substr(twin_digest, 1, 8), id FROM ledger_entry"
        " WHERE state <> 'held' ORDER BY 1, 2"
    )
    op.execute("UPDATE scope SET marked_id = coalesce((SELECT max(id) FROM ledger_entry WHERE scope_id = scope.id), 0)")


def _ends_at(body: bytes) -> datetime | None:
    event = json.loads(body) if body else {}
    try:
        moment = datetime.fromisoformat(event.get("endAt") or event.get("startAt") or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else None
