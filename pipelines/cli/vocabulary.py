"""`eventsync vocabulary`: prints the reference of the mapping language, or of one word."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from mappings.errors import ConfigError
    from mappings.reference import VocabularySection, read_vocabulary
    from pipelines.cli.output.console import Output, document_from
    from pipelines.safe_output import undisturbed

Word = Annotated[str | None, typer.Argument(metavar="[WORD]", help="A step, value, rule, key, or code of a reason.")]


def vocabulary(word: Word = None, as_json: AsJson = False) -> int:
    """Print the reference of the mapping language, or the meaning of one word, with examples.

    For example:

        # One step
        eventsync vocabulary truncate
        # A key, in all places where it is allowed
        eventsync vocabulary on_empty
        # The whole page, in Markdown
        eventsync vocabulary > vocabulary.md

    Exit codes: 0 done, 2 the language has no such word.
    """
    output, known = Output(is_json=as_json), read_vocabulary()
    sections = known.sections if word is None else known.about(word.strip("`"))
    if word is not None and not sections:
        hint = known.near(word) or "`eventsync vocabulary` prints the whole page"
        raise ConfigError(f'the mapping language has no word "{word}"', hint=hint)
    pages = [_document(section) for section in sections]
    output.document(VocabularyPage(word=word, sections=pages))
    if word is None and not as_json:
        undisturbed(sys.stdout).write(known.text)
        return 0
    for page in pages if not as_json else ():
        chapter = _plain(page["chapter"])
        heading = page["heading"] if chapter == page["heading"] else f"{page['heading']}  ({chapter})"
        output.note(heading, f"  {page['meaning']}\n" if page["meaning"] else "")
        for table in page["tables"]:
            output.table("", table)
    return 0


class PageSection(TypedDict):
    """A section of the reference, as plain text."""

    chapter: str
    heading: str
    words: Sequence[str]
    meaning: str
    tables: Sequence[Sequence[Mapping[str, str]]]


class VocabularyPage(TypedDict):
    """The sections about a word; without a word, the whole reference."""

    word: str | None
    sections: Sequence[PageSection]


def _document(section: VocabularySection) -> PageSection:
    tables = [[dict(zip(table.columns, map(_plain, cells), strict=True)) for cells in table.rows] for table in section.tables]
    return document_from(PageSection, section, heading=_plain(section.heading), meaning=_plain(section.promise), tables=tables)


def _plain(text: str) -> str:
    """Remove Markdown's backquotes from text."""
    return text.replace("`", "")
