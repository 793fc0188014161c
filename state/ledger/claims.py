"""The statements of the outbox: find what is owed, record that an attempt begins, write what an answer changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import NamedTuple

from sqlalchemy import Boolean, ColumnElement, Connection, and_, bindparam, case, false, func, or_, select, update

from mappings.delivery import Answer, Denial, Intent
from mappings.outcome import Cover
from mappings.row_key import IdempotencyKey, RowKey, event_key, names_of
from state.enums import Decision, EntryState
from state.ledger.accounts import dump_answer, load_answer
from state.ledger.verdicts import Claim, Effect
from state.tables import ENTRY, SCOPE

_FEW = 500
_PAGE = 2_000
_FEW_ROWS = 100
"""So many beginnings are looked for by the database; of more, each entry is looked at here."""
_IS_TO_RESEND = ENTRY.c.decision == Decision.RESEND.value
IS_SET_ASIDE = func.coalesce(ENTRY.c.decision, "") == Decision.IGNORE.value
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


def is_forgotten(now: datetime, key_memory_s: float) -> ColumnElement[bool]:
    """Whether an attempt went unanswered so long ago that the service may have forgotten its key; never unknown.

    Answers 429 aside: a service that keeps to its limit has created nothing.
    """
    is_late = func.coalesce(ENTRY.c.unanswered_at <= now - timedelta(seconds=key_memory_s), False)
    return and_(is_late, ~ENTRY.c.is_limited)


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
