"""A read that need not be made: its source is as the last one left it, so that its account can be told without a row.

Whether the source is as it was is the caller's to know; here it is asked whether the ledger is too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, exists, func, select, update

from mappings.refusals import ReasonCode
from state.enums import EntryState, GateState, Phase, ProblemKind
from state.ledger.accounts import StageReport, dump, load_report
from state.ledger.claims import IS_SET_ASIDE
from state.ledger.compare import Progress
from state.ledger.gate import Opening, judge, lock
from state.ledger.lease import FencedTransaction
from state.ledger.stage_policy import ReadKind, StagePolicy
from state.tables import ENTRY, PROBLEM, RUN, SCOPE

_MOVING = (EntryState.PENDING.value, EntryState.BLOCKED.value)
"""States that runs change by themselves, whatever the source says: what a row comes to may change with them."""


@dataclass(frozen=True, slots=True)
class UnchangedRead:
    """A source seen again as it was. `known`: the evidence that the last whole read left; `stamp`: what takes its place."""

    known: str
    stamp: str


def read_stamp(connection: Connection, scope_id: int) -> str:
    """Return the evidence that the last whole read left which was let out; "" where there is none."""
    return str(connection.execute(select(SCOPE.c.stamp).where(SCOPE.c.id == scope_id)).scalar_one())


def is_lasting(connection: Connection, scope_id: int, progress: Progress) -> bool:
    """Whether a read that ends now is evidence: the same rows would come to the same again, whatever becomes of what is owed.

    A row called off is left out until its event is delivered after all. Where two rows dispute a key, both are new in every
    read, with their warnings; whether they look like copies depends on what was staged behind them.
    """
    tally, is_disputed = progress.tally, bool(progress.marks.conflicting)
    if tally.restless or (is_disputed and tally.warnings):
        return False
    is_owed = ENTRY.c.state.in_(_MOVING)
    return not ((tally.called_off or is_disputed) and _is_any(connection, ENTRY.c.scope_id == scope_id, is_owed))


def repeat(
    connection: Connection,
    turn: FencedTransaction,
    policy: StagePolicy,
    asked: UnchangedRead,
    brake: Callable[[StageReport], Sequence[str]],
) -> StageReport | None:
    """Write down, in the caller's transaction, what reading the same source again would come to, and return its report.

    None, and nothing is written, where that cannot be told without its rows: the last read was not whole or not let out for
    everyone, something has happened to the ledger since that may make another thing of an unchanged row, or a brake trips.
    """
    scope = lock(connection, turn.scope_id)
    last = _let_out(connection, scope, asked.known)
    refused = _count_refused(connection, turn.scope_id)
    if last is None or not _is_told_by(last, connection, turn.scope_id, policy, refused):
        return None
    opening = _opened(connection, turn.scope_id, scope, asked.stamp)
    report = _told_again(last, turn.run_id, opening, policy, refused)
    report.account.check()
    if brake(report):
        return None
    turn.take_over(connection)
    judge(connection, turn, opening, report)
    _list_again(connection, turn, scope.gate_run)
    accounts = {"read_account": dump(report.account), "stage_report": dump(report), "brakes": "[]"}
    turn.note(connection, phase=Phase.STAGED.value, is_whole=True, **accounts)
    return report


def is_evident(connection: Connection, scope_id: int, known: str) -> bool:
    """Whether the last read is the whole one that left this evidence, and nobody has decided about a row since."""
    scope = connection.execute(select(SCOPE).where(SCOPE.c.id == scope_id)).one()
    return _let_out(connection, scope, known) is not None


def _let_out(connection: Connection, scope: Row[*tuple[Any, ...]], known: str) -> StageReport | None:
    """Return the report of the last read, if it is the whole one that left this evidence, and was let out for everyone."""
    if scope.gate != GateState.OPEN or scope.gate_reason or scope.stamp != known:
        return None
    last = _last_report(connection, scope.id, scope.gate_run)
    return last if last is not None and last.is_whole and not last.brakes and not last.accepted else None


def _opened(connection: Connection, scope_id: int, scope: Row[*tuple[Any, ...]], stamp: str) -> Opening:
    """Return what a whole read finds when it opens: everything that is known has been let out."""
    entries = select(func.coalesce(func.max(ENTRY.c.id), 0), func.count()).where(ENTRY.c.scope_id == scope_id)
    newest, known = connection.execute(entries).one()
    return Opening(
        is_whole=True,
        kind=ReadKind.FULL,
        stamp=stamp,
        boundary=newest,
        released_id=scope.released_id,
        known_before=known,
        last_whole_read=scope.last_whole_read,
        before=GateState(scope.gate),
        before_run=scope.gate_run,
        before_reason=scope.gate_reason,
        key_definition=scope.key_definition,
    )


def _last_report(connection: Connection, scope_id: int, run_id: str) -> StageReport | None:
    """Return the report of the read that the gate stands by."""
    stored = connection.execute(select(RUN.c.stage_report).where(RUN.c.scope_id == scope_id, RUN.c.id == run_id)).scalar()
    return load_report(stored) if stored else None


def _count_refused(connection: Connection, scope_id: int) -> int:
    """Count the refused entries that the source still asks for."""
    is_asked_for = (ENTRY.c.fingerprint != "", ENTRY.c.vanished_at.is_(None), ENTRY.c.past_at.is_(None))
    refused = (ENTRY.c.scope_id == scope_id, ENTRY.c.state == EntryState.REFUSED.value, *is_asked_for)
    return connection.execute(select(func.count()).select_from(ENTRY).where(*refused)).scalar_one()


def _is_told_by(last: StageReport, connection: Connection, scope_id: int, policy: StagePolicy, refused: int) -> bool:
    """Whether every row of the last read would come to what it was then, or be unchanged where it was new.

    A row that says what is pinned is unchanged in whatever state its entry is. Copies depend on the entries that they look like;
    what has drifted, on whether its event is delivered; what the source has called off, on whether it is sent by now.
    """
    if last.standing or last.account.held or policy.drafts_only:
        return False
    of_feed = ENTRY.c.scope_id == scope_id
    is_moving = refused != last.account.still_refused or _is_any(connection, of_feed, ENTRY.c.state.in_(_MOVING))
    if is_moving and not _says_all(last, connection, scope_id, policy):
        return False
    # Only a feed that hears nothing of changes has drifts of no kind; those of all others are found without reading every entry.
    drifted = ENTRY.c.drift_fingerprint if policy.on_change == "ignore" else ENTRY.c.drift_kind
    is_drifted = (of_feed, drifted.is_not(None))
    if policy.on_change == "create_draft_again":
        return not _is_any(connection, *is_drifted)
    is_doubtful = (ENTRY.c.state != EntryState.DELIVERED.value) | IS_SET_ASIDE
    return not _is_any(connection, *is_drifted, is_doubtful)


def _says_all(last: StageReport, connection: Connection, scope_id: int, policy: StagePolicy) -> bool:
    """Whether each entry of the feed is what exactly one row of the last read says: then none can be withdrawn, reopened or
    disputed, whatever state a run that was cut short has left it in.
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


def _told_again(last: StageReport, run_id: str, opening: Opening, policy: StagePolicy, refused: int) -> StageReport:
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


def _list_again(connection: Connection, turn: FencedTransaction, last_run: str) -> None:
    """Put what the last read rejected on the list of this one."""
    listed = (PROBLEM.c.scope_id == turn.scope_id, PROBLEM.c.listed_run == last_run)
    seen = {"run_id": turn.run_id, "listed_run": turn.run_id, "seen_at": turn.now()}
    connection.execute(update(PROBLEM).where(*listed, PROBLEM.c.kind == ProblemKind.REJECTED.value).values(**seen))
