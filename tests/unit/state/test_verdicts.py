from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from unit.state.world import answer

from mappings.delivery import Blocked, Conflict, Postponed, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.errors import TransientError
from mappings.row_key import IdempotencyKey, RowKey
from state.enums import EntryState
from state.ledger.verdicts import Claim, effect_of

POSTPONED = Postponed(answer(401), TransientError("key refused"))


def claim(*, was_unanswered: bool = False, refused: str = "", denied: str = "", is_retry: bool = False) -> Claim:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    return Claim(
        id=1,
        row_key=RowKey("a"),
        idempotency_key=IdempotencyKey("es1-a"),
        body=b"{}",
        channel_id=5,
        revision=0,
        unanswered_at=now if was_unanswered else None,
        refused_request_id=refused,
        cover_url=None,
        cover_on_error=None,
        decision="retry" if is_retry else None,
        updated_at=now,
        answer=None,
        denied_request_id=denied,
        copies=0,
        is_limited=False,
    )


@pytest.mark.parametrize("was_unanswered", [False, True])
@pytest.mark.parametrize(
    ("verdict", "state"),
    [
        (Receipt(5, answer(201)), EntryState.DELIVERED),
        (Unconfirmed(answer(409)), EntryState.DELIVERED_UNCONFIRMED),
        (Refusal(answer(400)), EntryState.REFUSED),
        (Blocked(answer(403)), EntryState.BLOCKED),
        (Uncertain(answer(503)), EntryState.UNCERTAIN),
        (Conflict(answer(409)), EntryState.CONFLICT),
        (POSTPONED, EntryState.PENDING),
    ],
)
def test_each_verdict_has_its_state(verdict: Verdict, state: EntryState, was_unanswered: bool) -> None:
    assert effect_of(verdict, claim(was_unanswered=was_unanswered)).state is state


@pytest.mark.parametrize("verdict", [Blocked(answer(403)), Conflict(answer(409)), POSTPONED])
def test_an_answer_that_proves_nothing_about_an_earlier_attempt_leaves_its_mark(verdict: Verdict) -> None:
    assert effect_of(verdict, claim(was_unanswered=True)).keeps_unanswered
    assert not effect_of(verdict, claim(was_unanswered=False)).keeps_unanswered


@pytest.mark.parametrize("verdict", [Receipt(5, answer(201)), Unconfirmed(answer(409)), Refusal(answer(400))])
def test_a_definitive_answer_clears_the_mark(verdict: Verdict) -> None:
    assert not effect_of(verdict, claim(was_unanswered=True)).keeps_unanswered


def test_an_uncertain_row_stays_marked_as_unanswered() -> None:
    assert effect_of(Uncertain(answer(0)), claim()).keeps_unanswered


def test_a_refusal_is_remembered_by_its_request_id() -> None:
    assert effect_of(Refusal(answer(400, "req-9")), claim()).refused_request_id == "req-9"


def test_a_refusal_without_a_request_id_is_remembered_all_the_same() -> None:
    assert effect_of(Refusal(answer(413, "")), claim()).refused_request_id


def test_a_row_refused_without_any_request_leaves_no_trace_at_the_service() -> None:
    assert effect_of(Refusal(answer(0, ""), attempts=0), claim()).refused_request_id == ""


@pytest.mark.parametrize("verdict", [Blocked(answer(403, "req-9")), Blocked(answer(404, "req-9")), POSTPONED])
def test_denied_access_is_remembered_by_its_request_id_and_is_no_refusal_to_go_by(verdict: Verdict) -> None:
    effect = effect_of(verdict, claim(denied="req-8"))
    assert (effect.refused_request_id, effect.denied_request_id) == ("", verdict.answer.request_id)


def test_a_row_that_was_held_up_without_a_request_has_no_denial_of_its_own() -> None:
    assert effect_of(replace(POSTPONED, attempts=0), claim()).denied_request_id == ""
    assert effect_of(replace(POSTPONED, attempts=0), claim(denied="req-8")).denied_request_id == "req-8"


def test_a_stored_denial_told_again_proves_that_nothing_was_created_whatever_went_unanswered() -> None:
    for was_unanswered in (False, True):
        effect = effect_of(Superseded(answer(403, "req-9")), claim(denied="req-9", was_unanswered=was_unanswered))
        assert (effect.state, effect.is_next_revision, effect.denied_request_id) == (EntryState.PENDING, True, "")


def test_a_denial_told_anew_leads_to_the_next_key_only_at_a_persons_risk_and_with_no_attempt_unaccounted_for() -> None:
    anew = Superseded(answer(401, "req-10"))
    assert effect_of(anew, claim(denied="req-9", is_retry=True)).is_next_revision
    assert effect_of(anew, claim(denied="req-9")).state is EntryState.CONFLICT
    assert effect_of(anew, claim(denied="req-9", is_retry=True, was_unanswered=True)).state is EntryState.CONFLICT


def test_a_denial_explains_no_409() -> None:
    assert effect_of(Superseded(answer(409)), claim(denied="req-9", is_retry=True)).state is EntryState.CONFLICT


def test_a_corrected_row_goes_on_under_the_next_key() -> None:
    effect = effect_of(Superseded(answer(409)), claim(refused="req-1"))
    assert (effect.state, effect.is_next_revision, effect.refused_request_id) == (EntryState.PENDING, True, "")


def test_a_row_that_was_never_refused_cannot_be_superseded() -> None:
    assert effect_of(Superseded(answer(409)), claim()).state is EntryState.CONFLICT


def test_a_bare_409_after_an_unanswered_attempt_of_the_corrected_body_may_mean_that_attempt() -> None:
    assert effect_of(Superseded(answer(409, "req-2")), claim(was_unanswered=True, refused="req-1")).state is EntryState.CONFLICT


def test_the_replayed_refusal_itself_proves_that_nothing_was_created() -> None:
    effect = effect_of(Superseded(answer(400, "req-1")), claim(was_unanswered=True, refused="req-1"))
    assert effect.is_next_revision
