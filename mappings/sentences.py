"""Sentences for the partner's editor: one for each problem, in the language of the feed (GNU gettext).

Catalogues are `.po` files in `translations`, read without a build step; their msgids are the English sentences. Numbers and
dates are formatted by the Unicode CLDR (babel).
"""

from __future__ import annotations

import gettext
import io
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

from babel import Locale
from babel.dates import format_date, format_skeleton
from babel.lists import format_list
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.numbers import format_decimal

from mappings.event import event_fields
from mappings.reasons import REASON_TEXTS, Detail, Reason, ReasonCode
from mappings.spec.feed import Language

TRANSLATIONS = Path(__file__).parent / "translations"
_LOCALES: Mapping[Language, str] = {"en": "en_GB", "de": "de"}
_MONDAY = date(2024, 1, 1)


class Sentence(NamedTuple):
    """The problem of a cell, and what its editor can do about it."""

    problem: str
    advice: str = ""


_A_DATE, _A_TIME = '"{found}" is not a date.', '"{found}" is not a time of day.'
_LIKE = "Enter one like {examples:or}."
_LATER = "Enter one like {examples:or}, or leave the row out until it is known."
_CORRECT = "Correct the date."
_UNKNOWN = '"{found}" is not one of the words that we know here.'
SENTENCES: Mapping[ReasonCode | Detail, Sentence] = {
    ReasonCode.REQUIRED: Sentence("This cell is empty.", "Fill it in, or leave the row out until it is known."),
    Detail.UNUSABLE: Sentence('"{found}" cannot be used here.', "Enter another value."),
    ReasonCode.NOT_A_DATE: Sentence(_A_DATE, _LIKE),
    Detail.NO_DATE: Sentence(_A_DATE, _LATER),
    Detail.NO_SUCH_DAY: Sentence("{found} does not exist ({month:month} has {days:number} days).", _CORRECT),
    Detail.WRONG_WEEKDAY: Sentence("{found}: {day:date} is not a {named:weekday}.", "Correct the date or the day of the week."),
    Detail.WRONG_YEAR: Sentence("{found}: the year {year} is before {earliest}.", "Correct the year."),
    ReasonCode.FAR_AHEAD: Sentence("{day:date} is more than {years:number} years ahead.", "Correct the year."),
    Detail.BUDDHIST_YEAR: Sentence(
        "{day:date}: the year {year} looks like one of the Buddhist calendar.", "Enter the year {common}."
    ),
    Detail.ENDS_FIRST: Sentence(
        "{found}: it ends on {last:date}, before it begins on {first:date}.", "Correct the dates, or write both years."
    ),
    Detail.SEVERAL_RANGES: Sentence("{found} can be read in more than one way.", "Write both days in full."),
    ReasonCode.NOT_A_TIME: Sentence(_A_TIME, _LIKE),
    Detail.NO_TIME: Sentence(_A_TIME, _LATER),
    Detail.MIDNIGHT: Sentence(
        "{found}: it is not clear which day is meant.", "Write midnight as 00:00, with the date of the day that begins."
    ),
    Detail.NO_HALF: Sentence("{found}: morning or evening?", _LIKE),
    ReasonCode.NO_SUCH_TIME: Sentence(
        "{wall:moment} does not exist: the clocks go forward then.", "Enter {earlier} or {later}, whichever is meant."
    ),
    ReasonCode.AMBIGUOUS_TIME: Sentence(
        "{wall:moment} occurs twice: the clocks go back then.", "Enter another time, or tell us which of the two is meant."
    ),
    ReasonCode.NOT_A_DURATION: Sentence('"{found}" is not a length of time.', _LIKE),
    ReasonCode.NOT_A_ZONE: Sentence('"{found}" is not a time zone.', "Enter one like Europe/Lisbon."),
    ReasonCode.END_BEFORE_START: Sentence(
        "It ends ({end:moment}) before it starts ({start:moment}).", "Correct the start or the end."
    ),
    ReasonCode.NOT_A_NUMBER: Sentence('"{found}" is not a number.', "Enter one like {example}."),
    ReasonCode.NOT_A_URL: Sentence('"{found}" is not a web address.', "Enter one like https://example.org/tickets."),
    Detail.NOT_OUR_HOST: Sentence("{found} is not an address at {hosts:or}.", "Enter another address."),
    ReasonCode.NOT_IN_LOOKUP: Sentence(_UNKNOWN, "Enter another word, or tell us what it means."),
    Detail.NEAR_LOOKUP: Sentence(_UNKNOWN, 'Did you mean "{near}"? If not, tell us what the word means.'),
    Detail.SOME_OF_LOOKUP: Sentence(_UNKNOWN, "We know {known:and}, for example. Enter another word, or tell us what it means."),
    ReasonCode.NOT_ACCEPTED: Sentence(
        '"{found}" is not accepted by the service that publishes the events.',
        "Enter another value, or ask us which are accepted.",
    ),
    ReasonCode.TOO_LONG: Sentence("This text has {length:number} characters; at most {most:number} are possible.", "Shorten it."),
    Detail.TOO_SHORT: Sentence(
        "This text has {length:number} characters; at least {least:number} are needed.", "Write it in full."
    ),
    ReasonCode.BAD_TEXT: Sentence('"{found}" cannot be used as it is.', "Enter another text."),
    Detail.NO_MAILBOX: Sentence('"{found}" is not an e-mail address.', "Enter one like box@example.org."),
    ReasonCode.REPAIRED: Sentence(
        'The characters of this text were damaged, and it was repaired: "{found}".', "Correct it where it is still wrong."
    ),
    ReasonCode.BAD_KEY: Sentence('"{found}" cannot be the identifier of a row.', "Enter it in full, as a text."),
    ReasonCode.DUPLICATE_KEY: Sentence(
        'Another row has the same identifier, "{found}", and different content.', "Give each row an identifier of its own."
    ),
    ReasonCode.NO_DAY: Sentence(
        "This row has no day on which the event takes place.", "Correct its first day, its last day or its days of the week."
    ),
    ReasonCode.BAD_SERIES: Sentence(
        "It cannot be computed when this event happens.", "Check its times, its repetition and its time zone."
    ),
    ReasonCode.TOO_MANY: Sentence("This row makes too many events ({most:number} are possible).", "Split it into several rows."),
    ReasonCode.UNEVEN: Sentence(
        "The lists in this row belong together and differ in length.", "Give each of them the same number of entries."
    ),
    ReasonCode.TWIN: Sentence(
        "It looks like an event that we know under the identifier {other}.",
        "Give it that identifier again, or tell us that both take place.",
    ),
    ReasonCode.RAGGED: Sentence(
        "This row does not have as many cells as the header has columns.",
        "Is there a separator or a line break inside a cell? Put that cell in quotes.",
    ),
    Detail.CUT_OFF: Sentence("The file seems to be cut off here.", "Send us the whole file again."),
    ReasonCode.UNDECODABLE: Sentence(
        'Some characters of this cell cannot be read: "{found}".', "Save the file in the same way as before, or as UTF-8."
    ),
    ReasonCode.ASSERTION: Sentence("This row breaks a rule agreed for these events.", "Ask us what is agreed."),
    Detail.OWN_RULE: Sentence("{message}"),
    ReasonCode.IMAGE: Sentence(
        "The image at {found} cannot be used.", "Check that the address opens an image, and nothing else."
    ),
    ReasonCode.INTERNAL_ERROR: Sentence("A fault of our program stopped this row.", "Leave it as it is: we correct the program."),
}
MISSING = "A value is missing: {field}."


class _Format(Formatter):
    """Fills in a sentence; formats such as `{day:date}` follow the language."""

    def __init__(self, locale: Locale, written: Callable[[object], str]) -> None:
        self._locale = locale
        self._written = written

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return one formatted value of a sentence, escaped by `written`."""
        return self._written(self._in_words(value, format_spec) if format_spec else value)

    def _in_words(self, value: Any, form: str) -> str:
        locale = self._locale
        match form:
            case "number":
                return format_decimal(value, locale=locale)
            case "or" | "and":
                quoted = [f'"{one}"' for one in value] if form == "and" else list(value)
                return format_list(quoted, "or" if form == "or" else "standard", locale)
            case "weekday":
                return format_date(_MONDAY + timedelta(days=value), "EEEE", locale)
            case "moment":
                moment = datetime.fromisoformat(value) if isinstance(value, str) else value
                on_day = format_date(moment, "medium", locale)
                return on_day if len(str(value)) == len("2026-07-01") else f"{on_day}, {moment:%H:%M}"
            case _:
                pass
        day = date.fromisoformat(value) if isinstance(value, str) else value
        return format_skeleton("yMMMM", day, locale=locale) if form == "month" else format_date(day, "long", locale)


class Words:
    """The sentences of one language. `written` escapes filled-in values (and sentences, for a page), for example for HTML."""

    def __init__(self, language: Language = "en", written: Callable[[object], str] = str) -> None:
        self.language: Language = language
        self._catalogue = _catalogue(language)
        self._format = _Format(Locale.parse(_LOCALES[language]), written)

    def say(self, sentence: str, /, **values: object) -> str:
        """Return a sentence translated, with its values filled in."""
        translated = self._catalogue.gettext(sentence) if sentence else ""
        return self._format.vformat(translated, (), values)

    def count(self, one: str, several: str, number: int, /, **values: object) -> str:
        """Return a translated sentence in singular or plural, by `number`."""
        return self._format.vformat(self._catalogue.ngettext(one, several, number), (), {**values, "number": number})

    def field(self, path: str) -> str:
        """Return the name of a payload field for people, `startAt` as `start`; a field without a name here stays as the service
        spells it.
        """
        plain = re.sub(r"\[\d+\]", "", path)
        first, dot, rest = plain.partition(".")
        field = event_fields().get(plain)
        if (field and field.name) or not dot:
            return self.say(field.name if field else "") or plain
        return f"{self.field(first)}, {rest.replace('.', ', ')}"

    def place(self, reason: Reason) -> str:
        """Return the column of a reason, else its field, "" if it concerns the whole row."""
        return reason.column or self.field(reason.field)

    def problem(self, reason: Reason) -> str:
        """Return the problem of a cell as a sentence."""
        if reason.code is ReasonCode.REQUIRED and not (reason.column or reason.found):
            return self.say(MISSING, field=self.field(reason.field))
        return self._filled(_sentence(reason).problem, reason) or self.say(REASON_TEXTS[reason.code])

    def advice(self, reason: Reason) -> str:
        """Return the sentence with what the editor can do, "" if there is none."""
        return self._filled(_sentence(reason).advice, reason)

    def _filled(self, sentence: str, reason: Reason) -> str:
        """Fill a sentence from a reason; return "" if the reason lacks a value, as those of earlier versions may."""
        values: dict[str, object] = {"found": reason.value or reason.found, **reason.particulars}
        names = {name for _, name, _, _ in Formatter().parse(sentence) if name}
        return self.say(sentence, **values) if all(values.get(name) not in {None, "", ()} for name in names) else ""


def _sentence(reason: Reason) -> Sentence:
    return SENTENCES[reason.detail or reason.code]


@cache
def _catalogue(language: Language) -> gettext.NullTranslations:
    if language == "en":
        return gettext.NullTranslations()
    compiled = io.BytesIO()
    with (TRANSLATIONS / f"{language}.po").open("rb") as file:
        write_mo(compiled, read_po(file, language))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)
