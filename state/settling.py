"""The statements of settling: what an answer changes in the entry that it is for.

When that happens is `outbox`'s, what an answer means `verdicts`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, and_, bindparam, case, select, update

from mappings.delivery import Answer
from mappings.row_key import IdempotencyKey
from state.columns import storable
from state.records import dump_answer
from state.spelt import RowStatement, bound
from state.tables import ENTRY
from state.verdicts import Claim, Effect
from state.words import Decision, EntryState

_TURNED_AWAY = frozenset({EntryState.REFUSED, EntryState.BLOCKED})
_AS_WRITTEN = select(ENTRY.c.id, ENTRY.c.state, ENTRY.c.idempotency_key, ENTRY.c.answer).where(
    ENTRY.c.id.in_(bindparam("entries", expanding=True))
)
_SETTLE = RowStatement(
    update(ENTRY)
    .where(ENTRY.c.id == bindparam("entry"), ENTRY.c.state == EntryState.PENDING.value)
    .values(
        state=bindparam("new_state"),
        event_id=bindparam("new_event_id"),
        answer=bindparam("new_answer"),
        refused_request_id=bindparam("new_refused_request_id"),
        denied_request_id=bindparam("new_denied_request_id"),
        revision=bindparam("new_revision"),
        idempotency_key=bindparam("new_key"),
        attempts=case((bindparam("restarts", type_=ENTRY.c.attempts.type) == 1, 0), else_=ENTRY.c.attempts + bindparam("more")),
        unanswered_at=case((bindparam("keeps", type_=ENTRY.c.attempts.type) == 1, ENTRY.c.unanswered_at), else_=None),
        decision=case(
            (
                and_(bindparam("uses_up", type_=ENTRY.c.attempts.type) == 1, ENTRY.c.decision == Decision.RETRY.value),
                Decision.RETRIED.value,
            ),
            else_=ENTRY.c.decision,
        ),
        copies=bindparam("new_copies"),
        is_limited=bindparam("limited"),
        updated_at=bindparam("now"),
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
    """Write verdicts, and return how many found their entry pending: all, unless somebody else wrote to it."""
    bound_now = bound(connection, now)
    rows = [_as_row(settlement, bound_now) for settlement in settlements]
    return _SETTLE.run(connection, rows) if rows else 0


def _as_row(settlement: Settlement, bound_now: object) -> dict[str, object]:
    effect, claim = settlement.effect, settlement.claim
    return {
        "entry": settlement.entry_id,
        "new_state": effect.state.value,
        "new_event_id": effect.event_id,
        "new_answer": dump_answer(settlement.answer),
        "new_refused_request_id": storable(effect.refused_request_id),
        "new_denied_request_id": storable(effect.denied_request_id),
        "new_revision": claim.revision + effect.is_next_revision,
        "new_key": settlement.key,
        "restarts": int(effect.is_next_revision),
        "uses_up": int(effect.is_next_revision or effect.state in _TURNED_AWAY),
        # A row that met a limit may have been carried out: its body stays pinned.
        "more": max(settlement.attempts, effect.is_limited and not claim.was_limited) - claim.is_begun,
        "keeps": int(effect.keeps_unanswered),
        "new_copies": settlement.copies,
        "limited": effect.is_limited,
        "now": bound_now,
    }
