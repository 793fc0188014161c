"""How long a server may take, all told: the wire's own timeouts are about each piece, and a byte now and then holds them off.

What is asked, and how long it may take, is `web_hops`'.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

_OPENED = (".connect_tcp.complete", ".connect_unix_socket.complete", ".start_tls.complete")


@dataclass(slots=True)
class Deadline:
    """Hangs up on a server when its time is over, from a thread of its own; to be closed."""

    is_over: bool = False
    _line: socket.socket | None = None
    _timer: threading.Timer | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def within(self, seconds: float) -> None:
        """Begin anew: it is over in so many seconds from now."""
        self.close()
        self._timer = threading.Timer(seconds, self._hang_up)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Leave the line as it is."""
        if self._timer is not None:
            self._timer.cancel()

    def trace(self, event: str, told: Mapping[str, Any]) -> None:
        """Hear from httpcore, as its request extension `trace`, which line is open."""
        if event.endswith(_OPENED):
            with self._turn:
                self._line = told["return_value"].get_extra_info("socket")
            if self.is_over:
                self._hang_up()

    def _hang_up(self) -> None:
        with self._turn, suppress(OSError):
            self.is_over = True
            if self._line is not None:
                # The plain socket's way: a TLS socket would take its own state from under the thread that reads.
                socket.socket.shutdown(self._line, socket.SHUT_RDWR)
