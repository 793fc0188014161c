"""Run the command line under cProfile: `python under_profile.py FILE WORDS`. The event loop runs in the profiled thread."""

from __future__ import annotations

import cProfile
import sys


def main(target: str, words: list[str]) -> None:
    profile = cProfile.Profile()
    profile.enable()
    try:
        from pipelines.cli.entry import main as eventsync  # noqa: PLC0415  # what importing takes belongs to the profile

        sys.argv = ["eventsync", *words]
        eventsync()
    finally:
        profile.disable()
        profile.dump_stats(target)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
