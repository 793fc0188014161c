"""What every step is: a model of its parameters, with examples, that compiles to one pure function of one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Field, model_validator

from mappings.lookup_table import Table
from mappings.measures import mistake
from mappings.refusals import ReasonCode
from mappings.strict import Policy, Strict

Run = Callable[[Any], Any]
"""A compiled step: takes what it was promised, returns its result, raises Refusal."""


class Kind(StrEnum):
    """What travels between steps. `WALL` is a date and time without a zone, `MOMENT` one with an offset.

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


@dataclass(frozen=True, slots=True)
class StepExample:
    """An example in a step's own declaration: the step as a file writes it, what goes in, what comes out.

    `comes_out` is the text of the result (an ISO form for times), a tuple for lists, or the code of the refusal.
    """

    step: str
    goes_in: str | tuple[str, ...]
    comes_out: str | tuple[str, ...] | ReasonCode


class Step(Strict):
    """The base of all steps. A text step that meets a list works on each of its items.

    A step says in its class line its name, the kinds that it takes and gives, the kind of the items of a list that it gives
    (`lists`), and whether it may refuse a value of the kind that it takes; `shown` are its examples.
    """

    name: ClassVar[str]
    takes: ClassVar[Kind] = Kind.TEXT
    gives: ClassVar[Kind] = Kind.TEXT
    lists: ClassVar[Kind] = Kind.TEXT
    refuses: ClassVar[bool] = True
    shown: ClassVar[tuple[StepExample, ...]]

    def __init_subclass__(
        cls,
        *,
        name: str = "",
        takes: Kind = Kind.TEXT,
        gives: Kind = Kind.TEXT,
        lists: Kind = Kind.TEXT,
        refuses: bool = True,
    ) -> None:
        super().__init_subclass__()
        cls.name, cls.takes, cls.gives, cls.lists, cls.refuses = name, takes, gives, lists, refuses

    on_error: Policy | None = Field(default=None, description="What to do when this step refuses a value (default: reject).")

    @model_validator(mode="before")
    @classmethod
    def _open_bare_name(cls, value: object) -> object:
        """Accept `trim` for a step without parameters."""
        if not isinstance(value, str):
            return value
        if any(parameter.is_required() for parameter in cls.model_fields.values()):
            raise mistake(f'the step "{cls.name}" needs to know more', f"write it like {cls.shown[0].step}")
        return {}

    def function(self) -> Run:
        """Return the step as a function of one value."""
        raise NotImplementedError

    def compile(self, tables: Mapping[str, Table]) -> Run:  # noqa: ARG002 - the steps that look things up need them
        """Return the function of one value; `tables` are the lookup files that the mapping names, by name."""
        return self.function()

    @property
    def result(self) -> Kind:
        """What this very step gives: some steps give one thing or another, as their parameters say."""
        return self.gives

    @property
    def gives_several(self) -> bool:
        """Whether it may give a list for one value."""
        return False

    def misfit(self, kind: Kind) -> str:  # noqa: ARG002 - the steps that take anything, and can use only some of it, say so
        """Say why this step can do nothing with that kind, where it takes anything; "" where it can."""
        return ""

    @property
    def policy(self) -> Policy | None:
        """What the author chose for a value that this step refuses."""
        return self.on_error

    @property
    def leaves_refusals(self) -> bool:
        """Whether what becomes of a value that it refuses is said by the value that it stands in."""
        return self.refuses and self.policy is None

    @property
    def works_on_empty(self) -> bool:
        """True for the rare step that has something to say about an empty value."""
        return False
