"""A built payload on its way out of the mapper: held against what the service accepts, then an event or a rejection.

How it is built is `settling`'s; which rows come here is `engine`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from mappings.evaluation import RowState, nothing_left
from mappings.event import NO_TEXT, dump, judge
from mappings.identity import fingerprint, row_digest, twin_digest
from mappings.refusals import nearest
from mappings.settling import Payload
from mappings.vocabulary import MappedRow, Reason, ReasonCode, Rejection, RowKey, SourceRow

_NO_ROW = ReasonCode.NOT_IN_LOOKUP
"""What a source says of a row whose other half is missing."""
_MOMENTS = frozenset({"startAt", "endAt"})
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
