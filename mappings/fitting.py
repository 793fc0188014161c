"""Whether a step can work on what reaches it: told of the file where the file can tell, of each value where it cannot.

How a value passes its steps is `stepping`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from mappings.refusals import Refusal
from mappings.transforms.step import Kind, Run, Step
from mappings.vocabulary import ReasonCode


class MisfitError(ValueError):
    """A step that cannot work on what it would get, said to the author."""


def check_fit(step: Step, kind: Kind) -> None:
    """Check that a step may stand where such values reach it, as far as the file tells.

    Raises:
        MisfitError: it works on something else.
    """
    if why := step.misfit(kind):
        raise MisfitError(f'the step "{step.name}" cannot be used here: {why}')
    if Kind.ANY in (step.takes, kind) or step.takes is Kind.LIST or step.takes is kind:
        return
    raise MisfitError(f'the step "{step.name}" works on a {step.takes}, and would get a {kind}')


def guarded(run: Run, takes: Kind) -> Run:
    """Return the same step's function, which looks at each value first: where the file cannot tell what reaches it."""
    if takes not in _FITS:
        return run
    fits, code = _FITS[takes]

    def checked(value: Any) -> Any:
        if not fits(value):
            raise Refusal(code, f"a {takes} is needed here")
        return run(value)

    return checked


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_day(value: Any) -> bool:
    return isinstance(value, date)


def _is_wall(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is None


def _is_moment(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


_FITS: Mapping[Kind, tuple[Callable[[Any], bool], ReasonCode]] = {
    Kind.TEXT: (_is_text, ReasonCode.BAD_TEXT),
    Kind.DATE: (_is_day, ReasonCode.NOT_A_DATE),
    Kind.WALL: (_is_wall, ReasonCode.NOT_A_DATE),
    Kind.MOMENT: (_is_moment, ReasonCode.NOT_A_DATE),
    Kind.NUMBER: (_is_number, ReasonCode.NOT_A_NUMBER),
    Kind.OBJECT: (_is_object, ReasonCode.BAD_TEXT),
}
