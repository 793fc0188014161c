"""The payload compiled: which field holds which value, nested as the service wants it, empties left out.

Where the values come from is `compiled_values`'s; how the payload holds them is `payload_values`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mappings.compiling import Compiled, Compiler, nothing
from mappings.evaluation import UNSET, Getter, RowState
from mappings.loops import compile_loop
from mappings.payload_values import Settle, settle_for
from mappings.pictures import compile_cover
from mappings.plain_events import IsPlain, is_plainly, plain_test, unknown
from mappings.positions import Loc, Problem, Spot
from mappings.refusals import Refusal, did_you_mean
from mappings.remembering import remembered
from mappings.spec.values import Entry, Fields, ForEach, Image, Items, Value
from mappings.stepping import Flow
from mappings.transforms.step import Kind

_Asked = tuple[str, str, Getter, Settle | None]
_MOMENTS = frozenset({"startAt", "endAt"})
_UNPLACED = frozenset({Kind.DATE, Kind.CLOCK, Kind.WALL})


@dataclass(slots=True)
class Payload:
    """A compiled payload: `build` gives it for a row and notes the reasons, `cover` its image; `columns` names each field's.

    `is_plain`: the test whether what was built is plainly an event, for a row that is not doubtful.
    """

    build: Getter = nothing
    cover: Getter = nothing
    columns: dict[str, str] = field(default_factory=dict)
    vouched: set[str] = field(default_factory=set)
    """The fields that are plain in every row that is not doubtful."""
    is_plain: IsPlain = unknown


@dataclass(frozen=True, slots=True)
class _Parts:
    """The compiled fields of an object: those that are the same in every row, and those that are asked for each row.

    `varying`: the fields that come from the row, not from constants alone.
    """

    fixed: dict[str, Any]
    asked: tuple[_Asked, ...]
    varying: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an object stands in the payload: at a path, `in_list` or not. It is left out without one of its `required` fields."""

    path: str = ""
    in_list: bool = False
    required: tuple[str, ...] = ()

    def inner(self, name: str) -> _Place:
        """Return the place of an object inside this one."""
        return _Place(f"{self.path}.{name}" if self.path else name, self.in_list)


_PLAIN = _Place()


@dataclass(slots=True)
class _Branch:
    """An object on its way to being compiled: a field is a value with its place in the file, or a branch."""

    fields: dict[str, _Branch | tuple[Value, Loc]] = field(default_factory=dict)


def compile_payload(compiler: Compiler, event: Fields) -> Payload:
    """Compile the whole payload; what cannot be compiled is noted with the compiler."""
    payload = Payload()
    root = _branch(compiler, event, ("event",))
    payload.build = _assembled(_parts(compiler, payload, root, _PLAIN))
    payload.is_plain = plain_test(root.fields, payload.vouched)
    return payload


def _branch(compiler: Compiler, fields: Fields, loc: Loc) -> _Branch:
    """Unfold dotted names; two fields in one place are a problem."""
    root = _Branch()
    for dotted, value in fields.root.items():
        *outer, last = dotted.split(".")
        branch: _Branch | tuple[Value, Loc] = root
        for name in outer:
            branch = branch.fields.setdefault(name, _Branch()) if isinstance(branch, _Branch) else branch
        if not isinstance(branch, _Branch) or last in branch.fields or not all((*outer, last)):
            compiler.problems.append(Problem((*loc, dotted), f'the field "{dotted}" is filled in two places, or has no name'))
            continue
        branch.fields[last] = _unfolded(compiler, value, (*loc, dotted))
    return root


def _unfolded(compiler: Compiler, value: Value, loc: Loc) -> _Branch | tuple[Value, Loc]:
    return _branch(compiler, value, loc) if isinstance(value, Fields) else (value, loc)


def _parts(compiler: Compiler, payload: Payload, branch: _Branch, place: _Place) -> _Parts:
    """Compile the fields of an object."""
    fixed: dict[str, Any] = {}
    asked: list[_Asked] = []
    varying: set[str] = set()
    for name, inner in branch.fields.items():
        inside = place.inner(name)
        if isinstance(inner, _Branch):
            settled = _object(compiler, payload, inner, inside)
        else:
            settled = _field(compiler, payload, inner[0], Spot(inner[1], inside.path, may_be_empty=name in place.required))
        if not settled.is_constant:
            varying.add(name)
        if settled.always is UNSET:
            asked.append((name, inside.path, settled.get, settled.settle))
        elif settled.always is not None:
            fixed[name] = settled.always
            if is_plainly(inside.path, settled.always):
                payload.vouched.add(inside.path)
    return _Parts(fixed, tuple(asked), frozenset(varying))


def _object(compiler: Compiler, payload: Payload, branch: _Branch, place: _Place) -> _Field:
    """Compile an object inside the payload; one in a list is left out where nothing of it comes from the row."""
    parts = _parts(compiler, payload, branch, place)
    if not parts.asked:
        return _Field(always=parts.fixed or None)
    build = _assembled_of_row(parts, place.required) if place.in_list else _assembled(parts)
    return _Field(build, is_constant=not parts.varying)


def _assembled(parts: _Parts) -> Getter:
    """Return the object of a row."""
    fixed, asked = parts.fixed, parts.asked

    def build(row: RowState) -> Any:
        built = fixed.copy()
        _fill(built, asked, row)
        return built or None

    return build


def _assembled_of_row(parts: _Parts, required: tuple[str, ...]) -> Getter:
    """Return the object of a row, None without a field that it requires, or where only constants are left of it."""
    first = tuple(one for one in parts.asked if one[0] in required)
    others = tuple(one for one in parts.asked if one[0] not in required)

    def build(row: RowState) -> Any:
        built, told = parts.fixed.copy(), len(row.reasons)
        _fill(built, first, row)
        if len(row.reasons) == told and any(name not in built for name in required):
            return None
        _fill(built, others, row)
        return None if parts.varying and parts.varying.isdisjoint(built) else built

    return build


def _fill(built: dict[str, Any], asked: tuple[_Asked, ...], row: RowState) -> None:
    """Add the fields of a row; a refusal of a field becomes a reason of the row, and the field is left out."""
    for name, path, get, settle_value in asked:
        try:
            value = get(row)
        except Refusal as refusal:
            row.reasons.append(refusal.reason(path))
            continue
        if value is not None and settle_value is not None:
            value = settle_value(value)
        if value is not None:
            built[name] = value


@dataclass(frozen=True, slots=True)
class _Field:
    """A compiled field: its value, how the payload holds it (None: as it is); or what it `always` is, settled."""

    get: Getter = nothing
    settle: Settle | None = None
    always: Any = UNSET
    is_constant: bool = False

    @property
    def getter(self) -> Getter:
        """What gives the field for a row, not settled."""
        always = self.always
        return self.get if always is UNSET else lambda _row: always


_LEFT_OUT = _Field(always=None)


def _field(compiler: Compiler, payload: Payload, value: Value, spot: Spot) -> _Field:
    if isinstance(value, Image):
        return _image(compiler, payload, value, spot)
    if isinstance(value, ForEach):
        loop = compile_loop(compiler, value, spot, lambda give, there: _item(compiler, payload, give, there))
        payload.columns[spot.path] = loop.column
        return _Field(loop.get)
    if isinstance(value, Items) and any(isinstance(item, Fields | Entry) for item in value.root):
        return _Field(_list_of_objects(compiler, payload, value, spot))
    compiled = compiler.value(value, spot)
    payload.columns[spot.path] = compiled.column
    if spot.path in _MOMENTS and compiled.flow.kind in _UNPLACED:
        hint = "say where its clocks are: {at: {day: ..., clock: ..., zone: ...}}, or the step wall_time_in"
        compiler.misfit(spot, f"{spot.path} is a moment, and a {compiled.flow.kind} is none", hint)
    return _settled(compiler, payload, compiled, spot.path)


def _settled(compiler: Compiler, payload: Payload, compiled: Compiled, path: str) -> _Field:
    """Days, places and lists of categories are the same in many rows; titles and addresses are not."""
    settle_value = settle_for(path, compiled.flow)
    always = _same_in_all_rows(compiler, compiled)
    if always is not UNSET:
        return _Field(always=None if always is None else settle_value(always), is_constant=True)
    if compiler.watch is None and compiled.reads is not None and compiled.flow != Flow(Kind.TEXT):
        payload.vouched.add(path)
        return _Field(remembered(compiled.get, settle_value, compiled.reads, partial(is_plainly, path)))
    return _Field(compiled.get, settle_value, is_constant=compiled.is_constant)


def _same_in_all_rows(compiler: Compiler, compiled: Compiled) -> Any:
    """Return what a value is whatever the row, UNSET where it looks at the row or has something to tell about it."""
    if compiled.constant is not None:
        return compiled.constant
    if compiled.reads is None or compiled.reads or compiler.watch is not None or compiler.problems:
        return UNSET
    row = RowState({}, compiler.named_count)
    try:
        found = compiled.get(row)
    except Refusal:
        return UNSET
    return UNSET if row.warnings or row.reasons else found


def _list_of_objects(compiler: Compiler, payload: Payload, value: Items, spot: Spot) -> Getter:
    items = tuple(
        _item(compiler, payload, item, Spot((*spot.loc, position), f"{spot.path}[{position}]"))
        for position, item in enumerate(value.root)
    )

    def build(row: RowState) -> Any:
        built = []
        for get in items:
            one = get(row)
            if one is not None:
                built.append(one)
        return built or None

    return build


def _item(compiler: Compiler, payload: Payload, item: Value, spot: Spot) -> Getter:
    """Compile one entry of a list in the payload."""
    if isinstance(item, Fields):
        return _object(compiler, payload, _branch(compiler, item, spot.loc), _Place(spot.path, in_list=True)).getter
    if isinstance(item, Entry):
        return _entry(compiler, payload, item, spot)
    return _guarded(_field(compiler, payload, item, spot), spot.path)


def _entry(compiler: Compiler, payload: Payload, entry: Entry, spot: Spot) -> Getter:
    """Compile an object of a list that is wanted under a condition, or with some of its fields only."""
    branch = _branch(compiler, entry.fields, spot.loc)
    for position, name in enumerate(entry.require):
        if name not in branch.fields:
            hint = did_you_mean(name, branch.fields) or f"its fields are {', '.join(branch.fields)}"
            compiler.misfit(spot.inner("require", position), f'"{name}" is no field of this object', hint)
    get = _object(compiler, payload, branch, _Place(spot.path, in_list=True, required=entry.require)).getter
    if entry.when is None:
        return get
    holds = compiler.condition(entry.when, (*spot.loc, "when"))

    def wanted(row: RowState) -> Any:
        try:
            return get(row) if holds(row) else None
        except Refusal as refusal:
            row.reasons.append(refusal.reason(spot.path))
            return None

    return wanted


def _image(compiler: Compiler, payload: Payload, value: Image, spot: Spot) -> _Field:
    if spot.path != "coverImage":
        compiler.misfit(spot, "an image has its place in coverImage only")
        return _LEFT_OUT
    payload.cover = compile_cover(compiler, value, spot)
    return _LEFT_OUT


def _guarded(item: _Field, path: str) -> Getter:
    get, settle_value = item.getter, item.settle

    def guarded(row: RowState) -> Any:
        try:
            value = get(row)
        except Refusal as refusal:
            row.reasons.append(refusal.reason(path))
            return None
        return value if value is None or settle_value is None else settle_value(value)

    return guarded
