"""The outbox: what is owed is handed out oldest first, and an answer is durable before its slot takes the next row."""

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
from state.errors import StateBusyError
from state.ledger import claims
from state.ledger.accounts import PublishAccount
from state.ledger.claims import Settlement, settle, unwritten
from state.ledger.gate import closed, read_gate
from state.ledger.lease import FencedTransaction
from state.ledger.problems import warn_of_image
from state.ledger.standing import Standing, read_standing
from state.ledger.verdicts import Claim, effect_of, refused_as

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
class DrainFilter:
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


class Outbox:
    """One drain of what a feed owes. Not for several threads at once; after an error it is over, open another, unless it
    is a `StateBusyError`.

    An entry is handed out once in a drain, and once more only under a next key. `ids`: the only entries to take, None for all;
    `begun`: the account as it began, with the rows that became uncertain at once.
    """

    def __init__(
        self, run: FencedTransaction, bounds: DrainFilter, ids: list[int] | None, begun: PublishAccount, stopped_by: str
    ) -> None:
        self._run = run
        self._ids = ids
        self._begun = begun
        self._stopped_by = stopped_by
        self._left = bounds.limit
        self._key_memory = timedelta(seconds=bounds.key_memory_s)
        self._ended: Counter[EntryState] = Counter({EntryState.UNCERTAIN: begun.uncertain})
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
        return self._begun.new + self._begun.carried_over - self._begun.uncertain

    def settle_and_claim(self, settled: Sequence[Settled], want: int) -> list[Intent]:
        """Write verdicts and hand out up to `want` further intents, in one transaction.

        When it returns, the verdicts are durable, and so is the record that the intents' attempts begin; but for those
        that still need their cover image, which begin with `pin`. Fewer than `want` means that no more is owed within
        this drain's reach, now. Raises `LeaseLostError` if another run has taken over (nothing is written),
        `NotClaimedError` for a verdict on an intent that is not in hand. After a `StateBusyError` the same verdicts,
        and more, may be handed in again: nothing counts here until it is known to be durable.
        """
        settlements = [self._settlement(each) for each in settled]
        again = [*self._again, *(each.entry_id for each in settlements if each.effect.is_next_revision)]
        try:
            with self._run.transaction() as connection:
                self._settle(connection, settlements)
                now = self._run.now()
                retried = claims.read_these(connection, self._run.scope_id, self._since(now), again[: max(want, 0)])
                most = max(want - len(retried), 0)
                most = most if self._left is None else min(most, self._left)
                first = self._read_first(connection, most, now)
                rows = [*retried, *first]
                claims.begin(connection, [row.id for row in rows if row.cover_url is None], self._run.run_id, now)
        except StateBusyError:
            self._is_in_doubt = True
            raise
        self._is_in_doubt = False
        self._count_settled(settlements)
        self._again = again[max(want, 0) :]
        if first:
            self._last_id = first[-1].id
        if self._ids is not None:
            self._ids = self._ids[most:]
        if self._left is not None:
            self._left -= len(first)
        self._held.update((row.id, claims.as_claim(row)) for row in rows)
        return [claims.as_intent(row, now) for row in rows]

    def begin_again(self, intent: Intent) -> None:
        """Record, before it is sent, that one more attempt of an intent in hand begins."""
        self._held_claim(intent)
        with self._run.transaction() as connection:
            claims.begin_again(connection, intent.entry_id)

    def note_stop(self, why: str) -> None:
        """Remember for the next run why this drain was stopped; "" once a row has passed."""
        if why != self._stopped_by:
            with self._run.transaction() as connection:
                claims.note_stop(connection, self._run.scope_id, why)
            self._stopped_by = why

    def pin(
        self, intent: Intent, body: bytes, *, missing: Reason | None = None, refused: Refusal | Blocked | None = None
    ) -> Intent:
        """Make `body` (the cover's id put in, or left out) the intent's own for ever, and record that its attempt begins.

        `missing`: why the image that the row asked for is not in it; listed for people in the same transaction. `refused`: what
        turned the body before this one away, in this very call; the corrected one goes under the same key first.
        """
        claim, now = self._held_claim(intent), self._run.now()
        with self._run.transaction() as connection:
            if claims.pin(connection, intent.entry_id, body, self._run.run_id, now) != 1:
                raise _not_claimed(intent)
            if missing is not None:
                warn_of_image(connection, self._run.scope_id, self._run.run_id, intent.entry_id, missing, now)
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
        with self._run.transaction() as connection:
            if claims.unpin(connection, intent, told, copies) != 1:
                raise _not_claimed(intent)
        self._held[intent.entry_id] = replace(claim, is_begun=False, refused_request_id=told, copies=copies)

    def account(self) -> PublishAccount:
        """Count what this drain has done so far against what the table says is still owed.

        Raises `ImbalanceError` if the two disagree.
        """
        with reading(self._run.engine) as connection:
            pending = sum(claims.count_pending(connection, self._run.scope_id, self._run.run_id))
        ended = {state.value: self._ended[state] for state in _ENDS}
        account = replace(self._begun, pending=pending, resent=len(self._resent), **ended)
        account.check()
        return account

    def standing(self) -> Standing:
        """Return what waits for a person from run to run."""
        with reading(self._run.engine) as connection:
            return read_standing(connection, self._run.scope_id, self._run.now(), self._key_memory.total_seconds())

    def _settle(self, connection: Connection, settlements: Sequence[Settlement]) -> None:
        # A connection that broke while it committed leaves open whether it did; what was written then stands.
        due = unwritten(connection, settlements) if self._is_in_doubt else settlements
        written = settle(connection, due, self._run.now())
        if written != len(due):
            raise NotClaimedError(
                f"{len(due) - written} of {len(due)} answers found their entry changed by another process",
                hint="only one run may publish a feed at a time; `eventsync status` shows who holds it",
            )

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
        key = self._run.key(intent.row_key, claim.revision + 1) if effect.is_next_revision else intent.key
        copies = claim.copies + verdict.copies
        return Settlement(intent.entry_id, claim, effect, key, verdict.answer, verdict.attempts, copies)

    def _read_first(self, connection: Connection, most: int, now: datetime) -> list[claims.OwedEntry]:
        """Read by age, or among the entries that this drain was given."""
        if most <= 0:
            return []
        scope_id, since = self._run.scope_id, self._since(now)
        if self._ids is None:
            return claims.read_oldest(connection, scope_id, since, self._last_id, most)
        rows = {row.id: row for row in claims.read_these(connection, scope_id, since, self._ids[:most])}
        return [rows[entry] for entry in self._ids[:most] if entry in rows]

    def _since(self, now: datetime) -> datetime:
        """An attempt that went unanswered before this moment may have been forgotten by the service: it is not claimed."""
        return now - self._key_memory

    def _held_claim(self, intent: Intent) -> Claim:
        claim = self._held.get(intent.entry_id)
        if claim is None:
            raise _not_claimed(intent)
        return claim


def start_outbox(run: FencedTransaction, bounds: DrainFilter) -> Outbox:
    """Begin a drain: reopen what may be sent again by itself, and count what is owed.

    Oldest first, but after a drain that was stopped those first that were sent least: a row that no service accepts must
    not be the one that every run begins with.

    Raises `GateClosedError` if what is staged must not be published, `LeaseLostError` if another run has the feed.
    """
    scope_id = run.scope_id
    with run.transaction() as connection:
        gate = read_gate(connection, scope_id)
        if not gate.is_open:
            raise closed(gate)
        run.take_over(connection)
        run.note(connection, phase=Phase.PUBLISHING.value)
        given_up = claims.reopen(connection, scope_id, run.now(), bounds.key_memory_s)
        new, others = claims.count_pending(connection, scope_id, run.run_id)
        ids = bounds.find_ids(connection, scope_id)
        stopped_by = claims.read_stop(connection, scope_id)
        if stopped_by:
            ids = claims.least_sent_first(connection, scope_id, ids)
    return Outbox(run, bounds, ids, PublishAccount(new=new, carried_over=others + given_up, uncertain=given_up), stopped_by)


def _not_claimed(intent: Intent) -> NotClaimedError:
    return NotClaimedError(
        f"an answer came for {intent.row_key}, which this drain does not hold",
        hint="hand each intent's verdict in once; please report this as a fault of eventsync",
    )
