"""What a feed asks of each of its reads, and a person of this one: what becomes of copies, changes and rows that vanish."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

OnChange = Literal["report", "ignore", "create_draft_again"]
OnVanish = Literal["report", "ignore"]


class ReadKind(StrEnum):
    """What a read takes in: all that its source has now, what changed since the bookmark, or rows that a person named."""

    FULL = "full"
    INCREMENTAL = "incremental"
    CHOSEN = "chosen"


@dataclass(frozen=True, slots=True)
class StagePolicy:
    """The rules of one read.

    `on_change`: a delivered row that changed is listed as drift, only counted as such, or drafted again as a new event;
    `on_vanish`: a row that is gone is marked and listed, or not. `holds_copies`: rows that look like copies of known
    entries are held. `drafts_only`: whatever this read pins is a draft. `accepted`: the brakes that this run may pass.
    `days`: the first and the last ISO day of recurring events of which this read says anything; None where no event recurs.
    `row_parts`: of how many parts a row's own key is, where a row may stand for several events whose keys begin with it; None: a
    row is an event. `key_definition`: what makes the feed's keys, "" where that is not compared.
    """

    on_change: OnChange = "report"
    on_vanish: OnVanish = "report"
    holds_copies: bool = True
    drafts_only: bool = False
    accepted: tuple[str, ...] = ()
    days: tuple[str, str] | None = None
    kind: ReadKind = ReadKind.FULL
    row_parts: int | None = None
    key_definition: str = ""


DEFAULT_POLICY = StagePolicy()
"""Every difference is reported, every copy held, every row sent as it is mapped."""
