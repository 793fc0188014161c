"""All steps a mapping file may name: the closed union. A new step is one class or function in a module of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Discriminator, Tag

from mappings.steps import dates, letters, lists, lookups, numbers, text, times, urls, zones  # noqa: F401 - declare steps
from mappings.steps.step import FAMILIES, Step

__all__ = ["FAMILIES", "STEPS", "AnyStep"]

STEPS: Mapping[str, type[Step]] = {step.name: step for family in FAMILIES.values() for step in family}
TAG = "step:"


def _kind_of_step(value: object) -> str:
    """Name a step as the file writes it: bare, or as the key of a block whose other keys are its parameters."""
    match value:
        case str():
            return TAG + value
        case Step():
            return TAG + value.name
        case dict():
            return TAG + next((key for key in value if key in STEPS), next(iter(value), ""))
        case _:
            return TAG


if TYPE_CHECKING:
    AnyStep = Step
else:
    AnyStep = Annotated[
        Union[tuple(Annotated[step, Tag(TAG + name)] for name, step in STEPS.items())],  # noqa: UP007 - built from the catalogue
        Discriminator(_kind_of_step),
    ]
"""Any step; its name says which."""
