"""What no sample of a source shows: the questions of a draft, and the answers of its author."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mappings.draft.guesses import Guess
from mappings.lint.warnings import FILL_IN


@dataclass(frozen=True, slots=True)
class Answers:
    """The author's answers; without one, a place of the draft stays to be filled in.

    `channel`: a slug or an id. `zone`: an IANA name; `order`: `day` or `month` first. `classifications` and `places`: slugs and
    placeIds by the texts of their columns; by "" for rows without a text, and for all rows if there is no column.
    """

    channel: str = FILL_IN
    zone: str = ""
    order: str = ""
    classifications: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)


NO_ANSWERS = Answers()


@dataclass(frozen=True, slots=True)
class Questions:
    """What a draft leaves to its author.

    `zone`: the guess about the time zone, None if it is certain; `usual_zone`: the guessed one, "" if unknown. `date`: a day
    whose order of day and month is open, "" if none is. `category`, `city`: columns, "" if there is none; `classifications` and
    `places`: the keys that `Answers` needs, with their numbers of rows.
    """

    zone: Guess | None
    usual_zone: str
    date: str
    category: str
    classifications: Mapping[str, int]
    city: str
    places: Mapping[str, int]
