"""The text of a first mapping file: every guess beside its evidence, what only the author can know as `fill-in`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from mappings.draft.columns import ColumnSeen, Role
from mappings.draft.moments import Guessed, Moments
from mappings.draft.roles import KeyGuess, RoleGuess, Surety
from mappings.draft.write_yaml import column_text, comment, listed, one_or_list, scalar
from mappings.draft.zones import UNKNOWN, ZoneGuess, country_language
from mappings.lint.values import FILL_IN, FILL_IN_NAME

_MOST_MAPPED = 40
_CANCELLED = ("cancel", "annul", "abgesagt", "odwolan", "odwołan", "storn", "canceled", "中止", "취소", "取消")
_SURE_WORDS = {
    "sure": "its cells or its name leave no doubt",
    "likely": "they speak for it",
    "unsure": "look at it",
}


@dataclass(slots=True)
class FileDraft:
    """A mapping file being written. `guesses` are reported to the author besides."""

    feed: str
    title: str
    source: tuple[str, ...]
    key: KeyGuess
    roles: dict[Role, RoleGuess]
    moments: Moments
    zone: str = ""
    clocks: ZoneGuess = UNKNOWN
    guesses: list[Guessed] = field(default_factory=list)

    def text(self) -> str:
        """Return the file's text, without examples."""
        parts = (self._head(), self._source(), self._key(), self._let(), self._rows(), self._event())
        return "\n".join(line for part in parts for line in part) + "\n"

    def _head(self) -> Iterator[str]:
        yield f"# Drafted by `eventsync init` from {comment(self.title)}."
        meanings = "; ".join(f"{word}: {what}" for word, what in _SURE_WORDS.items())
        yield f"# Beside each guess stands its evidence: {meanings}."
        look = f"`eventsync preview {self.feed}`"
        yield f"# What nobody but you can know says {FILL_IN}; `eventsync check` lists it. Then look: {look}."
        yield f"feed: {self.feed}"

    def _source(self) -> Iterator[str]:
        yield "source:"
        yield from (f"  {line}" for line in self.source)
        needed = [*self.key.columns, *(guess.column for guess in self._needed())]
        yield f"  required: {listed(dict.fromkeys(column.name for column in needed))}"
        yield ""

    def _needed(self) -> Iterator[RoleGuess]:
        yield from (self.roles[role] for role in (Role.TITLE, Role.START) if role in self.roles)

    def _key(self) -> Iterator[str]:
        surety: Surety = "sure" if self.key.is_sure else "unsure"
        columns = ", ".join(part.name for part in self.key.columns)
        yield self._told(Guessed("key", columns, surety, self.key.why))
        yield f"key: [{', '.join(map(_key_part, self.key.columns))}]"

    def _let(self) -> Iterator[str]:
        lines = list(self.moments.let())
        if not self.zone and Role.ZONE not in self.roles:
            lines += self._clocks()
        for guess in self.moments.guesses:
            self.guesses.append(guess)
        if all(line.startswith("#") for line in lines):
            yield from lines
        else:
            yield "let:"
            yield from (f"  {line}" for line in lines)
        yield ""

    def _clocks(self) -> Iterator[str]:
        """Write the zone that the sample speaks for: as it is where that is likely, to be looked at otherwise."""
        guess = self.clocks
        yield self._told(Guessed("timezone", guess.column, guess.surety, guess.why))
        if guess.surety == "unsure":
            yield f"{FILL_IN_NAME}zone: {scalar(guess.zone or 'UTC')}"
        elif guess.zone:
            yield f"zone: {scalar(guess.zone)}"
        if guess.by_country:
            yield from self._zones_of_countries(guess)

    def _zones_of_countries(self, guess: ZoneGuess) -> Iterator[str]:
        is_open = guess.surety == "unsure"
        head = ["  first_of:", f"    - from: {column_text(guess.column)}", "      on_error: omit", "      do:"]
        yield "zone:"
        yield from head if is_open else [f"  from: {column_text(guess.column)}", "  do:"]
        indent = "        " if is_open else "    "
        yield f"{indent}- map:"
        yield from (f"{indent}    {scalar(text)}: {scalar(zone)}" for text, zone in guess.by_country.items())
        if is_open:
            yield f"    - ${FILL_IN_NAME}zone"

    def _rows(self) -> Iterator[str]:
        lines = [*self._cancelled(), *(f"  {line}" for line in self.moments.rows())]
        yield from self._without_a_day()
        if lines:
            yield "rows:"
            yield from lines
            yield ""

    def _cancelled(self) -> Iterator[str]:
        status = self.roles.get(Role.STATUS)
        gone = [text for text in status.column.counts if _is_cancelled(text)] if status else []
        if status and gone:
            yield f"  - skip: {{column: {scalar(status.column.name)}, in: {listed(gone)}, ignore: [case]}}"
            yield "    because: cancelled"

    def _without_a_day(self) -> Iterator[str]:
        start = self.roles.get(Role.START)
        if start is not None and not start.column.is_full:
            without = len(start.column.cells) - len(start.column.filled)
            yield f"# {without:,} of {len(start.column.cells):,} rows have no date and are rejected; to leave them out instead:"
            yield "# rows:"
            yield f"#   - skip: {{column: {scalar(start.column.name)}, is: missing}}"
            yield "#     because: no date yet"
            yield ""

    def _event(self) -> Iterator[str]:
        yield "event:"
        lines = (self._channel(), self._title(), self._when(), self._status(), self._kinds(), self._place(), self._links())
        yield from (f"  {line}" for part in lines for line in part)

    def _channel(self) -> Iterator[str]:
        yield f"channelId: {{channel: {FILL_IN}}} # the slug of one of your channels"

    def _title(self) -> Iterator[str]:
        guess = self.roles.get(Role.TITLE)
        if guess is None:
            yield self._told(Guessed("title", "", "unsure", "no column holds words: say which one is the title"))
            yield f"title: {FILL_IN}"
            return
        yield self._told(Guessed("title", guess.column.name, guess.surety, guess.why))
        steps = "[html_unescape, collapse]" if any("&" in text and ";" in text for text in guess.column.counts) else "[collapse]"
        yield f"title: {{from: {column_text(guess.column.name)}, do: {steps}}}"

    def _when(self) -> Iterator[str]:
        zone = self._zone()
        yield from self.moments.fields(zone)
        yield f"timezone: {zone}"

    def _zone(self) -> str:
        if self.zone:
            return scalar(self.zone)
        guess = self.roles.get(Role.ZONE)
        if guess is not None:
            return f"{{from: {column_text(guess.column.name)}, do: [zone]}}"
        is_named = self.clocks.surety == "likely" or self.clocks.by_country
        return "$zone" if is_named else f"${FILL_IN_NAME}zone"

    def _status(self) -> Iterator[str]:
        yield "status: draft # the safe default: somebody looks at each event; write published once you trust the mapping"

    def _kinds(self) -> Iterator[str]:
        guess = self.roles.get(Role.CATEGORY)
        if guess is None or len(guess.column.parts) > _MOST_MAPPED:
            yield f"classifications: [{FILL_IN}] # slugs of the service's list: `eventsync check {self.feed} --live` names them"
            return
        yield self._told(
            Guessed("classifications", guess.column.name, guess.surety, f"{guess.why}; put a slug beside each value")
        )
        yield "classifications:"
        yield f"  from: {column_text(guess.column.name)}"
        yield f"  on_empty: {{use: [{FILL_IN}], warn: true}}"
        yield "  do:"
        if guess.column.separator:
            yield f"    - split: {scalar(guess.column.separator)}"
        yield "    - map:"
        yield from _mapped(guess.column.parts)

    def _place(self) -> Iterator[str]:
        city = self.roles.get(Role.CITY)
        venue = self.roles.get(Role.VENUE)
        if city is None:
            yield "approxLocation.city: # no column names a city"
            yield f"  placeId: {FILL_IN}"
        else:
            yield self._told(
                Guessed("approxLocation.city", city.column.name, city.surety, f"{city.why}; put a placeId beside each")
            )
            yield "approxLocation.city:"
            yield from self._city(city.column)
            yield from self._country()
        if venue is not None:
            yield self._told(Guessed("locationName", venue.column.name, venue.surety, venue.why))
            yield f"locationName: {{from: {column_text(venue.column.name)}, do: [collapse], on_empty: omit}}"

    def _city(self, column: ColumnSeen) -> Iterator[str]:
        if len(column.counts) > _MOST_MAPPED:
            many = len(column.counts)
            yield f"  placeId: {FILL_IN} # {many} different cities: write a lookup file; see `eventsync vocabulary lookup`"
        else:
            yield "  placeId:"
            yield f"    from: {column_text(column.name)}"
            yield "    do:"
            yield "      - map:"
            yield from (f"  {line}" for line in _mapped(column.counts))
        yield f"  name: {{from: {column_text(column.name)}, do: [collapse], on_empty: omit}}"

    def _country(self) -> Iterator[str]:
        guess = self.roles.get(Role.COUNTRY)
        languages, unknown = ((), frozenset()) if guess is None else country_language(guess.column)
        if guess is not None and languages and len(unknown) * 2 < len(guess.column.counts):
            step = f"[{{country: {one_or_list(languages)}}}]"
            yield f"  countryCode: {{from: {column_text(guess.column.name)}, do: {step}, on_empty: omit, on_error: warn}}"

    def _links(self) -> Iterator[str]:
        link, price, image = (self.roles.get(role) for role in (Role.URL, Role.PRICE, Role.IMAGE))
        if link is not None:
            yield self._told(Guessed("offers", link.column.name, link.surety, link.why))
            yield "offers:"
            if price is not None:
                yield f"  - name: {{from: {column_text(price.column.name)}, do: [collapse], on_empty: omit}}"
            start = "    " if price is not None else "  - "
            yield f"{start}url: {{from: {column_text(link.column.name)}, do: [url], on_empty: omit, on_error: warn}}"
        if image is not None:
            yield "# pictures are uploaded, for which the key needs a scope of its own:"
            yield f"# coverImage: {{image: {{from: {column_text(image.column.name)}}}}}"

    def _told(self, guess: Guessed) -> str:
        self.guesses.append(guess)
        return str(guess)


def _key_part(column: ColumnSeen) -> str:
    return scalar(column.name) if column.is_full else f"{{column: {scalar(column.name)}, optional: true}}"


def _mapped(counts: Counter[str]) -> Iterator[str]:
    for text, count in counts.most_common(_MOST_MAPPED):
        yield f"        {scalar(text)}: {FILL_IN} # {count} row{'s' * (count != 1)}"


def _is_cancelled(text: str) -> bool:
    return any(word in text.casefold() for word in _CANCELLED)
