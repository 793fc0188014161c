"""What the figures were taken on, and with which versions; how busy and how fast it was meanwhile.

No name of a machine, no path and no address is told.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

from installing import pinned, versions

LOOP = 3_000_000
OURS = ("aiohttp", "dagster", "httpx", "orjson", "pydantic", "sqlalchemy")


class Speed:
    """How fast the machine is from one measurement to the next: others may share its cores, and no figure of the load tells."""

    def __init__(self) -> None:
        self._taken: list[float] = []

    def take(self) -> None:
        """Time one loop that does nothing but count."""
        began, count = time.process_time(), 0
        while count < LOOP:
            count += 1
        self._taken.append(time.process_time() - began)

    def told(self) -> str:
        """Return a sentence about it."""
        least, most = min(self._taken), max(self._taken)
        counted = f"counting to {LOOP:,} took {least:.2f} to {most:.2f} s of CPU between the measurements"
        return f"Its speed meanwhile: {counted}, so that a figure may be {most / least:.1f} times what it is in the best moment."


def described() -> tuple[str, ...]:
    """Return sentences about the machine."""
    return (
        f"{_processor()}, {os.cpu_count()} cores, {_memory_gb()} of memory.",
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}.",
        f"Load before the bench began: {_load()} on {os.cpu_count()} cores.",
        f"eventsync {version('eventsync')} with {', '.join(f'{name} {version(name)}' for name in OURS)}.",
        f"Peers: {', '.join(_peers())}.",
    )


def _peers() -> list[str]:
    there = versions()
    return [f"{name} {there.get(name, 'not installed')}" for name in sorted(pinned())]


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _processor() -> str:
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text("utf-8").splitlines() if listed.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or sys.platform


def _memory_gb() -> str:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in os.sysconf_names else 0
    return f"{size / 2**30:.0f} GB" if size else "unknown size"
