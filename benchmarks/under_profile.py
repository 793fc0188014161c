"""Runs the command line under cProfile: `python under_profile.py FILE main WORDS` (or `drain`: the thread that publishes).

Only one thread is looked at, because the others wait for it; what is made of the figures is told in `measures/profiled.py`.
"""

from __future__ import annotations

import cProfile
import sys
import threading

DRAIN = "eventsync-drain"
"""What the worker calls the thread in which its event loop runs."""


def profile_drain(profile: cProfile.Profile) -> None:
    """Have the worker's thread, and no other, run under the profile: from outside, so that the worker knows nothing of it."""
    plain = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        if thread.name == DRAIN:
            profile.runcall(plain, thread)
        else:
            plain(thread)

    threading.Thread.run = run  # type: ignore[method-assign]  # this process is for the profile alone


def main(target: str, where: str, words: list[str]) -> None:
    profile = cProfile.Profile()
    if where == "drain":
        profile_drain(profile)
    else:
        profile.enable()
    try:
        from pipelines.cli.entry import main as eventsync  # noqa: PLC0415  # what importing takes belongs to the profile

        sys.argv = ["eventsync", *words]
        eventsync()
    finally:
        profile.disable()
        profile.dump_stats(target)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
