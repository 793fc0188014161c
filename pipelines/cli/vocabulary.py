"""`eventsync vocabulary`: the reference of the mapping language, whole or one word."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from mappings.errors import ConfigError
    from mappings.reference import Grid, Vocabulary, VocabularySection, read_vocabulary
    from pipelines.cli.output.console import Output

Word = Annotated[str | None, typer.Argument(metavar="[WORD]", help="A step, a value, a rule, a key or a reason's code.")]


def vocabulary(word: Word = None, as_json: AsJson = False) -> int:
    """Print the reference of the mapping language, or what one of its words means, with examples.

    For example:

        # One step
        eventsync vocabulary truncate
        # A key, wherever it may stand
        eventsync vocabulary on_empty
        # The whole page, in Markdown
        eventsync vocabulary > vocabulary.md

    Exit codes: 0, or 2 for a word that the language does not have.
    """
    output, known = Output(json=as_json), read_vocabulary()
    sections = known.sections if word is None else _about(known, word)
    output.document(VocabularyPage(word=word, sections=[_document(section) for section in sections]))
    if as_json:
        return 0
    if word is None:
        sys.stdout.write(known.text)
        return 0
    for section in sections:
        _show(output, section)
    return 0


class PageSection(TypedDict):
    """A part of the language's reference, in plain words."""

    chapter: str
    heading: str
    words: Sequence[str]
    meaning: str
    tables: Sequence[Sequence[Mapping[str, str]]]


class VocabularyPage(TypedDict):
    """What a word of the language means; without a word, all there is."""

    word: str | None
    sections: Sequence[PageSection]


def _about(known: Vocabulary, word: str) -> tuple[VocabularySection, ...]:
    found = known.about(word.strip("`"))
    if not found:
        hint = known.near(word) or "`eventsync vocabulary` prints the whole page"
        raise ConfigError(f'the mapping language has no word "{word}"', hint=hint)
    return found


def _document(section: VocabularySection) -> PageSection:
    return PageSection(
        chapter=section.chapter,
        heading=_plain(section.heading),
        words=section.words,
        meaning=_plain(section.promise),
        tables=[[_row(table, cells) for cells in table.rows] for table in section.tables],
    )


def _row(table: Grid, cells: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(table.columns, map(_plain, cells), strict=True))


def _show(output: Output, section: VocabularySection) -> None:
    where = "" if section.chapter == section.heading else f"  ({_plain(section.chapter)})"
    output.note(f"{_plain(section.heading)}{where}")
    output.note(f"  {_plain(section.promise)}\n" if section.promise else "")
    for table in section.tables:
        output.table("", table.columns, [tuple(map(_plain, cells)) for cells in table.rows])


def _plain(text: str) -> str:
    """Return Markdown as a terminal shows it."""
    return text.replace("`", "")
