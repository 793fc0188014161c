from __future__ import annotations

from collections.abc import Callable

from mappings.compiler.mapper import compile_feed, explain_row
from mappings.event import Directory
from mappings.outcome import SourceRow
from mappings.spec.feed import FeedMapping


def test_each_step_of_a_row_is_shown_with_its_input(build: Callable[..., FeedMapping], row: Callable[..., SourceRow]) -> None:
    top = 'let: {day: {from: DAY, do: [{date: "%d/%m/%Y"}]}}\n'
    event = (
        "title: {from: TITLE, do: [html_unescape, collapse]}\n"
        "startAt: {at: {day: $day, zone: Europe/Lisbon, all_day: '10:00'}}\n"
        "classifications: {from: KIND, do: [{split: '/'}, {map: {a: art, b: music}}]}"
    )
    mapping = build(top=top, event=event)
    told = row(TITLE=" Jazz &amp; blues", DAY="2026-07-01", KIND="a/b")
    explanation = explain_row(mapping, Directory(), told)
    steps = [(step.field, step.step, step.goes_in, step.comes_out) for step in explanation.steps]
    assert steps == [
        ("title", "from TITLE", "", " Jazz &amp; blues"),
        ("title", "html_unescape", " Jazz &amp; blues", " Jazz & blues"),
        ("title", "collapse", " Jazz & blues", "Jazz & blues"),
        ("$day", "from DAY", "", "2026-07-01"),
        ("$day", "date", "2026-07-01", ""),
        ("classifications", "from KIND", "", "a/b"),
        ("classifications", "split", "a/b", "a | b"),
        ("classifications", "map", "a | b", "art | music"),
    ]
    (refused,) = (step.refused for step in explanation.steps if step.refused)
    assert "This is not a date" in refused
    assert "31/03/2026" in refused
    assert explanation.outcome == compile_feed(mapping, Directory())(told)


def test_steps_after_a_tolerated_refusal_are_shown_too(build: Callable[..., FeedMapping], row: Callable[..., SourceRow]) -> None:
    event = "classifications: {from: KIND, do: [{split: '/'}, {map: {a: art}, on_miss: warn}, upper]}"
    steps = explain_row(build(event=event), Directory(), row(KIND="a/b")).steps
    told = [(step.step, step.goes_in, step.comes_out, bool(step.refused)) for step in steps if step.field == "classifications"]
    assert told == [
        ("from KIND", "", "a/b", False),
        ("split", "a/b", "a | b", False),
        ("map", "a | b", "", True),
        ("map", "a", "art", False),
        ("map", "b", "", True),
        ("upper", "art", "ART", False),
    ]


def test_values_without_steps_tell_what_they_gave(build: Callable[..., FeedMapping], row: Callable[..., SourceRow]) -> None:
    event = (
        "title: {join: [{from: TITLE}, {from: MORE}], with: ': '}\n"
        "status: {choose: [{when: {column: MORE, is: missing}, then: draft}], otherwise: published}"
    )
    steps = explain_row(build(event=event), Directory(), row(MORE="live")).steps
    given = {(step.field, step.step): step.comes_out for step in steps}
    assert given[("title", "join")] == "Jazz: live"
    assert given[("status", "choose")] == "published"
