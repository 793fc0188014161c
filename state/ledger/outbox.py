"""The outbox: what is owed is handed out oldest first, and an answer is durable before its slot takes the next row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import NamedTuple

from sqlalchemy import Boolean, Connection, and_, bindparam, case, false, func, or_, select, update

from mappings.delivery import Answer, Blocked, Denial, Intent, Refusal, Verdict
from mappings.errors import SyncError
from mappings.outcome import Cover, Reason
from mappings.row_key import IdempotencyKey, RowKey, event_key, names_of
from state.database import reading
from state.enums import Decision, EntryState, Phase
from state.errors import StateBusyError
from state.ledger.accounts import PublishAccount, dump_answer, load_answer, warn_of_image
from state.ledger.entries import _IS_TO_RESEND, IS_SET_ASIDE, is_forgotten
from state.ledger.gate import closed, read_gate
from state.ledger.lease import FencedTransaction
from state.ledger.standing import Standing, read_standing
from state.ledger.verdicts import Claim, Effect, effect_of, refused_as
from state.tables import ENTRY, SCOPE

_FEW = 500
_PAGE = 2_000
_FEW_ROWS = 100
"""So many beginnings are looked for by the database; of more, each entry is looked at here."""


"""A person has ignored the entry: it stays as it is, and is on no list."""


class OwedEntry(NamedTuple):
    """An entry as it is when it is claimed, column by column: made for every row, so that it is made of the row at once."""

    id: int
    row_key: RowKey
    idempotency_key: IdempotencyKey
    body: bytes
    channel_id: int
    revision: int
    unanswered_at: datetime | None
    refused_request_id: str
    cover_url: str | None
    cover_on_error: str | None
    decision: str | None
    updated_at: datetime
    answer: str | None
    denied_request_id: str
    copies: int
    is_limited: bool


_PENDING = (
    ENTRY.c.scope_id == bindparam("scope"),
    ENTRY.c.state == EntryState.PENDING.value,
    or_(
        ENTRY.c.unanswered_at.is_(None),
        ENTRY.c.unanswered_at > bindparam("since", type_=ENTRY.c.unanswered_at.type),
        ENTRY.c.is_limited,
        _IS_TO_RESEND,
    ),
)
_CLAIMED = tuple(ENTRY.c[name] for name in OwedEntry._fields)
_OLDEST = select(*_CLAIMED).where(*_PENDING, ENTRY.c.id > bindparam("after")).order_by(ENTRY.c.id).limit(bindparam("want"))
_THESE = select(*_CLAIMED).where(*_PENDING, ENTRY.c.id.in_(bindparam("entries", expanding=True))).order_by(ENTRY.c.id)
_NOW = bindparam("now", type_=ENTRY.c.unanswered_at.type)
_BEGUN = {
    "attempts": ENTRY.c.attempts + 1,
    "copies": ENTRY.c.copies + 1,
    # Who said `--resend` answers for what came before: from this attempt on, `key_memory` counts anew. Answers 429 do not
    # start its clock.
    "unanswered_at": case((or_(_IS_TO_RESEND, ENTRY.c.is_limited), _NOW), else_=func.coalesce(ENTRY.c.unanswered_at, _NOW)),
    "is_limited": false(),
    "decision": case((_IS_TO_RESEND, Decision.RESENT.value), else_=ENTRY.c.decision),
    "sent_run": bindparam("run"),
    "updated_at": bindparam("now", type_=ENTRY.c.updated_at.type),
}
_BEGIN = update(ENTRY).where(ENTRY.c.id == bindparam("entry")).values(**_BEGUN)
_BEGIN_AGAIN = update(ENTRY).where(ENTRY.c.id == bindparam("entry")).values(copies=ENTRY.c.copies + 1)
_PIN = (
    update(ENTRY)
    .where(ENTRY.c.id == bindparam("entry"), ENTRY.c.state == EntryState.PENDING.value)
    .values(body=bindparam("pinned"), cover_url=None, cover_on_error=None, **_BEGUN)
)
_UNPIN = (
    update(ENTRY)
    .where(ENTRY.c.id == bindparam("entry"), ENTRY.c.state == EntryState.PENDING.value)
    .values(
        body=bindparam("unpinned"),
        cover_url=bindparam("asked_url"),
        cover_on_error=bindparam("asked_on_error"),
        attempts=ENTRY.c.attempts - 1,
        copies=bindparam("made"),
        unanswered_at=None,
        refused_request_id=bindparam("refused"),
    )
)
_NOTE_REFUSAL = update(ENTRY).where(ENTRY.c.id == bindparam("entry")).values(refused_request_id=bindparam("refused"))


def find_events(connection: Connection, scope_id: int, row_keys: Collection[RowKey], row_parts: int) -> list[int]:
    """Return the ids of these rows' entries and of all the events of these rows, oldest first.

    A row's own key has `row_parts` parts. Rows that the ledger does not know are left out.
    """
    wanted = frozenset(row_keys)
    listed = select(ENTRY.c.id, ENTRY.c.row_key).where(ENTRY.c.scope_id == scope_id)
    if len(wanted) <= _FEW_ROWS:
        ways = (or_(ENTRY.c.row_key == key, ENTRY.c.row_key.startswith(event_key(key, ""), autoescape=True)) for key in wanted)
        listed = listed.where(or_(false(), *ways))
    # SQLite takes capitals for small letters in such conditions, and a key of fewer parts is no row's.
    rows = connection.execute(listed.execution_options(yield_per=_PAGE))  # they may be all of the feed's
    named = (row.id for row in rows if not wanted.isdisjoint(names_of(row.row_key, row_parts)))
    return sorted(named)


def find_ids(connection: Connection, scope_id: int, row_keys: Collection[RowKey]) -> list[int]:
    """Return the ids of these rows' entries, oldest first; rows that the ledger does not know are left out."""
    keys, found = sorted(row_keys), list[int]()
    for start in range(0, len(keys), _FEW):
        some = ENTRY.c.row_key.in_(keys[start : start + _FEW])
        found.extend(connection.execute(select(ENTRY.c.id).where(ENTRY.c.scope_id == scope_id, some)).scalars())
    return sorted(found)


def reopen(connection: Connection, scope_id: int, now: datetime, key_memory_s: float) -> int:
    """Make blocked and uncertain entries pending again, as far as that is safe without a person.

    An entry whose first unanswered attempt is older than `key_memory_s` is or becomes uncertain: the service may have
    forgotten its key, and would create it twice; unless a person has said that it shall be sent all the same. A blocked
    row that is gone from its source is left alone, and so is what a person has set aside. Returns how many pending
    entries became uncertain.
    """
    forgotten = is_forgotten(now, key_memory_s)
    of_feed = (ENTRY.c.scope_id == scope_id, ~IS_SET_ASIDE)
    pending = {"state": EntryState.PENDING.value, "updated_at": now}
    is_in_source = (ENTRY.c.vanished_at.is_(None), ENTRY.c.past_at.is_(None))
    is_back = (*of_feed, ENTRY.c.state == EntryState.BLOCKED.value, *is_in_source)
    is_fresh = (*of_feed, ENTRY.c.state == EntryState.UNCERTAIN.value, ~forgotten)
    connection.execute(update(ENTRY).where(*is_back).values(**pending))
    # `updated_at` stays: how long nothing was sent for it shows whether a request may still be under way.
    connection.execute(update(ENTRY).where(*is_fresh).values(state=EntryState.PENDING.value))
    is_stale = (*of_feed, ENTRY.c.state == EntryState.PENDING.value, forgotten, func.coalesce(~_IS_TO_RESEND, True))
    return connection.execute(update(ENTRY).where(*is_stale).values(state=EntryState.UNCERTAIN.value, updated_at=now)).rowcount


def read_stop(connection: Connection, scope_id: int) -> str:
    """Return why the feed's last drain was stopped, "" if no row waits for another to go first."""
    return str(connection.execute(select(SCOPE.c.stopped_by).where(SCOPE.c.id == scope_id)).scalar_one())


def note_stop(connection: Connection, scope_id: int, why: str) -> None:
    """Record why the feed's drain was stopped; "" once a row has passed."""
    connection.execute(update(SCOPE).where(SCOPE.c.id == scope_id).values(stopped_by=why))


def least_sent_first(connection: Connection, scope_id: int, among: Collection[int] | None) -> list[int]:
    """Return the ids of the pending entries, of those `among` where given: those with the fewest possible copies first."""
    pending = (ENTRY.c.scope_id == scope_id, ENTRY.c.state == EntryState.PENDING.value)
    ids = connection.execute(select(ENTRY.c.id).where(*pending).order_by(ENTRY.c.copies, ENTRY.c.id)).scalars()
    wanted = None if among is None else frozenset(among)
    return [entry for entry in ids if wanted is None or entry in wanted]


def count_pending(connection: Connection, scope_id: int, run_id: str) -> tuple[int, int]:
    """Return how many entries are pending: those that this run staged, and the others."""
    own = func.coalesce(func.sum(case((ENTRY.c.staged_run == run_id, 1), else_=0)), 0)
    pending = select(own, func.count()).where(ENTRY.c.scope_id == scope_id, ENTRY.c.state == EntryState.PENDING.value)
    new, every = connection.execute(pending).one()
    return int(new), int(every) - int(new)


def read_oldest(connection: Connection, scope_id: int, since: datetime, after: int, want: int) -> list[OwedEntry]:
    """Return the `want` oldest pending entries with an id above `after`, none of them unanswered since before `since`."""
    found = connection.execute(_OLDEST, {"scope": scope_id, "since": since, "after": after, "want": want})
    return list(map(OwedEntry._make, found))


def read_these(connection: Connection, scope_id: int, since: datetime, entries: Collection[int]) -> list[OwedEntry]:
    """Return those of these entries that are pending and not unanswered since before `since`, oldest first."""
    if not entries:
        return []
    return list(map(OwedEntry._make, connection.execute(_THESE, {"scope": scope_id, "since": since, "entries": entries})))


def begin(connection: Connection, entries: Collection[int], run_id: str, now: datetime) -> None:
    """Record, before anything is sent, that an attempt of these entries begins."""
    if entries:
        connection.execute(_BEGIN, [{"entry": entry, "run": run_id, "now": now} for entry in entries])


def begin_again(connection: Connection, entry_id: int) -> None:
    """Record, before it is sent, that one more attempt of an entry begins."""
    connection.execute(_BEGIN_AGAIN, {"entry": entry_id})


def pin(connection: Connection, entry_id: int, body: bytes, run_id: str, now: datetime) -> int:
    """Record the final body of an entry and that its first attempt begins; return 1, or 0 if it is not pending."""
    return connection.execute(_PIN, {"entry": entry_id, "pinned": body, "run": run_id, "now": now}).rowcount


def unpin(connection: Connection, intent: Intent, request_id: str, copies: int) -> int:
    """Put back what `pin` took away, as the attempt was refused; return 1, or 0 if the entry is not pending."""
    cover = intent.cover
    asked = {"asked_url": cover and cover.url, "asked_on_error": cover and cover.on_error}
    put_back = {"entry": intent.entry_id, "unpinned": intent.body, "refused": request_id, "made": copies, **asked}
    return connection.execute(_UNPIN, put_back).rowcount


def note_refusal(connection: Connection, entry_id: int, request_id: str) -> None:
    """Record that the entry's body before this one was refused under its key."""
    connection.execute(_NOTE_REFUSAL, {"entry": entry_id, "refused": request_id})


def as_intent(row: OwedEntry, now: datetime) -> Intent:
    """FencedTransaction an entry that was claimed at `now` into what is handed to the client."""
    is_counted_anew = row.unanswered_at is None or row.is_limited or row.decision == Decision.RESEND
    unanswered_since = now if is_counted_anew or row.unanswered_at is None else row.unanswered_at
    return Intent(
        entry_id=row.id,
        row_key=row.row_key,
        key=row.idempotency_key,
        body=row.body,
        channel_id=row.channel_id,
        is_unanswered=row.unanswered_at is not None,
        is_limited=row.is_limited,
        refused_request_id=row.refused_request_id,
        cover=None if row.cover_url is None else Cover(row.cover_url, row.cover_on_error or ""),
        denial=_denial(row),
        unanswered_s=max((now - unanswered_since).total_seconds(), 0.0),
        quiet_s=max((now - row.updated_at).total_seconds(), 0.0),
    )


def as_claim(row: OwedEntry) -> Claim:
    """Keep what was true of an entry before it was claimed."""
    return Claim(
        revision=row.revision,
        was_unanswered=row.unanswered_at is not None,
        was_limited=row.is_limited,
        copies=row.copies,
        refused_request_id=row.refused_request_id,
        is_begun=row.cover_url is None,
        is_retry=row.decision == Decision.RETRY,
        denial=_denial(row),
        failed=_failed(row),
    )


def _denial(row: OwedEntry) -> Denial | None:
    if not row.denied_request_id:
        return None
    is_retry = row.decision == Decision.RETRY and row.unanswered_at is None
    return Denial(row.denied_request_id, is_resent=is_retry or row.decision == Decision.RESEND)


def _failed(row: OwedEntry) -> Answer | None:
    """Return the last answer if that was a failure of the service, and a person lets the row be sent again nevertheless."""
    if row.answer is None or row.decision != Decision.RESEND:
        return None
    answer = load_answer(row.answer)
    return answer if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR else None


_TURNED_AWAY = frozenset({EntryState.REFUSED, EntryState.BLOCKED})
_AS_WRITTEN = select(ENTRY.c.id, ENTRY.c.state, ENTRY.c.idempotency_key, ENTRY.c.answer).where(
    ENTRY.c.id.in_(bindparam("entries", expanding=True))
)
_WRITTEN_COLUMNS = (
    *("state", "event_id", "answer", "refused_request_id", "denied_request_id", "revision", "idempotency_key"),
    *("copies", "is_limited", "updated_at"),
)
_SETTLE = (
    update(ENTRY)
    .where(ENTRY.c.id == bindparam("entry"), ENTRY.c.state == EntryState.PENDING.value)
    .values({name: bindparam(f"new_{name}") for name in _WRITTEN_COLUMNS})
    .values(
        attempts=case((bindparam("restarts", type_=Boolean()), 0), else_=ENTRY.c.attempts + bindparam("more")),
        unanswered_at=case((bindparam("keeps_unanswered", type_=Boolean()), ENTRY.c.unanswered_at), else_=None),
        decision=case(
            (
                and_(bindparam("uses_up_retry", type_=Boolean()), ENTRY.c.decision == Decision.RETRY.value),
                Decision.RETRIED.value,
            ),
            else_=ENTRY.c.decision,
        ),
    )
)


@dataclass(frozen=True, slots=True)
class Settlement:
    """One verdict as it is to be written. `key` is the one under which the entry goes on; `copies` may exist by now."""

    entry_id: int
    claim: Claim
    effect: Effect
    key: IdempotencyKey
    answer: Answer
    attempts: int
    copies: int


def unwritten(connection: Connection, settlements: Sequence[Settlement]) -> list[Settlement]:
    """Return those that are not in the table already, word by word."""
    ids = [settlement.entry_id for settlement in settlements]
    found = connection.execute(_AS_WRITTEN, {"entries": ids}).all() if ids else ()
    written = {entry_id: tuple(said) for entry_id, *said in found}
    return [
        each
        for each in settlements
        if written.get(each.entry_id) != (each.effect.state.value, each.key, dump_answer(each.answer))
    ]


def settle(connection: Connection, settlements: Sequence[Settlement], now: datetime) -> int:
    """Write verdicts, and return how many found their entry pending: all, unless another process wrote to it."""
    return connection.execute(_SETTLE, [_as_row(each, now) for each in settlements]).rowcount if settlements else 0


def _as_row(settlement: Settlement, now: datetime) -> dict[str, object]:
    effect, claim = settlement.effect, settlement.claim
    return {
        "entry": settlement.entry_id,
        "new_state": effect.state.value,
        "new_event_id": effect.event_id,
        "new_answer": dump_answer(settlement.answer),
        "new_refused_request_id": effect.refused_request_id,
        "new_denied_request_id": effect.denied_request_id,
        "new_revision": claim.revision + effect.is_next_revision,
        "new_idempotency_key": settlement.key,
        "new_copies": settlement.copies,
        "new_is_limited": effect.is_limited,
        "new_updated_at": now,
        "restarts": effect.is_next_revision,
        "uses_up_retry": effect.is_next_revision or effect.state in _TURNED_AWAY,
        # A row that met a limit may have been carried out: its body stays pinned.
        "more": max(settlement.attempts, effect.is_limited and not claim.was_limited) - claim.is_begun,
        "keeps_unanswered": effect.keeps_unanswered,
    }


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
            return None if self.keys is None else find_ids(connection, scope_id, self.keys)
        return find_events(connection, scope_id, self.keys, self.row_parts)


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
                retried = read_these(connection, self._run.scope_id, self._since(now), again[: max(want, 0)])
                most = max(want - len(retried), 0)
                most = most if self._left is None else min(most, self._left)
                first = self._read_first(connection, most, now)
                rows = [*retried, *first]
                begin(connection, [row.id for row in rows if row.cover_url is None], self._run.run_id, now)
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
        self._held.update((row.id, as_claim(row)) for row in rows)
        return [as_intent(row, now) for row in rows]

    def begin_again(self, intent: Intent) -> None:
        """Record, before it is sent, that one more attempt of an intent in hand begins."""
        self._held_claim(intent)
        with self._run.transaction() as connection:
            begin_again(connection, intent.entry_id)

    def note_stop(self, why: str) -> None:
        """Remember for the next run why this drain was stopped; "" once a row has passed."""
        if why != self._stopped_by:
            with self._run.transaction() as connection:
                note_stop(connection, self._run.scope_id, why)
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
            if pin(connection, intent.entry_id, body, self._run.run_id, now) != 1:
                raise _not_claimed(intent)
            if missing is not None:
                warn_of_image(connection, self._run.scope_id, self._run.run_id, intent.entry_id, missing, now)
            if refused is not None:
                note_refusal(connection, intent.entry_id, refused_as(refused.answer))
        told = claim.refused_request_id if refused is None else refused_as(refused.answer)
        copies = claim.copies + (0 if refused is None else refused.copies)
        self._held[intent.entry_id] = replace(claim, is_begun=True, refused_request_id=told, copies=copies)
        return replace(intent, body=body, cover=None, refused_request_id=told)

    def unpin(self, intent: Intent, *, refused: Refusal | Blocked) -> None:
        """Let the intent ask for its cover image again, in a later run: the body with the one that was pinned is `refused`."""
        claim, told = self._held_claim(intent), refused_as(refused.answer)
        copies = claim.copies + refused.copies
        with self._run.transaction() as connection:
            if unpin(connection, intent, told, copies) != 1:
                raise _not_claimed(intent)
        self._held[intent.entry_id] = replace(claim, is_begun=False, refused_request_id=told, copies=copies)

    def account(self) -> PublishAccount:
        """Count what this drain has done so far against what the table says is still owed.

        Raises `ImbalanceError` if the two disagree.
        """
        with reading(self._run.engine) as connection:
            pending = sum(count_pending(connection, self._run.scope_id, self._run.run_id))
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

    def _read_first(self, connection: Connection, most: int, now: datetime) -> list[OwedEntry]:
        """Read by age, or among the entries that this drain was given."""
        if most <= 0:
            return []
        scope_id, since = self._run.scope_id, self._since(now)
        if self._ids is None:
            return read_oldest(connection, scope_id, since, self._last_id, most)
        rows = {row.id: row for row in read_these(connection, scope_id, since, self._ids[:most])}
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
        given_up = reopen(connection, scope_id, run.now(), bounds.key_memory_s)
        new, others = count_pending(connection, scope_id, run.run_id)
        ids = bounds.find_ids(connection, scope_id)
        stopped_by = read_stop(connection, scope_id)
        if stopped_by:
            ids = least_sent_first(connection, scope_id, ids)
    return Outbox(run, bounds, ids, PublishAccount(new=new, carried_over=others + given_up, uncertain=given_up), stopped_by)


def _not_claimed(intent: Intent) -> NotClaimedError:
    return NotClaimedError(
        f"an answer came for {intent.row_key}, which this drain does not hold",
        hint="hand each intent's verdict in once; please report this as a fault of eventsync",
    )
