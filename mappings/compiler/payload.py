"""The event's payload: compiled fields, their values for a row, and the validation of the result.

Texts are in NFC, times in ISO 8601; empty fields are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import orjson

from mappings.compiler.base import (
    ANYTHING,
    UNSET,
    CompiledValue,
    Compiler,
    Flow,
    Getter,
    RowState,
    Watch,
    as_list,
    combined,
    first_column,
    is_empty,
    lenient,
    nfc,
    nothing,
    nothing_left,
    once,
    read_cell,
    remembered,
)
from mappings.compiler.rows import Reach, read_moment
from mappings.delivery import Cover
from mappings.event import NO_TEXT, dump, event_fields, judge
from mappings.outcome import MappedRow, Rejection, SourceRow
from mappings.positions import Loc, MappingProblem, ValuePosition
from mappings.reasons import Reason, ReasonCode, Refusal, did_you_mean, nearest
from mappings.row_key import duplicate_digest_of, fingerprint
from mappings.spec.values import Fields, ForEach, ImageValue, Items, ListEntry, Value
from mappings.steps.step import Kind, text_of
from mappings.steps.urls import clean_url
from mappings.zones import EndOfDay

EACH_EVENT = "event"
"""The field under which `explain` shows that the steps of another event of the row begin."""
_MOMENTS = frozenset({"startAt", "endAt"})
_NO_MOMENT = frozenset({Kind.DATE, Kind.CLOCK, Kind.WALL, Kind.DURATION})


def settle(value: Any) -> Any:
    """Convert a value to JSON types: texts in NFC, times in ISO 8601, empty values to None."""
    if type(value) is str:
        return (value if value.isascii() else nfc(value)) if value and not value.isspace() else None
    match value:
        case date() | time() | timedelta() | EndOfDay():
            return text_of(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case list():
            return [item for item in map(settle, value) if item is not None] or None
        case dict():
            settled = {name: settle(part) for name, part in value.items()}
            return {name: part for name, part in settled.items() if part is not None} or None
        case _:
            return value


def _settle_number(value: Any) -> Any:
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else settle(value)


def _settle_list(value: Any) -> Any:
    settled = settle(value)
    return settled if settled is None or type(settled) is list else [settled]


_SETTLERS = {
    path: _settle_number if field.kind == "number" else _settle_list
    for path, field in event_fields().items()
    if field.kind in {"number", "list"}
}


@dataclass(frozen=True, slots=True)
class _Field:
    """A compiled field. `settle`: its conversion to JSON types, None if not needed. `always`: its converted value if constant."""

    name: str
    path: str
    get: Getter = nothing
    settle: Callable[[Any], Any] | None = None
    always: Any = UNSET
    is_constant: bool = False

    def read(self, row: RowState) -> Any:
        """Return the field's value for a row, None if it is left out; add the reason of a refusal to the row."""
        if self.always is not UNSET:
            return self.always
        try:
            value = self.get(row)
        except Refusal as refusal:
            row.reasons.append(refusal.reason(self.path))
            return None
        return value if value is None or self.settle is None else self.settle(value)


def _object_reader(fields: Sequence[_Field]) -> Getter:
    """Return a function that builds an object for a row. The loop is written out because it runs for every row (budget 3)."""
    constants = {one.name: one.always for one in fields if one.always is not UNSET and one.always is not None}
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


def _listed_object(fields: Sequence[_Field], required: tuple[str, ...] = ()) -> Getter:
    """Return a function that builds an object in a list: None if a required field is missing or all fields are constants."""
    first = _object_reader([one for one in fields if one.name in required]) if required else nothing
    others = _object_reader([one for one in fields if one.name not in required])
    from_row = {one.name for one in fields if not one.is_constant}

    def build(row: RowState) -> Any:
        built: dict[str, Any] = {}
        if required:
            count = len(row.reasons)
            built = first(row) or built
            if len(row.reasons) == count and any(name not in built for name in required):
                return None
        if (rest := others(row)) is not None:
            built = {**built, **rest} if built else rest
        return None if not built or (from_row and from_row.isdisjoint(built)) else built

    return build


class Payload:
    """A compiled payload. `build` returns a row's payload and adds reasons to the row; `cover` returns its image; `columns`
    gives the column of each field. Mistakes in the file go to the compiler's problems.
    """

    def __init__(self, compiler: Compiler, event: Fields) -> None:
        self._compiler = compiler
        self.cover: Getter = nothing
        self.columns: dict[str, str] = {}
        self.build = _object_reader(self._fields(self._tree(event, ("event",)), ""))

    def announce(self, watch: Watch) -> None:
        """Report each event to `watch` before its fields."""
        build = self.build

        def announced(row: RowState) -> Any:
            watch(EACH_EVENT, row.key, None, None)
            return build(row)

        self.build = announced

    def _tree(self, fields: Fields, loc: Loc) -> Mapping[str, object]:
        tree, taken = fields.unfolded(loc)
        for place in taken:
            message = f'the field "{place[-1]}" is filled in two places, or has no name'
            self._compiler.problems.append(MappingProblem(place, message))
        return tree

    def _fields(
        self, tree: Mapping[str, Any], path: str, *, in_list: bool = False, required: tuple[str, ...] = ()
    ) -> list[_Field]:
        """Compile the fields of an object."""
        fields = []
        for name, inner in tree.items():
            inside = f"{path}.{name}" if path else name
            if isinstance(inner, dict):
                parts = self._fields(inner, inside, in_list=in_list)
                get = _listed_object(parts) if in_list else _object_reader(parts)
                fields.append(_Field(name, inside, get, is_constant=all(one.is_constant for one in parts)))
            else:
                spot = ValuePosition(inner[1], inside, may_be_empty=name in required)
                fields.append(self._field(inner[0], spot, name))
        return fields

    def _field(self, value: Value, spot: ValuePosition, name: str = "") -> _Field:
        match value:
            case ImageValue():
                if spot.path == "coverImage":
                    self.cover = self._cover(value, spot)
                else:
                    self._compiler.misfit(spot, "an image is allowed in coverImage only")
                return _Field(name, spot.path)
            case ForEach():
                return _Field(name, spot.path, self._loop(value, spot))
            case Items() if any(isinstance(item, Fields | ListEntry) for item in value.root):
                spots = (ValuePosition((*spot.loc, place), f"{spot.path}[{place}]") for place in range(len(value.root)))
                items = [self._item(item, there) for item, there in zip(value.root, spots, strict=True)]
                return _Field(name, spot.path, lambda row: [one for get in items if (one := get(row)) is not None] or None)
            case _:
                return self._single(self._compiler.value(value, spot), spot, name)

    def _single(self, compiled: CompiledValue, spot: ValuePosition, name: str) -> _Field:
        self.columns[spot.path] = compiled.column
        if spot.path in _MOMENTS and compiled.flow.kind in _NO_MOMENT:
            hint = "give its time zone: {at: {day: ..., clock: ..., zone: ...}}, or the step wall_time_in"
            if compiled.flow.kind is Kind.DURATION:
                hint = "add it to the start: {plus: {moment: $starts, length: ...}}"
            self._compiler.misfit(spot, f"{spot.path} is a moment, not a {compiled.flow.kind}", hint)
        settle_value = _SETTLERS.get(spot.path, settle)
        one = _Field(name, spot.path, compiled.get, settle_value, is_constant=compiled.is_constant)
        if self._compiler.watch is not None:
            return one
        if compiled.is_constant:
            row = RowState({}, self._compiler.named_count)
            always = one.read(row)
            return one if row.warnings or row.reasons else replace(one, always=always)
        if compiled.reads is not None and (compiled.flow != Flow(Kind.TEXT) or spot.path in _SETTLERS):
            # Days, places and categories are the same in many rows; titles and addresses are not.
            return _Field(name, spot.path, remembered(compiled.get, settle_value, compiled.reads))
        return one

    def _item(self, item: Value, spot: ValuePosition) -> Getter:
        """Compile one entry of a list: a value, or an object with an optional condition and required fields."""
        if isinstance(item, Fields):
            return _listed_object(self._fields(self._tree(item, spot.loc), spot.path, in_list=True))
        if not isinstance(item, ListEntry):
            return self._field(item, spot).read
        tree = self._tree(item.fields, spot.loc)
        for position, name in enumerate(item.require):
            if name not in tree:
                hint = did_you_mean(name, tree) or f"its fields are {', '.join(tree)}"
                self._compiler.misfit(spot.inner("require", position), f'this object has no field "{name}"', hint)
        get = _listed_object(self._fields(tree, spot.path, in_list=True, required=item.require), item.require)
        if item.when is None:
            return get
        holds = self._compiler.condition(item.when, (*spot.loc, "when"))
        return _Field("", spot.path, lambda row: get(row) if holds(row) else None).read

    def _loop(self, value: ForEach, spot: ValuePosition) -> Getter:
        """Compile a `for_each` list."""
        compiler = self._compiler
        parts = value.for_each.root if isinstance(value.for_each, Items) and len(value.names) > 1 else (value.for_each,)
        taken = [name for name in value.names if name in compiler.let or name in compiler.loops or name in compiler.given]
        if taken:
            message = f'"${taken[0]}" is the name of another value'
            return compiler.misfit(spot.inner("as"), message, "give the item another name").get
        lists = [self._list(part, spot.inner("for_each", may_be_empty=True)) for part in parts]
        items = [compiler.item(Flow(one.flow.kind), one.column) for one in lists]
        column, path = first_column(lists), f"{spot.path}[]"
        outer = compiler.loops
        compiler.loops = outer | {name: item for name, (_, item) in zip(value.names, items, strict=True)}
        give = self._item(value.give, ValuePosition((*spot.loc, "give"), path))
        compiler.loops = outer
        self.columns[spot.path] = column
        varying = [n for n, one in enumerate(lists) if not one.is_constant] or range(len(lists))

        def read(row: RowState) -> Any:
            found = [as_list(one.get(row)) for one in lists]
            lengths = sorted(set(map(len, found)))
            if len(lengths) > 1:
                hint = f"the lists must have the same length: these have {' and '.join(map(str, lengths))} entries"
                raise Refusal(ReasonCode.UNEVEN, hint, column=column)
            entries = (entry for entry in zip(*found, strict=True) if not all(is_empty(entry[n]) for n in varying))
            built = []
            for number, entry in enumerate(entries):
                for (place, _), item in zip(items, entry, strict=True):
                    row.named[place] = item
                reasons, warnings = len(row.reasons), len(row.warnings)
                built.append(give(row))
                _number(row.reasons, reasons, path, number)
                _number(row.warnings, warnings, path, number)
            return [one for one in built if one is not None]

        return compiler.finish(value, CompiledValue(read, Flow(ANYTHING.kind, is_list=True), column), spot, "for_each").get

    def _list(self, part: Value, spot: ValuePosition) -> CompiledValue:
        """Compile one list of a `for_each`. Empty items of several values keep their places, so that parallel lists stay
        aligned.
        """
        if not isinstance(part, Items):
            compiled = self._compiler.value(part, spot)
            return replace(compiled, get=lenient(compiled.get))
        values = self._compiler.values(part.root, spot)
        getters = [lenient(one.get) for one in values]
        reads = frozenset[str]() if all(one.is_constant for one in values) else None
        return replace(combined(lambda row: [get(row) for get in getters], values), reads=reads)

    def _cover(self, value: ImageValue, spot: ValuePosition) -> Getter:
        """Compile the cover image of an event. The getter returns the first usable address as a Cover, or None with a reason."""
        several = value.image.root if isinstance(value.image, Items) else (value.image,)
        parts = [self._compiler.value(one, spot.inner("image", may_be_empty=True)) for one in several]
        default = "" if value.default is None else clean_url(value.default)
        policy = f"{value.on_error} {default}" if default else value.on_error

        def cover(row: RowState) -> Any:
            found = _first_address(parts, row)
            if not isinstance(found, Refusal):
                return None if found is None else Cover(found, policy)
            reason = found.reason("coverImage")
            if value.on_error == "reject":
                row.reasons.append(reason)
                return None
            row.warnings.append(reason)
            row.is_draft = row.is_draft or value.on_error == "draft"
            return Cover(default, "omit") if default else None

        return cover


def _number(reasons: list[Reason], start: int, path: str, number: int) -> None:
    """Insert the item's number into the fields of its reasons: `offers[].url` becomes `offers[1].url`."""
    for place in range(start, len(reasons)):
        if reasons[place].field.startswith(path):
            reasons[place] = replace(reasons[place], field=f"{path[:-2]}[{number}]{reasons[place].field[len(path) :]}")


def _first_address(parts: Sequence[CompiledValue], row: RowState) -> str | Refusal | None:
    """Return the first usable address of an image; otherwise the first refusal, or None."""
    refused: Refusal | None = None
    for part in parts:
        try:
            found = as_list(part.get(row))
        except Refusal as refusal:
            if not refusal.is_empty or len(parts) == 1:
                refused = refused or refusal.about(part.column, "", "image")
            continue
        for text in (str(one) for one in found if not is_empty(one)):
            try:
                return clean_url(text)
            except Refusal as refusal:
                refused = refused or refusal.about(part.column, text, "image")
    return refused


@dataclass(frozen=True, slots=True)
class Validator:
    """Validates the payloads of a feed by the service's rules and, if known, its classifications.

    `used` returns the cells that the mapping reads, `digest_cells` their digest. `joined`: the column prefix of each joined
    table, by the columns of its key. `drafts_warned`: rows with a warning are sent as drafts. `reach`: None without a run.
    """

    payload: Payload
    slugs: frozenset[str] | None
    used: Callable[[Mapping[str, str]], Sequence[str]]
    digest_cells: Callable[[Sequence[str]], bytes]
    joined: Mapping[str, str]
    drafts_warned: bool
    reach: Reach | None

    def outcome(self, row: SourceRow, state: RowState, payload: dict[str, Any]) -> MappedRow | Rejection:
        """Return the event of a row, or its rejection with all reasons."""
        cover = self.payload.cover(state)
        if state.is_draft or (self.drafts_warned and (row.warnings or state.warnings)):
            payload["status"] = "draft"
        # Validate the payload; a field that has a reason already gets no second one.
        known = tuple(state.reasons)
        for path, refusal in judge(payload):
            if not any(_is_about(path, reason.field) for reason in known):
                column = self._column_of(path)
                cell = state.cells.get(column, "") if refusal.is_empty else ""
                found = nothing_left(column, cell) if cell.strip() else refusal.about(column, "", "")
                state.reasons.append(found.reason(path))
        self.check_times(state, payload)
        self._check_reach("endAt", state, payload)  # after the window, which may leave out what lasts too long
        if self.slugs is not None and isinstance(payload.get("classifications"), list):
            for slug in payload["classifications"]:
                if slug not in self.slugs:
                    near = nearest(str(slug), sorted(self.slugs))
                    hint = f'did you mean "{near}"?' if near else f"the service knows {', '.join(sorted(self.slugs)[:8])}, ..."
                    column = self._column_of("classifications")
                    state.reasons.append(Reason(ReasonCode.NOT_ACCEPTED, "classifications", column, str(slug), hint))
        body = b"" if state.reasons or row.problems else _dumped(state, payload)
        if not body:
            blames = once(_blamed(reason, state) for reason in self._own_reasons(row.problems, state.reasons))
            own = (reason.in_cells(row.cells) for reason in blames)
            return Rejection(row.location, state.key, once((*row.problems, *own)), row.cells)
        # Positional arguments: keywords take three times as long.
        return MappedRow(
            row.location,
            state.key,
            body,
            fingerprint(body, "" if cover is None else cover.url),
            self.digest(state.cells),
            duplicate_digest_of(payload),
            payload["channelId"],
            row.cells,
            cover,
            row.warnings + tuple(warning.in_cells(row.cells) for warning in state.warnings) if state.warnings else row.warnings,
        )

    def digest(self, cells: Mapping[str, str]) -> bytes:
        """Return the digest of the cells that the mapping uses and of the mapping."""
        return self.digest_cells(self.used(cells))

    def check_times(self, state: RowState, payload: Mapping[str, Any]) -> None:
        """Add a reason if the event starts beyond the feed's reach or ends before it starts, unless one of the two times already
        has a reason.
        """
        if state.reasons and any(reason.field in _MOMENTS for reason in state.reasons):
            return
        self._check_reach("startAt", state, payload)
        if "endAt" not in payload:
            return
        start, end = payload.get("startAt"), payload["endAt"]
        if type(start) is type(end) is str and start[19:] == end[19:] and start <= end:
            return  # texts with the same offset sort like times
        try:
            is_backwards = datetime.fromisoformat(end) < datetime.fromisoformat(payload["startAt"])
        except (KeyError, TypeError, ValueError):
            return
        if is_backwards:
            hint = f"it starts {start}: give an end after that"
            refusal = Refusal(
                ReasonCode.END_BEFORE_START, hint, found=str(end), particulars={"start": str(start), "end": str(end)}
            )
            state.reasons.append(refusal.about(self._column_of("endAt"), "", "").reason("endAt"))

    def _check_reach(self, name: str, state: RowState, payload: Mapping[str, Any]) -> None:
        moment = payload.get(name)
        if self.reach is None or type(moment) is not str or moment[:10] <= self.reach.last or read_moment(moment) is None:
            return
        if not any(reason.field == name for reason in state.reasons):
            state.reasons.append(self.reach.refusal(moment[:10]).about(self._column_of(name), "", "").reason(name))

    def _own_reasons(self, problems: Sequence[Reason], reasons: Sequence[Reason]) -> Iterator[Reason]:
        """Yield the reasons that are not consequences of problems that the reader found in the row.

        If cells are shifted, every field may be wrong; an unreadable cell or a missing joined row is not an empty cell.
        """
        broken = [problem.column for problem in problems]
        if "" in broken:
            return
        lacking = [one.column for one in problems if one.code is ReasonCode.NOT_IN_LOOKUP]
        absent = tuple(self.joined[column] for column in lacking if column in self.joined)
        for reason in reasons:
            is_consequence = reason.column.startswith(absent) or any(_is_about(reason.column, column) for column in broken)
            if reason.code is not ReasonCode.REQUIRED or not is_consequence:
                yield reason

    def _column_of(self, path: str) -> str:
        columns = self.payload.columns
        return columns.get(path) or next((columns[known] for known in columns if columns[known] and _is_about(path, known)), "")


def _dumped(state: RowState, payload: dict[str, Any]) -> bytes:
    """Return the payload as JSON, or b"" with a reason for each field that is not Unicode text."""
    try:
        return dump(payload)
    except orjson.JSONEncodeError:
        if len(payload) == 1:
            state.reasons.append(Reason(ReasonCode.BAD_TEXT, next(iter(payload)), "", "", NO_TEXT))
        else:  # each field alone, to find those that hold it
            for name, value in payload.items():
                _dumped(state, {name: value})
        return b""


def _is_about(path: str, field: str) -> bool:
    """Return whether two paths are the same or one contains the other."""
    return path == field or path.startswith((f"{field}.", f"{field}[")) or field.startswith((f"{path}.", f"{path}["))


def _blamed(reason: Reason, row: RowState) -> Reason:
    """Return the reason for a missing value with the column to blame, whose cell was left out or whose steps gave nothing."""
    if reason.code is not ReasonCode.REQUIRED:
        return reason
    cause = row.left_out.get(reason.column)
    column, cell = (cause.column, cause.found) if cause else (reason.column, read_cell(row.cells, reason.column).strip())
    if not cell or (reason.found and not cause):
        return reason
    found = replace(nothing_left(column, cell).reason(reason.field), step=reason.step)
    return replace(found, detail=cause.detail or cause.code, particulars=cause.particulars) if cause else found
