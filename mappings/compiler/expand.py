"""The events that one row stands for, on their way. What makes several of one is `exploding`'s and `recurring`'s."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from mappings.compiler.base import Compiled, Compiler, lenient
from mappings.compiler.conditions import Holds
from mappings.compiler.evaluation import Flow, Getter, RowState, nfc, read_cell, required
from mappings.compiler.key import key_refusal
from mappings.compiler.recurrence import (
    ANY_PLACE,
    WEEKDAYS,
    DayRule,
    Frequency,
    Pattern,
    Reach,
    days_of,
    has_any_day,
    read_rule,
)
from mappings.compiler.row_rules import OVER, TOO_FAR
from mappings.outcome import Silence
from mappings.positions import Loc, ValuePosition
from mappings.refusals import ReasonCode, Refusal
from mappings.row_key import RowKey, event_key
from mappings.spec.feed import KeyColumn
from mappings.spec.rules import Explosion, Recurrence
from mappings.spec.values import Value
from mappings.steps.step import Kind


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


"""The days of the week, Monday first, as `date.weekday` counts them."""


"""So many days are looked at for one row, more than a century: a rule such as "31 February" would be followed for ever."""
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
    spot = ValuePosition((*loc, "recur"))
    if asked.start is not None:
        return _first_day(_dated(compiler, asked.start, spot.inner("from")))
    return _earliest(_maybe(compiler, asked.days, spot.inner("days"), _dated))


def compile_recurrence(compiler: Compiler, asked: Recurrence, loc: Loc, days: Days, start: FirstDay) -> Unfold:
    """Compile a recurrence, as seen from the start of the run."""
    spot = ValuePosition((*loc, "recur"))
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


def _day_rule(compiler: Compiler, asked: Recurrence, spot: ValuePosition) -> Callable[[RowState], DayRule]:
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
    compiler: Compiler,
    value: Value | None,
    spot: ValuePosition,
    compile_one: Callable[[Compiler, Value, ValuePosition], Compiled] = Compiler.value,
) -> Getter | None:
    return None if value is None else lenient(compile_one(compiler, value, spot).get)


def _dated(compiler: Compiler, value: Value, spot: ValuePosition) -> Compiled:
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
