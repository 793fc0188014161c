"""The events that one row stands for, on their way. What makes several of one is `exploding`'s and `recurring`'s."""

from __future__ import annotations

import json
import re
from calendar import isleap, monthrange
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from itertools import chain, groupby, islice
from typing import Any, assert_never

from mappings.compiler.base import Compiled, Compiler, lenient
from mappings.compiler.conditions import Holds
from mappings.compiler.evaluation import Flow, Getter, RowState, nfc, read_cell, required
from mappings.compiler.key import key_refusal
from mappings.compiler.row_rules import OVER, TOO_FAR
from mappings.outcome import Silence
from mappings.refusals import ReasonCode, Refusal
from mappings.row_key import RowKey, event_key
from mappings.rules import Explosion, Recurrence
from mappings.schema import KeyColumn
from mappings.spots import Loc, Spot
from mappings.steps.step import Kind
from mappings.values import Value


@dataclass(slots=True)
class Strand:
    """One event that a row may become: its key, what is known of it, and why and by which rule it is left out, if it is.

    `silence`: what the row says nothing of besides. `is_refused`: its events cannot be told; it goes on only so that all
    problems of the row are told at once, but for those of the columns that are `muted`, which are told already.
    """

    key: RowKey
    state: RowState
    label: str = ""
    silence: Silence | None = None
    is_refused: bool = False
    muted: tuple[str, ...] = ()
    rule: int = 0


Unfold = Callable[[Strand], list[Strand]]


"""Returns the events that one stands for, itself if it is one only or if it is refused."""


def given_item(column: str) -> Compiled:
    """Return the value `$item` of each event of a row: the item of a column."""
    return Compiled(lambda row: row.item, Flow(Kind.TEXT), column)


def given_day(own: Callable[[RowState], date]) -> Compiled:
    """Return the value `$day`: that of each event after the recurrence, the row's own before it."""
    return Compiled(lambda row: own(row) if row.day is None else row.day, Flow(Kind.DATE))


def refused(strand: Strand, refusal: Refusal, muted: tuple[str, ...] = ()) -> list[Strand]:
    """Return an event whose own events cannot be told."""
    strand.state.reasons.append(refusal.reason(""))
    strand.is_refused, strand.muted = True, muted
    return [strand]


Item = Mapping[str, str]


"""The cells in which an event differs from its row."""


_STEP = "explode"


@dataclass(frozen=True, slots=True)
class _Exploding:
    """A compiled explosion."""

    asked: Explosion
    items: Callable[[Mapping[str, str]], list[Item]]

    def __call__(self, strand: Strand) -> list[Strand]:
        try:
            return [self._event(strand, item) for item in self._few(strand)] or [strand]
        except Refusal as refusal:
            return refused(strand, refusal, self.asked.columns)

    def _few(self, strand: Strand) -> list[Item]:
        items = self.items(strand.state.cells)
        if len(items) > self.asked.at_most:
            hint = f"at most {self.asked.at_most} items would be accepted"
            raise Refusal(ReasonCode.TOO_MANY, hint, column=self.asked.columns[0], found=str(len(items)), step=_STEP)
        return items

    def _event(self, strand: Strand, item: Item) -> Strand:
        state = strand.state.branch({**strand.state.cells, **item})
        state.item = item[self.asked.columns[0]]
        return Strand(self._key(strand.key, item), state)

    def _key(self, stem: RowKey, item: Item) -> RowKey:
        """Extend the row's key by what tells the item apart; never by its place in the list, which moves."""
        columns = self.asked.key or self.asked.columns
        parts = [item.get(column, "").strip() for column in columns]
        if not any(parts):
            raise required(columns[0], "every item needs what tells it apart").about("", "", _STEP)
        for column, part in zip(columns, parts, strict=True):
            refusal = key_refusal(part, KeyColumn(column=column, optional=True))
            if refusal is not None:
                raise refusal.about(column, part, _STEP)
            stem = event_key(stem, part)
        return stem


def compile_explosion(compiler: Compiler, asked: Explosion) -> Unfold:
    """Compile an explosion; its columns are the row's own."""
    compiler.columns.update(asked.columns)
    if asked.json_list:
        return _Exploding(asked, _json_items(asked))
    separators = re.compile("|".join(map(re.escape, asked.by or ())))
    return _Exploding(asked, _parallel_items(asked.columns, separators))


def is_of_item(asked: Explosion | None, column: str) -> bool:
    """Whether a column is made of a JSON list's objects rather than read from the source."""
    return asked is not None and asked.json_list and column.startswith(f"{asked.columns[0]}.")


def _parallel_items(columns: tuple[str, ...], separators: re.Pattern[str]) -> Callable[[Mapping[str, str]], list[Item]]:
    def items(cells: Mapping[str, str]) -> list[Item]:
        lists = [_split(separators, read_cell(cells, column)) for column in columns]
        longest = max(map(len, lists))
        for column, found in zip(columns, lists, strict=True):
            if len(found) not in {1, longest}:
                hint = f'{longest} items, as in "{columns[0]}", or one for all would be accepted'
                raise Refusal(ReasonCode.UNEVEN, hint, column=column, found=f"{len(found)} items", step=_STEP)
        even = [found * longest if len(found) == 1 else found for found in lists]
        rows = (dict(zip(columns, each, strict=True)) for each in zip(*even, strict=True))
        return [row for row in rows if any(row.values())]

    return items


def _split(separators: re.Pattern[str], text: str) -> list[str]:
    """Split a cell; separators at its end stand for nothing."""
    found = [part.strip() for part in separators.split(text)]
    while len(found) > 1 and not found[-1]:
        found.pop()
    return found


def _json_items(asked: Explosion) -> Callable[[Mapping[str, str]], list[Item]]:
    column = asked.columns[0]

    def items(cells: Mapping[str, str]) -> list[Item]:
        text = read_cell(cells, column).strip()
        if not text:
            return []
        found: list[Item] = [dict(_item(part, column)) for part in _parsed(text, column) if part is not None]
        if asked.key is None and any(len(item) > 1 for item in found):
            hint = "the items are objects: name under `key` what tells them apart, in the mapping"
            raise Refusal(ReasonCode.BAD_KEY, hint, column=column, found=text, step=_STEP)
        return found

    return items


def _parsed(text: str, column: str) -> list[Any]:
    try:
        found = json.loads(text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_named_once)
    except _TwiceError as twice:
        hint = f'the name "{twice}" stands twice in one object and says different things: each name may stand there once'
        raise Refusal(ReasonCode.BAD_TEXT, hint, column=column, found=text, step=_STEP) from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        hint = 'a JSON array is needed, such as ["2026-05-03", "2026-05-04"]'
        raise Refusal(ReasonCode.BAD_TEXT, hint, column=column, found=text, step=_STEP)
    return found


class _TwiceError(ValueError):
    """A name stands twice in one object, with different values."""


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        for name, value in pairs:
            if value != found[name]:
                raise _TwiceError(name)
    return found


def _item(part: Any, column: str) -> Iterator[tuple[str, str]]:
    """Yield an item as cells: its own text, and the fields of an object, however deep, under dotted names."""
    yield column, _text(part)
    if isinstance(part, dict):
        for name, inner in part.items():
            yield from _item(inner, f"{column}.{name}")


def _text(part: Any) -> str:
    match part:
        case None:
            return ""
        case str():
            return nfc(part)
        case _:
            return json.dumps(part, ensure_ascii=False, sort_keys=True)


WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


"""The days of the week, Monday first, as `date.weekday` counts them."""


FOLLOWED_DAYS = 40_000


"""So many days are looked at for one row, more than a century: a rule such as "31 February" would be followed for ever."""


ANY_PLACE = 0


_LONGEST_PERIOD = 366


_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", "BYMONTH", "BYMONTHDAY", "BYSETPOS"})


_DAY = re.compile(r"([+-]?[1-9][0-9]?)?(MO|TU|WE|TH|FR|SA|SU)")


_NUMBER = re.compile(r"[+-]?[1-9][0-9]{0,4}")


_UNTIL = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T[0-9]{6}Z?)?")


_EXAMPLE = "write it like FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE"


class Frequency(StrEnum):
    """What a rule repeats by."""

    DAILY = "DAILY"
    WEEKLY = "WEEKLY"
    MONTHLY = "MONTHLY"
    YEARLY = "YEARLY"


@dataclass(frozen=True, slots=True)
class DayRule:
    """A rule of whole days; an empty set means any.

    `weekdays`: places in the month (or year) with Monday as 0: (1, 0) is the first Monday, (-1, 4) the last Friday,
    (ANY_PLACE, 6) every Sunday. `positions`: which of a period's days, from either end.
    """

    frequency: Frequency = Frequency.DAILY
    interval: int = 1
    count: int | None = None
    until: date | None = None
    week_begins: int = 0
    weekdays: frozenset[tuple[int, int]] = frozenset()
    months: frozenset[int] = frozenset()
    month_days: frozenset[int] = frozenset()
    positions: frozenset[int] = frozenset()


def read_rule(text: str) -> DayRule:
    """Read a rule such as FREQ=WEEKLY;BYDAY=MO, with or without `RRULE:` before it.

    Raises:
        Refusal: it is none, or it says something that is not of whole days.
    """
    try:
        return _read(text.strip().upper().removeprefix("RRULE:"))
    except ValueError as error:
        raise Refusal(ReasonCode.NOT_A_DATE, f"{_EXAMPLE}: {error}", found=text) from error


def rule_days(rule: DayRule, begins: date, first: date, last: date) -> Iterator[date]:
    """Yield the days from `first` to `last` of a rule that begins on the day `begins`; its COUNT counts from there."""
    rule = _completed(rule, begins)
    start, end = begins if rule.count else first, min(last, rule.until or last)
    beyond = _LONGEST_PERIOD if rule.positions else 0  # the last place of a period is told by the whole of it
    ordinals = range(_period_begin(rule, start), min(end.toordinal() + beyond, date.max.toordinal()) + 1)[:FOLLOWED_DAYS]
    days = (date.fromordinal(ordinal) for ordinal in ordinals)
    fitting = (day for day in days if _fits(rule, day) and _period(rule, day, begins) % rule.interval == 0)
    placed = _placed(rule, fitting, begins) if rule.positions else fitting
    return (day for day in islice((day for day in placed if begins <= day <= end), rule.count) if day >= first)


def _read(text: str) -> DayRule:
    parts = [part.partition("=") for part in text.split(";") if part.strip()]
    named = {name.strip(): value.strip() for name, _, value in parts}
    unknown = sorted(named.keys() - _PARTS)
    if unknown or len(named) < len(parts):
        raise ValueError(f"{', '.join(unknown)} is not understood" if unknown else "a part stands twice")
    frequency = named.get("FREQ", "")
    if frequency not in Frequency.__members__:
        raise ValueError(f"it may repeat {', '.join(Frequency)}")
    return _rule(Frequency(frequency), named)


def _rule(frequency: Frequency, named: Mapping[str, str]) -> DayRule:
    weekdays = frozenset(_weekday(part) for part in _items(named.get("BYDAY")))
    if frequency in {Frequency.DAILY, Frequency.WEEKLY} and any(place for place, _ in weekdays):
        raise ValueError("a first or last weekday is one of a month or a year")
    return DayRule(
        frequency=frequency,
        interval=_number(named.get("INTERVAL", "1"), 1, 9_999),
        count=_number(named["COUNT"], 1, 99_999) if "COUNT" in named else None,
        until=_until(named["UNTIL"]) if "UNTIL" in named else None,
        week_begins=_weekday(named.get("WKST", "MO"))[1],
        weekdays=weekdays,
        months=frozenset(_number(part, 1, 12) for part in _items(named.get("BYMONTH"))),
        month_days=frozenset(_number(part, -31, 31) for part in _items(named.get("BYMONTHDAY"))),
        positions=frozenset(_number(part, -366, 366) for part in _items(named.get("BYSETPOS"))),
    )


def _items(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",")]


def _number(text: str, least: int, most: int) -> int:
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError(f"{text or 'nothing'} is no number from {least} to {most}")
    return int(text)


def _weekday(text: str) -> tuple[int, int]:
    match = _DAY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text or 'nothing'} is none of {' '.join(WEEKDAYS)}")
    return int(match[1] or ANY_PLACE), WEEKDAYS.index(match[2])


def _until(text: str) -> date:
    match = _UNTIL.fullmatch(text)
    if match is None:
        raise ValueError("UNTIL is a day, such as 20261231")
    return date(*map(int, match.groups()))


def _completed(rule: DayRule, begins: date) -> DayRule:
    """Fill in what a rule leaves to the day on which it begins."""
    if rule.weekdays or rule.month_days:
        return rule
    match rule.frequency:
        case Frequency.DAILY:
            return rule
        case Frequency.WEEKLY:
            return replace(rule, weekdays=frozenset({(ANY_PLACE, begins.weekday())}))
        case Frequency.MONTHLY:
            return replace(rule, month_days=frozenset({begins.day}))
        case Frequency.YEARLY:
            return replace(rule, month_days=frozenset({begins.day}), months=rule.months or frozenset({begins.month}))
        case _:
            assert_never(rule.frequency)


def _fits(rule: DayRule, day: date) -> bool:
    if rule.months and day.month not in rule.months:
        return False
    if rule.month_days and rule.month_days.isdisjoint((day.day, day.day - monthrange(day.year, day.month)[1] - 1)):
        return False
    return not rule.weekdays or _is_weekday(rule, day)


def _is_weekday(rule: DayRule, day: date) -> bool:
    weekday = day.weekday()
    if (ANY_PLACE, weekday) in rule.weekdays:
        return True
    is_of_year = rule.frequency is Frequency.YEARLY and not rule.months
    number = day.timetuple().tm_yday if is_of_year else day.day
    length = 365 + isleap(day.year) if is_of_year else monthrange(day.year, day.month)[1]
    return not rule.weekdays.isdisjoint((((number - 1) // 7 + 1, weekday), (-((length - number) // 7 + 1), weekday)))


def _period(rule: DayRule, day: date, begins: date) -> int:
    """Return in which period of the rule a day is, counted from the one in which the rule begins."""
    match rule.frequency:
        case Frequency.DAILY:
            return day.toordinal() - begins.toordinal()
        case Frequency.WEEKLY:
            return (_week_begin(rule, day) - _week_begin(rule, begins)) // 7
        case Frequency.MONTHLY:
            return (day.year - begins.year) * 12 + day.month - begins.month
        case Frequency.YEARLY:
            return day.year - begins.year
        case _:
            assert_never(rule.frequency)


def _period_begin(rule: DayRule, day: date) -> int:
    """Return the ordinal of the day on which a day's period begins: positions count from there."""
    match rule.frequency:
        case Frequency.DAILY:
            return day.toordinal()
        case Frequency.WEEKLY:
            return max(_week_begin(rule, day), 1)
        case Frequency.MONTHLY:
            return day.replace(day=1).toordinal()
        case Frequency.YEARLY:
            return day.replace(month=1, day=1).toordinal()
        case _:
            assert_never(rule.frequency)


def _week_begin(rule: DayRule, day: date) -> int:
    return day.toordinal() - (day.weekday() - rule.week_begins) % 7


def _placed(rule: DayRule, days: Iterable[date], begins: date) -> Iterator[date]:
    periods = groupby(days, lambda day: _period(rule, day, begins))
    return chain.from_iterable(_at(rule.positions, list(period)) for _, period in periods)


def _at(positions: frozenset[int], days: list[date]) -> list[date]:
    return [day for place, day in enumerate(days) if not positions.isdisjoint((place + 1, place - len(days)))]


@dataclass(frozen=True, slots=True)
class Pattern:
    """The days of one row. `last`: the last of the range, None where only the horizon ends it."""

    first: date
    last: date | None
    rule: DayRule
    excluded: frozenset[date] = frozenset()
    extra: frozenset[date] = frozenset()


@dataclass(frozen=True, slots=True)
class Reach:
    """Which days matter, both included: those before `first` are long over, those after `last` beyond the horizon."""

    first: date = date.min
    last: date = date.max


def days_of(pattern: Pattern, reach: Reach, at_most: int) -> list[date]:
    """Return the days within reach in their order, and no more than one beyond `at_most`."""
    usual = (day for day in _usual_days(pattern, reach) if day not in pattern.excluded and day not in pattern.extra)
    extra = (day for day in pattern.extra if reach.first <= day <= reach.last)
    return sorted([*islice(usual, at_most + 1), *extra])[: at_most + 1]


def has_any_day(pattern: Pattern) -> bool:
    """Whether the range has a day that the pattern means at all, be it excluded or out of reach."""
    return bool(pattern.extra) or next(_usual_days(pattern, Reach()), None) is not None


def _usual_days(pattern: Pattern, reach: Reach) -> Iterator[date]:
    last = min(reach.last, pattern.last or date.max)
    return rule_days(pattern.rule, pattern.first, max(pattern.first, reach.first), last)


NO_DAY_LEFT = "every day is excluded"


LONG_OVER = timedelta(days=31)


"""An event that began longer ago is over, whatever its length, where a feed leaves out events that are over."""


STAND_IN = date(2000, 1, 1)


"""The $day of a row whose days cannot be told: the row is rejected, and its other problems are told as well."""


FirstDay = Callable[[RowState], date]


"""Returns the first day of a row; raises Refusal where it cannot be read."""


_DATES = (Kind.DATE, Kind.WALL, Kind.MOMENT, Kind.TEXT, Kind.ANY, Kind.UNKNOWN)


_ORDINALS: dict[str, int] = {str(number): number for number in (*range(1, 6), *range(-5, 0))}


@dataclass(frozen=True, slots=True)
class Days:
    """The days that a run looks at: `today` is the run's own, `reach` those that become events."""

    today: date | None
    reach: Reach

    @property
    def spoken_for(self) -> tuple[str, str]:
        """The first and the last ISO day whose absence from a read means something."""
        return (self.today or self.reach.first).isoformat(), self.reach.last.isoformat()


@dataclass(frozen=True, slots=True)
class _Recurring:
    """A compiled recurrence."""

    when: Holds | None
    start: FirstDay
    until: Getter | None
    rule: Callable[[RowState], DayRule]
    excluded: Getter | None
    extra: Getter | None
    asked: Recurrence
    days: Days

    def __call__(self, strand: Strand) -> list[Strand]:
        strand.state.day = STAND_IN
        try:
            return self._unfolded(strand)
        except Refusal as refusal:
            return refused(strand, refusal)

    def _unfolded(self, strand: Strand) -> list[Strand]:
        state = strand.state
        state.day = first = self.start(state)
        if self.when is not None and not self.when(state):
            return [strand]
        pattern = self._pattern(state, first)
        found = days_of(pattern, self.days.reach, self.asked.at_most)
        if not found:
            strand.label = self._why_none(pattern)
            return [strand]
        return self._events(strand, found)

    def _pattern(self, state: RowState, first: date) -> Pattern:
        last = None if self.until is None else self.until(state)
        until = None if last is None else _day(last)
        if until is not None and until < first:
            hint = f"it begins {first}: a day after that would be accepted"
            raise Refusal(ReasonCode.END_BEFORE_START, hint, found=until.isoformat(), step="recur")
        if until is None and self.asked.horizon is None:
            raise Refusal(ReasonCode.REQUIRED, "a last day is needed, or a horizon in the mapping", step="recur")
        excluded, extra = _days(self.excluded, state), _days(self.extra, state)
        return Pattern(first, until, self.rule(state), excluded, extra)

    def _why_none(self, pattern: Pattern) -> str:
        if not has_any_day(pattern):
            raise Refusal(ReasonCode.NO_DAY, f"no such day between {pattern.first} and {pattern.last}", step="recur")
        if pattern.first > self.days.reach.last:
            return TOO_FAR
        if not days_of(pattern, Reach(), 1):
            return NO_DAY_LEFT
        return OVER if not days_of(pattern, Reach(self.days.reach.last), 1) else TOO_FAR

    def _events(self, strand: Strand, found: list[date]) -> list[Strand]:
        most, silence = self.asked.at_most, None
        if len(found) > most:
            more = Refusal(ReasonCode.TOO_MANY, f"at most {most} days would be accepted", found=f"more than {most}", step="recur")
            if self.asked.on_more == "reject":
                raise more
            if self.asked.on_more == "warn":
                strand.state.warnings.append(more.reason(""))
            found = found[:most]
            silence = Silence(strand.key, found[-1].isoformat())
        events = []
        for day in found:
            state = strand.state.branch(strand.state.cells)
            state.day = day
            events.append(Strand(event_key(strand.key, day.isoformat()), state))
        events[0].silence = silence
        return events


def compile_first_day(compiler: Compiler, asked: Recurrence, loc: Loc) -> FirstDay:
    """Compile the first day of a recurrence: the row's own day, on which `$day` cannot bear."""
    spot = Spot((*loc, "recur"))
    if asked.start is not None:
        return _first_day(_dated(compiler, asked.start, spot.inner("from")))
    return _earliest(_maybe(compiler, asked.days, spot.inner("days"), _dated))


def compile_recurrence(compiler: Compiler, asked: Recurrence, loc: Loc, days: Days, start: FirstDay) -> Unfold:
    """Compile a recurrence, as seen from the start of the run."""
    spot = Spot((*loc, "recur"))
    listed = _maybe(compiler, asked.days, spot.inner("days"), _dated)
    return _Recurring(
        when=None if asked.when is None else compiler.condition(asked.when, (*spot.loc, "when")),
        start=start,
        until=start if listed is not None else _maybe(compiler, asked.until, spot.inner("until", may_be_empty=True), _dated),
        rule=_day_rule(compiler, asked, spot),
        excluded=_maybe(compiler, asked.excluded, spot.inner("except", may_be_empty=True), _dated),
        extra=listed or _maybe(compiler, asked.extra, spot.inner("extra", may_be_empty=True), _dated),
        asked=asked,
        days=days,
    )


def _first_day(compiled: Compiled) -> FirstDay:
    def first(row: RowState) -> date:
        found = compiled.get(row)
        if found is None:
            raise required(compiled.column, "a first day is needed")
        return _day(found)

    return first


def _earliest(listed: Getter | None) -> FirstDay:
    def earliest(row: RowState) -> date:
        days = _days(listed, row)
        if not days:
            raise required("", "a day at least is needed")
        return min(days)

    return earliest


def _day_rule(compiler: Compiler, asked: Recurrence, spot: Spot) -> Callable[[RowState], DayRule]:
    if asked.rrule is not None:
        text = compiler.value(asked.rrule, spot.inner("rrule")).get
        return lambda row: read_rule(str(text(row) or ""))
    weekdays = _maybe(compiler, asked.weekdays, spot.inner("weekdays"))
    nth = _maybe(compiler, asked.nth, spot.inner("nth"))

    def rule(row: RowState) -> DayRule:
        named = [] if weekdays is None else [_weekday_number(each) for each in _listed(weekdays(row))]
        places = [] if nth is None else [_place(each) for each in _listed(nth(row))]
        chosen = frozenset((place, weekday) for weekday in named for place in places or [ANY_PLACE])
        return DayRule(Frequency.MONTHLY if places else Frequency.DAILY, weekdays=chosen)

    return rule


def _maybe(
    compiler: Compiler, value: Value | None, spot: Spot, compile_one: Callable[[Compiler, Value, Spot], Compiled] = Compiler.value
) -> Getter | None:
    return None if value is None else lenient(compile_one(compiler, value, spot).get)


def _dated(compiler: Compiler, value: Value, spot: Spot) -> Compiled:
    compiled = compiler.value(value, spot)
    is_text = compiled.flow.kind is Kind.TEXT and (compiled.is_cell or compiled.column)
    if compiled.flow.kind not in _DATES or is_text:
        return compiler.misfit(spot, f"a date is needed here, not a {compiled.flow.kind}", 'do: [{date: "%Y-%m-%d"}]')
    return compiled


def _day(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value).strip())
    except ValueError:
        raise Refusal(ReasonCode.NOT_A_DATE, "a date is needed here", found=str(value), step="recur") from None


def _days(get: Getter | None, row: RowState) -> frozenset[date]:
    return frozenset() if get is None else frozenset(map(_day, _listed(get(row))))


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _weekday_number(value: Any) -> int:
    text = str(value).strip().upper()
    if text in WEEKDAYS:
        return WEEKDAYS.index(text)
    hint = f"one of {' '.join(WEEKDAYS)} is needed: split the cell, and map its words"
    raise Refusal(ReasonCode.NOT_ACCEPTED, hint, found=str(value), step="recur")


def _place(value: Any) -> int:
    number = _ORDINALS.get(str(value).strip())
    if number is None:
        hint = "a number from 1 (the first) to 5 is needed, or from -1 (the last) to -5"
        raise Refusal(ReasonCode.NOT_ACCEPTED, hint, found=str(value), step="recur")
    return number
