"""A ledger that version 0.2 wrote shows, sends and takes back what it did there.

Each of its feeds has lived through one story, and together they have an entry of every kind. The last two are feeds of one
service, whose process was killed in the middle of a drain.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from unit.state.books import decisions
from unit.state.world import Clock, World

from mappings.delivery import Intent
from mappings.row_key import FeedName
from state.enums import Waiting
from state.ledger.choices import Change, Instruction, NotPossibleError, Option
from state.ledger.gate import GateClosedError
from state.ledger.standing import FeedScope, RowRecord
from state.opening import open_database
from state.queries import LedgerQueries, RowFilter
from state.verify import examine

HERE = Path(__file__).parent / "exports"
FEEDS: list[dict[str, Any]] = json.loads(gzip.decompress((HERE / "ledger_of_0_2.json.gz").read_bytes()))
"""What 0.2 makes of each feed: the `rows` that it shows, the requests of its `next_run`, and the rows after its first decision
was `undone`. What is None, "", 0, false or empty is left out.
"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        connection.executescript(gzip.decompress((HERE / "ledger_of_0_2.sql.gz").read_bytes()).decode())
    opened = open_database(f"sqlite:///{tmp_path / 'state.db'}")
    yield opened
    opened.dispose()


def book_of(feed: dict[str, Any]) -> FeedScope:
    return FeedScope(feed["destination"], feed["feed"])


def resumed(engine: Engine, feed: dict[str, Any]) -> World:
    """The feed's world, when the lease of its killed process has run out."""
    clock = Clock(datetime.fromisoformat(feed["now"]) + timedelta(minutes=5))
    return World(engine, clock, FeedName(feed["feed"]), feed["destination"], runs=900)


def said(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def digest(body: bytes | None) -> str:
    return sha256(body).hexdigest()[:16] if body else ""


def shown(engine: Engine, feed: dict[str, Any], later: timedelta = timedelta()) -> dict[str, dict[str, Any]]:
    """Return what is shown of every row of a feed, by its key."""
    queries = LedgerQueries(engine, lambda: datetime.fromisoformat(feed["now"]) + later)
    lists: dict[str, list[str]] = {}
    for kind in Waiting:
        for record in queries.every_row(book_of(feed), RowFilter(waiting=kind)):
            lists.setdefault(record.row_key, []).append(kind.value)
    return {record.row_key: _record(record, lists) for record in queries.every_row(book_of(feed), RowFilter())}


def _record(record: RowRecord, lists: dict[str, list[str]]) -> dict[str, Any]:
    same = ("entry_id", "state", "key", "revision", "event_id", "drift_kind", "decision", "decided_by", "copies", "vanished_by")
    facts = {
        "waits": lists.get(record.row_key),
        "candidate": str(record.candidate or ""),
        "is_vanished": record.vanished_at is not None,
        "is_past": record.past_at is not None,
        "is_removed": record.removed_at is not None,
        "is_unanswered": record.unanswered_at is not None,
        "is_refused": record.is_refused,
        "is_denied": record.is_denied,
        "is_withdrawn": not record.is_asked_for,
        "shown": digest(record.shown),
        "drift_body": digest(record.drift_body),
    }
    return said({name: getattr(record, name) for name in same} | facts)


def requests(world: World) -> list[dict[str, Any]] | str:
    """Return what the next run sends, or the word for a closed gate."""
    try:
        outbox = world.outbox()
    except GateClosedError:
        return "GateClosedError"
    return list(map(_request, outbox.settle_and_claim([], 99)))


def _request(intent: Intent) -> dict[str, Any]:
    denial = {"denied": intent.denial.request_id, "is_resent": intent.denial.is_resent} if intent.denial else {}
    cover = intent.cover.url if intent.cover else ""
    facts: dict[str, Any] = {"row_key": intent.row_key, "key": intent.key, "body": digest(intent.body), "cover": cover}
    facts |= {"refused": intent.refused_request_id, "is_unanswered": intent.is_unanswered, "is_limited": intent.is_limited}
    return said(facts | denial)


HIDDEN = ("a:A | uncertain | --resend a | refused",)
"""Stories in which an attempt without an answer came before a refusal, which 0.2 forgot."""


def as_now(story: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return what is shown now of a row, where it differs from 0.2: the latest thing that its source says counts, an event has
    one request at least, and an entry whose event another one has keeps no body.
    """
    row = {name: row[name] for name in row.keys() - {"is_unanswered"}}
    if row.get("is_vanished") or row.get("is_past"):
        row = {name: row[name] for name in row.keys() - {"drift_kind", "drift_body"}}
        row["waits"] = [kind for kind in row.get("waits", []) if kind != "drift"]
    if row.get("event_id"):
        row["copies"] = row.get("copies", 1)
    if row["state"] == "superseded":
        row |= {"shown": digest(b"{}"), "is_past": None}
    if row["state"] == "delivered" and row.get("decision") == "retry":
        row["decision"] = "retried"
    if not row.get("decision"):
        row["decided_by"] = None
    if story in HIDDEN:
        row |= {"state": "uncertain", "waits": ["uncertain"]}
    return said(row)


def test_every_row_is_shown_as_it_was_and_waits_on_the_same_lists(engine: Engine) -> None:
    assert examine(engine).findings == ()
    for feed in FEEDS:
        now = {
            key: said(
                row
                | {"is_unanswered": None}
                | ({} if row.get("decision") else {"decided_by": None})
                | ({"is_past": None, "is_vanished": None} if row["state"] == "superseded" else {})
            )
            for key, row in shown(engine, feed).items()
        }
        assert now == {key: as_now(feed["story"], row) for key, row in feed["rows"].items()}, feed["story"]


def unmarked(sent: list[dict[str, Any]] | str) -> list[dict[str, Any]] | str:
    """Return requests without the mark of an unanswered attempt, which 0.2 forgot in the cases that `as_now` names."""
    return sent if isinstance(sent, str) else [said(request | {"is_unanswered": None}) for request in sent]


def test_the_next_run_sends_the_same_requests(engine: Engine) -> None:
    for feed in FEEDS:
        sent = unmarked(requests(resumed(engine, feed)))
        if feed["story"] in HIDDEN:
            assert [(request["key"], request["body"]) for request in sent if isinstance(request, dict)] == [
                (row["key"], row["shown"]) for row in feed["rows"].values()
            ], "the same request again"
        else:
            assert sent == unmarked(feed.get("next_run", [])), feed["story"]


TOO_LATE = ("a:A | failed unasked | uncertain | #a | --resend a | paced",)
"""Stories in which a person's `--resend` is used up, though no request has left."""


def undone(row: dict[str, Any]) -> dict[str, Any]:
    """Return what counts of a row whose last decision was taken back; 0.2 kept nothing of the decisions below it."""
    names = {
        "state",
        "revision",
        "event_id",
        "is_vanished",
        "is_past",
        "is_removed",
        "is_refused",
        "is_withdrawn",
        "shown",
        "copies",
    }
    return {name: row[name] for name in row.keys() & names}


def test_a_decision_is_taken_back_to_the_same_entry_or_not_at_all(engine: Engine) -> None:
    for feed in (feed for feed in FEEDS if "undone" in feed):
        world, expected = resumed(engine, feed), feed["undone"]
        others = [one for one in FEEDS if one["destination"] == feed["destination"] and one is not feed]
        try:
            (done,) = decisions(world, *(resumed(engine, other).lease for other in others)).resolve(
                [expected["row_key"]], Instruction(Option.UNDO)
            )
            is_possible = isinstance(done.outcome, Change)
        except NotPossibleError:
            is_possible = False
        assert is_possible >= expected["is_possible"] or feed["story"] in TOO_LATE, feed["story"]
        if is_possible and expected["is_possible"]:
            rows = shown(engine, feed, timedelta(minutes=5))
            assert {key: undone(row) for key, row in rows.items()} == {
                key: undone(as_now(feed["story"], row)) for key, row in expected["rows"].items()
            }, feed["story"]
