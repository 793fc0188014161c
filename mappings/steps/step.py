"""A step is a model of its parameters, with examples in its docstring, that compiles to one pure function of one value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from enum import StrEnum
from inspect import cleandoc
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field, create_model, model_validator

from mappings.lookup_table import Ignorable, Table
from mappings.reasons import ReasonCode, Refusal
from mappings.strict import OneOrMany, Policy, Strict, Switch, mistake
from mappings.zones import EndOfDay

Run = Callable[[Any], Any]
"""A compiled step: takes a value of the kind that the step takes, returns its result, raises Refusal."""
Ignore = Annotated[
    tuple[Ignorable, ...],
    OneOrMany(),
    Field(description="Differences that do not count: case, accents, spaces, punctuation."),
]
LONGEST = 20_000
"""More characters are not searched by a pattern."""
_Plain = TypeVar("_Plain", bound=Run)
_EXAMPLE = re.compile(r"^ *(\{.*\}|\w+):\s+([\"\[].*?)\s+-> (.+)$", re.MULTILINE)


class Kind(StrEnum):
    """What is passed between steps. `WALL` is a date and time without a zone, `MOMENT` one with an offset.

    A step that gives `ANY` gives the kind that it was given; one that gives `UNKNOWN`, any kind at all.
    """

    TEXT = "text"
    DATE = "date"
    CLOCK = "time of day"
    WALL = "date and time without zone"
    MOMENT = "moment"
    NUMBER = "number"
    OBJECT = "object"
    BOOLEAN = "yes or no"
    LIST = "list"
    UNKNOWN = "what only the row tells"
    ANY = "anything"


class Family(StrEnum):
    """The chapters of the reference page, in their order."""

    TEXT = "Text"
    LETTERS = "Letters"
    MARKUP = "Mark-up"
    PATTERNS = "Patterns"
    LISTS = "Lists"
    TIMES = "Dates and times"
    RANGES = "Ranges and lists of days"
    MOMENTS = "Moments"
    LOOKUPS = "Lookups"
    ADDRESSES = "Web addresses"
    NUMBERS = "Numbers"
    KINDS = "Kinds"


FAMILIES: Mapping[Family, list[type[Step]]] = {family: [] for family in Family}
"""All steps, as their modules declare them."""


@dataclass(frozen=True, slots=True)
class StepExample:
    """An example from a step's docstring: the step as a file writes it, what goes in, what comes out.

    `comes_out` is the text of the result (an ISO form for times), a tuple for lists, or the code of the refusal.
    """

    step: str
    goes_in: str | tuple[str, ...]
    comes_out: str | tuple[str, ...] | ReasonCode


class Step(Strict):
    """The base of all steps. A text step that meets a list works on each of its items.

    The class line has the step's name and family, the kinds that it takes and gives, the kind of the items of a list that it
    gives (`lists`), and whether it may refuse a value of the kind that it takes. The docstring ends with its examples, one a
    line, as `{step: parameter}: "what goes in" -> "what comes out"` in JSON, or the code of a refusal. What it does is its
    `apply`; or, where something can be prepared once, its `function`; or, if it reads lookup files, its `compile`.
    """

    name: ClassVar[str]
    takes: ClassVar[Kind] = Kind.TEXT
    gives: ClassVar[Kind] = Kind.TEXT
    lists: ClassVar[Kind] = Kind.TEXT
    refuses: ClassVar[bool] = True
    examples: ClassVar[tuple[StepExample, ...]]

    def __init_subclass__(  # noqa: PLR0913 - the words of a class line
        cls,
        *,
        name: str = "",
        family: Family | None = None,
        takes: Kind = Kind.TEXT,
        gives: Kind = Kind.TEXT,
        lists: Kind = Kind.TEXT,
        refuses: bool = True,
        apply: Run | None = None,
    ) -> None:
        super().__init_subclass__()
        cls.name, cls.takes, cls.gives, cls.lists, cls.refuses = name, takes, gives, lists, refuses
        if apply is not None:
            cls.apply = staticmethod(apply)  # type: ignore[method-assign, assignment] # a step without parameters
        if family is not None:
            if all(getattr(cls, way) is getattr(Step, way) for way in ("apply", "function", "compile")):
                raise TypeError(f'the step "{name}" does nothing: it needs `apply`, `function` or `compile`')
            FAMILIES[family].append(cls)
            cls.__doc__, _, examples = cleandoc(cls.__doc__ or "").partition("\n\nExamples:\n")
            cls.examples = tuple(
                StepExample(step, _parse_example(goes_in), _parse_example(comes_out))
                for step, goes_in, comes_out in _EXAMPLE.findall(examples)
            )

    on_error: Policy | None = Field(default=None, description="What to do when this step refuses a value (default: reject).")

    @model_validator(mode="before")
    @classmethod
    def _open_bare_name(cls, value: object) -> object:
        """Accept `trim` for a step without parameters."""
        if not isinstance(value, str):
            return value
        if any(parameter.is_required() for parameter in cls.model_fields.values()):
            raise mistake(f'the step "{cls.name}" needs to know more', f"write it like {cls.examples[0].step}")
        return {}

    def apply(self, value: Any, /) -> Any:
        """Return what the step makes of a value, or raise Refusal."""
        raise NotImplementedError

    def function(self) -> Run:
        """Return the step as a function of one value."""
        return self.apply

    def compile(self, tables: Mapping[str, Table]) -> Run:  # noqa: ARG002 - for lookups
        """Return the step as a function of one value; `tables` are the lookup files that the mapping names, by name."""
        return self.function()

    @property
    def result(self) -> Kind:
        """What this very step gives: some steps give one thing or another, as their parameters say."""
        return self.gives

    @property
    def gives_several(self) -> bool:
        """Whether it may give a list for one value."""
        return False

    def misfit(self, kind: Kind) -> str:  # noqa: ARG002 - for steps that take anything, and can use only some of it
        """Say why this step can do nothing with that kind, where it takes anything; "" where it can."""
        return ""

    @property
    def policy(self) -> Policy | None:
        """What the author chose for a value that this step refuses."""
        return self.on_error

    @property
    def leaves_refusals(self) -> bool:
        """Whether the policy of the value decides about a value that this step refuses."""
        return self.refuses and self.policy is None

    @property
    def works_on_empty(self) -> bool:
        """Whether it has a result for an empty value."""
        return False


def _parse_example(text: str) -> Any:
    value = json.loads(text) if text[0] in '"[' else ReasonCode(text)
    return tuple(value) if isinstance(value, list) else value


def plain_step(
    name: str, family: Family, *, takes: Kind = Kind.TEXT, gives: Kind = Kind.TEXT, refuses: bool = True
) -> Callable[[_Plain], _Plain]:
    """Declare a function as a step without parameters; its docstring is that of the step."""

    def declare(function: _Plain) -> _Plain:
        kinds = {"takes": takes, "gives": gives, "refuses": refuses}
        create_model(
            name.title().replace("_", ""),
            __base__=Step,
            __doc__=function.__doc__,
            __module__=function.__module__,
            __cls_kwargs__={"name": name, "family": family, "apply": function, **kinds},
            switch=(Switch, Field(default=True, alias=name)),
        )
        return function

    return declare


def short_enough(text: str) -> str:
    """Return the text itself.

    Raises:
        Refusal: it is longer than a pattern may look at.
    """
    if len(text) > LONGEST:
        raise Refusal(ReasonCode.TOO_LONG, f"at most {LONGEST} characters can be searched by a pattern")
    return text


@plain_step("to_text", Family.KINDS, takes=Kind.ANY)
def text_of(value: Any) -> str:
    """Write a number, a date, a time or yes and no as a text: plain digits with a point, ISO 8601, true and false.

    Examples:
        to_text: "jazz" -> "jazz"
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
        case int():
            return str(value)
        case date() | time() | EndOfDay():
            return value.isoformat()
        case _:
            raise Refusal(ReasonCode.BAD_TEXT, "one text, number, date or time is needed here; `part` takes one of an object")
