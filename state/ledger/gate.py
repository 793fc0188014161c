"""The gate between the two commit points, the bookmark that moves with it, and accounts of unchanged sources.

Staged rows may be published only after a complete stage that no brake stopped. For an unchanged source and ledger the account
is derived from the last read's, without reading rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, select, update

from mappings.errors import PermanentError
from mappings.reasons import ReasonCode
from state.database import in_pages, insert_if_new
from state.enums import GateState, Observed, Outcome, Phase, ProblemKind
from state.facts import Tried
from state.ledger.accounts import StagePolicy, StageReport, dump, load_report
from state.ledger.entries import IS_GONE, IS_IGNORED, IS_NEVER_SENT, IS_OPEN, TRIED, count_entries, newest_and_count
from state.ledger.lease import FencedTransaction
from state.tables import ENTRY, OBSERVATION, PROBLEM, RUN, SCOPE, SIDE_BY_SIDE

_Scope = Row[*tuple[Any, ...]]
_STOPPED = "stopped by "
_REASONS = {
    GateState.UNSTAGED: "nothing was staged yet",
    GateState.STAGING: "a stage is under way, or was cut short before its rows could be judged",
}


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A position in a source, as text defined by the source. `cursor`: "" if there is none.

    `fit`: evidence of the mapping that was applied to the rows before it; with another one the position is invalid.
    `full_read_at`: when the full read began on which the position is based.
    """

    cursor: str = ""
    fit: str = ""
    full_read_at: datetime | None = None


NO_BOOKMARK = Bookmark()


class GateClosedError(PermanentError):
    """Staged rows must not be published: the stage was cut short or stopped by a brake, or there was none."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The state of the gate; if it is closed, `reason` says why, and `run_id` is the run that closed it.

    `brakes`: what stopped that run, even if a person has since opened the gate for one run.
    """

    is_open: bool
    reason: str
    run_id: str

    @property
    def brakes(self) -> tuple[str, ...]:
        """The brakes that closed the gate, empty if none did."""
        return brakes_of(self.reason)


def read_bookmark(connection: Connection, scope_id: int) -> Bookmark:
    """Return the feed's bookmark."""
    scope = _read_scope(connection, scope_id)
    return Bookmark(scope.cursor, scope.cursor_fit, scope.full_read_at)


def read_stamp(connection: Connection, scope_id: int) -> str:
    """Return the stamp of the last full read that passed the gate, "" if there is none."""
    return str(_read_scope(connection, scope_id).stamp)


def drop_bookmark(connection: Connection, scope_id: int) -> None:
    """Delete the bookmark, so that the next read is a full one. The time of the last full read is kept."""
    _set(connection, scope_id, cursor="", cursor_fit="")


def read_gate(connection: Connection, scope_id: int) -> Gate:
    """Return the gate of one feed."""
    scope = _read_scope(connection, scope_id)
    reason = scope.gate_reason or _REASONS.get(GateState(scope.gate), "")
    return Gate(scope.gate == GateState.OPEN, reason, scope.gate_run)


def brakes_of(reason: str) -> tuple[str, ...]:
    """Return the brakes named in a gate's reason."""
    stopped, _, _ = reason.partition("; ")
    return tuple(stopped.removeprefix(_STOPPED).split(", ")) if stopped.startswith(_STOPPED) else ()


def closed(gate: Gate) -> GateClosedError:
    """Return the error for a closed gate, with a hint."""
    hint = "look at `eventsync rows`, then correct the source or the mapping and run again, or accept the brake with `--accept`"
    if not gate.brakes:
        hint = "run the feed again without `--publish-only`: its rows are read, checked and then published"
    return GateClosedError(f"nothing is published: {gate.reason}", hint=hint)


def has_new_keys(scope: _Scope, key_definition: str) -> bool:
    """Return whether the definition of the feed's keys has changed."""
    return bool(key_definition and scope.key_definition and key_definition != scope.key_definition)


def shut(connection: Connection, run: FencedTransaction, *, is_whole: bool, is_anew: bool) -> tuple[_Scope, int, int]:
    """Close the gate during a stage. Return the scope before it, its highest entry, and the number of released entries.

    A full read (`is_anew`) also deletes the bookmark. Only its own passing sets another one, so that rows that it leaves staged
    behind the gate are read again in full.
    """
    scope = _read_scope(connection, run.scope_id, is_locked=True)
    boundary, count = newest_and_count(connection, run.scope_id)
    is_waiting, is_held = (IS_NEVER_SENT, IS_OPEN, ENTRY.c.id > scope.released_id), (ENTRY.c.outcome == Outcome.HELD, IS_OPEN)
    unknown = sum(count_entries(connection, ENTRY.c.scope_id == run.scope_id, *which) for which in (is_waiting, is_held))
    run.take_over(connection)
    _set(connection, run.scope_id, gate=GateState.STAGING.value, gate_run=run.run_id, gate_reason="")
    if is_anew:
        drop_bookmark(connection, run.scope_id)
    run.note(connection, phase=Phase.STAGING.value, is_whole=is_whole)
    return scope, boundary, count - unknown


def judge(
    connection: Connection,
    run: FencedTransaction,
    before: _Scope,
    report: StageReport,
    *,
    stamp: str,
    bookmark: Bookmark | None = None,
) -> bool:
    """Set the gate after a complete stage, and move the bookmark if the gate opens for all runs. Return whether it does.

    `before`: the feed's scope before the stage. A partial read opens a formerly closed gate only if it has met every row that
    waits behind it; otherwise three rows picked by hand would release all that a brake had stopped. What a person accepted for
    this run stops every other one: this run opens the gate for itself.
    """
    is_blind, scope_id = report.is_blind, run.scope_id
    tripped = (*report.brakes, *report.accepted)
    earlier = brakes_of(before.gate_reason)
    opens = not tripped and not is_blind
    if opens:
        # All that was staged so far is released: later reads are compared with it.
        newest, _ = newest_and_count(connection, scope_id)
        _set(connection, scope_id, gate=GateState.OPEN.value, gate_run=run.run_id, gate_reason="", released_id=newest)
        if bookmark is not None:
            place = {"cursor": bookmark.cursor, "cursor_fit": bookmark.fit, "full_read_at": bookmark.full_read_at}
            _set(connection, scope_id, **place)
        _remember(connection, scope_id, report, stamp, run.now())
    elif tripped and (earlier or not is_blind):
        reason = _STOPPED + ", ".join(dict.fromkeys((*(earlier if is_blind else ()), *tripped)))
        _set(connection, scope_id, gate=GateState.BRAKED.value, gate_run=run.run_id, gate_reason=reason)
    else:
        _set(connection, scope_id, gate=before.gate, gate_run=before.gate_run, gate_reason=before.gate_reason)
    return opens


def accept(connection: Connection, scope_id: int, by: str) -> Gate:
    """Open a gate that brakes closed, for one run, by a person's decision. The next read is compared with the accepted one.

    Raises `GateClosedError` if there is no complete stage: there is nothing yet to accept.
    """
    # Locked first: a stage that begins in this very moment would else find its gate opened behind it.
    scope = _read_scope(connection, scope_id, is_locked=True)
    gate = read_gate(connection, scope_id)
    if scope.gate not in (GateState.BRAKED, GateState.OPEN):
        raise closed(gate)
    if not gate.brakes:
        return gate
    stopped, _, _ = gate.reason.partition("; ")
    _set(connection, scope_id, gate=GateState.OPEN.value, gate_reason=f"{stopped}; accepted by {by}")
    report = read_report(connection, scope_id, gate.run_id)
    if report is not None:
        began = select(RUN.c.started_at).where(RUN.c.scope_id == scope_id, RUN.c.id == gate.run_id)
        _remember(connection, scope_id, report, "", connection.execute(began).scalar_one())
        if "scope" in gate.brakes and report.alongside is not None:
            put_side_by_side(connection, scope_id, report.alongside.scope_id)
    return read_gate(connection, scope_id)


def read_report(connection: Connection, scope_id: int, run_id: str) -> StageReport | None:
    """Return the report of a read, None if there is none (any more)."""
    stored = connection.execute(select(RUN.c.stage_report).where(RUN.c.scope_id == scope_id, RUN.c.id == run_id)).scalar()
    return load_report(stored) if stored else None


def repeat_read(
    run: FencedTransaction, policy: StagePolicy, known: str, stamp: str, brake: Callable[[StageReport], Sequence[str]]
) -> StageReport | None:
    """Record an unchanged source in one transaction, as if it had been read again, and return the report.

    `known`: the stamp of the last full read; `stamp` replaces it. `brake`: as for `Stage.close`. None, with nothing written, if
    the account cannot be derived: the last read was not full or not released for all runs, the ledger has changed in a way that
    may change the outcome of an unchanged row, or a brake trips. Raises `LeaseLostError` if another run has taken over the
    feed.
    """
    with run.transaction() as connection:
        scope = _read_scope(connection, run.scope_id, is_locked=True)
        last = _last_free_read(connection, scope, known)
        # Those that the source still asks for.
        is_refused = (ENTRY.c.outcome == Outcome.REFUSED, TRIED != Tried.MAYBE, IS_OPEN, ~IS_GONE)
        refused = count_entries(connection, ENTRY.c.scope_id == run.scope_id, *is_refused)
        if last is None or not _follows(last, connection, run.scope_id, policy, refused):
            return None
        # What was new is unchanged or refused, and nothing more is missed.
        said = last.account.new + last.account.unchanged + last.account.still_refused
        report = StageReport(
            run_id=run.run_id,
            is_whole=True,
            account=replace(last.account, new=0, unchanged=said - refused, still_refused=refused),
            warnings=last.warnings,
            is_marking=policy.on_vanish == "report",
            known_before=newest_and_count(connection, run.scope_id)[1],
            met=last.present,
            present=last.present,
            last_whole_read=scope.last_whole_read,
            rows=last.rows,
            skipped=last.skipped,
            reasons=last.reasons,
            rejections=last.rejections,
            key_definition=policy.key_definition,
            has_new_keys=has_new_keys(scope, policy.key_definition),
        )
        report.account.check()
        if brake(report):
            return None
        run.take_over(connection)
        judge(connection, run, scope, report, stamp=stamp)
        # What the last read rejected is listed again for this one.
        listed = (PROBLEM.c.scope_id == run.scope_id, PROBLEM.c.listed_run == scope.gate_run)
        seen = {"run_id": run.run_id, "listed_run": run.run_id, "seen_at": run.now()}
        connection.execute(update(PROBLEM).where(*listed, PROBLEM.c.kind == ProblemKind.REJECTED.value).values(**seen))
        accounts = {"read_account": dump(report.account), "stage_report": dump(report), "brakes": "[]"}
        run.note(connection, phase=Phase.STAGED.value, is_whole=True, **accounts)
        return report


def is_last_read(connection: Connection, scope_id: int, known: str) -> bool:
    """Return whether the last read is the full one with this stamp, and no person has decided about a row since."""
    return _last_free_read(connection, _read_scope(connection, scope_id), known) is not None


def _last_free_read(connection: Connection, scope: _Scope, known: str) -> StageReport | None:
    """Return the report of the last read if it is the full one with this stamp and its gate opened for all runs, else None."""
    if scope.gate != GateState.OPEN or scope.gate_reason or scope.stamp != known:
        return None
    last = read_report(connection, scope.id, scope.gate_run)
    return last if last is not None and last.is_whole and not last.brakes and not last.accepted else None


def _follows(last: StageReport, connection: Connection, scope_id: int, policy: StagePolicy, refused: int) -> bool:
    """Return whether every row of the last read would have the same outcome, or be unchanged if it was new.

    A row with the pinned payload is unchanged in any state of its entry. Copies depend on the entries that they resemble, drift
    on whether the event is delivered, and cancelled rows on whether their event was sent.
    """
    account, of_feed = last.account, ENTRY.c.scope_id == scope_id
    if last.standing or account.held or policy.drafts_only:
        return False
    # States that runs change without the source: the outcome of a row may change with them.
    is_moving = (ENTRY.c.outcome.in_((Outcome.OWED, Outcome.DENIED)), IS_OPEN)
    if refused != account.still_refused or count_entries(connection, of_feed, *is_moving):
        # Unless each entry is what exactly one row of the last read says: then none can be withdrawn, reopened or conflicting, in
        # any state that a run which was cut short has left it in.
        is_disputed = any(reason.code is ReasonCode.DUPLICATE_KEY for reason in last.reasons)
        said = account.new + account.unchanged + account.still_refused
        is_uncertain = account.expanded or account.drifted or policy.on_change != "report" or is_disputed
        if is_uncertain or count_entries(connection, of_feed) != said:
            return False
        if _count_differing(connection, scope_id, _LISTED):
            return False
    # A delivered entry that differs does so again; of all others it depends on their state.
    kinds = (*_LISTED, Observed.COUNTED) if policy.on_change == "ignore" else _LISTED
    return not _count_differing(connection, scope_id, kinds, IS_OPEN | IS_IGNORED)


_LISTED = (Observed.EDITED, Observed.TO_PUBLISH, Observed.CANCELLED, Observed.RETURNED)


def _count_differing(connection: Connection, scope_id: int, kinds: Sequence[Observed], *which: ColumnElement[bool]) -> int:
    """Count the entries whose source says something else in one of these ways."""
    differing = select(OBSERVATION.c.entry_id).where(OBSERVATION.c.scope_id == scope_id, OBSERVATION.c.kind.in_(kinds))
    pages = in_pages(connection.execute(differing).scalars())
    return sum(count_entries(connection, ENTRY.c.id.in_(page), *which) for page in pages)


def _read_scope(connection: Connection, scope_id: int, *, is_locked: bool = False) -> _Scope:
    """Return the feed's scope, locked until the transaction ends if `is_locked`."""
    query = select(SCOPE).where(SCOPE.c.id == scope_id)
    return connection.execute(query.with_for_update() if is_locked else query).one()


def _remember(connection: Connection, scope_id: int, report: StageReport, stamp: str, read_at: datetime) -> None:
    """Record a read that may be published, for comparison with the next one."""
    if report.key_definition:
        _set(connection, scope_id, key_definition=report.key_definition)
    if report.is_whole:
        _set(connection, scope_id, last_whole_read=report.account.present, stamp=stamp, whole_read_at=read_at)


def _set(connection: Connection, scope_id: int, **columns: object) -> None:
    connection.execute(update(SCOPE).where(SCOPE.c.id == scope_id).values(**columns))


def put_side_by_side(connection: Connection, scope_id: int, other_id: int) -> None:
    """Record that two feeds deliver the same rows on purpose: neither holds the other's rows from now on."""
    pairs = [{"scope_id": scope_id, "other_id": other_id}, {"scope_id": other_id, "other_id": scope_id}]
    connection.execute(insert_if_new(connection, SIDE_BY_SIDE), pairs)
