"""A line to a PostgreSQL server that can be cut in the moment of a commit, as a cable or a failing server would."""

from __future__ import annotations

import selectors
import socket
import threading
from pathlib import Path
from typing import Literal

from sqlalchemy import make_url

_SOCKET = ".s.PGSQL.5432"
_COMMIT = b"COMMIT\x00"  # the statement, and the answer to it; `READ COMMITTED` is neither


class CutLine:
    """Passes on what client and server say to each other, through a socket in `folder`.

    `cut_at` strikes once, at the next commit: before it reaches the server, or after the server has done it and before
    the client hears so.
    """

    def __init__(self, folder: Path, server_url: str) -> None:
        self.cut_at: Literal["", "before", "after"] = ""
        self._server = f"{make_url(server_url).query['host']}/{_SOCKET}"
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(folder / _SOCKET))
        self._door.listen()
        self.url = make_url(server_url).update_query_dict({"host": str(folder)}).render_as_string(hide_password=False)
        threading.Thread(target=self._answer, daemon=True).start()

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def _answer(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, selectors.DefaultSelector() as either:
            server.connect(self._server)
            either.register(client, selectors.EVENT_READ)
            either.register(server, selectors.EVENT_READ)
            while True:
                for key, _ in either.select():
                    said = key.fileobj.recv(65_536)  # type: ignore[union-attr]
                    if not said or (key.fileobj is client and _COMMIT in said and self._is_struck(said, server)):
                        return
                    (server if key.fileobj is client else client).sendall(said)

    def _is_struck(self, said: bytes, server: socket.socket) -> bool:
        cut_at, self.cut_at = self.cut_at, ""
        if cut_at == "after":
            server.sendall(said)
            while _COMMIT not in server.recv(65_536):
                pass
        return bool(cut_at)
