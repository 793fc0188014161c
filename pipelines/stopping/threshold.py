"""Before a command has taken signals over, and after it has said its last words: Ctrl-C ends the process without a word.

Imports next to nothing, so that it is early; how a command at work is stopped in good order is `interrupts`'.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import FrameType

INTERRUPTED = 130
"""The exit code of a process that SIGINT has ended (128 + 2, as shells count)."""


def leave(_number: int, _frame: FrameType | None) -> None:
    """Leave at once, with what was already printed: nothing is at work whose state could be hurt."""
    with suppress(RuntimeError, OSError, ValueError):  # it is being written to, or nobody reads it any more
        sys.stdout.flush()
    os._exit(INTERRUPTED)
