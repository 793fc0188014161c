"""A working folder with one feed and its source, and the command line as a shell would call it."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipelines.cli.app import main
from sandbox.server import Announcement, running
from sandbox.switches import Switches

MAPPING = """\
feed: town-hall
source:
  kind: csv
  path: ../events.csv
key: [ID]
rows:
  - skip: {column: KIND, equals: online}
    because: online only
event:
  channelId: {channel: city-agenda}
  title: {from: TITLE, do: [collapse]}
  startAt:
    at:
      day: {from: DAY, do: [{date: ["%Y-%m-%d"]}]}
      clock: {from: HOUR, do: [{time: ["%H:%M"]}]}
      zone: Europe/Warsaw
  timezone: Europe/Warsaw
  status: published
  classifications: {from: GENRE, do: [{map: {concert: music, play: theatre}}]}
  approxLocation: {city: {placeId: krk}}
publish:
  brakes: {rejected: 50%}
examples:
  - row: {ID: "1", TITLE: Jazz, DAY: "2030-05-01", HOUR: "19:30", GENRE: concert}
    event: {title: Jazz, startAt: "2030-05-01T19:30:00+02:00", classifications: [music]}
  - row: {ID: "2", TITLE: "", DAY: "2030-05-01", HOUR: "19:30", GENRE: concert}
    rejected: {title: required}
"""
HEADER = "ID,TITLE,DAY,HOUR,KIND,GENRE"
ROWS = (
    "1,Jazz,2030-05-01,19:30,,concert",
    "2,,2030-13-01,19:30,,concert",
    "3,Web talk,2030-05-01,19:30,online,concert",
    "4,=HYPERLINK(1),2030-05-02,19:30,,poetry",
    "5,Hamlet,2030-05-03,20:00,,play",
    "6,Othello,2030-05-04,20:00,,play",
)
GOOD = tuple(row for row in ROWS if row[0] in "156")
SECRET = "sk-test-very-secret-key-0042"


@dataclass(frozen=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Desk:
    """A working folder and the command line in it."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    @property
    def state(self) -> Path:
        return self.folder / "state" / "state.db"

    def mapping(self, text: str = MAPPING, name: str = "town.yaml") -> Path:
        path = self.folder / "feeds" / name
        path.write_text(text, "utf-8")
        return path

    def source(self, rows: Sequence[str] = ROWS, header: str = HEADER) -> None:
        (self.folder / "events.csv").write_text("\n".join([header, *rows]) + "\n", "utf-8")

    def run(self, *words: str) -> Said:
        """Call `eventsync` with these words."""
        self.monkeypatch.setattr(sys, "argv", ["eventsync", *words])
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self.capsys.readouterr()
        try:
            with pytest.raises(SystemExit) as left:
                main()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        said = self.capsys.readouterr()
        assert SECRET not in said.out + said.err
        return Said(int(left.value.code or 0), said.out, said.err)

    @contextmanager
    def service(self, secret: str = SECRET) -> Iterator[Announcement]:
        """Run the sandbox service for the length of the block, and point the environment at it."""
        with running(None, Switches(), SECRET) as announced:
            self.monkeypatch.setenv("EVENT_API_BASE_URL", announced.base_url)
            self.monkeypatch.setenv("EVENT_API_KEY", secret)
            yield announced


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    for name in ("EVENT_API_BASE_URL", "EVENT_API_KEY", "EVENT_API_KEY_FILE", "EVENTSYNC_NAMESPACE", "EVENTSYNC_LOG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENTSYNC_FEEDS", "feeds")
    monkeypatch.setenv("EVENTSYNC_STATE_URL", "sqlite:///state/state.db")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    (tmp_path / "feeds").mkdir()
    made = Desk(tmp_path, monkeypatch, capsys)
    made.mapping()
    made.source()
    return made


@dataclass(frozen=True)
class Decider:
    """A person at a desk, with a service whose switches can be turned."""

    desk: Desk
    base_url: str

    def change(self, path: str, **wishes: object) -> Any:
        answer = httpx.post(f"{self.base_url}/_sandbox{path}", json=wishes, trust_env=False, verify=False, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def switch(self, **switches: str | int) -> None:
        self.change("/switches", **switches)

    def events(self) -> list[dict[str, Any]]:
        answer = httpx.get(f"{self.base_url}/_sandbox/events", trust_env=False, verify=False, timeout=60)
        events: list[dict[str, Any]] = answer.json()["events"]
        return events

    def event_id(self, title: str) -> str:
        return next(str(event["id"]) for event in self.events() if event["title"] == title)

    def publish(self) -> Said:
        return self.desk.run("run", "town-hall", "--no-dagster", "--json")

    def say(self, verb: str, *words: str) -> Said:
        return self.desk.run(verb, "town-hall", *words)

    def told(self, verb: str, *words: str) -> Any:
        return self.say(verb, *words, "--json").document

    def states(self) -> dict[str, str]:
        (feed,) = self.desk.run("status", "town-hall", "--json").document["feeds"]
        return {state: count for state, count in feed["counts"].items() if count}

    def forget(self) -> None:
        for path in self.desk.state.parent.glob("state.db*"):
            path.unlink()


@pytest.fixture
def decider(desk: Desk) -> Iterator[Decider]:
    desk.source(GOOD)
    with desk.service() as announced:
        yield Decider(desk, announced.base_url)
