"""Where a value stands, in the mapping file and in the payload; and what is said to the author of a place in the file.

What is wrong there is found by `compiling`, `soundness` and the lints; lines and columns are the loader's.
"""

from __future__ import annotations

from dataclasses import dataclass

Loc = tuple[int | str, ...]
"""A place in the mapping file, as keys and positions."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a value stands: in the file, in the payload; and whether it may be empty there."""

    loc: Loc
    path: str = ""
    may_be_empty: bool = False

    def inner(self, *loc: int | str, may_be_empty: bool | None = None) -> Spot:
        """Return the spot of a value inside this one."""
        return Spot(self.loc + loc, self.path, self.may_be_empty if may_be_empty is None else may_be_empty)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the file that cannot be compiled."""

    loc: Loc
    message: str
    hint: str = ""
