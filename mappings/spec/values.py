"""Values in a mapping file: columns, constants, choices, moments, lookups, lists and objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self, Union, get_args

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, RootModel, Tag, ValidationInfo, model_validator

from mappings.lookup_table import Ignorable, normaliser
from mappings.positions import Loc
from mappings.steps import dates, durations, lists, lookups, numbers, text, times, urls, zones  # noqa: F401 - declare steps
from mappings.steps.lookups import Search, check_columns
from mappings.steps.step import FAMILIES, Step
from mappings.steps.urls import check_address
from mappings.steps.zones import Gap, Overlap
from mappings.strict import (
    Clock,
    OneOrMany,
    Pattern,
    PlainNumber,
    Policy,
    Referring,
    Strict,
    TableFile,
    Text,
    Texts,
    Zone,
    mistake,
    parse_zone,
    table_of,
    union_members,
)

STEPS: Mapping[str, type[Step]] = {step.name: step for family in FAMILIES.values() for step in family}
"""All steps that a mapping file may use, by name."""
_ALSO_CALLED = {"extract": "regex_extract"}
"""Other names of steps."""


def _kind_of_step(value: object) -> str:
    """Return the tag of a step by its name: a bare text, or the key of a block whose other keys are parameters."""
    match value:
        case str():
            return f"step:{value}"
        case Step():
            return f"step:{value.name}"
        case dict():
            name = next((key for key in value if key in STEPS or key in _ALSO_CALLED), next(iter(value), ""))
            return f"step:{_ALSO_CALLED.get(name, name)}"
        case _:
            return "step:"


if TYPE_CHECKING:
    AnyStep = Step
else:
    AnyStep = Annotated[
        Union[tuple(Annotated[step, Tag(f"step:{name}")] for name, step in STEPS.items())],  # noqa: UP007 - built from the catalogue
        Discriminator(_kind_of_step),
    ]


"""Any step, chosen by its name."""
TestName = Literal["equals", "among", "matches", "contains", "state", "before", "after", "less", "greater"]
"""The tests of a condition, by their field names."""
_FIELDS: tuple[TestName, ...] = get_args(TestName)
TEXT_TESTS: Mapping[TestName, str] = {"equals": "equals", "among": "in", "contains": "contains"}
"""The tests that compare texts, as a mapping file spells them."""


class Test(Strict):
    """A column or a named value, with tests that must all be true."""

    __test__ = False  # not a test class for pytest

    column: Text | None = None
    """The column to test."""
    value: Referring | None = None
    """The named value to test: $name."""
    equals: Referring | None = None
    """It is exactly this text, apart from surrounding space."""
    among: Texts | None = Field(default=None, alias="in", min_length=1)
    """It is one of these texts."""
    matches: Pattern | None = None
    """This regular expression (RE2) matches somewhere in it."""
    contains: Texts | None = Field(default=None, min_length=1)
    """It contains one of these texts (or the list has that item)."""
    state: Literal["present", "missing"] | None = Field(default=None, alias="is")
    """It is present, or it is missing (empty)."""
    before: Referring | None = None
    """It is earlier than this date, time or $name."""
    after: Referring | None = None
    """It is later than this date, time or $name."""
    less: PlainNumber | None = None
    """It is less than this number."""
    greater: PlainNumber | None = None
    """It is greater than this number."""
    ignore: Ignored = Field(
        default=(), description=f"Differences that are ignored by {', '.join(TEXT_TESTS.values())}; case also by matches."
    )

    @property
    def tests(self) -> tuple[TestName, ...]:
        """The tests that are set."""
        return tuple(name for name in _FIELDS if getattr(self, name) is not None)

    def __str__(self) -> str:
        spelt = (f"{type(self).model_fields[name].alias or name} {_spelt(getattr(self, name))}" for name in self.tests)
        return f"{self.column or self.value} {' and '.join(spelt)}"

    def check(self) -> None:
        if (self.column is None) == (self.value is None):
            raise mistake("a condition tests either a column or a value", 'write "column: NAME" or "value: $name"')
        if not self.tests:
            spelt = (type(self).model_fields[name].alias or name for name in _FIELDS)
            raise mistake("a condition needs a test", f"one of {', '.join(spelt)}")
        for part in self.contains or ():
            if not normaliser(self.ignore)(part):
                message = f'contains "{part}" is true of every row: nothing of the text is left to compare'
                raise mistake(message, "write the text to look for, or is: present for any text")
        if self.ignore and TEXT_TESTS.keys().isdisjoint(self.tests):
            if self.matches is None:
                hint = f"use it with {', '.join(TEXT_TESTS.values())} or matches"
                raise mistake("ignore never applies: nothing is compared as a text", hint)
            if set(self.ignore) - {"case"}:
                raise mistake(
                    "a pattern can ignore case only", "write ignore: [case], or write the characters into the pattern: [eé]"
                )
        if self.value is not None and not self.value.startswith("$"):
            raise mistake(f'"{self.value}" is not a named value', f'write "column: {self.value}" if the column is meant')


class All(Strict):
    """All of several conditions are true."""

    all: tuple[Condition, ...] = Field(min_length=1)

    def __str__(self) -> str:
        return f"all of ({'; '.join(map(str, self.all))})"


class Any(Strict):
    """At least one of several conditions is true."""

    any: tuple[Condition, ...] = Field(min_length=1)

    def __str__(self) -> str:
        return f"any of ({'; '.join(map(str, self.any))})"


class Not(Strict):
    """A condition is false."""

    negated: Condition = Field(alias="not")

    def __str__(self) -> str:
        return f"not ({self.negated})"


def _spelt(wanted: object) -> str:
    """Return a test's operand as a mapping file writes it: texts in quotes, except names and words of the language."""
    if isinstance(wanted, tuple):
        return f"[{', '.join(map(_spelt, wanted))}]"
    is_plain = not isinstance(wanted, str) or wanted.startswith("$") or wanted in {"present", "missing"}
    return str(wanted) if is_plain else f'"{wanted}"'


def _kind_of_condition(value: object) -> str:
    if isinstance(value, dict):
        return "when:" + next((key for key in ("all", "any", "not") if key in value), "test")
    return "when:" + type(value).__name__.lower()


Condition = Annotated[
    Annotated[Test, Tag("when:test")]
    | Annotated[All, Tag("when:all")]
    | Annotated[Any, Tag("when:any")]
    | Annotated[Not, Tag("when:not")],
    Discriminator(_kind_of_condition),
]
"""A condition about a row."""
_EMPTY = "What to do when there is nothing to use (default: reject)."
_ERROR = "What to do when a step refuses the value (default: reject)."
Do = Annotated[tuple[AnyStep, ...], OneOrMany(), Field(description="The steps that the value passes through, in order.")]
Ignored = Annotated[tuple[Ignorable, ...], OneOrMany()]


class Valued(Strict):
    """The policies that every value has: for an empty value, and for an unusable one."""

    on_empty: Policy | None = Field(default=None, description=_EMPTY)
    on_error: Policy | None = Field(default=None, description=_ERROR)


class From(Valued):
    """A column of the row, or a named value, with steps."""

    source: Referring = Field(alias="from", min_length=1)
    """A column's name, or $name for a named value."""
    do: Do = ()


class Meta(Valued):
    """A fact about a row other than its cells: its position, or the day on which the run started.

    Beware: if the fact changes with every run or move of the row, the event counts as changed as soon as one of its cells
    changes.
    """

    meta: Literal["row", "file", "tab", "run_date"]
    """row: its number in the source; file: its file; tab: its sheet; run_date: the day on which the run started."""
    zone: Zone | None = None
    """The zone that decides the day of the run (with run_date)."""
    do: Do = ()

    def check(self) -> None:
        if (self.meta == "run_date") is (self.zone is None):
            raise mistake(
                "run_date needs a zone, and only run_date",
                "write {meta: run_date, zone: Europe/Lisbon}; leave zone out with other names",
            )


ItemName = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]


class FirstOf(Valued):
    """The first of several values that is not empty; an unusable value before it still counts as refused."""

    first_of: tuple[Value, ...] = Field(min_length=1)
    """The values, in order of preference."""
    do: Do = ()


class Choice(Strict):
    """One branch: the value to use if its condition is true."""

    when: Condition
    then: Value


class Choose(Valued):
    """The value of the first branch whose condition is true, else that of `otherwise`, else an empty value."""

    choose: tuple[Choice, ...] = Field(min_length=1)
    """Branches of when and then, tried in order."""
    otherwise: Value | None = None
    """The value to use if no condition is true."""


def _check_zone(value: Value) -> Value:
    return parse_zone(value) if isinstance(value, str) and not value.startswith("$") else value


BeforeStart = Literal["reject", "omit", "warn", "draft", "next_day"]


class Wall(Strict):
    """A wall time: a day and a time in a zone. Without a clock it is an all-day event, which starts at `all_day`."""

    day: Value
    """A date (or a date and time, if there is no clock)."""
    clock: Value | None = None
    """A time of day."""
    zone: Annotated[Value, AfterValidator(_check_zone)]
    """The IANA zone of the time."""
    all_day: Clock | None = None
    """The time to use if there is no clock: 00:00."""
    sentinels: Annotated[tuple[Clock, ...], OneOrMany()] = ()
    """Times that mean the whole day, such as 00:01 and 23:59: treated as no clock."""
    exclusive: bool = False
    """Without a clock, the day is the first one after the event: use the day before it."""
    start: Value | None = None
    """For an end: the moment at which the event starts."""
    before_start: BeforeStart = "reject"
    """An end before `start`: reject, omit, warn (left out, counted and shown), draft (the same, and the event is sent as a
    draft), or next_day, if it is a time on the starting day that passed midnight (otherwise: reject).
    """
    gap: Gap = "reject"
    """A time that the clocks skip: reject, later or earlier."""
    overlap: Overlap = "earlier"
    """A time that occurs twice: earlier, later or reject."""

    def check(self) -> None:
        if self.all_day is None and (self.sentinels or self.exclusive):
            raise mistake("sentinels and exclusive apply to whole days only", 'give whole days a time, with all_day: "00:00"')
        if self.before_start != "reject" and self.start is None:
            raise mistake("before_start needs to know when the event starts", "add start: $starts, a moment named under let")
        if self.before_start == "next_day" and self.clock is None:
            raise mistake("before_start: next_day is for ends that have a clock", "choose reject, omit, warn or draft")


class At(Valued):
    """The moment of a wall time in a zone."""

    at: Wall


class Instant(Strict):
    """A moment, and the zone in which to show it."""

    moment: Value
    """A moment: a date and time read with its offset, as {datetime: "%Y-%m-%dT%H:%M:%S%z"} does."""
    zone: Annotated[Value, AfterValidator(_check_zone)]
    """The IANA zone to show it in."""


class InZoneValue(Valued):
    """A moment shown in a zone: the same instant with another offset (the step in_zone, for zones from a column)."""

    in_zone: Instant


class Later(Strict):
    """A moment, and the time that passes after it."""

    moment: Value
    """A moment, as `at` gives it: the start of the event."""
    length: Value
    """How much later, as the step `duration` reads it."""


class PlusValue(Valued):
    """A moment later by a length of time that the row says (the step plus, for lengths from a column)."""

    plus: Later


class TableValue(Valued):
    """A row of a CSV file found by several values at once; its first columns are the key, the others the result."""

    lookup: TableFile
    """The lookup file, a CSV with a header."""
    by: Annotated[tuple[Value, ...], OneOrMany()] = Field(min_length=1)
    """The values of the key columns, in the file's order."""
    take: Texts | None = None
    """The result columns (default: all others); several give an object."""
    ignore: Ignored = ()
    """Differences to ignore in keys."""
    many: bool = False
    """A key may have several rows: the result is a list."""
    on_miss: Policy | None = None
    """What to do with a key that is not in the file (default: reject)."""

    @model_validator(mode="after")
    def _check_columns(self, info: ValidationInfo) -> Self:
        check_columns(table_of(self.lookup, info), self.search)
        return self

    @property
    def search(self) -> Search:
        """The parameters of a search in the lookup file."""
        return Search(len(self.by), self.take, self.ignore, many=self.many)


class JoinedText(Valued):
    """Several values joined to one text, without empty pieces. Empty if all pieces except constants are: then the `on_empty`
    beside `join` decides, not that of a piece.
    """

    join: tuple[Value, ...] = Field(min_length=1)
    """The pieces, in order."""
    separator: Text = Field(default=" ", alias="with")
    """The separator."""
    do: Do = ()


class ChannelValue(Valued):
    """The id of the channel with this slug, as the service lists it."""

    channel: Value
    """The slug, or a value that gives it."""


class ImageValue(Strict):
    """The cover image by its address; it is fetched, checked and uploaded when the event is sent."""

    image: Value
    """The value with the picture's address; of several, the first usable one is used."""
    on_error: Literal["omit", "default", "draft", "reject"] = "omit"
    """If the picture is unusable: send without it, send the `default` picture, send a draft without it, or do not send."""
    default: Text | None = None
    """The address of the replacement picture, with `on_error: default`."""

    def check(self) -> None:
        if (self.on_error == "default") is (self.default is None):
            raise mistake("`default` and `on_error: default` belong together", "write both, or neither")
        if self.default is not None:
            check_address(self.default)


class ForEach(Valued):
    """A list in the payload with one entry for each item of a list, or of several parallel lists. Empty entries are left out."""

    for_each: Value
    """The list. If `as` has several names: as many parallel lists of the same length (keep empty parts with {split: X,
    keep_empty: true}).
    """
    names: Annotated[tuple[ItemName, ...], OneOrMany()] = Field(alias="as", min_length=1)
    """The name of the item in `give`: item for $item."""
    give: Value
    """The entry to make from each item."""

    def check(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise mistake("`as` has one name twice", "give the items of each list a different name")
        if len(self.names) > 1 and (not isinstance(self.for_each, Items) or len(self.for_each.root) != len(self.names)):
            raise mistake(
                f"`as` has {len(self.names)} names, and `for_each` another number of lists", "write for_each: [A, B], as: [a, b]"
            )


class Items(RootModel[Annotated[tuple["Value", ...], Field(min_length=1)]]):
    """A list of values; empty ones are left out."""

    model_config = {"frozen": True}


class Fields(RootModel[dict[str, "Value"]]):
    """An object: named fields with values. A dotted name is a field of an inner object; empty fields are left out."""

    model_config = {"frozen": True}

    def unfolded(self, loc: Loc = ()) -> tuple[dict[str, object], list[Loc]]:
        """Return the nested fields, each with its value and position, and the positions of fields that are set twice."""
        root: dict[str, object] = {}
        taken: list[Loc] = []
        for dotted, value in self.root.items():
            *outer, last = dotted.split(".")
            branch: object = root
            for name in outer:
                branch = branch.setdefault(name, {}) if isinstance(branch, dict) else branch
            place = (*loc, dotted)
            if not isinstance(branch, dict) or last in branch or not all((*outer, last)):
                taken.append(place)
            elif isinstance(value, Fields):
                branch[last], inside = value.unfolded(place)
                taken += inside
            else:
                branch[last] = (value, place)
        return root, taken


class ListEntry(Strict):
    """An object in a list of the payload, sent only under a condition or with certain fields.

    Its other keys are its fields. Like any object in a list, it is left out if all its values from the row are empty.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Value]

    when: Condition | None = None
    """Leave the object out if this condition is false."""
    require: Annotated[tuple[Text, ...], OneOrMany()] = ()
    """Leave the object out if one of these fields is empty."""

    @property
    def fields(self) -> Fields:
        """The fields of the object."""
        return Fields.model_construct(self.__pydantic_extra__)


COMPANIONS = ("do", "on_empty", "on_error", "on_miss", "by", "take", "otherwise", "ignore", "many", "default", "as", "give")
"""Keys that accompany a marker, and never occur in an object of the payload."""


def _kind_of_value(value: object) -> str:
    if isinstance(value, str):
        return "value:text"
    if isinstance(value, list | tuple | Items):
        return "value:list"
    if not isinstance(value, dict):
        return "value:object" if isinstance(value, Fields) else "value:" + type(value).__name__
    marker = next((marker for marker in MARKERS if marker in value), None)
    if marker is None and ("when" in value or "require" in value):
        return "value:entry"
    if marker is None and any(companion in value for companion in COMPANIONS):
        return f"value:{next((key for key in value if key not in COMPANIONS), next(iter(value)))}"
    return "value:" + (marker or "object")


Value = Annotated[
    Annotated[Referring, Tag("value:text")]
    | Annotated[Items, Tag("value:list")]
    | Annotated[Fields, Tag("value:object")]
    | Annotated[From, Tag("value:from")]
    | Annotated[FirstOf, Tag("value:first_of")]
    | Annotated[Choose, Tag("value:choose")]
    | Annotated[At, Tag("value:at")]
    | Annotated[InZoneValue, Tag("value:in_zone")]
    | Annotated[PlusValue, Tag("value:plus")]
    | Annotated[TableValue, Tag("value:lookup")]
    | Annotated[JoinedText, Tag("value:join")]
    | Annotated[ChannelValue, Tag("value:channel")]
    | Annotated[ImageValue, Tag("value:image")]
    | Annotated[ForEach, Tag("value:for_each")]
    | Annotated[ListEntry, Tag("value:entry")]
    | Annotated[Meta, Tag("value:meta")],
    Discriminator(_kind_of_value),
]
"""A constant text, `$name`, a list, an object, or a block that gives the value's source."""
MARKERS = tuple(word for word in union_members(Value) if word not in {"text", "list", "object", "entry"})
"""The keys that name the kind of a value."""
