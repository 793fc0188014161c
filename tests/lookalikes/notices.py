"""A chat's webhook as notifications reach it: what came in, and how to turn it away."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from lookalikes.threaded import Answer, answering_by


@dataclass
class Told:
    """One message as it came in."""

    path: str
    title: str
    body: str
    tone: str = ""


@dataclass
class Inbox:
    """What came in at one address. `status`: what a webhook answers with, once `may_answer` is set."""

    port: int = 0
    told: list[Told] = field(default_factory=list)
    status: int = 200
    may_answer: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_answer.set()

    def address(self, path: str = "hook", *, scheme: str = "json") -> str:
        """The address of a webhook as apprise spells it."""
        return f"{scheme}://127.0.0.1:{self.port}/{path}"

    def titles(self) -> list[str]:
        """The titles of all that came in since this was last asked."""
        titles, self.told = [one.title.removeprefix("eventsync: ") for one in self.told], []
        return titles


@contextmanager
def webhook() -> Iterator[Inbox]:
    inbox = Inbox()

    def take(request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        if request.command == "GET":  # where somebody who follows a redirect ends up
            inbox.told.append(Told(request.path, "", ""))
            return Answer()
        inbox.may_answer.wait(30)
        if inbox.status == 200:
            document = json.loads(body)
            inbox.told.append(Told(request.path, document["title"], document["message"], document["type"]))
        elsewhere = {"location": f"http://127.0.0.1:{inbox.port}/elsewhere"} if 300 <= inbox.status < 400 else {}
        return Answer(status=inbox.status, headers=elsewhere)

    with answering_by(take) as url:
        inbox.port = int(url.rpartition(":")[2])
        yield inbox


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
