"""Time and chance as sources meet them: waiting for a file to be finished, insisting on a server that stumbles.

Everything that waits, looks at a clock or draws lots takes them from here, so that tests need not wait.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clockwork:
    """`now`: seconds since 1970; `clock_s`: seconds on a clock that never goes back; `sleep` waits so many seconds;
    `chance`: a number from 0 up to, not including, 1.
    """

    now: Callable[[], float] = time.time
    clock_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep  # noqa: TID251  # the default of what is handed in
    chance: Callable[[], float] = random.random


REAL = Clockwork()
