"""When an event begins and ends, as named values and fields of a draft: formats with their evidence, an open order left open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mappings.draft.columns import ColumnSeen, Role
from mappings.draft.formats import TimesSeen, WrittenTimes
from mappings.draft.roles import RoleGuess, Surety, agreed_order, in_order
from mappings.draft.write_yaml import column_text, comment, listed, one_or_list, scalar

_NO_DAY = "%Y-%m-%d"
_CLOCKS = {Role.CLOCK: "$clock", Role.END_CLOCK: "$end_clock"}
_STEPS = {"date": "date", "time": "time", "datetime": "datetime", "moment": "datetime"}


@dataclass(frozen=True, slots=True)
class Guessed:
    """One guess: what it is about, the columns it rests on, how sure it is, and the evidence."""

    about: str
    column: str
    surety: Surety
    why: str

    def __str__(self) -> str:
        """Write it as a comment of the file."""
        return f"# {self.surety}: {comment(self.why)}"


@dataclass(slots=True)
class Moments:
    """The times of a feed. `order`: `day` or `month`, where the author has said which of two numbers is the day."""

    roles: dict[Role, RoleGuess]
    columns: Sequence[ColumnSeen]
    order: str = ""
    guesses: list[Guessed] = field(default_factory=list)

    def let(self) -> Iterator[str]:
        """Write the named values that the fields use."""
        names = {Role.CLOCK: "clock", Role.END: "ends", Role.END_CLOCK: "end_clock"}
        for role, name in {Role.START: "days" if self.has_lists else "starts", **names}.items():
            if self._is_read(role):
                yield from self._named(role, name)
        if self._range is not None:
            yield from self._end_of(self._range, "end_clock", "range_end")
        if self._days_range is not None:
            yield from self._end_of(self._days_range, "ends", "range_end")
        if Role.START not in self.roles:
            self.guesses.append(
                Guessed("startAt", "", "unsure", "no column holds dates: every row is rejected until you name one")
            )
            yield str(self.guesses[-1])

    def rows(self) -> Iterator[str]:
        """Write the rule that makes an event of each day of a cell, where cells hold lists of days."""
        if self.has_lists:
            yield "- recur: {days: $days} # an event for each day of the list"

    def fields(self, zone: str) -> Iterator[str]:
        """Write startAt and endAt."""
        day = "$day" if self.has_lists else "$starts"
        clock, end_clock = (name if self._is_read(role) else "" for role, name in _CLOCKS.items())
        yield f"startAt: {self._moment(day, clock, Role.START, zone, '00:00')}"
        if self._is_read(Role.END):
            yield f"endAt: {self._moment('$ends', end_clock, Role.END, zone, '23:59')}"
        elif self._days_range is not None:
            yield f'endAt: {{at: {{day: $ends, zone: {zone}, all_day: "23:59"}}, on_empty: omit}}'
        elif Role.START in self.roles and (end_clock or self._range is not None):
            yield f"endAt: {{at: {{day: {day}, clock: $end_clock, zone: {zone}}}, on_empty: omit}}"

    @property
    def has_lists(self) -> bool:
        """Whether the column of the day holds lists of days."""
        return self._start_kind == "dates"

    @property
    def _start_kind(self) -> str:
        times = self._times(Role.START)
        return "" if times is None else times.ways[0].kind

    @property
    def _days_range(self) -> RoleGuess | None:
        """The column whose cells hold the first and the last day, where no other column has the last."""
        return self.roles[Role.START] if self._start_kind == "date_range" and Role.END not in self.roles else None

    def _is_read(self, role: Role) -> bool:
        """Whether a column's times are the event's: none needs a clock beside its own, nor one last day for a list of days."""
        if role is Role.CLOCK and self._start_has_clock:
            return False
        return role in self.roles and not (role is Role.END and self.has_lists)

    @property
    def _start_has_clock(self) -> bool:
        return self._start_kind in ("datetime", "moment")

    @property
    def _range(self) -> RoleGuess | None:
        """The column whose cells hold a beginning and an end, where no other column has the end."""
        guess = self.roles.get(Role.CLOCK)
        is_range = guess is not None and guess.column.times is not None and guess.column.times.is_range
        if not is_range or self._start_has_clock or Role.END in self.roles or Role.END_CLOCK in self.roles:
            return None
        return guess

    def _times(self, role: Role) -> TimesSeen | None:
        guess = self.roles.get(role)
        return None if guess is None else self._ordered(guess)

    def _ordered(self, guess: RoleGuess) -> TimesSeen | None:
        times = guess.column.times
        if times is None or not times.is_ambiguous:
            return times
        order = self.order or agreed_order(self.columns)[0]
        return in_order(times, order) if order else times

    def _named(self, role: Role, name: str) -> Iterator[str]:
        guess, times = self.roles[role], self._times(role)
        if times is None:
            return
        self.guesses.append(self._guess(role, guess, times))
        yield str(self.guesses[-1])
        needs = "" if role is Role.START else ", on_empty: omit"
        if self._is_open(times):
            yield from (f"# {name}: {_value(guess.column, one.ways, needs)}" for one in (times, times.in_other_order()))
            none = WrittenTimes("dates" if times.ways[0].by else "date", (_NO_DAY,), by=times.ways[0].by)
            yield f"{name}: {_value(guess.column, (none,), needs)} # put one of the two lines above here"
        else:
            yield f"{name}: {_value(guess.column, times.ways, needs, prefix='range_start' if times.is_range else '')}"

    def _end_of(self, guess: RoleGuess, name: str, prefix: str) -> Iterator[str]:
        times = guess.column.times if guess.column.times is None or Role.START not in self.roles else self._ordered(guess)
        if times is not None and not self._is_open(times):
            yield f"{name}: {_value(guess.column, times.ways, ', on_empty: omit', prefix=prefix)}"

    def _guess(self, role: Role, guess: RoleGuess, times: TimesSeen) -> Guessed:
        about = {Role.START: "startAt", Role.CLOCK: "startAt", Role.END: "endAt"}.get(role, "endAt")
        why = f"{guess.why}; {times.fitting:,} of {times.filled:,} filled cells {_fitting(times)}"
        surety: Surety = guess.surety if times.fitting == times.filled else "likely"
        if times.order and times.proving:
            why = f"{why}; {times.proving:,} prove {times.order}-first"
        elif times.order:
            surety, told = self._told_order(times)
            why = f"{why}; {told}"
        if times.odd:
            why = f"{why}; not {', '.join(repr(text) for text in times.odd[:3])}"
        return Guessed(about, guess.column.name, surety, why)

    def _told_order(self, times: TimesSeen) -> tuple[Surety, str]:
        if self.order:
            return "likely", f"{self.order}-first, as you said"
        order, column = agreed_order(self.columns)
        if order:
            return "likely", f'"{column}" proves that this file is {order}-first'
        swap = ", ".join(spelling for way in times.in_other_order().ways for spelling in way.formats)
        return "unsure", f"as many fit {swap}, and nothing proves which: until you choose, every such row is rejected"

    def _is_open(self, times: TimesSeen) -> bool:
        return times.is_ambiguous and not self.order and not agreed_order(self.columns)[0]

    def _moment(self, day: str, clock: str, role: Role, zone: str, all_day: str) -> str:
        times = self._times(role)
        needs = "" if role is Role.START else ", on_empty: omit"
        if times is None:
            day = f"{{from: {column_text(self._any_column())}, do: [{{date: {scalar(_NO_DAY)}}}]}}"
            return f'{{at: {{day: {day}, zone: {zone}, all_day: "{all_day}"}}}}'
        if times.ways[0].kind == "moment":
            return f"{{in_zone: {{moment: {day}, zone: {zone}}}{needs}}}"
        clocked = f", clock: {clock}" if clock and times.ways[0].kind != "datetime" else ""
        return f'{{at: {{day: {day}{clocked}, zone: {zone}, all_day: "{all_day}"}}{needs}}}'

    def _any_column(self) -> str:
        guess = self.roles.get(Role.TITLE)
        return guess.column.name if guess is not None else self.columns[0].name


def _value(column: ColumnSeen, ways: Sequence[WrittenTimes], needs: str, *, prefix: str = "") -> str:
    """Write the value that reads a column: one step, or the first of several that fits."""
    ways = [way for way in ways if (way.kind == "moment") == (ways[0].kind == "moment")]
    if len(ways) == 1:
        return f"{{from: {column_text(column.name)}, do: [{_steps(ways[0], prefix)}]{needs}}}"
    others = [f"{{from: {column_text(column.name)}, do: [{_steps(way, prefix)}], on_error: omit}}" for way in ways[:-1]]
    last = f"{{from: {column_text(column.name)}, do: [{_steps(ways[-1], prefix)}]}}"
    return f"{{first_of: [{', '.join([*others, last])}]{needs}}}"


def _steps(way: WrittenTimes, prefix: str) -> str:
    locale = f", locale: {way.locale}" if way.locale else ""
    half = "end" if prefix == "range_end" else "start"
    match way.kind:
        case "clock":
            return "clock"
        case "clock_range":
            return f"{{clock_range: {half}}}"
        case "date_range":
            return f"{{date_range: {half}, formats: {one_or_list(way.formats)}{locale}}}"
        case "dates":
            return f"{{dates: {one_or_list(way.formats)}, by: {listed(way.by)}{locale}}}"
        case _:
            step = f"{{{_STEPS[way.kind]}: {one_or_list(way.formats)}{locale}}}"
            return f"{prefix}, {step}" if prefix else step


def _fitting(times: TimesSeen) -> str:
    formats = ", ".join(spelling for way in times.ways for spelling in way.formats if spelling)
    if not formats:
        return "are times as people write them"
    several = {"dates": ", several days in one", "date_range": ", the first and the last day in one"}
    return f"fit {formats}{several.get(times.ways[0].kind, '')}"
