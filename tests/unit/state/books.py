"""What tests do to a feed's ledger by hand, and ask of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Table, func, select, true, update
from unit.state.world import DESTINATION, FEED, World, answer, row

from connectors.errors import KeyRefusedError
from mappings.delivery import Blocked, Conflict, Postponed, Refusal, Uncertain, Unconfirmed, Verdict
from mappings.outcome import MappedRow, RowLocation, RowOutcome, Skipped
from mappings.row_key import RowKey, fingerprint
from state.database import reading, writing
from state.enums import ProblemKind
from state.ledger.accounts import DEFAULT_POLICY, StagePolicy, StageReport
from state.ledger.choices import Instruction, Option
from state.ledger.decisions import Decisions
from state.ledger.entries import duplicate_digest_of
from state.ledger.standing import FeedScope
from state.queries import LedgerQueries
from state.tables import ENTRY

BOOK = FeedScope(DESTINATION, FEED)
OVER, TO_COME = "2026-02-01T20:00:00+01:00", "2026-08-01T20:00:00+02:00"
CANCELLED = Skipped(RowLocation("agenda.csv:7"), "cancelled", RowKey("a"), is_cancelled=True)
ENDS: dict[str, list[Verdict]] = {
    "sent": [],
    "refused": [Refusal(answer(400))],
    "blocked": [Blocked(answer(403))],
    "uncertain": [Uncertain(answer(503))],
    "conflict": [Conflict(answer(409))],
    "unconfirmed": [Unconfirmed(answer(409))],
    "denied": [Postponed(answer(401), KeyRefusedError("the key is revoked"))],
}


def evening(key: str, title: str = "Jazz", **more: Any) -> MappedRow:
    """A row with a whole payload: rows of one title look like copies of each other."""
    place = {"approxLocation": {"city": {"placeId": "lis"}}, "channelId": 7}
    body = json.dumps({"status": "published", "title": title, "startAt": "2030-05-01T20:00:00+02:00", **place, **more}).encode()
    return replace(row(key, title), body=body, fingerprint=fingerprint(body, ""), duplicate_digest=duplicate_digest_of(body))


def play(world: World, story: str, policy: StagePolicy = DEFAULT_POLICY) -> StageReport | None:
    """Lead row `a` through a story, and return the report of its last read.

    `gone` and `cancelled` are reads, a word of `ENDS` is a run that ends in that, `cut` one that is killed before the answer,
    `later` a day after which keys may be forgotten, the name of an option a person's decision, and any other word the title
    under which the source has the row.
    """
    report = None
    for word in story.split():
        if word in ENDS:
            world.publish(*ENDS[word])
        elif word == "cut":
            world.outbox().settle_and_claim([], 1)
            world.crash()
        elif word == "later":
            world.clock.turn(hours=25)
            world.crash()
            world.outbox()
        elif f"--{word}" in set(Option):
            resolve(world, "a", Instruction(Option(f"--{word}")))
        else:
            reads: dict[str, list[RowOutcome]] = {"gone": [], "cancelled": [CANCELLED]}
            report = world.stage(reads.get(word, [evening("a", word)]), policy=policy)
    return report


def delivered(world: World, *rows: MappedRow) -> None:
    """Stage these rows and send them."""
    world.stage(rows)
    world.publish()


def put(world: World, key: str, **columns: object) -> None:
    """Set columns of an entry, as a decision or a read does."""
    with writing(world.engine) as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == key).values(**columns))


def column(world: World, key: str, name: str) -> object:
    with reading(world.engine) as connection:
        return connection.execute(select(ENTRY.c[name]).where(ENTRY.c.row_key == key)).scalar_one()


def count(world: World, table: Table, where: ColumnElement[bool] | None = None) -> int:
    with reading(world.engine) as connection:
        counting = select(func.count()).select_from(table).where(true() if where is None else where)
        return connection.execute(counting).scalar_one()


def resolve(world: World, key: str, choice: Instruction) -> None:
    """Record a person's decision about a row."""
    Decisions(world.ledger.fence("", world.lease.token), "ann@desk").resolve([RowKey(key)], choice)


def problems(world: World, kind: ProblemKind) -> list[str]:
    """List the rows of the last read with such a problem."""
    return [problem.row_key for problem in LedgerQueries(world.engine).problems(BOOK, kind)]


def event(key: str, start: str, end: str = "") -> MappedRow:
    """Map a row to an event at these times."""
    times = {"startAt": start} | ({"endAt": end} if end else {})
    plain = row(key)
    body = json.dumps(json.loads(plain.body) | times).encode()
    return replace(plain, body=body, fingerprint=fingerprint(body, ""), row_digest=body)
