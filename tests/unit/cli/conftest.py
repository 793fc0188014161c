"""A working folder with one feed and its source, and the command line as a shell would call it."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import pytest
import time_machine
from integration.desk import FEED, Said
from integration.service import Service

from pipelines.cli.app import main
from sandbox.server import running
from sandbox.switches import Switches

REPOSITORY = Path(__file__).parents[3]
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


def called(words: Sequence[str], out: TextIO, err: TextIO) -> int:
    """Call `eventsync` in this process with these words; return its exit code."""
    before = sys.argv
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    sys.argv = ["eventsync", *words]
    try:
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
            main()
    finally:
        sys.argv = before
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return int(left.value.code or 0)


def holds(document: Any, wanted: Any) -> bool:
    """Whether a document has what is wanted: some keys of an object, a numbered item of a list, `…` before parts of a text."""
    if isinstance(wanted, dict) and wanted:
        return all((isinstance(key, int) or key in document) and holds(document[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(document, list) and len(wanted) == len(document):
        return all(map(holds, document, wanted))
    if isinstance(wanted, str) and wanted.startswith("…"):
        return all(part in document for part in wanted.split("…"))
    return bool(document == wanted)


@dataclass(frozen=True)
class Desk:
    """A working folder and the command line in it."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def state(self) -> Path:
        return self.folder / "state" / "state.db"

    def mapping(self, text: str = MAPPING, name: str = "town.yaml") -> Path:
        path = self.folder / "feeds" / name
        path.write_text(text, "utf-8")
        return path

    def source(self, rows: Sequence[str] = ROWS, header: str = HEADER) -> None:
        (self.folder / "events.csv").write_text("\n".join([header, *rows]) + "\n", "utf-8")

    def run(self, *words: str, code: int | None = None) -> Said:
        """Call `eventsync` with these words; it must end with `code`, where one is given."""
        out, err = io.StringIO(), io.StringIO()
        said = Said(called(words, out, err), out.getvalue(), err.getvalue())
        assert SECRET not in said.out + said.err
        assert code in {None, said.code}, said.words
        return said

    def told(self, *words: str) -> Any:
        """Return the document of a command."""
        return self.run(*words, "--json").document

    def sync(self, *words: str, code: int | None = None) -> Any:
        """Run the feed once, and return the run's document."""
        return self.run("run", FEED, "--no-dagster", *words, "--json", code=code).run

    @contextmanager
    def service(self, secret: str = SECRET) -> Iterator[Service]:
        """Run the sandbox service for the length of the block, and point the environment at it."""
        with running(None, Switches(), SECRET) as announced:
            self.point_to(announced.base_url, secret)
            yield Service(base_url=announced.base_url)

    def point_to(self, address: str, secret: str = SECRET) -> None:
        self.monkeypatch.setenv("EVENT_API_BASE_URL", address)
        self.monkeypatch.setenv("EVENT_API_KEY", secret)


@pytest.fixture
def late_in_2026() -> Iterator[None]:
    """Set the clock to a day on which the events of the partners' files are to come, as they were when the files came."""
    with time_machine.travel(datetime(2026, 11, 20, tzinfo=UTC)):
        yield


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENTSYNC_FEEDS", "feeds")
    monkeypatch.setenv("EVENTSYNC_FILES", f".{os.pathsep}{REPOSITORY}")
    monkeypatch.setenv("EVENTSYNC_STATE_URL", "sqlite:///state/state.db")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    (tmp_path / "feeds").mkdir()
    made = Desk(tmp_path, monkeypatch)
    made.mapping()
    made.source()
    return made


@dataclass(frozen=True)
class Decider:
    """A person at a desk, with a service whose switches can be turned."""

    desk: Desk
    service: Service

    def event_id(self, title: str) -> str:
        return next(str(event["id"]) for event in self.service.events() if event["title"] == title)

    def publish(self, *words: str, code: int | None = None) -> Any:
        return self.desk.sync(*words, code=code)

    def say(self, verb: str, *words: str, code: int | None = None) -> Said:
        return self.desk.run(verb, FEED, *words, code=code)

    def told(self, verb: str, *words: str) -> Any:
        return self.say(verb, *words, "--json").document

    def listed(self, *words: str) -> list[str]:
        """The keys that `rows` lists."""
        return [row["row_key"] for row in self.told("rows", *words)["rows"]]

    def forget(self) -> None:
        for path in self.desk.state.parent.glob("state.db*"):
            path.unlink()


@pytest.fixture
def decider(desk: Desk) -> Iterator[Decider]:
    desk.source(GOOD)
    with desk.service() as service:
        yield Decider(desk, service)
