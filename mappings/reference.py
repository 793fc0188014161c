"""The reference of the mapping language, written from the code: what a step promises, its parameters, its examples.

The words themselves stand beside the steps; `docs/vocabulary.md` is this module's output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mappings.event import REQUIRED_FIELDS, Event
from mappings.refusals import REASON_TEXTS, ReasonCode, did_you_mean
from mappings.spec.conditions import All, Not, Test
from mappings.spec.conditions import Any as AnyOf
from mappings.spec.feed import Brakes, Example, FeedMapping, KeyColumn, PublishPolicy, Schedule
from mappings.spec.rules import (
    Assert,
    Cancelled,
    Choosing,
    Duplicates,
    Explode,
    Explosion,
    Group,
    Grouping,
    Keep,
    Recur,
    Recurrence,
    Skip,
    Window,
    WindowSpan,
)
from mappings.spec.soql import FieldTest, Incremental
from mappings.spec.source import SHARED, SOURCES, Join, kind_word
from mappings.spec.source_words import Days, Header
from mappings.spec.values import (
    At,
    ChannelValue,
    Choose,
    Entry,
    FirstOf,
    ForEach,
    From,
    Image,
    Instant,
    Joined,
    Meta,
    Seen,
    TableValue,
    Wall,
)
from mappings.steps.catalogue import FAMILIES
from mappings.steps.step import Shown, Step
from mappings.strict import Strict

_PARTS: Mapping[str, type[Strict]] = {
    "`header`, inside `source`": Header,
    "`join`, inside `source`": Join,
    "`days`, inside `source`": Days,
    "`where`, inside `source`": FieldTest,
    "`incremental`, inside `source`": Incremental,
    "`schedule`": Schedule,
    "`key`": KeyColumn,
    "`publish`": PublishPolicy,
    "`brakes`, inside `publish`": Brakes,
    "`examples`": Example,
}
"""The blocks of a file that are no values, by the headings under which they are told."""
_FAMILY_HEADINGS = (
    "every kind",
    "files: `csv`, `tsv`, `xlsx`, `json`, `ndjson`, `xml`, `ics`",
    "rows and columns: `csv`, `tsv`, `xlsx`, `google_sheets`",
    "delimited text: `csv`, `tsv`",
    "records: `json`, `ndjson`, `xml`, `ics`",
)
_WITH_BLOCK = (Explode, Explosion, Recur, Recurrence, Group, Grouping, Duplicates, Choosing)
_RULE_BLOCKS: Mapping[type[Strict], str] = {
    Explosion: "#### inside `explode`",
    Recurrence: "#### inside `recur`",
    Grouping: "#### inside `group`",
    Choosing: "#### inside `duplicates`",
    WindowSpan: "#### inside `window`",
}
_INSIDE: Mapping[type[Strict], str] = {Wall: "#### inside `at`", Instant: "#### inside `in_zone`", Entry: "### Objects in a list"}
_SHARED = frozenset({"on_error", "on_miss", "on_empty", "ignore"})
_OPENING = """# The mapping language

One YAML file is one feed. This page is written from the code (`eventsync vocabulary`); a test keeps the two alike.

A **value** is a constant text, a named value (`$name`, defined under `let`), a list, an object, or a block that says where it
comes from. A **step** stands in a value's `do`: its bare name, or a block whose first key names it and whose other keys
are its parameters. A text step that meets a list works on each item. `{use: NAME}` stands for the steps of that name under
`steps`.

What becomes of a value that is empty, refused by a step or missing from a lookup is said by `on_empty` (of a value), `on_error`
(of a value or a step) and `on_miss` (of a lookup): `reject` (the default), `omit`, `warn` (left out, counted and shown),
`draft` (left out, and the event is sent as a draft), or `{use: X}` (X stands in; `warn: true` and `draft: true` may be
added); `on_miss: keep` lets a value stay as it is.

In lookups `ignore` lists the differences that do not count: `case`, `accents`, `spaces`, `punctuation`.
"""


def write_reference() -> str:
    """Return the reference page, as Markdown."""
    sections = (_OPENING, *_file(), *_values(), *_rules(), *_steps(), *_event(), *_reasons())
    return "\n".join(section.rstrip("\n") + "\n" for section in sections)


def _file() -> Iterator[str]:
    yield "## The file"
    yield _table(FeedMapping, frozenset())
    yield from _sources()
    for heading, model in _PARTS.items():
        yield f"### {heading}"
        yield _words(model.__doc__)
        yield _table(model, frozenset())


def _sources() -> Iterator[str]:
    """Tell what the kinds share once, and of each kind only what is its own."""
    yield "### `source`"
    yield "Which kind of file it is, where it is, and how it is read."
    headings = (*_FAMILY_HEADINGS, *(f"`kind: {kind_word(kind)}`" for kind in SOURCES))
    for heading, model in zip(headings, (*SHARED, *SOURCES), strict=True):
        yield f"#### {heading}"
        yield _words(model.__doc__)
        yield _table(model, frozenset(model.model_fields) - frozenset(model.__annotations__))


def _values() -> Iterator[str]:
    yield "## Values"
    for model in (From, FirstOf, Choose, At, Wall, Seen, Instant, TableValue, Joined, ChannelValue, Image, ForEach, Entry, Meta):
        yield _INSIDE.get(model, f"### `{_first_key(model)}`")
        yield _words(model.__doc__)
        yield _table(model, frozenset({"on_empty", "on_error"} if model is not Image else ()))


def _rules() -> Iterator[str]:
    yield "## Rows"
    yield (
        "Rules are applied in their order: those before `explode` and `recur` to the row, those after them to each of its events."
        " `group` and `duplicates` look at all rows that are wanted; `window` looks last, at the event's times."
    )
    for model in (Skip, Keep, Cancelled, Assert, *_WITH_BLOCK, Window, WindowSpan):
        yield _RULE_BLOCKS.get(model, f"### `{_first_key(model)}`")
        yield _words(model.__doc__)
        yield _table(model, frozenset())
    yield "## Conditions"
    for condition in (Test, All, AnyOf, Not):
        yield f"* {_words(condition.__doc__)} Keys: {', '.join(f'`{key}`' for key in _keys(condition))}."
    yield ""
    yield _table(Test, frozenset())


def _steps() -> Iterator[str]:
    for family, steps in FAMILIES.items():
        yield f"## Steps: {family.lower()}"
        for step in steps:
            yield f"### `{step.name}`"
            yield _words(step.__doc__)
            yield _table(step, _SHARED)
            yield "\n".join(_examples(step))


def _examples(step: type[Step]) -> Iterator[str]:
    yield "| written | goes in | comes out |"
    yield "|---|---|---|"
    for shown in step.shown:
        yield f"| {_code(shown.step)} | {_told(shown.goes_in)} | {_told(shown.comes_out)} |"


def _event() -> Iterator[str]:
    yield "## The event"
    yield "These fields are checked before anything is sent. Any other field that the service takes is declared with `extra`."
    required = {path.split(".", 1)[0] for path in REQUIRED_FIELDS}
    lines = [f"| `{name}` | {'yes' if name in required else 'no'} |" for name in Event.__annotations__]
    yield "\n".join(["| field | required |", "|---|---|", *lines])


def _reasons() -> Iterator[str]:
    yield "## Why a row is rejected"
    lines = [f"| `{code}` | {text} |" for code, text in REASON_TEXTS.items()]
    yield "\n".join(["| code | in words |", "|---|---|", *lines])


def _table(model: type[Strict], left_out: frozenset[str]) -> str:
    fields = [(key, field) for key, field in _keys(model).items() if key not in left_out and field.description]
    lines = [f"| `{key}` | {'yes' if field.is_required() else 'no'} | {_cell(field.description)} |" for key, field in fields]
    return "\n".join(["| key | required | meaning |", "|---|---|---|", *lines]) if lines else ""


def _keys(model: type[Strict]) -> dict[str, Any]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _first_key(model: type[Strict]) -> str:
    return next(key for key in _keys(model) if key not in {"on_empty", "on_error"})


def _words(docstring: str | None) -> str:
    return " ".join((docstring or "").split())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: str) -> str:
    escaped = text.encode("unicode_escape").decode() if any(not char.isprintable() for char in text) else text
    return f"`{_cell(escaped)}`" if escaped.strip() else "nothing"


def _told(value: Shown | str | tuple[str, ...] | ReasonCode) -> str:
    match value:
        case ReasonCode():
            return f"refused: `{value}`"
        case tuple():
            return " · ".join(_code(part) for part in value)
        case _:
            return _code(str(value))


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
