"""Splits one row into several events: one for each item of a list (`explode`), or for each day (`recur`).

Days follow an RFC 5545 rule (by dateutil) or a range with exceptions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, takewhile
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from dateutil.rrule import DAILY, MONTHLY, WEEKLY, YEARLY, rrule, weekday, weekdays

from mappings.compiler.base import (
    CompiledValue,
    Compiler,
    Getter,
    RowState,
    as_list,
    lenient,
    nfc,
    nothing,
    once,
    read_cell,
    refuse_key_part,
    required,
)
from mappings.compiler.rows import Reach
from mappings.outcome import OVER, TOO_FAR, MappedRow, Part, Rejection, RowOutcome, Silence, Skipped
from mappings.positions import Loc, ValuePosition
from mappings.reasons import Reason, ReasonCode, Refusal
from mappings.row_key import RowKey, event_key
from mappings.spec.rules import Explosion, Recurrence
from mappings.spec.values import Value
from mappings.steps.step import Kind
from mappings.zones import find_zone

Expand = Callable[[RowState], list[RowState]]
"""Returns the events of a row; the row itself if it is not split or cannot be."""
_Item = Mapping[str, str]
"""The cells of one item, which replace those of its row."""


def compile_explosion(compiler: Compiler, explosion: Explosion) -> Expand:
    """Compile an `explode` rule."""
    columns = explosion.columns
    compiler.columns.update(columns)
    read_items = _json_items(explosion) if explosion.json_list else _parallel_items(explosion)

    def expand(row: RowState) -> list[RowState]:
        try:
            items = read_items(row.cells)
            if len(items) <= explosion.at_most:
                return [_event_of_item(row, item, explosion) for item in items] or [row]
            hint = f"at most {explosion.at_most} items are allowed"
            refused = Refusal(ReasonCode.TOO_MANY, hint, found=str(len(items)), particulars={"most": explosion.at_most})
        except Refusal as refusal:
            refused = refusal
        return row.refuse(refused.about(columns[0], "", "explode"), columns)

    return expand


def is_of_item(explosion: Explosion | None, column: str) -> bool:
    """Return whether a column is a field of the JSON objects that `explode` reads, not a column of the source."""
    return explosion is not None and explosion.json_list and column.startswith(f"{explosion.columns[0]}.")


def _event_of_item(row: RowState, item: _Item, explosion: Explosion) -> RowState:
    """Return the event of one item. Its key is the row's key with the item's identifying cells, not its place in the list."""
    columns = explosion.key or explosion.columns
    parts = [item.get(column, "").strip() for column in columns]
    if not any(parts):
        raise required(columns[0], "each item needs a value that identifies it")
    key = row.key
    for column, part in zip(columns, parts, strict=True):
        refusal = refuse_key_part(part, column, optional=True)
        if refusal is not None:
            raise refusal.about(column, part, "")
        key = event_key(key, part)
    event = row.event(key, {**row.cells, **item})
    event.item = item[explosion.columns[0]]
    return event


def _parallel_items(explosion: Explosion) -> Callable[[Mapping[str, str]], list[_Item]]:
    columns, separators = explosion.columns, re.compile("|".join(map(re.escape, explosion.by or ())))

    def items(cells: Mapping[str, str]) -> list[_Item]:
        lists = [[part.strip() for part in separators.split(read_cell(cells, column))] for column in columns]
        for found in lists:
            while len(found) > 1 and not found[-1]:  # trailing separators are ignored
                found.pop()
        longest = max(map(len, lists))
        for column, found in zip(columns, lists, strict=True):
            if len(found) not in {1, longest}:
                hint = f'expected {longest} items, as in "{columns[0]}", or one for all'
                raise Refusal(ReasonCode.UNEVEN, hint, column=column, found=f"{len(found)} items")
        even = [found * longest if len(found) == 1 else found for found in lists]
        return [dict(zip(columns, each, strict=True)) for each in zip(*even, strict=True) if any(each)]

    return items


def _json_items(explosion: Explosion) -> Callable[[Mapping[str, str]], list[_Item]]:
    column = explosion.columns[0]

    def items(cells: Mapping[str, str]) -> list[_Item]:
        text = read_cell(cells, column).strip()
        parts = _parse_list(text) if text else []
        found: list[_Item] = [dict(_item_cells(part, column)) for part in parts if part is not None]
        if explosion.key is None and any(len(item) > 1 for item in found):
            hint = "the items are objects: write the column that identifies them under `key` in the mapping"
            raise Refusal(ReasonCode.BAD_KEY, hint, found=text)
        return found

    return items


def _parse_list(text: str) -> list[Any]:
    def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        for name, value in pairs if len(found) < len(pairs) else ():
            if value != found[name]:
                what = f'the name "{name}" occurs twice in one object, with different values'
                raise Refusal(ReasonCode.BAD_TEXT, f"{what}: use each name once", found=text)
        return found

    try:
        found = json.loads(text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=unique_names)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise Refusal(ReasonCode.BAD_TEXT, 'a JSON array is needed, such as ["2026-05-03", "2026-05-04"]', found=text)
    return found


def _item_cells(part: Any, column: str) -> Iterator[tuple[str, str]]:
    """Yield an item as cells: its own text, and the fields of nested objects under dotted names."""
    if part is None or isinstance(part, str):
        yield column, nfc(part or "")
    else:
        yield column, json.dumps(part, ensure_ascii=False, sort_keys=True)
    if isinstance(part, dict):
        for name, inner in part.items():
            yield from _item_cells(inner, f"{column}.{name}")


_WEEKDAYS: dict[str, weekday] = dict(zip(("MO", "TU", "WE", "TH", "FR", "SA", "SU"), weekdays, strict=True))
_ONE_DAY = timedelta(days=1)
NO_DAY_LEFT = "every day is excluded"
STAND_IN = date(2000, 1, 1)
"""The value of $day in a row whose days cannot be read, used only to report the row's other problems."""
_FOLLOWED = timedelta(days=40_000)
"""The longest span that is searched for the days of one row; a rule such as "31 February" would never end."""
_FREQUENCIES = {"DAILY": DAILY, "WEEKLY": WEEKLY, "MONTHLY": MONTHLY, "YEARLY": YEARLY}
_COUNTS = {"INTERVAL": 9_999, "COUNT": 99_999}
_PLACES = {"BYMONTH": (1, 12), "BYMONTHDAY": (-31, 31), "BYSETPOS": (-366, 366)}
_PARTS = {"FREQ", "UNTIL", "WKST", "BYDAY", *_COUNTS, *_PLACES}
_DAY = re.compile(r"([+-]?[1-9][0-9]?)?(MO|TU|WE|TH|FR|SA|SU)")
_NUMBER = re.compile(r"[+-]?[1-9][0-9]{0,4}")
_UNTIL = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{2})([0-9]{2})([0-9]{2})(Z?))?")
_EXAMPLE = "write it like FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE"
_DATES = (Kind.DATE, Kind.WALL, Kind.MOMENT, Kind.TEXT, Kind.ANY, Kind.UNKNOWN)
T = TypeVar("T")
_ORDINALS: dict[str, int] = {str(number): number for number in (*range(1, 6), *range(-5, 0))}
FirstDay = Callable[[RowState], date]
"""Returns the first day of a row; raises Refusal if it cannot be read."""
DayRule = Mapping[str, Any]
"""A recurrence rule of whole days as keyword arguments of dateutil's `rrule`; `until` is a day, and `until_moment` the time of
UNTIL if it has one: in UTC, or on the wall clock of the event.
"""


@dataclass(frozen=True, slots=True)
class RunDays:
    """The days that matter to a run: `today`, and the first and last day that become events. A day beyond `reach` rejects its
    row, one beyond the last waits.
    """

    today: date | None = None
    first: date = date.min
    last: date = date.max
    reach: Reach | None = None


@dataclass(frozen=True, slots=True)
class DayPattern:
    """The recurrence of one row. `last`: its last day, None if only the horizon ends it. `begins`: its first time in the zone of
    the event, None if only the day is known.
    """

    first: date
    last: date | None
    begins: datetime | None
    rule: DayRule
    excluded: frozenset[date]
    extra: frozenset[date]

    def days(self, first: date, last: date, at_most: int) -> list[date]:
        """Return the sorted days from `first` to `last`, cut after `at_most` + 1 so that the caller sees an excess."""
        regular = (day for day in self.regular_days(first, last) if day not in self.excluded | self.extra)
        extra = (day for day in self.extra if first <= day <= last)
        return sorted([*islice(regular, at_most + 1), *extra])[: at_most + 1]

    def regular_days(self, first: date, last: date) -> Iterator[date]:
        """Yield the days that the rule gives, before exclusions and extra days."""
        until, begins = self.rule.get("until_moment"), self.begins
        first, last = max(self.first, first), min(last, self.last or date.max)
        if until is None or begins is None:
            return rule_days(self.rule, self.first, first, last)
        # UNTIL is a moment, which may be on another day in the zone of the event.
        rule = {**self.rule, "until": min(self.rule["until"], date.max - _ONE_DAY) + _ONE_DAY}
        wall = begins.timetz() if until.tzinfo else begins.time()
        return takewhile(lambda day: datetime.combine(day, wall) <= until, rule_days(rule, self.first, first, last))


def rule_days(rule: DayRule, begins: date, first: date, last: date) -> Iterator[date]:
    """Yield the days of a rule from `first` to `last`. The rule starts at `begins`, and COUNT counts from there."""
    start, named, count = begins, rule.get("byweekday"), rule.get("count")
    if rule["freq"] == WEEKLY and rule.get("bysetpos"):  # dateutil counts positions from the day on which it starts
        named = named or [weekdays[begins.weekday()]]
        start = date.fromordinal(max(begins.toordinal() - (begins.weekday() - rule["wkst"]) % 7, 1))
    elif count is None and rule.get("interval", 1) == 1 and (rule["freq"] == DAILY or named or rule.get("bymonthday")):
        start = max(begins, first)  # no day depends on when the rule began
    followed = begins if count else max(begins, first)
    end = min(last, rule.get("until", last), followed + min(_FOLLOWED, date.max - followed))
    bounds = {"dtstart": datetime.combine(start, time()), "until": datetime.combine(end, time()), "count": None}
    parts = {name: value for name, value in rule.items() if name != "until_moment"}
    days = (moment.date() for moment in rrule(**{**parts, **bounds, "byweekday": named}) if moment.date() >= begins)
    return (day for day in islice(days, count) if day >= first)


def read_rule(text: str) -> DayRule:
    """Parse a rule such as FREQ=WEEKLY;BYDAY=MO, with or without a leading `RRULE:`.

    Raises:
        Refusal: it is not an RRULE, or not one of whole days.
    """
    try:
        return _read_parts(text.strip().upper().removeprefix("RRULE:").split(";"))
    except ValueError as error:
        raise Refusal(ReasonCode.NOT_A_DATE, f"{_EXAMPLE}: {error}", found=text) from error


def _read_parts(written: Sequence[str]) -> DayRule:
    parts = [part.partition("=") for part in written if part.strip()]
    named = {name.strip(): value.strip() for name, _, value in parts}
    unknown = sorted(named.keys() - _PARTS)
    if unknown or len(named) < len(parts):
        raise ValueError(f"{', '.join(unknown)} is not understood" if unknown else "a part occurs twice")
    until = _UNTIL.fullmatch(named.get("UNTIL", "99991231"))
    if named.get("FREQ") not in _FREQUENCIES or until is None:
        raise ValueError(f"FREQ is one of {', '.join(_FREQUENCIES)}, and UNTIL a day, such as 20261231")
    day = date(*map(int, until.group(1, 2, 3)))
    clock = time(int(until[4]), int(until[5]), int(until[6]), tzinfo=UTC if until[7] else None) if until[4] else None
    rule: dict[str, Any] = {"freq": _FREQUENCIES[named["FREQ"]], "until": day}
    rule["until_moment"] = None if clock is None else datetime.combine(day, clock)
    rule["wkst"] = _read_weekday(named.get("WKST", "MO")).weekday
    rule |= {name.lower(): _read_number(named[name], 1, most) for name, most in _COUNTS.items() if name in named}
    for name in _PLACES.keys() & named.keys():
        rule[name.lower()] = [_read_number(part.strip(), *_PLACES[name]) for part in named[name].split(",")]
    if "BYDAY" in named:
        rule["byweekday"] = [_read_weekday(part.strip()) for part in named["BYDAY"].split(",")]
        if rule["freq"] in {DAILY, WEEKLY} and any(day.n for day in rule["byweekday"]):
            raise ValueError("a number before a weekday needs FREQ=MONTHLY or FREQ=YEARLY")
    return rule


def _read_number(text: str, least: int, most: int) -> int:
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError(f"{text or 'nothing'} is not a number from {least} to {most}")
    return int(text)


def _read_weekday(text: str) -> weekday:
    match = _DAY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text or 'nothing'} is not one of {' '.join(_WEEKDAYS)}")
    day = _WEEKDAYS[match[2]]
    return day(int(match[1])) if match[1] else day


def compile_first_day(compiler: Compiler, recurrence: Recurrence, loc: Loc) -> FirstDay:
    """Compile the first day of a recurrence, which must not depend on `$day`."""
    spot = ValuePosition((*loc, "recur"))
    if recurrence.start is not None:
        compiled = _compile_date(compiler, recurrence.start, spot.inner("from"))
        get, missing = compiled.get, required(compiled.column, "a first day is needed")
    else:
        get = lenient(_compile_date(compiler, recurrence.days, spot.inner("days")).get)
        missing = required("", "at least one day is needed")

    def first(row: RowState) -> date:
        days = _read_days(get, row)
        if not days:
            raise missing.about("", "", "")
        return min(days)

    return first


def compile_recurrence(
    compiler: Compiler, recurrence: Recurrence, loc: Loc, run: RunDays, start: FirstDay, zone_name: Getter
) -> Expand:
    """Compile a `recur` rule for the days of a run. `zone_name`: the time zone of a row's events."""
    spot = ValuePosition((*loc, "recur"))
    when = None if recurrence.when is None else compiler.condition(recurrence.when, (*spot.loc, "when"))
    optional = spot.inner(may_be_empty=True)
    if recurrence.days is not None:
        until: Getter = start
        extra = lenient(_compile_date(compiler, recurrence.days, spot.inner("days")).get)
    else:
        until = lenient(_compile_date(compiler, recurrence.until, optional.inner("until")).get)
        extra = lenient(_compile_date(compiler, recurrence.extra, optional.inner("extra")).get)
    rule = _compile_rule(compiler, recurrence, spot)
    excluded = lenient(_compile_date(compiler, recurrence.excluded, optional.inner("except")).get)

    # Only a rule needs the time of the first day; mistakes in `from` are reported with the day.
    known = len(compiler.problems)
    begins = nothing if recurrence.rrule is None else _compile_date(compiler, recurrence.start, spot.inner("from")).get
    del compiler.problems[known:]

    def pattern_of(row: RowState, first: date) -> DayPattern:
        last = max(_read_days(until, row), default=None)
        if last is not None and last < first:
            hint = f"it begins {first}: give a last day after that"
            days = {"start": first.isoformat(), "end": last.isoformat()}
            raise Refusal(ReasonCode.END_BEFORE_START, hint, found=last.isoformat(), step="recur", particulars=days)
        if last is None and recurrence.horizon is None:
            raise Refusal(ReasonCode.REQUIRED, "a last day is needed, or a horizon in the mapping", step="recur")
        zone = _zone_of(zone_name, row)
        return DayPattern(
            first, last, _first_time(begins(row), zone), rule(row), _read_days(excluded, row, zone), _read_days(extra, row, zone)
        )

    def expand(row: RowState) -> list[RowState]:
        row.day = STAND_IN
        try:
            row.day = start(row)
            if when is not None and not when(row):
                return [row]
            pattern = pattern_of(row, row.day)
            if run.reach is not None and (far := max(map(str, {row.day, *pattern.extra}))) > run.reach.last:
                row.is_refused = True
                row.reasons.append(run.reach.refusal(far).reason("startAt"))
                return [row]
            found = pattern.days(run.first, run.last, recurrence.at_most)
            if found:
                return _events_of_days(row, found, recurrence)
            row.label = _why_no_day(pattern, run)
        except Refusal as refusal:
            return row.refuse(refusal)
        return [row]

    return expand


def _why_no_day(pattern: DayPattern, run: RunDays) -> str:
    """Return the label of a row that has no day in the range of the run.

    Raises:
        Refusal: the row has no day at all.
    """
    if not pattern.extra and next(pattern.regular_days(date.min, date.max), None) is None:
        raise Refusal(ReasonCode.NO_DAY, f"no such day between {pattern.first} and {pattern.last}", step="recur")
    if pattern.first > run.last:
        return TOO_FAR
    if not pattern.days(date.min, date.max, 1):
        return NO_DAY_LEFT
    return TOO_FAR if pattern.days(run.last, date.max, 1) else OVER


def _events_of_days(row: RowState, found: list[date], recurrence: Recurrence) -> list[RowState]:
    most = recurrence.at_most
    if len(found) > most:
        hint = f"at most {most} days are allowed"
        raise Refusal(ReasonCode.TOO_MANY, hint, found=f"more than {most}", step="recur", particulars={"most": most})
    events = []
    for day in found:
        event = row.event(event_key(row.key, day.isoformat()), row.cells)
        event.day = day
        events.append(event)
    return events


def _compile_rule(compiler: Compiler, recurrence: Recurrence, spot: ValuePosition) -> Callable[[RowState], DayRule]:
    if recurrence.rrule is not None:
        text = compiler.value(recurrence.rrule, spot.inner("rrule")).get
        return lambda row: read_rule(str(text(row) or ""))
    named, nth = recurrence.weekdays, recurrence.nth
    read_names = nothing if named is None else lenient(compiler.value(named, spot.inner("weekdays")).get)
    read_places = nothing if nth is None else lenient(compiler.value(nth, spot.inner("nth")).get)
    named_hint = f"one of {' '.join(_WEEKDAYS)} is needed: split the cell, and map its words"
    place_hint = "a number from 1 (the first) to 5 is needed, or from -1 (the last) to -5"

    def rule(row: RowState) -> DayRule:
        days = [_one_of(_WEEKDAYS, each, named_hint) for each in as_list(read_names(row))]
        places = [_one_of(_ORDINALS, each, place_hint) for each in as_list(read_places(row))]
        if places:
            return {"freq": MONTHLY, "byweekday": [day(place) for day in days for place in places]}
        return {"freq": DAILY, "byweekday": days or None}

    return rule


def _compile_date(compiler: Compiler, value: Value | None, spot: ValuePosition) -> CompiledValue:
    """Compile a value that gives one or several dates; a value that is missing in the file gives None."""
    if value is None:
        return CompiledValue(nothing)
    compiled = compiler.value(value, spot)
    is_text = compiled.flow.kind is Kind.TEXT and (compiled.is_cell or compiled.column)
    if compiled.flow.kind not in _DATES or is_text:
        return compiler.misfit(spot, f"a date is needed here, not a {compiled.flow.kind}", 'do: [{date: "%Y-%m-%d"}]')
    return compiled


def compile_zone(compiler: Compiler, recurrence: Recurrence, timezone: Value | None) -> Getter:
    """Compile the time zone of a row's events for a rule whose UNTIL may be a moment. The payload reports its mistakes."""
    if timezone is None or recurrence.rrule is None:
        return nothing
    known = len(compiler.problems)
    compiled = lenient(compiler.value(timezone, ValuePosition(("event", "timezone"))).get)
    del compiler.problems[known:]
    return compiled


def _zone_of(zone_name: Getter, row: RowState) -> ZoneInfo | None:
    """Return the zone of a row's events, None if it cannot be read: the payload says why."""
    try:
        return find_zone(str(zone_name(row) or ""))
    except Refusal:
        return None


def _first_time(value: Any, zone: ZoneInfo | None) -> datetime | None:
    """Return the time of day at which the first event begins, in its zone; None if `from` is a day, or the zone is unknown."""
    found = min((one for one in as_list(value) if isinstance(one, datetime)), default=None)
    if found is None or zone is None:
        return None
    return found.astimezone(zone) if found.tzinfo else found.replace(tzinfo=zone)


def _read_days(get: Getter, row: RowState, zone: ZoneInfo | None = None) -> frozenset[date]:
    """Read the days of a value; those of moments in `zone`, if it is known."""
    return frozenset(_read_day(value, zone) for value in as_list(get(row)))


def _read_day(value: Any, zone: ZoneInfo | None) -> date:
    if isinstance(value, datetime):
        return (value.astimezone(zone) if zone and value.tzinfo else value).date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value).strip())
    except ValueError:
        raise Refusal(ReasonCode.NOT_A_DATE, "a date is needed here", found=str(value), step="recur") from None


def _one_of(known: Mapping[str, T], value: Any, hint: str) -> T:
    found = known.get(str(value).strip().upper())
    if found is None:
        raise Refusal(ReasonCode.NOT_ACCEPTED, hint, found=str(value), step="recur")
    return found


_MOST_REASONS = 20


def as_one_row(
    outcomes: Sequence[RowOutcome], expanded: Sequence[RowState], stem: RowKey, days: RunDays | None
) -> tuple[RowOutcome, ...]:
    """Combine the outcomes of one row's events. `stem` is the row's key, `expanded` the events before mapping.

    If all events are rejected, or all are skipped for the same reason, the row gets a single outcome, and its known events are
    neither confirmed nor marked as vanished. Past days beside other days are dropped, to keep them out of each report.
    """
    silent = Part(silence=Silence(stem)) if stem else Part()
    first, labels = outcomes[0], {_label(outcome) for outcome in outcomes}
    rejections = [outcome for outcome in outcomes if isinstance(outcome, Rejection)]
    if len(rejections) == len(outcomes):
        reasons = once(reason for pair in zip(rejections, expanded, strict=True) for reason in _unmuted(*pair))
        return (replace(rejections[0], row_key=stem, reasons=reasons[:_MOST_REASONS], part=silent),)
    if len(labels) == 1 and ("", 0) not in labels:
        return (replace(first, row_key=stem, part=silent),)
    wanted = [pair for pair in zip(outcomes, expanded, strict=True) if not _is_of_the_past(*pair, days)]
    if not wanted:
        return (Skipped(first.location, OVER, stem, part=silent),)
    silences = [Silence(event.key) if event.is_refused and event.key else None for _, event in wanted]
    parts = [Part(len(wanted), place > 0, silence) for place, silence in enumerate(silences)]
    return tuple(replace(outcome, part=part) for (outcome, _), part in zip(wanted, parts, strict=True))


def _unmuted(rejection: Rejection, event: RowState) -> Iterator[Reason]:
    """Yield the reasons of a rejection, except those of columns whose list could not be split into items."""
    inside = tuple(f"{column}." for column in event.muted)
    for reason in rejection.reasons:
        if reason.step == "explode" or not (reason.column in event.muted or reason.column.startswith(inside)):
            yield reason


def _label(outcome: RowOutcome) -> tuple[str, int]:
    return (outcome.because, outcome.rule) if isinstance(outcome, Skipped) and not outcome.is_cancelled else ("", 0)


def _is_of_the_past(outcome: RowOutcome, event: RowState, days: RunDays | None) -> bool:
    if days is None or days.today is None or event.day is None:
        return False
    is_over = outcome.outside == OVER if isinstance(outcome, MappedRow) else _label(outcome) == (OVER, 0)
    return is_over and bool(event.day < days.today)
