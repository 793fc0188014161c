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
    _open_closed_streams()
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    from pipelines.cli import options

    words = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    options.IS_WORKING = "--help" not in words and "_EVENTSYNC_COMPLETE" not in os.environ
    from pipelines.cli.app import main as run

    run()


def _open_closed_streams() -> None:
    """Open the null device in place of each standard stream that the caller has closed; another file would get its number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin, sys.stdout = sys.stdin or os.fdopen(0), sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(128 + signal.SIGINT)
