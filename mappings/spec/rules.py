"""Rules about rows as a mapping file spells them: which rows are wanted, what one row stands for, which belong together."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from mappings.spec.values import Condition, Do, Value
from mappings.strict import Duration, OneOrMany, Referring, Strict, Text, Texts, mistake, union_members

_MANY = 400
_MOST_KEYS = 5


class Skip(Strict):
    """Leave out the rows for which the condition holds."""

    skip: Condition
    because: Text = Field(min_length=1)
    """The label under which these rows are counted."""


class Keep(Strict):
    """Leave out the rows for which the condition does not hold."""

    keep: Condition
    because: Text = Field(min_length=1)
    """The label under which the other rows are counted."""


class Cancelled(Strict):
    """Leave out the rows whose event is off: what was sent before is listed as drift, to be withdrawn by hand."""

    cancelled: Condition
    because: Text = Field(default="cancelled", min_length=1)
    """The label under which these rows are counted (default: "cancelled")."""


class Assert(Strict):
    """Demand of every row that the condition holds."""

    asserted: Condition = Field(alias="assert")
    message: Text = Field(min_length=1)
    """What the partner's editor reads where it does not hold."""
    severity: Literal["reject", "warn", "draft"] = "reject"
    """What becomes of such a row: reject (the default), warn (it is sent, and listed), draft (sent as a draft)."""


class WindowSpan(Strict):
    """The span of time whose events are wanted, seen from the start of the run."""

    past: Literal["skip", "keep"] = "skip"
    """Events that are over: skip (the default) or keep."""
    horizon: Duration | None = None
    """Events that start later than this from now are left out."""
    longest: Duration | None = None
    """An event from startAt to endAt may last no longer than this."""
    on_longer: Literal["reject", "skip"] = "reject"
    """What becomes of one that lasts longer."""

    def check(self) -> None:
        if self.longest is None and self.on_longer != "reject":
            raise mistake("on_longer never applies: nothing says how long is too long", "write longest as well, or leave it out")


class WindowRule(Strict):
    """Leave out events that are over, too far ahead or too long, once their times are known. An `assert` after it rejects none
    of them; times that cannot be read reject the row.
    """

    window: WindowSpan


class Explosion(Strict):
    """The list that a row carries, and what tells its items apart."""

    columns: Texts = Field(min_length=1)
    """The column with the list, or several whose lists belong together, item by item; a list of one item holds for all. Each
    event sees its own item there, and as $item (of the first column)."""
    by: Texts | None = None
    """What stands between items; several separators may be named."""
    json_list: bool = Field(default=False, alias="json")
    """The cell is a JSON array; the fields of objects in DATES become columns named DATES.field."""
    key: Texts | None = None
    """The columns whose items tell the events of a row apart, for life: part of the key. Default: all `columns`; must be named
    where the items are objects."""
    at_most: int = Field(default=_MANY, ge=1, le=5_000)
    """A row with more items is rejected."""

    def check(self) -> None:
        if (self.by is None) is not self.json_list:
            raise mistake("the items are separated by something, or they are JSON", 'write by: ";" or json: true')
        if self.json_list and len(self.columns) > 1:
            raise mistake("one column can hold a JSON array", "lists that belong together are separated by something: by")
        if not self.json_list and self.key is not None and not set(self.key) <= set(self.columns):
            raise mistake("the key names a column that is not exploded", f"there are {', '.join(self.columns)}")


class Explode(Strict):
    """Make one event of each item of a list: a row with three dates becomes three events, each with a key of its own."""

    explode: Explosion


class Recurrence(Strict):
    """The days on which the event of a row happens; each becomes an event of its own, and sees its day as $day."""

    when: Condition | None = None
    """The rows that recur (default: all). Another row is one event, and its $day is `from`."""
    start: Value | None = Field(default=None, alias="from")
    """The first day: a date."""
    days: Value | None = None
    """In place of from, until and a rule: just these days, as the step dates gives them."""
    until: Value | None = None
    """The last day, itself included. Without one `horizon` is the end."""
    weekdays: Value | None = None
    """The days of the week: MO TU WE TH FR SA SU (default: every day)."""
    nth: Value | None = None
    """Which of these weekdays in their month: 1 is the first, -1 the last; several may be given."""
    rrule: Value | None = None
    """In place of weekdays and nth a rule as RFC 5545 writes it: FREQ=WEEKLY;INTERVAL=2;BYDAY=MO."""
    excluded: Value | None = Field(default=None, alias="except")
    """Days on which it does not happen: dates."""
    extra: Value | None = None
    """Days on which it happens besides: dates."""
    horizon: Duration | None = None
    """How far ahead, from now, days become events; later runs add more."""
    at_most: int = Field(default=_MANY, ge=1, le=5_000)
    """How many days a row may stand for."""
    on_more: Literal["reject", "omit", "warn"] = "reject"
    """What becomes of a row with more days: reject, or leave out the later ones (and warn)."""

    def check(self) -> None:
        if self.rrule is not None and (self.weekdays is not None or self.nth is not None):
            raise mistake("rrule and weekdays say the same thing twice", "write one of them")
        if self.nth is not None and self.weekdays is None:
            raise mistake("nth counts weekdays, and none are given", "write weekdays as well")
        if (self.start is None) is (self.days is None):
            raise mistake("a recurrence begins on a day, or names all of its days", "write from, or days")
        if self.days is not None and (self.until, self.weekdays, self.rrule, self.extra) != (None, None, None, None):
            raise mistake("days are all there are: until, weekdays, rrule and extra have nothing to add", "leave them out")
        if self.days is None and self.until is None and self.horizon is None:
            raise mistake("a recurrence needs an end", "write until, horizon or both")


class Recur(Strict):
    """Make one event of each day on which a row happens again; the row's key and the day are its key, for life."""

    recur: Recurrence


class Grouping(Strict):
    """What is gathered from the rows of one key."""

    collect: Texts = Field(min_length=1)
    """The fields of the event that are gathered from all rows, in the order of the file, each thing once: offers,
    classifications. All other fields are the first row's."""
    is_sorted: bool = Field(default=False, alias="sorted")
    """Rows of one key stand together in the file: nothing is held in memory."""


class Group(Strict):
    """Make one event of all rows with the same key, wherever they stand in the file."""

    group: Grouping


class Choosing(Strict):
    """Which of several rows with one key counts."""

    keep: Literal["first", "last", "newest"]
    """The first or the last of the file, or the newest."""
    by: Value | None = None
    """What tells the newest: a value that is a date, a moment or a number."""
    is_sorted: bool = Field(default=False, alias="sorted")
    """Rows of one key stand together in the file: nothing is held in memory."""

    def check(self) -> None:
        if (self.by is not None) is not (self.keep == "newest"):
            raise mistake("`by` and `keep: newest` belong together", "write both, or neither")


class Duplicates(Strict):
    """Choose among rows with the same key. Without this rule the same row said twice counts once, and rows that differ are
    rejected.
    """

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
"""One rule. Those that look at rows or their events apply in their order; explode comes before recur."""
RULES = tuple(union_members(Rule))
"""The keys that say what kind of rule a block is."""


class KeyColumn(Strict):
    """A column of the key: its bare name, or a block where it may be empty."""

    column: Text = Field(min_length=1)
    """The column's name."""
    optional: bool = False
    """An empty cell is a part of the key like any other."""


class KeyValue(Strict):
    """A part of the key that is made of a column: only steps whose results never change may stand here."""

    source: Referring = Field(alias="from", min_length=1)
    """A column's name, or $name for a named value that is such a column with its steps."""
    do: Do = ()
    optional: bool = False
    """An empty cell is a part of the key like any other."""


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
    """Several keys for files in which only some rows have an identifier: the first that a row fills is its key, and a row that is
    known by one of them keeps its key when another comes or goes.
    """

    first_of: tuple[KeyParts, ...]
    """Two to five keys, the surest first; each is one part, or a list of parts."""

    def check(self) -> None:
        if not 2 <= len(self.first_of) <= _MOST_KEYS:
            raise mistake(f"first_of chooses from two keys at least, and from {_MOST_KEYS} at most", "write the key without it")


KeyItem = Annotated[_Part | Annotated[KeyChoice, Tag("key:first_of")], Discriminator(_kind_of_key)]
"""A part of the key, or the keys to choose from."""
