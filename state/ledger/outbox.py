"""The outbox: hands out owed entries, oldest first, and records each answer durably before its slot takes the next row.

The effect of a verdict on its entry, a pure function over a closed union. An answer is certain about one attempt, not about the
key: while an attempt under the key **may have created** the event (in this call or an earlier one; a 429 does not count), the
mark of an unanswered attempt stays, and the key changes only by a person's `resend`.

| verdict     | nothing was created                       | an attempt may have created the event             |
|-------------|-------------------------------------------|---------------------------------------------------|
| Receipt     | delivered                                 | delivered                                         |
| Unconfirmed | delivered_unconfirmed                     | delivered_unconfirmed                             |
| Refusal     | refused; after a `retry`, the next key    | uncertain; after a `resend`, refused              |
| Superseded  | pending, next key; conflict without record | blocked or uncertain: the same request again     |
| Blocked     | blocked                                   | blocked                                           |
| Uncertain   | uncertain                                 | uncertain                                         |
| Conflict    | conflict                                  | conflict                                          |
| Postponed   | pending                                   | pending                                           |

A person's `retry` uses the same key first. If it is definitively refused again, that may be the stored answer with another
request id: the next key is due, once for each retry.

An answer 429 does not show that nothing was created: an entry whose unanswered attempts were all answered 429 keeps the mark,
with `is_limited`. It keeps its key too; its body may change after a definitive refusal.

Denied access (401, 403, 404) is no refusal: the service may check access before the key, so it does not show what was created
under the key before this ledger began. The same answer with the same request id is the stored one, where request ids differ
from row to row: access may long be back, and the old key would never show it. Without that proof, using the next key is a
person's risk, by `resend`. A failure (5xx) repeated with its request id after a `resend` shows that the key is used up: the next
one is due, once for each resend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

from sqlalchemy import Boolean, Connection, and_, bindparam, case, false, func, or_, select, update

from mappings.delivery import (
    DENYING,
    Answer,
    Blocked,
    Denial,
    Intent,
    Postponed,
    Receipt,
    Refusal,
    Superseded,
    Uncertain,
    Unconfirmed,
    Verdict,
)
from mappings.errors import SyncError
from mappings.outcome import Cover
from mappings.reasons import Reason
from mappings.row_key import IdempotencyKey, RowKey, names_of
from state.database import reading
from state.enums import Decision, EntryState, Phase
from state.errors import StateBusyError
from state.ledger.accounts import PublishAccount, dump_answer, load_answer
from state.ledger.entries import IS_IN_SOURCE, IS_SET_ASIDE, find_ids, is_forgotten
from state.ledger.gate import closed, read_gate
from state.ledger.lease import FencedTransaction
from state.ledger.problems import warn_of_image
from state.ledger.standing import KEY_MEMORY_S, Standing, read_standing
from state.tables import ENTRY, SCOPE, storable


class Claim(NamedTuple):
    """An entry as of its claim by this drain, column by column, so that it is made directly from the row.

    `copies`: how many earlier attempts may have created an event; `is_limited`: those without another answer were all answered
    429.
    """

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

    @property
    def was_unanswered(self) -> bool:
        """Whether an earlier attempt stayed unanswered."""
        return self.unanswered_at is not None

    @property
    def denial(self) -> Denial | None:
        """The last denial of access under this key."""
        if not self.denied_request_id:
            return None
        is_retry = self.decision == Decision.RETRY and self.unanswered_at is None
        return Denial(self.denied_request_id, is_resent=is_retry or self.decision == Decision.RESEND)

    def is_failed_again(self, answer: Answer) -> bool:
        """Return whether this is the same failure after which a person resent the row: no attempt had another result."""
        if self.answer is None or self.decision != Decision.RESEND or not answer.request_id:
            return False
        last = load_answer(self.answer)
        return last.status >= HTTPStatus.INTERNAL_SERVER_ERROR and last.request_id == answer.request_id


@dataclass(frozen=True, slots=True)
class Effect:
    """The new state of the entry. `keeps_unanswered`: an existing mark of an unanswered attempt stays.

    `is_limited`: such attempts were all answered 429.
    """

    state: EntryState
    refused_request_id: str
    denied_request_id: str
    event_id: int | None = None
    keeps_unanswered: bool = False
    is_limited: bool = False
    is_next_revision: bool = False


_NEXT_KEY = Effect(EntryState.PENDING, "", "", is_next_revision=True)


def effect_of(verdict: Verdict, claim: Claim, *, are_denials_own: bool = True) -> Effect:  # noqa: PLR0911 # one arm for each member
    """Return the effect of a verdict on the claimed entry. `are_denials_own`: request ids of denials differ from row to row."""
    become = partial(Effect, refused_request_id=claim.refused_request_id, denied_request_id=claim.denied_request_id)
    if isinstance(verdict, Receipt):
        return become(EntryState.DELIVERED, event_id=verdict.event_id)
    if isinstance(verdict, Unconfirmed):
        return become(EntryState.DELIVERED_UNCONFIRMED)
    # After a person's `resend` earlier attempts are at that person's risk, once the answer is a definitive refusal.
    is_risked = claim.decision == Decision.RESEND and isinstance(verdict, Refusal | Superseded)
    is_open = claim.was_unanswered and not is_risked
    may_exist = verdict.copies > 0 or (is_open and not claim.is_limited)
    is_limited = not may_exist and (verdict.is_limited or (is_open and claim.is_limited))
    become = partial(become, keeps_unanswered=may_exist or is_limited, is_limited=is_limited)
    is_refused, is_clear = bool(claim.refused_request_id), not (may_exist or is_limited)
    is_denied, answered_as = verdict.attempts > 0 and verdict.answer.status in DENYING, refused_as(verdict.answer)
    refused = become(EntryState.UNCERTAIN if may_exist else EntryState.REFUSED)
    match verdict:
        case Refusal() if not verdict.attempts:  # refused without a request, it leaves no trace at the service
            return refused
        case Refusal():
            is_retried = claim.decision == Decision.RETRY and is_refused and is_clear
            return _NEXT_KEY if is_retried else replace(refused, refused_request_id=answered_as)
        case Blocked() | Postponed():
            effect = become(EntryState.BLOCKED if isinstance(verdict, Blocked) else EntryState.PENDING)
            return replace(effect, denied_request_id=answered_as) if is_denied else effect
        case Uncertain():
            is_stored = verdict.attempts and claim.is_failed_again(verdict.answer)
            return _NEXT_KEY if is_stored else replace(become(EntryState.UNCERTAIN), keeps_unanswered=True, is_limited=False)
        case Superseded() if is_denied and claim.denial is not None:
            is_stored = are_denials_own and claim.denial.is_repeated_by(verdict.answer)
            is_proven = claim.denial.is_resent or (is_clear and is_stored)
            return _NEXT_KEY if is_proven else replace(become(EntryState.BLOCKED), denied_request_id=answered_as)
        case Superseded() if is_refused and is_clear:  # only the refusal can hold the key
            return _NEXT_KEY
        case Superseded() if is_refused and answered_as == claim.refused_request_id:
            return refused
    return become(EntryState.CONFLICT)


def refused_as(answer: Answer) -> str:
    """Return the id by which a stored refusal or denial is recognised, "unnamed" without a request id."""
    return answer.request_id or "unnamed"


_ENDS = frozenset(EntryState) - {EntryState.PENDING, EntryState.HELD, EntryState.SUPERSEDED}
"""The states in which a drain may leave an entry."""
_IS_TO_RESEND = ENTRY.c.decision == Decision.RESEND.value
_IS_PENDING = ENTRY.c.state == EntryState.PENDING.value
_THIS = ENTRY.c.id == bindparam("entry")


# An attempt that went unanswered before `since` may have been forgotten by the service: it is not claimed.
_IS_FRESH = ENTRY.c.unanswered_at > bindparam("since", type_=ENTRY.c.unanswered_at.type)
_MAY_BE_SENT = or_(ENTRY.c.unanswered_at.is_(None), _IS_FRESH, ENTRY.c.is_limited, _IS_TO_RESEND)
_CLAIM = select(*(ENTRY.c[name] for name in Claim._fields)).order_by(ENTRY.c.id)
_CLAIM = _CLAIM.where(ENTRY.c.scope_id == bindparam("scope"), _IS_PENDING, _MAY_BE_SENT)
_OLDEST = _CLAIM.where(ENTRY.c.id > bindparam("after")).limit(bindparam("want"))
_THESE = _CLAIM.where(ENTRY.c.id.in_(bindparam("entries", expanding=True)))
_NOW = bindparam("now", type_=ENTRY.c.unanswered_at.type)
_BEGUN = {
    "attempts": ENTRY.c.attempts + 1,
    "copies": ENTRY.c.copies + 1,
    # After `--resend` earlier attempts are the person's risk: `key_memory` starts with this attempt. Answers 429 do not
    # start its clock.
    "unanswered_at": case((or_(_IS_TO_RESEND, ENTRY.c.is_limited), _NOW), else_=func.coalesce(ENTRY.c.unanswered_at, _NOW)),
    "is_limited": false(),
    "decision": case((_IS_TO_RESEND, Decision.RESENT.value), else_=ENTRY.c.decision),
    "sent_run": bindparam("run"),
    "updated_at": bindparam("now", type_=ENTRY.c.updated_at.type),
}
_BEGIN = update(ENTRY).where(_THIS).values(**_BEGUN)
_WRITTEN = (
    *("state", "event_id", "answer", "refused_request_id", "denied_request_id", "revision", "idempotency_key"),
    *("copies", "is_limited", "updated_at"),
)
_USES_UP_RETRY = and_(bindparam("uses_up_retry", type_=Boolean()), ENTRY.c.decision == Decision.RETRY.value)
_SETTLE = (
    update(ENTRY)
    .where(_THIS, _IS_PENDING)
    .values({name: bindparam(f"new_{name}") for name in _WRITTEN})
    .values(
        attempts=case((bindparam("restarts", type_=Boolean()), 0), else_=ENTRY.c.attempts + bindparam("more")),
        unanswered_at=case((bindparam("keeps_unanswered", type_=Boolean()), ENTRY.c.unanswered_at), else_=None),
        decision=case((_USES_UP_RETRY, Decision.RETRIED.value), else_=ENTRY.c.decision),
    )
)


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

    An entry is handed out once in a drain, and again only under a next key. `limit`: the most rows; `ids`: the only entries to
    take, None for all; `key_memory`: how long the service remembers the key of an unanswered attempt; `begun`: the account at
    the start, with the rows that became uncertain at once.
    """

    def __init__(
        self,
        run: FencedTransaction,
        limit: int | None,
        key_memory: timedelta,
        ids: list[int] | None,
        begun: PublishAccount,
        stopped_by: str,
    ) -> None:
        self._run = run
        self._left = limit
        self._key_memory = key_memory
        self._ids = ids
        self._begun = begun
        self.stopped_by = stopped_by
        """Why an earlier drain of this feed was stopped, if no row has been delivered since; "" otherwise."""
        self._ended: Counter[str] = Counter({EntryState.UNCERTAIN.value: begun.uncertain})
        self._last_id = 0
        self._claims: dict[int, Claim] = {}
        self._again: list[int] = []
        self._is_in_doubt = False
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
        settlements = [self._settlement(each, now) for each in settled]
        again = [*self._again, *(each["entry"] for each in settlements if each["restarts"])]
        try:
            with self._run.transaction() as connection:
                self._settle(connection, settlements)
                since = {"scope": self._run.scope_id, "since": now - self._key_memory}
                retried = _claim_these(connection, again[:want], since)
                most = want - len(retried) if self._left is None else min(want - len(retried), self._left)
                if self._ids is None:
                    page = {**since, "after": self._last_id, "want": most}
                    first = list(map(Claim._make, connection.execute(_OLDEST, page))) if most > 0 else []
                else:
                    first = _claim_these(connection, self._ids[:most], since)
                claims = [*retried, *first]
                begun = [{"entry": each.id, "run": self._run.run_id, "now": now} for each in claims if each.cover_url is None]
                if begun:
                    connection.execute(_BEGIN, begun)
        except StateBusyError:
            self._is_in_doubt = True
            raise
        self._is_in_doubt = False
        for each in settlements:
            if each["new_copies"] > max(self._claims.pop(each["entry"]).copies, 1):
                self._resent.add(each["entry"])
            self._ended[each["new_state"]] += 1
        self._again = again[want:]
        if first:
            self._last_id = first[-1].id
        if self._ids is not None:
            self._ids = self._ids[most:]
        if self._left is not None:
            self._left -= len(first)
        self._claims.update((each.id, each) for each in claims)
        return [_as_intent(each, now) for each in claims]

    def begin_again(self, intent: Intent) -> None:
        """Record, before it is sent, that another attempt of a claimed intent begins."""
        self._claim_of(intent)
        with self._run.transaction() as connection:
            connection.execute(update(ENTRY).where(ENTRY.c.id == intent.entry_id).values(copies=ENTRY.c.copies + 1))

    def note_stop(self, why: str) -> None:
        """Record for the next run why this drain was stopped; "" once a row has been delivered."""
        if why != self.stopped_by:
            with self._run.transaction() as connection:
                connection.execute(update(SCOPE).where(SCOPE.c.id == self._run.scope_id).values(stopped_by=why))
            self.stopped_by = why

    def pin(
        self, intent: Intent, body: bytes, *, missing: Reason | None = None, refused: Refusal | Blocked | Superseded | None = None
    ) -> Intent:
        """Pin `body` (with the cover's id, or without a cover) to the intent, and record that its attempt begins.

        `missing`: why the image is not in it; listed for people in the same transaction. `refused`: the verdict on the body
        before this one, in this call; the corrected body is sent under the same key first.
        """
        claim, now = self._claim_of(intent), self._run.now()
        refusal = claim.refused_request_id if refused is None else refused_as(refused.answer)
        pinned = {"body": body, "cover_url": None, "cover_on_error": None, "refused_request_id": refusal, **_BEGUN}
        with self._run.transaction() as connection:
            self._write_pending(connection, intent, pinned, {"run": self._run.run_id, "now": now})
            if missing is not None:
                warn_of_image(connection, self._run, intent.entry_id, missing)
        copies = claim.copies + (0 if refused is None else refused.copies)
        self._claims[intent.entry_id] = claim._replace(cover_url=None, refused_request_id=refusal, copies=copies)
        return replace(intent, body=body, cover=None, refused_request_id=refusal)

    def unpin(self, intent: Intent, *, refused: Refusal | Blocked | Superseded) -> None:
        """Let the intent request its cover image again in a later run: the body with the pinned image is `refused`."""
        claim, refusal = self._claim_of(intent), refused_as(refused.answer)
        copies, cover = claim.copies + refused.copies, intent.cover
        columns: dict[str, Any] = {"cover_url": cover and cover.url, "refused_request_id": refusal, "copies": copies}
        put_back = {"body": intent.body, "cover_on_error": cover and cover.on_error, "unanswered_at": None, **columns}
        with self._run.transaction() as connection:
            self._write_pending(connection, intent, {**put_back, "attempts": ENTRY.c.attempts - 1}, {})
        self._claims[intent.entry_id] = claim._replace(**columns)

    def account(self) -> PublishAccount:
        """Return the account of this drain, compared with what the table says is still owed.

        Raises `ImbalanceError` if the two disagree.
        """
        with reading(self._run.engine) as connection:
            pending = sum(_count_pending(connection, self._run))
        ended = {state.value: self._ended[state.value] for state in _ENDS}
        account = replace(self._begun, pending=pending, resent=len(self._resent), **ended)
        account.check()
        return account

    def standing(self) -> Standing:
        """Return what waits for a person from run to run."""
        with reading(self._run.engine) as connection:
            return read_standing(connection, self._run.scope_id, self._run.now(), self._key_memory.total_seconds())

    def _write_pending(
        self, connection: Connection, intent: Intent, columns: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> None:
        entry = update(ENTRY).where(ENTRY.c.id == intent.entry_id, _IS_PENDING)
        if connection.execute(entry.values(columns), parameters).rowcount != 1:
            raise _not_claimed(intent)

    def _settle(self, connection: Connection, settlements: list[dict[str, Any]]) -> None:
        if self._is_in_doubt and settlements:
            # A connection that broke while it committed leaves open whether it did; what was written then stands.
            names = ("state", "idempotency_key", "answer")
            which = ENTRY.c.id.in_([each["entry"] for each in settlements])
            rows = connection.execute(select(ENTRY.c.id, *(ENTRY.c[name] for name in names)).where(which))
            written = {row[0]: tuple(row[1:]) for row in rows}
            settlements = [each for each in settlements if written.get(each["entry"]) != tuple(each[f"new_{n}"] for n in names)]
        found = connection.execute(_SETTLE, settlements).rowcount if settlements else 0
        if found != len(settlements):
            raise NotClaimedError(
                f"{len(settlements) - found} of {len(settlements)} answers found their entry changed by another process",
                hint="only one run may publish a feed at a time; `eventsync status` shows who holds it",
            )

    def _settlement(self, settled: Settled, now: datetime) -> dict[str, Any]:
        """Return the parameters of `_SETTLE`. The entry continues under its key or the next one; `copies`: how many events may
        exist.
        """
        intent, verdict = settled.intent, settled.verdict
        claim = self._claim_of(intent)
        is_own = isinstance(verdict, Superseded) and self._has_own_denial(claim)
        effect = effect_of(verdict, claim, are_denials_own=is_own)
        revision = claim.revision + effect.is_next_revision
        # A row that met a limit may have been carried out: its body stays pinned.
        attempts = max(verdict.attempts, effect.is_limited and not claim.is_limited)
        return {
            "entry": intent.entry_id,
            "new_state": effect.state.value,
            "new_event_id": effect.event_id,
            "new_answer": dump_answer(verdict.answer),
            "new_refused_request_id": effect.refused_request_id,
            "new_denied_request_id": effect.denied_request_id,
            "new_revision": revision,
            "new_idempotency_key": self._run.key(intent.row_key, revision) if effect.is_next_revision else intent.key,
            "new_copies": claim.copies + verdict.copies,
            "new_is_limited": effect.is_limited,
            "new_updated_at": now,
            "restarts": effect.is_next_revision,
            "uses_up_retry": effect.is_next_revision or effect.state in (EntryState.REFUSED, EntryState.BLOCKED),
            "more": attempts - (claim.cover_url is None),
            "keeps_unanswered": effect.keeps_unanswered,
        }

    def _has_own_denial(self, claim: Claim) -> bool:
        if self._own_denials is None:
            with reading(self._run.engine) as connection:
                self._own_denials = _find_own_denials(connection, self._run.scope_id)
        return claim.denied_request_id in self._own_denials

    def _claim_of(self, intent: Intent) -> Claim:
        claim = self._claims.get(intent.entry_id)
        if claim is None:
            raise _not_claimed(intent)
        return claim


def open_outbox(
    run: FencedTransaction,
    *,
    limit: int | None = None,
    keys: Collection[RowKey] | None = None,
    key_memory_s: float = KEY_MEMORY_S,
    row_parts: int | None = None,
) -> Outbox:
    """Start a drain: reopen what may be sent again automatically, and hand out what is owed, at most `limit` rows, only of
    `keys`.

    Oldest first; after a drain that was stopped, those sent least first, so that a row that the service never accepts does not
    begin every run. `row_parts`: a key of so many parts is a row's own, and covers all of its events; None: every key is one
    event's. Blocked and uncertain entries are owed again, but an entry with an attempt unanswered for more than `key_memory_s`
    seconds becomes or stays uncertain, and waits for a person. Raises `GateClosedError` if staged rows must not be published,
    `LeaseLostError` if another run has the feed.
    """
    scope_id = run.scope_id
    with run.transaction() as connection:
        gate = read_gate(connection, scope_id)
        if not gate.is_open:
            raise closed(gate)
        run.take_over(connection)
        run.note(connection, phase=Phase.PUBLISHING.value)
        given_up = _reopen(connection, run, key_memory_s)
        new, others = _count_pending(connection, run)
        ids = None
        if keys is not None:
            ids = (
                find_ids(connection, scope_id, {storable(key) for key in keys})
                if row_parts is None
                else _find_events(connection, scope_id, keys, row_parts)
            )
        stopped_by = connection.execute(select(SCOPE.c.stopped_by).where(SCOPE.c.id == scope_id)).scalar_one()
        if stopped_by:
            pending = select(ENTRY.c.id).where(ENTRY.c.scope_id == scope_id, _IS_PENDING)
            pending = pending.order_by(ENTRY.c.copies, ENTRY.c.id)
            wanted = None if ids is None else frozenset(ids)
            ids = [entry for entry in connection.execute(pending).scalars() if wanted is None or entry in wanted]
    account = PublishAccount(new=new, carried_over=others + given_up, uncertain=given_up)
    return Outbox(run, limit, timedelta(seconds=key_memory_s), ids, account, str(stopped_by))


def _reopen(connection: Connection, run: FencedTransaction, key_memory_s: float) -> int:
    """Make blocked and uncertain entries pending again, if that is safe without a person.

    An entry whose first unanswered attempt is older than `key_memory_s` seconds is or becomes uncertain, unless a person resent
    it: the service may have forgotten its key, and would create it twice. Blocked rows that are gone from their source, and
    ignored ones, stay as they are. Returns how many pending entries became uncertain.
    """
    now = run.now()
    forgotten = is_forgotten(now, key_memory_s)
    entries = update(ENTRY).where(ENTRY.c.scope_id == run.scope_id, ~IS_SET_ASIDE)
    pending, uncertain = EntryState.PENDING.value, EntryState.UNCERTAIN.value
    blocked = entries.where(ENTRY.c.state == EntryState.BLOCKED.value, IS_IN_SOURCE)
    connection.execute(blocked.values(state=pending, updated_at=now))
    # `updated_at` stays: how long nothing was sent for it shows whether a request may still be under way.
    connection.execute(entries.where(ENTRY.c.state == uncertain, ~forgotten).values(state=pending))
    stale = entries.where(_IS_PENDING, forgotten, func.coalesce(~_IS_TO_RESEND, True))
    return connection.execute(stale.values(state=uncertain, updated_at=now)).rowcount


def _find_events(connection: Connection, scope_id: int, row_keys: Collection[RowKey], row_parts: int) -> list[int]:
    """Return the ids of these rows' entries and of all events of these rows, oldest first.

    A row's own key has `row_parts` parts. Unknown rows are absent.
    """
    wanted = frozenset(row_keys)
    listed = select(ENTRY.c.id, ENTRY.c.row_key).where(ENTRY.c.scope_id == scope_id).execution_options(yield_per=2_000)
    return sorted(row.id for row in connection.execute(listed) if not wanted.isdisjoint(names_of(row.row_key, row_parts)))


def _count_pending(connection: Connection, run: FencedTransaction) -> tuple[int, int]:
    """Return how many entries are pending: those staged by this run, and the others."""
    own = func.coalesce(func.sum(case((ENTRY.c.staged_run == run.run_id, 1), else_=0)), 0)
    pending = (ENTRY.c.scope_id == run.scope_id, _IS_PENDING)
    new, every = connection.execute(select(own, func.count()).where(*pending)).one()
    return int(new), int(every) - int(new)


def _find_own_denials(connection: Connection, scope_id: int) -> frozenset[str]:
    """Return the request ids of denials that each belong to one pending row, none unless they are seen to differ.

    A gateway may give all its answers one request id, which then shows nothing about a row.
    """
    denied = ENTRY.c.denied_request_id
    rows = select(denied, func.count()).where(ENTRY.c.scope_id == scope_id, _IS_PENDING, denied != "").group_by(denied)
    found = {row[0]: row[1] for row in connection.execute(rows)}
    return frozenset(request_id for request_id, count in found.items() if count == 1 and len(found) > 1)


def _claim_these(connection: Connection, entries: Sequence[int], since: Mapping[str, Any]) -> list[Claim]:
    """Return those of these entries that may be claimed, in this order."""
    rows = connection.execute(_THESE, {**since, "entries": entries}) if entries else ()
    claims = {row.id: Claim._make(row) for row in rows}
    return [claims[entry] for entry in entries if entry in claims]


def _as_intent(claim: Claim, now: datetime) -> Intent:
    """Return the intent for the client of an entry that was claimed at `now`."""
    is_counted_anew = claim.unanswered_at is None or claim.is_limited or claim.decision == Decision.RESEND
    unanswered_since = now if is_counted_anew or claim.unanswered_at is None else claim.unanswered_at
    return Intent(
        entry_id=claim.id,
        row_key=claim.row_key,
        key=claim.idempotency_key,
        body=claim.body,
        channel_id=claim.channel_id,
        is_unanswered=claim.was_unanswered,
        is_limited=claim.is_limited,
        refused_request_id=claim.refused_request_id,
        cover=None if claim.cover_url is None else Cover(claim.cover_url, claim.cover_on_error or ""),
        denial=claim.denial,
        unanswered_s=max((now - unanswered_since).total_seconds(), 0.0),
        quiet_s=max((now - claim.updated_at).total_seconds(), 0.0),
    )


def _not_claimed(intent: Intent) -> NotClaimedError:
    return NotClaimedError(
        f"an answer came for {intent.row_key}, which this drain does not hold",
        hint="settle each intent once; please report this as a fault of eventsync",
    )
