from __future__ import annotations

from collections.abc import Callable

import pytest

from mappings.examples import run_examples
from mappings.spec.feed import FeedMapping


@pytest.mark.parametrize(
    ("example", "told"),
    [
        ("row: {ID: 1, TITLE: Jazz}, event: {title: Jazz, channelId: 7, approxLocation.city.placeId: pt-lisboa}", ()),
        ("row: {ID: 1, TITLE: Jazz}, event: {title: Jazz, endAt: absent}", ()),
        ("row: {ID: 1, TITLE: Jazz}, event: {title: Blues}", ('example 1, title: expected "Blues", got "Jazz"',)),
        (
            "row: {ID: 1, TITLE: Jazz}, event: {classifications: [music, dance]}",
            ('example 1, classifications: expected ["music","dance"], got ["music"]',),
        ),
        ("row: {ID: 1, TITLE: Jazz}, event: {endAt: soon}", ('example 1, endAt: expected "soon", got nothing',)),
        ("row: {ID: 1}, rejected: {title: required}", ()),
        ("row: {TITLE: x}, rejected: {'': required}", ()),
        ("row: {ID: 1}, rejected: {title: not_a_date}", ("example 1, title: expected not_a_date, got required",)),
        (
            "row: {ID: 1}, event: {title: x}",
            ('example 1: expected an event, got a rejection: title: required (fill in the column "TITLE")',),
        ),
        ("row: {}, skipped: blank row", ()),
        ("row: {ID: 1}, skipped: old", ('example 1: expected skipped as "old", got a rejection: title: required',)),
        ("row: {ID: 1, TITLE: x}, event: {title: x}, as_of: '2026-06-01T00:00:00Z'", ()),
        ("row: {ID: 1, TITLE: x}, skipped: already over, as_of: '2026-08-01T00:00:00Z'", ()),
    ],
)
def test_an_example_says_what_was_expected_and_what_came(
    example: str, told: tuple[str, ...], build: Callable[..., FeedMapping]
) -> None:
    mapping = build(top=f"rows: [{{window: {{past: skip}}}}]\nexamples: [{{{example}}}]\n")
    found = tuple(map(str, run_examples(mapping)))
    assert len(found) == len(told)
    assert all(one.startswith(start) for one, start in zip(found, told, strict=True))
