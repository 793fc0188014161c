"""The first moment of the command `eventsync`: Ctrl-C is answered from here on, while the command itself is still imported.

Imports next to nothing, so that the moment is early; what the command does is `app`'s.
"""

from __future__ import annotations

import gc
import signal

from pipelines.run.signals import leave

GARBAGE_EVERY = 50_000
"""So many objects are made before garbage is looked for among them: what a command imports are very many, and all stay."""


def main() -> None:
    """Run the command line, and leave with the exit code that scripts rely on."""
    gc.set_threshold(GARBAGE_EVERY)
    signal.signal(signal.SIGINT, leave)
    from pipelines.cli.app import main as run  # noqa: PLC0415  # what takes its time, only once Ctrl-C is answered

    run()
