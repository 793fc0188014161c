"""What tells a reading of Salesforce the time and makes it wait.

How long is waited, and for what, is the caller's matter.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """`sleep` waits so many seconds, `clock` gives seconds that never go back, `random` a number from 0 up to 1."""

    sleep: Callable[[float], None]
    clock: Callable[[], float]
    random: Callable[[], float]


REAL = Timing(time.sleep, time.monotonic, random.random)  # noqa: TID251  # a source's reader asks, waits and asks again
