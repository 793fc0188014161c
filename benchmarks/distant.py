"""A database that is milliseconds away: a relay on loopback that holds every byte back for half of the round trip each way.

`python benchmarks/distant.py UNIX_SOCKET ROUND_TRIP_MS` prints its port. Threads, because their timers are exact to a tenth
of a millisecond.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import suppress
from queue import SimpleQueue

CHUNK = 65_536


def serve(target: str, way_s: float) -> None:
    """Relay each connection to a Unix socket, `way_s` later in each direction."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            near, _ = listener.accept()
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            far = socket.socket(socket.AF_UNIX)
            far.connect(target)
            for come, go in ((near, far), (far, near)):
                under_way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
                threading.Thread(target=_take, args=(come, under_way, way_s), daemon=True).start()
                threading.Thread(target=_give, args=(go, under_way), daemon=True).start()


def _take(come: socket.socket, under_way: SimpleQueue[tuple[float, bytes]], way_s: float) -> None:
    chunk = b"more"
    while chunk:
        try:
            chunk = come.recv(CHUNK)
        except OSError:
            chunk = b""
        under_way.put((time.monotonic() + way_s, chunk))


def _give(go: socket.socket, under_way: SimpleQueue[tuple[float, bytes]]) -> None:
    while True:
        due_s, chunk = under_way.get()
        time.sleep(max(due_s - time.monotonic(), 0.0))  # noqa: TID251  # this is what it is for
        with suppress(OSError):
            if not chunk:
                go.shutdown(socket.SHUT_WR)
                return
            go.sendall(chunk)


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]) / 2000)
