"""How much of its source a read takes in: a closed choice.

What follows from it for the gate, the bookmark and the list of problems is `gate`'s and `listed`'s.
"""

from __future__ import annotations

from enum import StrEnum


class Reach(StrEnum):
    """What a read takes in. `full`: all that its source has now; `onward`: what changed since the feed's bookmark;
    `picked`: rows that a person named, whatever else there is.
    """

    FULL = "full"
    ONWARD = "onward"
    PICKED = "picked"
