"""The accounts of a run: numbers of rows by outcome, which must balance, and the report of its stage for the brakes."""

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
"""How many of the latest full reads show what is usual for a feed: two months of daily reads."""


class ImbalanceError(SyncError):
    """Rows were lost between two steps, or counted twice: the numbers are wrong."""


@dataclass(slots=True)
class ReadAccount:
    """The account of a read; every row is counted in exactly one term:

    `read + expanded = filtered + duplicate + grouped + rejected + held + still_refused + unchanged + drifted + new + gone`.

    `expanded`: additional events of split rows; `grouped`: rows merged into another row's event. Both are 0 for a feed in which
    a row is an event. `duplicate`: rows for which another row with the same key is used. `gone`: rows that an incremental read
    reports as deleted. `still_refused`: rows with the payload that the service refused. `new`: rows that this run staged to be
    sent, both unknown ones and known ones with a changed payload that is due (never sent, or refused before).
    `drifted`: rows that differ from what was delivered, even if the feed ignores changes (`on_change: ignore`); a difference
    that a person ignored is `unchanged`.
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
        """The number of rows without an outcome (positive), or of outcomes without a row (negative)."""
        return 2 * (self.read + self.expanded) - sum(int(getattr(self, each.name)) for each in fields(ReadAccount))

    @property
    def wanted(self) -> int:
        """How many events the source asks for, usable or not."""
        return self.read + self.expanded - self.filtered - self.grouped - self.gone

    @property
    def present(self) -> int:
        """How many of the rows read exist in the source."""
        return self.read - self.gone

    def check(self) -> None:
        """Raise `ImbalanceError` with the numbers if they do not balance."""
        if off := self.imbalance():
            hint = "nothing of this run should be published; please report this as a fault of eventsync"
            raise ImbalanceError(f"the rows read do not add up, by {off}: {self}", hint=hint)


@dataclass(frozen=True, slots=True)
class RowShares:
    """The numbers of `wanted` and `rejected` rows if rows give several events: each row counts as one, and as rejected by the
    share of its rejected events.
    """

    wanted: float = 0.0
    rejected: float = 0.0


@dataclass(frozen=True, slots=True)
class PublishAccount:
    """The account of a publish; every row owed is counted in exactly one term: `new + carried_over` = the sum of the other
    seven.

    `new`: staged by this run; `carried_over`: owed since an earlier one. `pending`: still owed afterwards. `resent`, which is
    not a term, counts those sent again after an attempt that may have created their event: a service that ignores idempotency
    keys may have several of each.
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
        """The number of owed rows without an outcome (positive), or of outcomes without an owed row (negative)."""
        return 2 * (self.new + self.carried_over) + self.resent - int(sum(astuple(self)))

    def check(self) -> None:
        """Raise `ImbalanceError` with the numbers if they do not balance."""
        if off := self.imbalance():
            hint = "run `eventsync state verify`; please report this as a fault of eventsync"
            raise ImbalanceError(f"the rows owed do not add up, by {off}: {self}", hint=hint)


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """The number of problems of one kind with the same raw value. `hint`: that of the first one."""

    code: ReasonCode
    field: str
    column: str
    found: str
    hint: str
    count: int


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A rejected row, as an example in a report."""

    origin: str
    row_key: RowKey
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A held row, which resembles the entry `twin_key`; `feed` and `namespace` of that entry are "" if they are the row's own."""

    origin: str
    row_key: RowKey
    twin_key: RowKey
    feed: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Alongside:
    """Another scope of the service that has `known` of a feed's `rows`: of another `feed` ("": the same name), or in another
    `namespace` ("": the same). `held`: rows held because of it.
    """

    scope_id: int
    feed: str
    namespace: str
    known: int
    rows: int
    held: int


@dataclass(frozen=True, kw_only=True)
class BrakeInputs:
    """The facts of a read by which the brakes decide."""

    is_whole: bool
    account: ReadAccount
    rows: RowShares | None = None
    restaged: int = 0
    ignored: int = 0
    waiting: int = 0
    vanished: int = 0
    is_marking: bool = True
    past: int = 0
    past_rows: int = 0
    known_before: int = 0
    met: int = 0
    last_whole_read: int | None = None
    replaced_before: int = 0
    stood: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    changed: Mapping[str, int] = field(default_factory=dict)
    to_come: int = 0
    alike: int = 0
    alike_before: int = 0
    alongside: Alongside | None = None
    has_new_keys: bool = False


@dataclass(frozen=True, kw_only=True)
class StageReport(BrakeInputs):
    """The result of one read of the source, for the brakes and for people.

    `is_whole`: the read covered all rows of the source. Of `account.new`, `restaged` are known rows with a changed payload
    that is due; the rest is unknown. Of `account.held`, `ignored` are rows that a person ignored. `vanished`: rows newly
    missing in a full read, or reported as deleted, if the feed `is_marking` such rows; those whose events are over are `past`
    instead, out of `past_rows` rows (0 if rows give several events). `withdrawn`: pending rows, never sent, that the source
    no longer asks for. `known_before`: the feed's released entries before this read, of which this read `met` some;
    `present`: entries of the source's rows after it. `replaced_before`: released earlier reads that lost and gained at least
    half as many rows as this one. `waiting`: entries staged by earlier reads, never released or sent, that this read asks for
    again. `last_whole_read`: rows of the last full read that passed the brakes, None if there was none. `rows`: the same in
    rows, if rows give several events. `rejections`, `held`: the first few; all are in the state DB; `skipped`: rows left out,
    by label. `standing`: rejected rows of earlier reads that this read, not a full one, has not read again. `is_blind`: rows
    wait behind a closed gate that this read has not met, so that it must not open the gate. `reasons`: numbers of problems
    (not warnings). `brakes`: those that stop this run; `accepted`: those that a person accepted for this run; `stood`: those
    that stopped the reads before, or were accepted for one run. `left_out`: by rule, the entries that it newly leaves out, of
    `to_come` entries with future events. `changed`: by field, how many of these have changed since the last read that was let
    out, if at least 20. `alike`: new rows that agree with missing ones in two of title, start and place, and are not held;
    `alike_before`: released earlier reads with at least half as many. `alongside`: another scope that delivers these rows.
    `key_definition`: what determines the feed's keys; `has_new_keys`: it has changed.
    """

    run_id: str
    warnings: int = 0
    withdrawn: int = 0
    standing: int = 0
    is_blind: bool = False
    present: int = 0
    brakes: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    key_definition: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)
    reasons: tuple[ReasonCount, ...] = ()
    rejections: tuple[RejectedRow, ...] = ()
    held: tuple[HeldRow, ...] = ()


def dump(record: ReadAccount | PublishAccount | StageReport) -> str:
    """Return a record as JSON in ASCII: raw cells may hold characters that no database stores."""
    return json.dumps(asdict(record))


_COMPACT = json.JSONEncoder(separators=(",", ":"))


def dump_answer(answer: Answer) -> str:
    """Return an answer as JSON in ASCII without empty fields: one is stored for every row.

    The fields are listed, because asking a dataclass for them costs more than the rest.
    """
    columns = {"status": answer.status, "code": answer.code, "message": answer.message}
    columns |= {"request_id": answer.request_id, "field": answer.field, "issue": answer.issue}
    return _COMPACT.encode({name: value for name, value in columns.items() if value != ""})


def _loader(kind: type[T]) -> Callable[[str], T]:
    """Return a function that parses such a record; unlike pydantic's own parser, `json` accepts lone surrogates."""
    adapter = TypeAdapter(kind)
    return lambda stored: adapter.validate_python(json.loads(stored))


load_read = TypeAdapter(ReadAccount).validate_json
load_publish = TypeAdapter(PublishAccount).validate_json
load_report = _loader(StageReport)
load_answer = _loader(Answer)
load_reasons = _loader(tuple[Reason, ...])
_EXAMPLES = 20
_REPORTED = ("warnings", "withdrawn", "restaged", "ignored", "waiting")
_DISTINCT_VALUES = 500  # beyond, problems are counted per field without their value


@dataclass(slots=True)
class Tally(ReadAccount):
    """The running counts of one read, named as in `ReadAccount` and `StageReport`.

    In addition: `called_off`, cancelled rows whose events cannot have been created; `restless`, rows that the next read of the
    same source would count differently; `unreleased`, rows of this read that no run released.
    """

    warnings: int = 0
    withdrawn: int = 0
    restaged: int = 0
    ignored: int = 0
    waiting: int = 0
    called_off: int = 0
    restless: int = 0
    unreleased: int = 0
    _wanted: float = 0.0
    _rejected: float = 0.0
    _skipped: Counter[str] = field(default_factory=Counter)
    _reasons: dict[tuple[ReasonCode, str, str, str], list[Any]] = field(default_factory=dict)
    _rejections: list[RejectedRow] = field(default_factory=list)
    _held: list[HeldRow] = field(default_factory=list)

    @property
    def unknown(self) -> int:
        """How many entries were staged for rows that the ledger did not know, by this read or by others never released."""
        return self.new - self.restaged + self.waiting

    def begin(self, outcomes: Sequence[RowOutcome], unchanged: int) -> None:
        """Count the rows read, and the additional events of split rows.

        `unchanged`: rows known to be unchanged without mapping, one event each.
        """
        further = sum(outcome.part.is_further for outcome in outcomes)
        self.expanded += further
        self.read += len(outcomes) - further + unchanged
        self.unchanged += unchanged
        wanted = sum(1 / outcome.part.of for outcome in outcomes if not isinstance(outcome, Skipped | Absorbed | Gone))
        self._wanted += unchanged + wanted

    def skip(self, because: str) -> None:
        """Count a row that is left out, by its label."""
        self.filtered += 1
        self._skipped[because] += 1

    def reject(self, rejection: Rejection) -> None:
        """Count a rejected row and each of its reasons."""
        self.rejected += 1
        self._rejected += 1 / rejection.part.of
        for reason in rejection.reasons:
            problem = (reason.code, reason.field, reason.column, reason.value or reason.found)
            if problem not in self._reasons and len(self._reasons) >= _DISTINCT_VALUES:
                problem = (reason.code, reason.field, reason.column, "")
            self._reasons.setdefault(problem, [reason.hint, 0])[1] += 1
        if len(self._rejections) < _EXAMPLES:
            self._rejections.append(RejectedRow(rejection.location.place, rejection.row_key, rejection.reasons))

    def differ(self, *, is_settled: bool) -> None:
        """Count a row that differs from what was delivered; as unchanged if a person settled exactly this difference."""
        if is_settled:
            self.unchanged += 1
        else:
            self.drifted += 1

    def hold(self, place: str, row_key: RowKey, candidate: Candidate | None) -> None:
        """Count a row that resembles a known event."""
        self.held += 1
        if len(self._held) < _EXAMPLES:
            like = candidate or Candidate(0, RowKey(""))
            self._held.append(HeldRow(place, row_key, like.row_key, like.feed, like.namespace))

    def free(self, row_key: RowKey) -> None:
        """Count a held row as new, because no known event resembles it any more."""
        self.held -= 1
        self.new += 1
        self._held = [row for row in self._held if row.row_key != row_key]

    def account(self) -> ReadAccount:
        """Return the account of the read."""
        return ReadAccount(**{each.name: getattr(self, each.name) for each in fields(ReadAccount)})

    def report(self, run_id: str, **more: Any) -> StageReport:
        """Return the report of the read; `more`: the fields that are not counted here."""
        reasons = sorted(self._reasons.items(), key=lambda each: -each[1][1])
        return StageReport(
            run_id=run_id,
            account=self.account(),
            rows=RowShares(self._wanted, self._rejected) if self.expanded else None,
            skipped=dict(self._skipped),
            reasons=tuple(ReasonCount(*problem, hint, count) for problem, (hint, count) in reasons),
            rejections=tuple(self._rejections),
            held=tuple(self._held),
            **{name: getattr(self, name) for name in _REPORTED},
            **more,
        )


OnDifference = Literal["report", "ignore"]


class ReadKind(StrEnum):
    """The scope of a read: the whole source, what changed since the bookmark, or rows that a person named."""

    FULL = "full"
    INCREMENTAL = "incremental"
    CHOSEN = "chosen"


@dataclass(frozen=True, slots=True)
class StagePolicy:
    """The rules of one read.

    `on_change`: a delivered row that changed is listed as drift, or only counted. `on_vanish`: a
    vanished row is marked and listed, or not. `holds_copies`: rows that resemble known entries are held. `drafts_only`: every
    new body is a draft. `accepted`: the brakes accepted for this run. `days`: the first and last ISO day of recurring events
    that this read covers, None without recurrences. `row_parts`: the number of parts of a row's own key if rows may have
    several events, whose keys begin with it; None if a row is an event. `key_definition`: what determines the feed's keys, ""
    to not compare it. `as_of`: the time by which events are over, if not the clock's.
    """

    on_change: OnDifference = "report"
    on_vanish: OnDifference = "report"
    holds_copies: bool = True
    drafts_only: bool = False
    accepted: tuple[str, ...] = ()
    days: tuple[str, str] | None = None
    kind: ReadKind = ReadKind.FULL
    row_parts: int | None = None
    key_definition: str = ""
    as_of: datetime | None = None


DEFAULT_POLICY = StagePolicy()
"""Reports differences, holds copies, sends rows as mapped."""


class Candidate(NamedTuple):
    """A known entry that a row resembles: its id (0 if it is written in the same batch), key and place.

    `feed` and `namespace` are "" if they are the row's own.
    """

    entry_id: int
    row_key: RowKey
    feed: FeedName = FeedName("")
    namespace: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.row_key, place_of(self.feed, self.namespace))))


def place_of(feed: str, namespace: str) -> str:
    """Return the place of an entry of another feed as text, "" for the row's own feed."""
    return " in ".join(filter(None, (f"of feed {feed}" if feed else "", f"namespace {namespace}" if namespace else "")))
