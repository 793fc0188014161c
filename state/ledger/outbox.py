"""COMMIT POINT 2: what is owed goes out oldest first, and an answer is durable before its slot takes the next row.

What an answer means is `verdicts`'; asking the service is the caller's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from mappings.delivery import Blocked, Intent, Refusal, Verdict
from mappings.errors import SyncError
from mappings.refusals import Reason
from mappings.row_key import RowKey
from state.database import reading
from state.enums import EntryState, Phase
from state.ledger import claims
from state.ledger.accounts import PublishAccount
from state.ledger.claims import Settlement, settle, unwritten
from state.ledger.gate import closed, read_gate
from state.ledger.lease import Turn
from state.ledger.problems import warn_of_image
from state.ledger.standing import Standing, read_standing
from state.ledger.verdicts import Claim, effect_of, refused_as
from state.trouble import StateBusyError

KEY_MEMORY_S = 86_400.0
_ENDS = frozenset(EntryState) - {EntryState.PENDING, EntryState.HELD, EntryState.SUPERSEDED}
"""What a drain may end in for an entry."""


class NotClaimedError(SyncError):
    """A verdict came for an entry that this drain does not hold, or holds no longer."""


@dataclass(frozen=True, slots=True)
class Settled:
    """An intent, and what its attempts ended in."""

    intent: Intent
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Reach:
    """How much of what is owed this drain may take: at most `limit` rows, and only those of `keys`; None sets no bound.

    `row_parts`: a key of so many parts is a row's own, and reaches all of its events; None: every key is one event's.
    `key_memory_s`: how long in seconds the service is trusted to remember the key of an unanswered attempt.
    """

    limit: int | None = None
    keys: Collection[RowKey] | None = None
    key_memory_s: float = KEY_MEMORY_S
    row_parts: int | None = None

    def find_ids(self, connection: Connection, scope_id: int) -> list[int] | None:
        """Return the ids of the entries that may be taken, oldest first; None where all may be."""
        if self.keys is None or self.row_parts is None:
            return None if self.keys is None else claims.find_ids(connection, scope_id, self.keys)
        return claims.find_events(connection, scope_id, self.keys, self.row_parts)


@dataclass(frozen=True, slots=True)
class _Claimed:
    """What one transaction has claimed: the last `first` of `rows` for the first time. `again`: what is left of those that
    go on under a next key; `most`: how many were asked for first; `at`: when the attempts begin.
    """

    rows: tuple[claims.OwedEntry, ...]
    first: int
    again: Sequence[int]
    most: int
    at: datetime


@dataclass(frozen=True, slots=True)
class _Owed:
    """What a drain begins with: rows by where they come from, those given up at once, the only entries to take (None: all),
    and why the last drain was stopped.
    """

    new: int
    carried_over: int
    uncertain: int
    ids: list[int] | None
    stopped_by: str


class Outbox:
    """One drain of what a feed owes. Not for several threads at once; after an error it is over, open another, unless it
    is a `StateBusyError`.

    An entry is handed out once in a drain, and once more only under a next key.
    """

    def __init__(self, turn: Turn, owed: _Owed, reach: Reach) -> None:
        self._turn = turn
        self._new = owed.new
        self._carried_over = owed.carried_over
        self._given_up = owed.uncertain
        self._stopped_by = owed.stopped_by
        self._ended: Counter[EntryState] = Counter({EntryState.UNCERTAIN: owed.uncertain})
        self._left = reach.limit
        self._key_memory = timedelta(seconds=reach.key_memory_s)
        self._ids = owed.ids
        self._last_id = 0
        self._held: dict[int, Claim] = {}
        self._again: list[int] = []
        self._is_in_doubt = False
        self._resent: set[int] = set()

    @property
    def stopped_by(self) -> str:
        """Why an earlier drain of this feed was stopped, if no row has passed since; "" otherwise."""
        return self._stopped_by

    @property
    def owed(self) -> int:
        """How many rows this drain would have to deliver if nothing bounded it."""
        return self._new + self._carried_over - self._given_up

    def settle_and_claim(self, settled: Sequence[Settled], want: int) -> list[Intent]:
        """Write verdicts and hand out up to `want` further intents, in one transaction.

        When it returns, the verdicts are durable, and so is the record that the intents' attempts begin; but for those
        that still need their cover image, which begin with `pin`. Fewer than `want` means that no more is owed within
        this drain's reach, now. Raises `LeaseLostError` if another run has taken over (nothing is written),
        `NotClaimedError` for a verdict on an intent that is not in hand. After a `StateBusyError` the same verdicts,
        and more, may be handed in again: nothing counts here until it is known to be durable.
        """
        try:
            with self._turn.transaction() as connection:
                settlements = self._settle(connection, settled)
                claimed = self._claim(connection, [*self._again, *_next_keys(settlements)], want)
        except StateBusyError:
            self._is_in_doubt = True
            raise
        self._is_in_doubt = False
        self._count_settled(settlements)
        self._count_claimed(claimed)
        return [claims.as_intent(row, claimed.at) for row in claimed.rows]

    def begin_again(self, intent: Intent) -> None:
        """Record, before it is sent, that one more attempt of an intent in hand begins."""
        self._held_claim(intent)
        with self._turn.transaction() as connection:
            claims.begin_again(connection, intent.entry_id)

    def note_stop(self, why: str) -> None:
        """Remember for the next run why this drain was stopped; "" once a row has passed."""
        if why != self._stopped_by:
            with self._turn.transaction() as connection:
                claims.note_stop(connection, self._turn.scope_id, why)
            self._stopped_by = why

    def pin(
        self, intent: Intent, body: bytes, *, missing: Reason | None = None, refused: Refusal | Blocked | None = None
    ) -> Intent:
        """Make `body` (the cover's id put in, or left out) the intent's own for ever, and record that its attempt begins.

        `missing`: why the image that the row asked for is not in it; listed for people in the same transaction. `refused`: what
        turned the body before this one away, in this very call; the corrected one goes under the same key first.
        """
        claim, now = self._held_claim(intent), self._turn.now()
        with self._turn.transaction() as connection:
            if claims.pin(connection, intent.entry_id, body, self._turn.run_id, now) != 1:
                raise _not_claimed(intent)
            if missing is not None:
                warn_of_image(connection, self._turn.scope_id, self._turn.run_id, intent.entry_id, missing, now)
            if refused is not None:
                claims.note_refusal(connection, intent.entry_id, refused_as(refused.answer))
        told = claim.refused_request_id if refused is None else refused_as(refused.answer)
        copies = claim.copies + (0 if refused is None else refused.copies)
        self._held[intent.entry_id] = replace(claim, is_begun=True, refused_request_id=told, copies=copies)
        return replace(intent, body=body, cover=None, refused_request_id=told)

    def unpin(self, intent: Intent, *, refused: Refusal | Blocked) -> None:
        """Let the intent ask for its cover image again, in a later run: the body with the one that was pinned is `refused`."""
        claim, told = self._held_claim(intent), refused_as(refused.answer)
        copies = claim.copies + refused.copies
        with self._turn.transaction() as connection:
            if claims.unpin(connection, intent, told, copies) != 1:
                raise _not_claimed(intent)
        self._held[intent.entry_id] = replace(claim, is_begun=False, refused_request_id=told, copies=copies)

    def account(self) -> PublishAccount:
        """Count what this drain has done so far against what the table says is still owed.

        Raises `ImbalanceError` if the two disagree.
        """
        with reading(self._turn.engine) as connection:
            pending = sum(claims.count_pending(connection, self._turn.scope_id, self._turn.run_id))
        ended = {state.value: self._ended[state] for state in _ENDS}
        account = PublishAccount(
            new=self._new, carried_over=self._carried_over, pending=pending, resent=len(self._resent), **ended
        )
        account.check()
        return account

    def standing(self) -> Standing:
        """Return what waits for a person from run to run, until somebody decides."""
        with reading(self._turn.engine) as connection:
            return read_standing(connection, self._turn.scope_id, self._turn.now(), self._key_memory.total_seconds())

    def _settle(self, connection: Connection, settled: Sequence[Settled]) -> list[Settlement]:
        settlements = [self._settlement(each) for each in settled]
        # A connection that broke while it committed leaves open whether it did; what was written then stands.
        due = unwritten(connection, settlements) if self._is_in_doubt else settlements
        written = settle(connection, due, self._turn.now())
        if written != len(due):
            raise NotClaimedError(
                f"{len(due) - written} of {len(due)} answers found their entry changed by somebody else",
                hint="only one run may publish a feed at a time; `eventsync status` shows who holds it",
            )
        return settlements

    def _count_settled(self, settlements: Sequence[Settlement]) -> None:
        for settlement in settlements:
            del self._held[settlement.entry_id]
            if settlement.copies > max(settlement.claim.copies, 1):
                self._resent.add(settlement.entry_id)
            if settlement.effect.state is not EntryState.PENDING:
                self._ended[settlement.effect.state] += 1

    def _settlement(self, settled: Settled) -> Settlement:
        intent, verdict = settled.intent, settled.verdict
        claim = self._held_claim(intent)
        effect = effect_of(verdict, claim)
        key = self._turn.key(intent.row_key, claim.revision + 1) if effect.is_next_revision else intent.key
        copies = claim.copies + verdict.copies
        return Settlement(intent.entry_id, claim, effect, key, verdict.answer, verdict.attempts, copies)

    def _claim(self, connection: Connection, again: Sequence[int], want: int) -> _Claimed:
        """Claim entries that go on under a next key, then others that this drain has not handed out before."""
        picked = again[: max(want, 0)]
        rows = [*claims.read_these(connection, self._turn.scope_id, self._since(), picked)]
        most = want - len(rows) if self._left is None else min(want - len(rows), self._left)
        first = self._read_first(connection, most) if most > 0 else []
        now = self._turn.now()
        claims.begin(connection, [row.id for row in (*rows, *first) if row.cover_url is None], self._turn.run_id, now)
        return _Claimed((*rows, *first), len(first), again[len(picked) :], max(most, 0), now)

    def _read_first(self, connection: Connection, most: int) -> list[claims.OwedEntry]:
        """Read by age, or among the keys that this drain was given."""
        if self._ids is None:
            return claims.read_oldest(connection, self._turn.scope_id, self._since(), self._last_id, most)
        rows = {row.id: row for row in claims.read_these(connection, self._turn.scope_id, self._since(), self._ids[:most])}
        return [rows[entry] for entry in self._ids[:most] if entry in rows]

    def _count_claimed(self, claimed: _Claimed) -> None:
        self._again = list(claimed.again)
        if claimed.first:
            self._last_id = claimed.rows[-1].id
        if self._ids is not None:
            self._ids = self._ids[claimed.most :]
        if self._left is not None:
            self._left -= claimed.first
        self._held.update((row.id, claims.as_claim(row)) for row in claimed.rows)

    def _since(self) -> datetime:
        """An attempt that went unanswered before this moment may have been forgotten by now: it is not claimed."""
        return self._turn.now() - self._key_memory

    def _held_claim(self, intent: Intent) -> Claim:
        claim = self._held.get(intent.entry_id)
        if claim is None:
            raise _not_claimed(intent)
        return claim


def start_outbox(turn: Turn, reach: Reach) -> Outbox:
    """Begin a drain: reopen what may be sent again by itself, and count what is owed.

    Oldest first, but after a drain that was stopped those first that were sent least: a row that no service digests must
    not be the one that every run begins with.

    Raises `GateClosedError` if what is staged must not be published, `LeaseLostError` if another run has the feed.
    """
    with turn.transaction() as connection:
        gate = read_gate(connection, turn.scope_id)
        if not gate.is_open:
            raise closed(gate)
        turn.take_over(connection)
        turn.note(connection, phase=Phase.PUBLISHING.value)
        uncertain = claims.reopen(connection, turn.scope_id, turn.now(), reach.key_memory_s)
        new, others = claims.count_pending(connection, turn.scope_id, turn.run_id)
        ids = reach.find_ids(connection, turn.scope_id)
        stopped_by = claims.read_stop(connection, turn.scope_id)
        if stopped_by:
            ids = claims.least_sent_first(connection, turn.scope_id, ids)
    return Outbox(turn, _Owed(new, others + uncertain, uncertain, ids, stopped_by), reach)


def _not_claimed(intent: Intent) -> NotClaimedError:
    return NotClaimedError(
        f"an answer came for {intent.row_key}, which this drain does not hold",
        hint="hand each intent's verdict in once; please report this as a fault of eventsync",
    )


def _next_keys(settlements: Sequence[Settlement]) -> list[int]:
    return [settlement.entry_id for settlement in settlements if settlement.effect.is_next_revision]
