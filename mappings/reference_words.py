"""One word of the mapping language looked up in its reference: the section about it, or the keys that are called so.

The page itself is `reference`'s; nothing is said here that does not stand there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from mappings.reference import write_reference
from mappings.refusals import did_you_mean

_HEADING = re.compile(r"(#{2,4}) (.+)")
_CODE = re.compile(r"`([^`]+)`")
_CELLS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of the reference: its columns, and rows of equally many texts, still in Markdown."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the reference: the chapter and heading under which it stands, what it says, and its tables."""

    chapter: str
    heading: str
    promise: str
    tables: tuple[Grid, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The words that the section is about."""
        return tuple(_CODE.findall(self.heading))


@dataclass(frozen=True)
class Vocabulary:
    """The reference, by its words."""

    text: str

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """All sections, in the order of the page."""
        return tuple(_sections(self.text.splitlines()))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Every word that can be looked up: of headings, keys of tables, and reasons of rejection."""
        keys = (row[0] for section in self.sections for table in section.tables for row in table.rows)
        named = (word for section in self.sections for word in section.words)
        shared = (word for paragraph in self._opening for word in _CODE.findall(paragraph) if word.isidentifier())
        return tuple(dict.fromkeys([*named, *(key.strip("`") for key in keys if _CODE.fullmatch(key)), *shared]))

    def about(self, word: str) -> tuple[Section, ...]:
        """Return the sections about a word; else those whose tables have a key called so, with that row alone."""
        about = tuple(section for section in self.sections if word in section.words)
        return about or tuple(self._with_key(word)) or tuple(self._in_opening(word))

    def near(self, word: str) -> str:
        """Return `did you mean "x"?` for a word that the language does not have, or ""."""
        return did_you_mean(word, self.words)

    def _in_opening(self, word: str) -> Iterator[Section]:
        """What every value shares is told once, at the beginning of the page."""
        for paragraph in self._opening:
            if word in _CODE.findall(paragraph):
                yield Section("The mapping language", f"`{word}`", " ".join(paragraph.split()), ())

    @cached_property
    def _opening(self) -> tuple[str, ...]:
        return tuple(self.text.partition("\n## ")[0].split("\n\n")[2:])

    def _with_key(self, word: str) -> Iterator[Section]:
        for section in self.sections:
            found = [
                Grid(table.columns, tuple(row for row in table.rows if row[0] == f"`{word}`"))
                for table in section.tables
                if table.columns[0] in {"key", "code", "field"}
            ]
            if any(table.rows for table in found):
                yield Section(section.chapter, section.heading, section.promise, tuple(table for table in found if table.rows))


def read_vocabulary() -> Vocabulary:
    """Return the reference as it is written from the code."""
    return Vocabulary(write_reference())


def _sections(lines: Sequence[str]) -> Iterator[Section]:
    chapter, heading, body = "", "", list[str]()
    for line in lines:
        found = _HEADING.fullmatch(line)
        if found is None:
            body.append(line)
            continue
        if heading:
            yield _section(chapter, heading, body)
        chapter = found[2] if len(found[1]) == 2 else chapter
        heading, body = found[2], []
    if heading:
        yield _section(chapter, heading, body)


def _section(chapter: str, heading: str, body: Sequence[str]) -> Section:
    words = " ".join(line.strip() for line in body if line.strip() and not line.startswith("|"))
    return Section(chapter, heading, words, tuple(_tables(body)))


def _tables(lines: Sequence[str]) -> Iterator[Grid]:
    held: list[tuple[str, ...]] = []
    for line in [*lines, ""]:
        if line.startswith("|"):
            held.append(tuple(cell.strip().replace("\\|", "|") for cell in _CELLS.split(line)[1:-1]))
        elif held:
            yield Grid(held[0], tuple(held[2:]))
            held = []
