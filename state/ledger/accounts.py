"""What a run says it did with its rows, as numbers that must balance. Who counts them is `stage`'s and `outbox`'s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mappings.errors import SyncError
from mappings.refusals import Reason, ReasonCode
from mappings.row_key import RowKey

READS_THAT_TELL = 60
"""So many of the latest whole reads tell a feed's habits: two months of a feed that is read once a day."""


class ImbalanceError(SyncError):
    """Rows went missing between two steps, or were counted twice: the numbers cannot be trusted."""


@dataclass(frozen=True, slots=True)
class ReadAccount:
    """Every row read, in exactly one place:
    `read + expanded = filtered + duplicate + grouped + rejected + held + still_refused + unchanged + drifted + new + gone`.

    `expanded`: events that rows gave beyond one each; `grouped`: rows that went into another row's event. Both are 0 for a
    feed in which a row is an event. `duplicate`: rows that another row of the same key speaks for. `gone`: rows that an
    incremental read was told were deleted. `still_refused`: rows whose payload is the one that the service has refused.

    `new` counts every row that this run staged to be sent: rows never seen before, and known ones whose changed payload
    is due (never sent so far, refused as it was, or drafted again). `drifted` counts every row that differs from what was
    delivered, also where the feed asks to hear no more of it (`on_change: ignore`); a difference that a person has set aside is
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
        """How many rows the source has, of those that it told of."""
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
    due; the rest was never seen before. Of `account.held`, `ignored` are rows that a person decided to hear no more of.
    `vanished`: newly absent from a whole read, or deleted by the source's own word, if the feed `is_marking` such rows; those
    whose events are over are `past` instead, of as many rows as `past_rows` tells where a row is an event (else 0);
    `withdrawn`: pending rows, never sent, that the source no longer asks for. `known_before`: entries of the feed before this
    read that some run has let out, `met` those of them that this read has; `present`: entries of its rows, once it is over;
    `replaced_before`: earlier reads that went out, and lost and gained at least half as many rows as this one. `waiting`:
    entries, never sent, that earlier reads staged, that none let out, and that this one asks for again; `redrafted`: drafts
    of changes that no run has let out yet. `last_whole_read`:
    rows of the last whole read that passed the brakes, None if there was none. `rows`: the same in rows, where rows give
    several events. `rejections` and `held` are the first few; all are in the state DB. `standing`: rows that earlier reads
    rejected, and that this one, which was not full, has not read again. `is_blind`: rows wait behind a closed gate that this
    read has not heard of, so that it may not open it. `reasons` counts problems (not warnings). `brakes`:
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
