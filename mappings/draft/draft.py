"""Renders the first mapping file of a sample, with a surety for each guess, its time zone and examples. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mappings.columns import folded
from mappings.compiler.mapper import RowMapper, compile_with_problems
from mappings.compiler.rows import Reach
from mappings.draft.guesses import (
    NUMBERED,
    Column,
    Guess,
    Role,
    RoleGuess,
    Surety,
    agreed_order,
    cancelling_word,
    comment,
    guess_key,
    guess_roles,
    over_guess,
    read_columns,
    says_cancelled,
)
from mappings.draft.nested import dated_list
from mappings.draft.questions import NO_ANSWERS, Answers, Questions
from mappings.draft.shapes import days_of_months
from mappings.draft.source import SourceGuess
from mappings.draft.times import ColumnTimes, find_times
from mappings.draft.zone import SAID, UNKNOWN, ZoneGuess, country_language, guess_zone
from mappings.event import Directory
from mappings.lint.warnings import FILL_IN, FILL_IN_NAME, NO_PLACES
from mappings.outcome import MappedRow, Rejection, RowLocation, RowOutcome, SourceRow
from mappings.reasons import resembling
from mappings.spec.feed import PublishPolicy
from mappings.steps.formats import names_of
from mappings.yaml.loader import parse_feed
from mappings.zones import LANGUAGES

_MOST_MAPPED = 40
_NEARLY_EQUAL = 80
"""How similar two texts of a column are, of 100, if one may be the other misspelt."""
_UID = "UID identifies an event, and RECURRENCE-ID an occurrence of its series, also if it is moved"
_NO_UID = "the events have no UID: where a title or a start is edited, the row looks new"
_NO_ZONE = "the zone of events without one: write the partner's zone, such as Europe/Lisbon"
_ENDS = "an all-day DTEND is the first day after the event"
_NO_DATES = "no column holds dates: every row is rejected until you name one"
_LISTS_OF_CALENDARS = {"CATEGORIES": ";"}
"""The separators of list cells of a calendar, as the reader joins them."""


@dataclass(frozen=True, slots=True)
class SourceSample:
    """Sample rows of a source, read with the settings `source`. `title`: the source's name for people; `place`: its place as
    the mapping file names it. `columns` are in the source's order.
    """

    title: str
    place: str
    source: SourceGuess
    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]


class Draft(NamedTuple):
    """The text of a first mapping file without examples, its guesses, and what only its author knows."""

    text: str
    guesses: tuple[Guess, ...]
    questions: Questions


def draft_feed(
    sample: SourceSample, feed: str, *, zone: str = "", answers: Answers = NO_ANSWERS, as_of: datetime | None = None
) -> Draft:
    """Return a first mapping file.

    `zone`: an IANA name for all rows, whatever they say; "" leaves it to evidence. Dates implausibly long after `as_of` are
    unsure.
    """
    is_calendar, calendar_key = sample.source.kind == "ics", ""
    zone = zone or (answers.zone if is_calendar else "")
    lists = _LISTS_OF_CALENDARS if is_calendar else {**sample.source.lists, **sample.source.settings.get("join_lists", {})}
    columns = read_columns(sample.columns, sample.rows, lists, sample.source.choices)
    roles = _roles_of(columns, sample.source.settings.get("headings", {}))
    key, key_guess = guess_key([column for column in columns if "[0]" not in column.name], roles)
    dated = None if is_calendar else dated_list(columns, roles)
    nested = dated if dated and dated.columns else None
    if nested:
        columns, roles = nested.columns, guess_roles(nested.columns, nested.name)
    has_zones = Role.ZONE in roles and not zone and not is_calendar
    clocks = UNKNOWN if zone or is_calendar else guess_zone(roles, columns, answers.zone)
    times, time_guesses = _read_times(roles, columns, answers.order, as_of)
    if is_calendar:
        calendar_key, key_guess = _calendar_key(sample.rows)
        guesses = [key_guess, Guess("endAt", "DTEND", "sure", _ENDS)]
        guesses += [] if zone else [Guess("timezone", "", "unsure", _NO_ZONE)]
    else:
        guesses = [key_guess, *([] if zone else [_zone_guess(roles.get(Role.ZONE), clocks)]), *time_guesses]
    text_place = _text_beside(roles[Role.VENUE].column, columns) if Role.VENUE in roles else ""
    guesses += _field_guesses(roles, text_place, answers)
    private = [] if is_calendar else [(_private_guess(column), column) for column in columns if column.hidden]
    guesses += [guess for guess, _ in private] + ([dated.guess] if dated else [])
    played = {role.value: roles[role].column if role in roles else None for role in Role}
    status, country, zones, title = (played[name] for name in ("status", "country", "zone", "title"))
    usual_zone = f"{FILL_IN_NAME}zone" if clocks.surety == "unsure" else "zone"
    timezone, usual_zone = _zone_value(zone, zones if has_zones else None, usual_zone)
    off = _cancelling_words(title)
    if off and title:
        why = f"{off.total():,} of {len(title.filled):,} titles begin with {', '.join(off)}: such events are left out"
        guesses.append(Guess("cancelled", title.name, "likely", why))
    cancelled = list(filter(says_cancelled(status), status.counts)) if status else []
    if status:
        rows = sum(status.counts[text] for text in cancelled)
        why = f"{roles[Role.STATUS].why}; {rows:,} of {len(status.cells):,} rows are cancelled and left out"
        guesses.append(Guess("status", status.name, roles[Role.STATUS].surety, why))
    start = times.get("days") or times.get("starts")
    if start and as_of and "length" not in times:
        guesses += over_guess(start.column.name, start.times.fitting, max(one.times.latest for one in times.values()), as_of)
    is_bare_day = "clock" in times and start is not None and start.times.kind in _WITH_CLOCK

    def holder(name: str) -> str:
        return nested.name if nested and name.startswith(f"{nested.name}.") else name

    needed = [column for column in (*key, title, played["start"]) if column]
    by_subject = {guess.about: guess for guess in guesses}
    text = _TEMPLATES.get_template("calendar.yaml.jinja" if is_calendar else "feed.yaml.jinja").render(
        played,
        feed=feed,
        sample_title=sample.title,
        source=sample.source.block(sample.place),
        why=sample.source.why,
        required=list(dict.fromkeys(holder(part.name) for column in needed for part in column.of or (column,))),
        key=key,
        calendar_key=calendar_key,
        times=dict.fromkeys(("days", *_NAMES.values())) | times,
        words=played["title"] or columns[0],
        clocks=clocks,
        usual_zone=usual_zone,
        day="$day" if "days" in times else "{from: $starts, do: [day_of]}" if is_bare_day else "$starts",
        kind="" if start is None else "date" if is_bare_day else start.times.kind,
        cancelled_title=_beginning_with(off),
        cancelled_remark=_beginning_with(_cancelling_words(status)),
        timezone=timezone,
        guesses=by_subject,
        answers=answers,
        most_mapped=_MOST_MAPPED,
        misspelt=_misspelt(played["category"]),
        no_places=NO_PLACES,
        cancelled=cancelled,
        nested=nested,
        private=private,
        text_place=text_place,
        languages=country_language(country)[0] if country else (),
    )
    if not is_calendar:
        guesses += _left_aside(columns, roles, guesses)
        guesses += _odd_shapes(sample)
    open_days = {value.column.name for value in times.values() if value.is_open}
    questions = _questions_of(
        played,
        by_subject,
        is_zone_sure=bool(has_zones and zones and zones.is_full),
        usual_zone=clocks.zone,
        date=next((column.filled[0] for column in columns if column.name in open_days), ""),
        rows=len(sample.rows),
    )
    return Draft(text, (*sample.source.guesses(), *guesses, *_names_alike(sample.columns)), questions)


def _questions_of(
    played: Mapping[str, Column | None],
    guesses: Mapping[str, Guess],
    *,
    is_zone_sure: bool,
    usual_zone: str,
    date: str,
    rows: int,
) -> Questions:
    category, city = played["category"] if "classifications" in guesses else None, played["city"]
    kinds = {**dict(category.parts.most_common()), "": len(category.cells) - len(category.filled)} if category else {"": rows}
    return Questions(
        zone=None if is_zone_sure else guesses.get("timezone"),
        usual_zone=usual_zone,
        date=date,
        category=category.name if category else "",
        classifications=kinds,
        city=city.name if city else "",
        places={"": rows} if city is None else {} if len(city.counts) > _MOST_MAPPED else dict(city.counts.most_common()),
    )


def _misspelt(column: Column | None) -> Mapping[str, str]:
    """Return the texts of a single row that nearly equal another of the texts to be mapped, with that one."""
    counts = dict(column.parts.most_common(_MOST_MAPPED)) if column else {}
    alone = (text for text, count in counts.items() if count == 1)
    found = {text: resembling(text, counts.keys() - {text}, _NEARLY_EQUAL) for text in alone}
    return {text: other for text, other in found.items() if other}


def _zone_value(zone: str, column: Column | None, usual_zone: str) -> tuple[str, str]:
    """Return the value for the time zone, and the name for the usual zone."""
    if zone:
        return flow(zone), usual_zone
    if column is None:
        return f"${usual_zone}", usual_zone
    if column.is_full:
        return f"{{from: {column_text(column.name)}, do: [zone]}}", usual_zone
    return "$zone", "usual_zone" if usual_zone == "zone" else usual_zone


def _text_beside(venue: Column, columns: Sequence[Column]) -> str:
    """Return the column that holds a place's name itself in rows in which the place is no object, "" if there is none."""
    name = re.sub(r"(?:\[0\])?\.[^.]+$", "", venue.name)
    beside = (column for column in columns if column is not venue and column.name == name)
    return next((column.name for column in beside if any(text[:1] not in "[{" for text in column.counts)), "")


def _private_guess(column: Column) -> Guess:
    rows = sum(column.counts[text] for text in column.hidden)
    why = f'"{column.name}" says which events are private or hidden; {rows:,} of {len(column.cells):,} rows are, and left out'
    return Guess("private", column.name, "likely", why)


def _calendar_key(rows: Sequence[Mapping[str, str]]) -> tuple[str, Guess]:
    """Return the key of a calendar as the file writes it, with its evidence."""
    known = Counter((row.get("UID", ""), row.get("RECURRENCE-ID", "")) for row in rows if row.get("UID", ""))
    if not known:
        return "[DTSTART, SUMMARY]", Guess("key", "DTSTART, SUMMARY", "unsure", _NO_UID)
    surety: Surety = "sure"
    why = _UID
    if lacking := len(rows) - known.total():
        why, surety = f"{lacking:,} of {len(rows):,} events have no UID, and are rejected: ask the partner for one", "unsure"
    elif shared := sum(number for number in known.values() if number > 1):
        why, surety = f"{shared:,} of {len(rows):,} events share their UID with others: ask the partner for one each", "unsure"
    return "[UID, {column: RECURRENCE-ID, optional: true}]", Guess("key", "UID", surety, why)


def _odd_shapes(sample: SourceSample) -> Iterator[Guess]:
    """Yield a guess for days among the names of columns, and one for rows that may be headings of those below."""
    weekdays = {name for language in LANGUAGES for name in names_of("A", language)}
    named = [name for name in sample.columns if name.casefold() in weekdays]
    if days := [*filter(lambda name: find_times([name]), sample.columns), *(named if len(named) > 1 else ())]:
        why = "these names are days or times: is the row of names missing, or is each such column a day with its events?"
        yield Guess("columns", ", ".join(days), "unsure", why)
    single = [found[0] for row in sample.rows if len(found := [cell for cell in row.values() if cell.strip()]) == 1]
    if len(single) > 1 and len(sample.columns) > 2:
        why = f'{len(single):,} rows have one filled cell, such as "{single[0]}": are they headings of the rows below?'
        yield Guess("rows", "", "unsure", why)


def _names_alike(columns: Sequence[str]) -> Iterator[Guess]:
    """Yield a guess for the columns that have one name, of which only the author knows the one that is meant."""
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for name in columns:
        alike[folded(NUMBERED.sub("", name))].append(name)
    why = "these columns have one name: make sure that the mapping reads the one that is meant"
    yield from (Guess("columns", ", ".join(names), "unsure", why) for fold, names in alike.items() if fold and len(names) > 1)


def _cancelling_words(column: Column | None) -> Counter[str]:
    """Return the words for cancelled with which cells begin, with their numbers of cells."""
    return Counter(filter(None, map(cancelling_word, column.filled if column else ())))


def _beginning_with(words: Iterable[str]) -> str:
    return rf"^[^\pL\pN]*(?:{'|'.join(map(re.escape, words))})"


def _zone_guess(named: RoleGuess | None, clocks: ZoneGuess) -> Guess:
    if named is None:
        return Guess("timezone", clocks.column, clocks.surety, clocks.why)
    column = named.column
    if column.is_full:
        return Guess("timezone", column.name, named.surety, f"{named.why}, and each of its cells is a zone")
    filled = f'"{column.name}" names it in {len(column.filled):,} of {len(column.cells):,} rows; for the others: {clocks.why}'
    return Guess("timezone", column.name, clocks.surety, filled)


def _field_guesses(roles: Mapping[Role, RoleGuess], text_place: str, answers: Answers) -> Iterator[Guess]:
    if Role.TITLE not in roles:
        yield Guess("title", "", "unsure", "no column holds words: write which one is the title")
    for role, about, to_do in (
        (Role.TITLE, "title", ""),
        (Role.CATEGORY, "classifications", "" if answers.classifications else "; write a slug beside each value"),
        (Role.CITY, "approxLocation.city", "" if answers.places else f"; write a placeId beside each: {NO_PLACES}"),
        (Role.VENUE, "locationName", ""),
        (Role.URL, "offers", ""),
    ):
        guess = roles.get(role)
        if guess is not None and (role is not Role.CATEGORY or len(guess.column.parts) <= _MOST_MAPPED):
            also = f", {text_place}" if role is Role.VENUE and text_place else ""
            yield Guess(about, guess.column.name + also, guess.surety, guess.why + to_do)


def _left_aside(columns: Sequence[Column], roles: Mapping[Role, RoleGuess], guesses: Sequence[Guess]) -> Iterator[Guess]:
    """Yield a guess that lists the filled columns that the draft does not read."""
    used = {name for guess in guesses for name in (guess.column, *guess.column.split(", "))}
    used |= {roles[Role.ZONE].column.name} if Role.ZONE in roles else set()
    used |= {name.partition("[")[0] for name in used}
    if names := [column.name for column in columns if column.filled and "[" not in column.name and column.name not in used]:
        yield Guess("left aside", ", ".join(names), "unsure", "the draft does not read these columns: map those that matter")


def feed_name(title: str) -> str:
    """Return a feed name made from a file name: lower-case words joined by `-`, at most 40 characters."""
    plain = unicodedata.normalize("NFKD", title.replace("ł", "l")).encode("ascii", "ignore").decode().casefold()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-")
    return words if words[:1].isalpha() else f"feed-{words}".strip("-")


_NAMES = {Role.START: "starts", Role.CLOCK: "clock", Role.END: "ends", Role.END_CLOCK: "end_clock", Role.LENGTH: "length"}
_SPELT = {Role.CLOCK: "clocks", Role.END_CLOCK: "end_clocks", Role.LENGTH: "lengths"}
_WITH_CLOCK = ("datetime", "moment")
_MIDNIGHT = re.compile(r"[T ]00:00(?::00(?:\.0+)?)?(?!\d)")
"""The time of day of a moment that stands for a day, beside a column of times."""
_VAGUE_CLOCK = re.compile(r"(?:[1-9]|1[0-2])[:.][0-5]\d(?::00)?")
"""A time of day that may be one of the evening on a clock of 12 hours; those of 24 hours often write 09:30."""
_SEVERAL_DAYS = {"dates": ", several days in one", "date_range": ", the first and the last day in one"}


def _roles_of(columns: Sequence[Column], headings: Mapping[str, object]) -> dict[Role, RoleGuess]:
    """Guess the roles of columns; those that are a date together have no other."""
    found = days_of_months(columns, headings)
    parts = found[Role.START].column.of if found else ()
    return found | guess_roles([column for column in columns if column not in parts])


@dataclass(frozen=True, slots=True)
class _Reading:
    """A named value that parses a column's dates or times. `half`: `start` or `end` of a range.

    `is_open`: the author must choose the order of day and month.
    """

    column: Column
    times: ColumnTimes
    is_open: bool = False
    half: str = ""
    guess: Guess | None = None


def _read_times(
    roles: Mapping[Role, RoleGuess], columns: Sequence[Column], order: str, as_of: datetime | None
) -> tuple[dict[str, _Reading], list[Guess]]:
    """Return the named values that parse dates and times by the best formats, and the guesses."""
    proof = f"{order}-first, {SAID}"
    if not order:
        order, proof = agreed_order(columns)
    played = {role: roles[role].column for role in _NAMES if role in roles}
    spelt = {role: getattr(column, _SPELT.get(role, "times")) for role, column in played.items()}
    times = {role: found.in_order(order) for role, found in spelt.items() if found}
    if Role.START not in times:
        named = [column for column in columns if Role.START in column.roles and column.filled and Role.ASIDE not in column.roles]
        why = "".join(f'; "{column.name}" holds no days that can be read: {column.filled[0]!r}' for column in named[:1])
        return {}, [Guess("startAt", "", "unsure", f"{_NO_DATES}{why}")]
    kind, clock = times[Role.START].kind, times.get(Role.CLOCK)
    if kind in _WITH_CLOCK and not all(map(_MIDNIGHT.search, played[Role.START].filled)):
        times.pop(Role.CLOCK, None)
    if kind == "dates":  # a list of days has no common last day
        times.pop(Role.END, None)
    if Role.END in times and times[Role.END].kind in _WITH_CLOCK:
        times.pop(Role.END_CLOCK, None)
    elif Role.END_CLOCK not in times and clock and clock.is_range:
        times[Role.END_CLOCK] = clock
    if {Role.END, Role.END_CLOCK} & times.keys() or kind == "date_range" or not (kind in _WITH_CLOCK or clock):
        times.pop(Role.LENGTH, None)
    readings: dict[str, _Reading] = {}
    for role, found in times.items():
        name = "days" if kind == "dates" and role is Role.START else _NAMES[role]
        is_second = role is Role.END_CLOCK and found is clock
        source = roles[Role.CLOCK if is_second else role]
        guess = _time_guess(role, source, found, order, proof, as_of)
        if role is Role.START and Role.CLOCK in times and (times[Role.CLOCK].is_doubtful or kind in _WITH_CLOCK):
            what = "only their days are read" if kind in _WITH_CLOCK else "see there"
            guess = replace(guess, surety="unsure", why=f'{guess.why}; "{played[Role.CLOCK].name}" holds the times: {what}')
        half = "" if not found.is_range else "end" if is_second else "start"
        readings[name] = _Reading(source.column, found, found.is_ambiguous and not order, half, guess)
    starts = readings.get("starts")
    if Role.END not in times and starts and kind == "date_range" and not starts.is_open:
        readings["ends"] = _Reading(starts.column, starts.times, half="end")
    return readings, [reading.guess for reading in readings.values() if reading.guess]


def _time_guess(role: Role, guess: RoleGuess, times: ColumnTimes, order: str, proof: str, as_of: datetime | None) -> Guess:
    formats = " or ".join(spelling for way in times.ways for spelling in way.formats if spelling)
    fits = f"fit {formats}{_SEVERAL_DAYS.get(times.kind, '')}" if formats else "are times as people write them"
    if role is Role.LENGTH:
        fits = "are lengths of time"
    elif times.ways[0].kind == "epoch":
        fits = f"count {formats} since 1970"
    why = [guess.why, f"{times.fitting:,} of {times.filled:,} filled cells {fits}"]
    surety: Surety = "unsure" if times.is_doubtful else guess.surety if times.fitting == times.filled else "likely"
    if times.proving:
        why.append(f"{times.proving:,} prove {times.order}-first")
    elif times.order and order:
        surety = "likely"
        why.append(proof)
    elif times.order:
        surety = "unsure"
        other = " or ".join(spelling for way in times.in_other_order().ways for spelling in way.formats)
        why.append(f"as many fit {other}: until you choose one, each such row is rejected")
    if times.all_day:
        why.append(f"{', '.join(map(repr, times.all_day))} is not a time: the event lasts all day")
    if as_of and str(times.latest) > (reach := Reach.of(as_of, PublishPolicy().years_ahead)).last:
        surety = "unsure"
        why.append(f"{reach.refusal(str(times.latest)).hint}: such rows are rejected")
    if role is not Role.LENGTH and all(map(_VAGUE_CLOCK.fullmatch, guess.column.filled)):
        surety = "likely" if surety == "sure" else surety
        why.append("none says AM or PM, or is past 12:59: they are read as times of 24 hours")
    if times.odd:
        why.append(f"does not fit: {', '.join(map(repr, times.odd[:3]))}")
    if times.is_doubtful:
        why.append("rows with such cells are rejected")
    return Guess("startAt" if role in (Role.START, Role.CLOCK) else "endAt", guess.column.name, surety, "; ".join(why))


_FIELDS_SHOWN = ("title", "locationName")
_LONGEST_CELL, _LONGEST_LIST = 200, 1_000
_TRIED = 300
_ANY_DAY = "2026-01-01"


def with_examples(text: str, path: Path, rows: Sequence[Mapping[str, str]], now: datetime | None = None) -> str:
    """Append an `examples` block with an event and a rejection to a draft. `path`: where the file will be saved. No event is
    implausibly long after `now`.

    Raises:
        MappingFileError: the draft does not compile.
    """
    mapping = parse_feed(text, path)
    mapper, _ = compile_with_problems(mapping, Directory())
    read = [{name: cell for name, cell in row.items() if name in mapper.columns} for row in rows[:_TRIED]]
    longest = {name: _LONGEST_LIST if cell[:2] == "[{" else _LONGEST_CELL for row in read for name, cell in row.items()}
    short = [row for row in read if not any(len(cell) > longest[name] or _SURROGATE.search(cell) for name, cell in row.items())]
    tried = _single_outcomes(mapper, short)
    as_of = ""
    if mapping.leaves_for_later:  # a day before all events, in whatever zone, none is over
        starts = [orjson.loads(outcome.body)["startAt"] for _, outcome in tried if isinstance(outcome, MappedRow)]
        as_of = f"{date.fromisoformat(min(starts, default=_ANY_DAY)[:10]) - timedelta(days=1)}T00:00:00+00:00"
        mapper, _ = compile_with_problems(mapping, Directory(), datetime.fromisoformat(as_of))
        tried = _single_outcomes(mapper, short)
    events = [(row, orjson.loads(outcome.body)) for row, outcome in tried if isinstance(outcome, MappedRow)]
    last = Reach.of(now, mapping.publish.years_ahead).last if now else str(date.max)
    events = [(row, event) for row, event in events if event["startAt"][:10] <= last]
    refused = [(row, outcome) for row, outcome in tried if isinstance(outcome, Rejection)]
    is_keyless = bool(tried) and not refused
    if is_keyless:
        row = tried[0][0] | dict.fromkeys((part.column for part in mapping.key_columns), "")
        refused = [(row, outcome) for row, outcome in _single_outcomes(mapper, [row]) if isinstance(outcome, Rejection)]
    is_zone_open = f"{FILL_IN_NAME}zone" in mapping.let
    fields = _FIELDS_SHOWN if is_zone_open else (*_FIELDS_SHOWN, "startAt", "endAt")
    shown: list[tuple[dict[str, str], str, dict[str, str]]] = []
    if events:
        row, payload = max(events, key=lambda one: sum(map(bool, one[0].values())))
        shown.append((row, "event", {name: str(payload[name]) for name in fields if payload.get(name, FILL_IN) != FILL_IN}))
    for row, rejection in refused[:1]:
        shown.append((row, "rejected", {reason.field: reason.code.value for reason in rejection.reasons}))
    return text + _TEMPLATES.get_template("examples.yaml.jinja").render(
        examples=shown, as_of=as_of, is_keyless=is_keyless, is_zone_open=is_zone_open, any_column=min(mapper.columns)
    )


def _single_outcomes(mapper: RowMapper, rows: Iterable[dict[str, str]]) -> list[tuple[dict[str, str], RowOutcome]]:
    """Return each row that becomes at most one event, with its outcome."""
    blank = dict.fromkeys(mapper.columns, "")
    outcomes = ((row, mapper.outcomes(SourceRow(RowLocation("sample"), blank | row))) for row in rows)
    return [(row, found[0]) for row, found in outcomes if len(found) == 1]


_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = re.compile(r"[^\W\d_][\w./+%$ -]*[\w.%/-]|[^\W\d_]|\$[A-Za-z_]\w*|-?\d+d")
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~"})


def flow(value: object) -> str:
    """Write a value as one line of YAML that every YAML parser reads back as the same texts.

    A text is plain if it is unambiguous, in double quotes otherwise.
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


def source_text(column: Column) -> str:
    """Write where a value comes from: a column, or the texts of several."""
    if column.of:
        return f"join: [{', '.join(f'{{from: {column_text(one.name)}}}' for one in column.of)}]"
    return f"from: {column_text(column.name)}"


def column_text(name: str) -> str:
    """Write a column's name for `from`, where an extra `$` escapes a leading dollar sign."""
    return flow(f"${name}" if name.startswith("$") else name)


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=False,  # noqa: S701  # it writes YAML, and every text through `flow` or `comment`
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.filters |= {"flow": flow, "column": column_text, "source": source_text, "comment": comment}
