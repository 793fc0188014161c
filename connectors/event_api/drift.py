"""A difference between the service's OpenAPI page and what we send or rely upon, in words for people.

How differences are found is `contract`'s; what is done about them is the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]
"""error: every row would be refused, or no answer understood. warning: some rows, or none yet."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference: where it is, what the page says, what we do, what breaks of it, and what would help.

    `fields`: the paths in the payload that a refusal may name for it (`offers[].url`); none where the request as a
    whole is meant.
    """

    severity: Severity
    where: str
    page: str
    ours: str
    breaks: str
    helps: str
    fields: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """The page's word against ours, in one sentence."""
        return f"{self.where}: the service's page says: {self.page}; {self.ours}"

    def __str__(self) -> str:
        return f"{self.told}: {self.breaks}; {self.helps}"
