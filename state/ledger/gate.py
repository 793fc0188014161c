"""The gate between the two commit points, and the bookmark that moves with it.

What was staged may be published only after a stage that completed, and that no brake stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, exists, func, or_, select, update

from mappings.errors import PermanentError
from mappings.outcome import ReasonCode
from state.enums import EntryState, GateState, Phase, ProblemKind
from state.ledger.accounts import StageReport, dump, load_report
from state.ledger.duplicates import put_side_by_side
from state.ledger.entries import IS_SET_ASIDE, let_out
from state.ledger.lease import FencedTransaction
from state.ledger.reads import Progress, ReadKind, StagePolicy
from state.tables import ENTRY, PROBLEM, RUN, SCOPE


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


_MOVING = (EntryState.PENDING.value, EntryState.BLOCKED.value)
"""States that runs change without the source: the outcome of a row may change with them."""


@dataclass(frozen=True, slots=True)
class UnchangedRead:
    """A source that is as the last whole read, which left the stamp `known`, saw it. `stamp` takes its place."""

    known: str
    stamp: str


def read_stamp(connection: Connection, scope_id: int) -> str:
    """Return the stamp of the last whole read that the gate let out, "" where there is none."""
    return str(connection.execute(select(SCOPE.c.stamp).where(SCOPE.c.id == scope_id)).scalar_one())


def is_repeatable(connection: Connection, scope_id: int, progress: Progress) -> bool:
    """Whether the next read of the same rows would have the same outcome as the one that ends now, before and after publishing.

    A row called off is left out until its event is delivered after all. Where two rows claim a key, both are new in every
    read, with their warnings; whether they look like copies depends on what was staged behind them.
    """
    tally, is_conflicting = progress.tally, bool(progress.marks.conflicting)
    if tally.restless or (is_conflicting and tally.warnings):
        return False
    is_owed = ENTRY.c.state.in_(_MOVING)
    return not ((tally.called_off or is_conflicting) and _is_any(connection, ENTRY.c.scope_id == scope_id, is_owed))


def repeat_read(
    connection: Connection,
    turn: FencedTransaction,
    policy: StagePolicy,
    asked: UnchangedRead,
    brake: Callable[[StageReport], Sequence[str]],
) -> StageReport | None:
    """Record, in the caller's transaction, the account of reading the same source again, and return its report.

    None, and nothing is written, where that does not follow without its rows: the last read was not whole or not let out for
    everyone, something has happened to the ledger since that may make another thing of an unchanged row, or a brake trips.
    """
    scope = lock(connection, turn.scope_id)
    last = _last_free_read(connection, scope, asked.known)
    refused = _count_refused(connection, turn.scope_id)
    if last is None or not _follows(last, connection, turn.scope_id, policy, refused):
        return None
    opening = _opened(connection, scope, asked.stamp)
    report = _repeated(last, turn.run_id, opening, policy, refused)
    report.account.check()
    if brake(report):
        return None
    turn.take_over(connection)
    judge(connection, turn, opening, report)
    _list_rejections_again(connection, turn, scope.gate_run)
    accounts = {"read_account": dump(report.account), "stage_report": dump(report), "brakes": "[]"}
    turn.note(connection, phase=Phase.STAGED.value, is_whole=True, **accounts)
    return report


def is_last_read(connection: Connection, scope_id: int, known: str) -> bool:
    """Whether the last read is the whole one that left this stamp, and no person has decided about a row since."""
    scope = connection.execute(select(SCOPE).where(SCOPE.c.id == scope_id)).one()
    return _last_free_read(connection, scope, known) is not None


def _last_free_read(connection: Connection, scope: Row[*tuple[Any, ...]], known: str) -> StageReport | None:
    """Return the report of the last read, if it is the whole one that left this stamp, and its gate opened for everyone."""
    if scope.gate != GateState.OPEN or scope.gate_reason or scope.stamp != known:
        return None
    last = read_report(connection, scope.id, scope.gate_run)
    return last if last is not None and last.is_whole and not last.brakes and not last.accepted else None


def _opened(connection: Connection, scope: Row[*tuple[Any, ...]], stamp: str) -> Opening:
    """Return what a whole read finds when it opens: everything that is known has been let out."""
    entries = select(func.coalesce(func.max(ENTRY.c.id), 0), func.count()).where(ENTRY.c.scope_id == scope.id)
    newest, known = connection.execute(entries).one()
    return opening_of(scope, is_whole=True, kind=ReadKind.FULL, stamp=stamp, boundary=newest, known_before=known)


def _count_refused(connection: Connection, scope_id: int) -> int:
    """Count the refused entries that the source still asks for."""
    is_asked_for = (ENTRY.c.fingerprint != "", ENTRY.c.vanished_at.is_(None), ENTRY.c.past_at.is_(None))
    refused = (ENTRY.c.scope_id == scope_id, ENTRY.c.state == EntryState.REFUSED.value, *is_asked_for)
    return connection.execute(select(func.count()).select_from(ENTRY).where(*refused)).scalar_one()


def _follows(last: StageReport, connection: Connection, scope_id: int, policy: StagePolicy, refused: int) -> bool:
    """Whether every row of the last read would have the same outcome, or be unchanged where it was new.

    A row that says what is pinned is unchanged in whatever state its entry is. Copies depend on the entries that they look like;
    what has drifted, on whether its event is delivered; what the source has called off, on whether it is sent by now.
    """
    if last.standing or last.account.held or policy.drafts_only:
        return False
    of_feed = ENTRY.c.scope_id == scope_id
    is_moving = refused != last.account.still_refused or _is_any(connection, of_feed, ENTRY.c.state.in_(_MOVING))
    if is_moving and not _is_all_mapped(last, connection, scope_id, policy):
        return False
    # Only a feed that ignores changes has drifts of no kind; those of all others are found without reading every entry.
    drifted = ENTRY.c.drift_fingerprint if policy.on_change == "ignore" else ENTRY.c.drift_kind
    is_drifted = (of_feed, drifted.is_not(None))
    if policy.on_change == "create_draft_again":
        return not _is_any(connection, *is_drifted)
    is_doubtful = (ENTRY.c.state != EntryState.DELIVERED.value) | IS_SET_ASIDE
    return not _is_any(connection, *is_drifted, is_doubtful)


def _is_all_mapped(last: StageReport, connection: Connection, scope_id: int, policy: StagePolicy) -> bool:
    """Whether each entry of the feed is what exactly one row of the last read says: then none can be withdrawn, reopened or
    conflicting, in any state that a run which was cut short has left it in.
    """
    account = last.account
    if account.expanded or account.drifted or policy.on_change != "report":
        return False
    if any(reason.code is ReasonCode.DUPLICATE_KEY for reason in last.reasons):
        return False
    of_feed = ENTRY.c.scope_id == scope_id
    known = connection.execute(select(func.count()).where(of_feed)).scalar_one()
    said = account.new + account.unchanged + account.still_refused
    return known == said and not _is_any(connection, of_feed, ENTRY.c.drift_kind.is_not(None))


def _is_any(connection: Connection, *which: ColumnElement[bool]) -> bool:
    return bool(connection.execute(select(exists().where(*which))).scalar())


def _repeated(last: StageReport, run_id: str, opening: Opening, policy: StagePolicy, refused: int) -> StageReport:
    """Return the report of a read of the same rows: what was new is unchanged or refused, and nothing more is missed."""
    said = last.account.new + last.account.unchanged + last.account.still_refused
    account = replace(last.account, new=0, unchanged=said - refused, still_refused=refused)
    return StageReport(
        run_id=run_id,
        is_whole=True,
        account=account,
        warnings=last.warnings,
        is_marking=policy.on_vanish == "report",
        known_before=opening.known_before,
        met=last.present,
        present=last.present,
        last_whole_read=opening.last_whole_read,
        rows=last.rows,
        skipped=last.skipped,
        reasons=last.reasons,
        rejections=last.rejections,
        key_definition=policy.key_definition,
        has_new_keys=opening.has_other_keys(policy.key_definition),
    )


def _list_rejections_again(connection: Connection, turn: FencedTransaction, last_run: str) -> None:
    """List again for this read what the last one rejected."""
    listed = (PROBLEM.c.scope_id == turn.scope_id, PROBLEM.c.listed_run == last_run)
    seen = {"run_id": turn.run_id, "listed_run": turn.run_id, "seen_at": turn.now()}
    connection.execute(update(PROBLEM).where(*listed, PROBLEM.c.kind == ProblemKind.REJECTED.value).values(**seen))
