"""Rules about rows in a mapping file: which rows to leave out, which events a row makes, which rows to combine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from mappings.spec.values import Condition, Do, Value
from mappings.strict import Duration, OneOrMany, Referring, Strict, Text, Texts, mistake, union_members

_MANY = 400
_MOST_KEYS = 5


class Skip(Strict):
    """Leave out the rows for which the condition is true."""

    skip: Condition
    because: Text = Field(min_length=1)
    """The label under which the rows left out are counted."""


class Keep(Strict):
    """Leave out the rows for which the condition is false."""

    keep: Condition
    because: Text = Field(min_length=1)
    """The label under which the rows left out are counted."""


class Cancelled(Strict):
    """Leave out rows whose event is cancelled; one that was sent before is reported as drift, to be withdrawn by hand."""

    cancelled: Condition
    because: Text = Field(default="cancelled", min_length=1)
    """The label under which these rows are counted (default: "cancelled")."""


class Assert(Strict):
    """Require that the condition is true for every row."""

    asserted: Condition = Field(alias="assert")
    message: Text = Field(min_length=1)
    """What the partner's editor reads if the condition is false."""
    severity: Literal["reject", "warn", "draft"] = "reject"
    """What to do with such a row: reject (the default), warn (it is sent, and listed), draft (sent as a draft)."""


class WindowSpan(Strict):
    """The time span of the events to send, relative to the start of the run."""

    past: Literal["skip", "keep"] = "skip"
    """Past events: skip (the default) or keep."""
    horizon: Duration | None = None
    """Events that start later than this from now are left out."""
    longest: Duration | None = None
    """The longest time from startAt to endAt; an event that lasts longer is rejected."""


class WindowRule(Strict):
    """Leave out events that are past, too far ahead or too long, after their times are known. An `assert` after it does not
    reject them; times that cannot be read reject the row.
    """

    window: WindowSpan


class Explosion(Strict):
    """The list in a row, and what identifies its items."""

    columns: Texts = Field(min_length=1)
    """The column with the list, or several columns with parallel lists; a list of one item is used for all. Each event sees its
    own item in the column, and as $item (of the first column).
    """
    by: Texts | None = None
    """The separator between items, or several."""
    json_list: bool = Field(default=False, alias="json")
    """The cell is a JSON array; the fields of objects in DATES become columns named DATES.field."""
    key: Texts | None = None
    """The columns whose items distinguish the events of a row permanently: part of the key. Default: all `columns`; required if
    the items are objects.
    """
    at_most: int = Field(default=_MANY, ge=1, le=5_000)
    """A row with more items is rejected."""

    def check(self) -> None:
        if (self.by is None) is not self.json_list:
            raise mistake("explode needs either `by`, the separator, or `json: true`", 'write by: ";" or json: true')
        if self.json_list and len(self.columns) > 1:
            raise mistake("json: true works on one column only", "for lists in several columns write by, their separator")
        if not self.json_list and self.key is not None and not set(self.key) <= set(self.columns):
            raise mistake("the key names a column that is not exploded", f"there are {', '.join(self.columns)}")


class Explode(Strict):
    """Make one event of each item of a list: a row with three dates becomes three events with different keys."""

    explode: Explosion


class Recurrence(Strict):
    """The days of a recurring event; each becomes an event, and sees its day as $day."""

    when: Condition | None = None
    """The condition of rows that recur (default: all). Other rows become one event, with `from` as $day."""
    start: Value | None = Field(default=None, alias="from")
    """The first day: a date."""
    days: Value | None = None
    """A list of days instead of from, until and a rule, as the step dates gives it."""
    until: Value | None = None
    """The last day, included. Without it `horizon` is the end."""
    weekdays: Value | None = None
    """The days of the week: MO TU WE TH FR SA SU (default: every day)."""
    nth: Value | None = None
    """Which of these weekdays in their month: 1 is the first, -1 the last; several may be given."""
    rrule: Value | None = None
    """An RFC 5545 rule instead of weekdays and nth: FREQ=WEEKLY;INTERVAL=2;BYDAY=MO. A time in UNTIL counts if `from` has one."""
    excluded: Value | None = Field(default=None, alias="except")
    """Dates to leave out; those of moments in the event's time zone if `rrule` is used."""
    extra: Value | None = None
    """Additional dates."""
    horizon: Duration | None = None
    """How far ahead from now days become events; later runs add more."""
    at_most: int = Field(default=_MANY, ge=1, le=5_000)
    """How many days a row may have; a row with more is rejected."""

    def check(self) -> None:
        if self.rrule is not None and (self.weekdays is not None or self.nth is not None):
            raise mistake("rrule and weekdays say the same thing twice", "write one of them")
        if self.nth is not None and self.weekdays is None:
            raise mistake("nth counts weekdays, and none are given", "write weekdays as well")
        if (self.start is None) is (self.days is None):
            raise mistake("a recurrence needs its first day, or all of its days", "write from, or days")
        if self.days is not None and (self.until, self.weekdays, self.rrule, self.extra) != (None, None, None, None):
            raise mistake("days lists all days: leave out until, weekdays, rrule and extra", "leave them out")
        if self.days is None and self.until is None and self.horizon is None:
            raise mistake("a recurrence needs an end", "write until, horizon or both")


class Recur(Strict):
    """Make one event of each day of a recurring row; its permanent key is the row's key with the day."""

    recur: Recurrence


class Grouping(Strict):
    """What to collect from rows with the same key."""

    collect: Texts = Field(min_length=1)
    """The fields of the event to collect from all rows, in the order of the file and without repetitions: offers,
    classifications. All other fields are the first row's.
    """
    is_sorted: bool = Field(default=False, alias="sorted")
    """The file is sorted by key, so that no rows are kept in memory."""


class Group(Strict):
    """Make one event of all rows with the same key, anywhere in the file."""

    group: Grouping


class Choosing(Strict):
    """Which of several rows with the same key to use."""

    keep: Literal["first", "last", "newest"]
    """The first or last row of the file, or the newest."""
    by: Value | None = None
    """The value by which rows are compared for newest: a date, a moment or a number."""
    is_sorted: bool = Field(default=False, alias="sorted")
    """The file is sorted by key, so that no rows are kept in memory."""

    def check(self) -> None:
        if (self.by is not None) is not (self.keep == "newest"):
            raise mistake("`by` and `keep: newest` belong together", "write both, or neither")


class Duplicates(Strict):
    """Choose among rows with the same key. Without this rule identical rows count once, and rows that differ are rejected."""

    duplicates: Choosing


def _kind_of_rule(value: object) -> str:
    if isinstance(value, dict):
        return "rule:" + next((key for key in RULES if key in value), next(iter(value), ""))
    return "rule:" + type(value).__name__.lower()


Rule = Annotated[
    Annotated[Skip, Tag("rule:skip")]
    | Annotated[Keep, Tag("rule:keep")]
    | Annotated[Cancelled, Tag("rule:cancelled")]
    | Annotated[Assert, Tag("rule:assert")]
    | Annotated[Explode, Tag("rule:explode")]
    | Annotated[Recur, Tag("rule:recur")]
    | Annotated[Group, Tag("rule:group")]
    | Annotated[Duplicates, Tag("rule:duplicates")]
    | Annotated[WindowRule, Tag("rule:window")],
    Discriminator(_kind_of_rule),
]
"""One rule. Rules about rows or their events apply in their order; explode must come before recur."""
RULES = tuple(union_members(Rule))
"""The keys that name the kind of a rule."""


class KeyColumn(Strict):
    """A column of the key: its bare name, or a block if it may be empty."""

    column: Text = Field(min_length=1)
    """The column's name."""
    optional: bool = False
    """The cell may be empty; the key then has an empty part."""


class KeyValue(Strict):
    """A part of the key made from a column; only steps whose results never change are allowed."""

    source: Referring = Field(alias="from", min_length=1)
    """A column's name, or $name for a named value that is a column with steps."""
    do: Do = ()
    optional: bool = False
    """The cell may be empty; the key then has an empty part."""


def _kind_of_key(value: object) -> str:
    if isinstance(value, dict):
        return "key:first_of" if "first_of" in value else "key:value" if "from" in value else "key:column"
    kinds: dict[type, str] = {KeyColumn: "key:column", KeyValue: "key:value", KeyChoice: "key:first_of"}
    return kinds.get(type(value), "key:text")


_Part = (
    Annotated[Annotated[Referring, Field(min_length=1)], Tag("key:text")]
    | Annotated[KeyColumn, Tag("key:column")]
    | Annotated[KeyValue, Tag("key:value")]
)
KeyPart = Annotated[_Part, Discriminator(_kind_of_key)]
"""A column's name, $name, or a block."""
KeyParts = Annotated[tuple[KeyPart, ...], OneOrMany(), Field(min_length=1)]


class KeyChoice(Strict):
    """Several keys, for files in which only some rows have an identifier. A row's key is the first one that it fills: a row
    whose identifier arrives later has another key, and is held until `eventsync resolve FEED KEY --same-as` moves its event.
    """

    first_of: tuple[KeyParts, ...]
    """Two to five keys, the most reliable first; each is one part, or a list of parts."""

    def check(self) -> None:
        if not 2 <= len(self.first_of) <= _MOST_KEYS:
            raise mistake(f"first_of chooses from two keys at least, and from {_MOST_KEYS} at most", "write the key without it")


KeyItem = Annotated[_Part | Annotated[KeyChoice, Tag("key:first_of")], Discriminator(_kind_of_key)]
"""A part of the key, or a choice of keys."""
