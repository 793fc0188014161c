"""The partner's file and the mapping as people edit them, and what must be true of them after any number of kills."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from integration.desk import TITLE, Desk, line, untidy_runs
from integration.service import Service

UNDER_WAY_S = 2.0
"""So long after a request of the same key and body, a 409 is that request's own: the service was still at work on it."""
FESTIVAL = "{join: [Festival, {from: TITLE, do: [collapse]}], with: ': '}"
_NUMBER = re.compile(r"Evening (\d+)")
_MOST_SHOWN = 10


@dataclass
class Programme:
    """Rows by number, with their titles. `ever`: every title under which a run may have met the row."""

    desk: Desk
    dice: random.Random
    rows: dict[int, str] = field(default_factory=dict)
    ever: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    edits: int = 0
    is_festival: bool = False
    _gone: list[int] = field(default_factory=list)

    def edit(self, what: str = "") -> str:
        """Change the rows or the mapping, and return which: add some, reword some, take some out, put one back that was out."""
        change = what or self.dice.choices(("rows", "mapping"), (4, 1))[0]
        if change == "mapping":
            self.is_festival = not self.is_festival
        else:
            for number in self.dice.sample(sorted(self.rows), min(20, len(self.rows))):
                self.rows[number] = f"Evening {number} ({self.edits})"
            for number in self.dice.sample(sorted(self.rows), min(5, len(self.rows))):
                del self.rows[number]
                self._gone.append(number)
            if len(self._gone) > 10:
                number = self._gone.pop(self.dice.randrange(len(self._gone)))
                self.rows[number] = f"Evening {number}"
        self.edits += 1
        self.add(self.dice.randint(20, 80) if change == "rows" else 0)
        return change

    def add(self, rows: int) -> None:
        """Add so many rows, and write file and mapping."""
        first = max((*self.rows, *self._gone), default=-1) + 1
        self.rows |= {number: f"Evening {number}" for number in range(first, first + rows)}
        # A row that comes as one of its time and place goes would be held; and the mapping is edited on purpose.
        title, place = FESTIVAL if self.is_festival else TITLE, "locationName: {join: [Hall, {from: ID}], with: ' '}"
        self.desk.mapping(title=title, more=place, brakes="{changed: off}")
        self.desk.source(line(number, title=title) for number, title in sorted(self.rows.items()))
        for number, title in self.rows.items():
            self.ever[number].add(f"Festival: {title}" if self.is_festival else title)


def broken_so_far(service: Service, programme: Programme) -> list[str]:
    """Return the promises that hold at every moment and do not hold now; each in a sentence."""
    return _shortened([*_wrong_events(service.events(), programme), *_wrong_requests(service.requests())])


def broken_at_the_end(service: Service, programme: Programme) -> list[str]:
    """Return the same for a feed that says it is done: nothing is lost, and ledger, service and runs agree."""
    events = service.events()
    lost = sorted(programme.rows.keys() - set(map(_number, events)))
    missing = (f"row {number} is in the source and became no event" for number in lost)
    broken = [*broken_so_far(service, programme), *missing, *_disagreeing(events, programme), *untidy_runs(programme.desk)]
    return _shortened(broken)


def _shortened(broken: list[str]) -> list[str]:
    rest = len(broken) - _MOST_SHOWN
    return broken if rest <= 0 else [*broken[:_MOST_SHOWN], f"and {rest} more"]


def _number(event: dict[str, Any]) -> int:
    found = _NUMBER.search(event["title"])
    return int(found[1]) if found else -1


def _wrong_events(events: list[dict[str, Any]], programme: Programme) -> Iterator[str]:
    for number, times in Counter(map(_number, events)).items():
        if times > 1:
            keys = sorted(event["idempotencyKey"] for event in events if _number(event) == number)
            yield f"row {number} became {times} events, under the keys {keys}"
    for event in events:
        if event["title"] not in programme.ever[_number(event)]:
            yield f"event {event['id']} is called {event['title']!r}, a title that the source never had"


def _wrong_requests(requests: list[dict[str, Any]]) -> Iterator[str]:
    bodies: defaultdict[str, set[str]] = defaultdict(set)
    last: dict[tuple[str, str], float] = {}
    for request in requests:
        key, body, at = request["idempotency_key"], request["digest"], request["at"]
        bodies[key].add(body)
        if request["status"] == 409 and at - last.get((key, body), -UNDER_WAY_S) > UNDER_WAY_S:
            yield f"request {request['number']} of the key {key} met a 409 that no request under way explains"
        last[key, body] = at
    for key, digests in bodies.items():
        if len(digests) > 1:
            yield f"the key {key} was sent with {len(digests)} bodies"


def _disagreeing(events: list[dict[str, Any]], programme: Programme) -> Iterator[str]:
    by_id = {event["id"]: event for event in events}
    entries = programme.desk.books.rows()
    for entry in entries:
        event = by_id.pop(entry.event_id, None)
        if entry.state != "delivered":
            yield f"row {entry.row_key} is {entry.state} in the ledger ({entry.answer})"
        elif event is None:
            yield f"row {entry.row_key} is delivered as event {entry.event_id}, which the service does not have"
        elif event["idempotencyKey"] != entry.key or event["payload"] != json.loads(entry.body):
            yield f"row {entry.row_key} was sent otherwise than the ledger says, as event {entry.event_id}"
    for event in by_id.values():
        yield f"event {event['id']} ({event['title']}) is in no ledger entry"
    if missing := {str(number) for number in programme.rows} - {entry.row_key for entry in entries}:
        yield f"{len(missing)} rows of the source are not in the ledger, the first: {min(missing)}"
