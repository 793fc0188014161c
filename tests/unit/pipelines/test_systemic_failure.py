"""When a drain stops for what its answers say together: the mapping, the contract or the service is wrong, and not a row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from unit.connectors_api.wired import intent
from unit.state.world import World, answer, receipt, row

from mappings.delivery import Answer, Blocked, Conflict, Intent, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.errors import SyncError
from pipelines.run.outcome import BrakeError
from pipelines.run.preflight import ExpectedRefusal
from pipelines.run.publish import MOST_IN_A_ROW, PATIENT_ANSWERS, SAME_REFUSALS, Drain, SystemicFailure, patience_with

REFUSED = Refusal(answer(400))
IN_THE_PAST = Refusal(Answer(400, "code", "message", "req", "startAt", "in the past"))
UNCERTAIN = Uncertain(answer(503))
RECEIPT = Receipt(1, answer(201))


def _causes(verdicts: Sequence[Verdict], patience: int = MOST_IN_A_ROW) -> list[SyncError | None]:
    systemic = SystemicFailure(patience)
    return [systemic.cause(intent(), verdict) for verdict in verdicts]


@pytest.mark.parametrize(
    "verdicts",
    [
        pytest.param([RECEIPT, *[REFUSED] * 100], id="one went well"),
        pytest.param([*[REFUSED] * (SAME_REFUSALS - 1), RECEIPT, *[REFUSED] * 100], id="one went well late"),
        pytest.param([Unconfirmed(answer(409)), *[REFUSED] * 100], id="one is confirmed"),
        pytest.param([REFUSED, REFUSED, *[IN_THE_PAST] * 100], id="another issue"),
        pytest.param([Blocked(answer(403)), Conflict(answer(409)), Superseded(answer(409))] * 50, id="rows of their own"),
        *(
            pytest.param([RECEIPT, *[*[REFUSED] * (SAME_REFUSALS - 1), between] * 50], id="any other answer between them")
            for between in (RECEIPT, IN_THE_PAST, Blocked(answer(403)), Conflict(answer(409)))
        ),
    ],
)
def test_rows_that_fail_for_reasons_of_their_own_stop_nothing(verdicts: list[Verdict]) -> None:
    assert set(_causes(verdicts)) == {None}


FORTY = "40 rows in a row were all refused for the same reason: code title too long"


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        pytest.param([REFUSED] * SAME_REFUSALS, "too long", id="all first rows: the mapping's fault"),
        pytest.param([*[RECEIPT] * 300, *[REFUSED] * 40], FORTY, id="all passed before"),
        pytest.param([IN_THE_PAST, *[REFUSED] * 5, RECEIPT, *[REFUSED] * 40], FORTY, id="mixed before"),
        pytest.param([RECEIPT, *[Superseded(answer(400)), REFUSED] * 40], FORTY, id="refusals of earlier bodies between them"),
        pytest.param([RECEIPT, REFUSED, *[UNCERTAIN, REFUSED] * 39], FORTY, id="a failing service between them"),
    ],
)
def test_the_same_refusal_stops_a_run_once_it_outgrows_what_may_be_bad(verdicts: list[Verdict], words: str) -> None:
    *before, cause = _causes(verdicts, patience=40)
    assert set(before) == {None}
    assert isinstance(cause, BrakeError)
    assert (cause.brakes, words in str(cause)) == (("same refusal",), True)


@pytest.mark.parametrize(
    ("owed", "bad_share", "patience"),
    [(1, 0.05, 25), (480, 0.05, 25), (500, 0.05, 26), (6000, 0.05, 301), (100, 0.29, 30), (10**6, 0.05, 1000), (50, None, 1000)],
)
def test_one_row_more_in_a_row_than_the_feed_lets_be_bad_is_too_many_within_bounds(
    owed: int, bad_share: float | None, patience: int
) -> None:
    assert patience_with(owed, bad_share) == patience


def test_after_a_stop_rows_go_one_by_one_until_one_has_passed_and_the_same_refusal_stops_the_next_run_at_once() -> None:
    systemic = SystemicFailure(stopped_by="code title too long")
    assert (systemic.cause(intent(), IN_THE_PAST), systemic.is_doubtful) == (None, True)
    assert isinstance(replace(systemic).cause(intent(), REFUSED), BrakeError)
    assert (systemic.cause(intent(), RECEIPT), systemic.is_doubtful) == (None, False)
    assert systemic.cause(intent(), REFUSED) is None


ORGANIZER = ExpectedRefusal("`organizer` is required; this mapping never sends it", frozenset({"organizer"}))
MOVED = ExpectedRefusal("there is none at /api/public/v1/events")
IN_A_LIST = ExpectedRefusal("", frozenset({"offers[].url"}))
ANNOUNCED = Refusal(Answer(400, "invalid_request", "invalid", "req-1", "organizer"))


def test_before_an_announced_refusal_rows_go_one_by_one_until_one_has_passed(world: World) -> None:
    world.stage([row(str(number)) for number in range(8)])
    answers = iter([Refusal(Answer(400, field="title", issue="too long")), Refusal(Answer(400, field="startAt", issue="past"))])
    under_way: set[str] = set()
    counts: list[int] = []

    async def deliver(intent: Intent) -> Verdict:
        under_way.add(intent.key)
        counts.append(len(under_way))
        verdict = next(answers, receipt(intent))
        await asyncio.sleep(0)
        under_way.discard(intent.key)
        return verdict

    drain = Drain(world.outbox(), 4, 5.0, lambda _: None, deliver, systemic=SystemicFailure(owed=8, expected=(ORGANIZER,)))
    asyncio.run(asyncio.wait_for(drain.run(), 30))
    assert (drain.cause, drain.systemic.has_disproved) == (None, True)
    assert (counts[:3], max(counts)) == ([1, 1, 1], 4)


@pytest.mark.parametrize(
    ("expected", "answers", "is_explained"),
    [
        # however the service spells its place
        (ORGANIZER, [Answer(422, field=field) for field in ("organizer", "body.organizer", "/organizer", "Organizer")], True),
        (ORGANIZER, [Answer(422, issue=issue) for issue in ("organizer is required", "Missing property: `organizer`")], True),
        (IN_A_LIST, [Answer(400, field=f) for f in ("offers[0].url", "/offers/0/url", "body.offers[12].url")], True),
        (ORGANIZER, [Answer(400, field="title", issue="organizer"), Answer(400, field="coOrganizer")], False),
        (ORGANIZER, [Answer(400, message="the organizers are many"), Answer(404, message="no channel of this organizer")], False),
        (ORGANIZER, [Answer(403, message="organizer")], False),
        (MOVED, [Answer(404), Answer(415)], True),
        (MOVED, [Answer(403), Answer(400, field="title")], False),
    ],
)
def test_an_announced_refusal_is_recognised_and_no_other_complaint_is_taken_for_it(
    expected: ExpectedRefusal, answers: list[Answer], is_explained: bool
) -> None:
    assert {expected.explains(answer) for answer in answers} == {is_explained}


QUIET = [Superseded(Answer(400, field="organizer")), UNCERTAIN, Conflict(Answer(409)), Blocked(Answer(403))]


@pytest.mark.parametrize(
    ("verdicts", "is_unanswered", "is_stopped"),
    [
        ([Blocked(Answer(404))], False, True),
        ([*QUIET, ANNOUNCED], False, True),
        ([*[RECEIPT] * (2 * PATIENT_ANSWERS), ANNOUNCED], True, True),
        ([Unconfirmed(Answer(409)), ANNOUNCED], False, True),
        ([RECEIPT, ANNOUNCED], False, False),
        ([*[UNCERTAIN] * PATIENT_ANSWERS, ANNOUNCED], False, False),
    ],
    ids=[
        "a route that is gone, by a blocked row",
        "what says nothing about the contract",
        "rows that an earlier run may have sent say nothing by passing",
        "one is confirmed",
        "a row passed",
        "many answers: the care does not last for ever",
    ],
)
def test_a_drain_stops_where_a_row_is_refused_as_announced_until_one_has_disproved_it(
    verdicts: list[Verdict], is_unanswered: bool, is_stopped: bool
) -> None:
    systemic = SystemicFailure(owed=100, expected=(ORGANIZER, MOVED))
    *before, last = [systemic.cause(intent(is_unanswered=is_unanswered), verdict) for verdict in verdicts]
    assert set(before) <= {None}
    assert isinstance(last, BrakeError) is is_stopped
