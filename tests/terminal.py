"""A pseudo-terminal at which a person reads what a command shows, and types."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

CTRL_C = "\x03"
_PATIENCE_S, _ATTEMPTS = 120.0, 6


def at_a_terminal(
    words: Iterable[str], folder: Path, env: Mapping[str, str], typed: Iterable[tuple[str, str]] = ()
) -> tuple[int, str]:
    """Run `eventsync`; where each text is shown, type the keys beside it. Return its exit code and the screen."""
    screen, theirs = pty.openpty()
    process = subprocess.Popen(
        [Path(sys.executable).with_name("eventsync"), *words],
        cwd=folder,
        env={"TERM": "dumb", "COLUMNS": "160", "LINES": "50", **env},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # Ctrl-C is a signal at the controlling terminal only
    )
    os.close(theirs)
    seen, read_to, waiting, keys, attempts = "", 0, list(typed), "", 0
    try:
        with suppress(OSError):  # the terminal, once the command has left it
            while attempts < _ATTEMPTS:
                if not select.select([screen], [], [], _PATIENCE_S / _ATTEMPTS)[0]:
                    attempts += 1
                    if keys == CTRL_C:  # Python misses the first one if it comes just before it waits for a key
                        os.write(screen, keys.encode())
                    continue
                seen += os.read(screen, 65536).decode("utf-8", "replace")
                attempts = 0
                while waiting and (at := seen.find(waiting[0][0], read_to)) >= 0:
                    text, keys = waiting.pop(0)
                    read_to = at + len(text)
                    os.write(screen, keys.encode())
        assert not waiting, f"{waiting[0][0]!r} was never shown:\n{seen}"
        return process.wait(60), seen.replace("\r\n", "\n")
    finally:
        process.kill()
        process.wait()
        os.close(screen)
