"""How much of its source a read takes in: a closed choice.

What follows from it for the gate, the bookmark and the list of problems is `gate`'s and `listed`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class ReadKind(StrEnum):
    """What a read takes in. `full`: all that its source has now; `onward`: what changed since the feed's bookmark;
    `picked`: rows that a person named, whatever else there is.
    """

    FULL = "full"
    ONWARD = "onward"
    PICKED = "picked"


OnChange = Literal["report", "ignore", "create_draft_again"]
OnVanish = Literal["report", "ignore"]


@dataclass(frozen=True, slots=True)
class StagePolicy:
    """The terms of one read.

    `on_change`: a delivered row that changed is listed as drift, only counted as such, or drafted again as a new event;
    `on_vanish`: a row that is gone is marked and listed, or not. `holds_twins`: rows that look like copies of known
    entries are held. `drafts_only`: whatever this read pins is a draft. `accepted`: the brakes that this run may pass.
    `reach`: what the read takes in. `row_parts`: of how many parts a row's own key is, where a row may stand for several events
    whose keys begin with it; None: a row is an event.
    `key_definition`: what makes the feed's keys, "" where that is not compared.
    `days`: the first and the last ISO day of recurring events of which this read says anything; None where no event recurs.
    """

    on_change: OnChange = "report"
    on_vanish: OnVanish = "report"
    holds_twins: bool = True
    drafts_only: bool = False
    accepted: tuple[str, ...] = ()
    days: tuple[str, str] | None = None
    reach: ReadKind = ReadKind.FULL
    row_parts: int | None = None
    key_definition: str = ""


DEFAULT_POLICY = StagePolicy()
"""Every difference is reported, every copy held, every row sent as it is mapped."""
