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
from functools import cache
from typing import Any

from connectors.sources.contract import BadSourceError, MissingColumnsError, RepeatedColumnsError
from connectors.sources.rows import NumberText
from connectors.sources.salesforce.org import NO_SALESFORCE
from mappings.columns import ColumnRequest
from mappings.errors import ConfigError, PermanentError
from mappings.spec.soql import FieldTest, Query
from mappings.spec.source import SalesforceSource

ID, DELETED, ARCHIVED = "Id", "IsDeleted", "IsArchived"
NAME_OF_SEVERAL = "Name"
"""The object with the fields that parents of several kinds (an owner: a user or a group) have in common."""
COMPOUND = frozenset({"address", "location"})
"""The types of fields that are several in one; their parts are fields of their own (BillingCity, Hall__City__s)."""

_ADVICE = "check the API names in Salesforce's set-up; fields that the user may not see are missing"
_ONE_FIELD = "name the field that is meant in the mapping, and leave the others out of `source.columns`"
_NUMBER = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,20})?", re.ASCII)
_RELATIVE_DATE = re.compile(r"[A-Z][A-Z_]{3,40}(?::\d{1,5})?", re.ASCII)
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_DATE_HINT = "write it like 2026-05-03, or as Salesforce does: TODAY, LAST_N_DAYS:30"
_MOMENT_HINT = "write it with its offset, like 2026-05-03T19:30:00+01:00, or as Salesforce does: TODAY, LAST_N_DAYS:30"
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{3})(?:Z|\+00:?00)", re.ASCII)
_TIME = re.compile(r"(\d\d:\d\d:\d\d)\.(\d{3})Z?", re.ASCII)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"
_SHORT_ID = re.compile(r"[0-9A-Za-z]{15}", re.ASCII)
Convert = Callable[[Any], str]
"""Converts a value to a cell; null is "", and nested values become JSON text."""


@dataclass(frozen=True, slots=True)
class Column:
    """A field that can be selected: its canonical `path`, its `kind` (Salesforce's type, "" if unknown)."""

    path: str
    kind: str = ""

    @property
    def convert(self) -> Convert:
        """The conversion of its values."""
        return convert_for(self.kind)


@dataclass(frozen=True, slots=True)
class Shape:
    """One object: its fields and its parents by lower-case name."""

    name: str
    fields: Mapping[str, Column] = field(default_factory=dict)
    parents: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Shape:
        """Parse the answer to a describe request; raises KeyError if it is not one."""
        fields = described["fields"]
        above = [(one["relationshipName"], tuple(one.get("referenceTo") or ())) for one in fields if one.get("relationshipName")]
        return cls(
            described["name"],
            {one["name"].lower(): Column(one["name"], one["type"]) for one in fields},
            {name.lower(): (name, objects) for name, objects in above},
        )


class Shapes:
    """The shapes of one reading; `describe` is asked for each object once."""

    def __init__(self, describe: Callable[[str], Mapping[str, Any]]) -> None:
        self._describe = cache(describe)

    def of(self, name: str) -> Shape:
        """Return an object's shape."""
        try:
            return Shape.of(self._describe(name))
        except KeyError as error:
            raise BadSourceError(name, f"Salesforce's answer about its fields lacks {error}", hint=NO_SALESFORCE) from error

    def find(self, shape: Shape, path: str) -> Column | None:
        """Return the field of a path, in any case of letters; None if there is none that we may see."""
        first, _, rest = path.partition(".")
        first = first.lower()
        if not rest:
            found = shape.fields.get(first)
            return None if found and found.kind in COMPOUND else found
        name, parents = shape.parents.get(first, ("", ()))
        if not parents:
            return None
        above = self._above(parents)
        found = Column(rest) if above is None else self.find(above, rest)
        return Column(f"{name}.{found.path}", found.kind) if found else None

    def near(self, shape: Shape, path: str) -> Iterator[str]:
        """Yield the names that are possible at the first unknown part of a path; one of them was probably meant."""
        first, _, rest = path.partition(".")
        name, parents = shape.parents.get(first.lower(), ("", ()))
        if rest and parents:
            above = self._above(parents)
            yield from (f"{name}.{inner}" for inner in self.near(above, rest)) if above else ()
        else:
            yield from (one.path for one in shape.fields.values() if one.kind not in COMPOUND)
            yield from (name for name, _ in shape.parents.values())

    def _above(self, parents: tuple[str, ...]) -> Shape | None:
        """Return the shape of the parent; None if it has several kinds whose common fields the org does not describe."""
        if len(parents) == 1:
            return self.of(parents[0])
        try:
            return self.of(NAME_OF_SEVERAL)
        except PermanentError:
            return None


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected `columns` of an object in their order, and the `cells` with the number of the column that each is taken from.

    `conditions` are those that all records must meet; `absent` optional columns that are missing. `archive`: archived records
    must be asked for. `children`: the columns with the child rows of an author's query.
    """

    object: str
    columns: tuple[Column, ...]
    cells: tuple[tuple[str, int], ...]
    conditions: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    archive: bool = False
    children: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the cells."""
        return tuple(name for name, _ in self.cells)

    def at(self, path: str) -> int | None:
        """Return the number of a column, None if it is not selected."""
        return next((number for number, column in enumerate(self.columns) if column.path.lower() == path.lower()), None)

    def soql(self, *more: str, order: str = "", counts: bool = False) -> str:
        """Return the query, with further conditions and an order; or the one that `counts` the same records."""
        conditions = " AND ".join((*self.conditions, *more))
        what = "COUNT()" if counts else ", ".join(column.path for column in self.columns)
        where = f" WHERE {conditions}" if conditions else ""
        return f"SELECT {what} FROM {self.object}{where}" + (f" ORDER BY {order}" if order else "")  # noqa: S608  # names from the org's own description


def select_object(spec: SalesforceSource, asked: ColumnRequest, shapes: Shapes) -> Selection:
    """Select the fields of an object that a mapping needs.

    Raises:
        RepeatedColumnsError: several fields answer to a name.
        MissingColumnsError: the object lacks fields, or hides them; all of them.
        ConfigError: values of `where` do not suit their fields, or the records cannot be read incrementally.
    """
    shape = shapes.of(spec.place)
    found, missing, absent = _columns(spec, asked, shapes, shape)
    tested = {test.field: shapes.find(shape, test.field) for test in spec.where}
    missing += [path for path, one in tested.items() if one is None]
    if missing:
        near = dict.fromkeys(near for name in missing for near in shapes.near(shape, name))
        raise MissingColumnsError(shape.name, set(missing), tuple(near), advice=_ADVICE)
    hidden = [ID]
    if spec.incremental:
        moment = shape.fields.get(spec.incremental.by.lower())
        if moment is None or moment.kind != "datetime":
            known = ", ".join(one.path for one in shape.fields.values() if one.kind == "datetime")
            problem = "is no moment" if moment else "is not there"
            message = f"{shape.name} cannot be read incrementally by {spec.incremental.by}: the field {problem}"
            raise ConfigError(message, hint=f"write `by:` one of {known or 'its moments (it has none)'}")
        hidden += [spec.incremental.by, *([DELETED] if DELETED.lower() in shape.fields else [])]
    for name in dict.fromkeys(hidden):
        column = shapes.find(shape, name) or Column(name)
        if column.path not in {one.path for one in found.values()}:
            found[column.path] = column
    columns = {column.path: column for column in found.values()}
    numbers = {path: number for number, path in enumerate(columns)}
    where = conditions(spec.where, {path: one for path, one in tested.items() if one is not None})
    cells = tuple((name, numbers[column.path]) for name, column in found.items())
    has_archive = ARCHIVED.lower() in shape.fields
    return Selection(shape.name, tuple(columns.values()), cells, where, tuple(absent), has_archive)


def select_query(query: Query, asked: ColumnRequest, shapes: Shapes) -> Selection:
    """Return what an author's own query selects; fields that the org does not describe have no type.

    Raises:
        RepeatedColumnsError: several of its columns answer to a name.
        MissingColumnsError: the query lacks columns that the mapping reads.
    """

    def column_of(path: str) -> Column:
        try:
            return shapes.find(shape, path) or Column(path)
        except PermanentError:
            return Column(path)

    try:
        shape = shapes.of(query.object)
    except PermanentError:
        # The query may read what cannot be described; its answer names best what is wrong with it.
        shape = Shape(query.object)
    spelt = {name.lower(): (name, number) for number, name in enumerate(query.columns)}
    cells = dict(spelt.values())
    missing, absent, repeated = list[str](), list[str](), dict[str, list[str]]()
    for name in sorted(asked.columns):
        found = dict(spelt[one.lower()] for one in (name, *asked.aliases.get(name, ())) if one.lower() in spelt)
        if len(found) > 1:
            repeated[name] = [f'"{column}"' for column in found]
        elif found:
            cells.setdefault(name, *found.values())
        else:
            (absent if name in asked.optional else missing).append(name)
    if repeated:
        raise RepeatedColumnsError("the query", repeated, advice=_ONE_FIELD)
    if missing:
        raise MissingColumnsError("the query", missing, query.columns, advice="name them in the query, after SELECT")
    columns = tuple(map(column_of, query.columns))
    return Selection(query.object, columns, tuple(cells.items()), absent=tuple(absent), children=query.children)


def _columns(
    spec: SalesforceSource, asked: ColumnRequest, shapes: Shapes, shape: Shape
) -> tuple[dict[str, Column], list[str], list[str]]:
    """Return the columns by their cells' names, `fields` first; the missing names, and the absent optional ones.

    Raises:
        RepeatedColumnsError: several fields answer to a name.
    """
    found, missing, absent, repeated = dict[str, Column](), list[str](), list[str](), dict[str, list[str]]()
    for name in dict.fromkeys((*spec.fields, *sorted(asked.columns))):
        answers = [shapes.find(shape, one) for one in (name, *asked.aliases.get(name, ()))]
        columns = {column.path: column for column in answers if column}
        if len(columns) > 1:
            repeated[name] = [f'"{path}"' for path in columns]
        elif columns:
            found[name] = columns.popitem()[1]
        else:
            (absent if name in asked.optional else missing).append(name)
    if repeated:
        raise RepeatedColumnsError(shape.name, repeated, advice=_ONE_FIELD)
    return found, missing, absent


def conditions(tests: Sequence[FieldTest], fields: Mapping[str, Column]) -> tuple[str, ...]:
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


def _condition(test: FieldTest, field: Column) -> str:
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


def _literal(field: Column, text: str) -> str:
    """Return a value as SOQL writes it for the field's type.

    Raises:
        ValueError: it does not suit the type.
    """
    is_relative = _RELATIVE_DATE.fullmatch(text) is not None
    match field.kind:
        case "boolean":
            literal, hint = text.lower() if text.lower() in ("true", "false") else "", "write true or false"
        case "double" | "currency" | "percent" | "int" | "long":
            literal, hint = text if _NUMBER.fullmatch(text) else "", "write a number, like 12.50"
        case "date":
            literal, hint = text if is_relative or _is_date(text) else "", _DATE_HINT
        case "datetime":
            literal, hint = text if is_relative else _utc(text), _MOMENT_HINT
        case _:
            return quoted(text)
    if not literal:
        raise ValueError(f'"{text}" is not a value of {field.path}, a {field.kind}: {hint}')
    return literal


def quoted(text: str) -> str:
    """Return a text as SOQL writes it (SOQL and SOSL Reference, Quoted String Escape Sequences)."""
    return f"'{text.translate(_ESCAPES)}'"


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _utc(text: str) -> str:
    """Return a moment as SOQL writes it, "" if the text is not one or has no offset."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return "" if moment.tzinfo is None else utc_text(moment)


def utc_text(moment: datetime) -> str:
    """Return a moment as SOQL writes it: in UTC, with milliseconds."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def convert_for(kind: str) -> Convert:
    """Return the conversion for values of a field of this type."""
    if not kind:
        return unknown
    by_kind = {"id": long_id, "reference": long_id, "datetime": moment, "time": time_of_day}
    convert = by_kind.get(kind, number if kind in ("double", "currency", "percent", "int", "long") else None)
    if convert is None:
        return lambda value: value if type(value) is str else unknown(value)
    return lambda value: convert(value if type(value) is str else str(value)) if value not in (None, "") else ""


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
    plain = f"{Decimal(text):f}" if "E" in text or "e" in text else text
    return plain.removesuffix(".0")


def unknown(value: Any) -> str:
    """Return the cell of a value whose field's type is unknown, by its form."""
    match value:
        case NumberText():
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
