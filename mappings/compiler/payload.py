"""Values as the payload holds them: texts in NFC, times in ISO 8601, empties left out.

Which field holds which value is `settling`'s; what the service accepts is `event`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any

import orjson

from mappings.compiler.base import Compiled, Compiler, nothing
from mappings.compiler.evaluation import UNSET, Flow, Getter, RowState, nfc, nothing_left, remembered
from mappings.compiler.values import compile_cover, compile_loop
from mappings.event import NO_TEXT, dump, judge
from mappings.outcome import MappedRow, Rejection, SourceRow
from mappings.plain_events import IsPlain, is_plainly, plain_test, unknown
from mappings.positions import Loc, Problem, ValuePosition
from mappings.refusals import Reason, ReasonCode, Refusal, did_you_mean, nearest
from mappings.row_key import RowKey, fingerprint, row_digest, twin_digest
from mappings.spec.values import Entry, Fields, ForEach, Image, Items, Value
from mappings.steps.step import Kind

Settle = Callable[[Any], Any]
_NUMBERED = frozenset({"channelId", "coverImage"})
_LISTED = frozenset({"classifications"})


def settle_for(path: str, flow: Flow) -> Settle:
    """Return what makes a value of that flow what the payload holds at a path, None where that is nothing."""
    if path in _NUMBERED:
        return _settle_number
    if path in _LISTED:
        return _settle_list
    return _settle_text if flow == Flow(Kind.TEXT) else settle


def _settle_text(value: Any) -> Any:
    """Return the same as `settle`, sooner for texts."""
    if type(value) is not str:
        return settle(value)
    return (value if value.isascii() else nfc(value)) if value and not value.isspace() else None


def _settle_number(value: Any) -> Any:
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else settle(value)


def _settle_list(value: Any) -> Any:
    if type(value) is str:
        return [nfc(value)] if value and not value.isspace() else None
    settled = settle(value)
    if settled is None or type(settled) is list:
        return settled
    return [settled]


def settle(value: Any) -> Any:
    """Return a value as JSON holds it: texts in NFC, times in ISO 8601, empties as None."""
    match value:
        case str():
            return None if not value or value.isspace() else nfc(value)
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case list():
            return [item for item in map(settle, value) if item is not None] or None
        case dict():
            return {
                name: part for name, part in ((name, settle(part)) for name, part in value.items()) if part is not None
            } or None
        case _:
            return value


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
            settled = _field(
                compiler, payload, inner[0], ValuePosition(inner[1], inside.path, may_be_empty=name in place.required)
            )
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


def _field(compiler: Compiler, payload: Payload, value: Value, spot: ValuePosition) -> _Field:
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


def _list_of_objects(compiler: Compiler, payload: Payload, value: Items, spot: ValuePosition) -> Getter:
    items = tuple(
        _item(compiler, payload, item, ValuePosition((*spot.loc, position), f"{spot.path}[{position}]"))
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


def _item(compiler: Compiler, payload: Payload, item: Value, spot: ValuePosition) -> Getter:
    """Compile one entry of a list in the payload."""
    if isinstance(item, Fields):
        return _object(compiler, payload, _branch(compiler, item, spot.loc), _Place(spot.path, in_list=True)).getter
    if isinstance(item, Entry):
        return _entry(compiler, payload, item, spot)
    return _guarded(_field(compiler, payload, item, spot), spot.path)


def _entry(compiler: Compiler, payload: Payload, entry: Entry, spot: ValuePosition) -> Getter:
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


def _image(compiler: Compiler, payload: Payload, value: Image, spot: ValuePosition) -> _Field:
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


_NO_ROW = ReasonCode.NOT_IN_LOOKUP
"""What a source says of a row whose other half is missing."""
_NOTHING_TOLD: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Judge:
    """What every payload of a feed is held against: the service's rules, and the classifications that it knows, if asked.

    `used` gives the cells that the mapping reads; `mapping`: the mapping's own digest; `joined`: what the columns of each joined
    table begin with, by the columns that find its rows; `drafts_warned`: rows with a warning are sent as drafts.
    """

    payload: Payload
    slugs: frozenset[str] | None
    used: Callable[[Mapping[str, str]], Iterable[str]]
    mapping: bytes
    joined: Mapping[str, str] = field(default_factory=dict)
    drafts_warned: bool = False

    def settled(self, row: SourceRow, key: RowKey, state: RowState, payload: dict[str, Any]) -> MappedRow | Rejection:
        """Return the event of a row, or its rejection with all reasons."""
        cover = self.payload.cover(state)
        if state.is_draft or (self.drafts_warned and (row.warnings or state.warnings)):
            payload["status"] = "draft"
        self._check(state, payload)
        body = b"" if state.reasons or row.problems else _dumped(state, payload)
        if not body:
            return Rejection(row.origin, key, once((*row.problems, *self._besides(row.problems, state.reasons))), row.cells)
        city = payload["approxLocation"]["city"]["placeId"]
        place = f"{city} {payload.get('locationName', '')}"
        # In the order of its fields: to name them takes three times as long.
        return MappedRow(
            row.origin,
            key,
            body,
            fingerprint(body, "" if cover is None else cover.url),
            self.digest(state.cells),
            twin_digest(payload["channelId"], payload["title"], payload["startAt"], place),
            payload["channelId"],
            row.cells,
            cover,
            row.warnings + tuple(state.warnings),
            record=row.record,
        )

    def digest(self, cells: Mapping[str, str]) -> bytes:
        """Digest the cells that the mapping uses, and the mapping."""
        return row_digest(self.mapping, self.used(cells))

    def _check(self, state: RowState, payload: dict[str, Any]) -> None:
        """Hold the payload against what the service accepts; a field that has a reason already gets no second one."""
        told = {reason.field for reason in state.reasons} if state.reasons else _NOTHING_TOLD
        is_plain = not state.is_doubtful and self.payload.is_plain(payload)
        for path, refusal in () if is_plain else judge(payload):
            if not any(_is_about(path, field) for field in told):
                column = self._column_of(path)
                cell = state.cells.get(column, "") if refusal.is_empty else ""
                told_of = nothing_left(column, cell) if cell.strip() else refusal.about(column, "", "")
                state.reasons.append(told_of.reason(path))
        self.check_order(state, payload)
        if self.slugs is not None and isinstance(payload.get("classifications"), list):
            self._check_slugs(state, payload["classifications"], self.slugs)

    def check_order(self, state: RowState, payload: Mapping[str, Any]) -> None:
        """Note that an event ends before it starts, unless one of its times has a reason already."""
        if "endAt" not in payload or any(reason.field in _MOMENTS for reason in state.reasons):
            return
        start, end = payload.get("startAt"), payload["endAt"]
        if type(start) is type(end) is str and start[19:] == end[19:] and start <= end:
            return  # as a text too: both are written alike, with the same offset
        try:
            is_backwards = datetime.fromisoformat(payload["endAt"]) < datetime.fromisoformat(payload["startAt"])
        except (KeyError, TypeError, ValueError):
            return
        if is_backwards:
            hint = f"it starts {payload['startAt']}: an end after that would be accepted"
            column = self._column_of("endAt")
            state.reasons.append(Reason(ReasonCode.END_BEFORE_START, "endAt", column, str(payload["endAt"]), hint))

    def _check_slugs(self, state: RowState, found: list[Any], slugs: frozenset[str]) -> None:
        for slug in found:
            if slug not in slugs:
                near = nearest(str(slug), sorted(slugs))
                hint = f'is "{near}" meant?' if near else f"the service knows {', '.join(sorted(slugs)[:8])}, ..."
                column = self._column_of("classifications")
                state.reasons.append(Reason(ReasonCode.NOT_ACCEPTED, "classifications", column, str(slug), hint))

    def _besides(self, problems: Sequence[Reason], reasons: Sequence[Reason]) -> Iterator[Reason]:
        """Yield the reasons that are not mere consequences of what the reader found wrong with the row.

        In a row whose shape is broken the cells stand in wrong columns; a cell that cannot be read is not an empty one, nor
        is one of a joined row that is not there.
        """
        spoilt = [problem.column for problem in problems]
        if "" in spoilt:
            return
        absent = tuple(self.joined[one.column] for one in problems if one.code is _NO_ROW and one.column in self.joined)
        for reason in reasons:
            is_spoilt = reason.column.startswith(absent) or any(_is_about(reason.column, column) for column in spoilt)
            if reason.code is not ReasonCode.REQUIRED or not is_spoilt:
                yield reason

    def _column_of(self, path: str) -> str:
        columns = self.payload.columns
        return columns.get(path) or next((columns[known] for known in columns if columns[known] and _is_about(path, known)), "")


def once(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Tell each problem of a cell once, however many fields it spoils."""
    kept: dict[tuple[object, ...], Reason] = {}
    for reason in reasons:
        key = (
            (reason.code, reason.column, reason.found, reason.step)
            if reason.column
            else (reason.code, reason.field, reason.found)
        )
        kept.setdefault(key, reason)
    return tuple(kept.values())


def _dumped(state: RowState, payload: dict[str, Any]) -> bytes:
    """Return the body, or b"" with the reasons noted where a text is no Unicode text."""
    try:
        return dump(payload)
    except orjson.JSONEncodeError:
        fields = [name for name, value in payload.items() if not _is_sendable(value)]
        state.reasons.extend(Reason(ReasonCode.BAD_TEXT, name, "", "", NO_TEXT) for name in fields or [""])
        return b""


def _is_sendable(value: Any) -> bool:
    try:
        dump({"value": value})
    except orjson.JSONEncodeError:
        return False
    return True


def _is_about(path: str, field: str) -> bool:
    """True if one is the other, or stands inside it."""
    return path == field or path.startswith((f"{field}.", f"{field}[")) or field.startswith((f"{path}.", f"{path}["))
