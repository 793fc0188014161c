"""Conditions as a mapping file spells them: tests of one column or value, and their combinations."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import Discriminator, Field, Tag, model_validator

from mappings.lookup_table import Ignorable
from mappings.measures import OneOrMany, Pattern, PlainNumber, Text, Texts, mistake
from mappings.strict import Referring, Strict

TestName = Literal["equals", "among", "matches", "contains", "state", "before", "after", "less", "greater"]
"""The tests of a condition, by their fields."""
_FIELDS: tuple[TestName, ...] = get_args(TestName)


class Test(Strict):
    """One column or named value, and what must be true of it: every test named must hold."""

    __test__ = False  # pytest need not look inside

    column: Text | None = Field(default=None, description="The column to look at.")
    value: Referring | None = Field(default=None, description="The named value to look at: $name.")
    equals: Referring | None = Field(default=None, description="It is exactly this text (surrounding space does not count).")
    among: Texts | None = Field(default=None, alias="in", min_length=1, description="It is one of these texts.")
    matches: Pattern | None = Field(default=None, description="This regular expression (RE2) finds something in it.")
    contains: Texts | None = Field(default=None, description="It contains one of these texts (or the list has that item).")
    state: Literal["present", "missing"] | None = Field(default=None, alias="is", description="It is there, or it is empty.")
    before: Referring | None = Field(default=None, description="It is earlier than this date, time or $name.")
    after: Referring | None = Field(default=None, description="It is later than this date, time or $name.")
    less: PlainNumber | None = Field(default=None, description="It is less than this number.")
    greater: PlainNumber | None = Field(default=None, description="It is greater than this number.")
    ignore: Annotated[tuple[Ignorable, ...], OneOrMany()] = Field(
        default=(), description="Differences that do not count for equals, in and contains; case also for matches."
    )

    @property
    def tests(self) -> tuple[TestName, ...]:
        """The tests that are named."""
        return tuple(name for name in _FIELDS if getattr(self, name) is not None)

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
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
        return self


class All(Strict):
    """All of several conditions hold."""

    all: tuple[Condition, ...] = Field(min_length=1)


class Any(Strict):
    """At least one of several conditions holds."""

    any: tuple[Condition, ...] = Field(min_length=1)


class Not(Strict):
    """A condition does not hold."""

    negated: Condition = Field(alias="not")


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
