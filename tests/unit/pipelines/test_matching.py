"""Which listed event is which row's: whatever fields the items have, only what is beyond doubt is taken."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from connectors.event_api.lists import ListedEvent
from mappings.row_key import IdempotencyKey, RowKey
from pipelines.run.reconcile import Matching, RowVerdict, Verdict
from state.enums import EntryState
from state.ledger.standing import RowRecord

PAYLOAD: dict[str, Any] = {
    "channelId": 3,
    "title": "Jazz  im Hof",
    "startAt": "2026-05-01T19:30:00+02:00",
    "endAt": "2026-05-01T22:00:00+02:00",
    "timezone": "Europe/Berlin",
    "status": "draft",
    "classifications": ["music", "jazz"],
    "approxLocation": {"city": {"placeId": "ber", "name": "Berlin", "countryCode": "DE"}},
    "locationName": "Hof",
    "coverImage": 9,
    "offers": [{"name": "Tickets", "url": "https://t.example/1"}],
}
_NUMBERS = count(1)
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SENT: dict[str, Any] = {"state": EntryState.DELIVERED_UNCONFIRMED, "revision": 0, "channel_id": 3, "attempts": 1}
SENT |= {"origin": "agenda.csv:2", "staged_run": "run-1", "sent_run": "run-1", "created_at": START, "updated_at": START}
SENT |= dict.fromkeys(("event_id", "unanswered_at", "answer", "drift_body", "drift_kind", "vanished_at"))


def body(**changed: Any) -> bytes:
    return json.dumps(PAYLOAD | changed).encode()


def row(*, key: str = "", **changed: Any) -> RowRecord:
    number = next(_NUMBERS)
    key = key or f"es1-{number:032x}"
    return RowRecord(entry_id=number, row_key=RowKey(f"r{number}"), key=IdempotencyKey(key), body=body(**changed), **SENT)


def event(event_id: int = 1, **fields: Any) -> ListedEvent:
    return ListedEvent(event_id, {"id": event_id, **fields})


def matched(
    rows: list[RowRecord], events: list[ListedEvent], owners: Mapping[int, str] | None = None, rivals: Sequence[RowRecord] = ()
) -> list[RowVerdict]:
    matching = Matching([*((one, False) for one in rows), *((one, True) for one in rivals)])
    for one in events:
        matching.meet(one)
    return list(matching.verdicts(owners or {}))


BARE = {"title": PAYLOAD["title"], "startAt": PAYLOAD["startAt"]}
THINGS = {
    "channel": {"id": 3, "slug": "x"},
    "coverImage": {"id": 9, "url": "https://x.example"},
    "classifications": ["jazz", "music"],
}
UNLIKE = {
    "endAt": 1_777_000_000,
    "locationName": None,
    "classifications": [{"slug": "jazz"}],
    "timezone": "",
    "offers": "see there",
}
MORE = {
    "approxLocation": {"city": {"placeId": "ber", "lat": 52.5}},
    "offers": [{"id": 4, "url": "https://t.example/1", "name": "Tickets"}],
}
OWNED = {7: "row x of other"}
KELLER = PAYLOAD | {"locationName": "Keller"}
FOUND, CANDIDATE, ABSENT = Verdict.FOUND, Verdict.CANDIDATE, Verdict.ABSENT


@pytest.mark.parametrize(
    ("fields", "verdict", "may_be_resent", "why"),
    [
        # title and start agree, and nothing differs
        (BARE, FOUND, False, "title"),
        ({"title": " JAZZ im Hof ", "startAt": "2026-05-01T17:30:00.000Z"}, FOUND, False, "startAt"),
        (PAYLOAD, FOUND, False, ""),
        (PAYLOAD | {"status": "published"}, FOUND, False, ""),  # published since
        (BARE | THINGS, FOUND, False, ""),  # things in place of ids
        (BARE | UNLIKE, FOUND, False, ""),  # what cannot be compared
        (BARE | MORE, FOUND, False, ""),  # more inside
        # another channel, start or key is another event
        (BARE | {"channelId": 4}, ABSENT, True, ""),
        (BARE | {"channel": {"id": 4}}, ABSENT, True, ""),
        (BARE | {"idempotencyKey": "of another row"}, ABSENT, True, ""),
        (BARE | {"startAt": "2026-05-01T19:30:00+01:00"}, ABSENT, True, ""),
        # what differs elsewhere is shown
        (BARE | {"endAt": "2026-05-01T23:00:00+02:00"}, CANDIDATE, False, "but not endAt"),
        (BARE | {"locationName": "Keller"}, CANDIDATE, False, "but not locationName"),
        (BARE | {"approxLocation": {"city": {"placeId": "muc"}}}, CANDIDATE, False, "but not approxLocation"),
        (BARE | {"classifications": ["music"]}, CANDIDATE, False, "but not classifications"),
        (BARE | {"offers": [{"url": "https://t.example/2"}]}, CANDIDATE, False, "but not offers"),
        # one that was edited before its ledger was lost is shown, not sent again: two of title, start and place agree
        (PAYLOAD | {"title": "Blues im Hof"}, CANDIDATE, False, "but not title"),
        (PAYLOAD | {"startAt": "2026-05-01T20:30:00+02:00"}, CANDIDATE, False, "but not startAt"),
        (PAYLOAD | {"title": "Blues im Hof", "channelId": 4}, ABSENT, True, ""),
        (PAYLOAD | {"title": "Blues im Hof", "locationName": "Keller"}, ABSENT, True, ""),
        (PAYLOAD | {"title": "Blues im Hof", "startAt": "2026-05-01T20:30:00+02:00"}, ABSENT, True, ""),
        # title or start alone is never enough
        ({"title": "Jazz im Hof"}, CANDIDATE, False, ""),
        ({"startAt": PAYLOAD["startAt"]}, CANDIDATE, False, ""),
        ({"title": "jazz im hof", "startAt": 5}, CANDIDATE, False, ""),
        # an id alone says nothing
        ({"channelId": 3}, ABSENT, False, "the list shows neither title nor start of 1 events"),
        # the row's key is enough, whatever else stands there
        *(
            ({name: "es1-k", "title": "Renamed by hand"}, FOUND, False, "")
            for name in ("idempotencyKey", "externalId", "external_id")
        ),
    ],
)
def test_an_event_is_a_rows_where_it_shows_its_key_or_agrees_in_title_and_start_and_differs_in_nothing(
    fields: dict[str, Any], verdict: Verdict, may_be_resent: bool, why: str
) -> None:
    (found,) = matched([row(key="es1-k")], [event(7, **fields), event(8, title="Other", startAt=PAYLOAD["startAt"])])
    assert (found.verdict, found.may_be_resent) == (verdict, may_be_resent)
    assert found.event_ids == (() if verdict is ABSENT else (7,))
    assert why in found.why


@pytest.mark.parametrize(
    ("events", "verdict", "event_ids", "why"),
    [
        ([event(7, **PAYLOAD), event(8, **PAYLOAD)], FOUND, (8,), ""),
        ([event(7, **PAYLOAD)], ABSENT, (), "the similar event belongs to row x of other"),
        ([event(7, title=PAYLOAD["title"])], ABSENT, (), "row x of other"),
        ([event(7, **KELLER)], ABSENT, (), "row x of other"),
    ],
    ids=["two alike", "the only one", "one of the same title", "one that differs"],
)
def test_an_event_of_another_row_is_not_taken_and_what_looks_like_it_is_not_sent_again(
    events: list[ListedEvent], verdict: Verdict, event_ids: tuple[int, ...], why: str
) -> None:
    (found,) = matched([row()], events, OWNED)
    assert (found.verdict, found.event_ids, found.may_be_resent) == (verdict, event_ids, False)
    assert why in found.why


def test_an_event_is_found_by_what_the_source_asks_for_now_or_by_the_baseline_and_else_by_the_pinned_body() -> None:
    asked = replace(row(title="Edited"), drift_body=body())
    applied = replace(row(title="Edited"), baseline_body=body(), drift_body=body(title="Edited again"))
    vague = replace(row(locationName="Keller"), drift_body=body())  # the list shows too little to tell the two apart
    for one, fields, shown in ((asked, PAYLOAD, asked.drift_body), (applied, PAYLOAD, None), (vague, BARE, None)):
        (verdict,) = matched([one], [event(7, **fields)])
        assert (verdict.verdict, verdict.event_ids, verdict.shown) == (FOUND, (7,), shown)


def test_an_event_of_one_place_that_is_another_rows_stands_in_no_rows_way() -> None:
    blues, other = row(title="Blues im Hof"), row()
    assert [one.verdict for one in matched([other, blues], [event(7, **PAYLOAD)])] == [FOUND, ABSENT]
    (verdict,) = matched([blues], [event(7, **PAYLOAD)], OWNED)
    assert (verdict.verdict, verdict.may_be_resent) == (ABSENT, True)


def test_a_row_is_not_sent_again_where_more_events_of_its_place_are_similar_than_are_compared() -> None:
    showings = [event(number, **PAYLOAD | {"startAt": f"2026-06-{number:02d}T19:30:00+02:00"}) for number in range(1, 26)]
    (verdict,) = matched([row()], showings, dict.fromkeys(range(1, 25), "row x of other"))
    assert (verdict.verdict, verdict.may_be_resent) == (ABSENT, False)
    assert "at least 20 events of its place are similar" in verdict.why


def test_two_events_alike_are_shown_and_not_chosen_between() -> None:
    (verdict,) = matched([row()], [event(7, **PAYLOAD), event(8, **PAYLOAD)])
    assert (verdict.verdict, verdict.event_ids) == (CANDIDATE, (7, 8))


@pytest.mark.parametrize("is_rival", [False, True])
def test_an_event_that_two_rows_look_like_is_given_to_neither(is_rival: bool) -> None:
    rows = [row(), row()]
    verdicts = matched(rows[: 2 - is_rival], [event(7, **BARE)], rivals=rows[2 - is_rival :])
    assert [one.verdict for one in verdicts] == [CANDIDATE] * (2 - is_rival)


def test_rows_alike_are_told_apart_by_what_else_is_shown_and_by_the_key_of_one() -> None:
    hof, keller = row(), row(locationName="Keller")
    assert [one.event_ids for one in matched([hof, keller], [event(7, **KELLER), event(8, **PAYLOAD)])] == [(8,), (7,)]
    mine, other = row(key="es1-a"), row()
    verdicts = matched([mine, other], [event(7, **PAYLOAD, idempotencyKey="es1-a")])
    assert [one.verdict for one in verdicts] == [FOUND, ABSENT]


def test_many_events_cost_no_memory() -> None:
    matching = Matching([(row(title=f"Evening {number}"), False) for number in range(2_000)])
    tracemalloc.start()
    for number in range(8_000):
        matching.meet(event(number, title=f"Evening {number * 4}", startAt=PAYLOAD["startAt"], channelId=3))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(one.verdict is FOUND for one in matching.verdicts({})) == 500
    assert peak < 3_000_000
