"""The clock by which a host measures how long a lease's holder has been silent. Who holds what is `lease`'s.

The time of day will not do: it is set, it jumps by hours, and two containers may disagree about it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Pulse:
    """Seconds that go on while processes are stopped and the machine sleeps, never back, and that nobody sets.

    `boot` names the start of the machine that they count from, the same in all of its containers; "" where the system
    does not tell. Seconds of different boots do not compare.
    """

    boot: str
    seconds: Callable[[], float]


def host_pulse() -> Pulse:
    """Return the pulse of this host."""
    return Pulse(boot_id(), seconds_since_boot)


def seconds_since_boot() -> float:
    """Return seconds on a clock that also counts the time in which the machine was asleep, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


def boot_id() -> str:
    """Return a name for this start of this machine that no other machine or start has; "" where the system has none."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""
