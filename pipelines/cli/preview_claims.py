"""Rows of one source that claim the same identifier, or look like copies of each other: what a first run would make of them.

The ledger's own word on this is `state.comparing`'s; nothing here knows what was sent before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mappings.compiler.key import too_long_key
from mappings.outcome import WHOLE_ROW, Absorbed, Absorption, MappedRow, Part, Rejection, RowLocation, RowOutcome, if_unknown
from mappings.refusals import Reason, ReasonCode
from mappings.row_key import Fingerprint, RowKey


@dataclass(frozen=True, slots=True)
class Held:
    """A row that a run would hold: it looks like a copy of the row with the key `twin_key`."""

    origin: RowLocation
    row_key: RowKey
    twin_key: RowKey
    part: Part = WHOLE_ROW


Foreseen = RowOutcome | Held
"""What a first run would make of a row."""


@dataclass(slots=True)
class _Claim:
    """The first row of a key: what it says, and where; `against` is why it is no event after all, once another disagrees."""

    fingerprint: Fingerprint
    origin: RowLocation
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
            return Absorbed(outcome.origin, outcome.row_key, Absorption.DUPLICATE, outcome.part)
        if claim.against is None:
            claim.against = _claimed_twice(outcome.row_key, claim.origin, f"another one is at {outcome.origin}")
            self._taken_back.append(TakenBack(claim.against, claim.is_warned))
        rejection = _claimed_twice(outcome.row_key, outcome.origin, f"the first one is at {claim.origin}")
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
        twin = self._twins.get(row.twin_digest)
        if twin is not None:
            return Held(row.origin, row.row_key, twin, row.part)
        self._twins[row.twin_digest] = row.row_key
        self._claims[row.row_key] = _Claim(row.fingerprint, row.origin, bool(row.warnings))
        return row


def _claimed_twice(row_key: RowKey, origin: RowLocation, hint: str) -> Rejection:
    return Rejection(origin, row_key, (Reason(ReasonCode.DUPLICATE_KEY, "", "", row_key, hint),), {})
