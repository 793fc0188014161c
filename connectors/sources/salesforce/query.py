"""The fields, queries and cells of one Salesforce reading: SOQL made from a mapping's words, and values made into text.

Every value in a condition is quoted or checked; a query that the author wrote in SOQL is sent unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from connectors.sources.errors import MissingColumnsError
from connectors.sources.formats.records import Number
from connectors.sources.rows import ColumnRequest
from connectors.sources.salesforce.org import Field, Shape, Shapes
from mappings.errors import ConfigError, PermanentError
from mappings.spec.soql import FieldTest, Query
from mappings.spec.source import SalesforceSource

_NUMBERS = frozenset({"double", "currency", "percent", "int", "long"})
_NUMBER = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,20})?", re.ASCII)
_RELATIVE_DATE = re.compile(r"[A-Z][A-Z_]{3,40}(?::\d{1,5})?", re.ASCII)
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_DATE_HINT = "write it like 2026-05-03, or as Salesforce does: TODAY, LAST_N_DAYS:30"
_MOMENT_HINT = "write it with its offset, like 2026-05-03T19:30:00+01:00, or as Salesforce does: TODAY, LAST_N_DAYS:30"


@dataclass(frozen=True, slots=True)
class ObjectQuery:
    """The select list of one object, and the conditions that all records must meet."""

    select: str
    object: str
    conditions: tuple[str, ...] = ()

    def soql(self, *more: str, order: str = "") -> str:
        """Return the query, with further conditions and an order."""
        return self._with_conditions(f"SELECT {self.select}", more) + (f" ORDER BY {order}" if order else "")

    def count_soql(self, *more: str) -> str:
        """Return the query that counts the same records."""
        return self._with_conditions("SELECT COUNT()", more)

    def _with_conditions(self, start: str, more: Sequence[str]) -> str:
        conditions = " AND ".join((*self.conditions, *more))
        return f"{start} FROM {self.object}" + (f" WHERE {conditions}" if conditions else "")


def quoted(text: str) -> str:
    """Return a text as SOQL writes it (SOQL and SOSL Reference, Quoted String Escape Sequences)."""
    return f"'{text.translate(_ESCAPES)}'"


def conditions(tests: Sequence[FieldTest], fields: Mapping[str, Field]) -> tuple[str, ...]:
    """Return the conditions of a mapping's `where`; `fields` are the fields of its paths.

    Raises:
        ConfigError: values do not suit their fields' types; all of them.
    """
    found, wrong = list[str](), list[str]()
    for number, test in enumerate(tests, start=1):
        try:
            found.append(_condition(test, fields[test.field]))
        except ValueError as error:
            wrong.append(f"source.where {number}: {error}")
    if wrong:
        raise ConfigError("; ".join(wrong), hint="correct the values in the mapping file")
    return tuple(found)


def since(path: str, stamp: str) -> str:
    """Return the condition for records changed at a moment or later."""
    return f"{path} >= {stamp}"


def until(path: str, stamp: str, *, with_none: bool) -> str:
    """Return the condition for records changed at a moment or before; `with_none`: or without a moment."""
    return f"({path} = null OR {path} <= {stamp})" if with_none else f"{path} <= {stamp}"


def after_row(path: str, stamp: str, last_id: str) -> str:
    """Return the condition for the records after one, in the order of (`path`, Id); an empty stamp sorts first."""
    if not stamp:
        return f"({path} != null OR ({path} = null AND Id > {quoted(last_id)}))"
    return f"({path} > {stamp} OR ({path} = {stamp} AND Id > {quoted(last_id)}))"


def child_query(name: str, paths: Sequence[str]) -> str:
    """Return the query for child rows; the order makes repeated reads equal."""
    return f"(SELECT {', '.join(paths)} FROM {name} ORDER BY Id)"  # noqa: S608  # names from the org's own description


def _condition(test: FieldTest, field: Field) -> str:
    literals = [_literal(field, text) for text in test.value]
    match test.op:
        case "missing":
            return f"{field.path} = null"
        case "present":
            return f"{field.path} != null"
        case "in" | "not in" | "includes" | "excludes":
            return f"{field.path} {test.op.upper()} ({', '.join(literals)})"
        case _:
            return f"{field.path} {test.op.upper()} {literals[0]}"


def _literal(field: Field, text: str) -> str:
    """Return a value as SOQL writes it for the field's type.

    Raises:
        ValueError: it does not suit the type.
    """
    match field.kind:
        case "boolean":
            literal, hint = text.lower() if text.lower() in ("true", "false") else "", "write true or false"
        case kind if kind in _NUMBERS:
            literal, hint = text if _NUMBER.fullmatch(text) else "", "write a number, like 12.50"
        case "date":
            literal, hint = text if _is_date(text) or _RELATIVE_DATE.fullmatch(text) else "", _DATE_HINT
        case "datetime":
            literal, hint = _utc(text) or (text if _RELATIVE_DATE.fullmatch(text) else ""), _MOMENT_HINT
        case _:
            return quoted(text)
    if not literal:
        raise ValueError(f'"{text}" is no value of {field.path}, a {field.kind}: {hint}')
    return literal


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _utc(text: str) -> str:
    """Return a moment as SOQL writes it, "" if the text is none or has no offset."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return "" if moment.tzinfo is None else utc_text(moment)


def utc_text(moment: datetime) -> str:
    """Return a moment as SOQL writes it: in UTC, with milliseconds."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


Convert = Callable[[Any], str]
"""Converts a value to a cell; null is "", and nested values become JSON text."""
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{3})(?:Z|\+00:?00)", re.ASCII)
_TIME = re.compile(r"(\d\d:\d\d:\d\d)\.(\d{3})Z?", re.ASCII)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"
_SHORT_ID = re.compile(r"[0-9A-Za-z]{15}", re.ASCII)


def long_id(text: str) -> str:
    """Return an id with 18 characters; one with 15 gets the last three, which encode its capital letters."""
    if not _SHORT_ID.fullmatch(text):
        return text
    fives = (text[place : place + 5] for place in (0, 5, 10))
    return text + "".join(
        _LETTERS[sum(1 << place for place, letter in enumerate(five) if "A" <= letter <= "Z")] for five in fives
    )


def moment(text: str) -> str:
    """Return a moment, sent as `...T17:30:00.000+0000` or `....000Z`, as `...T17:30:00Z`; keep milliseconds that are not 0."""
    if text.endswith((".000+0000", ".000Z")):
        return f"{text[:19]}Z"
    match = _MOMENT.fullmatch(text)
    return text if match is None else f"{match[1]}.{match[2]}Z"


def time_of_day(text: str) -> str:
    """Return a time of day without the meaningless Z that Salesforce sends: `19:30:00`."""
    match = _TIME.fullmatch(text)
    return text if match is None else match[1] if match[2] == "000" else f"{match[1]}.{match[2]}"


def number(text: str) -> str:
    """Return a number with the digits that were sent, written out (`1.0E7` is 10000000), without a final `.0`."""
    if text[-2:] == ".0":
        return text[:-2]
    if "E" in text or "e" in text:
        return f"{Decimal(text):f}".removesuffix(".0")
    return text


def unknown(value: Any) -> str:
    """Return the cell of a value whose field's type is unknown, by its form."""
    match value:
        case Number():
            return number(value)
        case str():
            return moment(value) if _MOMENT.fullmatch(value) else value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case dict() | list():
            return json.dumps(_bare(value), ensure_ascii=False)
        case _:
            return number(str(value))


def convert_for(kind: str) -> Convert:
    """Return the conversion for values of a field of this type."""
    match kind:
        case "id" | "reference":
            return _text_by(long_id)
        case "datetime":
            return _text_by(moment)
        case "time":
            return _text_by(time_of_day)
        case "double" | "currency" | "percent" | "int" | "long":
            return _text_by(number)
        case "":
            return unknown
        case _:
            return _plain


def children_text(records: Sequence[Mapping[str, Any]], fields: Mapping[tuple[str, ...], Convert]) -> str:
    """Return child rows as a JSON list of objects, their values as cells; a parent's fields form a nested object."""
    return json.dumps([_child(record, fields) for record in records], ensure_ascii=False)


def picked(record: Mapping[str, Any], steps: Sequence[str]) -> Any:
    """Return the value under nested keys, None where a parent is missing."""
    value: Any = record
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _text_by(convert: Callable[[str], str]) -> Convert:
    return lambda value: convert(value if type(value) is str else str(value)) if value not in (None, "") else ""


def _plain(value: Any) -> str:
    return value if type(value) is str else unknown(value)


def _child(record: Mapping[str, Any], fields: Mapping[tuple[str, ...], Convert]) -> dict[str, Any]:
    child: dict[str, Any] = {}
    for steps, convert in fields.items():
        holder = child
        for step in steps[:-1]:
            holder = holder.setdefault(step, {})
        holder[steps[-1]] = convert(picked(record, steps))
    return child


def _bare(value: Any) -> Any:
    """Return nested values as cells, without Salesforce's `attributes` of the record."""
    match value:
        case {"records": list(records)}:
            return [_bare(record) for record in records]
        case dict():
            return {key: _bare(inner) for key, inner in value.items() if key != "attributes"}
        case list():
            return [_bare(inner) for inner in value]
        case _:
            return unknown(value)


ID, DELETED, ARCHIVED = "Id", "IsDeleted", "IsArchived"
_ADVICE = "check the API names in Salesforce's set-up; a field that our user may not see is not there for us"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the answer: its path, and the conversion of its values. `child`: the same for the fields of child rows."""

    path: str
    convert: Convert
    child: Mapping[tuple[str, ...], Convert] = field(default_factory=dict)

    @property
    def selected(self) -> str:
        """Its text in the select list."""
        return child_query(self.path, [".".join(steps) for steps in self.child]) if self.child else self.path


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected `columns` in their order, and the `cells` with the number of the column that each is taken from.

    `absent` are optional columns that are missing. `archive`: archived records must be asked for.
    """

    columns: tuple[Column, ...]
    cells: tuple[tuple[str, int], ...]
    object_query: ObjectQuery
    absent: tuple[str, ...] = ()
    archive: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the cells."""
        return tuple(name for name, _ in self.cells)

    def at(self, path: str) -> int | None:
        """Return the number of a column, None if it is not selected."""
        return next((number for number, column in enumerate(self.columns) if column.path.lower() == path.lower()), None)


def select_object(spec: SalesforceSource, asked: ColumnRequest, shapes: Shapes) -> Selection:
    """Select the fields of an object that a mapping needs.

    Raises:
        MissingColumnsError: the object lacks fields, or hides them; all of them.
        ConfigError: values of `where` do not suit their fields, or the records cannot be read incrementally.
    """
    shape = shapes.of(spec.place)
    found, missing, absent = _columns(spec, asked, shapes, shape)
    tested = {test.field: shapes.find(shape, test.field) for test in spec.where}
    missing += [path for path, one in tested.items() if one is None]
    if missing:
        children = {name.lower() for name in spec.children}
        near = dict.fromkeys(near for name in missing if name.lower() not in children for near in shapes.near(shape, name))
        if any(name.lower() in children for name in missing):
            near |= dict.fromkeys(name for name, _ in shape.children.values())
        raise MissingColumnsError(shape.name, set(missing), tuple(near), advice=_ADVICE)
    _check_incremental(spec, shape)
    by = (spec.incremental.by,) if spec.incremental else ()
    hidden = (ID, *by, *((DELETED,) if spec.incremental and shape.has(DELETED) else ()))
    for name in dict.fromkeys(hidden):
        column = _column(shapes.find(shape, name) or Field(name))
        if column.path not in {one.path for one in found.values()}:
            found[column.path] = column
    columns = {column.path: column for column in found.values()}
    numbers = {path: number for number, path in enumerate(columns)}
    where = conditions(spec.where, {path: one for path, one in tested.items() if one is not None})
    object_query = ObjectQuery(", ".join(one.selected for one in columns.values()), shape.name, where)
    cells = tuple((name, numbers[column.path]) for name, column in found.items())
    return Selection(tuple(columns.values()), cells, object_query, tuple(absent), shape.has(ARCHIVED))


def select_query(query: Query, asked: ColumnRequest, shapes: Shapes) -> Selection:
    """Return what an author's own query selects; fields that the org does not describe have no type.

    Raises:
        MissingColumnsError: the query lacks columns that the mapping reads.
    """
    try:
        shape = shapes.of(query.object)
    except PermanentError:
        # The query may read what cannot be described; its answer names best what is wrong with it.
        shape = Shape(query.object, {}, {}, {}, {})
    columns = tuple(_column(_field_or_unknown(shapes, shape, path)) for path in query.columns)
    spelt = {name.lower(): (name, number) for number, name in enumerate(query.columns)}
    cells = [(name, number) for name, number in spelt.values()]
    missing, absent = list[str](), list[str]()
    for name in sorted(asked.columns):
        found = next((spelt[one.lower()] for one in (name, *asked.aliases.get(name, ())) if one.lower() in spelt), None)
        if found is None:
            (absent if name in asked.optional else missing).append(name)
        elif name not in {cell for cell, _ in cells}:
            cells.append((name, found[1]))
    if missing:
        raise MissingColumnsError("the query", missing, query.columns, advice="name them in the query, after SELECT")
    return Selection(columns, tuple(cells), ObjectQuery("", query.object), tuple(absent))


def _columns(
    spec: SalesforceSource, asked: ColumnRequest, shapes: Shapes, shape: Shape
) -> tuple[dict[str, Column], list[str], list[str]]:
    """Return the columns by their cells' names, `fields` first; the missing names, and the absent optional ones."""
    children = {name.lower(): column for name in spec.children for column in _child_columns(spec, shapes, shape, name)}
    found, missing, absent = dict[str, Column](), list[str](), list[str]()
    for name in dict.fromkeys((*spec.fields, *spec.children, *sorted(asked.columns))):
        spellings = (name, *asked.aliases.get(name, ()))
        column = next((children[one.lower()] for one in spellings if one.lower() in children), None)
        field = _find_field(shapes, shape, spellings) if column is None else None
        if column is not None or field is not None:
            found[name] = column or _column(field or Field(name))
        else:
            (absent if name in asked.optional else missing).append(name)
    return found, missing, absent


def _find_field(shapes: Shapes, shape: Shape, spellings: Sequence[str]) -> Field | None:
    """Return the field of exactly the first name, else of the first alias there is, else one that differs in case only."""
    name, *others = spellings
    own = shapes.find(shape, name)
    if own is not None and own.path == name:
        return own
    found = (shapes.find(shape, one) for one in others)
    return next((one for one in found if one is not None), own)


def _child_columns(spec: SalesforceSource, shapes: Shapes, shape: Shape, name: str) -> Iterator[Column]:
    """Yield the column of the child rows called `name`, if the object has them."""
    relation, child = shape.children.get(name.lower(), ("", ""))
    if not child:
        return
    child_shape = shapes.of(child)
    fields = {path: shapes.find(child_shape, path) for path in spec.children[name]}
    if lost := [path for path, one in fields.items() if one is None]:
        near = dict.fromkeys(one for path in lost for one in shapes.near(child_shape, path))
        raise MissingColumnsError(f"{child_shape.name}, the object of {relation},", lost, tuple(near), advice=_ADVICE)
    yield Column(relation, unknown, {one.steps: convert_for(one.kind) for one in fields.values() if one is not None})


def _column(field: Field) -> Column:
    return Column(field.path, convert_for(field.kind))


def _field_or_unknown(shapes: Shapes, shape: Shape, path: str) -> Field:
    try:
        return shapes.find(shape, path) or Field(path)
    except PermanentError:
        return Field(path)


def _check_incremental(spec: SalesforceSource, shape: Shape) -> None:
    if spec.incremental is None:
        return
    by = shape.fields.get(spec.incremental.by.lower())
    if by is None or by.kind != "datetime":
        known = [one.path for one in shape.fields.values() if one.kind == "datetime"]
        problem = "is no moment" if by else "is not there"
        message = f"{shape.name} cannot be read incrementally by {spec.incremental.by}: the field {problem}"
        raise ConfigError(message, hint=f"write `by:` one of {', '.join(known) or 'its moments (it has none)'}")
