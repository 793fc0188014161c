"""Starts a program without a shell, passes on what it prints, and ends it with everything that it started."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from connectors.sources.contract import Clock, SourceRefusedError, SourceUnavailableError
from connectors.sources.rows import BESIDE, short
from mappings.spec.source import CommandSource

_GUARD = Path(__file__).with_name("guard.py")
_PIECE = 64 * 1024
_MOST_STDERR = 16 * 1024
"""Bytes of the end of standard error that are kept."""
_LAST_LINES = 5
_NAP_S = 1.0
_GRACE_S = 1.0
"""How long a program may take to end after SIGTERM, before SIGKILL."""
_LINGER_S = 10.0
"""How long the output of a program that has ended may stay open, because another that it started holds it."""


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a source: its `words` after its name, the folder that it runs in, its whole environment.

    `files`: descriptors of open files that it receives under the same numbers.
    """

    spec: CommandSource
    words: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    files: Sequence[int]
    clock: Clock

    def run(self, take: Callable[[bytes], None]) -> None:
        """Run the program to its end, and pass what it prints to `take`, in pieces.

        Raises:
            SourceRefusedError: there is no such program.
            SourceUnavailableError: it failed, took too long, or left its output open.
        """
        now = self.clock.clock_s
        with self._started() as (process, link), selectors.DefaultSelector() as selector:
            stdout, stderr = (stream.fileno() for stream in (process.stdout, process.stderr) if stream)
            for source in (stdout, stderr, link.fileno()):
                selector.register(source, selectors.EVENT_READ)
            ends_at, code, last = now() + self.spec.timeout.total_seconds(), None, b""
            while selector.get_map() and now() < ends_at:
                for key, _ in selector.select(_NAP_S):
                    if key.fd == link.fileno():
                        # The exit code stays in the link, where the end of this block finds it too.
                        code = link.recv(_PIECE, socket.MSG_PEEK)
                        ends_at = min(ends_at, now() + (_LINGER_S if code else _NAP_S))
                        selector.unregister(link)
                    elif not (piece := os.read(key.fd, _PIECE)):
                        selector.unregister(key.fd)
                    elif key.fd == stdout:
                        take(piece)
                    else:
                        last = (last + piece)[-_MOST_STDERR:]
            if code != b"0\n" or stdout in selector.get_map():
                raise self._failure(code, last)

    @contextmanager
    def _started(self) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
        """Start the program behind its guard; end both when the block ends."""
        name = str(self.folder / self.spec.run[0]) if "/" in self.spec.run[0] else self.spec.run[0]
        found = shutil.which(name, path=self.environment.get("PATH"))
        if found is None:
            hint = "a name with a slash starts at the folder of the mapping file; is the file there, and executable?"
            raise SourceRefusedError(f"{self.spec.place}: there is no program {name}", hint=hint)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                process = subprocess.Popen(  # noqa: S603  # the operator has allowed what the mapping file names
                    [sys.executable, "-I", "-S", str(_GUARD), found, *self.words],
                    stdin=theirs.fileno(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=self.folder,
                    env=dict(self.environment),
                    pass_fds=self.files,
                    start_new_session=True,
                )
            with process:
                try:
                    yield process, ours
                finally:
                    _end(process, ours)

    def _failure(self, code: bytes | None, last: bytes) -> SourceUnavailableError:
        """Return the error for an exit code, None if the program still runs, b"" if its guard was killed."""
        if code is None:
            how = f"had not ended after {self.spec.timeout.total_seconds():.0f} s"
        elif code == b"0\n":
            how = "has ended, and another program that it started, for which it must wait, still holds its output open"
        elif code.startswith(b"-"):
            how = f"was ended by signal {-int(code)} ({signal.strsignal(-int(code))})"
        else:
            how = f"ended with exit code {int(code)}" if code else "was killed"
        lines = [short(line.strip()) for line in last.decode("utf-8", "replace").splitlines() if line.strip()]
        said = BESIDE.join(lines[-_LAST_LINES:]) or "it wrote nothing to stderr"
        hint = "run it by hand to see what is wrong; if it only needs longer, raise `timeout`"
        return SourceUnavailableError(f"{self.spec.place} {how}: {said}", hint=hint)


def _end(process: subprocess.Popen[bytes], link: socket.socket) -> None:
    """End the program with SIGTERM, then all of its process group with SIGKILL; the guard is not reaped before."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGTERM)
        link.settimeout(_GRACE_S)
        link.recv(1)
    link.close()
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
