"""What a run did with its rows, as numbers that must balance; how they are counted and stored."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import assert_never

from pydantic import TypeAdapter

from mappings.delivery import Answer
from mappings.errors import SyncError
from mappings.outcome import Absorbed, Absorption, Gone, Rejection, RowOutcome, Skipped
from mappings.refusals import Reason, ReasonCode
from mappings.row_key import RowKey
from state.ledger.duplicates import Candidate

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
