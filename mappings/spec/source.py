"""What can be told of a SOQL query by reading it: that it only reads, and what its rows will look like.

How one is built from a mapping's words, and what Salesforce says to it, is `connectors.sources`'s.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal, Self, get_args
from urllib.parse import urlsplit, urlunsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, Tag, WithJsonSchema, model_validator

from mappings.choices import OneOf
from mappings.measures import Duration, OneOrMany, Pattern, Share, Text, Texts, Zone, mistake
from mappings.refusals import did_you_mean
from mappings.strict import Strict

_TOKEN = re.compile(r"\s*+('(?:[^'\\]|\\.)*+'|[(),]|[^\s'(),]++)", re.DOTALL)


_SAME_NAME = frozenset({"tolabel", "format", "convertcurrency"})


_HINT = "write one query, like \"SELECT Id, Name FROM Event__c WHERE Status__c = 'Public'\""


_MARKS = "SELECT ... FOR VIEW, FOR REFERENCE or FOR UPDATE leaves marks or locks on records; reading leaves none"


@dataclass(frozen=True, slots=True)
class Query:
    """A query as its author wrote it.

    `object`: what it reads; `columns`: the names that each row will have, in its order; `children`: those of them that
    are child rows. `is_plain`: one row for each record, as many as there are, so that the rows can be counted and read in
    any way; else it groups, limits, nests or computes.
    """

    text: str
    object: str
    columns: tuple[str, ...]
    children: tuple[str, ...]
    is_plain: bool
    _rest: str

    @property
    def counting(self) -> str:
        """The query that counts the rows of a plain one."""
        return f"SELECT COUNT() {self._rest}"


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    depth: int

    @property
    def word(self) -> str:
        return self.text.upper()


def parse_query(text: str) -> Query:
    """Read a query.

    Raises:
        PydanticCustomError: it is not one query that reads, or one whose columns cannot be told.
    """
    text = text.strip()
    tokens = tuple(_tokens(text))
    source = _checked(tokens)
    items = list(_items(tokens[1:source]))
    words = [token.word for token in tokens[source:] if not token.depth]
    alias = _alias(tokens[source + 2 :])
    columns = tuple(_columns(items, alias))
    children = tuple(column for column, item in zip(columns, items, strict=True) if item[0].text == "(")
    if len(set(map(str.casefold, columns))) < len(columns):
        raise mistake("two columns of the query have one name", "give one of them an alias, or leave it out")
    has_function = any(token.text == "(" for item in items for token in item)
    is_plain = not has_function and not {"GROUP", "LIMIT", "OFFSET", "HAVING", "ALL"}.intersection(words)
    end = next((token.start for token in tokens[source:] if not token.depth and token.word == "ORDER"), len(text))
    return Query(text, tokens[source + 1].text, columns, children, is_plain, text[tokens[source].start : end].rstrip())


def _tokens(text: str) -> Iterator[_Token]:
    depth = place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise mistake(f'a quote of the query is never closed: "{text[place : place + 40].strip()}"', _HINT)
        depth -= match[1] == ")"
        if depth < 0:
            raise mistake('the query closes a parenthesis, ")", that was never opened', _HINT)
        yield _Token(match[1], match.start(1), depth)
        depth += match[1] == "("
        place = match.end()
    if depth:
        raise mistake('the query opens a parenthesis, "(", that is never closed', _HINT)


def _checked(tokens: Sequence[_Token]) -> int:
    """Return where FROM stands in a query that only reads."""
    top = [(position, token.word) for position, token in enumerate(tokens) if not token.depth]
    words = [word for _, word in top]
    if not words or words[0] != "SELECT" or words.count("SELECT") > 1 or any(";" in word for word in words if word[0] != "'"):
        raise mistake("only a query that reads can be asked: one SELECT, with nothing before and nothing after it", _HINT)
    source = next((position for position, word in top if word == "FROM"), 0)
    if source < 2 or len(tokens) <= source + 1 or not tokens[source + 1].text[0].isalpha():
        raise mistake("the query lacks its columns, or FROM and the object that it reads", _HINT)
    if "FOR" in words[words.index("FROM") + 2 :]:
        raise mistake(_MARKS, "leave the FOR clause out")
    return source


def _alias(after: Sequence[_Token]) -> str:
    """Return what the query calls its object for short: `FROM Account a`."""
    clauses = {"WHERE", "USING", "WITH", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "ALL"}
    if after and after[0].text == ",":
        raise mistake("a query of several objects cannot be read", "ask for the parents by their way: Account.Name")
    return after[0].text if after and after[0].word not in clauses else ""


def _items(tokens: Sequence[_Token]) -> Iterator[Sequence[_Token]]:
    item: list[_Token] = []
    for token in tokens:
        if token.text == "," and not token.depth:
            yield _filled(item)
            item = []
        else:
            item.append(token)
    yield _filled(item)


def _filled(item: list[_Token]) -> Sequence[_Token]:
    if not item:
        raise mistake("a column of the query is missing between two commas", _HINT)
    return item


def _columns(items: Sequence[Sequence[_Token]], alias: str) -> Iterator[str]:
    unnamed = 0
    for item in items:
        words = [token.text for token in item]
        match [word.lower() for word in words]:
            case ["(", *_]:
                yield _child(words)
            case ["typeof", *_] | ["fields", "(", *_]:
                raise mistake(f"the columns of {words[0].upper()} cannot be told before it is asked", "write the fields out")
            case [function, "(", *_, ")"] if function in _SAME_NAME:
                yield _without(words[-2], alias)
            case [_, "(", *_, ")"]:
                yield f"expr{unnamed}"
                unnamed += 1
            case [_, "(", *_, _]:
                yield words[-1]
            case [_] | [_, _]:
                yield _without(words[0], alias) if len(words) == 1 else words[1]
            case _:
                raise mistake(f'"{" ".join(words)}" is not a column of a query', _HINT)


def _child(words: Sequence[str]) -> str:
    place = next((place for place, word in enumerate(words) if word.upper() == "FROM"), 0)
    if not place or place + 2 > len(words) - 1:
        raise mistake("a query inside the query lacks FROM and the child rows' name", '"(SELECT Name FROM Sessions__r)"')
    return words[place + 1].rpartition(".")[2]


def _without(name: str, alias: str) -> str:
    return name.removeprefix(f"{alias}.") if alias else name


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


CELL_RANGE = re.compile(r"([A-Z]{1,3})?([1-9][0-9]{0,6})?(?::([A-Z]{1,3})?([1-9][0-9]{0,6})?)?")


"""How a part of a sheet is written, in upper case and without dollar signs."""


_ENCODINGS = (
    *("utf-8", "windows-1252", "cp932", "windows-1250", "windows-1251", "iso-8859-1", "iso-8859-2", "iso-8859-15"),
    *("utf-16", "shift_jis", "cp949", "euc-kr", "gb18030", "big5", "koi8-r", "macroman"),
)


"""Those that partners' files are in, to tell an author which was probably meant."""


_NO_CHARSETS = frozenset({"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs", "oem", "utf_7"})


"""Codecs of Python that make texts of bytes, and are no character sets of files; UTF-7 is none of the web (WHATWG), and slow."""


def _spelt_out(text: object) -> object:
    return "\t" if text in ("tab", r"\t") else text


def _no_mark(text: object) -> object:
    return None if text in ("null", "~", "", "none") else text


def _one_character(text: str) -> str:
    if len(text) != 1:
        raise mistake(f'"{text}" is not one character', 'a tab is written "\\t"')
    if text in "\r\n\0":
        raise mistake("cells cannot be parted by a line break", 'a tab is written "\\t"')
    return text


def is_text_encoding(name: str) -> bool:
    """Whether files can be in this encoding: one that Python knows, and not such as `idna` or `hex`."""
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
    if not plain or not CELL_RANGE.fullmatch(plain):
        raise mistake(f'"{text}" is not a range of cells', 'write it like "B3:H200", "A:F" or "A5"')
    return plain


Mark = Annotated[
    str,
    BeforeValidator(_spelt_out),
    AfterValidator(_one_character),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 3}),
]


"""One character that parts cells: no line break. A tab may be spelt out."""


OptionalMark = Annotated[
    Mark | None, BeforeValidator(_no_mark), WithJsonSchema({"type": ["string", "null"], "minLength": 1, "maxLength": 4})
]


"""The same, or null: files are text, and `null` is how they say that there is none."""


Encoding = Annotated[str, AfterValidator(_text_encoding)]


"""The name of a text encoding, as Python's `codecs` knows it."""


CellRange = Annotated[str, AfterValidator(_cell_range)]


"""A part of a sheet, in upper case without dollar signs; either half may lack its letters or its number."""


Names = Annotated[tuple[Text, ...], OneOrMany()]


"""Names of columns, or other texts; one needs no list around it."""


class Header(Strict):
    """Where the names of the columns stand.

    `row`: the header's row, from 1; 0 says that the file has none. `matches` looks for it instead: the first row with a
    cell in which the pattern is found. `rows`: the names stand in so many rows, one below the other, and are joined by a
    space. `names`: the names to use instead of what stands there (required with row 0); rows above and the header itself
    are then passed over.
    """

    row: int = Field(
        default=1, ge=0, le=1000, description="The header's row, counted from 1, blank rows too; 0: the file has no header."
    )
    matches: Pattern | None = Field(
        default=None, description="A pattern: the header is the first row (of 1,000) with a cell in which it is found."
    )
    rows: int = Field(default=1, ge=1, le=10, description="How many rows the names take, joined by a space.")
    names: Names = Field(default=(), description="Names for the columns, in order, instead of those in the file.")

    @model_validator(mode="after")
    def _has_names(self) -> Self:
        if self.row == 0 and not self.names:
            raise mistake("row 0 says that the file has no header", "give the columns' names in `names`")
        if self.matches is not None and self.row != 1:
            raise mistake("the header is found by its row or by a pattern", "write one of row, matches")
        return self


class WriteBack(Strict):
    """Columns of the sheet itself that are given to us, to say in them what became of each row.

    They must be there, and the mapping may not read them. All their cells are ours; no other column is ever written.
    """

    status: Text = Field(default="", description="The column for a word: published, draft, rejected, waits.")
    event_id: Text = Field(default="", description="The column for the event's number at the service.")
    problem: Text = Field(default="", description="The column for what is wrong with the row, and what would be right.")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns given."""
        return tuple(filter(None, (self.status, self.event_id, self.problem)))

    @model_validator(mode="after")
    def _some_and_different(self) -> Self:
        if not self.names:
            raise mistake("no column is given", 'give one at least: `write_back: {status: "Status"}`')
        if len(set(self.names)) < len(self.names):
            raise mistake("status, event_id and problem must be different columns")
        return self


_DAILY = timedelta(days=1)


_NEVER = timedelta(days=36_500)


class Join(Strict):
    """A second file or tab, found by its key: its columns stand beside those of each row, named after `prefix`.

    The table is read before the first row and kept in memory (at most 500,000 rows). Two of its rows with one key are an
    error that names both. Keys are compared trimmed, as text.
    """

    source: SourceSpec = Field(description="The second file: a source like any other.")
    by: Mapping[str, Text] = Field(min_length=1, description="Columns of the row, and the table's columns that must equal them.")
    prefix: Text = Field(min_length=1, description='What the names of the table\'s columns begin with here: "venue.".')
    on_miss: Literal["omit", "reject"] = Field(
        default="omit", description="Rows whose key the table lacks: they go without its cells, or are rejected."
    )


class AnySource(Strict):
    """What is said of a source of any kind."""

    kind: str
    required: Names = Field(default=(), description="Columns without which the feed must not run.")
    optional: Names = Field(default=(), description="Columns that may be absent: their cells are then empty.")
    columns: Mapping[str, Names] = Field(
        default_factory=dict, description="Other names of a column, `{TITLE: [Titel, Name]}`: the first that is there is it."
    )
    empty_if: Names = Field(default=(), description='Texts that mean an empty cell, such as "NULL" or "n/a", in every column.')
    empty_in: Mapping[str, Names] = Field(default_factory=dict, description='The same, by column: `{PRICE: ["-"]}`.')
    json_columns: Names = Field(
        default=(), description="Columns whose cells hold JSON: `details` then gives `details.price`, `details.tags[0]`."
    )
    join: Annotated[tuple[Join, ...], OneOrMany()] = Field(
        default=(), description="Second files or tabs whose rows are found by a key: `source`, `by`, `prefix`, `on_miss`."
    )

    @property
    def place(self) -> str:
        """Where its rows are, as its mapping file says it: a path, an address, the name of a table."""
        return self.kind

    @property
    def is_at_hand(self) -> bool:
        """Whether it is on this machine, to be looked into without asking anybody."""
        return False

    @property
    def full_every(self) -> timedelta | None:
        """How often a source that is read by what changed is read from its start all the same; None: it always is."""
        return None

    @property
    def gives_single_rows(self) -> bool:
        """Whether a reading that goes on gives the rows that changed without the others; else it gives all of them, or none."""
        return self.full_every is not None

    @property
    def can_be_looked_at(self) -> bool:
        """Whether a glance tells that something has come or changed, without reading it."""
        return False


class FileSource(AnySource):
    """What is said of a file of any kind."""

    path: Annotated[str, AfterValidator(checked_path)] = Field(
        min_length=1,
        repr=False,  # an address may hold a password
        description="Path (relative to the mapping file) or address of the file (`https://`, `sftp://`, `s3://`, ...); `*`, `?`"
        " and `[...]` match several files, `{date:%Y%m%d}` those of several days, read in the order of their days and names"
        " (numbers in them count as numbers).",
    )
    files: Literal["all", "newest", "new"] = Field(
        default="all",
        description="Of several files that match: `all` are read as one; the `newest` only, by its day and name; or each"
        " `new` one once, and again when it changes: deliveries, of which no row vanishes.",
    )
    days: Days = Field(default=Days(), description="Which days `{date}` stands for: `back`, `ahead` and `zone`.")
    settle: Duration | None = Field(
        default=None,
        description="A file counts once nobody has changed it for so long (`30s`): somebody may still be writing it.",
    )
    marker: MarkerName | None = Field(
        default=None, description='A file counts once another one lies beside it: "{name}.done", "{stem}.ok".'
    )
    member: Text = Field(
        default="", description='Which file of a zip archive is meant, as a pattern: "*/events.csv"; nothing: its only one.'
    )
    largest: Size | None = Field(
        default=None, description="How large a file elsewhere may be to be fetched; 2 GB, if nothing is said."
    )

    @property
    def place(self) -> str:
        """The path, as it stands in the mapping file; of an address no password and no query."""
        return without_secrets(self.path) if is_address(self.path) else self.path

    @property
    def is_at_hand(self) -> bool:
        """Whether the path is one of this machine."""
        return not is_address(self.path)

    @property
    def full_every(self) -> timedelta | None:
        """Files elsewhere are fetched daily, though they say that they have not changed; deliveries are read once each."""
        if self.files == "new":
            return _NEVER
        return _DAILY if is_address(self.path) else None

    @property
    def gives_single_rows(self) -> bool:
        """Only deliveries do; any other file is read whole, unless it is as it was."""
        return self.files == "new"

    @property
    def can_be_looked_at(self) -> bool:
        """Files tell their sizes and times, or a version."""
        return True


class GridSource(AnySource):
    """What is said of rows and columns, in a file or elsewhere."""

    header: Header = Field(default=Header(), description="Where the columns' names stand: `row`, `matches`, `rows` and `names`.")
    comment: Text = Field(default="", description='Rows whose first cell begins so, such as "#", are no rows.')
    footer: int = Field(default=0, ge=0, le=1000, description="So many rows at the end, blank ones not counted, are no rows.")
    until: Pattern | None = Field(
        default=None, description="A pattern: the first row with a cell in which it is found, and all below, are no rows."
    )
    long_rows: Literal["reject", "cut"] = Field(
        default="reject", description="Rows with more cells than the header: reject them, or cut the surplus."
    )


class DelimitedSource(FileSource, GridSource):
    """What is said of a delimited text file, whatever its delimiter."""

    encoding: Annotated[tuple[Encoding, ...], OneOrMany()] = Field(
        default=("utf-8",),
        min_length=1,
        description="Encodings to try, in order; the first that decodes the whole file wins. A byte order mark goes before all.",
    )
    delimiter: Mark = Field(default=",", description='One character; "\\t" for tab.')
    quote: OptionalMark = Field(default='"', description="The quote character; null: quotes mean nothing in this file.")
    escape: OptionalMark = Field(default=None, description="Escape character, if quotes are not doubled.")

    short_rows: Literal["fill", "reject"] = Field(
        default="fill", description="Rows with fewer cells than the header: fill them up with empty cells, or reject them."
    )

    @model_validator(mode="after")
    def _marks_differ(self) -> Self:
        marks = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        for mark in filter(None, marks.values()):
            names = [name for name, each in marks.items() if each == mark]
            if len(names) > 1:
                hint = (
                    "look at a line of the file; `quote: null` if quotes mean nothing there, and no escape if quotes are doubled"
                )
                raise mistake(f"{' and '.join(names)} are the same character, {mark!r}", hint)
        return self


class RecordSource(FileSource):
    """What is said of a file of records."""

    encoding: Annotated[tuple[Encoding, ...], OneOrMany()] = Field(
        default=(), description="Encodings to try, in order, where the file itself does not say which it is in."
    )
    join_lists: Mapping[str, Text] = Field(
        default_factory=dict, description='Columns whose lists of plain values become one text: `{tags: "; "}`.'
    )


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,79}")


_PATH = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,79}(?:\.[A-Za-z][A-Za-z0-9_]{0,79}){0,5}")


_Op = Literal["=", "!=", "<", "<=", ">", ">=", "like", "in", "not in", "includes", "excludes", "missing", "present"]


_OPS: tuple[str, ...] = get_args(_Op)


_OF_MANY = frozenset({"in", "not in", "includes", "excludes"})


_OF_NONE = frozenset({"missing", "present"})


def _api_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise mistake(f'"{text}" is not an API name', "write it as Salesforce's set-up shows it, like Event__c")
    return text


def _field_path(text: str) -> str:
    if not _PATH.fullmatch(text):
        hint = "write API names, like Name, Venue__r.City__c (of a parent) or BillingAddress.city (of an address)"
        raise mistake(f'"{text}" is not a field', hint)
    return text


def _soql(text: str) -> str:
    return parse_query(text).text


def _op(text: str) -> str:
    if text.lower() not in _OPS:
        raise mistake(f'"{text}" is not a comparison', did_you_mean(text.lower(), _OPS) or f"one of {', '.join(_OPS)}")
    return text.lower()


ApiName = Annotated[str, AfterValidator(_api_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})]


"""The API name of an object or a relationship."""


FieldPath = Annotated[str, AfterValidator(_field_path), WithJsonSchema({"type": "string", "pattern": f"^{_PATH.pattern}$"})]


"""The API name of a field, after those of the relationships that lead to it."""


FieldPaths = Annotated[tuple[FieldPath, ...], OneOrMany()]


Soql = Annotated[str, AfterValidator(_soql), WithJsonSchema({"type": "string", "minLength": 1})]


"""One SELECT."""


Op = Annotated[str, AfterValidator(_op), WithJsonSchema({"type": "string", "enum": list(_OPS)})]


"""How a field is compared."""


class FieldTest(Strict):
    """A record is read if each of these holds. Values are written as their field's type asks, and quoted for you.

    A date is `2026-05-03` or one of Salesforce's own, such as `TODAY` or `LAST_N_DAYS:30`; a moment has its offset,
    `2026-05-03T19:30:00+01:00`.
    """

    field: FieldPath = Field(description="The field's API name; `Venue__r.City__c` is one of the parent.")
    op: Op = Field(
        default="=",
        description="`=`, `!=`, `<`, `<=`, `>`, `>=`, `like`, `in`, `not in`; `includes` and `excludes` of a multi-select"
        " picklist; `missing` and `present` need no value.",
    )
    value: Texts = Field(default=(), description="What the field is compared with; a list for `in`, `includes` and the like.")

    @model_validator(mode="after")
    def _suits_op(self) -> Self:
        if self.op in _OF_NONE and self.value:
            raise mistake(f"{self.op} compares with nothing", "leave the value out")
        if self.op not in _OF_NONE and not self.value:
            raise mistake(f"{self.op} needs a value", "for empty fields write op: missing, or op: present")
        if self.op not in _OF_MANY | _OF_NONE and len(self.value) > 1:
            raise mistake(f"{self.op} compares with one value", "of several, write op: in")
        return self


class Incremental(Strict):
    """Read only what changed since the last read, deleted records among it.

    Changes that do not move the field `by` are seen by the next whole read: other values of formula fields and of parents,
    records that no longer pass `where`, and deleted ones that have left the recycle bin.
    """

    by: ApiName = Field(default="SystemModstamp", description="The field that tells when a record was last changed.")
    overlap: Duration = Field(
        default=timedelta(minutes=10), description="How far before the last read to begin, for changes that show late."
    )
    full_every: Duration = Field(default=timedelta(days=1), description="How often everything is read all the same.")

    @model_validator(mode="after")
    def _not_negative(self) -> Self:
        if self.overlap < timedelta():
            raise mistake("overlap says how far to go back", "write it without the minus")
        if self.full_every <= timedelta():
            raise mistake("full_every must be longer than nothing", 'write it like "1d"')
        return self


class SalesforceSource(AnySource):
    """Records of a Salesforce object; the columns are its fields by their API names, whatever their case.

    `Venue__r.City__c` is a field of a parent, `BillingAddress.city` a part of an address, `Sessions__r` the child rows named
    under `children`. Whether a record comes over one API or the other, its cells are the same: moments as
    `2026-05-03T17:30:00Z`, days as `2026-05-03`, times of day as `19:30:00`, ids with 18 characters, numbers as they are
    sent without a final `.0`, `true` and `false`; what is null is empty. A multi-select picklist is one text, `A;B`.
    """

    kind: Literal["salesforce"] = Field(description="salesforce: the records of an object in Salesforce.")
    object: ApiName | None = Field(default=None, description="The object's API name: Event__c.")
    fields: FieldPaths = Field(default=(), description="Fields to read besides those that the mapping uses.")
    where: Annotated[tuple[FieldTest, ...], OneOrMany()] = Field(
        default=(), description="Which records to read: those for which each `field`, `op`, `value` holds."
    )
    children: Mapping[ApiName, FieldPaths] = Field(
        default_factory=dict,
        description="Child rows, and their fields: `{Sessions__r: [Name, Start__c]}` gives a column of JSON, a list of objects.",
    )
    query: Soql | None = Field(default=None, description="Instead of all that: a query in SOQL, asked as it stands.")
    api: Literal["auto", "rest", "bulk"] = Field(
        default="auto", description="How to read: in pages, in bulk, or as their number suggests."
    )
    bulk_above: int = Field(default=10_000, ge=0, description="More records than that are read in bulk, if `api` is auto.")
    stop_at: Share = Field(
        default=0.95, description="The share of the org's daily requests, used by all programs, at which we stop and go on later."
    )
    incremental: Incremental | None = Field(default=None, description="Read only what changed: `by`, `overlap`, `full_every`.")

    @property
    def place(self) -> str:
        """The object, by its API name."""
        return self.object or parse_query(self.query or "").object

    @property
    def full_every(self) -> timedelta | None:
        """How often everything is read, if else only changes are."""
        return self.incremental.full_every if self.incremental else None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.object is None) == (self.query is None):
            raise mistake("a Salesforce source names an object or a query", 'write "object: Event__c", or a query instead')
        beside = [name for name in ("fields", "where", "children", "incremental") if name in self.model_fields_set]
        if self.query is not None and beside:
            raise mistake(f"{', '.join(beside)} cannot stand beside a query", "write them into the query, or name the object")
        has_children = bool(self.children) or (self.query is not None and not parse_query(self.query).is_plain)
        if self.api == "bulk" and has_children:
            raise mistake("child rows, groups and limits cannot be read in bulk", "write api: rest, or leave them out")
        return self


_SHEET_ADDRESS = re.compile(r"https://docs\.google\.com/(?:a/[^/]+/)?spreadsheets/(?:u/\d+/)?d/([A-Za-z0-9_-]{20,})(?:[/?#].*)?")


_GID = re.compile(r"[?#&]gid=(\d{1,10})")


_ID = re.compile(r"[A-Za-z0-9_-]{25,}")


_NAMED = re.compile(r"[^\W\d]\w{0,249}")


def _spreadsheet(text: str) -> str:
    if "://" in text and not _SHEET_ADDRESS.fullmatch(text):
        hint = "copy it from the browser, like https://docs.google.com/spreadsheets/d/1AbC.../edit#gid=0"
        raise mistake(f'"{text}" is not the address of a Google spreadsheet', hint)
    return text


def _range(text: str) -> str:
    plain = text.replace("$", "").upper()
    if not plain or not (CELL_RANGE.fullmatch(plain) or _NAMED.fullmatch(text)):
        raise mistake(f'"{text}" is neither a range of cells nor the name of one', 'write it like "B3:H200" or "Programme"')
    return text


Spreadsheet = Annotated[Text, AfterValidator(_spreadsheet)]


"""A spreadsheet's address in the browser, its id, or its title."""


SheetRange = Annotated[
    str, AfterValidator(_range), WithJsonSchema({"type": "string", "examples": ["B3:H200", "A:F", "Programme"]})
]


"""A range of cells, or the name that the spreadsheet's owner has given one."""


class GoogleSheetsSource(GridSource):
    """A tab of a Google spreadsheet. Cells become the text that `xlsx` would make of them, decimals as the spreadsheet writes.

    Text stays as it is: `02134`, `12,50`. Numbers have all their digits, behind the decimal mark of the spreadsheet's locale
    (`5`, `12,5`; `12.5` in an English one), and zeros where the format adds them (`12,50`; `00000` gives `02134`). Dates and
    times are ISO as the cell's format shows them, booleans `TRUE` and `FALSE`. An error such as `#REF!`, or a formula that is
    still `Loading...`, rejects the row if the column is used. Hidden rows, and those that a filter hides, are rows. The
    account that `GOOGLE_APPLICATION_CREDENTIALS` names must be allowed to see the spreadsheet.
    """

    kind: Literal["google_sheets"] = Field(description="google_sheets: a tab of a Google spreadsheet.")
    spreadsheet: Spreadsheet = Field(
        min_length=1, description="The spreadsheet's address in the browser, its id, or its title (which the Drive API looks up)."
    )
    tab: Text = Field(
        default="", description="The tab's name, or its position: `#2`. Nothing: the first, or the one in the address."
    )
    gid: int | None = Field(
        default=None, ge=0, description="The tab's number, as its address ends: it stays when the tab is renamed."
    )
    range: SheetRange | None = Field(
        default=None,
        description="The part of the tab to read, `B3:H200` or `A:F`, or the name of a range; the header's row is counted in it.",
    )
    merged: Literal["first", "spread"] = Field(
        default="first", description="Merged cells: the value in the first cell only, or in each of them."
    )
    write_back: WriteBack | None = Field(
        default=None,
        description="Columns to tell the sheet in what became of its rows: `status`, `event_id`, `problem`. Off by default.",
    )

    @model_validator(mode="after")
    def _one_tab(self) -> Self:
        if self.tab and self.gid is not None:
            raise mistake("the tab is named in two ways", "write one of tab, gid")
        return self

    @property
    def place(self) -> str:
        """The spreadsheet, and the tab if it is named."""
        return f"{self.spreadsheet} ({self.tab})" if self.tab else self.spreadsheet

    @property
    def full_every(self) -> timedelta | None:
        """Daily: a spreadsheet is read whole by then, though Drive says that it is as it was."""
        return _DAILY

    @property
    def gives_single_rows(self) -> bool:
        """It is read whole, unless it is as it was."""
        return False

    @property
    def can_be_looked_at(self) -> bool:
        """Drive tells its version."""
        return True

    @property
    def spreadsheet_id(self) -> str:
        """The spreadsheet's id, "" where only its title is known."""
        if found := _SHEET_ADDRESS.fullmatch(self.spreadsheet):
            return found[1]
        return self.spreadsheet if _ID.fullmatch(self.spreadsheet) else ""

    @property
    def tab_number(self) -> int | None:
        """The number of the tab, None where it is known by name or position only."""
        found = None if self.tab or not _SHEET_ADDRESS.fullmatch(self.spreadsheet) else _GID.search(self.spreadsheet)
        return int(found[1]) if self.gid is None and found else self.gid


class CsvSource(DelimitedSource):
    """A delimited text file: a path beside the mapping file, an absolute path, or any address that fsspec opens.

    Columns are found by the names in the header, whatever their case, spaces or Unicode form; a column without a name
    is called after its position, `#3`, and of several with one name the later ones are `Name#2`, `Name#3`. The third
    column can always be asked for as `#3` or `#C`.
    """

    kind: Literal["csv"] = Field(description="csv: a delimited text file.")


class TsvSource(DelimitedSource):
    """A text file with tabs between the cells; in all else like `csv`."""

    kind: Literal["tsv"] = Field(description="tsv: a text file with tabs between the cells.")
    delimiter: Mark = Field(default="\t", description="One character; a tab, if nothing is said.")


class WorkbookSource(FileSource, GridSource):
    """A sheet of an Excel workbook (.xlsx, .xlsm). Cells become the text that a person sees in a plain format.

    Text stays as it is. Numbers have no needless digits (`5`, `12.5`), dates and times are ISO (`2026-05-03`, `19:30`,
    `2026-05-03T19:30:00`, as the cell's format shows them), booleans `TRUE` and `FALSE`. An error such as `#REF!` or a
    formula that was never calculated rejects the row if the column is used. Hidden rows are rows.
    """

    kind: Literal["xlsx"] = Field(description="xlsx: a sheet of an Excel workbook.")
    sheet: Text = Field(default="#1", min_length=1, description="The sheet's name, or its position: `#2`.")
    range: CellRange | None = Field(
        default=None, description="The part of the sheet to read, such as `B3:H200` or `A:F`; the header's row is counted in it."
    )
    merged: Literal["first", "spread"] = Field(
        default="first", description="Merged cells: the value in the first cell only, or in each of them."
    )


class JsonSource(RecordSource):
    """A JSON document; each record is an object of the array that `records` leads to.

    Columns are paths: `venue.address.city`, `images[0].url`. A list is a cell of JSON text unless `join_lists` names it. A
    number is the text that stands there, `null` an empty cell.
    """

    kind: Literal["json"] = Field(description="json: a JSON document.")
    records: Text = Field(
        default="", description="The way to the records: `data.events`, `days[*].events`; nothing: the document is the array."
    )


class NdjsonSource(RecordSource):
    """A text file with a JSON object on each line; its columns are those of `json`."""

    kind: Literal["ndjson"] = Field(description="ndjson: a JSON object on each line.")


class XmlSource(RecordSource):
    """An XML document; each record is an element.

    Columns are paths: `venue.city`, an attribute is `@id` or `price.@currency`. An element that stands there several times
    is a list (`image[1].@url`), a cell of JSON text unless `join_lists` names it. Entities are refused.
    """

    kind: Literal["xml"] = Field(description="xml: an XML document.")
    records: Text = Field(
        min_length=1,
        description="The records' element: its name, `event`, or the way to it from the root, `agenda/events/event`.",
    )
    namespaces: Literal["keep", "drop"] = Field(
        default="keep", description="Names with a prefix, such as `dc:date`: keep it as it stands in the file, or drop it."
    )


class IcsSource(RecordSource):
    """An iCalendar file (RFC 5545); each record is a VEVENT and its properties are the columns: `UID`, `SUMMARY`, `DTSTART`.

    Dates are ISO: `2026-05-03` (all day), `2026-05-03T19:30:00` (with its zone in `DTSTART.TZID`, or none),
    `2026-05-03T17:30:00Z`. `DTEND` is exclusive, as it stands. `CATEGORIES`, `EXDATE` and `RDATE` are joined by `;`. What is
    said of the calendar as a whole stands in each row: `X-WR-TIMEZONE`, `X-WR-CALNAME`.
    """

    kind: Literal["ics"] = Field(description="ics: an iCalendar file.")


def _kind_of_source(value: object) -> str:
    if isinstance(value, AnySource):
        return f"kind:{value.kind}"
    if isinstance(value, dict):
        return f"kind:{value.get('kind', 'block')}"
    return f"kind:{type(value).__name__.lower()}"


SourceSpec = Annotated[
    Annotated[CsvSource, Tag("kind:csv")]
    | Annotated[TsvSource, Tag("kind:tsv")]
    | Annotated[WorkbookSource, Tag("kind:xlsx")]
    | Annotated[JsonSource, Tag("kind:json")]
    | Annotated[NdjsonSource, Tag("kind:ndjson")]
    | Annotated[XmlSource, Tag("kind:xml")]
    | Annotated[IcsSource, Tag("kind:ics")]
    | Annotated[GoogleSheetsSource, Tag("kind:google_sheets")]
    | Annotated[SalesforceSource, Tag("kind:salesforce")],
    OneOf(_kind_of_source),
]


"""The closed union of source kinds, discriminated by `kind`."""


SOURCES: tuple[type[AnySource], ...] = (
    CsvSource,
    TsvSource,
    WorkbookSource,
    JsonSource,
    NdjsonSource,
    XmlSource,
    IcsSource,
    GoogleSheetsSource,
    SalesforceSource,
)


"""Every kind, in the order of the reference."""


SHARED: tuple[type[AnySource], ...] = (AnySource, FileSource, GridSource, DelimitedSource, RecordSource)


"""What the kinds share, the widest first."""


Join.model_rebuild(_types_namespace={"SourceSpec": SourceSpec})


def kind_word(model: type[AnySource]) -> str:
    """Return the word that stands for a kind in `kind`."""
    return str(get_args(model.model_fields["kind"].annotation)[0])
