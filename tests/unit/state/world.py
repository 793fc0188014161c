"""A feed's small world: rows as a mapping would make them, a clock to turn by hand, a ledger on a real database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Engine

from mappings.delivery import Answer, Cover, Intent, Receipt, Verdict
from mappings.outcome import MappedRow, Rejection, RowLocation, RowOutcome, Skipped
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import FeedName, RowKey, duplicate_digest, fingerprint, row_digest
from state.ledger.accounts import DEFAULT_POLICY, PublishAccount, StagePolicy, StageReport
from state.ledger.lease import Lease, LeaseClock
from state.ledger.ledger import Ledger
from state.ledger.outbox import Outbox, Settled, open_outbox
from state.ledger.stage import open_stage
from state.ledger.standing import FeedScope, RowRecord
from state.opening import open_database
from state.queries import LedgerQueries, RowFilter

KINDS = ("sqlite", "postgresql")
"""The databases that a state DB may be in."""
DESTINATION = "https://events.example|account-1"
FEED = FeedName("agenda")
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@dataclass(slots=True)
class Clock:
    """A clock that stands still until it is turned."""

    instant: datetime = START

    def __call__(self) -> datetime:
        return self.instant

    def turn(self, **by: float) -> None:
        self.instant += timedelta(**by)

    @property
    def lease_clock(self) -> LeaseClock:
        """Leases by this clock alone: a database server would measure them by its own."""
        return LeaseClock(self, is_servers=False)


TIMES_AND_PLACE = {"channelId": 7, "startAt": "2030-05-01T20:00:00+02:00", "approxLocation": {"city": {"placeId": "lis"}}}


def body_of(title: str, *, status: str = "published") -> bytes:
    said = TIMES_AND_PLACE | {"status": status, "title": title, "locationName": title}
    return json.dumps(said, separators=(",", ":"), sort_keys=True).encode()


def row(
    key: str,
    title: str | None = None,
    *,
    place: str | None = None,
    status: str = "published",
    twin: str | None = None,
    cover: Cover | None = None,
    warnings: tuple[Reason, ...] = (),
) -> MappedRow:
    """A row that maps to an event; rows of one title look like copies of each other, by default those of one key alone."""
    usual = f"Title of {key}"
    body = body_of(title or usual, status=status)
    looks = (title or usual) if twin is None else f"Title of {twin}"
    return MappedRow(
        location=RowLocation(place or f"agenda.csv:{key}"),
        row_key=RowKey(key),
        body=body,
        fingerprint=fingerprint(body, cover.url if cover else ""),
        row_digest=row_digest(b"mapping", (title or key, status)),
        duplicate_digest=duplicate_digest(7, looks, "2030-05-01T20:00:00+02:00", f"lis {looks}"),
        channel_id=7,
        cells={"REF": key, "TITLE": title or ""},
        cover=cover,
        warnings=warnings,
    )


def rejection(key: str = "", place: str = "agenda.csv:99") -> Rejection:
    reason = Reason(ReasonCode.REQUIRED, "title", "TITLE", "", "write a title")
    return Rejection(RowLocation(place), RowKey(key), (reason,), {"REF": key})


def skipped(key: str = "", because: str = "online only") -> Skipped:
    return Skipped(RowLocation("agenda.csv:50"), because, RowKey(key))


def no_brakes(_report: StageReport) -> Sequence[str]:
    return ()


@dataclass(slots=True)
class World:
    """One state DB and one feed in it. `crash` drops every object and opens the database again, as a new process would.

    `place`: the SQLite file, the URL of another database, or a database that is open already.
    """

    place: Path | str | Engine
    clock: Clock = field(default_factory=Clock)
    feed: FeedName = FEED
    destination: str = DESTINATION
    neighbours: list[World] = field(default_factory=list, repr=False)
    engine: Engine = field(init=False)
    ledger: Ledger = field(init=False)
    lease: Lease = field(init=False)
    runs: int = 0

    def __post_init__(self) -> None:
        self._open()
        self.lease = self.ledger.acquire_lease("test")

    @property
    def url(self) -> str:
        return f"sqlite:///{self.place}" if isinstance(self.place, Path) else str(self.place)

    def _open(self) -> None:
        self.engine = self.place if isinstance(self.place, Engine) else open_database(self.url)
        now, lease_clock = self.clock, self.clock.lease_clock
        self.ledger = Ledger(self.engine, self.destination, self.feed, namespace="tests", now=now, lease_clock=lease_clock)

    @property
    def book(self) -> FeedScope:
        return FeedScope(self.destination, self.feed)

    def crash(self) -> None:
        self.engine.dispose()
        self._open()
        self.clock.turn(minutes=5)
        self.lease = self.ledger.acquire_lease("test")

    def run(self) -> str:
        self.runs += 1
        self.clock.turn(seconds=1)
        run_id = f"{self.feed}-{self.runs}" if self.feed != FEED else f"run-{self.runs}"
        self.ledger.begin_run(run_id, launched_by="a test")
        return run_id

    def stage(
        self,
        *chunks: Iterable[RowOutcome],
        is_whole: bool = True,
        brakes: Sequence[str] = (),
        stamp: str = "",
        policy: StagePolicy = DEFAULT_POLICY,
    ) -> StageReport:
        """Stage one read, given chunk by chunk."""
        stage = open_stage(self.ledger.fence(self.run(), self.lease.token), is_whole=is_whole, stamp=stamp, policy=policy)
        for chunk in chunks:
            stage.write(list(chunk))
        return stage.close(lambda _report: brakes)

    def outbox(self, *, limit: int | None = None, keys: Sequence[str] | None = None) -> Outbox:
        row_keys = None if keys is None else [RowKey(key) for key in keys]
        return open_outbox(self.ledger.fence(self.run(), self.lease.token), limit=limit, keys=row_keys)

    def publish(self, *verdicts: Verdict) -> PublishAccount:
        """Claim rows one by one, and give the first of them these verdicts and all others a receipt."""
        outbox = self.outbox()
        answers = iter(verdicts)
        while intents := outbox.settle_and_claim([], 1):
            outbox.settle_and_claim([Settled(intents[0], next(answers, receipt(intents[0])))], 0)
        return outbox.account()

    def rows(self) -> list[RowRecord]:
        return list(LedgerQueries(self.engine).every_row(self.book, RowFilter()))

    def entry(self, key: str) -> RowRecord | None:
        found = LedgerQueries(self.engine).rows(self.book, RowFilter(row_key=RowKey(key)))
        return found[0] if found else None

    def known(self, key: str) -> RowRecord:
        entry = self.entry(key)
        assert entry is not None, f"the ledger does not know {key}"
        return entry

    def states(self) -> dict[str, str]:
        return {entry.row_key: entry.state for world in (self, *self.neighbours) for entry in world.rows()}


def receipt(intent: Intent) -> Receipt:
    return Receipt(1000 + intent.entry_id, Answer(201, request_id=f"req-{intent.entry_id}"))


def answer(status: int, request_id: str = "req-x") -> Answer:
    return Answer(status, "code", "message", request_id, "title", "too long")
