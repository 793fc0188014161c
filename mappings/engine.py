"""The mapper: one mapping file compiled once, then one row after another becomes an event, a rejection or a skip.

Pure: no network, no database, no clock; the moment of the run is handed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from mappings.compiled_values import compile_value
from mappings.compiling import Compiler, Problem
from mappings.errors import ConfigError
from mappings.evaluation import RowState
from mappings.event import NO_TEXT, dump, judge
from mappings.identity import fingerprint, row_digest, twin_digest
from mappings.keys import ReadKey, compile_key
from mappings.refusals import Refusal, nearest
from mappings.row_rules import LeaveOut, OutsideWindow, compile_rules, compile_window, window_of
from mappings.schema import FeedMapping
from mappings.settling import Payload, compile_payload
from mappings.stepping import Watch
from mappings.vocabulary import MappedRow, Reason, ReasonCode, Rejection, RowKey, RowOutcome, Skipped, SourceRow

BLANK = "blank row"
"""The label of rows whose cells are all blank."""


@dataclass(frozen=True, slots=True)
class Directory:
    """What the service knows: channel ids by slug, and the classification slugs. None: not asked, everything is accepted.

    Offline a channel's slug gets a stand-in id, the same in every run.
    """

    channels: Mapping[str, int] | None = None
    classifications: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class RowMapper:
    """One feed's mapping, compiled. Call it with a row; it never raises for a row's sake."""

    columns: frozenset[str]
    """The source columns that the mapping reads, those of the key included."""
    _used: tuple[str, ...]
    _digest: bytes
    _read_key: ReadKey
    _rules: tuple[LeaveOut, ...]
    _outside: OutsideWindow | None
    _payload: Payload
    _named: int
    _slugs: frozenset[str] | None

    def __call__(self, row: SourceRow) -> RowOutcome:
        """Return what becomes of a row: an event, a rejection with all its reasons, or a labelled skip."""
        cells = row.cells
        found = self._read_key(cells)
        if not (isinstance(found, str) and found.strip("|")) and not row.problems and _is_blank(cells):
            return Skipped(row.origin, BLANK)
        state = RowState(cells, self._named)
        key = found if isinstance(found, str) else RowKey("")
        label = self._left_out(state)
        if label and not row.problems:
            return Skipped(row.origin, label, key)
        if not isinstance(found, str):
            state.reasons.extend(found)
        payload = self._payload.build(state) or {}
        if self._outside is not None and not row.problems and (label := self._outside(payload)):
            return Skipped(row.origin, label, key)
        return self._settled(row, key, state, payload)

    def glance(self, row: SourceRow) -> tuple[RowKey, bytes] | None:
        """Return the row's key and digest without mapping it, or None where it has no key.

        A row whose digest is as recorded cannot have changed, nor can the mapping have: it need not be mapped.
        """
        key = self._read_key(row.cells)
        return (key, self._row_digest(row.cells)) if isinstance(key, str) else None

    @property
    def field_columns(self) -> Mapping[str, str]:
        """The column that a person would look at for each field of the payload, "" where there is none."""
        return self._payload.columns

    def _row_digest(self, cells: Mapping[str, str]) -> bytes:
        return row_digest(self._digest, [cells.get(column, "") for column in self._used])

    def _left_out(self, state: RowState) -> str:
        for rule in self._rules:
            try:
                label = rule(state)
            except Refusal as refusal:
                state.reasons.append(refusal.reason(""))
                continue
            if label:
                return label
        return ""

    def _settled(self, row: SourceRow, key: RowKey, state: RowState, payload: dict[str, Any]) -> RowOutcome:
        cover = self._payload.cover(state)
        if state.is_draft:
            payload["status"] = "draft"
        self._check(state, payload)
        body = b"" if state.reasons or row.problems else _dumped(state, payload)
        if not body:
            return Rejection(row.origin, key, _once(row.problems + tuple(state.reasons)), row.cells)
        city = payload["approxLocation"]["city"]["placeId"]
        place = f"{city} {payload.get('locationName', '')}"
        return MappedRow(
            origin=row.origin,
            row_key=key,
            body=body,
            fingerprint=fingerprint(body, "" if cover is None else cover.url),
            row_digest=self._row_digest(row.cells),
            twin_digest=twin_digest(payload["channelId"], payload["title"], payload["startAt"], place),
            channel_id=payload["channelId"],
            cells=row.cells,
            cover=cover,
            warnings=row.warnings + tuple(state.warnings),
        )

    def _check(self, state: RowState, payload: dict[str, Any]) -> None:
        """Hold the payload against what the service accepts; a field that has a reason already gets no second one."""
        told = {reason.field for reason in state.reasons}
        for path, refusal in judge(payload):
            if not any(_is_about(path, field) for field in told):
                state.reasons.append(refusal.about(self._column_of(path), "", "").reason(path))
        if "endAt" in payload and not told & {"startAt", "endAt"}:
            self._check_order(state, payload)
        if self._slugs is not None and isinstance(payload.get("classifications"), list):
            self._check_slugs(state, payload["classifications"], self._slugs)

    def _check_order(self, state: RowState, payload: dict[str, Any]) -> None:
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

    def _column_of(self, path: str) -> str:
        columns = self._payload.columns
        return columns.get(path) or next((columns[known] for known in columns if columns[known] and _is_about(path, known)), "")


def compile_feed(mapping: FeedMapping, directory: Directory, as_of: datetime | None = None) -> RowMapper:
    """Compile a mapping for a run that starts at the aware moment `as_of` (needed by feeds with a window only).

    Raises:
        ConfigError: a channel that the key does not have, or a window without the moment of the run.
    """
    mapper, problems = attempt(mapping, directory, as_of)
    if problems:
        told = "\n".join(f"{problem.message}, {problem.hint}" if problem.hint else problem.message for problem in problems)
        raise ConfigError(
            f"{mapping.path.name}: {told}", hint="mend the mapping, or the key's access, then run `eventsync check --live`"
        )
    span = window_of(mapping.rows)
    if span is not None and as_of is None:
        raise ConfigError(f"{mapping.path.name} has a window, and the moment of the run was not said", hint="hand in as_of")
    return mapper


def attempt(
    mapping: FeedMapping, directory: Directory, as_of: datetime | None = None, watch: Watch | None = None
) -> tuple[RowMapper, tuple[Problem, ...]]:
    """Compile as far as possible: the mapper, and what could not be compiled (the mapper is then not to be used).

    `watch` is told of every step that a row passes.
    """
    compiler = Compiler(mapping.let, mapping.tables, directory.channels, compile_value, watch)
    rules = compile_rules(compiler, mapping.rows)
    payload = compile_payload(compiler, mapping.event)
    span = window_of(mapping.rows)
    columns = compiler.columns | {column.column for column in mapping.key_columns}
    mapper = RowMapper(
        columns=frozenset(columns),
        _used=tuple(sorted(columns)),
        _digest=mapping.digest,
        _read_key=compile_key(mapping.key_columns),
        _rules=rules,
        _outside=None if span is None or as_of is None else compile_window(span, as_of),
        _payload=payload,
        _named=compiler.named_count,
        _slugs=directory.classifications,
    )
    return mapper, tuple(compiler.problems)


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


def _is_blank(cells: Mapping[str, str]) -> bool:
    return not any(text and not text.isspace() for text in cells.values())


def _is_about(path: str, field: str) -> bool:
    """True if one is the other, or stands inside it."""
    return path == field or path.startswith((f"{field}.", f"{field}[")) or field.startswith((f"{path}.", f"{path}["))


def _once(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
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
