"""A chat's webhook and a mail server, as notifications reach them: what came in, and how to turn it away."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
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
    """Take messages in as JSON, for the length of the block."""
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


class _Post(socketserver.StreamRequestHandler):
    """As much of SMTP as a mail needs that is sent without a login."""

    def handle(self) -> None:
        self._say("220 post.example ready")
        recipients: list[str] = []
        while line := self.rfile.readline():
            word = line.decode().strip()
            match word.upper().split(":")[0].split(" ")[0]:
                case "RCPT":
                    recipients.append(word.partition("<")[2].partition(">")[0])
                    self._say("250 fine")
                case "DATA":
                    self._say("354 go on")
                    self._take(b"".join(iter(self.rfile.readline, b".\r\n")), recipients)
                    self._say("250 taken")
                case "QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("250 fine")

    def _take(self, content: bytes, recipients: list[str]) -> None:
        mail = message_from_bytes(content, policy=policy.default)
        body = mail.get_body(("plain", "html"))
        assert body is not None
        inbox: Inbox = self.server.inbox  # type: ignore[attr-defined]  # put there by `post_office`
        inbox.told.append(Told(" ".join(recipients), str(mail["subject"]), body.get_content()))

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def post_office() -> Iterator[Inbox]:
    """Take mail in, for the length of the block."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Post) as server:
        server.daemon_threads = True
        inbox = Inbox(int(server.server_address[1]))
        server.inbox = inbox  # type: ignore[attr-defined]  # read by the handler
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield inbox
        finally:
            server.shutdown()
            thread.join()


def closed_port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
