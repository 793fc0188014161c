"""Adds permanent decisions: baselines, held rows as entries, removed events; duplicates are found over all feeds of a service.

Delivered bodies become the baselines (NULL in the new columns). Held rows get entries, with the decisions of `row_release`;
their bodies follow with the next read. Destinations are normalised.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog
from alembic import op
from sqlalchemy import Connection

from mappings.delivery import destination_of, split_destination
from mappings.row_key import FeedName, RowKey, idempotency_key
from state.migrations.upgrade import change_rows, run_sql, unpacked
from state.tables import UtcTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_OTHER_STATES = ("pending", "delivered", "delivered_unconfirmed", "refused", "blocked")
_OLD_STATES = "OR state = 'uncertain' OR state = 'conflict'"
_ALL_STATES = f"{_OLD_STATES} OR state = 'held' OR state = 'superseded'"
_REPLACE_STATES = (
    "UPDATE sqlite_master SET sql = replace(replace(sql, ?, ?), 'ck_ledger_entry_ck_', 'ck_') WHERE name = 'ledger_entry'"
)
_KEYS_BY_DESTINATION = {
    "media": "content_digest",
    "media_address": "url",
    "route_pace": "route",
    "service_note": "name",
    "notice_sent": "feed, recipient, cause",
    "backfill": "id",
}
"""Tables with a destination, and the other columns of their primary keys."""
_ENTRY = sa.table("ledger_entry", *map(sa.column, ("id", "scope_id", "body")), sa.column("ends_at", UtcTime()))
_EARLIER = sa.table("earlier_event", *map(sa.column, ("entry_id", "revision", "body")), sa.column("ends_at", UtcTime()))


def upgrade() -> None:
    connection = op.get_bind()
    _allow_new_states(connection)
    run_sql(connection, __file__)
    if connection.dialect.name == "sqlite":
        op.create_index("ix_problem_row_scope_id_kind_row_key", "problem_row", ["scope_id", "kind", "row_key"])
    else:  # a rejected row's key may be longer than a B-tree takes
        op.execute("CREATE INDEX ix_problem_row_scope_id_kind_row_key ON problem_row USING hash (row_key) WHERE kind = 'warning'")
    _normalise_scopes(connection)
    _normalise_destinations(connection)
    _fill_ends(connection)
    _make_entries_of_held_rows(connection)
    # Events that may exist are counted, never too few. The last warnings of each entry stay listed; its digest is emptied, and
    # what lets a read be skipped is forgotten: the next one fills the entries of held rows and says which warnings still hold.
    run_sql(connection, Path(__file__).with_name("0003_what_was_there.sql"))
    _name_what_was_ignored(connection)


def _allow_new_states(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":  # no constraint can be replaced: https://sqlite.org/lang_altertable.html, section 7
        connection.exec_driver_sql("PRAGMA writable_schema = ON")
        connection.exec_driver_sql(_REPLACE_STATES, (_OLD_STATES, _ALL_STATES))
        connection.exec_driver_sql("PRAGMA writable_schema = RESET")
    else:
        op.drop_constraint("ck_ledger_entry_state", "ledger_entry", type_="check")
        others = " OR ".join(f"state = '{state}'" for state in _OTHER_STATES)
        op.create_check_constraint("ck_ledger_entry_state", "ledger_entry", f"{others} {_ALL_STATES}")


def _normalise_scopes(connection: Connection) -> None:
    """Normalise the destinations of scopes. If two spellings of a service had the same namespace and feed, the older one is
    renamed.
    """
    youngest_first = (
        "SELECT scope.id, destination, feed FROM scope LEFT JOIN sync_run ON scope_id = scope.id"
        " GROUP BY scope.id, destination, feed ORDER BY max(started_at) IS NULL, max(started_at) DESC, scope.id"
    )
    scopes = connection.execute(sa.text(youngest_first)).all()
    op.execute("UPDATE scope SET destination = '#' || id || '#' || destination")  # spellings may trade places
    taken: set[tuple[str, str]] = set()
    for scope in scopes:
        address, namespace = split_destination(scope.destination)
        destination = destination_of(address, namespace)
        while (destination, scope.feed) in taken:
            destination += f" (was at {address})"
            problem = "two spellings of one service: the feed's older ledger is kept beside the newer one"
            _warn(problem, feed=scope.feed, kept_as=destination)
        taken.add((destination, scope.feed))
        service, _ = split_destination(destination)
        connection.execute(
            sa.text("UPDATE scope SET destination = :destination, service = :service, namespace = :namespace WHERE id = :id"),
            {"destination": destination, "service": service, "namespace": namespace, "id": scope.id},
        )


def _normalise_destinations(connection: Connection) -> None:
    """Normalise the destinations in other tables; rows that exist under another spelling of the service are deleted."""
    for table, key in _KEYS_BY_DESTINATION.items():
        for old in connection.execute(sa.text(f"SELECT DISTINCT destination FROM {table} ORDER BY 1")).scalars().all():  # noqa: S608 # ours
            address, separator, namespace = old.rpartition("#")
            new = destination_of(address, namespace) if separator else old
            if new != old:
                spelt = {"old": old, "new": new}
                known = f"SELECT {key} FROM {table} WHERE destination = :new"  # noqa: S608 # our own
                connection.execute(sa.text(f"DELETE FROM {table} WHERE destination = :old AND ({key}) IN ({known})"), spelt)  # noqa: S608 # our own
                connection.execute(sa.text(f"UPDATE {table} SET destination = :new WHERE destination = :old"), spelt)  # noqa: S608 # our own


def _fill_ends(connection: Connection) -> None:
    bases = {row.id: row.body_base for row in connection.execute(sa.text("SELECT id, body_base FROM scope"))}

    def end_of(row: sa.Row[Any]) -> datetime | None:
        body = unpacked(bytes(row.body), bases[row.scope_id])
        event = json.loads(body) if body else {}
        try:
            moment = datetime.fromisoformat(event.get("endAt") or event.get("startAt") or "")
        except ValueError:
            return None
        return moment if moment.tzinfo else None

    entries = sa.select(_ENTRY.c.id, _ENTRY.c.body, _ENTRY.c.scope_id)
    change_rows(connection, entries, (_ENTRY.c.id,), _ENTRY.c.ends_at, end_of)
    earlier = sa.select(_EARLIER.c.entry_id, _EARLIER.c.revision, _EARLIER.c.body, _ENTRY.c.scope_id)
    earlier = earlier.join(_ENTRY, _ENTRY.c.id == _EARLIER.c.entry_id)
    change_rows(connection, earlier, (_EARLIER.c.entry_id, _EARLIER.c.revision), _EARLIER.c.ends_at, end_of)


def _make_entries_of_held_rows(connection: Connection) -> None:
    """Create entries for the rows that the last read held, and those with a decision; the next read adds their payloads."""
    decisions = sa.text("SELECT scope_id, row_key, decision, decided_at, decided_by FROM row_release")
    decided = {(row.scope_id, row.row_key): row for row in connection.execute(decisions)}
    held = sa.text(
        "SELECT scope_id, row_key, origin, reasons, first_seen_at FROM problem_row WHERE kind = 'held' AND listed_run ="
        " (SELECT id FROM sync_run WHERE scope_id = problem_row.scope_id AND read_account IS NOT NULL"
        " ORDER BY started_at DESC, id LIMIT 1)"
    )
    listed = {(row.scope_id, row.row_key): row for row in connection.execute(held).all()}
    scopes = {row.id: row for row in connection.execute(sa.text("SELECT id, namespace, feed FROM scope"))}
    find = sa.text("SELECT id FROM ledger_entry WHERE scope_id = :scope AND row_key = :key")
    for scope_id, row_key in sorted({*decided, *listed}):
        if connection.execute(find, {"scope": scope_id, "key": row_key}).first() is not None:
            continue
        problem, decision = listed.get((scope_id, row_key)), decided.get((scope_id, row_key))
        hints = [str(reason.get("hint", "")) for reason in json.loads(problem.reasons if problem is not None else "[]")]
        others = [hint.removeprefix("the other identifier is ") for hint in hints]
        candidates = [connection.execute(find, {"scope": scope_id, "key": other}).scalar() for other in others]
        since = problem.first_seen_at if problem is not None else decision.decided_at if decision is not None else None
        word = None if decision is None else "ignore" if decision.decision == "ignore" else "release"
        values = {
            "scope_id": scope_id,
            "row_key": row_key,
            "state": "held",
            "idempotency_key": idempotency_key(scopes[scope_id].namespace, FeedName(scopes[scope_id].feed), RowKey(row_key)),
            **dict.fromkeys(("revision", "channel_id", "attempts"), 0),
            **dict.fromkeys(("body", "row_digest", "twin_digest"), b""),
            **dict.fromkeys(("fingerprint", "refused_request_id", "denied_request_id", "staged_run", "sent_run"), ""),
            "origin": problem.origin if problem is not None else "",
            **dict.fromkeys(("created_at", "updated_at"), since),
            "decision": word,
            "decided_at": decision.decided_at if decision is not None else None,
            "decided_by": decision.decided_by if decision is not None else None,
            "candidate_id": next((entry for entry in candidates if entry), None),
        }
        connection.execute(sa.table("ledger_entry", *map(sa.column, values)).insert(), values)


def _name_what_was_ignored(connection: Connection) -> None:
    """Report the ignored rows once, which stay ignored: on stderr for people, in the log for runs."""
    ignored = connection.exec_driver_sql(
        "SELECT scope.feed, ledger_entry.row_key FROM ledger_entry JOIN scope ON scope.id = ledger_entry.scope_id"
        " WHERE decision = 'ignore' ORDER BY scope.feed, ledger_entry.id"
    )
    for feed, rows in groupby(ignored.all(), lambda row: row.feed):
        keys = [row.row_key for row in rows]
        what = "the state DB was upgraded; ignored rows stay ignored until they change (`resolve --undo` lists one again)"
        _warn(what, feed=feed, rows=len(keys), first=keys[:20])


def _warn(what: str, **facts: Any) -> None:
    """Log a warning, on stderr if no log is configured, as in a command that only reads."""
    log = structlog.get_logger() if structlog.is_configured() else structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    log.warning(what, **facts)
