"""The gate between the two commit points, and the bookmark that moves with it.

What was staged may be published only after a stage that completed, and that no brake stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, and_, func, or_, select, update

from mappings.errors import PermanentError
from state.enums import EntryState, GateState, Phase
from state.ledger.accounts import StageReport, load_report
from state.ledger.alongside import put_side_by_side
from state.ledger.entries import let_out
from state.ledger.lease import FencedTransaction
from state.ledger.stage_policy import ReadKind
from state.tables import ENTRY, RUN, SCOPE


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A place in a source, as the source itself writes it down. `cursor`: "" where there is none.

    `fit`: evidence of all that the rows before it were mapped by; with other evidence the place means nothing.
    `full_read_at`: when the last full read began, on which this place builds.
    """

    cursor: str = ""
    fit: str = ""
    full_read_at: datetime | None = None


NO_BOOKMARK = Bookmark()


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """How the source says that a read ended. `bookmark`: where the next may go on, None if the read is none to go on from;
    `is_short`: rows are missing behind those that were given, so that absence means nothing.
    """

    bookmark: Bookmark | None = None
    is_short: bool = False


AT_THE_END = ReadEnd()


def read_bookmark(connection: Connection, scope_id: int) -> Bookmark:
    """Return the feed's bookmark."""
    columns = select(SCOPE.c.cursor, SCOPE.c.cursor_fit, SCOPE.c.full_read_at)
    return Bookmark(*connection.execute(columns.where(SCOPE.c.id == scope_id)).one())


def keep_bookmark(connection: Connection, scope_id: int, bookmark: Bookmark) -> None:
    """Put the bookmark where the rows that it covers have just been let out, in their transaction."""
    columns = {"cursor": bookmark.cursor, "cursor_fit": bookmark.fit, "full_read_at": bookmark.full_read_at}
    connection.execute(update(SCOPE).where(SCOPE.c.id == scope_id).values(**columns))


def drop_bookmark(connection: Connection, scope_id: int) -> None:
    """Take the bookmark out: the next read is a full one. When the last of them was is still known."""
    connection.execute(update(SCOPE).where(SCOPE.c.id == scope_id).values(cursor="", cursor_fit=""))


class GateClosedError(PermanentError):
    """What is staged must not be published: a stage was cut short, or a brake stopped it, or there was none."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether staged rows may be published; if not, `reason` says why, and `run_id` is the run that closed it.

    `brakes`: what stopped that run. An open gate with `brakes` was opened by a person for one run, and for no other.
    """

    is_open: bool
    reason: str
    run_id: str

    @property
    def brakes(self) -> tuple[str, ...]:
        """The brakes that closed it, also where a person has opened it since; none where it was not a brake."""
        return _brakes_of(self.reason)


@dataclass(frozen=True, slots=True)
class Opening:
    """What a stage finds when it opens. `boundary`: the feed's highest entry id; `released_id`: the highest that a gate has let
    out by itself; `before`: the gate as it was. `bookmark`: what is kept if the gate opens, known once the read has ended.
    """

    is_whole: bool
    kind: ReadKind
    stamp: str
    boundary: int
    released_id: int
    known_before: int
    last_whole_read: int | None
    before: GateState
    before_run: str
    before_reason: str
    key_definition: str = ""
    bookmark: Bookmark | None = None

    def ended(self, end: ReadEnd) -> Opening:
        """Return what is known of the read once it has ended."""
        return replace(self, is_whole=self.is_whole and not end.is_short, bookmark=end.bookmark)

    @property
    def brakes(self) -> tuple[str, ...]:
        """The brakes behind the gate as it was."""
        return _brakes_of(self.before_reason)

    def has_other_keys(self, key_definition: str) -> bool:
        """Whether the feed's keys were made in another way before."""
        return bool(key_definition and self.key_definition and key_definition != self.key_definition)

    @property
    def was_free(self) -> bool:
        """Whether the gate stood open, and for everyone."""
        return self.before is GateState.OPEN and not self.before_reason


_STOPPED = "stopped by "
_REASONS = {
    GateState.UNSTAGED: "nothing was staged yet",
    GateState.STAGING: "a stage is under way, or was cut short before its rows could be judged",
}


def read_gate(connection: Connection, scope_id: int) -> Gate:
    """Return the gate of one feed."""
    row = connection.execute(select(SCOPE.c.gate, SCOPE.c.gate_reason, SCOPE.c.gate_run).where(SCOPE.c.id == scope_id)).one()
    state = GateState(row.gate)
    return Gate(state is GateState.OPEN, row.gate_reason or _REASONS.get(state, ""), row.gate_run)


def lock(connection: Connection, scope_id: int) -> Row[*tuple[Any, ...]]:
    """Return the feed's scope, locked until the transaction ends."""
    return connection.execute(select(SCOPE).where(SCOPE.c.id == scope_id).with_for_update()).one()


def opening_of(
    scope: Row[*tuple[Any, ...]], *, is_whole: bool, kind: ReadKind, stamp: str, boundary: int, known_before: int
) -> Opening:
    """Return what a stage finds when it opens, by the feed's scope as it is then."""
    return Opening(
        is_whole=is_whole,
        kind=kind,
        stamp=stamp,
        boundary=boundary,
        released_id=scope.released_id,
        known_before=known_before,
        last_whole_read=scope.last_whole_read,
        before=GateState(scope.gate),
        before_run=scope.gate_run,
        before_reason=scope.gate_reason,
        key_definition=scope.key_definition,
    )


def shut(connection: Connection, turn: FencedTransaction, *, is_whole: bool, stamp: str, kind: ReadKind) -> Opening:
    """Close the gate for the length of a stage.

    A full read first takes the bookmark out: only its own passing gives the feed another one, so that what it stages and
    leaves behind the gate is read again by a full one.
    """
    scope = lock(connection, turn.scope_id)
    is_waiting = and_(ENTRY.c.state == EntryState.PENDING.value, ENTRY.c.attempts == 0, ENTRY.c.id > scope.released_id)
    is_unknown = or_(is_waiting, ENTRY.c.state == EntryState.HELD.value)
    # Counted apart, so that the entries themselves, which are large, need not be looked at.
    entries = select(func.coalesce(func.max(ENTRY.c.id), 0), func.count()).where(ENTRY.c.scope_id == turn.scope_id)
    boundary, count = connection.execute(entries).one()
    unknown = connection.execute(select(func.count()).where(ENTRY.c.scope_id == turn.scope_id, is_unknown)).scalar_one()
    turn.take_over(connection)
    _set(connection, turn, GateState.STAGING)
    if kind is ReadKind.FULL or is_whole:
        drop_bookmark(connection, turn.scope_id)
    turn.note(connection, phase=Phase.STAGING.value, is_whole=is_whole)
    return opening_of(scope, is_whole=is_whole, kind=kind, stamp=stamp, boundary=boundary, known_before=count - unknown)


def judge(connection: Connection, turn: FencedTransaction, opening: Opening, report: StageReport) -> bool:
    """Set the gate after a completed stage, and with it the bookmark: it moves only where the gate opens for everyone.
    Return whether it does.

    A partial read opens a gate that was closed before it only if it has met every row that waits behind it again:
    otherwise three rows picked by hand would let out all that a brake had stopped. What a person accepted for this run
    stops every other one: that run opens the gate for itself. An incremental read that has not met them all never will:
    the next one is a full one.
    """
    is_blind = report.is_blind
    if is_blind and opening.kind is ReadKind.INCREMENTAL:
        drop_bookmark(connection, turn.scope_id)
    tripped = (*report.brakes, *report.accepted)
    opens = not tripped and not is_blind
    if opens:
        _set(connection, turn, GateState.OPEN)
        _release(connection, turn.scope_id)
        _remember_keys(connection, turn.scope_id, report)
        if opening.bookmark is not None:
            keep_bookmark(connection, turn.scope_id, opening.bookmark)
        if opening.is_whole:
            _remember_read(connection, turn.scope_id, report.account.present, opening.stamp, turn.now())
    elif tripped and (opening.brakes or not is_blind):
        still = opening.brakes if is_blind else ()
        _set(connection, turn, GateState.BRAKED, _STOPPED + ", ".join(dict.fromkeys((*still, *tripped))))
    else:
        restored = {"gate": opening.before.value, "gate_run": opening.before_run, "gate_reason": opening.before_reason}
        connection.execute(update(SCOPE).where(SCOPE.c.id == turn.scope_id).values(**restored))
    return opens


def accept(connection: Connection, scope_id: int, by: str) -> Gate:
    """Open a gate that brakes closed, on a person's word, for one run.

    Raises `GateClosedError` where no completed stage stands behind it: there is nothing yet that could be accepted.
    """
    # Locked first: a stage that begins in this very moment would else find its gate opened behind it.
    state = connection.execute(select(SCOPE.c.gate).where(SCOPE.c.id == scope_id).with_for_update()).scalar_one()
    gate = read_gate(connection, scope_id)
    if state not in (GateState.BRAKED, GateState.OPEN):
        raise closed(gate)
    if gate.brakes:
        stopped, _, _ = gate.reason.partition("; ")
        opened = {"gate": GateState.OPEN.value, "gate_reason": f"{stopped}; accepted by {by}"}
        connection.execute(update(SCOPE).where(SCOPE.c.id == scope_id).values(**opened))
        _accept_read(connection, scope_id, gate)
    return read_gate(connection, scope_id)


def _brakes_of(reason: str) -> tuple[str, ...]:
    stopped, _, _ = reason.partition("; ")
    return tuple(stopped.removeprefix(_STOPPED).split(", ")) if stopped.startswith(_STOPPED) else ()


def closed(gate: Gate) -> GateClosedError:
    """Say why nothing is published, and what would help."""
    hint = "look at `eventsync rows`, then mend the source or the mapping and run again, or accept the brake with `--accept`"
    if not gate.reason.startswith("stopped"):
        hint = "run the feed again without `--publish-only`: its rows are read, checked and then published"
    return GateClosedError(f"nothing is published: {gate.reason}", hint=hint)


def _release(connection: Connection, scope_id: int) -> None:
    """Remember that everything staged so far has been let out: it is history, which later reads are compared with."""
    newest = select(func.coalesce(func.max(ENTRY.c.id), 0)).where(ENTRY.c.scope_id == scope_id).scalar_subquery()
    connection.execute(update(SCOPE).where(SCOPE.c.id == scope_id).values(released_id=newest))
    let_out(connection, scope_id)


def read_report(connection: Connection, scope_id: int, run_id: str) -> StageReport | None:
    """Return the report of a read, None where there is none (any more)."""
    stored = connection.execute(select(RUN.c.stage_report).where(RUN.c.scope_id == scope_id, RUN.c.id == run_id)).scalar()
    return load_report(stored) if stored else None


def _accept_read(connection: Connection, scope_id: int, gate: Gate) -> None:
    """From now on the accepted read is what the next one is compared with."""
    report = read_report(connection, scope_id, gate.run_id)
    if report is None:
        return
    _remember_keys(connection, scope_id, report)
    if "scope" in gate.brakes and report.alongside is not None:
        put_side_by_side(connection, scope_id, report.alongside.scope_id)
    if report.is_whole:
        run = (RUN.c.scope_id == scope_id, RUN.c.id == gate.run_id)
        read_at = connection.execute(select(RUN.c.started_at).where(*run)).scalar_one()
        _remember_read(connection, scope_id, report.account.present, "", read_at)


def _remember_keys(connection: Connection, scope_id: int, report: StageReport) -> None:
    if report.key_definition:
        connection.execute(update(SCOPE).where(SCOPE.c.id == scope_id).values(key_definition=report.key_definition))


def _remember_read(connection: Connection, scope_id: int, rows: int, stamp: str, read_at: datetime) -> None:
    columns = {"last_whole_read": rows, "stamp": stamp, "whole_read_at": read_at}
    connection.execute(update(SCOPE).where(SCOPE.c.id == scope_id).values(**columns))


def _set(connection: Connection, turn: FencedTransaction, state: GateState, reason: str = "") -> None:
    columns = {"gate": state.value, "gate_run": turn.run_id, "gate_reason": reason}
    connection.execute(update(SCOPE).where(SCOPE.c.id == turn.scope_id).values(**columns))
