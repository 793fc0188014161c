"""What tests do to a feed's ledger by hand, and ask of it."""

from __future__ import annotations

import json
from dataclasses import replace

import ledger_tables
from unit.state.world import DESTINATION, FEED, World, row

from mappings.outcome import MappedRow, RowLocation, Skipped
from mappings.row_key import FeedName, RowKey, fingerprint
from state.enums import ProblemKind
from state.ledger.choices import Change, Instruction, NoChange
from state.ledger.decisions import Decisions
from state.ledger.lease import Lease
from state.ledger.standing import FeedScope
from state.queries import LedgerQueries

BOOK = FeedScope(DESTINATION, FEED)
OVER, TO_COME = "2026-02-01T20:00:00+01:00", "2026-08-01T20:00:00+02:00"
CANCELLED = Skipped(RowLocation("agenda.csv:7"), "cancelled", RowKey("a"), is_cancelled=True)


def beside(world: World, feed: str = "cinema") -> World:
    """Another feed of the service, at work on the same state DB."""
    world.neighbours.append(World(world.place, world.clock, FeedName(feed)))
    return world.neighbours[-1]


def delivered(world: World, *rows: MappedRow) -> None:
    world.stage(rows)
    world.publish()


def put(world: World, key: str, **columns: object) -> None:
    ledger_tables.put(world.engine, key, **columns)


def decisions(world: World, *others: Lease) -> Decisions:
    return Decisions(world.ledger.fence("", world.lease.token), "ann@desk", others)


def resolve(world: World, key: str, choice: Instruction) -> Change | NoChange:
    (found,) = decisions(world).resolve([RowKey(key)], choice)
    return found.outcome


def problems(world: World, kind: ProblemKind) -> list[str]:
    return [problem.row_key for problem in LedgerQueries(world.engine).problems(BOOK, kind)]


def event(key: str, start: str, end: str = "") -> MappedRow:
    times = {"startAt": start} | ({"endAt": end} if end else {})
    plain = row(key)
    body = json.dumps(json.loads(plain.body) | times).encode()
    return replace(plain, body=body, fingerprint=fingerprint(body, ""), row_digest=body)
