"""Building the queries of one reading from a mapping's words: what to select, which records, in which order.

Nothing is ever glued into a query unquoted; what an author wrote in SOQL himself is asked as it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from connectors.sources.errors import MissingColumnsError
from connectors.sources.formats.nested import Number
from connectors.sources.header import ColumnRequest
from connectors.sources.salesforce.org import Field, Shape, Shapes
from mappings.errors import ConfigError, PermanentError
from mappings.spec.soql import FieldTest, Query
from mappings.spec.source import SalesforceSource

_NUMBERS = frozenset({"double", "currency", "percent", "int", "long"})
_NUMBER = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,20})?", re.ASCII)
_YES_NO = re.compile("true|false")
_OWN_DATE = re.compile(r"[A-Z][A-Z_]{3,40}(?::\d{1,5})?", re.ASCII)
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_DATE_HINT = "write it like 2026-05-03, or as Salesforce does: TODAY, LAST_N_DAYS:30"
_MOMENT_HINT = "write it with its offset, like 2026-05-03T19:30:00+01:00, or as Salesforce does: TODAY, LAST_N_DAYS:30"


@dataclass(frozen=True, slots=True)
class Asking:
    """What one reading asks of one object: the select list, and the conditions that all records must meet."""

    select: str
    object: str
    conditions: tuple[str, ...] = ()

    def query(self, *more: str, order: str = "") -> str:
        """Return the query, with further conditions and an order."""
        return self._after(f"SELECT {self.select}", more) + (f" ORDER BY {order}" if order else "")

    def count(self, *more: str) -> str:
        """Return the query that counts the same records."""
        return self._after("SELECT COUNT()", more)

    def _after(self, opening: str, more: Sequence[str]) -> str:
        conditions = " AND ".join((*self.conditions, *more))
        return f"{opening} FROM {self.object}" + (f" WHERE {conditions}" if conditions else "")


def quoted(text: str) -> str:
    """Return a text as SOQL writes it (SOQL and SOSL Reference, Quoted String Escape Sequences)."""
    return f"'{text.translate(_ESCAPES)}'"


def conditions(tests: Sequence[FieldTest], fields: Mapping[str, Field]) -> tuple[str, ...]:
    """Return the conditions of a mapping's `where`; `fields` are the fields that its paths mean.

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
    """Return the condition for records changed at a moment or before; `with_none`: and for those that tell none."""
    return f"({path} = null OR {path} <= {stamp})" if with_none else f"{path} <= {stamp}"


def after_row(path: str, stamp: str, last_id: str) -> str:
    """Return the condition for what comes after one record, in the order of (`path`, Id); no stamp, "", comes first."""
    if not stamp:
        return f"({path} != null OR ({path} = null AND Id > {quoted(last_id)}))"
    return f"({path} > {stamp} OR ({path} = {stamp} AND Id > {quoted(last_id)}))"


def child_query(name: str, paths: Sequence[str]) -> str:
    """Return the query for child rows; without an order they would come differently every time."""
    return f"(SELECT {', '.join(paths)} FROM {name} ORDER BY Id)"  # noqa: S608  # names that the org itself told us


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
    match field.kind:
        case "boolean":
            return _matching(text.lower(), _YES_NO, field, "write true or false")
        case kind if kind in _NUMBERS:
            return _matching(text, _NUMBER, field, "write a number, like 12.50")
        case "date":
            return text if _is_date(text) else _matching(text, _OWN_DATE, field, _DATE_HINT)
        case "datetime":
            return _utc(text) or _matching(text, _OWN_DATE, field, _MOMENT_HINT)
        case _:
            return quoted(text)


def _matching(text: str, pattern: re.Pattern[str], field: Field, hint: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(f'"{text}" is no value of {field.path}, a {field.kind}: {hint}')
    return text


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _utc(text: str) -> str:
    """Return a moment as SOQL writes it, "" if the text is none."""
    try:
        said = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return "" if said.tzinfo is None else f"{said.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{said.microsecond // 1000:03}Z"


Convert = Callable[[Any], str]
"""Makes a cell of a value: a text, a number, true, false or null (None), and of nested ones a JSON text."""
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{3})(?:Z|\+00:?00)", re.ASCII)
_TIME = re.compile(r"(\d\d:\d\d:\d\d)\.(\d{3})Z?", re.ASCII)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"
_SHORT_ID = re.compile(r"[0-9A-Za-z]{15}", re.ASCII)


def long_id(text: str) -> str:
    """Return an id with 18 characters; one with 15 gets its last three, which say which letters of it are capitals."""
    if not _SHORT_ID.fullmatch(text):
        return text
    fives = (text[place : place + 5] for place in (0, 5, 10))
    return text + "".join(
        _LETTERS[sum(1 << place for place, letter in enumerate(five) if "A" <= letter <= "Z")] for five in fives
    )


def moment(text: str) -> str:
    """Return a moment, sent as `...T17:30:00.000+0000` or `....000Z`, as `...T17:30:00Z`; milliseconds stay if there are any."""
    if text.endswith((".000+0000", ".000Z")):
        return f"{text[:19]}Z"
    match = _MOMENT.fullmatch(text)
    return text if match is None else f"{match[1]}.{match[2]}Z"


def time_of_day(text: str) -> str:
    """Return a time of day, which Salesforce sends with a Z that means nothing: `19:30:00`."""
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
    """Return the cell of a value whose field's type is not known, by what it looks like."""
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
    """Return what makes cells of the values of a field of this type."""
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
    """Return child rows as a JSON list of objects, their values as cells; a parent's fields stand in an object of its own."""
    return json.dumps([_child(record, fields) for record in records], ensure_ascii=False)


def picked(record: Mapping[str, Any], steps: Sequence[str]) -> Any:
    """Return the value to which the steps lead, None where a parent is missing."""
    value: Any = record
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _text_by(spell: Callable[[str], str]) -> Convert:
    return lambda value: spell(value if type(value) is str else str(value)) if value not in (None, "") else ""


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
    """Return nested values as cells, without what Salesforce says of the record as such."""
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
    """A column of the answer: the path by which it is selected, and what makes cells of it.

    `child`: of child rows, their fields and what makes texts of those.
    """

    path: str
    convert: Convert
    child: Mapping[tuple[str, ...], Convert] = field(default_factory=dict)

    @property
    def selected(self) -> str:
        """What stands for it in the select list."""
        return child_query(self.path, [".".join(steps) for steps in self.child]) if self.child else self.path


@dataclass(frozen=True, slots=True)
class Selection:
    """What is selected: `columns` in their order, `cells` with the number of the column that each comes from.

    `absent` are columns that may be missing, and are. `asking` makes the queries. `archive`: archived records must be asked
    for. The rest are the numbers of the columns that the reading itself looks at, None where they are not selected.
    """

    columns: tuple[Column, ...]
    cells: tuple[tuple[str, int], ...]
    asking: Asking
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
    """Return what is asked of an object.

    Raises:
        MissingColumnsError: the object lacks fields, or hides them; all of them.
        ConfigError: values of `where` do not suit their fields, or the records cannot be read incrementally.
    """
    shape = shapes.of(spec.place)
    search = _Search(spec, asked, shapes, shape)
    found = search.columns()
    tested = search.tested()
    search.complain()
    _check_stamp(spec, shape)
    by = (spec.incremental.by,) if spec.incremental else ()
    hidden = {name: name for name in (ID, *by, *((DELETED,) if spec.incremental and shape.has(DELETED) else ()))}
    for name in hidden:
        column = Column(*_of(shapes.find(shape, name) or Field(name)))
        if column.path not in {one.path for one in found.values()}:
            found[column.path] = column
    columns = {column.path: column for column in found.values()}
    numbers = {path: number for number, path in enumerate(columns)}
    asking = Asking(", ".join(one.selected for one in columns.values()), shape.name, conditions(spec.where, tested))
    cells = tuple((name, numbers[column.path]) for name, column in found.items())
    return Selection(tuple(columns.values()), cells, asking, tuple(search.absent), shape.has(ARCHIVED))


def select_query(query: Query, asked: ColumnRequest, shapes: Shapes) -> Selection:
    """Return what an author's own query selects; fields that the org does not tell of have no type.

    Raises:
        MissingColumnsError: the query lacks columns that the mapping reads.
    """
    try:
        shape = shapes.of(query.object)
    except PermanentError:
        # The query may read what cannot be described; what is wrong with it, its answer tells best.
        shape = Shape(query.object, {}, {}, {}, {})
    columns = tuple(Column(*_of(_known(shapes, shape, path))) for path in query.columns)
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
    return Selection(columns, tuple(cells), Asking("", query.object), tuple(absent))


@dataclass(slots=True)
class _Search:
    """Looks for the fields that a mapping names, and remembers what it does not find."""

    spec: SalesforceSource
    asked: ColumnRequest
    shapes: Shapes
    shape: Shape
    missing: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    def columns(self) -> dict[str, Column]:
        """Return the columns by their cells' names, `fields` first."""
        children = {name.lower(): column for name in self.spec.children for column in self._children(name)}
        found = {}
        for name in dict.fromkeys((*self.spec.fields, *self.spec.children, *sorted(self.asked.columns))):
            spellings = (name, *self.asked.aliases.get(name, ()))
            column = next((children[one.lower()] for one in spellings if one.lower() in children), None)
            field = self._field(spellings) if column is None else None
            if column is not None or field is not None:
                found[name] = column or Column(*_of(field or Field(name)))
            else:
                (self.absent if name in self.asked.optional else self.missing).append(name)
        return found

    def _field(self, spellings: Sequence[str]) -> Field | None:
        """Return the field spelt exactly so, else the first other name's, else the one that differs in its case only."""
        name, *others = spellings
        own = self.shapes.find(self.shape, name)
        if own is not None and own.path == name:
            return own
        found = (self.shapes.find(self.shape, one) for one in others)
        return next((one for one in found if one is not None), own)

    def tested(self) -> dict[str, Field]:
        """Return the fields of `where` by their paths."""
        found = {test.field: self.shapes.find(self.shape, test.field) for test in self.spec.where}
        self.missing += [path for path, one in found.items() if one is None]
        return {path: one for path, one in found.items() if one is not None}

    def complain(self) -> None:
        """Raise what is missing, if anything is."""
        missing = [name for name in dict.fromkeys(self.missing) if name.lower() not in map(str.lower, self.spec.children)]
        children = [name for name in self.missing if name not in missing]
        if missing or children:
            near = dict.fromkeys(name for path in missing for name in self.shapes.near(self.shape, path))
            if children:
                near |= dict.fromkeys(name for name, _ in self.shape.children.values())
            raise MissingColumnsError(self.shape.name, {*missing, *children}, tuple(near), advice=_ADVICE)

    def _children(self, name: str) -> Iterator[Column]:
        relation, child = self.shape.children.get(name.lower(), ("", ""))
        if not child:
            return
        shape = self.shapes.of(child)
        fields = {path: self.shapes.find(shape, path) for path in self.spec.children[name]}
        if lost := [path for path, one in fields.items() if one is None]:
            near = dict.fromkeys(one for path in lost for one in self.shapes.near(shape, path))
            raise MissingColumnsError(f"{shape.name}, the object of {relation},", lost, tuple(near), advice=_ADVICE)
        yield Column(relation, unknown, {one.steps: convert_for(one.kind) for one in fields.values() if one is not None})


def _of(field: Field) -> tuple[str, Convert]:
    return field.path, convert_for(field.kind)


def _known(shapes: Shapes, shape: Shape, path: str) -> Field:
    try:
        return shapes.find(shape, path) or Field(path)
    except PermanentError:
        return Field(path)


def _check_stamp(spec: SalesforceSource, shape: Shape) -> None:
    if spec.incremental is None:
        return
    by = shape.fields.get(spec.incremental.by.lower())
    if by is None or by.kind != "datetime":
        known = _moments(shape.fields.values())
        said = "is no moment" if by else "is not there"
        message = f"{shape.name} cannot be read incrementally by {spec.incremental.by}: the field {said}"
        raise ConfigError(message, hint=f"write `by:` one of {', '.join(known) or 'its moments (it has none)'}")


def _moments(fields: Iterable[Field]) -> list[str]:
    return [one.path for one in fields if one.kind == "datetime"]
