"""The sandbox's door for tests, and the sandbox as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

SECRET = "sk-itest-7hQ2mX9vLr4Tz8Kd-0042"


class Door:
    """What a sandbox says of itself and has done, and its switches."""

    base_url: str

    def look(self, path: str = "", **query: str | int) -> Any:
        return self._asked("GET", path, params=query)

    def change(self, path: str, **wishes: object) -> Any:
        return self._asked("POST", path, json=wishes)

    def _asked(self, method: str, path: str, **words: Any) -> Any:
        with httpx.Client(base_url=self.base_url, trust_env=False, verify=False, timeout=30) as http:
            answer = http.request(method, f"/_sandbox{path}", **words)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def switch(self, **switches: str | int) -> None:
        self.change("/switches", **switches)

    def requests(self, route: str = "events", after: int = 0) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.look("/requests", route=route, after=after)["requests"]
        return found

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.look("/events")["events"]
        return found

    def titles(self) -> list[str]:
        return sorted(event["title"] for event in self.events())

    def outcomes(self) -> Counter[str]:
        """How many requests for events came to what."""
        return Counter(request["outcome"] for request in self.requests())

    def bodies(self) -> dict[str, set[str]]:
        """The digests of the bodies that were sent under each key; a limit turns requests away before their body is read."""
        found: dict[str, set[str]] = defaultdict(set)
        for request in self.requests():
            found[request["idempotency_key"]] |= {request["digest"]} - {""}
        return {key: bodies for key, bodies in found.items() if bodies}

    def has_request_after(self, number: int) -> bool:
        return bool(self.look("/requests", route="all", after=number, limit=1)["requests"])

    def last_number(self) -> int:
        return max((one["number"] for one in self.requests("all")), default=0)


@dataclass
class Service(Door):
    """A running sandbox. `stop` and `start` keep its address, and with a `state` folder its memory."""

    state: Path | None = None
    switches: dict[str, str | int] = field(default_factory=dict)
    key: str = SECRET
    port: int = 0
    base_url: str = ""
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        words = [sys.executable, "-m", "sandbox", "--port", str(self.port), "--key", self.key]
        words += ["--state", str(self.state)] if self.state else []
        words += [word for name, value in self.switches.items() for word in ("--set", f"{name}={value}")]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.base_url = json.loads(self.process.stdout.readline())["base_url"]
        self.port = int(self.base_url.rpartition(":")[2])

    def stop(self, *, is_sudden: bool = False) -> None:
        if self.process is None:
            return
        self.process.kill() if is_sudden else self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None


@contextmanager
def serving(state: Path | None = None, *, key: str = SECRET, **switches: str | int) -> Iterator[Service]:
    service = Service(state, switches, key)
    service.start()
    try:
        yield service
    finally:
        service.stop()
