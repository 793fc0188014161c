"""What must be true after any number of blows, asked of the service's events and log, the ledger, and the books of past runs."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from integration.desk import Desk
from integration.service import Service
from sqlalchemy import select
from torture.programme import Programme

from state.ledger.accounts import PublishAccount, ReadAccount
from state.tables import ENTRY

UNDER_WAY_S = 2.0
"""So long after a request of the same key and body, a 409 is that request's own: the service was still at work on it."""
_NUMBER = re.compile(r"Evening (\d+)")
_AT_MOST = 10


def broken_so_far(service: Service, programme: Programme) -> list[str]:
    """The promises that hold at every moment, and do not hold now; each in a sentence."""
    events, requests = service.events(), service.requests()
    return _few([*_twice(events), *_never_said(events, programme), *_two_bodies(requests), *_unexplained(requests)])


def broken_at_the_end(desk: Desk, service: Service, programme: Programme) -> list[str]:
    """The same for a feed that says it is done: nothing is lost, and ledger, service and books agree."""
    events = service.events()
    return _few(
        [
            *broken_so_far(service, programme),
            *_lost(events, programme),
            *_disagreeing(desk, events, programme),
            *_untidy_runs(desk),
        ]
    )


def _few(broken: list[str]) -> list[str]:
    rest = len(broken) - _AT_MOST
    return broken if rest <= 0 else [*broken[:_AT_MOST], f"and {rest} more"]


def _number(event: dict[str, Any]) -> int:
    found = _NUMBER.search(event["title"])
    return int(found[1]) if found else -1


def _twice(events: list[dict[str, Any]]) -> Iterator[str]:
    for number, times in Counter(map(_number, events)).items():
        if times > 1:
            keys = sorted(event["idempotencyKey"] for event in events if _number(event) == number)
            yield f"row {number} became {times} events, under the keys {keys}"


def _never_said(events: list[dict[str, Any]], programme: Programme) -> Iterator[str]:
    for event in events:
        if event["title"] not in programme.said[_number(event)]:
            yield f"event {event['id']} is called {event['title']!r}, which no source ever said"


def _two_bodies(requests: list[dict[str, Any]]) -> Iterator[str]:
    bodies: defaultdict[str, set[str]] = defaultdict(set)
    for request in requests:
        bodies[request["idempotency_key"]].add(request["digest"])
    for key, digests in bodies.items():
        if len(digests) > 1:
            yield f"the key {key} was sent with {len(digests)} bodies"


def _unexplained(requests: list[dict[str, Any]]) -> Iterator[str]:
    last: dict[tuple[str, str], float] = {}
    for request in requests:
        said = request["idempotency_key"], request["digest"]
        if request["status"] == 409 and request["at"] - last.get(said, -UNDER_WAY_S) > UNDER_WAY_S:
            yield f"request {request['number']} of the key {said[0]} met a 409 that no request under way explains"
        last[said] = request["at"]


def _lost(events: list[dict[str, Any]], programme: Programme) -> Iterator[str]:
    there = set(map(_number, events))
    for number in sorted(programme.rows.keys() - there):
        yield f"row {number} is in the source and became no event"


def _disagreeing(desk: Desk, events: list[dict[str, Any]], programme: Programme) -> Iterator[str]:
    by_id = {event["id"]: event for event in events}
    with desk.books.engine.connect() as connection:
        entries = connection.execute(select(ENTRY)).all()
    for entry in entries:
        event = by_id.pop(entry.event_id, None)
        if entry.state != "delivered":
            yield f"row {entry.row_key} is {entry.state} in the ledger ({entry.answer})"
        elif event is None:
            yield f"row {entry.row_key} is delivered as event {entry.event_id}, which the service does not have"
        elif event["idempotencyKey"] != entry.idempotency_key or event["payload"] != json.loads(entry.body):
            yield f"row {entry.row_key} was sent otherwise than the ledger says, as event {entry.event_id}"
    for event in by_id.values():
        yield f"event {event['id']} ({event['title']}) is in no ledger entry"
    if missing := {str(number) for number in programme.rows} - {entry.row_key for entry in entries}:
        yield f"{len(missing)} rows of the source are not in the ledger, the first: {min(missing)}"


def _untidy_runs(desk: Desk) -> Iterator[str]:
    for run in desk.command("runs", "--json", "--limit", "100000").document["runs"]:
        if run["finished_at"] is None or run["outcome"] is None:
            yield f"run {run['run_id']} is dead and not told as ended (phase {run['phase']})"
        accounts = [ReadAccount(**run["read"])] if run["read"] else []
        accounts += [PublishAccount(**run["publish"])] if run["publish"] else []
        for account in accounts:
            if account.imbalance():
                yield f"run {run['run_id']} does not balance by {account.imbalance()}: {account}"
