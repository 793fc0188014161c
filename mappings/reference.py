"""Generates the reference page of the mapping language from the code: each word, its parameters and examples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mappings.event import REQUIRED_FIELDS, Event
from mappings.reasons import REASON_TEXTS, ReasonCode, did_you_mean
from mappings.spec.feed import Brakes, Example, FeedMapping, PublishPolicy, Schedule
from mappings.spec.json_schema import field_descriptions
from mappings.spec.rules import KeyChoice, KeyColumn, KeyValue, Rule
from mappings.spec.soql import FieldTest, Incremental
from mappings.spec.source import SOURCES, AnySource, DelimitedSource, FileSource, GridSource, Join, RecordSource
from mappings.spec.source_words import Days, Header
from mappings.spec.values import MARKERS, Condition, Test, Value
from mappings.steps.step import FAMILIES
from mappings.strict import Strict, union_members

_PARTS: Mapping[str, type[Strict]] = {
    "`header`, inside `source`": Header,
    "`join`, inside `source`": Join,
    "`days`, inside `source`": Days,
    "`where`, inside `source`": FieldTest,
    "`incremental`, inside `source`": Incremental,
    "`schedule`": Schedule,
    "`key`": KeyColumn,
    "`from`, inside `key`": KeyValue,
    "`first_of`, as `key`": KeyChoice,
    "`publish`": PublishPolicy,
    "`brakes`, inside `publish`": Brakes,
    "`examples`": Example,
}
"""The blocks of a file that are not values, by their headings."""
_SHARED_BY_SOURCES: Mapping[type[AnySource], str] = {
    AnySource: "every kind",
    FileSource: "files",
    GridSource: "rows and columns",
    DelimitedSource: "delimited text",
    RecordSource: "records",
}
_OF_VALUES = frozenset({"on_empty", "on_error"})
_OF_STEPS = frozenset({"on_error", "on_miss", "on_empty", "ignore"})
_OPENING = """# The mapping language

One YAML file is one feed. This page is generated from the code (`eventsync vocabulary`).

A **value** is a constant text, a named value (`$name`, defined under `let`), a list, an object, or a block that says where it
comes from. A **step** is an entry of a value's `do`: its bare name, or a block whose first key names it and whose other keys
are its parameters. A text step that meets a list works on each item. `{use: NAME}` stands for the steps of that name under
`steps`.

`on_empty` (of a value), `on_error` (of a value or a step) and `on_miss` (of a lookup) set what happens to a value that is
empty, refused by a step or missing from the lookup: `reject` (the default), `omit`, `warn` (left out, counted and shown),
`draft` (left out, and the event is sent as a draft), or `{use: X}` (X stands in; `warn: true` and `draft: true` may be
added); `on_miss: keep` lets a value stay as it is.

In lookups `ignore` lists the differences that do not count: `case`, `accents`, `spaces`, `punctuation`.
"""
_SHARED = _OPENING.split("\n\n")[2:]
"""The paragraphs about all values, printed once at the beginning of the page."""
_OF_RULES = (
    "Rules are applied in their order: those before `explode` and `recur` to the row, those after them to each of its events."
    " `group` and `duplicates` look at all rows that are not skipped; `window` comes last and looks at the event's times."
)
_OF_EVENTS = "These fields are checked before anything is sent. Any other field that the service takes is declared with `extra`."
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of the reference page: its columns, and rows of Markdown texts."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        head, *lines = [" | ".join(cell.replace("|", r"\|") for cell in row) for row in (self.columns, *self.rows)]
        return "\n".join([f"| {head} |", f"|{'---|' * len(self.columns)}", *(f"| {line} |" for line in lines)])


@dataclass(frozen=True, slots=True)
class VocabularySection:
    """One section of the reference page: chapter, heading, text and tables."""

    chapter: str
    heading: str
    promise: str = ""
    tables: tuple[Grid, ...] = ()
    level: int = 3

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the language that the section explains."""
        return tuple(_CODE.findall(self.heading))

    def __str__(self) -> str:
        parts = [f"{'#' * self.level} {self.heading}", self.promise.replace(" * ", "\n* "), *map(str, self.tables)]
        return "".join(f"{part}\n\n" for part in parts if part)


@dataclass(frozen=True)
class Vocabulary:
    """The reference page as sections that can be searched by word."""

    sections: tuple[VocabularySection, ...]

    @property
    def text(self) -> str:
        """The whole page in Markdown."""
        return f"{_OPENING}\n{''.join(map(str, self.sections)).rstrip()}\n"

    def about(self, word: str) -> tuple[VocabularySection, ...]:
        """Return the sections about a word; otherwise those with a key of that name, reduced to its row."""
        about = [section for section in self.sections if word in section.words]
        for section in self.sections if not about else ():
            rows = [row for table in section.tables for row in table.rows if row[0] == f"`{word}`"]
            keys = next((table.columns for table in section.tables if table.columns[0] in {"key", "code", "field"}), ())
            about += [replace(section, tables=(Grid(keys, tuple(rows)),))] if rows and keys else []
        shared = [paragraph for paragraph in _SHARED if word in _CODE.findall(paragraph)] if not about else []
        about += [VocabularySection("The mapping language", f"`{word}`", _one_line(text)) for text in shared]
        return tuple(about)

    def near(self, word: str) -> str:
        """Return `did you mean "x"?` for an unknown word, "" if no word is similar."""
        keys = [row[0] for section in self.sections for table in section.tables for row in table.rows]
        named = [word for section in self.sections for word in section.words]
        return did_you_mean(word, [*named, *(key.strip("`") for key in keys if _CODE.fullmatch(key)), *_CODE.findall(_OPENING)])


def read_vocabulary() -> Vocabulary:
    """Generate the reference from the models and steps."""
    return Vocabulary((*_file(), *_values(), *_rules(), *_steps(), *_event_and_reasons()))


def _file() -> Iterator[VocabularySection]:
    chapter = "The file"
    yield VocabularySection(chapter, chapter, "", _tables(FeedMapping), 2)
    yield VocabularySection(chapter, "`source`", "Which kind of file it is, where it is, and how it is read.")
    for model, title in _SHARED_BY_SOURCES.items():
        kinds = ", ".join(f"`{kind}`" for kind, source in SOURCES.items() if issubclass(source, model))
        yield _section(chapter, title if model is AnySource else f"{title}: {kinds}", model, _inherited(model), 4)
    for kind, source in SOURCES.items():
        yield _section(chapter, f"`kind: {kind}`", source, _inherited(source), 4)
    for heading, part in _PARTS.items():
        yield _section(chapter, heading, part)


def _inherited(model: type[Strict]) -> frozenset[str]:
    return frozenset(model.model_fields) - frozenset(model.__annotations__)


def _values() -> Iterator[VocabularySection]:
    yield VocabularySection("Values", "Values", level=2)
    for word, model in union_members(Value).items():
        if word in MARKERS:
            yield from _with_block("Values", word, model, frozenset() if word == "image" else _OF_VALUES)
        elif word == "entry":
            yield _section("Values", "Objects in a list", model)


def _rules() -> Iterator[VocabularySection]:
    yield VocabularySection("Rows", "Rows", _OF_RULES, (), 2)
    for word, model in union_members(Rule).items():
        yield from _with_block("Rows", word, model)
    conditions = union_members(Condition).values()
    lines = [f"* {_one_line(each.__doc__)} Keys: {', '.join(f'`{key}`' for key in _fields(each))}." for each in conditions]
    yield VocabularySection("Conditions", "Conditions", " ".join(lines), _tables(Test), 2)


def _steps() -> Iterator[VocabularySection]:
    for family, steps in FAMILIES.items():
        chapter = f"Steps: {family.lower()}"
        yield VocabularySection(chapter, chapter, level=2)
        for step in steps:
            shown = tuple((_code(one.step), _shown(one.goes_in), _shown(one.comes_out)) for one in step.examples)
            tables = (*_tables(step, _OF_STEPS), Grid(("written", "goes in", "comes out"), shown))
            yield VocabularySection(chapter, f"`{step.name}`", _one_line(step.__doc__), tables)


def _event_and_reasons() -> Iterator[VocabularySection]:
    required = {path.split(".", 1)[0] for path in REQUIRED_FIELDS}
    fields = Grid(("field", "required"), tuple((f"`{one}`", "yes" if one in required else "no") for one in Event.__annotations__))
    yield VocabularySection("The event", "The event", _OF_EVENTS, (fields,), 2)
    reasons = Grid(("code", "in words"), tuple((f"`{code}`", text) for code, text in REASON_TEXTS.items()))
    yield VocabularySection("Why a row is rejected", "Why a row is rejected", "", (reasons,), 2)


def _with_block(
    chapter: str, word: str, model: type[Strict], left_out: frozenset[str] = frozenset()
) -> Iterator[VocabularySection]:
    """Yield the section of a word, and a section for its block of keys, if it has one."""
    yield _section(chapter, f"`{word}`", model, left_out)
    block = _fields(model)[word].annotation
    if isinstance(block, type) and issubclass(block, Strict):
        yield _section(chapter, f"inside `{word}`", block, level=4)


def _section(chapter: str, heading: str, model: type[Strict], left_out: Iterable[str] = (), level: int = 3) -> VocabularySection:
    return VocabularySection(chapter, heading, _one_line(model.__doc__), _tables(model, left_out), level)


def _tables(model: type[Strict], left_out: Iterable[str] = ()) -> tuple[Grid, ...]:
    """Return the table of a model's keys, if it has documented ones."""
    rows: list[tuple[str, ...]] = []
    for name, field in model.model_fields.items():
        meaning = field_descriptions(model).get(name) or _one_line(field.description)
        if meaning and (field.alias or name) not in left_out:
            rows.append((f"`{field.alias or name}`", "yes" if field.is_required() else "no", meaning))
    return (Grid(("key", "required", "meaning"), tuple(rows)),) if rows else ()


def _fields(model: type[Strict]) -> dict[str, Any]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _code(text: str) -> str:
    escaped = text.encode("unicode_escape").decode() if any(not char.isprintable() for char in text) else text
    return f"`{_one_line(escaped)}`" if escaped.strip() else "nothing"


def _shown(value: str | tuple[str, ...] | ReasonCode) -> str:
    if isinstance(value, ReasonCode):
        return f"refused: `{value}`"
    return " · ".join(map(_code, value)) if isinstance(value, tuple) else _code(value)
