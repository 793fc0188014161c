"""What the path of a source says by itself: an address or a file of this machine, one file or several, named after a day.

Which files are really there, and how they are opened, is `connectors.sources`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema

from mappings.measures import Text, Zone, mistake
from mappings.strict import Strict

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:(//|:)")
_WEB = ("http://", "https://")
_DAY = re.compile(r"\{date(?::(?P<format>[^{}]*))?\}")
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_USUAL_FORMAT = "%Y%m%d"
_DAY_WORDS = frozenset("YymdjGVu%")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(kB|MB|GB|TB|B)?", re.IGNORECASE | re.ASCII)
_POWERS = {"b": 0, "kb": 1, "mb": 2, "gb": 3, "tb": 4}
_LONGEST_SIZE = 20
_PART = re.compile(r"\{(name|stem)\}")


def is_address(path: str) -> bool:
    """Whether a path is an address on another machine (or in another store), and no file of this one."""
    return _ADDRESS.match(path) is not None


def is_web_address(path: str) -> bool:
    """Whether a path is an address of the web."""
    return path.lower().startswith(_WEB)


def is_pattern(path: str) -> bool:
    """Whether a path means all the files that match it; an address of the web never does, as nobody can list the web."""
    return not is_web_address(path) and "::" not in path and any(mark in path for mark in "*?[")


def is_dated(path: str) -> bool:
    """Whether a path holds the day that its file is named after, `{date:%Y%m%d}`."""
    return _DAY.search(path) is not None


def on_day(path: str, day: date) -> str:
    """Return a dated path as it is on one day."""
    return _DAY.sub(lambda found: day.strftime(found["format"] or _USUAL_FORMAT), path)


def without_secrets(address: str) -> str:
    """Return an address as it may be shown: no user, no password, no query (tokens travel in all three)."""
    try:
        parts = urlsplit(address)
    except ValueError:  # what cannot be read cannot be cleaned
        return f"{address.partition('://')[0]}://…"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "…" if parts.query else "", ""))


def secrets_of(address: str) -> Iterator[str]:
    """Yield what of an address nobody may see: its password, and its query."""
    try:
        parts = urlsplit(address)
    except ValueError:
        yield address.partition("://")[2]
        return
    credentials, _, _ = parts.netloc.rpartition("@")
    yield from filter(None, (credentials.partition(":")[2], parts.query))


def checked_path(path: str) -> str:
    """Return a path whose `{date}` can be filled in; else say what can."""
    for found in _DAY.finditer(path):
        wrong = [word for word in _DIRECTIVE.findall(found["format"] or _USUAL_FORMAT) if word not in _DAY_WORDS]
        if wrong:
            raise mistake(f'"%{wrong[0]}" is no part of a day in numbers', "a file's day is written with %Y %y %m %d %j %G %V %u")
    return path


def checked_marker(text: str) -> str:
    """Return the name of a marker that differs from the name of its file."""
    if not _PART.search(text) or text in ("{name}", "{stem}"):
        raise mistake(f'"{text}" does not say whose marker it is', 'write it like "{name}.done" or "{stem}.ok"')
    return text


def marker_of(marker: str, name: str) -> str:
    """Return the name of a file's marker: `{name}` is `agenda.csv`, `{stem}` is `agenda`."""
    return marker.replace("{name}", name).replace("{stem}", name.partition(".")[0] or name)


def parse_size(value: object) -> int:
    """Read `500MB`, `2 GB` or plain bytes; a kB is 1,024 bytes."""
    text = str(value).strip()
    match = _SIZE.fullmatch(text) if len(text) <= _LONGEST_SIZE else None
    size = int(float(match[1]) * 1024 ** _POWERS[(match[2] or "B").lower()]) if match else 0
    if not size:
        raise mistake(f'"{value}" is not a size', 'write it like "500MB" or "2GB"')
    return size


Size = Annotated[
    int, PlainValidator(parse_size), WithJsonSchema({"type": ["string", "integer"], "examples": ["500MB", "2GB"], "minLength": 1})
]
"""A number of bytes."""


class Days(Strict):
    """Which days a path with `{date}` is looked for.

    The day is today's in `zone`; files of days on which there are none are no mistake.
    """

    back: int = Field(default=7, ge=0, le=3660, description="So many days before today.")
    ahead: int = Field(default=0, ge=0, le=366, description="So many days after today.")
    zone: Zone = Field(default="UTC", description="Where it is today: `Europe/Lisbon`.")

    @property
    def are_given(self) -> bool:
        """Whether somebody asked for these very days, whatever day it is."""
        return False

    def around(self, today: date) -> tuple[date, ...]:
        """Return the days, the oldest first."""
        return tuple(today + timedelta(days=offset) for offset in range(-self.back, self.ahead + 1))

    def has_changed(self, changed_at: float | None) -> bool:
        """Whether an undated file of this age, in seconds since 1970 (None: unknown), is one of theirs: any is."""
        del changed_at
        return True


class TheseDays(Days):
    """The days `first` to `last`, whatever day it is: how a source is read for a window of its past. No mapping file says so."""

    first: date
    last: date

    @property
    def are_given(self) -> bool:
        """They are."""
        return True

    def around(self, today: date) -> tuple[date, ...]:
        """Return the days, the oldest first."""
        del today
        return tuple(self.first + timedelta(days=offset) for offset in range((self.last - self.first).days + 1))

    def has_changed(self, changed_at: float | None) -> bool:
        """Whether a file was last changed on one of the days; of one whose age nobody knows that cannot be said."""
        if changed_at is None:
            return False
        return self.first <= datetime.fromtimestamp(changed_at, UTC).astimezone(ZoneInfo(self.zone)).date() <= self.last


MarkerName = Annotated[Text, AfterValidator(checked_marker)]
"""The name of the file that says that another one is finished."""
