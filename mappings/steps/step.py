"""The base of steps: a model of parameters with examples in its docstring, compiled to one pure function of a value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import StrEnum
from inspect import cleandoc
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field, TypeAdapter, create_model, model_validator

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
"""The longest text that a pattern may search, in characters."""
_Plain = TypeVar("_Plain", bound=Run)
_DURATION: TypeAdapter[timedelta] = TypeAdapter(timedelta)
_EXAMPLE = re.compile(r"^ *(\{.*\}|\w+):\s+([\"\[].*?)\s+-> (.+)$", re.MULTILINE)


class Kind(StrEnum):
    """The kind of a value between steps. `WALL` is a date and time without a zone, `MOMENT` one with an offset.

    A step that gives `ANY` returns the kind of its input; `UNKNOWN` depends on the row.
    """

    TEXT = "text"
    DATE = "date"
    CLOCK = "time of day"
    WALL = "date and time without zone"
    MOMENT = "moment"
    DURATION = "length of time"
    NUMBER = "number"
    OBJECT = "object"
    BOOLEAN = "yes or no"
    LIST = "list"
    UNKNOWN = "a kind that depends on the row"
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
"""All steps by family, in the order in which their modules register them."""


@dataclass(frozen=True, slots=True)
class StepExample:
    """An example from a step's docstring: the step as in a mapping file, the input and the result.

    `comes_out`: the result as text (ISO for times), a tuple for lists, or the code of the refusal.
    """

    step: str
    goes_in: str | tuple[str, ...]
    comes_out: str | tuple[str, ...] | ReasonCode


class Step(Strict):
    """The base of all steps. A text step that meets a list works on each of its items.

    The class arguments give the step's name and family, the kinds that it takes and gives, the kind of the items of a list that
    it gives (`lists`), and whether it may refuse a value of the right kind. The docstring ends with examples, one per line:
    `{step: parameter}: "input" -> "output"` in JSON, or the code of a refusal. Subclasses implement `apply`; `function`, to
    prepare something once; or `compile`, to use lookup files.
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
            raise mistake(f'the step "{cls.name}" needs parameters', f"write it like {cls.examples[0].step}")
        return {}

    def apply(self, value: Any, /) -> Any:
        """Return the step's result for a value, or raise Refusal."""
        raise NotImplementedError

    def function(self) -> Run:
        """Return the step as a function of one value."""
        return self.apply

    def compile(self, tables: Mapping[str, Table]) -> Run:  # noqa: ARG002 - for lookups
        """Return the step as a function of one value; `tables` are the mapping's lookup files by name."""
        return self.function()

    @property
    def result(self) -> Kind:
        """The kind of the result; it may depend on the parameters."""
        return self.gives

    @property
    def gives_several(self) -> bool:
        """Whether the step may give a list for one value."""
        return False

    def misfit(self, kind: Kind) -> str:  # noqa: ARG002 - for steps that take anything, and can use only some of it
        """Return why this step cannot work on a kind, "" if it can; for steps that take any kind."""
        return ""

    @property
    def policy(self) -> Policy | None:
        """The author's policy for a value that this step refuses."""
        return self.on_error

    @property
    def leaves_refusals(self) -> bool:
        """Whether refusals of this step are decided by the value's own policy."""
        return self.refuses and self.policy is None

    @property
    def works_on_empty(self) -> bool:
        """Whether the step has a result for an empty value."""
        return False


def _parse_example(text: str) -> Any:
    value = json.loads(text) if text[0] in '"[' else ReasonCode(text)
    return tuple(value) if isinstance(value, list) else value


def plain_step(
    name: str, family: Family, *, takes: Kind = Kind.TEXT, gives: Kind = Kind.TEXT, refuses: bool = True
) -> Callable[[_Plain], _Plain]:
    """Declare a function as a step without parameters; the function's docstring becomes the step's."""

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
        Refusal: it is too long for a pattern.
    """
    if len(text) > LONGEST:
        raise Refusal(ReasonCode.TOO_LONG, f"at most {LONGEST} characters can be searched by a pattern")
    return text


@plain_step("to_text", Family.KINDS, takes=Kind.ANY)
def text_of(value: Any) -> str:
    """Convert a number, date, time, length of time or boolean to text: plain digits with a point, ISO 8601, true or false.

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
        case timedelta():
            return str(_DURATION.dump_python(value, mode="json"))
        case _:
            raise Refusal(ReasonCode.BAD_TEXT, "one text, number, date or time is needed here; `part` takes one of an object")
