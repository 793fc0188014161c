"""The first mapping file of a sample of rows, with how sure each guess is, and its examples. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mappings.compiler.mapper import RowMapper, compile_with_problems
from mappings.draft.columns import Column, Role, read_columns
from mappings.draft.guesses import (
    UNKNOWN,
    Guess,
    RoleGuess,
    Surety,
    ZoneGuess,
    agreed_order,
    comment,
    country_language,
    guess_key,
    guess_roles,
    guess_zone,
)
from mappings.draft.source import SourceGuess
from mappings.draft.times import ColumnTimes, TimeSpelling
from mappings.event import Directory
from mappings.lint.warnings import FILL_IN_NAME
from mappings.outcome import MappedRow, Rejection, RowLocation, SourceRow
from mappings.yaml.loader import parse_feed

_MOST_MAPPED = 40
_CANCELLED = ("cancel", "annul", "abgesagt", "odwolan", "odwołan", "storn", "canceled", "中止", "취소", "取消")
_UID = '"UID" is a calendar\'s own identifier; RECURRENCE-ID tells a single day that was changed from its series'
_NO_ZONE = "zone of events that name none: put the one whose clocks the partner means, such as Europe/Lisbon"
_ENDS = "an all-day DTEND is the first day after the event; an event of a series ends on its own day, or in the night after it"
_NO_DATES = "no column holds dates: every row is rejected until you name one"
_LISTS_OF_CALENDARS = {"CATEGORIES": ";"}
"""What stands between the items of a calendar's lists, once they are read."""


@dataclass(frozen=True, slots=True)
class SourceSample:
    """Rows of a source, read as `source` says. `title`: what people call it; `place`: how the mapping file does.

    `columns` stand in the source's order.
    """

    title: str
    place: str
    source: SourceGuess
    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]


def draft_feed(sample: SourceSample, feed: str, *, zone: str = "", order: str = "") -> tuple[str, tuple[Guess, ...]]:
    """Return the text of a first mapping for the sample, without examples, and every guess in it.

    `zone` (an IANA name) and `order` (`day` or `month`, whichever stands first) are the author's; "" leaves them to evidence.
    """
    is_calendar = sample.source.kind == "ics"
    lists = _LISTS_OF_CALENDARS if is_calendar else sample.source.settings.get("join_lists", {})
    columns = read_columns(sample.columns, sample.rows, lists)
    roles = guess_roles(columns)
    key, key_guess = guess_key(columns, roles)
    clocks = UNKNOWN if zone else guess_zone(columns, roles)
    timezone = _timezone(zone, None if is_calendar else roles.get(Role.ZONE), UNKNOWN if is_calendar else clocks)
    times = _draft_times(roles, columns, order, timezone)
    if is_calendar:
        guesses = [Guess("key", "UID", "sure", _UID), Guess("endAt", "DTEND", "sure", _ENDS)]
        guesses += [] if zone else [Guess("timezone", "", "unsure", _NO_ZONE)]
    else:
        guesses = [key_guess]
        if not zone and Role.ZONE not in roles:
            guesses.append(Guess("timezone", clocks.column, clocks.surety, clocks.why))
        guesses += times.guesses
    guesses += _field_guesses(roles)
    needed = [*key, *(roles[role].column for role in (Role.TITLE, Role.START) if role in roles)]
    text = _TEMPLATES.get_template("calendar.yaml.jinja" if is_calendar else "feed.yaml.jinja").render(
        {role.value: roles[role].column if role in roles else None for role in Role},
        feed=feed,
        sample_title=sample.title,
        source=sample.source.block(sample.place),
        why=sample.source.why,
        required=list(dict.fromkeys(column.name for column in needed)),
        key=key,
        times=times,
        clocks=clocks,
        timezone=timezone,
        guesses={guess.about: guess for guess in guesses},
        most_mapped=_MOST_MAPPED,
        cancelled=_cancelled(roles.get(Role.STATUS)),
        languages=_languages(roles.get(Role.COUNTRY)),
    )
    if not is_calendar:
        guesses += _left_aside(columns, roles, guesses)
    return text, (*sample.source.guesses(), *_overwritten(columns), *guesses)


def _timezone(zone: str, named: RoleGuess | None, clocks: ZoneGuess) -> str:
    if zone:
        return flow(zone)
    if named is not None:
        return f"{{from: {column_text(named.column.name)}, do: [zone]}}"
    return "$zone" if clocks.surety == "likely" or clocks.by_country else f"${FILL_IN_NAME}zone"


def _field_guesses(roles: Mapping[Role, RoleGuess]) -> Iterator[Guess]:
    if Role.TITLE not in roles:
        yield Guess("title", "", "unsure", "no column holds words: say which one is the title")
    for role, about, to_do in (
        (Role.TITLE, "title", ""),
        (Role.CATEGORY, "classifications", "; put a slug beside each value"),
        (Role.CITY, "approxLocation.city", "; put a placeId beside each"),
        (Role.VENUE, "locationName", ""),
        (Role.URL, "offers", ""),
    ):
        guess = roles.get(role)
        if guess is not None and (role is not Role.CATEGORY or len(guess.column.parts) <= _MOST_MAPPED):
            yield Guess(about, guess.column.name, guess.surety, guess.why + to_do)


def _cancelled(status: RoleGuess | None) -> list[str]:
    texts = status.column.counts if status else ()
    return [text for text in texts if any(word in text.casefold() for word in _CANCELLED)]


def _languages(country: RoleGuess | None) -> tuple[str, ...]:
    """Return the languages in which most countries of a column are known."""
    if country is None:
        return ()
    languages, unknown = country_language(country.column)
    return languages if len(unknown) * 2 < len(country.column.counts) else ()


def _overwritten(columns: Sequence[Column]) -> Iterator[Guess]:
    """Yield a doubt for each name in the header that is one of its own column's values: it may have been typed over."""
    for column in columns:
        if times := column.counts[column.name]:
            why = f"the column's name is also its value in {times:,} rows: typed over? Then say header: {{row: 1, names: [...]}}"
            yield Guess("source.header", column.name, "unsure", why)


def _left_aside(columns: Sequence[Column], roles: Mapping[Role, RoleGuess], guesses: Sequence[Guess]) -> Iterator[Guess]:
    """Yield the columns with something in them that the draft does not read, so that none is forgotten unseen."""
    used = {name for guess in guesses for name in (guess.column, *guess.column.split(", "))}
    silent = (Role.STATUS, Role.ZONE, *([Role.PRICE] if Role.URL in roles else []))
    used |= {roles[role].column.name for role in silent if role in roles}
    if names := [column.name for column in columns if column.filled and column.name not in used]:
        yield Guess("left aside", ", ".join(names), "unsure", "the draft does not read these columns: map those that matter")


def feed_name(title: str) -> str:
    """Return a feed's name made of a file's: lower-case words joined by `-`, at most 40 characters."""
    plain = unicodedata.normalize("NFKD", title.replace("ł", "l")).encode("ascii", "ignore").decode().casefold()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-")
    return words if words[:1].isalpha() else f"feed-{words}".strip("-")


_NO_DAY = ("%Y-%m-%d",)
_NAMES = {Role.START: "starts", Role.CLOCK: "clock", Role.END: "ends", Role.END_CLOCK: "end_clock"}
_OPTIONAL = ", on_empty: omit"
_SEVERAL_DAYS = {"dates": ", several days in one", "date_range": ", the first and the last day in one"}


@dataclass(frozen=True, slots=True)
class _TimesDraft:
    """When an event begins and ends: lines of `let`, and the values of startAt and endAt ("" for none)."""

    has_lists: bool
    let: list[str]
    start_at: str
    end_at: str
    guesses: list[Guess]


def _draft_times(roles: Mapping[Role, RoleGuess], columns: Sequence[Column], order: str, zone: str) -> _TimesDraft:
    """Read days and times by the formats that fit the cells; an order of day and month that nothing proves is left open."""
    proof = f"{order}-first, as you said"
    if not order:
        order, proof = agreed_order(columns)
    times = _times_of_roles(roles, order)
    kind = times[Role.START].kind if Role.START in times else ""
    let, guesses = list[str](), list[Guess]()
    for role, found in times.items():
        guesses.append(_time_guess(role, roles[role], found, order, proof))
        let += [str(guesses[-1]), *_named_time(role, roles[role].column.name, found, is_open=found.is_ambiguous and not order)]
    day, clock = "$day" if kind == "dates" else "$starts", "$clock" if Role.CLOCK in times else ""
    if not kind:
        title = roles[Role.TITLE].column if Role.TITLE in roles else columns[0]
        day, clock = f"{{from: {column_text(title.name)}, do: [{{date: {flow(_NO_DAY[0])}}}]}}", ""
        guesses.append(Guess("startAt", "", "unsure", _NO_DATES))
    if Role.END not in roles:
        let += _ends_of_ranges(roles, times, order)
    end_at, named = "", {line.partition(":")[0] for line in let}
    if "ends" in named:
        end_kind = times[Role.END].kind if Role.END in times else "date"
        end_clock = "$end_clock" if Role.END_CLOCK in times and Role.END in times else ""
        end_at = _moment("$ends", end_kind, end_clock, zone, "23:59", _OPTIONAL)
    elif kind not in ("", "date_range") and "end_clock" in named:
        end_at = f"{{at: {{day: {day}, clock: $end_clock, zone: {zone}}}{_OPTIONAL}}}"
    return _TimesDraft(kind == "dates", let, _moment(day, kind, clock, zone, "00:00", ""), end_at, guesses)


def _times_of_roles(roles: Mapping[Role, RoleGuess], order: str) -> dict[Role, ColumnTimes]:
    """Return the times that are the event's: none needs a clock beside its own, nor one last day for a list of days."""
    times = {role: found.in_order(order) for role in _NAMES if role in roles and (found := roles[role].column.times)}
    if Role.START in times and times[Role.START].kind in ("datetime", "moment"):
        times.pop(Role.CLOCK, None)
    if Role.START in times and times[Role.START].kind == "dates":
        times.pop(Role.END, None)
    return times


def _named_time(role: Role, column: str, times: ColumnTimes, *, is_open: bool) -> Iterator[str]:
    name = "days" if times.kind == "dates" and role is Role.START else _NAMES[role]
    tail = "" if role is Role.START else _OPTIONAL
    if is_open:
        yield from (f"# {name}: {_value(column, one.ways, tail)}" for one in (times, times.in_other_order()))
        by = times.ways[0].by
        none = TimeSpelling("dates" if by else "date", _NO_DAY, by=by)
        yield f"{name}: {_value(column, [none], tail)} # put one of the two lines above here"
    else:
        yield f"{name}: {_value(column, times.ways, tail, 'range_start' if times.is_range else '')}"


def _ends_of_ranges(roles: Mapping[Role, RoleGuess], times: Mapping[Role, ColumnTimes], order: str) -> Iterator[str]:
    """Yield the end of a cell that holds a beginning and an end."""
    start, clock = times.get(Role.START), times.get(Role.CLOCK)
    if clock is not None and clock.is_range and Role.END_CLOCK not in times:
        yield f"end_clock: {_value(roles[Role.CLOCK].column.name, clock.ways, _OPTIONAL, 'range_end')}"
    if start is not None and start.kind == "date_range" and (order or not start.is_ambiguous):
        yield f"ends: {_value(roles[Role.START].column.name, start.ways, _OPTIONAL, 'range_end')}"


def _moment(day: str, kind: str, clock: str, zone: str, all_day: str, tail: str) -> str:
    if kind == "moment":
        return f"{{in_zone: {{moment: {day}, zone: {zone}}}{tail}}}"
    clocked = f", clock: {clock}" if clock and kind != "datetime" else ""
    return f'{{at: {{day: {day}{clocked}, zone: {zone}, all_day: "{all_day}"}}{tail}}}'


def _time_guess(role: Role, guess: RoleGuess, times: ColumnTimes, order: str, proof: str) -> Guess:
    formats = ", ".join(spelling for way in times.ways for spelling in way.formats if spelling)
    fits = f"fit {formats}{_SEVERAL_DAYS.get(times.kind, '')}" if formats else "are times as people write them"
    why = [guess.why, f"{times.fitting:,} of {times.filled:,} filled cells {fits}"]
    surety: Surety = guess.surety if times.fitting == times.filled else "likely"
    if times.proving:
        why.append(f"{times.proving:,} prove {times.order}-first")
    elif times.order and order:
        surety = "likely"
        why.append(proof)
    elif times.order:
        surety = "unsure"
        other = ", ".join(spelling for way in times.in_other_order().ways for spelling in way.formats)
        why.append(f"as many fit {other}, and nothing proves which: until you choose, every such row is rejected")
    if times.odd:
        why.append(f"not {', '.join(map(repr, times.odd[:3]))}")
    return Guess("startAt" if role in (Role.START, Role.CLOCK) else "endAt", guess.column.name, surety, "; ".join(why))


def _value(column: str, ways: Sequence[TimeSpelling], tail: str, half: str = "") -> str:
    """Write the value that reads a column: one step, or the first of several that fits."""
    alike = [way for way in ways if (way.kind == "moment") == (ways[0].kind == "moment")]
    *others, last = [f"{{from: {column_text(column)}, do: [{_steps(way, half)}]" for way in alike]
    if not others:
        return f"{last}{tail}}}"
    return f"{{first_of: [{''.join(f'{one}, on_error: omit}}, ' for one in others)}{last}}}]{tail}}}"


def _steps(way: TimeSpelling, half: str) -> str:
    """Write the steps that read one spelling; `half`: `range_start` or `range_end` of a cell that holds both."""
    formats = flow(way.formats[0] if len(way.formats) == 1 else way.formats)
    locale = f", locale: {way.locale}" if way.locale else ""
    side = "end" if half == "range_end" else "start"
    match way.kind:
        case "clock":
            return "clock"
        case "clock_range":
            return f"{{clock_range: {side}}}"
        case "date_range":
            return f"{{date_range: {side}, formats: {formats}{locale}}}"
        case "dates":
            return f"{{dates: {formats}, by: {flow(way.by)}{locale}}}"
        case kind:
            step = f"{{{'datetime' if kind == 'moment' else kind}: {formats}{locale}}}"
            return f"{half}, {step}" if half else step


_FIELDS_SHOWN = ("title", "startAt", "endAt", "locationName")
_LONGEST_CELL = 200
_TRIED = 300
_ANY_DAY = "2026-01-01T00:00:00+00:00"


def with_examples(text: str, path: Path, rows: Sequence[Mapping[str, str]]) -> str:
    """Return the draft with an `examples` block: an event, and a rejection. `path` is where the file will stand.

    Raises:
        MappingFileError: the draft is not a mapping that may run.
    """
    mapping = parse_feed(text, path)
    mapper, _ = compile_with_problems(mapping, Directory())
    tried = [(row, each[0]) for row in rows[:_TRIED] if len(each := mapper.outcomes(_sample_row(mapper, row))) == 1]
    payloads = [(row, orjson.loads(outcome.body)) for row, outcome in tried if isinstance(outcome, MappedRow)]
    moment = payloads[0][1]["startAt"] if payloads else _ANY_DAY
    as_of = [f'    as_of: "{moment}"'] if mapping.needs_the_moment else []
    lines: list[str] = []
    handy = [(row, payload) for row, payload in payloads if _is_handy(mapper, row)]
    if handy:
        row, payload = max(handy, key=lambda one: sum(map(bool, one[0].values())))
        event = {name: str(payload[name]) for name in _FIELDS_SHOWN if name in payload}
        lines += [*_cells(mapper, row), *as_of, f"    event: {flow(event)}"]
    refused = [(row, outcome) for row, outcome in tried if isinstance(outcome, Rejection) and _is_handy(mapper, row)]
    if tried and not refused:
        row = {**tried[0][0], **dict.fromkeys((part.column for part in mapping.key_columns), "")}
        outcome = mapper(_sample_row(mapper, row))
        if isinstance(outcome, Rejection):
            lines.append("  # no row of the sample is rejected: this one has lost its key")
            refused = [(row, outcome)]
    for row, rejection in refused[:1]:
        rejected = {reason.field: reason.code.value for reason in rejection.reasons}
        lines += [*_cells(mapper, row), *as_of, f"    rejected: {flow(rejected)}"]
    return "\n".join([text.rstrip("\n"), "", "examples:", *lines]) + "\n" if lines else text


def _sample_row(mapper: RowMapper, cells: Mapping[str, str]) -> SourceRow:
    """Return a row as an example gives it: only the columns that the mapping reads."""
    return SourceRow(RowLocation("sample"), {name: cells.get(name, "") for name in mapper.columns})


def _cells(mapper: RowMapper, row: Mapping[str, str]) -> Iterator[str]:
    yield "  - row:"
    used = [name for name in row if name in mapper.columns and row[name]]
    yield from (f"      {flow(name)}: {flow(row[name])}" for name in used)
    if not used:
        yield f'      {flow(min(mapper.columns))}: "" # a row without a single cell'


def _is_handy(mapper: RowMapper, row: Mapping[str, str]) -> bool:
    """Whether a row is fit to be shown: no page of text, no half of a character."""
    cells = [row.get(name, "") for name in mapper.columns]
    return all(len(cell) <= _LONGEST_CELL and not _SURROGATE.search(cell) for cell in cells)


_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = re.compile(r"[^\W\d_][\w./+%$ -]*[\w.%/-]|[^\W\d_]|\$[A-Za-z_]\w*")
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~"})


def flow(value: object) -> str:
    """Write a value on one line, so that YAML, and every editor's YAML, reads each text in it back as the same text.

    A text is plain where no reader can take it for anything else, in double quotes otherwise.
    """
    match value:
        case str() if _PLAIN.fullmatch(value) and value.casefold() not in _YAML_WORDS:
            return value
        case str():
            return f'"{"".join(map(_escaped, value))}"'
        case Mapping():
            return f"{{{', '.join(f'{flow(name)}: {flow(inner)}' for name, inner in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(flow, value))}]"
        case _:
            return str(value)


def _escaped(char: str) -> str:
    if char.isprintable() and char not in '"\\':
        return char
    return json.dumps(char)[1:-1] if char <= "\uffff" else f"\\U{ord(char):08x}"


def column_text(name: str) -> str:
    """Write a column's name behind `from`, where a dollar sign would mean a named value."""
    return flow(f"${name}" if name.startswith("$") else name)


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=False,  # noqa: S701  # it writes YAML, and every text through `flow` or `comment`
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.filters |= {"flow": flow, "column": column_text, "comment": comment}
