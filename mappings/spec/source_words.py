"""Scalars of a `source` block: paths and addresses, days, encodings, headers, delimiters."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from mappings.reasons import did_you_mean
from mappings.strict import Duration, OneOrMany, Pattern, Strict, Text, Zone, matching, mistake

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:(//|:)")
_WEB = ("http://", "https://")
_DAY = re.compile(r"\{date(?::(?P<format>[^{}]*))?\}")
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_USUAL_FORMAT = "%Y%m%d"
_DAY_WORDS = frozenset("YymdjGVu%")


def is_address(path: str) -> bool:
    """Return whether a path is an address of another machine or store, not a local file."""
    return _ADDRESS.match(path) is not None


def is_web_address(path: str) -> bool:
    """Return whether a path is a web address."""
    return path.lower().startswith(_WEB)


def is_pattern(path: str) -> bool:
    """Return whether a path is a pattern for several files; a web address never is, since the web cannot be listed."""
    return not is_web_address(path) and "::" not in path and any(mark in path for mark in "*?[")


def is_dated(path: str) -> bool:
    """Return whether a path contains a day, `{date:%Y%m%d}`."""
    return _DAY.search(path) is not None


def on_day(path: str, day: date) -> str:
    """Return a dated path for one day."""
    return _DAY.sub(lambda found: day.strftime(found["format"] or _USUAL_FORMAT), path)


def without_secrets(address: str) -> str:
    """Return an address for display, without user, password and query: each may hold a token."""
    try:
        parts = urlsplit(address)
    except ValueError:  # an address that cannot be parsed is hidden completely
        return f"{address.partition('://')[0]}://…"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "…" if parts.query else "", ""))


def secrets_of(address: str) -> Iterator[str]:
    """Yield the secret parts of an address: its password and its query."""
    try:
        parts = urlsplit(address)
    except ValueError:
        yield address.partition("://")[2]
        return
    credentials, _, _ = parts.netloc.rpartition("@")
    yield from filter(None, (credentials.partition(":")[2], parts.query))


def checked_path(path: str) -> str:
    """Check the `{date}` directives of a path, and return it."""
    for found in _DAY.finditer(path):
        wrong = [word for word in _DIRECTIVE.findall(found["format"] or _USUAL_FORMAT) if word not in _DAY_WORDS]
        if wrong:
            raise mistake(f'"%{wrong[0]}" is not a numeric part of a date', "write a file's day with %Y %y %m %d %j %G %V %u")
    return path


class Days(Strict):
    """The days for which files are looked up by a path with `{date}`, relative to today in `zone`.

    A day without a file is not an error.
    """

    back: int = Field(default=7, ge=0, le=3660)
    """How many days before today."""
    ahead: int = Field(default=0, ge=0, le=366)
    """How many days after today."""
    zone: Zone = "UTC"
    """The zone that decides which day is today: `Europe/Lisbon`."""

    def around(self, today: date) -> tuple[date, ...]:
        """Return the days, oldest first."""
        return tuple(today + timedelta(days=offset) for offset in range(-self.back, self.ahead + 1))

    def has_changed(self, changed_at: float | None) -> bool:
        """Return whether a file without a date in its path is included, by its time of change (seconds since 1970); always
        True.
        """
        del changed_at
        return True


class TheseDays(Days):
    """The days `first` to `last`, to read a window of the past; backfills set it, mapping files cannot."""

    first: date
    last: date

    def around(self, today: date) -> tuple[date, ...]:
        """Return the days, oldest first."""
        del today
        return tuple(self.first + timedelta(days=offset) for offset in range((self.last - self.first).days + 1))

    def has_changed(self, changed_at: float | None) -> bool:
        """Return whether a file was last changed on one of the days; False if its age is unknown."""
        if changed_at is None:
            return False
        return self.first <= datetime.fromtimestamp(changed_at, UTC).astimezone(ZoneInfo(self.zone)).date() <= self.last


_CELL_RANGE = re.compile(r"([A-Z]{1,3})?([1-9][0-9]{0,6})?(?::([A-Z]{1,3})?([1-9][0-9]{0,6})?)?")
"""The form of a cell range, in upper case without dollar signs; either half may lack its letters or its number."""
_ENCODINGS = (
    *("utf-8", "windows-1252", "cp932", "windows-1250", "windows-1251", "iso-8859-1", "iso-8859-2", "iso-8859-15"),
    *("utf-16", "shift_jis", "cp949", "euc-kr", "gb18030", "big5", "koi8-r", "macroman"),
)
"""Common encodings of partners' files, for "did you mean" and the hint."""
_NO_CHARSETS = frozenset({"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs", "oem", "utf_7"})
"""Python codecs that are not character sets of files; UTF-7 is excluded by the web (WHATWG) and slow."""


def _spelt_out(text: object) -> object:
    return "\t" if text in ("tab", r"\t") else text


def _no_mark(text: object) -> object:
    return None if text in ("null", "~", "", "none") else text


def is_text_encoding(name: str) -> bool:
    """Return whether Python knows the name as a text encoding, and not as a codec such as `idna` or `hex`."""
    try:
        "".encode(name)  # refuses codecs that turn bytes into bytes
        return codecs.lookup(name).name.replace("-", "_") not in _NO_CHARSETS
    except (LookupError, ValueError):
        return False


def _text_encoding(name: str) -> str:
    if not is_text_encoding(name):
        known = did_you_mean(name, _ENCODINGS) or f"write it like {', '.join(_ENCODINGS[:3])}; `eventsync init FILE` guesses it"
        raise mistake(f'"{name}" is not an encoding that Python knows', known)
    return name


def _cell_range(text: str) -> str:
    plain = text.replace("$", "").upper()
    if not plain or not _CELL_RANGE.fullmatch(plain):
        raise mistake(f'"{text}" is not a range of cells', 'write it like "B3:H200", "A:F" or "A5"')
    return plain


Mark = Annotated[
    str,
    BeforeValidator(_spelt_out),
    matching(r"[^\r\n\0]", "a single character (other than a line break)", 'write a tab as "\\t"'),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 3}),
]
r"""One character other than a line break; a tab may be written as "\t"."""
OptionalMark = Annotated[
    Mark | None, BeforeValidator(_no_mark), WithJsonSchema({"type": ["string", "null"], "minLength": 1, "maxLength": 4})
]
"""The same, or null, which a mapping file writes for no character."""
Encodings = Annotated[tuple[Annotated[str, AfterValidator(_text_encoding)], ...], OneOrMany()]
CellRange = Annotated[str, AfterValidator(_cell_range)]
Names = Annotated[tuple[Text, ...], OneOrMany()]
_NAMED = "write EXAMPLE for what REST_EXAMPLE, SQL_EXAMPLE or TAP_EXAMPLE holds, by the kind of source"
SecretName = Annotated[Text, matching("[A-Z][A-Z0-9_]*", "the name of a secret", _NAMED)]
"""The name of a secret in the environment, without its prefix: mapping files never have the secret itself."""


class Header(Strict):
    """Where the names of the columns are.

    `row`: the header's row, from 1; 0 if the file has no header. `matches` finds it by a pattern: the first row with a matching
    cell. `rows`: the names take so many rows and are joined by a space. `names`: names to use instead of the file's (required
    with row 0); rows above the header and the header itself are then ignored.
    """

    row: int = Field(default=1, ge=0, le=1000)
    """The header's row, from 1, including blank rows; 0: the file has no header."""
    matches: Pattern | None = None
    """A pattern: the header is the first row (of 1,000) with a matching cell."""
    rows: int = Field(default=1, ge=1, le=10)
    """How many rows the names take, joined by a space."""
    names: Names = ()
    """Names for the columns, in order, instead of those in the file."""

    def check(self) -> None:
        if self.row == 0 and not self.names:
            raise mistake("row: 0 means that the file has no header", "give the columns' names in `names`")
        if self.matches is not None and self.row != 1:
            raise mistake("the header is found by its row or by a pattern", "write one of row, matches")


class WriteBack(Strict):
    """Columns of the sheet in which eventsync writes the outcome of each row.

    The columns must exist, and the mapping may not read them. All their cells are overwritten; other columns are never changed.
    """

    status: Text = ""
    """The column for the outcome in a word: published, draft, rejected, waits."""
    event_id: Text = ""
    """The column for the event's number at the service."""
    problem: Text = ""
    """The column for what is wrong with the row, and how to correct it."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(filter(None, (self.status, self.event_id, self.problem)))

    def check(self) -> None:
        if not self.names:
            raise mistake("no column is given", 'give one at least: `write_back: {status: "Status"}`')
        if len(set(self.names)) < len(self.names):
            raise mistake("status, event_id and problem must be different columns")


class ChangedRows(Strict):
    """Read only the rows that changed since the last read."""

    by: Text
    """The column with the time of a row's last change."""
    overlap: Duration = timedelta(minutes=10)
    """How far before the last read to start, for changes that become visible late."""
    full_every: Duration = timedelta(days=1)
    """How often to read everything nevertheless."""

    def check(self) -> None:
        if self.overlap < timedelta():
            raise mistake("overlap must not be negative", 'write the time to go back like "10m", without the minus')
        if self.full_every <= timedelta():
            raise mistake("full_every must be more than zero", 'write it like "1d"')


class MarkedChanges(ChangedRows):
    """Read only the rows that changed since the last read; rows without a time of change are read each time."""

    deleted: Text = ""
    """The column that says that a row is deleted: filled with anything but a false value (`false`, `0`, `no`)."""


class ChangedSpan(MarkedChanges):
    """The rows that changed from `begin` up to, not including, `end`; backfills set it, mapping files cannot."""

    begin: datetime
    end: datetime
