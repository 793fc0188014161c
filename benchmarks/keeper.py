"""Stays behind the bench, and cleans up however it ends: kills what it started, and removes its scratch folder.

`python keeper.py FOLDER` prints the number of a process group for the bench's children to join, and waits until its input ends,
as it does when the bench is killed. What the bench starts is `running.py`'s.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WAIT = "import signal; signal.pause()"


@contextmanager
def kept(scratch: Path) -> Iterator[int]:
    """Yield the group that children have to join; when this is left, by whatever way, they and the folder go."""
    command = [sys.executable, __file__, str(scratch)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        try:
            yield int(keeper.stdout.readline())
        finally:
            keeper.stdin.close()
            keeper.wait()


def main(scratch: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with subprocess.Popen([sys.executable, "-c", WAIT], process_group=0) as anchor:
        print(anchor.pid, flush=True)
        sys.stdin.read()
        os.killpg(anchor.pid, signal.SIGKILL)
    while scratch.exists():  # a child that is just dying may still write
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
