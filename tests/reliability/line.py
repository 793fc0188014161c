"""One line of the matrix, from an empty folder to a feed that owes nothing, and the truth about it."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from integration.desk import Desk, WarmStart, line, made_desk
from integration.service import Service
from integration.waiting import pause, until
from reliability.troubles import MEMORY_S, TRUST_S, Keys, Place
from reliability.worker import HASTY, Worker
from written_tables import WrittenTable

from state.enums import EntryState
from state.ledger.standing import RowRecord
from state.queries import RowFilter

ROWS = 16
IN_FLIGHT = 4
MOST_RUNS = 8
TABLE = WrittenTable("reliability.md", "reliability")
HEAD = (
    *("what goes wrong", "the service", "rows", "events", "doubled", "lost", "keys", "bodies per key", "resent", "unconfirmed"),
    *("runs", "promise"),
)
_DELIVERED = frozenset({EntryState.DELIVERED, EntryState.DELIVERED_UNCONFIRMED})
_BY_ITSELF = frozenset({EntryState.PENDING, EntryState.BLOCKED})
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
        checks = {
            "rows are lost": self.lost > 0,
            "rows are still owed": self.owed > 0 and self.place.trouble.scene != "outage",
            "a row was sent under two keys": self.keys > self.rows,
            "a key was sent with two bodies": self.bodies > 1,
            "rows exist twice although the service honours keys": self._is_protected and self.doubled > 0,
            "more rows exist twice than the worker says": not self.place.trouble.forgets_all and self.doubled > self.resent,
            "a row exists more often than the worker says": not self.place.trouble.forgets_all and self.uncounted > 0,
            "an outage let out more than slots, one more and a probe a run": self._is_outage and self.events > self._most_events,
            "the runs' reports hide what the ledger lists": self.told < self.resent,
            "a kill left more rows in doubt than were in flight": self.in_doubt > IN_FLIGHT,
        }
        return "; ".join(said for said, is_so in checks.items() if is_so)

    @property
    def verdict(self) -> str:
        """The line's truth in a few words."""
        if self.breach:
            return f"BROKEN: {self.breach}"
        if self.doubled:
            return "outside of the promise" if self.place.trouble.forgets_all else "told"
        if self.waiting:
            return f"kept, {self.waiting} wait for a person"
        return f"kept, {self.unmade} to be found missing by `reconcile`" if self.unmade else "kept"

    @property
    def cells(self) -> dict[str, str]:
        """The line as the page tells it."""
        values = (
            *(self.place.trouble.name, self.place.keys.said, self.rows, self.events, self.doubled, self.lost, self.keys),
            *(self.bodies, self.resent, self.unconfirmed, self.runs, self.verdict),
        )
        return dict(zip(HEAD, map(str, values), strict=True))

    @property
    def _is_outage(self) -> bool:
        return self.place.trouble.scene in {"outage", "outage ends"}

    @property
    def _most_events(self) -> int:
        return self.rows + IN_FLIGHT + 1 + self.runs * HASTY.attempts

    @property
    def _is_protected(self) -> bool:
        trouble, keys = self.place.trouble, self.place.keys
        return keys.are_honoured and not (trouble.forgets_all and keys is Keys.FORGOTTEN)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where lines are played: a folder for each, the process that starts commands, the service."""

    folder: Path
    warm: WarmStart
    service: Service


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
            worker = Worker(folder, desk.env)
            in_doubt = _strike(place, desk, stage.service, worker)
            if place.trouble.scene != "outage":
                _run_until_nothing_is_owed(worker)
            pause(_afterwards_s(place))
            return _truth(place, stage.service, worker, in_doubt)
    finally:
        stage.service.change("/reset")
        stage.service.change("/switches", **as_new)


def _afterwards_s(place: Place) -> float:
    """How long the service may still work on what the worker has given up."""
    waits = ("fault_hold_ms", "latency_ms", "answer_delay_ms")
    longest = sum(int(place.trouble.switches.get(name, 0)) for name in waits)
    return longest / 1000 + 0.1 if longest else 0.0


def _write_feed(desk: Desk, keys: Keys, *, title: str) -> None:
    trust = f"{TRUST_S}s" if keys is Keys.FORGOTTEN else "24h"
    desk.mapping(title=title, in_flight=IN_FLIGHT, key_memory=trust)
    desk.source([line(number) for number in range(ROWS)])


def _strike(place: Place, desk: Desk, service: Service, worker: Worker) -> int:
    """Let the trouble happen whose time the service does not choose; return how many rows a kill has left in doubt."""
    match place.trouble.scene:
        case "answers go wrong":
            return 0
        case "outage" | "outage ends":
            _run_in_an_outage(worker, service)
            return 0
        case "service killed":
            with _killed_amid(service):
                worker.run()
            return 0
        case _:
            _kill_worker(desk, service)
    in_doubt = sum(row.state is EntryState.PENDING and row.unanswered_at is not None for row in worker.rows())
    service.switch(latency_ms=0, answer_delay_ms=0)
    if place.keys is Keys.FORGOTTEN:
        pause(MEMORY_S)  # the service's time, which nothing else makes pass
    if place.trouble.scene == "mapping edited":
        _write_feed(desk, place.keys, title="{join: [Edited, {from: TITLE, do: [collapse]}], with: ' '}")
    if place.trouble.scene == "state lost":
        desk.forget()
    return in_doubt


def _run_in_an_outage(worker: Worker, service: Service) -> None:
    for _ in range(_RUNS_IN_AN_OUTAGE):
        worker.run()
    service.switch(fault_per_mille=0)


def _kill_worker(desk: Desk, service: Service) -> None:
    run = desk.start_run()
    until(lambda: run.has_ended or len(service.requests()) >= _SOME, what="some requests")
    assert run.kill().code == -signal.SIGKILL


@contextmanager
def _killed_amid(service: Service) -> Iterator[None]:
    """Kill the service once some requests have arrived, and start it again where it was."""

    def strike() -> None:
        until(lambda: len(service.requests()) >= _SOME, what="some requests")
        service.stop(is_sudden=True)
        pause(0.2)
        service.start()

    thread = Thread(target=strike)
    thread.start()
    yield
    thread.join()


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
    return sum(states[state] for state in _BY_ITSELF)


def _truth(place: Place, service: Service, worker: Worker, in_doubt: int) -> Line:
    rows, bodies = worker.rows(), service.bodies()
    found = Counter(_row_of(event["title"]) for event in service.events())
    resent = worker.rows(RowFilter(is_resent=True))
    copies = {str(row.row_key): row.copies for row in rows}
    return Line(
        place=place,
        rows=ROWS,
        events=sum(found.values()),
        doubled=sum(count > 1 for count in found.values()),
        lost=_lost(rows, found),
        keys=len(bodies),
        bodies=max(map(len, bodies.values())),
        resent=len(resent),
        unconfirmed=sum(row.state is EntryState.DELIVERED_UNCONFIRMED for row in rows),
        unmade=sum(row.state is EntryState.DELIVERED_UNCONFIRMED and not found[row.row_key] for row in rows),
        told=sum(run.published.account.resent for run in worker.runs if run.published),
        uncounted=sum(count > copies.get(row, 0) for row, count in found.items()),
        waiting=sum(row.state not in _DELIVERED | _BY_ITSELF for row in rows),
        owed=_owed(Counter(row.state for row in rows)),
        runs=len(worker.runs) + (place.trouble.scene in {"worker killed", "mapping edited", "state lost"}),
        in_doubt=in_doubt,
    )


def _lost(rows: list[RowRecord], found: Counter[str]) -> int:
    """Rows that nobody would look for: called delivered, or not in the ledger at all, and not at the service."""
    known = {str(row.row_key): row.state for row in rows}
    absent = [str(number) for number in range(ROWS) if not found[str(number)]]
    return sum(known.get(number, EntryState.DELIVERED) is EntryState.DELIVERED for number in absent)


def _row_of(title: str) -> str:
    """A row's key, as its title tells it, whichever mapping has written that."""
    return title.rpartition(" ")[2]
