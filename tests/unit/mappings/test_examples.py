"""Examples in a mapping file: what each says must become of its rows, and what did."""

from __future__ import annotations

import pytest
from unit.mappings.conftest import Build, cases

from mappings.errors import MappingFileError
from mappings.examples import run_examples

RULES = {
    "window": "rows: [{window: {past: skip}}]\n",
    "recur": """rows:
  - recur: {from: {from: DAY, do: [{date: "%Y-%m-%d"}]}, until: "2026-05-05", horizon: 9d}
  - window: {past: skip}
""",
    "days": """let: {days: {from: DAYS, do: [{dates: "%d %B %Y", by: [",", " and "]}]}}
rows: [{recur: {days: $days, at_most: 3, horizon: 9d}}]
""",
    "group": "rows: [{group: {collect: offers}}]\n",
}
EVENTS = dict.fromkeys(("recur", "days"), 'startAt: {at: {day: $day, zone: Europe/Lisbon, all_day: "20:00"}}')
EVENTS["group"] = "offers: [{name: {from: OFFER}}]"
TWO = "row: {ID: 1, TITLE: Jazz, DAY: 2026-05-04}"
EXAMPLES = cases("""
window | row: {ID: 1, TITLE: Jazz}, event: {title: Jazz, channelId: 7, approxLocation.city.placeId: pt-lisboa} => NOTHING
window | row: {ID: 1, TITLE: Jazz}, event: {title: Jazz, endAt: absent} ~ row: {}, skipped: blank row => NOTHING
window | row: {ID: 1, TITLE: Jazz}, event: {title: Blues} => example 1, title: expected "Blues", got "Jazz"
window | row: {ID: 1, TITLE: x}, event: {classifications: [a, b]} => example 1, classifications: expected ["a","b"], got ["music"]
window | row: {ID: 1, TITLE: Jazz}, event: {endAt: soon} => example 1, endAt: expected "soon", got nothing
window | row: {ID: 1}, rejected: {title: required} ~ row: {TITLE: x}, rejected: {'': required} => NOTHING
window | row: {ID: 1}, rejected: {title: not_a_date} => example 1, title: expected not_a_date, got required
window | row: {ID: 1}, event: {title: x} => example 1: expected an event, got a rejection: title: required (fill in the column
window | row: {ID: 1}, skipped: old => example 1: expected skipped as "old", got a rejection: title: required
window | row: {ID: 1, TITLE: x}, event: {title: x}, as_of: '2026-06-01T00:00:00Z' => NOTHING
window | row: {ID: 1, TITLE: x}, skipped: already over, as_of: '2026-08-01T00:00:00Z' => NOTHING
recur | TWO, events: [{title: Jazz}, {startAt: '2026-05-05T20:00:00+01:00'}] => NOTHING
recur | TWO, events: [{title: Jazz}, {title: Blues}] => example 1, events[1].title: expected "Blues", got "Jazz"
recur | TWO, events: [{title: Jazz}] => example 1: expected 1 events, got 2: an event
recur | TWO, event: {title: Jazz} => example 1: expected one outcome, got 2: an event
recur | TWO, as_of: '2026-05-05T12:00:00Z', events: [{title: Jazz}] => NOTHING
recur | row: {ID: 1, TITLE: Jazz, DAY: 2026-05-09}, rejected: {'': end_before_start} => NOTHING
recur | row: {ID: 1, TITLE: Jazz, DAY: 2026-05-05}, event: {title: Jazz} => NOTHING
days | row: {ID: 1, TITLE: Jazz, DAYS: '7, 3 and 7 May 2026'}, events: [{startAt: '2026-05-03T20:00:00+01:00'}, {}] => NOTHING
days | row: {ID: 1, TITLE: Jazz, DAYS: '7, 3 and 7 May 2026'}, events: [{}, {startAt: '2026-05-07T20:00:00+01:00'}] => NOTHING
days | row: {ID: 2, TITLE: Jazz, DAYS: ''}, rejected: {'': required} => NOTHING
days | row: {ID: 3, TITLE: Jazz, DAYS: '3, 4, 5 and 6 May 2026'}, rejected: {'': too_many} => NOTHING
group | rows: [{ID: 1, TITLE: x, OFFER: a}, {ID: 1, OFFER: b}], event: {offers: [{name: a}, {name: b}]} => NOTHING
""")


@pytest.mark.parametrize(("rules", "example", "told"), EXAMPLES)
def test_an_example_says_what_was_expected_and_what_came(rules: str, example: str, told: str, build: Build) -> None:
    written = example.replace("TWO", TWO)
    mapping = build(top=f"{RULES[rules]}examples: [{{{written}}}]\n", event=EVENTS.get(rules, ""))
    found = [str(one)[: len(told)] for one in run_examples(mapping)]
    assert found == ([] if told == "NOTHING" else [told])


def test_a_named_value_may_not_hide_what_tells_events_apart(build: Build) -> None:
    with pytest.raises(MappingFileError, match=r'4:12: "\$day" is what distinguishes the events of a row'):
        build(top='let: {day: {from: DAY}}\nrows:\n  - recur: {from: "2026-05-01", horizon: 9d}\n')
    assert build(top="let: {day: {from: DAY}}\n")
