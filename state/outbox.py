"""COMMIT POINT 2: what is owed goes out oldest first, and an answer is durable before its slot takes the next row.

What an answer means is `verdicts`'; asking the service is the caller's.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row

from mappings.delivery import Intent, Verdict
from mappings.errors import SyncError
from mappings.vocabulary import RowKey
from state import claims
from state.accounts import PublishAccount
from state.database import reading
from state.gate import closed, read_gate
from state.standing import Standing, read_standing
from state.turn import Turn
from state.verdicts import Claim, effect_of
from state.words import EntryState, Phase

KEY_MEMORY_S = 86_400.0


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

    `key_memory_s`: how long in seconds the service is trusted to remember the key of an unanswered attempt.
    """

    limit: int | None = None
    keys: Collection[RowKey] | None = None
    key_memory_s: float = KEY_MEMORY_S


class Outbox:
    """One drain of what a feed owes. Not for several threads at once; after an error it is over, open another.

    An entry is handed out once in a drain, and once more only under a next key.
    """

    def __init__(self, turn: Turn, *, new: int, carried_over: int, uncertain: int, reach: Reach, ids: list[int] | None) -> None:
        self._turn = turn
        self._new = new
        self._carried_over = carried_over
        self._given_up = uncertain
        self._ended: Counter[EntryState] = Counter({EntryState.UNCERTAIN: uncertain})
        self._left = reach.limit
        self._key_memory = timedelta(seconds=reach.key_memory_s)
        self._ids = None if ids is None else deque(ids)
        self._last_id = 0
        self._held: dict[int, Claim] = {}
        self._again: deque[int] = deque()

    @property
    def owed(self) -> int:
        """How many rows this drain would have to deliver if nothing bounded it."""
        return self._new + self._carried_over - self._given_up

    def settle_and_claim(self, settled: Sequence[Settled], want: int) -> list[Intent]:
        """Write verdicts and hand out up to `want` further intents, in one transaction.

        When it returns, the verdicts are durable, and so is the record that the intents' attempts begin; but for those
        that still need their cover image, which begin with `pin`. Fewer than `want` means that no more is owed within
        this drain's reach, now. Raises `LeaseLostError` if another run has taken over (nothing is written),
        `NotClaimedError` for a verdict on an intent that is not in hand.
        """
        with self._turn.transaction() as connection:
            self._settle(connection, settled)
            return self._claim(connection, want)

    def pin(self, intent: Intent, body: bytes) -> Intent:
        """Make `body` (the cover's id put in, or left out) the intent's own for ever, and record that its attempt begins."""
        claim = self._held_claim(intent)
        with self._turn.transaction() as connection:
            if claims.pin(connection, intent.entry_id, body, self._turn.run_id, self._turn.now()) != 1:
                raise _not_claimed(intent)
        self._held[intent.entry_id] = replace(claim, is_begun=True)
        return replace(intent, body=body, cover=None)

    def account(self) -> PublishAccount:
        """Count what this drain has done so far against what the table says is still owed.

        Raises `ImbalanceError` if the two disagree.
        """
        with reading(self._turn.engine) as connection:
            pending = sum(claims.count_pending(connection, self._turn.scope_id, self._turn.run_id))
        ended = {state.value: self._ended[state] for state in EntryState if state is not EntryState.PENDING}
        account = PublishAccount(new=self._new, carried_over=self._carried_over, pending=pending, **ended)
        account.check()
        return account

    def standing(self) -> Standing:
        """Return what waits for a person from run to run, until somebody decides."""
        with reading(self._turn.engine) as connection:
            return read_standing(connection, self._turn.scope_id, self._turn.now(), self._key_memory.total_seconds())

    def _settle(self, connection: Connection, settled: Sequence[Settled]) -> None:
        settlements = [self._settlement(each) for each in settled]
        written = claims.settle(connection, settlements, self._turn.now())
        if written != len(settlements):
            raise NotClaimedError(
                f"{len(settlements) - written} of {len(settlements)} answers found their entry changed by somebody else",
                hint="only one run may publish a feed at a time; `eventsync status` shows who holds it",
            )
        for settlement in settlements:
            del self._held[settlement.entry_id]
            if settlement.effect.is_next_revision:
                self._again.append(settlement.entry_id)
            elif settlement.effect.state is not EntryState.PENDING:
                self._ended[settlement.effect.state] += 1

    def _settlement(self, settled: Settled) -> claims.Settlement:
        intent, verdict = settled.intent, settled.verdict
        claim = self._held_claim(intent)
        effect = effect_of(verdict, claim)
        key = self._turn.key(intent.row_key, claim.revision + 1) if effect.is_next_revision else intent.key
        return claims.Settlement(intent.entry_id, claim, effect, key, verdict.answer, verdict.attempts)

    def _claim(self, connection: Connection, want: int) -> list[Intent]:
        again = [self._again.popleft() for _ in range(min(want, len(self._again)))]
        rows = [*claims.read_these(connection, self._turn.scope_id, self._since(), again)]
        rows += self._claim_first(connection, want - len(rows))
        begun = [row.id for row in rows if row.cover_url is None]
        claims.begin(connection, begun, self._turn.run_id, self._turn.now())
        self._held.update((row.id, claims.as_claim(row)) for row in rows)
        return [claims.as_intent(row) for row in rows]

    def _claim_first(self, connection: Connection, want: int) -> Sequence[Row[*tuple[Any, ...]]]:
        """Claim entries that this drain has not handed out before: by age, or among the keys it was given."""
        most = want if self._left is None else min(want, self._left)
        if most <= 0:
            return ()
        if self._ids is None:
            rows = claims.read_oldest(connection, self._turn.scope_id, self._since(), self._last_id, most)
        else:
            ids = [self._ids.popleft() for _ in range(min(most, len(self._ids)))]
            rows = claims.read_these(connection, self._turn.scope_id, self._since(), ids)
        if rows:
            self._last_id = rows[-1].id
        if self._left is not None:
            self._left -= len(rows)
        return rows

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
        ids = None if reach.keys is None else claims.find_ids(connection, turn.scope_id, reach.keys)
    return Outbox(turn, new=new, carried_over=others + uncertain, uncertain=uncertain, reach=reach, ids=ids)


def _not_claimed(intent: Intent) -> NotClaimedError:
    return NotClaimedError(
        f"an answer came for {intent.row_key}, which this drain does not hold",
        hint="hand each intent's verdict in once; please report this as a fault of eventsync",
    )
