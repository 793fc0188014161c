"""What becomes of the rows of one source in a first run, as text and as documents: also duplicates and contradictions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NotRequired, assert_never

from typing_extensions import TypedDict

from mappings.outcome import (
    REASON_TEXTS,
    WHOLE_ROW,
    Absorbed,
    Absorption,
    Cover,
    Gone,
    MappedRow,
    Part,
    Reason,
    ReasonCode,
    Rejection,
    RowLocation,
    RowOutcome,
    Skipped,
    if_unknown,
    too_long_key,
)
from mappings.row_key import Fingerprint, RowKey


class Outcome(TypedDict):
    """What becomes of a row; of event, rejected, held (as a copy of that row), skipped, absorbed and gone it has one."""

    place: str
    row_key: str
    warnings: Sequence[Reason]
    event: NotRequired[dict[str, Any]]
    cover: NotRequired[Cover]
    rejected: NotRequired[Sequence[Reason]]
    held: NotRequired[str]
    skipped: NotRequired[str]
    absorbed: NotRequired[Absorption]
    gone: NotRequired[bool]


@dataclass(frozen=True, slots=True)
class Held:
    """A row that a run would hold: it looks like a copy of the row with the key `twin_key`."""

    location: RowLocation
    row_key: RowKey
    twin_key: RowKey
    part: Part = WHOLE_ROW


Foreseen = RowOutcome | Held
"""What a first run would make of a row."""


@dataclass(slots=True)
class _Claim:
    """The first row of a key: what it says, and where; `against` is why it is no event after all, once another disagrees."""

    fingerprint: Fingerprint
    location: RowLocation
    is_warned: bool
    against: Rejection | None = None


@dataclass(frozen=True, slots=True)
class TakenBack:
    """A row that was taken for an event until another one contradicted it; `was_warned`: it came with a warning."""

    rejection: Rejection
    was_warned: bool


@dataclass(slots=True)
class Claims:
    """The identifiers met so far; memory grows with their number."""

    _claims: dict[RowKey, _Claim] = field(default_factory=dict)
    _twins: dict[bytes, RowKey] = field(default_factory=dict)
    _taken_back: list[TakenBack] = field(default_factory=list)

    def foresee(self, outcome: RowOutcome) -> Foreseen:
        """Return what a run makes of the next row's outcome: the same, unless an earlier row speaks for it or against it."""
        outcome = if_unknown(outcome)
        if not isinstance(outcome, MappedRow):
            return outcome
        claim = self._claims.get(outcome.row_key)
        if claim is None:
            return self._first(outcome)
        if outcome.fingerprint == claim.fingerprint and claim.against is None:
            return Absorbed(outcome.location, outcome.row_key, Absorption.DUPLICATE, outcome.part)
        if claim.against is None:
            claim.against = _claimed_twice(outcome.row_key, claim.location, f"another one is at {outcome.location}")
            self._taken_back.append(TakenBack(claim.against, claim.is_warned))
        rejection = _claimed_twice(outcome.row_key, outcome.location, f"the first one is at {claim.location}")
        return replace(rejection, cells=outcome.cells, part=outcome.part)

    def taken_back(self) -> tuple[TakenBack, ...]:
        """Return the rows that are no events any more since this was asked last."""
        taken_back, self._taken_back = tuple(self._taken_back), []
        return taken_back

    def in_the_end(self, outcome: Foreseen) -> Foreseen:
        """Return what became of a row by now: an event may meanwhile stand against another row."""
        if not isinstance(outcome, MappedRow):
            return outcome
        claim = self._claims.get(outcome.row_key)
        if claim is None or claim.against is None:
            return outcome
        return replace(claim.against, cells=outcome.cells, part=outcome.part)

    def _first(self, row: MappedRow) -> Foreseen:
        if rejection := too_long_key(row):
            return rejection
        twin = self._twins.get(row.duplicate_digest)
        if twin is not None:
            return Held(row.location, row.row_key, twin, row.part)
        self._twins[row.duplicate_digest] = row.row_key
        self._claims[row.row_key] = _Claim(row.fingerprint, row.location, bool(row.warnings))
        return row


def _claimed_twice(row_key: RowKey, origin: RowLocation, hint: str) -> Rejection:
    return Rejection(origin, row_key, (Reason(ReasonCode.DUPLICATE_KEY, "", "", row_key, hint),), {})


OutcomeKind = Literal["events", "rejected", "held", "skipped"]


def kind_of(outcome: Foreseen) -> OutcomeKind:
    """Return the word by which people ask for outcomes like this one; a row that another speaks for is no event."""
    match outcome:
        case MappedRow():
            return "events"
        case Rejection():
            return "rejected"
        case Held():
            return "held"
        case Skipped() | Absorbed() | Gone():
            return "skipped"
        case _:
            assert_never(outcome)


def outcome_document(outcome: Foreseen) -> Outcome:
    """Return an outcome as scripts read it, with the row's place and key."""
    document = Outcome(place=outcome.location.place, row_key=outcome.row_key, warnings=())
    match outcome:
        case MappedRow():
            document["event"] = json.loads(outcome.body)
            document["warnings"] = outcome.warnings
            if outcome.cover:
                document["cover"] = outcome.cover
        case Rejection():
            document["rejected"] = outcome.reasons
        case Held():
            document["held"] = outcome.twin_key
        case Skipped():
            document["skipped"] = outcome.because
        case Absorbed():
            document["absorbed"] = outcome.into
        case Gone():
            document["gone"] = True
        case _:
            assert_never(outcome)
    return document


def outcome_told(outcome: Foreseen) -> str:
    """Return an outcome as text: the payload with its warnings, each reason with what would be accepted, or the rule's label."""
    match outcome:
        case MappedRow():
            payload = json.dumps(json.loads(outcome.body), indent=2, ensure_ascii=False)
            cover = [f"cover image: {outcome.cover.url}"] if outcome.cover else []
            outside = [f"outside the window: {outcome.outside}; compared with what was sent"] if outcome.outside else []
            extra = [*cover, *outside, *(f"warning: {reason_told(reason)}" for reason in outcome.warnings)]
            return _block(f"{outcome.location}  event {outcome.row_key}", [*payload.splitlines(), *extra])
        case Rejection():
            head = f"{outcome.location}  REJECTED {outcome.row_key}".rstrip()
            return _block(head, [reason_told(reason) for reason in outcome.reasons])
        case Held():
            return f"{outcome.location}  HELD {outcome.row_key}: it looks like a copy of {outcome.twin_key}\n"
        case Skipped():
            return f"{outcome.location}  left out: {outcome.because}\n"
        case Absorbed():
            return f"{outcome.location}  {outcome.into}: another row of the key {outcome.row_key} speaks for it\n"
        case Gone():
            return f"{outcome.location}  gone: its source says that {outcome.row_key or 'the row'} was deleted\n"
        case _:
            assert_never(outcome)


def reason_told(reason: Reason) -> str:
    """Return one problem as text: where, what was found, what is wrong with it, what would be accepted."""
    where = reason.field or "the row"
    found = f"found {reason.found!r}" if reason.found else "empty"
    cell = f" (column {reason.column}, {found})" if reason.column else ""
    wrong = REASON_TEXTS[reason.code]
    return f"{where}{cell}: {wrong.removesuffix('.')}: {reason.hint}" if reason.hint else f"{where}{cell}: {wrong}"


def _block(head: str, lines: Iterable[str]) -> str:
    return "\n".join([head, *(f"  {line}" for line in lines)]) + "\n"
