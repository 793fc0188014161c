"""What a pacer has around it: clock, sleep, randomness and the time of day, handed in as one.

What is done with them is `pacing`'s; how long to insist is `retry`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from connectors.retry import Clock, Random, Sleep


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`clock` tells seconds and never goes back; `now` tells the aware time of day, only to say when to come back."""

    clock: Clock
    sleep: Sleep
    random: Random
    now: Callable[[], datetime]
