"""The first moment of the command `eventsync`: Ctrl-C ends it silently while the command itself is still being imported."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run the command line, and leave with the exit code that scripts rely on."""
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(130))  # nothing is printed yet
    from pipelines.run.signals import leave  # noqa: PLC0415  # only once Ctrl-C is answered

    signal.signal(signal.SIGINT, leave)
    from pipelines.cli.app import main as run  # noqa: PLC0415  # as above

    run()
