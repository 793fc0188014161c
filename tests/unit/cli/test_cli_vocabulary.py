"""`eventsync vocabulary`: the whole reference, one word of it, or the word that was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.cli.conftest import Desk

PAGE = Path(__file__).parents[3] / "docs" / "vocabulary.md"


def test_without_a_word_the_page_is_printed_as_it_stands_in_the_documentation(desk: Desk) -> None:
    assert desk.run("vocabulary").out == PAGE.read_text("utf-8")


def test_a_step_is_told_with_its_parameters_and_examples(desk: Desk) -> None:
    said = desk.run("vocabulary", "truncate")
    assert said.code == 0
    assert "ellipsis" in said.out
    assert "Jazz and the…" in said.out
    (section,) = desk.run("vocabulary", "truncate", "--json").document["sections"]
    assert section["chapter"] == "Steps: text"
    assert section["tables"][1][0] == {
        "written": "{truncate: 14}",
        "goes in": "Jazz and the blues",
        "comes out": "Jazz and the…",
    }


def test_a_word_with_several_meanings_is_told_with_all_of_them(desk: Desk) -> None:
    chapters = [section["chapter"] for section in desk.run("vocabulary", "lookup", "--json").document["sections"]]
    assert chapters == ["Values", "Steps: lookups"]


@pytest.mark.parametrize(
    ("word", "told"), [("delimiter", "One character"), ("on_empty", "on_empty"), ("not_a_date", "not a date")]
)
def test_keys_and_codes_are_words_too(desk: Desk, word: str, told: str) -> None:
    said = desk.run("vocabulary", word)
    assert said.code == 0
    assert told in said.out
