from __future__ import annotations

from collections.abc import Callable

from mappings.engine import Directory, compile_feed
from mappings.schema import FeedMapping
from mappings.tracing import explain_row
from mappings.vocabulary import SourceRow


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
        ("title", "html_unescape", " Jazz &amp; blues", " Jazz & blues"),
        ("title", "collapse", " Jazz & blues", "Jazz & blues"),
        ("$day", "date", "2026-07-01", ""),
        ("classifications", "split", "a/b", "a | b"),
        ("classifications", "map", "a | b", "art | music"),
    ]
    assert "This is not a date" in explanation.steps[2].refused
    assert "31/03/2026" in explanation.steps[2].refused
    assert explanation.outcome == compile_feed(mapping, Directory())(told)
