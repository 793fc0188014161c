"""Generates from the models of mapping files their reference page (each word, its parameters and examples) and their JSON Schema.

Editors use the schema for completion, descriptions, and marking of mistakes. It accepts everything that the loader accepts, and
more: it does not check names, lookup files or formats. Field descriptions are the docstrings below the fields. They are read only
when a schema or page is generated, because pydantic's `use_attribute_docstrings` reads them at every start, which takes 0.1 s
(budget 9).
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from mappings.event import REQUIRED_FIELDS, Event
from mappings.reasons import REASON_TEXTS, ReasonCode, did_you_mean
from mappings.spec.feed import Brakes, Example, FeedMapping, PublishPolicy, Schedule
from mappings.spec.rules import KeyChoice, KeyColumn, KeyValue, Rule
from mappings.spec.shapes import Heading, Unpivot
from mappings.spec.soql import FieldTest, Incremental
from mappings.spec.source import SOURCES, DelimitedSource
from mappings.spec.source_base import AnySource, FileSource, GridSource, Join, RecordSource
from mappings.spec.source_words import Days, Header
from mappings.spec.values import (
    COMPANIONS,
    MARKERS,
    STEPS,
    Condition,
    Fields,
    FirstOf,
    From,
    JoinedText,
    ListEntry,
    Meta,
    Test,
    Value,
)
from mappings.steps.step import FAMILIES
from mappings.strict import Strict, union_members

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_USE = {
    "type": "object",
    "description": "The steps of this name, defined under `steps`.",
    "properties": {"use": {"type": "string", "description": "The name under `steps`."}},
    "required": ["use"],
    "additionalProperties": False,
}
_STEP_REF = {"$ref": "#/$defs/Step"}


class _WithoutNulls(GenerateJsonSchema):
    """Omits null as a choice and default: in a mapping file an absent key is left out, never written as null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> Schema:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Schema:
        found = super().default_schema(schema)
        return {key: value for key, value in found.items() if key != "default" or value is not None}


def feed_json_schema() -> Schema:
    """Return the JSON Schema of a mapping file (draft 2020-12)."""
    schema = FeedMapping.model_json_schema(by_alias=True, schema_generator=_WithoutNulls)
    definitions = schema["$defs"]
    for model in _models(Strict):
        _describe(model, schema if model is FeedMapping else definitions.get(model.__name__, {}))
    for step in STEPS.values():
        definition = definitions[step.__name__]
        definition["required"] = sorted({step.name, *definition.get("required", ())})
    definitions[Fields.__name__]["propertyNames"] = {"not": {"enum": [*MARKERS, *COMPANIONS, "when", "require"]}}
    definitions[ListEntry.__name__]["propertyNames"] = {"not": {"enum": [*MARKERS, *COMPANIONS]}}
    definitions[ListEntry.__name__]["anyOf"] = [{"required": ["when"]}, {"required": ["require"]}]
    steps = {"anyOf": [_STEP_REF, {"type": "array", "items": _STEP_REF}]}
    for model in (From, FirstOf, JoinedText, Meta):
        definitions[model.__name__]["properties"]["do"] |= steps
    named = schema["properties"]["steps"]
    named |= {"patternProperties": dict.fromkeys(named["patternProperties"], steps), "additionalProperties": False}
    schema["properties"]["let"]["additionalProperties"] = False
    bare = [
        {"const": step.name, "description": " ".join((step.__doc__ or "").split())}
        for step in STEPS.values()
        if not any(parameter.is_required() for parameter in step.model_fields.values())
    ]
    blocks = [{"$ref": f"#/$defs/{step.__name__}"} for step in STEPS.values()]
    definitions["Step"] = {"description": "One step that a value passes through.", "oneOf": [*bare, *blocks, _USE]}
    return {"$schema": _DIALECT, **schema, "title": "eventsync feed"}


def _models(base: type[Strict]) -> Iterator[type[Strict]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def _describe(model: type[Strict], definition: Schema) -> None:
    described = field_descriptions(model) if definition else {}
    for name, field in model.model_fields.items():
        if name in described:
            definition["properties"][field.alias or name]["description"] = described[name]


@cache
def field_descriptions(model: type[Strict]) -> Mapping[str, str]:
    """Return the docstrings of a model's fields, including inherited ones."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base.__module__.startswith("mappings.spec."):
            (tree,) = ast.parse(inspect.getsource(base)).body
            for field, below in pairwise(tree.body if isinstance(tree, ast.ClassDef) else ()):
                if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                    found[ast.unparse(field.target)] = " ".join(str(below.value.value).split())
    return found


_PARTS: Mapping[str, type[Strict]] = {
    "`header`, inside `source`": Header,
    "`headings`, inside `source`": Heading,
    "`unpivot`, inside `source`": Unpivot,
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
