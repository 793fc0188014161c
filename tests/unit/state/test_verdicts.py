"""What an answer makes of a row: its state, whether it may be out, the refusal or denial to know again, the next key."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.state.world import START, answer

from mappings.delivery import Blocked, Conflict, Postponed, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.errors import TransientError
from mappings.row_key import IdempotencyKey, RowKey
from state.enums import EntryState
from state.ledger.outbox import Claim, effect_of

POSTPONED = Postponed(answer(401), TransientError("key refused"))


def claim(*, was_unanswered: bool = False, refused: str = "", denied: str = "", is_retry: bool = False) -> Claim:
    return Claim(
        id=1,
        row_key=RowKey("a"),
        idempotency_key=IdempotencyKey("es1-a"),
        body=b"{}",
        channel_id=5,
        revision=0,
        unanswered_at=START if was_unanswered else None,
        refused_request_id=refused,
        cover_url=None,
        cover_on_error=None,
        decision="retry" if is_retry else None,
        updated_at=START,
        answer=None,
        denied_request_id=denied,
        copies=0,
        is_limited=False,
    )


@pytest.mark.parametrize(
    ("verdict", "state", "proves_nothing_earlier"),
    [
        (Receipt(5, answer(201)), EntryState.DELIVERED, False),
        (Unconfirmed(answer(409)), EntryState.DELIVERED_UNCONFIRMED, False),
        (Refusal(answer(400)), EntryState.REFUSED, False),
        (Blocked(answer(403)), EntryState.BLOCKED, True),
        (Conflict(answer(409)), EntryState.CONFLICT, True),
        (POSTPONED, EntryState.PENDING, True),
    ],
)
def test_each_verdict_has_its_state_and_only_a_definitive_one_settles_an_earlier_unanswered_attempt(
    verdict: Verdict, state: EntryState, proves_nothing_earlier: bool
) -> None:
    fresh, again = effect_of(verdict, claim()), effect_of(verdict, claim(was_unanswered=True))
    assert (fresh.state, again.state) == (state, state)
    assert (fresh.keeps_unanswered, again.keeps_unanswered) == (False, proves_nothing_earlier)


@pytest.mark.parametrize("was_unanswered", [False, True])
def test_an_uncertain_row_stays_unanswered(was_unanswered: bool) -> None:
    effect = effect_of(Uncertain(answer(503)), claim(was_unanswered=was_unanswered))
    assert (effect.state, effect.keeps_unanswered) == (EntryState.UNCERTAIN, True)


def test_a_refusal_is_remembered_by_its_request_id_if_there_was_a_request() -> None:
    assert effect_of(Refusal(answer(400, "req-9")), claim()).refused_request_id == "req-9"
    assert effect_of(Refusal(answer(413, "")), claim()).refused_request_id
    assert effect_of(Refusal(answer(0, ""), attempts=0), claim()).refused_request_id == ""


@pytest.mark.parametrize("verdict", [Blocked(answer(403, "req-9")), Blocked(answer(404, "req-9")), POSTPONED])
def test_denied_access_is_remembered_by_its_request_id_and_is_no_refusal_to_go_by(verdict: Verdict) -> None:
    effect = effect_of(verdict, claim(denied="req-8"))
    assert (effect.refused_request_id, effect.denied_request_id) == ("", verdict.answer.request_id)


@pytest.mark.parametrize("denied", ["", "req-8"])
def test_a_row_that_was_held_up_without_a_request_has_no_denial_of_its_own(denied: str) -> None:
    assert effect_of(replace(POSTPONED, attempts=0), claim(denied=denied)).denied_request_id == denied


REFUSED, DENIED = claim(refused="req-1"), claim(denied="req-9")


@pytest.mark.parametrize(
    ("status", "request_id", "before"),
    [
        pytest.param(403, "req-9", DENIED, id="the very denial"),
        pytest.param(403, "req-9", DENIED._replace(unanswered_at=START), id="the very denial, whatever went unanswered"),
        pytest.param(401, "req-10", DENIED._replace(decision="retry"), id="a denial anew, at a person's risk"),
        pytest.param(409, "req-x", REFUSED, id="a corrected row"),
        pytest.param(400, "req-1", REFUSED._replace(unanswered_at=START), id="the very refusal, whatever went unanswered"),
    ],
)
def test_a_row_goes_on_under_the_next_key_where_it_is_sure_that_nothing_was_created(
    status: int, request_id: str, before: Claim
) -> None:
    effect = effect_of(Superseded(answer(status, request_id)), before)
    assert (effect.state, effect.is_next_revision) == (EntryState.PENDING, True)
    assert (effect.refused_request_id, effect.denied_request_id) == ("", "")


@pytest.mark.parametrize(
    ("status", "request_id", "before"),
    [
        pytest.param(401, "req-10", DENIED, id="a denial anew"),
        pytest.param(401, "req-10", DENIED._replace(decision="retry", unanswered_at=START), id="one attempt went unanswered"),
        pytest.param(409, "req-x", DENIED._replace(decision="retry"), id="a denial explains no 409"),
        pytest.param(409, "req-x", claim(), id="never refused"),
        pytest.param(409, "req-2", REFUSED._replace(unanswered_at=START), id="a bare 409 may mean the unanswered attempt"),
    ],
)
def test_an_answer_for_another_body_is_a_conflict_where_nothing_explains_it(status: int, request_id: str, before: Claim) -> None:
    assert effect_of(Superseded(answer(status, request_id)), before).state is EntryState.CONFLICT
