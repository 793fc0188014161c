"""The outbox: hands out owed entries, oldest first, and records each answer durably before its slot takes the next row.

What an answer leads to is a rule of `state.facts`. A request is counted under its key before it leaves; the answer replaces that
count by what it shows.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from itertools import islice
from math import inf
from typing import Any, NamedTuple

import sqlalchemy as sa

from mappings.delivery import Blocked, Cover, Denial, Intent, Receipt, Refusal, Superseded, Uncertain, Verdict
from mappings.errors import SyncError
from mappings.reasons import Reason
from mappings.row_key import RowKey, names_of
from state.database import put_all, reading, rounded, run_prepared
from state.enums import EntryState, Grant, Outcome, Phase
from state.facts import NO_ATTEMPTS, Attempts, Effect, Tried, effect_of, state_of, stored_as, those
from state.ledger.accounts import PublishAccount, dump_answer, load_answer
from state.ledger.entries import FACTS, IS_GONE, IS_IGNORED, IS_OPEN, SOME, attempts_of, in_facts, is_forgotten
from state.ledger.gate import closed, read_gate
from state.ledger.lease import FencedTransaction
from state.ledger.problems import warn_of_image
from state.ledger.standing import COPIES, KEY_MEMORY_S, Standing, read_standing
from state.tables import ATTEMPT, BODY, ENTRY, SCOPE, storable

_ENDS = frozenset(EntryState) - {EntryState.PENDING, EntryState.HELD, EntryState.SUPERSEDED}
"""The states in which a drain may leave an entry."""
_IS_OWED = sa.and_(ENTRY.c.outcome == Outcome.OWED.value, IS_OPEN)


class Claim(NamedTuple):
    """An entry as of its claim by this drain, with the attempts before it.

    `copies`: the requests under all keys that may have created an event; `begun`: how many of this claim are on record.
    """

    id: int
    row_key: RowKey
    revision: int
    channel_id: int
    answer: str | None
    body: bytes
    cover: Cover | None
    attempts: Attempts
    since: datetime | None
    last_at: datetime | None
    copies: int
    begun: int

    @property
    def on_record(self) -> Attempts:
        """The attempts with the requests of this claim. What a person allowed is used up by the first."""
        requests, granted = self.attempts.requests + self.begun, None if self.begun else self.attempts.granted
        return self.attempts._replace(requests=requests, granted=granted)

    def begin(self, now: datetime) -> Claim:
        """Return the claim with one request more on record. A person's `resend` takes the risk of those before: the service's
        memory of the key counts from this one.
        """
        is_counted_anew = self.since is None or self.attempts.granted is Grant.RESEND
        return self._replace(begun=self.begun + 1, since=now if is_counted_anew and not self.begun else self.since)

    def refuse(self, verdict: Refusal | Blocked | Superseded | None) -> Claim:
        """Return the claim after a verdict on an earlier body in this call, with none of its requests open."""
        if verdict is None:
            return self
        requests, answered_as = self.attempts.requests + verdict.copies, stored_as(verdict.answer)
        attempts = self.attempts._replace(requests=requests, refused_id=answered_as)
        return self._replace(attempts=attempts, copies=self.copies + verdict.copies, begun=0)

    def is_failed_again(self, verdict: Verdict) -> bool:
        """Return whether this is the same failure after which a person resent the row: no attempt had another result."""
        if not isinstance(verdict, Uncertain) or self.answer is None or self.attempts.granted is not Grant.RESEND:
            return False
        last, request_id = load_answer(self.answer), verdict.answer.request_id
        return last.status >= HTTPStatus.INTERNAL_SERVER_ERROR and bool(request_id) and last.request_id == request_id


_CLAIM = (
    sa.select(
        *(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.revision, ENTRY.c.channel_id, ENTRY.c.answer, BODY.c.body),
        *(BODY.c.cover_url, BODY.c.cover_on_error, ATTEMPT.c.since, ATTEMPT.c.last_at, COPIES.label("copies")),
        *(ATTEMPT.c.requests, ATTEMPT.c.is_limited, ATTEMPT.c.refused_id, ATTEMPT.c.denied_id, ATTEMPT.c.granted),
    )
    .select_from(ENTRY)
    .join(BODY, BODY.c.entry_id == ENTRY.c.id)
    .outerjoin(ATTEMPT, sa.and_(ATTEMPT.c.entry_id == ENTRY.c.id, ATTEMPT.c.revision == ENTRY.c.revision))
    .where(ENTRY.c.scope_id == sa.bindparam("scope"), _IS_OWED)
    # A request that was made before `since` may have been forgotten by the service.
    .where(
        sa.or_(
            ATTEMPT.c.since.is_(None),
            ATTEMPT.c.since > sa.bindparam("since", type_=ATTEMPT.c.since.type),
            ATTEMPT.c.granted == Grant.RESEND.value,
        )
    )
    .order_by(ENTRY.c.id)
)
_OLDEST = _CLAIM.where(ENTRY.c.id > sa.bindparam("after")).limit(sa.bindparam("want"))
_OTHER = ENTRY.alias()
_IS_TAKEN = sa.exists().where(
    *(_OTHER.c.scope_id == sa.bindparam("scope"), _OTHER.c.event_id == sa.bindparam("new_event_id")),
    _OTHER.c.id != sa.bindparam("entry"),
)
_NEW: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in ("outcome", "revision", "answer", "event_id", "changed_at")}
# A connection that broke while it committed leaves open whether it did: what is written already is found as well.
_IS_WRITTEN = sa.and_(ENTRY.c.outcome == sa.bindparam("new_outcome"), ENTRY.c.answer == sa.bindparam("new_answer"))
_SETTLE = (
    sa.update(ENTRY)
    .where(ENTRY.c.id == sa.bindparam("entry"), sa.or_(ENTRY.c.outcome == Outcome.OWED.value, _IS_WRITTEN), ~_IS_TAKEN)
    .values(**_NEW, sent_run=sa.func.coalesce(sa.bindparam("new_sent_run", type_=ENTRY.c.sent_run.type), ENTRY.c.sent_run))
)
_FORGET = sa.delete(ATTEMPT).where(ATTEMPT.c.entry_id == sa.bindparam("entry"), ATTEMPT.c.revision >= sa.bindparam("of_revision"))
_PIN = sa.update(BODY).where(
    BODY.c.entry_id == sa.bindparam("entry"), sa.exists().where(ENTRY.c.id == BODY.c.entry_id, _IS_OWED).correlate(BODY)
)
_PIN = _PIN.values({name: sa.bindparam(f"new_{name}") for name in ("body", "cover_url", "cover_on_error")})


_End = tuple[Claim, Verdict, Effect]
"""A claim, its verdict and what that leads to."""


class NotClaimedError(SyncError):
    """A verdict was given for an entry that this drain has not claimed, or no longer has."""


@dataclass(frozen=True, slots=True)
class Settled:
    """An intent with its verdict."""

    intent: Intent
    verdict: Verdict


class Outbox:
    """One drain of the rows that a feed owes. Not thread-safe; after an error other than `StateBusyError` it is over, and
    another must be opened.

    An entry is handed out once in a drain, and again only under a next key. `queue`: entries to hand out first; `left`: how many
    others may follow; `key_memory`: how long the service remembers the key of an unanswered attempt; `begun`: the account at the
    start, with the rows that became uncertain at once.
    """

    def __init__(
        self, run: FencedTransaction, queue: list[int], left: float, key_memory: timedelta, begun: PublishAccount, stopped_by: str
    ) -> None:
        self._run = run
        self._queue = deque(queue)
        self._left = left
        self._key_memory = key_memory
        self._begun = begun
        self.stopped_by = stopped_by
        """Why an earlier drain of this feed was stopped, if no row has been delivered since; "" otherwise."""
        self._ended: Counter[str] = Counter({EntryState.UNCERTAIN.value: begun.uncertain})
        self._last_id = 0
        self._claims: dict[int, Claim] = {}
        self._resent: set[int] = set()
        self._own_denials: frozenset[str] | None = None

    @property
    def owed(self) -> int:
        """How many rows this drain would deliver without a limit."""
        return self._begun.new + self._begun.carried_over - self._begun.uncertain

    def settle_and_claim(self, settled: Sequence[Settled], want: int) -> list[Intent]:
        """Record verdicts and hand out up to `want` more intents, in one transaction.

        On return the verdicts are durable, and so is the start of the intents' attempts, except for those that still need their
        cover image, which start with `pin`. Fewer than `want` means that no more is owed within this drain's limits. Raises
        `LeaseLostError` if another run has taken over (nothing is written), `NotClaimedError` for a verdict on an intent that
        is not claimed. After a `StateBusyError` the same verdicts, and more, may be passed again: nothing is counted before it
        is durable.
        """
        now, want = self._run.now(), max(want, 0)
        with self._run.transaction() as connection:
            ends = self._settle(connection, settled, now) if settled else []
            again = [claim.id for claim, _, effect in ends if effect.is_next_key and effect.outcome is Outcome.OWED]
            named = [*again, *islice(self._queue, want)][:want]
            page = {"scope": self._run.scope_id, "since": now - self._key_memory}
            claims = _claim_these(connection, named, page)
            most = min(want - len(claims), self._left)
            first = connection.execute(_OLDEST, {**page, "after": self._last_id, "want": most}).all() if most > 0 else []
            claims += map(_as_claim, first)
            claims = [claim if claim.cover else claim.begin(now) for claim in claims]
            self._put(connection, [(claim, claim.on_record) for claim in claims if claim.begun], now)
        for claim, verdict, effect in ends:
            if claim.copies + verdict.copies > max(self._claims.pop(claim.id).copies, 1):
                self._resent.add(claim.id)
            self._ended[effect.state.value] += 1
        self._queue.extendleft(reversed(again))
        for _ in named:
            self._queue.popleft()
        self._left -= len(first)
        if first:
            self._last_id = first[-1].id
        self._claims.update((claim.id, claim) for claim in claims)
        return [self._as_intent(claim, now) for claim in claims]

    def begin_again(self, intent: Intent) -> None:
        """Record, before it is sent, that another attempt of a claimed intent begins."""
        self._rewrite(self._claim_of(intent).begin(self._run.now()))

    def note_stop(self, why: str) -> None:
        """Record for the next run why this drain was stopped; "" once a row has been delivered."""
        if why != self.stopped_by:
            with self._run.transaction() as connection:
                connection.execute(sa.update(SCOPE).where(SCOPE.c.id == self._run.scope_id).values(stopped_by=why))
            self.stopped_by = why

    def pin(
        self, intent: Intent, body: bytes, *, missing: Reason | None = None, refused: Refusal | Blocked | Superseded | None = None
    ) -> Intent:
        """Pin `body` (with the cover's id, or without a cover) to the intent, and record that its attempt begins.

        `missing`: why the image is not in it; listed for people in the same transaction. `refused`: the verdict on the body
        before this one, in this call; the corrected body is sent under the same key first.
        """
        claim = self._claim_of(intent).refuse(refused).begin(self._run.now())
        pinned = replace(intent, body=body, cover=None, refused_request_id=claim.attempts.refused_id or "")
        self._rewrite(claim, pinned, missing)
        return pinned

    def unpin(self, intent: Intent, *, refused: Refusal | Blocked | Superseded) -> None:
        """Let the intent request its cover image again in a later run: the body with the pinned image is `refused`."""
        self._rewrite(self._claim_of(intent).refuse(refused), intent)

    def account(self) -> PublishAccount:
        """Return the account of this drain, compared with what the table says is still owed.

        Raises `ImbalanceError` if the two disagree.
        """
        with reading(self._run.engine) as connection:
            pending = sum(_count_owed(connection, self._run))
        ended = {state.value: self._ended[state.value] for state in _ENDS}
        account = replace(self._begun, pending=pending, resent=len(self._resent), **ended)
        account.check()
        return account

    def standing(self) -> Standing:
        """Return what waits for a person from run to run, and which rows of this run may exist more than once."""
        key_memory_s, run = self._key_memory.total_seconds(), self._run
        with reading(run.engine) as connection:
            return read_standing(connection, run.scope_id, run.now(), key_memory_s, run.number)

    def _settle(self, connection: sa.Connection, settled: Sequence[Settled], now: datetime) -> list[_End]:
        """Write what these verdicts lead to. An event that another row has already makes a receipt an unreadable answer."""
        given = [(self._claim_of(each.intent), each.verdict) for each in settled]
        ends = [self._end_of(connection, *each) for each in given]
        if self._write(connection, ends, now) != len(ends):
            ends = [self._end_of(connection, *each) for each in self._readable(connection, given)]
            found = self._write(connection, ends, now)
            if found != len(ends):
                raise NotClaimedError(
                    f"{len(ends) - found} of {len(ends)} answers found their entry changed by another process",
                    hint="only one run may publish a feed at a time; `eventsync status` shows who holds it",
                )
        forgotten, kept = [], []
        for claim, verdict, effect in ends:
            if effect.outcome is Outcome.CREATED and claim.copies + verdict.copies < 2:  # the only event, and it is known
                forgotten.append({"entry": claim.id, "of_revision": 0})
            elif effect.attempts == NO_ATTEMPTS:
                forgotten.append({"entry": claim.id, "of_revision": claim.revision})
            else:
                kept.append((claim, effect.attempts))
        if forgotten:
            run_prepared(connection, _FORGET, forgotten)
        self._put(connection, kept, now)
        return ends

    def _end_of(self, connection: sa.Connection, claim: Claim, verdict: Verdict) -> _End:
        if isinstance(verdict, Superseded) and self._own_denials is None:
            self._own_denials = _find_own_denials(connection, self._run.scope_id)
        is_own, is_again = claim.attempts.denied_id in (self._own_denials or ()), claim.is_failed_again(verdict)
        return claim, verdict, effect_of(verdict, claim.attempts, are_denials_own=is_own, is_failed_again=is_again)

    def _write(self, connection: sa.Connection, ends: Sequence[_End], now: datetime) -> int:
        """Write the answers; return how many found their entry as it was claimed."""
        rows = [
            {
                "scope": self._run.scope_id,
                "entry": claim.id,
                "new_outcome": effect.outcome.value,
                "new_revision": claim.revision + effect.is_next_key,
                "new_answer": dump_answer(verdict.answer),
                "new_event_id": effect.event_id,
                "new_changed_at": now,
                "new_sent_run": self._run.number if verdict.attempts else None,
            }
            for claim, verdict, effect in ends
        ]
        return run_prepared(connection, _SETTLE, rows)

    def _readable(self, connection: sa.Connection, given: Sequence[tuple[Claim, Verdict]]) -> Iterator[tuple[Claim, Verdict]]:
        """Yield the verdicts with their claims, without receipts for an event that another row has."""
        events = [verdict.event_id for _, verdict in given if isinstance(verdict, Receipt)]
        owned = sa.select(ENTRY).where(ENTRY.c.scope_id == self._run.scope_id, ENTRY.c.event_id.in_(events))
        owners = {row.event_id: row for row in connection.execute(owned)}
        for claim, verdict in given:
            owner = owners.get(verdict.event_id) if isinstance(verdict, Receipt) else None
            if owner is None or owner.id == claim.id:
                yield claim, verdict
            else:
                why = f"the service answered with event {owner.event_id}, which is that of row {owner.row_key}"
                yield claim, Uncertain(replace(verdict.answer, message=why), verdict.attempts, verdict.copies)

    def _rewrite(self, claim: Claim, pinned: Intent | None = None, missing: Reason | None = None) -> None:
        """Record a claim that has changed, with the body and the cover of an intent."""
        with self._run.transaction() as connection:
            if pinned is not None:
                cover = pinned.cover
                new = {
                    "new_body": pinned.body,
                    "new_cover_url": cover and cover.url,
                    "new_cover_on_error": cover and cover.on_error,
                }
                if run_prepared(connection, _PIN, [{"entry": claim.id, **new}]) != 1:
                    raise _not_claimed(claim.row_key)
            self._put(connection, [(claim, claim.on_record)], self._run.now())
            if missing is not None:
                warn_of_image(connection, self._run, claim.id, missing)
        self._claims[claim.id] = claim

    def _put(self, connection: sa.Connection, attempts: Sequence[tuple[Claim, Attempts]], now: datetime) -> None:
        """Write the attempts under the present keys."""
        rows = [
            {
                **each._asdict(),
                "entry_id": claim.id,
                "revision": claim.revision,
                "since": (claim.since or now) if each.requests else None,
                "last_at": now,
                "run": self._run.number,
            }
            for claim, each in attempts
        ]
        if rows:
            put_all(connection, ATTEMPT, rows)

    def _claim_of(self, intent: Intent) -> Claim:
        claim = self._claims.get(intent.entry_id)
        if claim is None:
            raise _not_claimed(intent.row_key)
        return claim

    def _as_intent(self, claim: Claim, now: datetime) -> Intent:
        """Return the intent for the client of an entry that was claimed at `now`."""
        before, denial = claim.attempts, None
        if before.denied_id is not None:
            is_retry = before.granted is Grant.RETRY and before.tried is Tried.NO
            denial = Denial(before.denied_id, is_resent=is_retry or before.granted is Grant.RESEND)
        return Intent(
            entry_id=claim.id,
            row_key=claim.row_key,
            key=self._run.key(claim.row_key, claim.revision),
            body=claim.body,
            channel_id=claim.channel_id,
            is_unanswered=before.tried is not Tried.NO,
            is_limited=before.tried is Tried.LIMITED,
            refused_request_id=before.refused_id or "",
            cover=claim.cover,
            denial=denial,
            unanswered_s=max((now - (claim.since or now)).total_seconds(), 0.0),
            quiet_s=max((now - (claim.last_at or now)).total_seconds(), 0.0),
        )


def open_outbox(
    run: FencedTransaction,
    *,
    limit: int | None = None,
    keys: Collection[RowKey] | None = None,
    key_memory_s: float = KEY_MEMORY_S,
    row_parts: int | None = None,
) -> Outbox:
    """Start a drain of a feed: reopen what may be sent again automatically, and hand out what is owed, at most `limit` rows, only
    of `keys`.

    Oldest first; after a drain that was stopped, those sent least first, so that a row that the service never accepts does not
    begin every run. `row_parts`: a key of so many parts is a row's own, and covers all of its events; None: every key is one
    event's. Blocked and uncertain entries are owed again, but an entry with an attempt unanswered for more than `key_memory_s`
    seconds becomes or stays uncertain, and waits for a person. Raises `GateClosedError` if staged rows must not be published,
    `LeaseLostError` if another run has the feed.
    """
    with run.transaction() as connection:
        gate = read_gate(connection, run.scope_id)
        if not gate.is_open:
            raise closed(gate)
        run.take_over(connection)
        run.note(connection, phase=Phase.PUBLISHING.value)
        given_up = _reopen(connection, run, key_memory_s)
        new, others = _count_owed(connection, run)
        stopped_by = connection.execute(sa.select(SCOPE.c.stopped_by).where(SCOPE.c.id == run.scope_id)).scalar_one()
        is_picked = bool(stopped_by) or keys is not None
        queue = _pick(connection, run.scope_id, keys, row_parts, [COPIES] if stopped_by else [])[:limit] if is_picked else []
    account = PublishAccount(new=new, carried_over=others + given_up, uncertain=given_up)
    left = 0 if is_picked else inf if limit is None else limit
    return Outbox(run, queue, left, timedelta(seconds=key_memory_s), account, str(stopped_by))


def _reopen(connection: sa.Connection, run: FencedTransaction, key_memory_s: float) -> int:
    """Owe blocked and uncertain entries again, if that is safe without a person.

    An entry whose first unanswered attempt is older than `key_memory_s` seconds is or becomes uncertain, unless a person resent
    it: the service may have forgotten its key, and would create it twice. Blocked rows that are gone from their source, and
    ignored ones, stay as they are. Returns how many owed entries became uncertain.
    """
    now, of_feed = run.now(), (ENTRY.c.scope_id == run.scope_id, IS_OPEN)
    forgotten = is_forgotten(now, key_memory_s)
    is_uncertain = in_facts(those(lambda outcome, tried, _: state_of(outcome, tried) is EntryState.UNCERTAIN))
    is_blocked = sa.and_(ENTRY.c.outcome == Outcome.DENIED.value, ~IS_GONE)
    outcomes = ENTRY.c.outcome.in_([Outcome.DENIED.value, Outcome.UNCLEAR.value, Outcome.REFUSED.value])
    waiting = sa.or_(is_blocked, sa.and_(is_uncertain, ~forgotten))
    opened = sa.select(ENTRY.c.id).select_from(FACTS).where(*of_feed, outcomes, waiting, ~IS_IGNORED)
    connection.execute(sa.update(ENTRY).where(ENTRY.c.id.in_(opened)).values(outcome=Outcome.OWED.value))
    is_resent = sa.func.coalesce(ATTEMPT.c.granted == Grant.RESEND.value, sa.false())
    stale = sa.select(ENTRY.c.id).select_from(FACTS).where(*of_feed, _IS_OWED, forgotten, ~is_resent)
    given_up = sa.update(ENTRY).where(ENTRY.c.id.in_(stale)).values(outcome=Outcome.UNCLEAR.value, changed_at=now)
    return connection.execute(given_up).rowcount


def _pick(
    connection: sa.Connection,
    scope_id: int,
    keys: Collection[RowKey] | None,
    row_parts: int | None,
    order: Sequence[sa.ColumnElement[Any]],
) -> list[int]:
    """Return the ids of the owed entries with these keys, and of all events of these rows. A row's own key has `row_parts`
    parts.
    """
    wanted = None if keys is None else frozenset(map(storable, keys))
    owed = sa.select(ENTRY.c.id, ENTRY.c.row_key).where(ENTRY.c.scope_id == scope_id, _IS_OWED).order_by(*order, ENTRY.c.id)

    def is_wanted(row_key: RowKey) -> bool:
        if wanted is None or row_parts is None:
            return wanted is None or row_key in wanted
        return not wanted.isdisjoint(names_of(row_key, row_parts))

    rows = connection.execute(owed.execution_options(yield_per=2_000))
    return [row.id for row in rows if is_wanted(row.row_key)]


def _count_owed(connection: sa.Connection, run: FencedTransaction) -> tuple[int, int]:
    """Return how many entries are owed: those staged by this run, and the others."""
    own = sa.func.coalesce(sa.func.sum(sa.case((ENTRY.c.staged_run == run.number, 1), else_=0)), 0)
    owed = sa.select(own, sa.func.count()).where(ENTRY.c.scope_id == run.scope_id, _IS_OWED)
    new, every = connection.execute(owed).one()
    return int(new), int(every) - int(new)


def _find_own_denials(connection: sa.Connection, scope_id: int) -> frozenset[str]:
    """Return the request ids of denials that each belong to one owed row, none unless they are seen to differ.

    A gateway may give all its answers one request id, which then shows nothing about a row.
    """
    denied = ATTEMPT.c.denied_id
    rows = (
        sa.select(denied, sa.func.count()).select_from(FACTS).where(ENTRY.c.scope_id == scope_id, _IS_OWED, denied.is_not(None))
    )
    found = {row[0]: row[1] for row in connection.execute(rows.group_by(denied))}
    return frozenset(request_id for request_id, count in found.items() if count == 1 and len(found) > 1)


def _claim_these(connection: sa.Connection, entries: Sequence[int], page: Mapping[str, Any]) -> list[Claim]:
    """Return those of these entries that may be claimed, in this order."""
    rows = connection.execute(_CLAIM.where(SOME), {**page, "entries": rounded(entries)}) if entries else ()
    claims = {row.id: _as_claim(row) for row in rows}
    return [claims[entry] for entry in entries if entry in claims]


def _as_claim(row: Any) -> Claim:
    cover = None if row.cover_url is None else Cover(row.cover_url, row.cover_on_error)
    return Claim._make((*row[:6], cover, attempts_of(row), row.since, row.last_at, row.copies, 0))


def _not_claimed(row_key: RowKey) -> NotClaimedError:
    return NotClaimedError(
        f"an answer came for {row_key}, which this drain does not hold",
        hint="settle each intent once; please report this as a fault of eventsync",
    )
