"""What a run did with its rows, as numbers that must balance, and the list of rows that people must see."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import TypeAdapter

from mappings.delivery import Answer
from mappings.errors import SyncError
from mappings.outcome import Absorbed, Gone, Rejection, RowOutcome, Skipped
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import FeedName, RowKey

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


OnChange = Literal["report", "ignore", "create_draft_again"]
OnVanish = Literal["report", "ignore"]


class ReadKind(StrEnum):
    """What a read takes in: all that its source has now, what changed since the bookmark, or rows that a person named."""

    FULL = "full"
    INCREMENTAL = "incremental"
    CHOSEN = "chosen"


@dataclass(frozen=True, slots=True)
class StagePolicy:
    """The rules of one read.

    `on_change`: a delivered row that changed is listed as drift, only counted as such, or drafted again as a new event;
    `on_vanish`: a row that is gone is marked and listed, or not. `holds_copies`: rows that look like copies of known
    entries are held. `drafts_only`: all that this read pins is a draft. `accepted`: the brakes that this run may pass.
    `days`: the first and the last ISO day of recurring events of which this read says anything; None where no event recurs.
    `row_parts`: of how many parts a row's own key is, where a row may stand for several events whose keys begin with it; None: a
    row is an event. `key_definition`: what makes the feed's keys, "" where that is not compared. `as_of`: the moment by which
    events are over, where that is not the clock's.
    """

    on_change: OnChange = "report"
    on_vanish: OnVanish = "report"
    holds_copies: bool = True
    drafts_only: bool = False
    accepted: tuple[str, ...] = ()
    days: tuple[str, str] | None = None
    kind: ReadKind = ReadKind.FULL
    row_parts: int | None = None
    key_definition: str = ""
    as_of: datetime | None = None


DEFAULT_POLICY = StagePolicy()


class Candidate(NamedTuple):
    """A known entry that a row looks like: its id (0 for one that is written with the same batch), its key, and where it is.

    `feed` is "" for an entry of the row's own feed, `namespace` for one of the row's own namespace.
    """

    entry_id: int
    row_key: RowKey
    feed: FeedName = FeedName("")
    namespace: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.row_key, place_of(self.feed, self.namespace))))


def place_of(feed: str, namespace: str) -> str:
    """Say where an entry of another feed is; "" for one of the row's own feed."""
    return " in ".join(filter(None, (f"of feed {feed}" if feed else "", f"namespace {namespace}" if namespace else "")))
