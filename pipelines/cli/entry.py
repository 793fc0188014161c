"""The entry point of the command `eventsync`: Ctrl-C exits without a traceback while the command is still being imported."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Run the command line and exit with the command's exit code."""
    signal.signal(signal.SIGINT, _leave)
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    from pipelines.cli import options

    words = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    options.IS_WORKING = "--help" not in words and "_EVENTSYNC_COMPLETE" not in os.environ
    from pipelines.cli.app import main as run

    run()


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(128 + signal.SIGINT)
