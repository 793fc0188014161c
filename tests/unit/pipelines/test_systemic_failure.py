"""When a drain stops for what its verdicts say together: the mapping or the service is wrong, and not a row."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from unit.state.world import answer

from connectors.errors import KeyRefusedError
from mappings.delivery import Answer, Blocked, Conflict, Postponed, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.errors import SyncError
from pipelines.run.outcome import BrakeError
from pipelines.run.systemic_failure import MOST_IN_A_ROW, SAME_REFUSALS, SystemicFailure, patience_with


def _causes(verdicts: Sequence[Verdict], patience: int = MOST_IN_A_ROW) -> list[SyncError | None]:
    systemic = SystemicFailure(patience)
    return [systemic.cause(verdict) for verdict in verdicts]


REFUSED = Refusal(answer(400))
UNCERTAIN = Uncertain(answer(503))
RECEIPT = Receipt(1, answer(201))


def test_the_same_refusal_of_all_first_rows_is_the_mappings_fault() -> None:
    causes = _causes([REFUSED] * SAME_REFUSALS)
    assert causes[:-1] == [None] * (SAME_REFUSALS - 1)
    assert isinstance(causes[-1], BrakeError)
    assert causes[-1].brakes == ("same refusal",)
    assert "too long" in str(causes[-1])


@pytest.mark.parametrize(
    "verdicts",
    [
        [RECEIPT, *[REFUSED] * 100],
        [*[REFUSED] * (SAME_REFUSALS - 1), RECEIPT, *[REFUSED] * 100],
        [Unconfirmed(answer(409)), *[REFUSED] * 100],
        [Refusal(answer(400)), Refusal(answer(400)), *[Refusal(_other_issue)] * 100]
        if (_other_issue := answer(400).__class__(400, "code", "message", "req", "startAt", "in the past"))
        else [],
        [Blocked(answer(403)), Conflict(answer(409)), Superseded(answer(409))] * 50,
    ],
    ids=[
        "one-went-well",
        "one-went-well-late",
        "one-is-confirmed",
        "another-issue",
        "rows-of-their-own",
    ],
)
def test_rows_that_fail_for_reasons_of_their_own_stop_nothing(verdicts: list[Verdict]) -> None:
    assert set(_causes(verdicts)) == {None}


IN_THE_PAST = Refusal(Answer(400, "code", "message", "req", "startAt", "in the past"))


@pytest.mark.parametrize("before", [[RECEIPT] * 300, [IN_THE_PAST, *[REFUSED] * 5, RECEIPT]], ids=["all passed", "mixed"])
def test_a_contract_that_changes_in_the_midst_of_a_run_stops_it_once_the_refusals_outgrow_what_may_be_bad(
    before: list[Verdict],
) -> None:
    causes = _causes([*before, *[REFUSED] * 40], patience=40)
    assert set(causes[:-1]) == {None}
    assert isinstance(causes[-1], BrakeError)
    assert str(causes[-1]).startswith("40 rows in a row were all refused for the same reason: code title too long")


@pytest.mark.parametrize("between", [RECEIPT, IN_THE_PAST, Blocked(answer(403)), Conflict(answer(409))])
def test_bad_rows_with_any_other_answer_between_them_stop_nothing_however_many_they_are(between: Verdict) -> None:
    assert set(_causes([RECEIPT, *[*[REFUSED] * 39, between] * 9], patience=40)) == {None}


def test_refusals_of_earlier_bodies_told_again_do_not_hide_that_the_same_refusal_comes_in_a_row() -> None:
    causes = _causes([RECEIPT, *[Superseded(answer(400)), REFUSED] * 40], patience=40)
    assert set(causes[:-1]) == {None}
    assert isinstance(causes[-1], BrakeError)


def test_a_failing_service_does_not_hide_that_the_same_refusal_comes_in_a_row() -> None:
    assert isinstance(_causes([RECEIPT, *[REFUSED, UNCERTAIN] * 40], patience=40)[-2], BrakeError)


@pytest.mark.parametrize(
    ("owed", "bad_share", "patience"),
    [(1, 0.05, 25), (480, 0.05, 25), (500, 0.05, 26), (6000, 0.05, 301), (100, 0.29, 30), (10**6, 0.05, 1000), (50, None, 1000)],
)
def test_one_row_more_in_a_row_than_the_feed_lets_be_bad_is_too_many_within_bounds(
    owed: int, bad_share: float | None, patience: int
) -> None:
    assert patience_with(owed, bad_share) == patience


def test_as_many_rows_side_by_side_as_the_feed_lets_be_bad_stop_nothing() -> None:
    assert set(_causes([RECEIPT, *[REFUSED] * 300], patience_with(6000, 0.05))) == {None}


def test_after_a_stop_rows_go_one_by_one_until_one_has_passed() -> None:
    systemic = SystemicFailure(stopped_by="code title too long")
    assert systemic.cause(IN_THE_PAST) is None
    assert systemic.is_doubtful
    assert systemic.cause(RECEIPT) is None
    assert not systemic.is_doubtful
    assert systemic.cause(REFUSED) is None


def test_after_a_stop_the_same_refusal_of_the_first_row_stops_the_next_run_at_once() -> None:
    assert isinstance(SystemicFailure(stopped_by="code title too long").cause(REFUSED), BrakeError)


def test_a_postponed_row_brings_its_own_cause() -> None:
    cause = KeyRefusedError("the key is revoked")
    assert _causes([Postponed(answer(401), cause)]) == [cause]
