"""Values as a mapping file spells them: columns, constants, choices, moments, lookups, lists and objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self, Union, get_args

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, RootModel, Tag, ValidationInfo, model_validator

from mappings.lookup_table import Ignorable
from mappings.positions import Loc
from mappings.steps import dates, lists, lookups, numbers, text, times, urls, zones  # noqa: F401 - declare steps
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
"""All steps that a mapping file may name: one class or function each in a module of steps."""
_ALSO_CALLED = {"extract": "regex_extract"}
"""Steps that are known by another name, too."""


def _kind_of_step(value: object) -> str:
    """Name a step as the file writes it: bare, or as the key of a block whose other keys are its parameters."""
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


"""Any step; its name says which."""
TestName = Literal["equals", "among", "matches", "contains", "state", "before", "after", "less", "greater"]
"""The tests of a condition, by their fields."""
_FIELDS: tuple[TestName, ...] = get_args(TestName)


class Test(Strict):
    """One column or named value, and what must be true of it: every test named must hold."""

    __test__ = False  # pytest need not look inside

    column: Text | None = None
    """The column to look at."""
    value: Referring | None = None
    """The named value to look at: $name."""
    equals: Referring | None = None
    """It is exactly this text (surrounding space does not count)."""
    among: Texts | None = Field(default=None, alias="in", min_length=1)
    """It is one of these texts."""
    matches: Pattern | None = None
    """This regular expression (RE2) finds something in it."""
    contains: Texts | None = None
    """It contains one of these texts (or the list has that item)."""
    state: Literal["present", "missing"] | None = Field(default=None, alias="is")
    """It is there, or it is empty."""
    before: Referring | None = None
    """It is earlier than this date, time or $name."""
    after: Referring | None = None
    """It is later than this date, time or $name."""
    less: PlainNumber | None = None
    """It is less than this number."""
    greater: PlainNumber | None = None
    """It is greater than this number."""
    ignore: Ignored = ()
    """Differences that do not count for equals, in and contains; case also for matches."""

    @property
    def tests(self) -> tuple[TestName, ...]:
        """The tests that are named."""
        return tuple(name for name in _FIELDS if getattr(self, name) is not None)

    def __str__(self) -> str:
        spelt = (f"{type(self).model_fields[name].alias or name} {_spelt(getattr(self, name))}" for name in self.tests)
        return f"{self.column or self.value} {' and '.join(spelt)}"

    def check(self) -> None:
        if (self.column is None) == (self.value is None):
            raise mistake("a condition looks at one column or at one value", 'write "column: NAME" or "value: $name"')
        if not self.tests:
            spelt = (type(self).model_fields[name].alias or name for name in _FIELDS)
            raise mistake("a condition needs a test", f"one of {', '.join(spelt)}")
        if self.ignore and self.equals is None and self.among is None and self.contains is None:
            if self.matches is None:
                raise mistake(
                    "ignore never applies: nothing is compared as a text", "it stands beside equals, in, contains or matches"
                )
            if set(self.ignore) - {"case"}:
                raise mistake("a pattern can ignore case only", "write ignore: [case], or the signs into the pattern: [eé]")
        if self.value is not None and not self.value.startswith("$"):
            raise mistake(f'"{self.value}" is not a named value', f'write "column: {self.value}" if the column is meant')


class All(Strict):
    """All of several conditions hold."""

    all: tuple[Condition, ...] = Field(min_length=1)

    def __str__(self) -> str:
        return f"all of ({'; '.join(map(str, self.all))})"


class Any(Strict):
    """At least one of several conditions holds."""

    any: tuple[Condition, ...] = Field(min_length=1)

    def __str__(self) -> str:
        return f"any of ({'; '.join(map(str, self.any))})"


class Not(Strict):
    """A condition does not hold."""

    negated: Condition = Field(alias="not")

    def __str__(self) -> str:
        return f"not ({self.negated})"


def _spelt(wanted: object) -> str:
    """Write what a test wants as a mapping file does: texts in quotes, but for names and words of the language."""
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
"""What must be true of a row."""
_EMPTY = "What to do when there is nothing to use (default: reject)."
_ERROR = "What to do when a step refuses the value (default: reject)."
Do = Annotated[tuple[AnyStep, ...], OneOrMany(), Field(description="The steps that the value passes through, in order.")]
Ignored = Annotated[tuple[Ignorable, ...], OneOrMany()]


class Valued(Strict):
    """What every value has: a choice for nothing to use, and one for something unusable."""

    on_empty: Policy | None = Field(default=None, description=_EMPTY)
    on_error: Policy | None = Field(default=None, description=_ERROR)


class From(Valued):
    """A column of the row, or a named value, passed through steps."""

    source: Referring = Field(alias="from", min_length=1)
    """A column's name, or $name for a named value."""
    do: Do = ()


class Meta(Valued):
    """What is known of a row beside its cells: where it stands, and the day on which the run started.

    A value that changes with every run or every move of a row makes the event look changed as soon as a cell of it changes.
    """

    meta: Literal["row", "file", "tab", "run_date"]
    """row: its number in the source; file: its file; tab: its sheet; run_date: the day of the run's start."""
    zone: Zone | None = None
    """The zone whose calendar says the day of the run (with run_date)."""
    do: Do = ()

    def check(self) -> None:
        if (self.meta == "run_date") is (self.zone is None):
            raise mistake("a day belongs to a zone", "write both, {meta: run_date, zone: Europe/Lisbon}; the others have no zone")


ItemName = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]


class FirstOf(Valued):
    """The first of several values that is not empty; one that is unusable is still refused."""

    first_of: tuple[Value, ...] = Field(min_length=1)
    """The values, in order of preference."""
    do: Do = ()


class Choice(Strict):
    """One branch: what to use when its condition holds."""

    when: Condition
    then: Value


class Choose(Valued):
    """The value of the first branch whose condition holds, else that of `otherwise`, else nothing."""

    choose: tuple[Choice, ...] = Field(min_length=1)
    """Branches of when and then, tried in order."""
    otherwise: Value | None = None
    """What to use when no condition holds."""


def _check_zone(value: Value) -> Value:
    return parse_zone(value) if isinstance(value, str) and not value.startswith("$") else value


BeforeStart = Literal["reject", "omit", "warn", "draft", "next_day"]


class Wall(Strict):
    """A wall time: what the clocks of a zone show. Without a clock it is an all-day event, if `all_day` says when it begins."""

    day: Value
    """A date (or a date and time, if there is no clock)."""
    clock: Value | None = None
    """A time of day."""
    zone: Annotated[Value, AfterValidator(_check_zone)]
    """The IANA zone whose clocks are meant."""
    all_day: Clock | None = None
    """The time to use without a clock: 00:00."""
    sentinels: Annotated[tuple[Clock, ...], OneOrMany()] = ()
    """Times that only stand for the whole day, such as 00:01 and 23:59: as if there were no clock."""
    exclusive: bool = False
    """Without a clock, the day is the first one after the event: the day before it is meant."""
    start: Value | None = None
    """Of an end: the moment at which the event starts."""
    before_start: BeforeStart = "reject"
    """An end before `start`: reject, omit, warn (left out, counted and shown), draft (so, and the event is sent as a draft),
    or next_day, where it is a clock of the starting day that went past midnight (else: reject)."""
    gap: Gap = "reject"
    """A time that the clocks jump over: reject, later or earlier."""
    overlap: Overlap = "earlier"
    """A time that happens twice: earlier, later or reject."""

    def check(self) -> None:
        if self.all_day is None and (self.sentinels or self.exclusive):
            raise mistake("sentinels and exclusive speak of whole days", 'say at what time those stand, with all_day: "00:00"')
        if self.before_start != "reject" and self.start is None:
            raise mistake("before_start needs to know when the event starts", "add start: $starts, a moment named under let")
        if self.before_start == "next_day" and self.clock is None:
            raise mistake("before_start: next_day is for ends that have a clock", "choose reject, omit, warn or draft")


class At(Valued):
    """The moment at which the clocks of a zone show a day and a time."""

    at: Wall


class Instant(Strict):
    """A moment, and the zone whose clocks show it."""

    moment: Value
    """A moment: a date and time read with its offset, as {datetime: "%Y-%m-%dT%H:%M:%S%z"} does."""
    zone: Annotated[Value, AfterValidator(_check_zone)]
    """The IANA zone to show it in."""


class InZoneValue(Valued):
    """A moment as the clocks of a zone show it: the same instant, another offset (the step in_zone, for zones from a column)."""

    in_zone: Instant


class TableValue(Valued):
    """What a CSV file says of several values at once; its first columns are the key, the others the result."""

    lookup: TableFile
    """The lookup file, a CSV with a header."""
    by: Annotated[tuple[Value, ...], OneOrMany()] = Field(min_length=1)
    """The values of the key columns, in the file's order."""
    take: Texts | None = None
    """The result columns (default: all others); several give an object."""
    ignore: Ignored = ()
    """Differences that do not count in keys."""
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
        """How the file is searched."""
        return Search(len(self.by), self.take, self.ignore, many=self.many)


class JoinedText(Valued):
    """Several values in one text; a separator vanishes beside an empty one. Empty where all pieces but the constants are."""

    join: tuple[Value, ...] = Field(min_length=1)
    """The pieces, in order."""
    separator: Text = Field(default=" ", alias="with")
    """What stands between them."""
    do: Do = ()


class ChannelValue(Valued):
    """The id of the channel with this slug, as the service lists it."""

    channel: Value
    """The slug, or the value that gives it."""


class ImageValue(Strict):
    """The cover image: its address; the picture is fetched, checked and uploaded when the event is sent."""

    image: Value
    """The value that gives the picture's address; of several, the first usable one counts."""
    on_error: Literal["omit", "default", "draft", "reject"] = "omit"
    """When the picture cannot be used: send without it, send the `default` one in its place, send a draft without it, or do
    not send."""
    default: Text | None = None
    """The address of the picture that stands in, with `on_error: default`."""

    def check(self) -> None:
        if (self.on_error == "default") is (self.default is None):
            raise mistake("`default` and `on_error: default` belong together", "write both, or neither")
        if self.default is not None:
            check_address(self.default)


class ForEach(Valued):
    """A list in the payload: one thing for each item of a list, or of several lists side by side. Empty things are left out."""

    for_each: Value
    """The list. Where `as` has several names: as many lists, whose first items belong together, and so on; they are as long as
    each other (keep empty parts with {split: X, keep_empty: true})."""
    names: Annotated[tuple[ItemName, ...], OneOrMany()] = Field(alias="as", min_length=1)
    """What the item is called in `give`: item for $item."""
    give: Value
    """What is made of each item."""

    def check(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise mistake("one name stands twice under `as`", "give each list's item a name of its own")
        if len(self.names) > 1 and (not isinstance(self.for_each, Items) or len(self.for_each.root) != len(self.names)):
            raise mistake(
                f"`as` has {len(self.names)} names, and `for_each` not as many lists", "write for_each: [A, B], as: [a, b]"
            )


class Items(RootModel[Annotated[tuple["Value", ...], Field(min_length=1)]]):
    """A list of values; empty ones are left out."""

    model_config = {"frozen": True}


class Fields(RootModel[dict[str, "Value"]]):
    """An object: named fields, each with its value. A dotted name reaches into an object; empty fields are left out."""

    model_config = {"frozen": True}

    def unfolded(self, loc: Loc = ()) -> tuple[dict[str, object], list[Loc]]:
        """Return each name with its value and place, or the names inside it; and the places of what is filled twice."""
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
    """An object in a list of the payload that is wanted only under a condition, or only with some of its fields.

    Its other keys are its fields. It is left out, as any object in a list, where all that comes from the row is empty.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Value]

    when: Condition | None = None
    """Leave the object out where this does not hold."""
    require: Annotated[tuple[Text, ...], OneOrMany()] = ()
    """Leave the object out where one of these fields of it is empty."""

    @property
    def fields(self) -> Fields:
        """Its fields."""
        return Fields.model_construct(self.__pydantic_extra__)


COMPANIONS = ("do", "on_empty", "on_error", "on_miss", "by", "take", "otherwise", "ignore", "many", "default", "as", "give")
"""Keys that stand beside a marker, and never in an object of the payload."""


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
    | Annotated[TableValue, Tag("value:lookup")]
    | Annotated[JoinedText, Tag("value:join")]
    | Annotated[ChannelValue, Tag("value:channel")]
    | Annotated[ImageValue, Tag("value:image")]
    | Annotated[ForEach, Tag("value:for_each")]
    | Annotated[ListEntry, Tag("value:entry")]
    | Annotated[Meta, Tag("value:meta")],
    Discriminator(_kind_of_value),
]
"""A constant text, `$name`, a list, an object, or a block that says where the value comes from."""
MARKERS = tuple(word for word in union_members(Value) if word not in {"text", "list", "object", "entry"})
"""The keys that say what kind of value a block is."""
