"""Turns the entries of 0.2 into facts: entries, bodies, attempts, observations and decisions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Connection

from mappings.reasons import ReasonCode
from mappings.row_key import FeedName, RowKey, fingerprint, idempotency_key
from state.errors import StateDamagedError
from state.migrations.upgrade import allow_long_keys, run_sql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_OUTCOMES = {
    "pending": "owed",
    "delivered": "created",
    "delivered_unconfirmed": "used",
    "blocked": "denied",
    "uncertain": "unclear",
    "superseded": "moved",
}
_OPTIONS = {"retried": "retry", "resent": "resend"}
_NEXT_KEY = ("conflict", "used", "removed")
"""Outcomes of which a person sends a row again under the next key, without a grant."""
_DECIDED = sa.text(
    "SELECT * FROM ledger_entry WHERE decision IS NOT NULL OR ignored_fingerprint IS NOT NULL OR removed_at IS NOT NULL"
    " ORDER BY id"
)
_DECISION = sa.table(
    "decision",
    *map(sa.column, ("entry_id", "option", "decided_by", "decided_at", "wish", "outcome", "revision", "event_id")),
    *map(sa.column, ("body", "fingerprint", "answer", "other_id")),
)
_GIVER = "SELECT max(id) FROM ledger_entry WHERE candidate_id = :entry AND state = 'superseded'"
_GRANT = "UPDATE attempt SET granted = :granted WHERE entry_id = :entry AND revision = :revision"
_NEW_GRANT = (
    "INSERT INTO attempt (entry_id, revision, requests, is_limited, granted, last_at, run)"
    " SELECT id, revision, 0, false, :granted, changed_at, coalesce(sent_run, staged_run) FROM entry WHERE id = :entry"
)


def upgrade() -> None:
    connection = op.get_bind()
    _refuse_taken_events(connection)
    _check_keys(connection)
    run_sql(connection, __file__)
    if connection.execute(sa.text("SELECT 1 FROM ledger_entry WHERE length(row_key) > 500 LIMIT 1")).first() is not None:
        allow_long_keys(connection)
    run_sql(connection, Path(__file__).with_name("0007_what_was_there.sql"))
    _continue_ids(connection)
    _fill_fingerprints(connection)
    for row in connection.execute(_DECIDED).all():
        _write_decisions(connection, row)
    _keep_what_was_vanished(connection)
    _warn_of_earlier_events(connection)
    for table in ("earlier_event", "known_as", "ledger_entry"):
        op.drop_table(table)


def _refuse_taken_events(connection: Connection) -> None:
    taken = (
        "SELECT feed, event_id FROM ledger_entry JOIN scope ON scope.id = scope_id WHERE event_id IS NOT NULL"
        " GROUP BY scope_id, feed, event_id HAVING count(*) > 1 ORDER BY feed, event_id"
    )
    if events := [f"{row.event_id} of {row.feed}" for row in connection.execute(sa.text(taken))]:
        raise StateDamagedError(
            f"several rows have the same event: {', '.join(events)}",
            hint="with version 0.2, look which row's event it is (`eventsync state verify`), and correct the others",
        )


def _check_keys(connection: Connection) -> None:
    """Check that all idempotency keys follow from row keys and revisions, as they are not stored any more."""
    columns = "namespace, feed, row_key, revision, idempotency_key"
    entries = sa.text(f"SELECT {columns} FROM ledger_entry JOIN scope ON scope.id = scope_id")  # noqa: S608 # our own
    for row in connection.execute(entries, execution_options={"yield_per": 1_000}):
        due = idempotency_key(row.namespace, FeedName(row.feed), RowKey(row.row_key), revision=row.revision)
        if row.idempotency_key != due:
            raise StateDamagedError(
                f"the key of row {row.row_key} of {row.feed} is {row.idempotency_key}, and should be {due}",
                hint="restore the state DB from a backup",
            )


def _continue_ids(connection: Connection) -> None:
    """Let the ids of entries go on after all that were ever given."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("DELETE FROM sqlite_sequence WHERE name = 'entry'")
        given = "SELECT 'entry', seq FROM sqlite_sequence WHERE name = 'ledger_entry'"
        connection.exec_driver_sql(f"INSERT INTO sqlite_sequence (name, seq) {given}")
    else:
        sequence = connection.exec_driver_sql("SELECT pg_get_serial_sequence('ledger_entry', 'id')").scalar_one()
        given = f"SELECT setval(pg_get_serial_sequence('entry', 'id'), last_value, is_called) FROM {sequence}"  # noqa: S608 # ours
        connection.exec_driver_sql(given)


def _fill_fingerprints(connection: Connection) -> None:
    """Fill in the fingerprints of refused rows that their source has withdrawn, which 0.2 emptied."""
    withdrawn = "SELECT id, body, cover_url FROM entry JOIN body ON entry_id = id WHERE outcome = 'idle'"
    put = sa.text("UPDATE entry SET fingerprint = :fingerprint WHERE id = :entry")
    for row in connection.execute(sa.text(withdrawn)).all():
        connection.execute(put, {"entry": row.id, "fingerprint": fingerprint(bytes(row.body), row.cover_url or "")})


def _write_decisions(connection: Connection, row: sa.Row[Any]) -> None:
    """Write the last decision about an entry, and below it those that still count: its removal, and what was ignored last."""
    undo: dict[str, Any] = json.loads(row.undo) if row.undo else {"before": {}, "decision": None}
    now, before = dict(row._mapping), undo["before"]  # noqa: SLF001 # a public attribute
    shared = {"entry_id": row.id, "decided_by": row.decided_by or "", "decided_at": row.decided_at or row.updated_at}
    present = {"outcome": _outcome_of(now), "revision": row.revision, "event_id": row.event_id}
    former = {**present, **_former(now, before)}
    others: dict[str, Any] = dict.fromkeys(("body", "fingerprint", "answer", "other_id"))
    if row.removed_at is not None and row.decision != "removed":
        removal = {"option": "removed", "decided_at": row.removed_at, "wish": _wish_of(now), **present}
        connection.execute(_DECISION.insert(), shared | others | removal)
    is_ignored_before = row.decision != "ignore" and (row.decision is not None or row.ignored_fingerprint != _wish_of(now))
    if row.ignored_fingerprint is not None and is_ignored_before:
        ignored = {"option": "ignore", "wish": row.ignored_fingerprint, **(former if undo["decision"] == "ignore" else present)}
        connection.execute(_DECISION.insert(), shared | others | ignored)
    if row.decision is None:
        return
    option = _OPTIONS.get(row.decision, row.decision)
    if option == "same_as":
        others["other_id"] = undo.get("adopted_id") or connection.execute(sa.text(_GIVER), {"entry": row.id}).scalar()
        option = option if others["other_id"] else "event_id"
    elif option == "release":
        others["other_id"] = before.get("candidate_id")
    if option in ("event_id", "reconciled", "same_as"):
        others["answer"] = before.get("answer")
    last = {"option": option, "wish": _wish_of(now if option == "ignore" else {**now, **before}), **former}
    connection.execute(_DECISION.insert(), shared | others | last | _replaced(now, before, option))
    is_open = row.state == "pending" or (row.decision == "retry" and row.state == "uncertain")
    if is_open and row.decision in ("retry", "resend") and former["outcome"] not in _NEXT_KEY:
        grant = {"granted": row.decision, "entry": row.id, "revision": row.revision}
        if not connection.execute(sa.text(_GRANT), grant).rowcount:
            connection.execute(sa.text(_NEW_GRANT), grant)


def _keep_what_was_vanished(connection: Connection) -> None:
    """Let the row of an event that was moved be vanished, as it was before, and not gone: its event may be given back."""
    moved = sa.text("SELECT id, undo FROM ledger_entry WHERE state = 'superseded' AND undo IS NOT NULL")
    vanished = sa.text("UPDATE observation SET kind = 'vanished', rule = :rule WHERE entry_id = :entry AND kind = 'gone'")
    for row in connection.execute(moved).all():
        before = json.loads(row.undo)["before"]
        if before.get("vanished_at") and not before.get("past_at"):
            connection.execute(vanished, {"entry": row.id, "rule": before.get("vanished_by") or None})


def _former(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what differed before the last decision. Without a record of it, 0.2 could not take the decision back: then it is
    what is safe, and shows nothing as sent that may not have been.
    """
    if before:
        known = {name: before[name] for name in ("revision", "event_id") if name in before}
        return {"outcome": _outcome_of({**now, **before}), **known}
    match now["decision"]:
        case "reconciled":
            return {"outcome": "used", "event_id": None}
        case "same_as":
            return {"outcome": "held", "event_id": None}
        case "removed":
            return {"outcome": "used" if now["event_id"] is None else "created"}
        case "retry" | "retried" if now["state"] == "pending":
            return {"outcome": "refused" if now["refused_request_id"] else "denied" if now["denied_request_id"] else "owed"}
    return {}


def _outcome_of(columns: Mapping[str, Any]) -> str:
    state = columns["state"]
    if columns["removed_at"] is not None and state in ("delivered", "delivered_unconfirmed"):
        return "removed"
    return "idle" if state == "refused" and not columns["fingerprint"] else _OUTCOMES.get(state, state)


def _wish_of(columns: Mapping[str, Any]) -> str:
    """Return what the source said, as a decision records it."""
    if columns["state"] == "held":
        return "held"
    if columns["past_at"] is None and columns["vanished_at"] is not None:
        return "vanished"
    asked = columns["drift_fingerprint"] if columns["past_at"] is None else None
    return str(asked or columns["baseline_fingerprint"] or columns["fingerprint"])


def _replaced(now: Mapping[str, Any], before: Mapping[str, Any], option: str) -> dict[str, Any]:
    """Return the body that a decision replaced, with its fingerprint."""
    then = {**now, **before}
    is_created_again = option == "resend" and before.get("removed_at") is not None
    is_shown_anew = now["baseline_body"] is not None and (option == "applied" or "baseline_body" in before)
    if not (is_created_again or is_shown_anew):
        return {}
    name = "body" if then["baseline_body"] is None or then["baseline_body"] == now["baseline_body"] else "baseline_body"
    body = then[name]
    return {
        "body": body.encode() if isinstance(body, str) else body,
        "fingerprint": then["fingerprint" if name == "body" else "baseline_fingerprint"],
    }


def _warn_of_earlier_events(connection: Connection) -> None:
    """List the events that a draft of a changed row was to replace, and that are still at the service."""
    left = (
        "SELECT entry.scope_id, row_key, origin, earlier_event.event_id, changed_at,"
        " coalesce((SELECT max(id) FROM sync_run WHERE number = staged_run), 'upgrade') AS run_id"
        " FROM earlier_event JOIN entry ON entry.id = entry_id"
        " WHERE earlier_event.event_id IS NOT NULL AND earlier_event.removed_at IS NULL ORDER BY entry_id, earlier_event.revision"
    )
    events = defaultdict[tuple[int, str], list[sa.Row[Any]]](list)
    for row in connection.execute(sa.text(left)):
        events[row.scope_id, row.row_key].append(row)
    problems = list(map(_warning, events.values()))
    if problems:
        connection.execute(sa.table("problem_row", *map(sa.column, problems[0])).insert(), problems)


def _warning(events: list[sa.Row[Any]]) -> dict[str, object]:
    row, ids = events[0], ", ".join(str(event.event_id) for event in events)
    hint = f"earlier event {ids}: remove it by hand" if len(events) == 1 else f"earlier events {ids}: remove them by hand"
    reasons = json.dumps([{"code": ReasonCode.TWIN.value, "field": "", "column": "", "found": "", "hint": hint}])
    content = f"warning\x1f{row.row_key}\x1f{row.origin}\x1f{reasons}\x1f{{}}"
    words = {"scope_id": row.scope_id, "kind": "warning", "row_key": row.row_key, "origin": row.origin, "reasons": reasons}
    seen = {"run_id": row.run_id, "listed_run": row.run_id, "first_seen_at": row.changed_at, "seen_at": row.changed_at}
    return {**words, **seen, "cells": "{}", "digest": blake2b(content.encode(), digest_size=16).digest()}
