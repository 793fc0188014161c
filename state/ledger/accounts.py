"""What a run did with its rows, as numbers that must balance, and the list of rows that people must see."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from datetime import datetime
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Connection, bindparam, insert, select, update

from mappings.delivery import Answer
from mappings.errors import SyncError
from mappings.outcome import Absorbed, Gone, MappedRow, Rejection, RowLocation, RowOutcome, Skipped
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import RowKey, names_of
from state.database import rounded
from state.enums import ProblemKind
from state.ledger.entries import Candidate, in_pages
from state.ledger.lease import FencedTransaction
from state.tables import ENTRY, PROBLEM, RUN, storable

T = TypeVar("T")
READS_COMPARED = 60
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
        return 2 * (self.read + self.expanded) - int(sum(astuple(self)))

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
        if off := self.imbalance():
            hint = "nothing of this run should be published; please report this as a fault of eventsync"
            raise ImbalanceError(f"the rows read do not add up, by {off}: {self}", hint=hint)


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
        return 2 * (self.new + self.carried_over) + self.resent - int(sum(astuple(self)))

    def check(self) -> None:
        """Raise `ImbalanceError`, with the numbers, unless they balance."""
        if off := self.imbalance():
            hint = "run `eventsync state verify`; please report this as a fault of eventsync"
            raise ImbalanceError(f"the rows owed do not add up, by {off}: {self}", hint=hint)


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


def dump(record: ReadAccount | PublishAccount | StageReport) -> str:
    """Write any of them, in ASCII: raw cells may hold what no database takes as text."""
    return json.dumps(asdict(record))


_COMPACT = json.JSONEncoder(separators=(",", ":"))


def dump_answer(answer: Answer) -> str:
    """Write an answer, in ASCII and without its empty fields: there is one for every row, and it stays as long as its row.

    Asking a dataclass for its fields costs more than the rest.
    """
    columns = {"status": answer.status, "code": answer.code, "message": answer.message}
    columns |= {"request_id": answer.request_id, "field": answer.field, "issue": answer.issue}
    return _COMPACT.encode({name: value for name, value in columns.items() if value != ""})


def _loader(kind: type[T]) -> Callable[[str], T]:
    """Return what reads such a record; unlike pydantic's own parser, `json` takes halves of surrogate pairs."""
    adapter = TypeAdapter(kind)
    return lambda stored: adapter.validate_python(json.loads(stored))


load_read = TypeAdapter(ReadAccount).validate_json
load_publish = TypeAdapter(PublishAccount).validate_json
load_report = _loader(StageReport)
load_answer = _loader(Answer)
load_reasons = _loader(tuple[Reason, ...])
_EXAMPLES = 20
_DISTINCT_VALUES = 500  # beyond, problems are counted per field without their value
_ACCOUNT = tuple(each.name for each in fields(ReadAccount))
_REPORTED = ("warnings", "vanished", "withdrawn", "restaged", "ignored", "waiting", "redrafted", "standing")


class Tally:
    """The running counts of one read, by the names that they have in `ReadAccount` and `StageReport`.

    Besides: `called_off`, rows left out as the source calls their events off, none of which can be out yet; `restless`, rows
    that the very next read of the same source would count elsewhere; `unreleased`, rows that this read has and no run let out.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._shares = [0.0, 0.0]
        self._skipped: Counter[str] = Counter()
        self._reasons: dict[tuple[ReasonCode, str, str, str], list[Any]] = {}
        self._rejections: list[RejectedRow] = []
        self._held: list[HeldRow] = []

    def begin(self, outcomes: Sequence[RowOutcome], unchanged: int) -> None:
        """Count what was read: rows, and the events that some of them give beyond one.

        `unchanged`: rows that are known to be unchanged without having been mapped, one event each.
        """
        further = sum(outcome.part.is_further for outcome in outcomes)
        self.counts["expanded"] += further
        self.counts["read"] += len(outcomes) - further + unchanged
        self.counts["unchanged"] += unchanged
        wanted = sum(1 / outcome.part.of for outcome in outcomes if not isinstance(outcome, Skipped | Absorbed | Gone))
        self._shares[0] += unchanged + wanted

    def skip(self, because: str) -> None:
        """Count a row that a rule of the mapping leaves out."""
        self.counts["filtered"] += 1
        self._skipped[because] += 1

    def reject(self, rejection: Rejection) -> None:
        """Count a row that cannot be used, and each of its reasons."""
        self.counts["rejected"] += 1
        self._shares[1] += 1 / rejection.part.of
        for reason in rejection.reasons:
            problem = (reason.code, reason.field, reason.column, reason.found)
            if problem not in self._reasons and len(self._reasons) >= _DISTINCT_VALUES:
                problem = (reason.code, reason.field, reason.column, "")
            self._reasons.setdefault(problem, [reason.hint, 0])[1] += 1
        if len(self._rejections) < _EXAMPLES:
            self._rejections.append(RejectedRow(rejection.location.place, rejection.row_key, rejection.reasons))

    def differ(self, *, is_settled: bool) -> None:
        """Count a row that differs from what was delivered; as unchanged once a person has settled that very difference."""
        self.counts["unchanged" if is_settled else "drifted"] += 1

    def hold(self, place: str, row_key: RowKey, candidate: Candidate | None) -> None:
        """Count a row that looks like a known event."""
        self.counts["held"] += 1
        if len(self._held) < _EXAMPLES:
            like = candidate or Candidate(0, RowKey(""))
            self._held.append(HeldRow(place, row_key, like.row_key, like.feed, like.namespace))

    def free(self, row_key: RowKey) -> None:
        """Count a held row as new: nothing known looks like it any more."""
        self.counts["held"] -= 1
        self.counts["new"] += 1
        self._held = [row for row in self._held if row.row_key != row_key]

    def account(self) -> ReadAccount:
        """Freeze the counts that must balance."""
        return ReadAccount(**{name: self.counts[name] for name in _ACCOUNT})

    def report(self, run_id: str, **more: Any) -> StageReport:
        """Freeze everything, for the brakes and for people."""
        counts: dict[str, Any] = {name: self.counts[name] for name in _REPORTED}
        reasons = sorted(self._reasons.items(), key=lambda each: -each[1][1])
        return StageReport(
            run_id=run_id,
            account=self.account(),
            rows=RowShares(*self._shares) if self.counts["expanded"] else None,
            skipped=dict(self._skipped),
            reasons=tuple(ReasonCount(*problem, hint, count) for problem, (hint, count) in reasons),
            rejections=tuple(self._rejections),
            held=tuple(self._held),
            **counts,
            **more,
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """One row that people must see, with its reasons and its raw cells ({} where they are no longer at hand)."""

    kind: ProblemKind
    row_key: RowKey
    place: str
    reasons: tuple[Reason, ...]
    cells: Mapping[str, str]


def rejected(row: Rejection) -> Problem:
    """List a row that cannot be used."""
    return Problem(ProblemKind.REJECTED, row.row_key, row.location.place, row.reasons, row.cells)


def claimed_twice(row_key: RowKey, location: RowLocation, hint: str, cells: Mapping[str, str]) -> Rejection:
    """Reject a row whose key another row has as well."""
    return Rejection(location, row_key, (Reason(ReasonCode.DUPLICATE_KEY, "", "", row_key, hint),), cells)


def warned(row: MappedRow) -> Problem:
    """List a row that is used all the same."""
    return Problem(ProblemKind.WARNING, row.row_key, row.location.place, row.warnings, row.cells)


def held(place: str, row_key: RowKey, candidate: Candidate | None, cells: Mapping[str, str]) -> Problem:
    """List a row that looks like a known event under another key."""
    reason = Reason(ReasonCode.TWIN, "", "", row_key, f"the other identifier is {candidate}" if candidate else "")
    return Problem(ProblemKind.HELD, row_key, place, (reason,), cells)


_OF_SCOPE = PROBLEM.c.scope_id == bindparam("scope")
_FIND = select(PROBLEM.c.digest).where(_OF_SCOPE, PROBLEM.c.digest.in_(bindparam("digests", expanding=True)))
_SEEN: dict[str, Any] = {"run_id": bindparam("run"), "listed_run": bindparam("run"), "seen_at": bindparam("now")}
_SEE_AGAIN = update(PROBLEM).where(_OF_SCOPE, PROBLEM.c.digest == bindparam("problem")).values(**_SEEN)
_STRIKE_ROWS = update(PROBLEM).where(_OF_SCOPE, PROBLEM.c.kind == bindparam("of_kind")).values(listed_run="")
_STRIKE_ROWS = _STRIKE_ROWS.where(PROBLEM.c.row_key.in_(bindparam("row_keys", expanding=True)))
_STRIKE = update(PROBLEM).where(PROBLEM.c.id.in_(bindparam("problems", expanding=True))).values(listed_run="")


def write_problems(connection: Connection, run: FencedTransaction, problems: Iterable[Problem]) -> None:
    """Write problems down; one that is exactly as it was is marked as seen again, not written twice."""
    scope_id, run_id, now = run.scope_id, run.run_id, run.now()
    rows = {row["digest"]: row for row in (_as_row(scope_id, run_id, now, problem) for problem in problems)}
    if not rows:
        return
    known = set(connection.execute(_FIND, {"scope": scope_id, "digests": rounded(rows)}).scalars())
    again = [{"scope": scope_id, "problem": digest, "run": run_id, "now": now} for digest in known]
    first = [row for digest, row in rows.items() if digest not in known]
    for statement, written in ((_SEE_AGAIN, again), (insert(PROBLEM), first)):
        if written:
            connection.execute(statement, written)


def strike(connection: Connection, scope_id: int, kind: ProblemKind, row_keys: Collection[str]) -> None:
    """Take what is listed of rows from the list."""
    if row_keys:
        listed = {"scope": scope_id, "of_kind": kind.value, "row_keys": rounded([storable(key) for key in row_keys])}
        connection.execute(_STRIKE_ROWS, listed)


def warn_of_image(connection: Connection, run: FencedTransaction, entry_id: int, reason: Reason) -> None:
    """List a row that goes out without the cover image that it asked for."""
    entry = connection.execute(select(ENTRY.c.row_key, ENTRY.c.origin).where(ENTRY.c.id == entry_id)).one()
    write_problems(connection, run, [Problem(ProblemKind.WARNING, RowKey(entry.row_key), entry.origin, (reason,), {})])


def _as_row(scope_id: int, run_id: str, now: datetime, problem: Problem) -> dict[str, object]:
    reasons = json.dumps([asdict(reason) for reason in problem.reasons])
    cells = json.dumps(dict(problem.cells))
    place, row_key = storable(problem.place), storable(problem.row_key)
    content = f"{problem.kind}\x1f{row_key}\x1f{place}\x1f{reasons}\x1f{cells}"
    digest = hashlib.blake2b(content.encode(), digest_size=16).digest()
    row = {"scope_id": scope_id, "kind": problem.kind.value, "row_key": row_key, "origin": place, "digest": digest}
    seen = {"run_id": run_id, "listed_run": run_id, "first_seen_at": now, "seen_at": now}
    return {**row, **seen, "reasons": reasons, "cells": cells}


def stem_of(row_key: str, row_parts: int | None) -> str:
    """Return the key of the row that an event came of; its own, where a row is an event (`row_parts` is None)."""
    return row_key if row_parts is None else next(names_of(RowKey(row_key), row_parts))


class ListedProblems:
    """Problems of earlier reads that stand, by their row: its key or, where it had none that could be used, its place.

    Memory grows with their number, and with nothing else. A row's own key has `row_parts` parts, None: a row is an event.
    """

    def __init__(self, row_parts: int | None = None) -> None:
        self._row_parts = row_parts
        self._rows: defaultdict[str, list[int]] = defaultdict(list)
        self._rejected: set[int] = set()

    @property
    def standing(self) -> int:
        """How many rejections stand."""
        return len(self._rejected)

    def carry(self, connection: Connection, run: FencedTransaction) -> None:
        """Move the list of the last read to this one."""
        reads = select(RUN.c.id).where(RUN.c.scope_id == run.scope_id, RUN.c.read_account.is_not(None))
        last = connection.execute(reads.order_by(RUN.c.started_at.desc(), RUN.c.id).limit(1)).scalar()
        if last != run.run_id:
            if last is not None:
                of_last = (PROBLEM.c.scope_id == run.scope_id, PROBLEM.c.listed_run == last)
                connection.execute(update(PROBLEM).where(*of_last).values(listed_run=run.run_id))
            run.note(connection, read_account=dump(ReadAccount()))  # from now on the list of this run is the feed's
        listed = (PROBLEM.c.scope_id == run.scope_id, PROBLEM.c.listed_run == run.run_id)
        for row in connection.execute(select(PROBLEM).where(*listed, PROBLEM.c.kind != ProblemKind.WARNING.value)):
            self._rows[_name(stem_of(row.row_key, self._row_parts), row.origin)].append(row.id)
            if row.kind == ProblemKind.REJECTED:
                self._rejected.add(row.id)

    def strike(self, connection: Connection, outcomes: Sequence[RowOutcome]) -> None:
        """Take rows off the list that this read has met, before it lists their new problems."""
        if not self._rows:
            return
        places = [storable(outcome.location.place) for outcome in outcomes]
        names = {_name("", place) for place in places}
        for outcome, place in zip(outcomes, places, strict=True):
            names.add(_name(stem_of(storable(outcome.row_key), self._row_parts), place))
        struck = [problem for name in names for problem in self._rows.pop(name, ())]
        self._rejected.difference_update(struck)
        for page in in_pages(struck):
            connection.execute(_STRIKE, {"problems": page})


def _name(stem: str, place: str) -> str:
    return f"key {stem}" if stem else f"place {place}"
