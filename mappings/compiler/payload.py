"""The payload: how its fields are compiled and filled for a row, and how the result is validated.

Texts are in NFC, times in ISO 8601; what is empty is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import orjson

from mappings.compiler.base import CompiledValue, Compiler, nothing
from mappings.compiler.evaluation import UNSET, Flow, Getter, RowState, nfc, nothing_left, remembered
from mappings.compiler.values import compile_cover, compile_loop
from mappings.event import NO_TEXT, dump, judge
from mappings.outcome import MappedRow, Rejection, SourceRow
from mappings.positions import Loc, MappingProblem, ValuePosition
from mappings.refusals import Reason, ReasonCode, Refusal, did_you_mean, nearest
from mappings.row_key import RowKey, duplicate_digest, fingerprint
from mappings.spec.values import Fields, ForEach, ImageValue, Items, ListEntry, Value
from mappings.steps.step import Kind
from mappings.zones import EndOfDay

Settle = Callable[[Any], Any]
"""Returns a value as the payload holds it, None where that is nothing."""
_NUMBERS = frozenset({"channelId", "coverImage"})
_LISTS = frozenset({"classifications"})
_MOMENTS = frozenset({"startAt", "endAt"})
_WITHOUT_ZONE = frozenset({Kind.DATE, Kind.CLOCK, Kind.WALL})


def settle_for(path: str, flow: Flow) -> Settle:
    """Return the function that settles a value of that flow for the field at a path."""
    if path in _NUMBERS:
        return _settle_number
    if path in _LISTS:
        return _settle_list
    return _settle_text if flow == Flow(Kind.TEXT) else settle


def settle(value: Any) -> Any:
    """Return a value as JSON holds it: texts in NFC, times in ISO 8601, empties as None."""
    match value:
        case str():
            return None if not value or value.isspace() else nfc(value)
        case date() | time() | EndOfDay():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case list():
            return [item for item in map(settle, value) if item is not None] or None
        case dict():
            settled = {name: settle(part) for name, part in value.items()}
            return {name: part for name, part in settled.items() if part is not None} or None
        case _:
            return value


def _settle_text(value: Any) -> Any:
    """Return the same as `settle`, sooner for texts."""
    if type(value) is not str:
        return settle(value)
    return (value if value.isascii() else nfc(value)) if value and not value.isspace() else None


def _settle_number(value: Any) -> Any:
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else settle(value)


def _settle_list(value: Any) -> Any:
    settled = settle(value)
    return settled if settled is None or type(settled) is list else [settled]


@dataclass(slots=True)
class Payload:
    """A compiled payload: `build` gives it for a row and notes the reasons, `cover` its image; `columns` names each field's."""

    build: Getter = nothing
    cover: Getter = nothing
    columns: dict[str, str] = field(default_factory=dict)


class _Tree(dict[str, "_Tree | tuple[Value, Loc]"]):
    """The fields of an object by name, dotted names unfolded: a value with its place in the file, or an object."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A compiled field: its value and how it is settled (None: it is already); or what it is in every row, settled."""

    name: str
    path: str
    get: Getter = nothing
    settle: Settle | None = None
    always: Any = UNSET
    is_constant: bool = False

    def read(self, row: RowState) -> Any:
        """Return the settled field of a row, None where it is left out; a refusal becomes a reason of the row."""
        if self.always is not UNSET:
            return self.always
        try:
            value = self.get(row)
        except Refusal as refusal:
            row.reasons.append(refusal.reason(self.path))
            return None
        return value if value is None or self.settle is None else self.settle(value)


def compile_payload(compiler: Compiler, event: Fields) -> Payload:
    """Compile the whole payload; what cannot be compiled is noted with the compiler."""
    payload = Payload()
    fields = _fields(compiler, payload, _tree(compiler, event, ("event",)), "")
    payload.build = _object_reader(fields)
    return payload


def _tree(compiler: Compiler, fields: Fields, loc: Loc) -> _Tree:
    """Unfold dotted names; two fields in one place are a problem."""
    root = _Tree()
    for dotted, value in fields.root.items():
        *outer, last = dotted.split(".")
        branch: _Tree | tuple[Value, Loc] = root
        for name in outer:
            branch = branch.setdefault(name, _Tree()) if isinstance(branch, _Tree) else branch
        place = (*loc, dotted)
        if not isinstance(branch, _Tree) or last in branch or not all((*outer, last)):
            compiler.problems.append(MappingProblem(place, f'the field "{dotted}" is filled in two places, or has no name'))
            continue
        branch[last] = _tree(compiler, value, place) if isinstance(value, Fields) else (value, place)
    return root


def _fields(
    compiler: Compiler, payload: Payload, tree: _Tree, path: str, *, in_list: bool = False, required: tuple[str, ...] = ()
) -> list[_Field]:
    """Compile the fields of an object."""
    fields = []
    for name, inner in tree.items():
        inside = f"{path}.{name}" if path else name
        if isinstance(inner, _Tree):
            fields.append(_object(name, inside, _fields(compiler, payload, inner, inside, in_list=in_list), in_list=in_list))
        else:
            spot = ValuePosition(inner[1], inside, may_be_empty=name in required)
            fields.append(_field(compiler, payload, inner[0], spot, name))
    return fields


def _object(name: str, path: str, fields: list[_Field], *, in_list: bool) -> _Field:
    is_constant = all(one.is_constant for one in fields)
    if all(one.always is not UNSET for one in fields):
        return _Field(name, path, always=_constants(fields) or None, is_constant=is_constant)
    return _Field(name, path, _listed_object(fields, ()) if in_list else _object_reader(fields), is_constant=is_constant)


def _constants(fields: Iterable[_Field]) -> dict[str, Any]:
    return {one.name: one.always for one in fields if one.always is not UNSET and one.always is not None}


def _object_reader(fields: Sequence[_Field]) -> Getter:
    """Return the function that builds an object for a row. Written out, as it runs for every row (budget 3)."""
    constants = _constants(fields)
    varying = tuple((one.name, one.path, one.get, one.settle) for one in fields if one.always is UNSET)

    def build(row: RowState) -> Any:
        built = constants.copy()
        for name, path, get, settle_value in varying:
            try:
                value = get(row)
            except Refusal as refusal:
                row.reasons.append(refusal.reason(path))
                continue
            if value is not None and settle_value is not None:
                value = settle_value(value)
            if value is not None:
                built[name] = value
        return built or None

    return build


def _listed_object(fields: Sequence[_Field], required: tuple[str, ...]) -> Getter:
    """Return the function that builds an object of a list: None without a required field, or with constants alone."""
    if all(one.always is not UNSET for one in fields):
        constants = _constants(fields) or None
        return lambda _row: constants
    first = _object_reader([one for one in fields if one.name in required])
    others = _object_reader([one for one in fields if one.name not in required])
    from_row = {one.name for one in fields if not one.is_constant}

    def build(row: RowState) -> Any:
        count = len(row.reasons)
        built = first(row) or {}
        if len(row.reasons) == count and any(name not in built for name in required):
            return None
        built |= others(row) or {}
        return None if from_row and from_row.isdisjoint(built) else built

    return build


def _field(compiler: Compiler, payload: Payload, value: Value, spot: ValuePosition, name: str = "") -> _Field:
    if isinstance(value, ImageValue):
        if spot.path == "coverImage":
            payload.cover = compile_cover(compiler, value, spot)
        else:
            compiler.misfit(spot, "an image has its place in coverImage only")
        return _Field(name, spot.path, always=None)
    if isinstance(value, ForEach):
        loop = compile_loop(compiler, value, spot, lambda give, there: _item(compiler, payload, give, there))
        payload.columns[spot.path] = loop.column
        return _Field(name, spot.path, loop.get)
    if isinstance(value, Items) and any(isinstance(item, Fields | ListEntry) for item in value.root):
        return _Field(name, spot.path, _list_of_objects(compiler, payload, value, spot))
    compiled = compiler.value(value, spot)
    payload.columns[spot.path] = compiled.column
    if spot.path in _MOMENTS and compiled.flow.kind in _WITHOUT_ZONE:
        hint = "say where its clocks are: {at: {day: ..., clock: ..., zone: ...}}, or the step wall_time_in"
        compiler.misfit(spot, f"{spot.path} is a moment, and a {compiled.flow.kind} is none", hint)
    settle_value = settle_for(spot.path, compiled.flow)
    always = _same_in_all_rows(compiler, compiled)
    if always is not UNSET:
        return _Field(name, spot.path, always=None if always is None else settle_value(always), is_constant=True)
    if compiler.watch is None and compiled.reads is not None and compiled.flow != Flow(Kind.TEXT):
        # Days, places and lists of categories are the same in many rows; titles and addresses are not.
        return _Field(name, spot.path, remembered(compiled.get, settle_value, compiled.reads))
    return _Field(name, spot.path, compiled.get, settle_value, is_constant=compiled.is_constant)


def _same_in_all_rows(compiler: Compiler, compiled: CompiledValue) -> Any:
    """Return the value if it is the same in every row, UNSET where it reads the row or warns of something."""
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
    spots = [ValuePosition((*spot.loc, position), f"{spot.path}[{position}]") for position in range(len(value.root))]
    items = tuple(_item(compiler, payload, item, there) for item, there in zip(value.root, spots, strict=True))
    return lambda row: [built for get in items if (built := get(row)) is not None] or None


def _item(compiler: Compiler, payload: Payload, item: Value, spot: ValuePosition) -> Getter:
    """Compile one entry of a list in the payload."""
    if isinstance(item, Fields):
        return _listed_object(_fields(compiler, payload, _tree(compiler, item, spot.loc), spot.path, in_list=True), ())
    if isinstance(item, ListEntry):
        return _entry(compiler, payload, item, spot)
    return _field(compiler, payload, item, spot).read


def _entry(compiler: Compiler, payload: Payload, entry: ListEntry, spot: ValuePosition) -> Getter:
    """Compile an object of a list that is wanted under a condition, or with some of its fields only."""
    tree = _tree(compiler, entry.fields, spot.loc)
    for position, name in enumerate(entry.require):
        if name not in tree:
            hint = did_you_mean(name, tree) or f"its fields are {', '.join(tree)}"
            compiler.misfit(spot.inner("require", position), f'"{name}" is no field of this object', hint)
    get = _listed_object(_fields(compiler, payload, tree, spot.path, in_list=True, required=entry.require), entry.require)
    if entry.when is None:
        return get
    holds = compiler.condition(entry.when, (*spot.loc, "when"))
    return _Field("", spot.path, lambda row: get(row) if holds(row) else None).read


_NO_ROW = ReasonCode.NOT_IN_LOOKUP
"""What a source says of a row whose other half is missing."""


@dataclass(frozen=True, slots=True)
class Validator:
    """Validates the payloads of a feed by the service's rules, and by the classifications that it knows, if asked.

    `used` gives the cells that the mapping reads, `digest_cells` digests them; `joined`: what the columns of each joined table
    begin with, by the columns that find its rows; `drafts_warned`: rows with a warning are sent as drafts.
    """

    payload: Payload
    slugs: frozenset[str] | None
    used: Callable[[Mapping[str, str]], Sequence[str]]
    digest_cells: Callable[[Sequence[str]], bytes]
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
            return Rejection(row.location, key, once((*row.problems, *self._besides(row.problems, state.reasons))), row.cells)
        city = payload["approxLocation"]["city"]["placeId"]
        place = f"{city} {payload.get('locationName', '')}"
        # In the order of its fields: to name them takes three times as long.
        return MappedRow(
            row.location,
            key,
            body,
            fingerprint(body, "" if cover is None else cover.url),
            self.digest(state.cells),
            duplicate_digest(payload["channelId"], payload["title"], payload["startAt"], place),
            payload["channelId"],
            row.cells,
            cover,
            row.warnings + tuple(state.warnings),
        )

    def digest(self, cells: Mapping[str, str]) -> bytes:
        """Digest the cells that the mapping uses, and the mapping."""
        return self.digest_cells(self.used(cells))

    def _check(self, state: RowState, payload: dict[str, Any]) -> None:
        """Validate the payload; a field that has a reason already gets no second one."""
        known = {reason.field for reason in state.reasons}
        for path, refusal in judge(payload):
            if not any(_is_about(path, field) for field in known):
                column = self._column_of(path)
                cell = state.cells.get(column, "") if refusal.is_empty else ""
                found = nothing_left(column, cell) if cell.strip() else refusal.about(column, "", "")
                state.reasons.append(found.reason(path))
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
        broken = [problem.column for problem in problems]
        if "" in broken:
            return
        absent = tuple(self.joined[one.column] for one in problems if one.code is _NO_ROW and one.column in self.joined)
        for reason in reasons:
            is_consequence = reason.column.startswith(absent) or any(_is_about(reason.column, column) for column in broken)
            if reason.code is not ReasonCode.REQUIRED or not is_consequence:
                yield reason

    def _column_of(self, path: str) -> str:
        columns = self.payload.columns
        return columns.get(path) or next((columns[known] for known in columns if columns[known] and _is_about(path, known)), "")


def once(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Report each problem of a cell once, however many fields it spoils."""
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
