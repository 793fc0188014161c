"""What a run did with its rows, as numbers that must balance; how they are counted and stored."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import assert_never

from pydantic import TypeAdapter
from sqlalchemy import Connection, bindparam, insert, select, update

from mappings.delivery import Answer
from mappings.errors import SyncError
from mappings.outcome import Absorbed, Absorption, Gone, MappedRow, Reason, ReasonCode, Rejection, RowOutcome, Skipped
from mappings.row_key import RowKey, names_of
from state.database import rounded
from state.enums import ProblemKind
from state.ledger.entries import Candidate
from state.ledger.lease import FencedTransaction
from state.tables import ENTRY, PROBLEM, RUN, storable

READS_THAT_TELL = 60
"""So many of the latest whole reads show a feed's habits: two months of a feed that is read once a day."""


class ImbalanceError(SyncError):
    """Rows went missing between two steps, or were counted twice: the numbers cannot be trusted."""


@dataclass(frozen=True, slots=True)
class ReadAccount:
    """Every row read, in exactly one place:
    `read + expanded = filtered + duplicate + grouped + rejected + held + still_refused + unchanged + drifted + new + gone`.

    `expanded`: events that rows gave beyond one each; `grouped`: rows that went into another row's event. Both are 0 for a
    feed in which a row is an event. `duplicate`: rows that another row of the same key speaks for. `gone`: rows that an
    incremental read reports as deleted. `still_refused`: rows whose payload is the one that the service has refused.

    `new` counts every row that this run staged to be sent: rows never seen before, and known ones whose changed payload
    is due (never sent so far, refused as it was, or drafted again). `drifted` counts every row that differs from what was
    delivered, also where the feed ignores it (`on_change: ignore`); a difference that a person has set aside is
    `unchanged`.
    """

    read: int = 0
    expanded: int = 0
    filtered: int = 0
    duplicate: int = 0
    grouped: int = 0
    rejected: int = 0
    held: int = 0
    unchanged: int = 0
    drifted: int = 0
    new: int = 0
    gone: int = 0
    still_refused: int = 0

    def imbalance(self) -> int:
        """Rows read that ended nowhere (positive), or ended somewhere without being read (negative)."""
        left_out = self.filtered + self.duplicate + self.grouped + self.rejected + self.gone
        listed = self.held + self.still_refused + self.drifted
        return self.read + self.expanded - left_out - listed - self.unchanged - self.new

    @property
    def wanted(self) -> int:
        """How many events the source asked for, usable or not."""
        return self.read + self.expanded - self.filtered - self.grouped - self.gone

    @property
    def present(self) -> int:
        """How many rows the source has, of those that were read."""
        return self.read - self.gone

    def check(self) -> None:
        """Raise `ImbalanceError`, with the numbers, unless they balance."""
        if self.imbalance():
            raise ImbalanceError(
                f"the rows read do not add up, by {self.imbalance()}: {self}",
                hint="nothing of this run should be published; please report this as a fault of eventsync",
            )


@dataclass(frozen=True, slots=True)
class RowShares:
    """How many rows were `wanted`, and `rejected` of them, where rows give several events: each row counts as one, and as
    rejected by the share of its events that are.
    """

    wanted: float = 0.0
    rejected: float = 0.0


@dataclass(frozen=True, slots=True)
class PublishAccount:
    """Every row owed, in exactly one place: `new + carried_over` = the sum of the other seven.

    `new`: staged by this run; `carried_over`: owed since an earlier one. `pending`: still owed afterwards.
    Of them all, `resent` were sent once more after an attempt that may have created their event: a service that ignores
    idempotency keys may have several of each. It is no term of the equation.
    """

    new: int = 0
    carried_over: int = 0
    delivered: int = 0
    delivered_unconfirmed: int = 0
    refused: int = 0
    blocked: int = 0
    uncertain: int = 0
    conflict: int = 0
    pending: int = 0
    resent: int = 0

    def imbalance(self) -> int:
        """Rows owed that ended nowhere (positive), or ended somewhere without being owed (negative)."""
        answered = self.delivered + self.delivered_unconfirmed + self.refused + self.blocked + self.uncertain + self.conflict
        return self.new + self.carried_over - answered - self.pending

    def check(self) -> None:
        """Raise `ImbalanceError`, with the numbers, unless they balance."""
        if self.imbalance():
            raise ImbalanceError(
                f"the rows owed do not add up, by {self.imbalance()}: {self}",
                hint="run `eventsync state verify`; please report this as a fault of eventsync",
            )


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """How many problems of this run were of one kind, for one raw value. `hint` is the first one's."""

    code: ReasonCode
    field: str
    column: str
    found: str
    hint: str
    count: int


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """One of the first rejected rows of a run."""

    origin: str
    row_key: RowKey
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A row that is held: it looks like the entry `twin_key`, which is another feed's where `feed` is not "", and in another
    namespace where `namespace` is not "".
    """

    origin: str
    row_key: RowKey
    twin_key: RowKey
    feed: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Alongside:
    """Another scope of the service that knows `known` of a feed's `rows`: one of another `feed` ("": of the same name), or in
    another `namespace` ("": the same). `held`: so many rows are held for its sake.
    """

    scope_id: int
    feed: str
    namespace: str
    known: int
    rows: int
    held: int


@dataclass(frozen=True, slots=True)
class StageReport:
    """What one read of the source came to, and what the brakes need to judge it.

    `is_whole`: the read took in all rows of the source. Of `account.new`, `restaged` are known rows whose changed payload is
    due; the rest was never seen before. Of `account.held`, `ignored` are rows that a person has set aside.
    `vanished`: newly absent from a whole read, or deleted by the source's own word, if the feed `is_marking` such rows; those
    whose events are over are `past` instead, of `past_rows` rows where a row is an event (else 0);
    `withdrawn`: pending rows, never sent, that the source no longer asks for. `known_before`: entries of the feed before this
    read that some run has let out, `met` those of them that this read has; `present`: entries of its rows, once it is over;
    `replaced_before`: earlier reads that went out, and lost and gained at least half as many rows as this one. `waiting`:
    entries, never sent, that earlier reads staged, that none let out, and that this one asks for again; `redrafted`: drafts
    of changes that no run has let out yet. `last_whole_read`:
    rows of the last whole read that passed the brakes, None if there was none. `rows`: the same in rows, where rows give
    several events. `rejections` and `held` are the first few; all are in the state DB. `standing`: rows that earlier reads
    rejected, and that this one, which was not full, has not read again. `is_blind`: rows wait behind a closed gate that this
    read has not met, so that it may not open it. `reasons` counts problems (not warnings). `brakes`:
    those that stop this run; `accepted`: those that would, had a person not accepted them for it; `stood`: those that stopped
    the reads before, or passed for one run only. `left_out`: entries that a rule newly leaves out, by rule, of `to_come` whose
    events are to come. `alike`: new rows that agree with absent ones in two of title, start and place; `alike_before`: earlier
    reads that went out with at least half as many. `alongside`: who else delivers these rows. `key_definition`: what makes
    the feed's keys; `has_new_keys`: it is not what the ledger knows.
    """

    run_id: str
    is_whole: bool
    account: ReadAccount
    warnings: int = 0
    vanished: int = 0
    is_marking: bool = True
    withdrawn: int = 0
    restaged: int = 0
    ignored: int = 0
    waiting: int = 0
    redrafted: int = 0
    standing: int = 0
    is_blind: bool = False
    past: int = 0
    past_rows: int = 0
    known_before: int = 0
    met: int = 0
    present: int = 0
    replaced_before: int = 0
    last_whole_read: int | None = None
    rows: RowShares | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)
    reasons: tuple[ReasonCount, ...] = ()
    rejections: tuple[RejectedRow, ...] = ()
    held: tuple[HeldRow, ...] = ()
    brakes: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    stood: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    to_come: int = 0
    alike: int = 0
    alike_before: int = 0
    alongside: Alongside | None = None
    key_definition: str = ""
    has_new_keys: bool = False


_READ = TypeAdapter(ReadAccount)
_PUBLISH = TypeAdapter(PublishAccount)
_REPORT = TypeAdapter(StageReport)
_ANSWER = TypeAdapter(Answer)
_REASONS = TypeAdapter(tuple[Reason, ...])
_IN_SHORT = json.JSONEncoder(separators=(",", ":"))


def dump(record: ReadAccount | PublishAccount | StageReport) -> str:
    """Write any of them, in ASCII: raw cells may hold what no database takes as text."""
    return json.dumps(asdict(record))


def dump_answer(answer: Answer) -> str:
    """Write an answer, in ASCII and without what it left unsaid: there is one for every row, and it stays as long as its row.

    Asking a dataclass for its fields costs more than the rest.
    """
    told = {"status": answer.status, "code": answer.code, "message": answer.message}
    told |= {"request_id": answer.request_id, "field": answer.field, "issue": answer.issue}
    return _IN_SHORT.encode({name: said for name, said in told.items() if said != ""})


def load_read(stored: str) -> ReadAccount:
    """Read an account of rows read."""
    return _READ.validate_json(stored)


def load_publish(stored: str) -> PublishAccount:
    """Read an account of rows owed."""
    return _PUBLISH.validate_json(stored)


def load_report(stored: str) -> StageReport:
    """Read a stage's report."""
    return _REPORT.validate_python(json.loads(stored))


def load_answer(stored: str) -> Answer:
    """Read the service's last answer."""
    return _ANSWER.validate_python(json.loads(stored))


def load_reasons(stored: str) -> tuple[Reason, ...]:
    """Read the reasons of a problem."""
    return _REASONS.validate_python(json.loads(stored))


_EXAMPLES = 20
_DISTINCT_VALUES = 500  # beyond, problems are counted per field without their value
_Problem = tuple[ReasonCode, str, str, str]


class Tally:
    """The running counts of one read; `report()` freezes them.

    `called_off`: rows left out as the source calls their events off, none of which can be out yet; `restless`: rows that the
    very next read of the same source would count elsewhere.
    """

    def __init__(self) -> None:
        self.read = self.duplicate = self.rejected = self.held = self.unchanged = self.drifted = self.new = 0
        self.still_refused = 0
        self.expanded = self.grouped = self.gone = self.standing = 0
        self.restaged = self.warnings = self.vanished = self.withdrawn = 0
        self.ignored = self.waiting = self.redrafted = self.unreleased = 0
        self.called_off = self.restless = 0
        self._wanted = self._spoilt = 0.0
        self._skipped: Counter[str] = Counter()
        self._reasons: Counter[_Problem] = Counter()
        self._hints: dict[_Problem, str] = {}
        self._rejections: list[RejectedRow] = []
        self._held: list[HeldRow] = []

    def begin(self, outcomes: Sequence[RowOutcome]) -> None:
        """Count what was read: rows, and the events that some of them give beyond one."""
        further = sum(outcome.part.is_further for outcome in outcomes)
        self.expanded += further
        self.read += len(outcomes) - further
        self._wanted += sum(1 / outcome.part.of for outcome in outcomes if not isinstance(outcome, Skipped | Absorbed | Gone))

    def pass_over(self, rows: int) -> None:
        """Count rows that are known to be unchanged without having been mapped, one event each."""
        self.read += rows
        self.unchanged += rows
        self._wanted += rows

    def absorb(self, row: Absorbed) -> None:
        """Count a row that another row of its key speaks for."""
        match row.into:
            case Absorption.DUPLICATE:
                self.duplicate += 1
            case Absorption.GROUPED:
                self.grouped += 1
            case _:
                assert_never(row.into)

    def skip(self, because: str) -> None:
        """Count a row that a rule of the mapping leaves out."""
        self._skipped[because] += 1

    def reject(self, rejection: Rejection) -> None:
        """Count a row that cannot be used, and each of its reasons."""
        self.rejected += 1
        self._spoilt += 1 / rejection.part.of
        self._count(rejection.reasons)
        if len(self._rejections) < _EXAMPLES:
            self._rejections.append(RejectedRow(rejection.location.place, rejection.row_key, rejection.reasons))

    def differ(self, *, is_settled: bool) -> None:
        """Count a row that differs from what was delivered; as unchanged once a person has settled that very difference."""
        self.drifted += not is_settled
        self.unchanged += is_settled

    def hold(self, place: str, row_key: RowKey, candidate: Candidate | None) -> None:
        """Count a row that looks like a known event."""
        self.held += 1
        if len(self._held) < _EXAMPLES:
            like = candidate or Candidate(0, RowKey(""))
            self._held.append(HeldRow(place, row_key, like.row_key, like.feed, like.namespace))

    def hold_after_all(self, place: str, row_key: RowKey, candidate: Candidate) -> None:
        """Count a new row as held: another feed has staged the same event meanwhile."""
        self.new -= 1
        self.hold(place, row_key, candidate)

    def free(self, row_key: RowKey) -> None:
        """Count a held row as new: nothing known looks like it any more."""
        self.held -= 1
        self.new += 1
        self._held = [row for row in self._held if row.row_key != row_key]

    def hold_silently(self) -> None:
        """Count a row that is held and ignored."""
        self.held += 1
        self.ignored += 1

    def account(self) -> ReadAccount:
        """Freeze the counts that must balance."""
        return ReadAccount(
            read=self.read,
            expanded=self.expanded,
            filtered=self._skipped.total(),
            duplicate=self.duplicate,
            grouped=self.grouped,
            rejected=self.rejected,
            held=self.held,
            still_refused=self.still_refused,
            unchanged=self.unchanged,
            drifted=self.drifted,
            new=self.new,
            gone=self.gone,
        )

    def report(self, run_id: str, *, is_whole: bool, known_before: int, last_whole_read: int | None) -> StageReport:
        """Freeze everything, for the brakes and for people."""
        return StageReport(
            run_id=run_id,
            is_whole=is_whole,
            account=self.account(),
            warnings=self.warnings,
            vanished=self.vanished,
            withdrawn=self.withdrawn,
            restaged=self.restaged,
            ignored=self.ignored,
            waiting=self.waiting,
            redrafted=self.redrafted,
            standing=self.standing,
            known_before=known_before,
            last_whole_read=last_whole_read,
            rows=RowShares(self._wanted, self._spoilt) if self.expanded else None,
            skipped=dict(self._skipped),
            reasons=tuple(
                ReasonCount(*problem, self._hints.get(problem, ""), count) for problem, count in self._reasons.most_common()
            ),
            rejections=tuple(self._rejections),
            held=tuple(self._held),
        )

    def _count(self, reasons: Iterable[Reason]) -> None:
        for reason in reasons:
            problem = (reason.code, reason.field, reason.column, reason.found)
            if problem not in self._reasons and len(self._reasons) >= _DISTINCT_VALUES:
                problem = (reason.code, reason.field, reason.column, "")
            self._reasons[problem] += 1
            self._hints.setdefault(problem, reason.hint)


@dataclass(frozen=True, slots=True)
class Problem:
    """One row that people must see, with its reasons and its raw cells ({} where they are no longer at hand)."""

    kind: ProblemKind
    row_key: RowKey
    place: str
    reasons: tuple[Reason, ...]
    cells: Mapping[str, str]


def rejected(rejection: Rejection) -> Problem:
    """List a row that cannot be used."""
    place = rejection.location.place
    return Problem(ProblemKind.REJECTED, rejection.row_key, place, rejection.reasons, rejection.cells)


def warned(row: MappedRow) -> Problem:
    """List a row that is used all the same."""
    return Problem(ProblemKind.WARNING, row.row_key, row.location.place, row.warnings, row.cells)


def held(place: str, row_key: RowKey, candidate: Candidate | None, cells: Mapping[str, str]) -> Problem:
    """List a row that looks like a known event under another key."""
    reason = Reason(ReasonCode.TWIN, "", "", row_key, f"the other identifier is {candidate}" if candidate else "")
    return Problem(ProblemKind.HELD, row_key, place, (reason,), cells)


_FIND = select(PROBLEM.c.digest).where(
    PROBLEM.c.scope_id == bindparam("scope"), PROBLEM.c.digest.in_(bindparam("digests", expanding=True))
)
_SEE_AGAIN = (
    update(PROBLEM)
    .where(PROBLEM.c.scope_id == bindparam("scope"), PROBLEM.c.digest == bindparam("problem"))
    .values(run_id=bindparam("run"), listed_run=bindparam("run"), seen_at=bindparam("now"))
)
_STRIKE = (
    update(PROBLEM)
    .where(
        PROBLEM.c.scope_id == bindparam("scope"),
        PROBLEM.c.kind == bindparam("of_kind"),
        PROBLEM.c.row_key.in_(bindparam("row_keys", expanding=True)),
    )
    .values(listed_run="")
)


def write_problems(connection: Connection, scope_id: int, run_id: str, now: datetime, problems: Iterable[Problem]) -> None:
    """Write problems down; one that is exactly as it was is marked as seen again, not written twice."""
    rows = {row["digest"]: row for row in (_as_row(scope_id, run_id, now, problem) for problem in problems)}
    if not rows:
        return
    known = set(connection.execute(_FIND, {"scope": scope_id, "digests": rounded(rows)}).scalars())
    again = [{"scope": scope_id, "problem": digest, "run": run_id, "now": now} for digest in known]
    first = [row for digest, row in rows.items() if digest not in known]
    if again:
        connection.execute(_SEE_AGAIN, again)
    if first:
        connection.execute(insert(PROBLEM), first)


def strike_warnings(connection: Connection, scope_id: int, row_keys: Collection[RowKey]) -> None:
    """Take the warnings of rows from the list: the rows or the mapping have changed."""
    strike(connection, scope_id, ProblemKind.WARNING, row_keys)


def strike(connection: Connection, scope_id: int, kind: ProblemKind, row_keys: Collection[RowKey]) -> None:
    """Take what is listed of rows from the list."""
    if row_keys:
        listed = {"scope": scope_id, "of_kind": kind.value, "row_keys": rounded([storable(key) for key in row_keys])}
        connection.execute(_STRIKE, listed)


def warn_of_image(connection: Connection, scope_id: int, run_id: str, entry_id: int, reason: Reason, now: datetime) -> None:
    """List a row that goes out without the cover image that it asked for."""
    entry = connection.execute(select(ENTRY.c.row_key, ENTRY.c.origin).where(ENTRY.c.id == entry_id)).one()
    problem = Problem(ProblemKind.WARNING, RowKey(entry.row_key), entry.origin, (reason,), {})
    write_problems(connection, scope_id, run_id, now, [problem])


def _as_row(scope_id: int, run_id: str, now: datetime, problem: Problem) -> dict[str, object]:
    reasons = json.dumps([asdict(reason) for reason in problem.reasons])
    cells = json.dumps(dict(problem.cells))
    place, row_key = storable(problem.place), storable(problem.row_key)
    content = f"{problem.kind}\x1f{row_key}\x1f{place}\x1f{reasons}\x1f{cells}"
    return {
        "scope_id": scope_id,
        "run_id": run_id,
        "listed_run": run_id,
        "kind": problem.kind.value,
        "row_key": row_key,
        "origin": place,
        "reasons": reasons,
        "cells": cells,
        "digest": hashlib.blake2b(content.encode(), digest_size=16).digest(),
        "first_seen_at": now,
        "seen_at": now,
    }


_FEW = 500
_LAST = (
    select(RUN.c.id)
    .where(RUN.c.scope_id == bindparam("scope"), RUN.c.read_account.is_not(None))
    .order_by(RUN.c.started_at.desc(), RUN.c.id)
    .limit(1)
)
_OF_RUN = (PROBLEM.c.scope_id == bindparam("scope"), PROBLEM.c.listed_run == bindparam("run"))
_TAKE_OVER = update(PROBLEM).where(*_OF_RUN).values(listed_run=bindparam("new_run"))
_ON_THE_LIST = select(PROBLEM.c.id, PROBLEM.c.kind, PROBLEM.c.row_key, PROBLEM.c.origin).where(
    *_OF_RUN, PROBLEM.c.kind != ProblemKind.WARNING.value
)
_STRIKE_LISTED = update(PROBLEM).where(PROBLEM.c.id.in_(bindparam("problems", expanding=True))).values(listed_run="")


def stem_of(row_key: str, row_parts: int | None) -> str:
    """Return the key of the row that an event came of; its own, where a row is an event (`row_parts` is None)."""
    return row_key if row_parts is None else next(names_of(RowKey(row_key), row_parts))


class ListedProblems:
    """Problems of earlier reads that stand, by their row: its key or, where it had none that could be used, its place.

    Memory grows with their number, and with nothing else.
    """

    def __init__(self, problems: Iterable[tuple[int, str, str, str]], row_parts: int | None) -> None:
        """Take the id, kind, row key and place of each; a row's own key has `row_parts` parts, None: a row is an event."""
        self._row_parts = row_parts
        self._rows: defaultdict[str, list[int]] = defaultdict(list)
        self._rejected: set[int] = set()
        for problem_id, kind, row_key, place in problems:
            self._rows[_name(stem_of(row_key, row_parts), place)].append(problem_id)
            if kind == ProblemKind.REJECTED:
                self._rejected.add(problem_id)

    @property
    def standing(self) -> int:
        """How many rejections stand."""
        return len(self._rejected)

    def strike(self, connection: Connection, outcomes: Sequence[RowOutcome]) -> None:
        """Take rows off the list that this read has met, before it lists their new problems."""
        if not self._rows:
            return
        names = {_name(stem_of(storable(one.row_key), self._row_parts), storable(one.location.place)) for one in outcomes}
        places = {_name("", storable(one.location.place)) for one in outcomes}
        struck = [problem for name in names | places for problem in self._rows.pop(name, ())]
        self._rejected.difference_update(struck)
        for start in range(0, len(struck), _FEW):
            connection.execute(_STRIKE_LISTED, {"problems": struck[start : start + _FEW]})


def no_list() -> ListedProblems:
    """Return the list of a read that begins anew: nothing of earlier reads stands on it."""
    return ListedProblems((), None)


def carry_list(connection: Connection, turn: FencedTransaction, row_parts: int | None) -> ListedProblems:
    """Move the list of the last read to this one, and return it."""
    last = connection.execute(_LAST, {"scope": turn.scope_id}).scalar()
    ours = {"scope": turn.scope_id, "run": turn.run_id}
    if last != turn.run_id:
        if last is not None:
            connection.execute(_TAKE_OVER, {**ours, "run": last, "new_run": turn.run_id})
        turn.note(connection, read_account=dump(ReadAccount()))  # from now on the list of this run is the feed's
    on_the_list = connection.execute(_ON_THE_LIST, ours)
    return ListedProblems(((row.id, row.kind, row.row_key, row.origin) for row in on_the_list), row_parts)


def _name(stem: str, place: str) -> str:
    return f"key {stem}" if stem else f"place {place}"
