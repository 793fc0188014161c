"""The days that one row stands for, compiled: each becomes an event with a key of its own.

Which days those are is `recurrence`'s; the items of a list are `exploding`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from mappings.compiling import Compiled, Compiler, lenient
from mappings.day_rules import ANY_PLACE, WEEKDAYS, DayRule, Frequency, read_rule
from mappings.deciding import Holds
from mappings.evaluation import Getter, RowState, required
from mappings.identity import event_key
from mappings.positions import Loc, Spot
from mappings.recurrence import Pattern, Reach, days_of, has_any_day
from mappings.refusals import Refusal
from mappings.row_rules import OVER, TOO_FAR
from mappings.spec.rules import Recurrence
from mappings.spec.values import Value
from mappings.strands import Strand, Unfold, refused
from mappings.transforms.step import Kind
from mappings.vocabulary import ReasonCode, Silence

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
        named = [] if weekdays is None else [_weekday(each) for each in _listed(weekdays(row))]
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


def _weekday(value: Any) -> int:
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
