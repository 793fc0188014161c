"""One line of the matrix, from an empty folder to a feed that owes nothing, and the truth about it."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from integration.desk import Desk, WarmStart, lines, made_desk
from integration.service import Service
from integration.waiting import pause, until
from reliability.troubles import MEMORY_S, TRUST_S, Keys, Place
from written_tables import WrittenTable

from connectors.retry import RetryPolicy
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import load_feed
from pipelines.run.context import RunContext, open_context
from pipelines.run.feed_run import FeedRun, RunIdentity
from pipelines.settings import read_settings
from state.enums import EntryState
from state.ledger.standing import FeedScope, RowRecord
from state.queries import LedgerQueries, RowFilter

ROWS = 16
IN_FLIGHT = 4
MOST_CLAIMED = IN_FLIGHT + IN_FLIGHT // 4  # a publish claims a quarter more rows, which wait for a slot
MOST_RUNS = 8
TABLE = WrittenTable("reliability.md", "reliability")
HEAD = (
    *("what goes wrong", "the service", "rows", "events", "doubled", "lost", "keys", "bodies per key", "resent", "unconfirmed"),
    *("runs", "result"),
)
HASTY = RetryPolicy(attempts=5, budget_s=4.0, first_wait_s=0.02, longest_wait_s=0.2, attempt_s=0.35, at_work_s=0.35)
_RUNS_IN_AN_OUTAGE = 3
_SOME = 5
"""So many requests have arrived when somebody is killed."""


@dataclass(frozen=True, slots=True)
class Line:
    """What one line came to. `doubled`: rows that exist more than once; `keys`: distinct keys sent; `bodies`: the most
    bodies that one key was sent with; `runs`: all that it took, the killed one included.

    `resent`: rows that the worker itself lists as sent again after an attempt without an answer; `told`: the same, summed
    over the runs' reports; `uncounted`: rows of which the service has more events than the worker says may exist.
    `unconfirmed`: rows whose key the service calls used, to be looked up by `reconcile`; `unmade`
    of them do not exist. `waiting`: rows that it says a person must look at. `lost`: rows that it calls delivered, or does
    not know, and that the service does not have. `owed`: rows that were still to be sent after the last run. `in_doubt`:
    rows without an answer in the ledger of a worker that was killed, before anything else ran.
    """

    place: Place
    rows: int
    events: int
    doubled: int
    lost: int
    keys: int
    bodies: int
    resent: int
    told: int
    uncounted: int
    unconfirmed: int
    unmade: int
    waiting: int
    owed: int
    runs: int
    in_doubt: int

    @property
    def breach(self) -> str:
        """Which promise the line breaks, "" if none."""
        trouble, keys = self.place.trouble, self.place.keys
        is_outage = trouble.scene in {"outage", "outage ends"}
        is_protected = keys is not Keys.IGNORED and not (trouble.forgets_all and keys is Keys.FORGOTTEN)
        checks = {
            "rows are lost": self.lost > 0,
            "rows are still owed": self.owed > 0 and trouble.scene != "outage",
            "a row was sent under two keys": self.keys > self.rows,
            "a key was sent with two bodies": self.bodies > 1,
            "rows exist twice although the service honours keys": is_protected and self.doubled > 0,
            "more rows exist twice than the worker says": not trouble.forgets_all and self.doubled > self.resent,
            "a row exists more often than the worker says": not trouble.forgets_all and self.uncounted > 0,
            "an outage let out more than slots, one more and a probe a run": (
                is_outage and self.events > self.rows + IN_FLIGHT + 1 + self.runs * HASTY.attempts
            ),
            "the runs' reports hide what the ledger lists": self.told < self.resent,
            "a kill left more rows in doubt than were claimed": self.in_doubt > MOST_CLAIMED,
        }
        return "; ".join(said for said, is_so in checks.items() if is_so)

    @property
    def verdict(self) -> str:
        """The line's truth in a few words."""
        if self.breach:
            return f"BROKEN: {self.breach}"
        if self.doubled:
            return "not covered" if self.place.trouble.forgets_all else "reported"
        if self.waiting:
            return f"kept, {self.waiting} wait for a person"
        return f"kept, {self.unmade} to be found missing by `reconcile`" if self.unmade else "kept"

    @property
    def cells(self) -> dict[str, str]:
        values = (
            *(self.place.trouble.name, self.place.keys.said, self.rows, self.events, self.doubled, self.lost, self.keys),
            *(self.bodies, self.resent, self.unconfirmed, self.runs, self.verdict),
        )
        return dict(zip(HEAD, map(str, values), strict=True))


@dataclass(frozen=True, slots=True)
class Stage:
    """Where lines are played: a folder for each, the process that starts commands, the service."""

    folder: Path
    warm: WarmStart
    service: Service


@dataclass
class Worker:
    """The real worker in this process, over a real state DB; only its insistence is shorter, so that a line takes a second."""

    desk: Desk
    runs: int = 0

    def run(self) -> None:
        with self._context() as context:
            FeedRun(context, self._mapping(), RunIdentity(f"reliability-{self.runs}", launched_by="the matrix")).run()
            self.runs += 1

    def resent(self) -> int:
        """How many rows the runs say they sent again."""
        with self._context() as context:
            runs = LedgerQueries(context.engine).runs(feed=self._mapping().feed, limit=1_000)
            return sum(run.publish.resent for run in runs if run.publish)

    def rows(self, which: RowFilter | None = None) -> list[RowRecord]:
        with self._context() as context:
            book = FeedScope(context.settings.destination, self._mapping().feed)
            return list(LedgerQueries(context.engine).every_row(book, which or RowFilter()))

    def _mapping(self) -> FeedMapping:
        return load_feed(self.desk.folder / "feeds" / "town.yaml", folders=(self.desk.folder,))

    @contextmanager
    def _context(self) -> Iterator[RunContext]:
        with open_context(read_settings(self.desk.env, self.desk.folder), lambda _: None) as context:
            yield replace(context, retries=HASTY)


def play(place: Place, stage: Stage) -> Line:
    """Play one line and return what it came to; the service is as new afterwards."""
    folder = stage.folder / f"{place.trouble.name}-{place.keys.name}".replace(" ", "-")
    folder.mkdir(parents=True)
    as_new = stage.service.look()["switches"]
    try:
        with made_desk(folder, stage.warm) as desk:
            desk.point_to(stage.service)
            _write_feed(desk, place.keys, title="{from: TITLE, do: [collapse]}")
            stage.service.switch(**place.keys.switches, **place.trouble.switches)
            worker = Worker(desk)
            in_doubt = _strike(place, desk, stage.service, worker)
            if place.trouble.scene != "outage":
                _run_until_nothing_is_owed(worker)
            waits = (int(place.trouble.switches.get(name, 0)) for name in ("fault_hold_ms", "latency_ms", "answer_delay_ms"))
            if longest_ms := sum(waits):  # the service may still work on what the worker has given up
                pause(longest_ms / 1000 + 0.1)
            return _truth(place, stage.service, worker, in_doubt)
    finally:
        stage.service.change("/reset")
        stage.service.change("/switches", **as_new)


def _write_feed(desk: Desk, keys: Keys, *, title: str) -> None:
    trust = f"{TRUST_S}s" if keys is Keys.FORGOTTEN else "24h"
    desk.mapping(title=title, in_flight=IN_FLIGHT, key_memory=trust, brakes="{changed: off}")
    desk.source(lines(ROWS))


def _strike(place: Place, desk: Desk, service: Service, worker: Worker) -> int:
    """Let the trouble happen whose time the service does not choose; return how many rows a kill has left in doubt."""
    match place.trouble.scene:
        case "answers go wrong":
            return 0
        case "outage" | "outage ends":
            for _ in range(_RUNS_IN_AN_OUTAGE):
                worker.run()
            service.switch(fault_per_mille=0)
            return 0
        case "service killed":

            def kill_amid() -> None:
                until(lambda: len(service.requests()) >= _SOME, what="some requests")
                service.stop(is_sudden=True)
                pause(0.2)
                service.start()

            with ThreadPoolExecutor(1) as other:
                killed = other.submit(kill_amid)
                worker.run()
                killed.result()
            return 0
    run = desk.start_run()
    until(lambda: run.has_ended or len(service.requests()) >= _SOME, what="some requests")
    assert run.kill().code == -signal.SIGKILL
    in_doubt = sum(row.state is EntryState.PENDING and row.unanswered_at is not None for row in worker.rows())
    service.switch(latency_ms=0, answer_delay_ms=0)
    if place.keys is Keys.FORGOTTEN:
        pause(MEMORY_S)  # the service's time, which nothing else makes pass
    if place.trouble.scene == "mapping edited":
        _write_feed(desk, place.keys, title="{join: [Edited, {from: TITLE, do: [collapse]}], with: ' '}")
    if place.trouble.scene == "state lost":
        desk.forget()
    return in_doubt


def _run_until_nothing_is_owed(worker: Worker) -> None:
    """Run until a run leaves nothing that the next one would send, or until two runs in a row change nothing."""
    before: Counter[EntryState] = Counter()
    for _ in range(MOST_RUNS):
        worker.run()
        now = Counter(row.state for row in worker.rows())
        if not _owed(now) and (now == before or not now[EntryState.UNCERTAIN]):
            return
        before = now


def _owed(states: Counter[EntryState]) -> int:
    return states[EntryState.PENDING] + states[EntryState.BLOCKED]


def _truth(place: Place, service: Service, worker: Worker, in_doubt: int) -> Line:
    rows, bodies = worker.rows(), service.bodies()
    states = Counter(row.state for row in rows)
    found = Counter(event["title"].rpartition(" ")[2] for event in service.events())  # a title ends with its row's key
    known = {str(row.row_key): row for row in rows}
    absent = [key for key in map(str, range(ROWS)) if not found[key]]
    unconfirmed = states[EntryState.DELIVERED_UNCONFIRMED]
    return Line(
        place=place,
        rows=ROWS,
        events=found.total(),
        doubled=sum(count > 1 for count in found.values()),
        lost=sum(key not in known or known[key].state is EntryState.DELIVERED for key in absent),
        keys=len(bodies),
        bodies=max(map(len, bodies.values())),
        resent=len(worker.rows(RowFilter(is_resent=True))),
        unconfirmed=unconfirmed,
        unmade=sum(key in known and known[key].state is EntryState.DELIVERED_UNCONFIRMED for key in absent),
        told=worker.resent(),
        uncounted=sum(key not in known or count > known[key].copies for key, count in found.items()),
        waiting=len(rows) - states[EntryState.DELIVERED] - unconfirmed - _owed(states),
        owed=_owed(states),
        runs=worker.runs + (place.trouble.scene in {"worker killed", "mapping edited", "state lost"}),
        in_doubt=in_doubt,
    )
