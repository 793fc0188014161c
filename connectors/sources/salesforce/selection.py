"""Which fields one reading asks for, and which cell each of them becomes.

What the org has is `salesforce_shape`'s; how the records come is `salesforce_pages`' and `salesforce_bulk`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from connectors.sources.errors import MissingColumnsError
from connectors.sources.header import Asked
from connectors.sources.salesforce.cells import Convert, convert_for, unknown
from connectors.sources.salesforce.shape import Field, Shape, Shapes
from connectors.sources.salesforce.soql import Asking, child_query, conditions
from mappings.errors import ConfigError, PermanentError
from mappings.spec.soql import Query
from mappings.spec.source import SalesforceSource

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


def select_object(spec: SalesforceSource, asked: Asked, shapes: Shapes) -> Selection:
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


def select_query(query: Query, asked: Asked, shapes: Shapes) -> Selection:
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
    asked: Asked
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
