"""The ledger of one feed at one destination: runs, the lease, the gate, and access to the two commit points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, case, select, update

from mappings.delivery import split_destination
from mappings.row_key import FeedName
from state.database import insert_if_new, reading, writing
from state.enums import GateState, Phase
from state.ledger.accounts import PublishAccount, StageReport, dump
from state.ledger.gate import Bookmark, Gate, accept, read_bookmark, read_gate, read_report, read_stamp
from state.ledger.lease import FencedTransaction, Holder, Lease, LeaseClock, acquire, own_clock, this_process
from state.ledger.standing import KEY_MEMORY_S, Standing, dump_standing, read_standing
from state.tables import RUN, SCOPE

P = ParamSpec("P")
T = TypeVar("T")


class Ledger:
    """What was delivered of one feed's rows to one destination.

    `destination` names service and account, so that a test run elsewhere never marks a row as delivered here. `namespace` is
    part of every key; `now` returns aware times. Staging and publishing need the feed's lease, whose heartbeat is measured by
    the database's clock on PostgreSQL and by `now` on SQLite, unless `lease_clock` is given.
    """

    def __init__(
        self,
        engine: Engine,
        destination: str,
        feed: FeedName,
        *,
        namespace: str,
        now: Callable[[], datetime],
        lease_clock: LeaseClock | None = None,
    ) -> None:
        self._engine = engine
        self._destination = destination
        self._feed = feed
        self._namespace = namespace
        self._now = now
        self._lease_clock = lease_clock or own_clock(engine, now)
        self._known_scope: int | None = None

    def acquire_lease(self, holder: str | Holder) -> Lease:
        """Take the lease of the feed for this process, with a name for people; use it in a `with` block.

        Raises `HeldByAnotherError` while another run holds it.
        """
        process = this_process(holder) if isinstance(holder, str) else holder
        return acquire(self._engine, self._scope_id(), process, self._lease_clock)

    def fence(self, run_id: str, token: int) -> FencedTransaction:
        """Return the context of a run's transactions, each of which checks the token of its lease."""
        who = (self._engine, self._scope_id(), self._feed, self._namespace, run_id, token)
        number = self._read(_read_number, run_id)
        return FencedTransaction(*who, self._now, self._lease_clock, number)

    def begin_run(self, run_id: str, *, launched_by: str, dagster_run_id: str | None = None) -> None:
        """Create the run's record; a run that has one (its next step, or a repeated step) continues with it."""
        row = {"scope_id": self._scope_id(), "id": run_id, "started_at": self._now(), "message": "", "brakes": "[]"}
        row |= {"launched_by": launched_by, "dagster_run_id": dagster_run_id, "phase": Phase.BEGUN.value, "is_whole": False}
        with writing(self._engine) as connection:
            connection.execute(insert_if_new(connection, RUN), row)
            reopened: dict[str, object] = {"finished_at": None, "outcome": None, "exit_code": None, "message": ""}
            reopened["phase"] = case((RUN.c.phase == Phase.FINISHED.value, Phase.STAGED.value), else_=RUN.c.phase)
            self._write_run(connection, run_id, reopened)

    def finish_run(
        self,
        run_id: str,
        *,
        outcome: str,
        exit_code: int,
        message: str,
        publish_account: PublishAccount | None = None,
        standing: Standing | None = None,
    ) -> None:
        """Close the run's record: `outcome` in one word, `message` for people, the account of its publish if any.

        `standing`: what waits for a person at the end of the run.
        """
        columns: dict[str, object] = {"outcome": outcome, "exit_code": exit_code, "message": message}
        columns |= {"finished_at": self._now(), "phase": Phase.FINISHED.value}
        if publish_account is not None:
            columns["publish_account"] = dump(publish_account)
        if standing is not None:
            columns["standing"] = dump_standing(standing)
        self._scope_id()  # before the transaction: it may need one of its own
        with writing(self._engine) as connection:
            self._write_run(connection, run_id, columns)

    def standing(self, key_memory_s: float = KEY_MEMORY_S, run_id: str | None = None) -> Standing:
        """Return what waits for a person now. `run_id`: the run whose report names the rows that may exist more than once."""
        number = None if run_id is None else self._read(_read_number, run_id)
        return self._read(read_standing, self._now(), key_memory_s, number)

    def stamp(self) -> str:
        """Return the stamp of the last full read that passed the gate, "" if none."""
        return self._read(read_stamp)

    def bookmark(self) -> Bookmark:
        """Return the position at which the next read may continue."""
        return self._read(read_bookmark)

    def gate(self) -> Gate:
        """Return whether staged rows may be published."""
        return self._read(read_gate)

    def report_of(self, run_id: str) -> StageReport | None:
        """Return the report of a read, None if there is none (any more)."""
        return self._read(read_report, run_id)

    def open_gate(self, by: str) -> Gate:
        """Release what brakes have stopped, by a person's decision.

        Raises `GateClosedError` if there is no complete stage.
        """
        scope_id = self._scope_id()
        with writing(self._engine) as connection:
            return accept(connection, scope_id, by)

    def _read(self, query: Callable[Concatenate[Connection, int, P], T], *args: P.args, **options: P.kwargs) -> T:
        scope_id = self._scope_id()
        with reading(self._engine) as connection:
            return query(connection, scope_id, *args, **options)

    def _write_run(self, connection: Connection, run_id: str, columns: Mapping[str, object]) -> None:
        connection.execute(update(RUN).where(RUN.c.scope_id == self._scope_id(), RUN.c.id == run_id).values(columns))

    def _scope_id(self) -> int:
        """Return the id of the feed's scope, creating it if missing."""
        if self._known_scope is None:
            own = (SCOPE.c.destination == self._destination, SCOPE.c.feed == self._feed)
            with writing(self._engine) as connection:
                found = connection.execute(select(SCOPE.c.id).where(*own)).scalar()
                if found is None:  # a first run of the feed beside this one may be faster
                    row: dict[str, object] = {"destination": self._destination, "namespace": self._namespace, "feed": self._feed}
                    row |= {"service": split_destination(self._destination)[0], "gate": GateState.UNSTAGED.value}
                    row |= {"gate_run": "", "gate_reason": "", "stamp": "", "created_at": self._now()}
                    connection.execute(insert_if_new(connection, SCOPE), row)
                    found = connection.execute(select(SCOPE.c.id).where(*own)).scalar_one()
            self._known_scope = int(found)
        return self._known_scope


def _read_number(connection: Connection, scope_id: int, run_id: str) -> int:
    """Return the number of a run, 0 if it has no record."""
    number = connection.execute(select(RUN.c.number).where(RUN.c.scope_id == scope_id, RUN.c.id == run_id)).scalar()
    return int(number or 0)
