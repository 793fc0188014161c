"""Which listed event is which row's: whatever fields the items have, only what is beyond doubt is taken."""

from __future__ import annotations

import json
import time
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


def row(*, key: str = "", **changed: Any) -> RowRecord:
    number = next(_NUMBERS)
    nothing = dict.fromkeys(("event_id", "unanswered_at", "answer", "drift_body", "drift_kind", "vanished_at"))
    return RowRecord(
        entry_id=number,
        row_key=RowKey(f"r{number}"),
        state=EntryState.DELIVERED_UNCONFIRMED,
        key=IdempotencyKey(key or f"es1-{number:032x}"),
        revision=0,
        body=json.dumps(PAYLOAD | changed).encode(),
        channel_id=3,
        attempts=1,
        origin="agenda.csv:2",
        staged_run="run-1",
        sent_run="run-1",
        created_at=START,
        updated_at=START,
        **nothing,
    )


def event(event_id: int = 1, **fields: Any) -> ListedEvent:
    return ListedEvent(event_id, {"id": event_id, **fields})


def matched(
    rows: list[RowRecord], events: list[ListedEvent], owners: Mapping[int, str] | None = None, rivals: Sequence[RowRecord] = ()
) -> list[RowVerdict]:
    matching = Matching([*((one, False) for one in rows), *((one, True) for one in rivals)])
    for one in events:
        matching.meet(one)
    return list(matching.verdicts(owners or {}))


SAME: dict[str, dict[str, Any]] = {
    "title and start": {"title": PAYLOAD["title"], "startAt": PAYLOAD["startAt"]},
    "another spelling": {"title": " JAZZ im Hof ", "startAt": "2026-05-01T17:30:00.000Z"},
    "everything": PAYLOAD,
    "published since": PAYLOAD | {"status": "published"},
    "things in place of ids": {
        "title": PAYLOAD["title"],
        "startAt": PAYLOAD["startAt"],
        "channel": {"id": 3, "slug": "x"},
        "coverImage": {"id": 9, "url": "https://x.example"},
        "classifications": ["jazz", "music"],
    },
    "what cannot be compared": {
        "title": PAYLOAD["title"],
        "startAt": PAYLOAD["startAt"],
        "endAt": 1_777_000_000,
        "locationName": None,
        "classifications": [{"slug": "music"}, {"slug": "jazz"}],
        "timezone": "",
        "offers": "see there",
    },
    "more inside": {
        "title": PAYLOAD["title"],
        "startAt": PAYLOAD["startAt"],
        "approxLocation": {"city": {"placeId": "ber", "lat": 52.5}},
        "offers": [{"id": 4, "url": "https://t.example/1", "name": "Tickets"}],
    },
}


@pytest.mark.parametrize("name", SAME)
def test_an_event_that_agrees_in_title_and_start_and_differs_in_nothing_is_taken(name: str) -> None:
    (verdict,) = matched([row()], [event(7, **SAME[name]), event(8, title="Other", startAt=PAYLOAD["startAt"])])
    assert (verdict.verdict, verdict.event_ids) == (Verdict.FOUND, (7,))
    assert "title" in verdict.why
    assert "startAt" in verdict.why


@pytest.mark.parametrize(
    "differing",
    [
        {"channelId": 4},
        {"channel": {"id": 4}},
        {"idempotencyKey": "somebody else's"},
        {"startAt": "2026-05-01T19:30:00+01:00"},
    ],
)
def test_an_event_of_another_channel_start_or_key_is_another_one(differing: dict[str, Any]) -> None:
    (verdict,) = matched([row()], [event(7, **SAME["title and start"] | differing)])
    assert (verdict.verdict, verdict.event_ids, verdict.may_be_resent) == (Verdict.ABSENT, (), True)


@pytest.mark.parametrize(
    "differing",
    [
        {"endAt": "2026-05-01T23:00:00+02:00"},
        {"locationName": "Keller"},
        {"approxLocation": {"city": {"placeId": "muc"}}},
        {"classifications": ["music"]},
        {"offers": [{"url": "https://t.example/2"}]},
    ],
)
def test_an_event_of_the_same_title_and_start_that_differs_elsewhere_is_shown(differing: dict[str, Any]) -> None:
    (verdict,) = matched([row()], [event(7, **SAME["title and start"] | differing)])
    assert (verdict.verdict, verdict.event_ids) == (Verdict.CANDIDATE, (7,))
    assert f"but not {next(iter(differing))}" in verdict.why


def body(**changed: Any) -> bytes:
    return json.dumps(PAYLOAD | changed).encode()


def test_an_event_is_found_by_what_the_source_asks_for_now_or_by_the_baseline() -> None:
    asked = replace(row(title="Edited"), drift_body=body())
    applied = replace(row(title="Edited"), baseline_body=body(), drift_body=body(title="Edited again"))
    for one, shown in ((asked, asked.drift_body), (applied, None)):
        (verdict,) = matched([one], [event(7, **PAYLOAD)])
        assert (verdict.verdict, verdict.event_ids, verdict.shown) == (Verdict.FOUND, (7,), shown)


def test_the_pinned_body_is_preferred_where_the_list_shows_too_little_to_tell() -> None:
    (verdict,) = matched([replace(row(locationName="Keller"), drift_body=body())], [event(7, **SAME["title and start"])])
    assert (verdict.verdict, verdict.shown) == (Verdict.FOUND, None)


@pytest.mark.parametrize("fields", [PAYLOAD, {"title": PAYLOAD["title"]}, PAYLOAD | {"locationName": "Keller"}])
def test_a_row_is_not_to_be_sent_again_where_the_list_has_an_event_like_it_of_another_row(fields: dict[str, Any]) -> None:
    (verdict,) = matched([row()], [event(7, **fields)], {7: "row x of other"})
    assert (verdict.verdict, verdict.may_be_resent) == (Verdict.ABSENT, False)
    assert "row x of other" in verdict.why


@pytest.mark.parametrize(
    "fields", [{"title": "Jazz im Hof"}, {"startAt": PAYLOAD["startAt"]}, {"title": "jazz im hof", "startAt": 5}]
)
def test_one_of_the_two_alone_makes_a_candidate_and_is_never_taken(fields: dict[str, Any]) -> None:
    (verdict,) = matched([row()], [event(7, **fields)])
    assert (verdict.verdict, verdict.event_ids) == (Verdict.CANDIDATE, (7,))


def test_items_that_show_nothing_but_their_id_say_nothing() -> None:
    (verdict,) = matched([row()], [event(1), event(2), event(3, channelId=3)])
    assert (verdict.verdict, verdict.may_be_resent) == (Verdict.ABSENT, False)
    assert verdict.why == "the list shows neither title nor start of 3 events: nothing can be said"


@pytest.mark.parametrize("name", ["idempotencyKey", "externalId", "external_id"])
def test_an_item_that_tells_the_rows_key_is_its_event_whatever_else_it_says(name: str) -> None:
    (verdict,) = matched([row(key="es1-k")], [event(7, **{name: "es1-k"}, title="Renamed by hand"), event(8, **PAYLOAD)])
    assert (verdict.verdict, verdict.event_ids) == (Verdict.FOUND, (7,))


def test_two_events_alike_are_shown_and_not_chosen_between() -> None:
    (verdict,) = matched([row()], [event(7, **PAYLOAD), event(8, **PAYLOAD)])
    assert (verdict.verdict, verdict.event_ids) == (Verdict.CANDIDATE, (7, 8))


def test_of_two_events_alike_one_that_is_another_rows_leaves_the_other() -> None:
    (verdict,) = matched([row()], [event(7, **PAYLOAD), event(8, **PAYLOAD)], {7: "row x of other"})
    assert (verdict.verdict, verdict.event_ids) == (Verdict.FOUND, (8,))
    (verdict,) = matched([row()], [event(7, **PAYLOAD)], {7: "row x of other"})
    assert (verdict.verdict, verdict.why) == (Verdict.ABSENT, "the one that looks like it is row x of other")


@pytest.mark.parametrize("is_rival", [False, True])
def test_an_event_that_two_rows_look_like_is_given_to_neither(is_rival: bool) -> None:
    rows = [row(), row()]
    verdicts = matched(rows[: 2 - is_rival], [event(7, **SAME["title and start"])], rivals=rows[2 - is_rival :])
    assert len(verdicts) == 2 - is_rival
    assert {one.verdict for one in verdicts} == {Verdict.CANDIDATE}


def test_rows_alike_in_title_and_start_are_told_apart_by_what_else_is_told() -> None:
    hof, keller = row(), row(locationName="Keller")
    events = [event(7, **PAYLOAD | {"locationName": "Keller"}), event(8, **PAYLOAD)]
    assert [one.event_ids for one in matched([hof, keller], events)] == [(8,), (7,)]


def test_an_event_that_tells_one_rows_key_is_no_other_rows() -> None:
    mine, other = row(key="es1-a"), row()
    verdicts = matched([mine, other], [event(7, **PAYLOAD, idempotencyKey="es1-a")])
    assert [one.verdict for one in verdicts] == [Verdict.FOUND, Verdict.ABSENT]


def test_many_events_cost_seconds_and_no_memory() -> None:
    rows = [row(title=f"Evening {number}") for number in range(2_000)]
    matching = Matching([(one, False) for one in rows])
    tracemalloc.start()
    started = time.process_time()
    for number in range(8_000):
        matching.meet(event(number, title=f"Evening {number * 4}", startAt=PAYLOAD["startAt"], channelId=3))
    took_s, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    verdicts = list(matching.verdicts({}))
    assert sum(one.verdict is Verdict.FOUND for one in verdicts) == 500
    assert took_s < 10
    assert peak < 3_000_000
