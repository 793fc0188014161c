"""When an event begins and ends, written as named values and fields: the formats with their evidence, an open order left open.

Which columns hold days and clocks is `infer_roles`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mappings.infer_columns import ColumnSeen
from mappings.infer_roles import RoleGuess, Surety, agreed_order, in_order
from mappings.infer_times import TimesSeen, Written
from mappings.infer_words import Role
from mappings.infer_yaml import column_text, comment, one_or_list, scalar

_NO_DAY = "%Y-%m-%d"
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
        for role, name in ((Role.START, "starts"), (Role.CLOCK, "clock"), (Role.END, "ends"), (Role.END_CLOCK, "end_clock")):
            if role in self.roles and not (role is Role.CLOCK and self._start_has_clock):
                yield from self._named(role, name)
        if self._range is not None:
            yield from self._range_end(self._range)
        if Role.START not in self.roles:
            self.guesses.append(
                Guessed("startAt", "", "unsure", "no column holds dates: every row is rejected until you name one")
            )
            yield str(self.guesses[-1])

    def fields(self, zone: str) -> Iterator[str]:
        """Write startAt and endAt."""
        clock = "$clock" if Role.CLOCK in self.roles else ""
        yield f"startAt: {self._moment('$starts', clock, Role.START, zone, '00:00')}"
        if Role.END in self.roles:
            clock = "$end_clock" if Role.END_CLOCK in self.roles else ""
            yield f"endAt: {self._moment('$ends', clock, Role.END, zone, '23:59')}"
        elif Role.START in self.roles and (Role.END_CLOCK in self.roles or self._range is not None):
            yield f"endAt: {{at: {{day: $starts, clock: $end_clock, zone: {zone}}}, on_empty: omit}}"

    @property
    def _start_has_clock(self) -> bool:
        times = self._times(Role.START)
        return times is not None and times.ways[0].kind in ("datetime", "moment")

    @property
    def _range(self) -> RoleGuess | None:
        """The column whose cells hold a beginning and an end, where no other column tells the end."""
        guess = self.roles.get(Role.CLOCK)
        is_range = guess is not None and guess.column.times is not None and guess.column.times.is_range
        if not is_range or self._start_has_clock or Role.END in self.roles or Role.END_CLOCK in self.roles:
            return None
        return guess

    def _times(self, role: Role) -> TimesSeen | None:
        guess = self.roles.get(role)
        times = None if guess is None else guess.column.times
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
            yield f"{name}: {_value(guess.column, (Written('date', (_NO_DAY,)),), needs)} # put one of the two lines above here"
        else:
            yield f"{name}: {_value(guess.column, times.ways, needs, prefix='range_start' if times.is_range else '')}"

    def _range_end(self, guess: RoleGuess) -> Iterator[str]:
        if guess.column.times is not None:
            yield f"end_clock: {_value(guess.column, guess.column.times.ways, ', on_empty: omit', prefix='range_end')}"

    def _guess(self, role: Role, guess: RoleGuess, times: TimesSeen) -> Guessed:
        about = {Role.START: "startAt", Role.CLOCK: "startAt", Role.END: "endAt"}.get(role, "endAt")
        formats = ", ".join(spelling for way in times.ways for spelling in way.formats)
        why = f"{guess.why}; {times.fitting:,} of {times.filled:,} filled cells fit {formats}"
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


def _value(column: ColumnSeen, ways: Sequence[Written], needs: str, *, prefix: str = "") -> str:
    """Write the value that reads a column: one step, or the first of several that fits."""
    ways = [way for way in ways if (way.kind == "moment") == (ways[0].kind == "moment")]
    if len(ways) == 1:
        return f"{{from: {column_text(column.name)}, do: [{_steps(ways[0], prefix)}]{needs}}}"
    others = [f"{{from: {column_text(column.name)}, do: [{_steps(way, prefix)}], on_error: omit}}" for way in ways[:-1]]
    last = f"{{from: {column_text(column.name)}, do: [{_steps(ways[-1], prefix)}]}}"
    return f"{{first_of: [{', '.join([*others, last])}]{needs}}}"


def _steps(way: Written, prefix: str) -> str:
    locale = f", locale: {way.locale}" if way.locale else ""
    step = f"{{{_STEPS[way.kind]}: {one_or_list(way.formats)}{locale}}}"
    return f"{prefix}, {step}" if prefix else step
