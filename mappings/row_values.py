"""What a value of the event reads of the row itself, as a mapping file spells it: a column, or what is known beside the cells.

What is made of other values is `values`'s; how a value is worked out for a row is `compiling`'s.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mappings.file_context import Referring
from mappings.measures import OneOrMany, Zone, mistake
from mappings.policies import Policy
from mappings.steps.catalogue import AnyStep
from mappings.strict import Strict

_EMPTY = "What to do when there is nothing to use (default: reject)."
_ERROR = "What to do when a step refuses the value (default: reject)."
DO = "The steps that the value passes through, in order."


class Valued(Strict):
    """What every value has: a choice for nothing to use, and one for something unusable."""

    on_empty: Policy | None = Field(default=None, description=_EMPTY)
    on_error: Policy | None = Field(default=None, description=_ERROR)


class From(Valued):
    """A column of the row, or a named value, passed through steps."""

    source: Referring = Field(alias="from", min_length=1, description="A column's name, or $name for a named value.")
    do: Annotated[tuple[AnyStep, ...], OneOrMany()] = Field(default=(), description=DO)


class Meta(Valued):
    """What is known of a row beside its cells: where it stands, and the day on which the run started.

    A value that changes with every run or every move of a row makes the event look changed as soon as a cell of it changes.
    """

    meta: Literal["row", "file", "tab", "run_date"] = Field(
        description="row: its number in the source; file: its file; tab: its sheet; run_date: the day of the run's start."
    )
    zone: Zone | None = Field(default=None, description="The zone whose calendar says the day of the run (with run_date).")
    do: Annotated[tuple[AnyStep, ...], OneOrMany()] = Field(default=(), description=DO)

    @model_validator(mode="after")
    def _check_companions(self) -> Self:
        if (self.meta == "run_date") is (self.zone is None):
            raise mistake("a day belongs to a zone", "write both, {meta: run_date, zone: Europe/Lisbon}; the others have no zone")
        return self
