"""Runs a program, and kills its process group when the process that asked for it is gone; started by its path.

Standard input is one end of a socket pair: the other side reads the exit code of the program from it, and its end says that the
other side is gone. A parent-death signal (PR_SET_PDEATHSIG) would reach the program only and not what it started, follows the
thread that started it rather than the process, and is known to Linux only.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys

_INHERITED = {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
"""Signals that Python ignores, or that this process must outlive; the program gets them as every program does."""


def main(program: str, words: list[str]) -> None:
    """Run `program` with the words `words`, of which the first is its name."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    try:
        pid = os.posix_spawn(program, words, os.environ, file_actions=[nothing], setsigmask=[], setsigdef=_INHERITED)
    except OSError as error:
        sys.exit(f"{program} cannot be started: {error.strerror}")
    # Only the program and what it starts may hold these open: their end is the end of its output.
    os.closerange(1, 3)
    _thread.start_new_thread(_report, (pid,))
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def _report(pid: int) -> None:
    """Wait for the program, and write its exit code; that of a signal is negative."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(0, b"%d\n" % code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[1:])
