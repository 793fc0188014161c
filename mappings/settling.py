"""The payload compiled: which field holds which value, nested as the service wants it, empties left out.

Where the values come from is `compiled_values`'s; how the payload holds them is `payload_values`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mappings.compiling import Compiled, Compiler, nothing
from mappings.evaluation import Getter, RowState, is_empty
from mappings.loops import compile_loop
from mappings.payload_values import Settle, as_it_is, settle_for
from mappings.pictures import first_usable
from mappings.refusals import Refusal
from mappings.remembering import remembered
from mappings.spots import Loc, Problem, Spot
from mappings.stepping import Flow
from mappings.transforms.step import Kind
from mappings.transforms.urls import clean_url
from mappings.values import Fields, ForEach, Image, Items, Value
from mappings.vocabulary import Cover

_Asked = tuple[str, str, Getter, Settle]
_MOMENTS = frozenset({"startAt", "endAt"})
_UNPLACED = frozenset({Kind.DATE, Kind.CLOCK, Kind.WALL})


@dataclass(slots=True)
class Payload:
    """A compiled payload: `build` gives it for a row and notes the reasons, `cover` its image; `columns` names each field's."""

    build: Getter = nothing
    cover: Getter = nothing
    columns: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Branch:
    """An object on its way to being compiled: a field is a value with its place in the file, or a branch."""

    fields: dict[str, _Branch | tuple[Value, Loc]] = field(default_factory=dict)


def compile_payload(compiler: Compiler, event: Fields) -> Payload:
    """Compile the whole payload; what cannot be compiled is noted with the compiler."""
    payload = Payload()
    payload.build = _object(compiler, payload, _branch(compiler, event, ("event",)), "")
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


def _object(compiler: Compiler, payload: Payload, branch: _Branch, path: str) -> Getter:
    """Compile an object: constants are put in place once, the other fields are asked for each row."""
    fixed: dict[str, Any] = {}
    asked: list[_Asked] = []
    for name, inner in branch.fields.items():
        inner_path = f"{path}.{name}" if path else name
        if isinstance(inner, _Branch):
            asked.append((name, inner_path, _object(compiler, payload, inner, inner_path), as_it_is))
            continue
        settled = _field(compiler, payload, inner[0], Spot(inner[1], inner_path))
        if settled.constant is not None:
            fixed[name] = settled.settle(settled.constant)
        elif settled.get is not nothing:
            asked.append((name, inner_path, settled.get, settled.settle))
    return _assembled({name: value for name, value in fixed.items() if value is not None}, tuple(asked))


def _assembled(fixed: dict[str, Any], asked: tuple[_Asked, ...]) -> Getter:
    """Return the object of a row; a refusal of a field becomes a reason of the row, and the field is left out."""

    def build(row: RowState) -> Any:
        built = fixed.copy()
        for name, path, get, settle_value in asked:
            try:
                value = get(row)
            except Refusal as refusal:
                row.reasons.append(refusal.reason(path))
                continue
            if value is not None:
                value = settle_value(value)
                if value is not None:
                    built[name] = value
        return built or None

    return build


@dataclass(frozen=True, slots=True)
class _Field:
    """A compiled field: its value, how the payload holds it, and its text if it is constant."""

    get: Getter
    settle: Settle
    constant: str | None = None


def _field(compiler: Compiler, payload: Payload, value: Value, spot: Spot) -> _Field:
    if isinstance(value, Image):
        return _Field(_image(compiler, payload, value, spot), as_it_is)
    if isinstance(value, ForEach):
        loop = compile_loop(compiler, value, spot, lambda give, there: _item(compiler, payload, give, there))
        payload.columns[spot.path] = loop.column
        return _Field(loop.get, as_it_is)
    if isinstance(value, Items) and any(isinstance(item, Fields) for item in value.root):
        return _Field(_list_of_objects(compiler, payload, value, spot), as_it_is)
    compiled = compiler.value(value, spot)
    payload.columns[spot.path] = compiled.column
    if spot.path in _MOMENTS and compiled.flow.kind in _UNPLACED:
        hint = "say where its clocks are: {at: {day: ..., clock: ..., zone: ...}}, or the step wall_time_in"
        compiler.misfit(spot, f"{spot.path} is a moment, and a {compiled.flow.kind} is none", hint)
    settle_value = settle_for(spot.path, compiled.flow)
    if compiler.watch is None and compiled.reads is not None and _comes_again(compiled):
        return _Field(remembered(compiled.get, settle_value, compiled.reads), as_it_is)
    return _Field(compiled.get, settle_value, compiled.constant)


def _comes_again(compiled: Compiled) -> bool:
    """Days, places and lists of categories are the same in many rows; titles and addresses are not."""
    return compiled.constant is None and (compiled.flow != Flow(Kind.TEXT) or not compiled.reads)


def _list_of_objects(compiler: Compiler, payload: Payload, value: Items, spot: Spot) -> Getter:
    items = tuple(
        _item(compiler, payload, item, Spot((*spot.loc, position), f"{spot.path}[{position}]"))
        for position, item in enumerate(value.root)
    )

    def build(row: RowState) -> Any:
        return [built for built in [get(row) for get in items] if built is not None] or None

    return build


def _item(compiler: Compiler, payload: Payload, item: Value, spot: Spot) -> Getter:
    """Compile one entry of a list in the payload."""
    if isinstance(item, Fields):
        return _object(compiler, payload, _branch(compiler, item, spot.loc), spot.path)
    return _guarded(_field(compiler, payload, item, spot), spot.path)


def _image(compiler: Compiler, payload: Payload, value: Image, spot: Spot) -> Getter:
    if spot.path != "coverImage":
        return compiler.misfit(spot, "an image has its place in coverImage only").get
    several = value.image.root if isinstance(value.image, Items) else (value.image,)
    parts = [compiler.value(one, spot.inner("image", may_be_empty=True)) for one in several]
    inner = parts[0] if len(parts) == 1 and not parts[0].flow.is_list else first_usable(parts)
    payload.cover = _cover(inner, value.on_error, "" if value.default is None else clean_url(value.default))
    return nothing


def _cover(inner: Compiled, on_error: str, default: str) -> Getter:
    policy = f"{on_error} {default}" if default else on_error

    def cover(row: RowState) -> Any:
        try:
            found = inner.get(row)
            return None if is_empty(found) else Cover(clean_url(str(found)), policy)
        except Refusal as refusal:
            reason = refusal.about(inner.column, "", "image").reason("coverImage")
        if on_error == "reject":
            row.reasons.append(reason)
            return None
        row.warnings.append(reason)
        row.is_draft = row.is_draft or on_error == "draft"
        return Cover(default, "omit") if default else None

    return cover


def _guarded(item: _Field, path: str) -> Getter:
    def guarded(row: RowState) -> Any:
        try:
            value = item.get(row)
        except Refusal as refusal:
            row.reasons.append(refusal.reason(path))
            return None
        return None if value is None else item.settle(value)

    return guarded
