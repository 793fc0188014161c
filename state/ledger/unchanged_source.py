"""An unchanged source: its account follows from the last read's, without reading a row, where the ledger is unchanged as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, exists, func, select, update

from mappings.refusals import ReasonCode
from state.enums import EntryState, GateState, Phase, ProblemKind
from state.ledger.accounts import StageReport, dump
from state.ledger.claims import IS_SET_ASIDE
from state.ledger.compare import Progress
from state.ledger.gate import Opening, judge, lock, opening_of, read_report
from state.ledger.lease import FencedTransaction
from state.ledger.stage_policy import ReadKind, StagePolicy
from state.tables import ENTRY, PROBLEM, SCOPE

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
