"""Care about an announced refusal: one row first, stopped by that very refusal, ended by a row that passes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from unit.connectors_api.wired import intent
from unit.state.world import World, receipt, row

from mappings.delivery import (
    Answer,
    Blocked,
    Conflict,
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
from pipelines.run.outcome import BrakeError
from pipelines.run.publish import Drain
from pipelines.run.systemic_failure import PATIENT_ANSWERS, CautiousStart, ExpectedRefusal

ORGANIZER = ExpectedRefusal("`organizer` is required; this mapping never sends it", frozenset({"organizer"}))
MOVED = ExpectedRefusal("there is none at /api/public/v1/events")
PASSED = Receipt(1, Answer(201))


def _refusal(field: str = "", issue: str = "", status: int = 400) -> Refusal:
    return Refusal(Answer(status, "invalid_request", "invalid", "req-1", field, issue))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "state.db")
    yield made
    made.engine.dispose()


def _drained(world: World, caution: CautiousStart, answers: Sequence[Verdict]) -> tuple[Drain, list[int]]:
    """Drain eight rows, the first of which are answered so, and all others by a receipt; tell how many were under way."""
    world.stage([row(str(number)) for number in range(8)])
    script, under_way, most = iter(answers), 0, []

    async def deliver(intent: Intent) -> Verdict:
        nonlocal under_way
        under_way += 1
        most.append(under_way)
        verdict = next(script, receipt(intent))
        await asyncio.sleep(0)
        under_way -= 1
        return verdict

    drain = Drain(world.outbox(), 4, 5.0, lambda _: None, deliver, caution=caution)
    asyncio.run(asyncio.wait_for(drain.run(), 30))
    return drain, most


def test_without_doubts_rows_go_out_as_ever(world: World) -> None:
    drain, most = _drained(world, CautiousStart(owed=8), [])
    assert (drain.cause, max(most)) == (None, 4)


def test_the_announced_refusal_stops_the_drain_after_one_row(world: World) -> None:
    drain, most = _drained(world, CautiousStart((ORGANIZER,), owed=8), [_refusal("organizer", "is required")])
    assert most == [1]
    assert isinstance(drain.cause, BrakeError)
    assert drain.cause.brakes == ("contract",)
    assert "`organizer` is required" in str(drain.cause)
    assert "7 rows were not sent" in str(drain.cause)
    assert sorted(world.states().values()) == ["pending"] * 7 + ["refused"]


def test_a_row_that_passes_ends_the_care(world: World) -> None:
    drain, most = _drained(world, CautiousStart((ORGANIZER,), owed=8), [])
    assert drain.cause is None
    assert most[0] == 1
    assert max(most[1:]) == 4
    assert drain.caution.has_passed


def test_a_refusal_of_another_field_is_the_rows_own_and_the_next_row_goes_alone(world: World) -> None:
    drain, most = _drained(
        world, CautiousStart((ORGANIZER,), owed=8), [_refusal("title", "too long"), _refusal("startAt", "past")]
    )
    assert drain.cause is None
    assert most[:3] == [1, 1, 1]
    assert max(most) == 4


@pytest.mark.parametrize(
    ("field", "issue"),
    [
        ("organizer", ""),
        ("body.organizer", ""),
        ("/organizer", ""),
        ("Organizer", ""),
        ("", "organizer is required"),
        ("", "Missing property: `organizer`"),
    ],
)
def test_a_field_is_recognised_however_the_service_spells_its_place(field: str, issue: str) -> None:
    assert ORGANIZER.explains(Answer(422, "invalid_request", "no", field=field, issue=issue))


@pytest.mark.parametrize("field", ["offers[0].url", "/offers/0/url", "offers.url", "body.offers[12].url"])
def test_a_field_in_a_list_is_recognised_in_any_of_its_items(field: str) -> None:
    assert ExpectedRefusal("", frozenset({"offers[].url"})).explains(Answer(400, field=field))


@pytest.mark.parametrize(
    "answer",
    [
        Answer(400, field="title", issue="organizer"),
        Answer(400, field="coOrganizer"),
        Answer(400, message="the organizers are many"),
        Answer(404, message="no channel of this organizer"),
        Answer(403, message="organizer"),
    ],
)
def test_another_complaint_is_not_taken_for_the_announced_one(answer: Answer) -> None:
    assert not ORGANIZER.explains(answer)


def test_a_doubt_about_the_request_as_a_whole_is_borne_out_by_a_refusal_that_names_no_field() -> None:
    assert MOVED.explains(Answer(404))
    assert MOVED.explains(Answer(415))
    assert not MOVED.explains(Answer(403))
    assert not MOVED.explains(Answer(400, field="title"))


def _causes(*verdicts: Verdict, is_unanswered: bool = False) -> list[SyncError | None]:
    caution = CautiousStart((ORGANIZER, MOVED), owed=100)
    sent = intent(is_unanswered=is_unanswered)
    return [caution.cause(sent, verdict) for verdict in verdicts]


def test_a_route_that_is_gone_stops_the_drain_by_a_blocked_row() -> None:
    (cause,) = _causes(Blocked(Answer(404)))
    assert isinstance(cause, BrakeError)


def test_what_says_nothing_about_the_contract_neither_stops_nor_ends_the_care() -> None:
    postponed = Postponed(Answer(401), SyncError("the key is revoked"))
    silent = [
        Superseded(Answer(400, field="organizer")),
        Uncertain(Answer(503)),
        Conflict(Answer(409)),
        Blocked(Answer(403)),
        postponed,
    ]
    assert set(_causes(*silent)) == {None}
    assert isinstance(_causes(*silent, _refusal("organizer"))[-1], BrakeError)


def test_after_a_row_has_passed_the_same_refusal_is_a_rows_own() -> None:
    assert _causes(PASSED, _refusal("organizer")) == [None, None]


def test_a_row_that_an_earlier_run_may_have_sent_tells_nothing_by_passing() -> None:
    many = [PASSED] * (2 * PATIENT_ANSWERS)
    assert isinstance(_causes(*many, _refusal("organizer"), is_unanswered=True)[-1], BrakeError)
    assert isinstance(_causes(Unconfirmed(Answer(409)), _refusal("organizer"))[-1], BrakeError)


def test_the_care_does_not_last_for_ever() -> None:
    verdicts = [Uncertain(Answer(503))] * PATIENT_ANSWERS
    assert _causes(*verdicts, _refusal("organizer"))[-1] is None
