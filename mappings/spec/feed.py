"""The whole mapping file: key, event, examples, schedule, brakes and publishing policy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    WithJsonSchema,
)

from mappings.errors import FileProblem
from mappings.lookup_table import Table
from mappings.positions import Loc, plain
from mappings.reasons import ReasonCode
from mappings.row_key import FeedName
from mappings.spec.rules import Explode, KeyChoice, KeyColumn, KeyItem, KeyValue, Recur, Rule, WindowRule
from mappings.spec.source import SourceSpec
from mappings.spec.values import AnyStep, Fields, From, ItemName, Value
from mappings.steps.step import Step
from mappings.strict import OneOrMany, Share, Strict, Text, Texts, Zone, matching, mistake, parse_duration
from mappings.zones import find_zone

AnyRule = TypeVar("AnyRule", bound=Rule)
MONTHS = re.findall("...", "janfebmaraprmayjunjulaugsepoctnovdec")
WEEKDAYS = re.findall("...", "sunmontuewedthufrisat")
"""The names of weekdays in a cron line, from 0."""
_CRON_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("weekday", 0, 7, WEEKDAYS),
)
_CRON_PART = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d+))?")
_DAYS_OF_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LEAST_LOOK_S = 30.0
_MOST_IN_FLIGHT = 256
AUTO_IN_FLIGHT = 32
"""The maximum number of requests in flight if the file gives none."""


def _parse_cron(text: str) -> str:
    fields = text.split()
    if len(fields) != len(_CRON_FIELDS):
        raise mistake(f'"{text}" is not a cron line', 'it has five fields, such as "15 */2 * * *"')
    values: dict[str, list[int]] = {}
    for field, (what, least, most, names) in zip(fields, _CRON_FIELDS, strict=True):
        try:
            values[what] = cron_values(field, least, most, names)
        except ValueError:
            raise mistake(f'"{field}" is not a {what} in a cron line', f"{what}s go from {least} to {most}") from None
    if min(values["day"]) > max(_DAYS_OF_MONTHS[month - 1] for month in values["month"]):
        raise mistake(f'"{fields[2]}" is a day that never comes', "no month that the cron line names has so many days")
    return text


def cron_values(field: str, least: int, most: int, names: Sequence[str] = ()) -> list[int]:
    """Return the values of a field of a cron line. A range that ends before it begins wraps around: 22-6 is the night.

    Raises:
        ValueError: it is not a valid field.
    """
    size, values = len(names) or most - least + 1, set[int]()
    for part in field.split(","):
        found = _CRON_PART.fullmatch(part)
        if found is None or (found[3] is not None and not 1 <= int(found[3]) <= most):
            raise ValueError(part)
        begin = _cron_number(found[1], least, most, names) if found[1] else least
        is_open = found[1] is None or (found[2] is None and found[3] is not None)
        end = least + size - 1 if is_open else _cron_number(found[2] or found[1], least, most, names)
        days = range(begin, end + 1 if end >= begin else end + size + 1, int(found[3] or 1))
        values.update(least + (value - least) % size for value in days)
    return sorted(values)


def _cron_number(word: str, least: int, most: int, names: Sequence[str]) -> int:
    number = int(word) if word.isascii() and word.isdigit() else least + names.index(word.lower())
    if not least <= number <= most:
        raise ValueError(word)
    return number


def _seconds(value: object) -> float:
    length = timedelta(seconds=value) if isinstance(value, int | float) else parse_duration(value)
    if length < timedelta(0):
        raise mistake(f'"{value}" is negative', 'write it like "15m"')
    return length.total_seconds()


def _in_flight(value: object) -> int | Literal["auto"]:
    text = str(value).strip()
    if text == "auto":
        return "auto"
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST_IN_FLIGHT):
        raise mistake(f'"{value}" is not a number of requests', f"write a whole number from 1 to {_MOST_IN_FLIGHT}, or auto")
    return int(text)


_COUNT_OR_AUTO = {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": _MOST_IN_FLIGHT}]}
InFlight = Annotated[int | Literal["auto"], PlainValidator(_in_flight), WithJsonSchema(_COUNT_OR_AUTO)]
Cron = Annotated[str, AfterValidator(_parse_cron), WithJsonSchema({"type": "string", "examples": ["15 */2 * * *"]})]
Seconds = Annotated[float, PlainValidator(_seconds), WithJsonSchema({"type": "string", "examples": ["15m", "24h"]})]


def _look_every(value: object) -> float:
    length = _seconds(value)
    if length < _LEAST_LOOK_S:
        raise mistake(f'"{value}" is too short for checking a source', "check it every 30s at most; 5m is usual")
    return length


LookEvery = Annotated[float, PlainValidator(_look_every), WithJsonSchema({"type": "string", "examples": ["5m", "1h"]})]


class Schedule(Strict):
    """When the feed runs without being asked: by a cron line in a time zone, or when its source or an asset before it changes."""

    cron: Cron | None = Field(default=None, description="Minute, hour, day of the month, month, day of the week.")
    timezone: Zone = Field(default="UTC", description="The IANA zone of the cron line.")
    look_every_s: LookEvery | None = Field(
        default=None,
        alias="look_every",
        description="How often to check the source; a run starts when there is a new or changed file or sheet.",
    )
    on_update: bool = Field(default=False, description="Whether a run starts when an asset that `after` names is updated.")
    alone: bool = Field(
        default=False, description="Whether the feed keeps a schedule and runs of its own, however many share its cron line."
    )

    def check(self) -> None:
        if self.cron is None and self.look_every_s is None and not self.on_update:
            raise mistake("a schedule needs cron, look_every or on_update", 'such as cron: "15 */2 * * *", or look_every: 5m')

    def __str__(self) -> str:
        """Return the schedule for display: its cron line, how often the source is looked at, and whether it follows others."""
        clock = f"{self.cron} ({self.timezone})" if self.cron else ""
        looks = f"when changed (looked at every {self.look_every_s:.0f} s)" if self.look_every_s else ""
        return ", ".join(filter(None, (clock, looks, "when an asset of `after` is updated" if self.on_update else "")))


class Brakes(Strict):
    """Limits that stop a run before anything is sent. `off` disables a brake; a person may accept one for a single run."""

    rejected: Share = 0.05
    """Stop when more than this share of the rows is rejected."""
    rejected_at_least: int = Field(default=3, ge=1)
    """A run with fewer rejected rows than this is never stopped."""
    shrink: Share = 0.5
    """Stop when the source lost more than this share of its rows."""
    left_out: Share = 0.2
    """Stop when `skip` and `keep` rules newly leave out more than this share of the delivered rows with future events."""
    new: Share = 0.5
    """Stop when more than this share of a known feed's rows is new."""
    changed: Share = 0.8
    """Stop when more than this share of the delivered rows with future events changed in the same field at once."""


class PublishPolicy(Strict):
    """What to do about changes that the service cannot take, and how long to wait for it."""

    on_change: Literal["report", "ignore"] = "report"
    """When a delivered row changes at its source: report the drift, or ignore it (counted, never listed)."""
    on_vanish: Literal["report", "ignore"] = "report"
    """When a delivered row is gone from its source: report it, or ignore it (neither marked nor listed)."""
    draft_on_warning: bool = False
    """Send every row that has a warning, including warnings of the source, as a draft for review."""
    years_ahead: int = Field(default=5, ge=1, le=1_000)
    """Reject events that start or end more than this many years after the run: their years are slips, or of another calendar."""
    brakes: Brakes = Brakes()
    """Limits that stop a run before anything is sent."""
    max_pause_s: Seconds = Field(default=900.0, alias="max_pause")
    """The longest pause the service may ask for."""
    key_memory_s: Seconds = Field(default=86400.0, alias="key_memory")
    """How long the service remembers an idempotency key."""
    in_flight: InFlight = "auto"
    """How many requests may be in flight; `auto` finds out how many the service answers well, up to 32."""

    @property
    def most_in_flight(self) -> int:
        """The maximum number of requests in flight."""
        return AUTO_IN_FLIGHT if self.in_flight == "auto" else self.in_flight


FeedText = Annotated[FeedName, Field(pattern=r"^[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*$", max_length=64)]
"""A feed's name, with the pattern that a mapping file must follow."""
PayloadPath = Annotated[
    str,
    matching(
        r"[^.\[]+(?:\.[^.\[]+)*", "a field of the event", "write it like description, or offers.price for a field of all offers"
    ),
]
AssetName = Annotated[
    str,
    matching(
        "[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*",
        "an asset key",
        'write its parts, of the letters a to z, digits, "_", "-" and ".", with / between them, such as "warehouse/events"',
    ),
]
ListVersion = Annotated[
    str,
    matching(r"\d{4}-\d{2}-\d{2}", "the version of a list", 'write the date of the version, such as "2026-04-01"'),
    WithJsonSchema({"type": "string", "examples": ["2026-04-01"]}),
]
_Payload = dict[str, Annotated[object, BeforeValidator(plain)]]


class Example(Strict):
    """A row and its expected outcome: one or several events (only the given fields are compared), a rejection, or a labelled
    skip.
    """

    row: dict[str, Text] = Field(default_factory=dict)
    """The cells of the row; columns not named are empty."""
    rows: tuple[dict[str, Text], ...] = ()
    """Several rows instead of `row`, for feeds that combine rows with the same key."""
    event: _Payload | None = None
    """The expected fields of the payload."""
    events: tuple[_Payload, ...] | None = None
    """The expected fields of each event of a row that is split, all of them in order."""
    rejected: dict[str, ReasonCode] | None = None
    """The rejected fields and their codes; "" is the whole row."""
    skipped: Text | None = None
    """The label of the rule that leaves the row out."""
    as_of: AwareDatetime | None = None
    """The time of the run, for examples of a window."""

    def check(self) -> None:
        if len({"row", "rows"} & self.model_fields_set) != 1:
            raise mistake("an example needs either row or rows", "write one of row, rows")
        if sum(outcome is not None for outcome in (self.event, self.events, self.rejected, self.skipped)) != 1:
            raise mistake("an example needs one outcome", "write one of event, events, rejected, skipped")


@dataclass(frozen=True, slots=True)
class KeySource:
    """One part of a key: its column ("" if none), its position in the file, and its steps, each with the path of its value and
    its index there. `names`: the named values that it refers to.
    """

    column: str
    loc: Loc = ("key", 0)
    optional: bool = False
    steps: tuple[tuple[Loc, int, Step], ...] = ()
    names: tuple[str, ...] = ()


Language = Literal["en", "de"]
"""The languages of pages and files for partners; each except English has a catalogue in `mappings/translations`."""


class FeedMapping(Strict):
    """One feed: where its rows come from, what identifies a row, how a row becomes an event, and how it is published."""

    feed: FeedText
    """The feed's permanent name: part of every idempotency key."""
    owner: Text = ""
    """Who is notified when something needs attention."""
    language: Language = "en"
    """The language of everything for the partner's editor: the report, the CSV files, the status columns of a sheet."""
    notify: Texts = ()
    """More channels to notify, by the names that the environment gives to their addresses."""
    source: SourceSpec
    """Where the rows come from."""
    after: Annotated[tuple[AssetName, ...], OneOrMany()] = ()
    """Dagster assets from which the source is made, of any code location, by their keys: warehouse/events."""
    schedule: Schedule | None = None
    """When the feed runs without being asked (default: never)."""
    key: Annotated[tuple[KeyItem, ...], OneOrMany()] = Field(min_length=1)
    """What identifies a row permanently: columns, columns with steps, $names; or first_of, with several such keys."""
    let: dict[ItemName, Value] = Field(default_factory=dict)
    """Named values, used elsewhere as $name."""
    steps: dict[ItemName, Annotated[tuple[AnyStep, ...], OneOrMany()]] = Field(default_factory=dict)
    """Named lists of steps, used in any `do` as {use: NAME}."""
    include: Texts = ()
    """Files whose `let` and `steps` are used as if written here, by their paths from this file; one whose name begins with _
    may be in the folder of feeds.
    """
    rows: tuple[Rule, ...] = ()
    """Rules about rows, applied in their order: which to leave out, and which events a row makes."""
    classifications_version: ListVersion | None = None
    """The version of the service's classifications that the mapping was written for; `check --live` shows what has changed
    since.
    """
    event: Fields
    """The payload: each field of the event, and where its value comes from."""
    extra: Annotated[tuple[PayloadPath, ...], OneOrMany()] = ()
    """Fields of the event that the service takes although its specification does not describe them, with all inside them:
    description, offers.price. Any other unknown field is a mistake.
    """
    publish: PublishPolicy = PublishPolicy()
    """What to do about changes, and when to stop."""
    examples: tuple[Example, ...] = ()
    """Rows and their expected outcomes, run by the command check."""

    _path: Path = PrivateAttr(default=Path("feed.yaml"))
    _digest: bytes = PrivateAttr(default=bytes(16))
    _tables: Mapping[str, Table] = PrivateAttr(default_factory=dict)
    _warnings: tuple[FileProblem, ...] = PrivateAttr(default=())
    _folders: tuple[Path, ...] = PrivateAttr(default=())

    @property
    def path(self) -> Path:
        """The path of the mapping file."""
        return self._path

    @property
    def digest(self) -> bytes:
        """A digest of 16 bytes that changes with the file's content or its lookup files, and so whenever outcomes may change."""
        return self._digest

    @property
    def tables(self) -> Mapping[str, Table]:
        """The lookup files of the mapping, by name."""
        return self._tables

    @property
    def warnings(self) -> tuple[FileProblem, ...]:
        """Warnings about the mapping, for the command check."""
        return self._warnings

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders beside that of the mapping file in which it may name files."""
        return self._folders

    @property
    def key_alternatives(self) -> tuple[tuple[KeySource, ...], ...]:
        """The alternative keys, each with its parts in order; a single one if the file has no `first_of`."""
        (first, *_), loc = self.key, ("key", 0, "first_of")
        if not isinstance(first, KeyChoice):
            return (tuple(self._key_source(part, ("key", place)) for place, part in enumerate(self.key)),)
        return tuple(
            tuple(self._key_source(part, (*loc, number, place)) for place, part in enumerate(parts))
            for number, parts in enumerate(first.first_of)
        )

    @property
    def key_columns(self) -> tuple[KeySource, ...]:
        """The parts of all alternative keys, in order."""
        return tuple(part for parts in self.key_alternatives for part in parts)

    @property
    def key_parts(self) -> int:
        """The maximum number of parts of a row's key."""
        return max(map(len, self.key_alternatives))

    def _key_source(self, part: KeyItem, loc: Loc) -> KeySource:
        if isinstance(part, KeyColumn):
            return KeySource(part.column, loc, part.optional)
        if isinstance(part, KeyChoice):
            return KeySource("", loc)
        text, do, optional = (part.source, part.do, part.optional) if isinstance(part, KeyValue) else (part, (), False)
        steps, names = [(loc, place, step) for place, step in enumerate(do)], list[str]()
        while text.startswith("$") and not text.startswith("$$"):
            names.append(text[1:])
            value = self.let.get(names[-1])
            if not isinstance(value, From):
                return KeySource("", loc, names=tuple(names))
            steps = [(("let", names[-1]), place, step) for place, step in enumerate(value.do)] + steps
            text = value.source
        return KeySource(text.removeprefix("$"), loc, optional, tuple(steps), tuple(names))

    def rule(self, kind: type[AnyRule]) -> AnyRule | None:
        """Return the rule of a kind that a file may have once, None if it has none."""
        return next((rule for rule in self.rows if isinstance(rule, kind)), None)

    @property
    def is_expanding(self) -> bool:
        """Whether a row may become several events."""
        return any(isinstance(rule, Explode | Recur) for rule in self.rows)

    @property
    def needs_the_moment(self) -> bool:
        """Whether the rules need the time at which the run starts."""
        return self.rule(WindowRule) is not None or self.leaves_for_later

    @property
    def leaves_for_later(self) -> bool:
        """Whether a horizon leaves out rows or days that later runs will include."""
        recur, window = self.rule(Recur), self.rule(WindowRule)
        return bool((window and window.window.horizon) or (recur and recur.recur.horizon))

    @property
    def zone_of_events(self) -> ZoneInfo | None:
        """The zone that the file gives for all of its events, None if the zone depends on the row."""
        named: object = self.event.root.get("timezone")
        if isinstance(named, str) and named.startswith("$"):
            named = self.let.get(named[1:])
        return find_zone(named) if isinstance(named, str) else None

    def loaded(
        self,
        path: Path,
        digest: bytes,
        tables: Mapping[str, Table],
        warnings: tuple[FileProblem, ...] = (),
        folders: tuple[Path, ...] = (),
    ) -> FeedMapping:
        """Return a copy with the loader's facts about the file."""
        mapping = self.model_copy()
        facts = {"_path": path, "_digest": digest, "_tables": tables, "_warnings": warnings, "_folders": folders}
        mapping.__pydantic_private__ = facts
        return mapping
