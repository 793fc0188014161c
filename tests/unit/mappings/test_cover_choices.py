"""What a mapping file may say about a cover image that cannot be used."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mappings.errors import MappingFileError
from mappings.outcome import Cover, MappedRow, RowOutcome, SourceRow
from mappings.spec.feed import FeedMapping

Build = Callable[..., FeedMapping]
Mapper = Callable[..., Callable[[SourceRow], RowOutcome]]
Row = Callable[..., SourceRow]
STAND_IN = 'coverImage: {image: {from: PICTURE}, on_error: default, default: "https://img.example/default.png"}\n'


def test_a_default_image_travels_with_the_row(mapper: Mapper, row: Row) -> None:
    outcome = mapper(event=STAND_IN)(row(PICTURE="https://img.example/a.png"))
    assert isinstance(outcome, MappedRow)
    assert outcome.cover is not None
    assert (outcome.cover.url, outcome.cover.stand_in) == ("https://img.example/a.png", "https://img.example/default.png")


def test_a_default_image_stands_in_for_an_address_that_is_none(mapper: Mapper, row: Row) -> None:
    outcome = mapper(event=STAND_IN.replace("{from: PICTURE}", "{from: PICTURE, do: [url]}"))(row(PICTURE="see attachment"))
    assert isinstance(outcome, MappedRow)
    assert outcome.cover == Cover("https://img.example/default.png", "omit")
    assert len(outcome.warnings) == 1


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        ("on_error: default", "belong together"),
        ('default: "https://img.example/a.png"', "belong together"),
        ('on_error: default, default: "no address"', "is not a web address"),
        ('on_error: defualt, default: "https://img.example/a.png"', "defualt"),
    ],
)
def test_a_choice_that_says_half_is_refused(build: Build, choice: str, problem: str) -> None:
    with pytest.raises(MappingFileError, match=problem):
        build(event=f"coverImage: {{image: {{from: PICTURE}}, {choice}}}\n")
