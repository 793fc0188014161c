"""A working folder with a feed in it, and `eventsync` run there as real processes, one for each command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from integration.service import SECRET, Service
from integration.waiting import until
from sqlalchemy import Engine, NullPool, create_engine, inspect, make_url, text

from state.ledger.accounts import PublishAccount, ReadAccount
from state.ledger.standing import RowRecord
from state.opening import schema_revision
from state.queries import LedgerQueries, RowFilter, RunRecord

FEED = "town-hall"
MAPPING = """\
feed: {feed}
source:
  kind: csv
  path: ../events.csv
key: [ID]
extra: [{extra}]
event:
  channelId: {channel}
  title: {title}
  startAt:
    at:
      day: {{from: DAY, do: [{{date: ["%Y-%m-%d"]}}]}}
      clock: {{from: HOUR, do: [{{time: ["%H:%M"]}}]}}
      zone: {zone}
  timezone: {zone}
  status: published
  classifications: {{from: GENRE, do: [{{map: {{concert: music, play: theatre}}}}]}}
  approxLocation: {{city: {{placeId: krk}}}}{more}
publish:
  in_flight: {in_flight}
  max_pause: {max_pause}
  key_memory: {key_memory}
  brakes: {brakes}
"""
TITLE = "{from: TITLE, do: [collapse]}"
USUAL = {"feed": FEED, "title": TITLE, "channel": "{channel: city-agenda}", "extra": ""}
USUAL |= {"zone": "Europe/Warsaw", "brakes": "{}", "in_flight": "16", "max_pause": "15m", "key_memory": "24h"}
HEADER = "ID,TITLE,DAY,HOUR,GENRE,PICTURE"
FIRST_DAY = date(2031, 1, 1)


@dataclass(frozen=True, slots=True)
class Said:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def run(self) -> Any:
        """The one run of a `run --json`."""
        (one,) = self.document["runs"]
        return one

    @property
    def words(self) -> str:
        """All that was said, on one line."""
        return " ".join(f"{self.out} {self.err}".split())

    def assert_told(self, code: int, *words: str) -> None:
        """Hold it to its code and to words that it says; a traceback is none of them."""
        assert (self.code, "Traceback" in self.words) == (code, False), self.words
        assert [word for word in words if word not in self.words] == [], self.words


@dataclass(frozen=True, slots=True)
class Command:
    """A command under way. `pid` is the process to strike."""

    base: Path
    pid: int

    @property
    def has_ended(self) -> bool:
        return self.base.with_suffix(".code").exists()

    def signal(self, number: int) -> None:
        """Send it a signal; one that ends by itself in this very moment is left alone."""
        if not self.has_ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> Said:
        """`kill -9`, then see what is left."""
        self.signal(signal.SIGKILL)
        return self.ended()

    def ended(self, code: int | None = None, *, within_s: float = 90.0) -> Said:
        until(lambda: self.has_ended, within_s=within_s, what=f"the end of a command ({self.text('.err')})")
        said = Said(int(self.text(".code")), self.text(".out"), self.text(".err"))
        assert code in {None, said.code}, said.words
        return said

    def text(self, suffix: str) -> str:
        path = self.base.with_suffix(suffix)
        return path.read_text("utf-8") if path.exists() else ""


class WarmStart:
    """The process that forks commands; see `warm_start`."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("warm_start.py")
        self._process = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def start(self, words: Iterable[str], env: Mapping[str, str], cwd: Path, base: Path) -> Command:
        """Fork a command; what it leaves behind lies beside `base`."""
        files = {name: str(base.with_suffix(f".{name}")) for name in ("pid", "code", "out", "err")}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"words": list(words), "env": dict(env), "cwd": str(cwd), **files}) + "\n")
        self._process.stdin.flush()
        until(base.with_suffix(".pid").exists, what="the start of a command")
        return Command(base, int(base.with_suffix(".pid").read_text("ascii")))

    def close(self) -> None:
        """End it; commands under way are their tests' to end."""
        with closing(self._process.stdout or sys.stdin), closing(self._process.stdin or sys.stdin):
            self._process.terminate()
        self._process.wait()


class Books:
    """The state DB as it stands, SQLite or PostgreSQL, seen from outside: read at any instant, or lost."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self._folder = folder
        self._is_file = make_url(url).get_backend_name() == "sqlite"
        self._engine: Engine | None = None

    @property
    def queries(self) -> LedgerQueries | None:
        """What people ask of it; None before the first run has come to make the tables."""
        return LedgerQueries(self.engine) if self.is_there() and schema_revision(self.engine) else None

    def rows(self) -> list[RowRecord]:
        """Every row of every feed."""
        queries = self.queries
        return [row for book in queries.known() for row in queries.every_row(book, RowFilter())] if queries else []

    def runs(self, limit: int = 1) -> tuple[RunRecord, ...]:
        """The latest runs, newest first."""
        return self.queries.runs(limit=limit) if self.queries else ()

    def holders(self) -> list[str]:
        """Who holds a feed."""
        return [feed.lease.name for feed in self.queries.status() if feed.lease] if self.queries else []

    def states(self) -> dict[str, str]:
        """The state of every entry, by row key."""
        return {row.row_key: row.state for row in self.rows()}

    def has_rows(self) -> bool:
        """Return whether any entry is written, at little cost while a run is at work."""
        return self.queries is not None and any(sum(feed.counts.values()) for feed in self.queries.status())

    def forget(self) -> None:
        """Lose the file, or all that is in the database."""
        if self._is_file:
            for path in self._files():
                path.unlink()
            return
        with self.engine.begin() as connection:
            connection.execute(text("DROP SCHEMA public CASCADE"))
            connection.execute(text("CREATE SCHEMA public"))

    def kept(self) -> bytes:
        """All that it holds, as it lies on the disk or as text."""
        if self._is_file:
            return b"".join(path.read_bytes() for path in self._files())
        with self.engine.connect() as connection:
            tables = inspect(connection).get_table_names()
            rows = [row for table in tables for row in connection.execute(text(f'SELECT t::text FROM "{table}" t')).scalars()]
        return "\n".join(rows).encode()

    @property
    def engine(self) -> Engine:
        """A way in for reading; every connection is closed after use, so that it keeps nobody from losing the DB."""
        if self._engine is None:
            beside = f"sqlite:///file:{self._folder / 'state.db'}?mode=ro&uri=true"
            self._engine = create_engine(beside if self._is_file else self.url, poolclass=NullPool)
        return self._engine

    def is_there(self) -> bool:
        return not self._is_file or (self._folder / "state.db").exists()

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("state.db*"))


@dataclass
class Desk:
    """One folder with one feed. The environment of every command is `env`, and what a call adds to it."""

    folder: Path
    warm: WarmStart
    env: dict[str, str]
    books: Books
    _numbers: Iterator[int] = field(default_factory=count)
    _started: list[Command] = field(default_factory=list)

    def point_to(self, service: Service | str, secret: str = SECRET) -> None:
        self.env["EVENT_API_BASE_URL"] = service if isinstance(service, str) else service.base_url
        self.env["EVENT_API_KEY"] = secret

    def mapping(self, *, name: str = "town.yaml", more: str = "", **words: str | int) -> None:
        """Write the feed's mapping file; `more` are further lines of `event`, `words` what else differs from `USUAL`."""
        lines = "".join(f"\n  {line}" for line in more.splitlines())
        (self.folder / "feeds").mkdir(exist_ok=True)
        (self.folder / "feeds" / name).write_text(MAPPING.format_map({**USUAL, **words, "more": lines}), "utf-8")

    def source(self, lines: Iterable[str]) -> None:
        (self.folder / "events.csv").write_text("\n".join([HEADER, *lines]) + "\n", "utf-8")

    def start(self, *words: str, **env: str) -> Command:
        base = self.folder / "said" / f"{next(self._numbers)}.command"
        base.parent.mkdir(exist_ok=True)
        command = self.warm.start(words, {**self.env, **env}, self.folder, base)
        self._started.append(command)
        return command

    def command(self, *words: str, code: int | None = None, **env: str) -> Said:
        """Run a command to its end, which must be with `code` where one is given."""
        return self.start(*words, **env).ended(code)

    def run(self, *words: str, code: int | None = None, **env: str) -> Said:
        """`eventsync run town-hall --no-dagster --json`, and further words."""
        return self.command("run", FEED, "--no-dagster", "--json", *words, code=code, **env)

    def run_with(self, rows: Iterable[str], *words: str, code: int | None = None, **env: str) -> Said:
        self.source(rows)
        return self.run(*words, code=code, **env)

    def start_run(self, *words: str, **env: str) -> Command:
        return self.start("run", FEED, "--no-dagster", "--json", *words, **env)

    def installed(self, *words: str) -> subprocess.Popen[str]:
        """Start the command as it is installed, from a shell's point of view."""
        script = Path(sys.executable).with_name("eventsync")
        pipe = subprocess.PIPE
        return subprocess.Popen([script, *words], cwd=self.folder, env=self.env, stdout=pipe, stderr=pipe, text=True)

    def edit(self, old: str, new: str) -> None:
        path = self.folder / "feeds" / "town.yaml"
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), "utf-8")

    def rows(self, *words: str, feed: str = FEED) -> list[Any]:
        listed = self.command("rows", feed, *(("--state", *words) if words else ()), "--json", code=0)
        return list(listed.document["rows"])

    def states(self) -> dict[str, str]:
        return self.books.states()

    def forget(self) -> None:
        self.books.forget()

    def written(self) -> bytes:
        """All that the commands have printed and kept."""
        return self.books.kept() + b"".join(path.read_bytes() for path in (self.folder / "said").iterdir())

    def end_all(self) -> None:
        """End what a failed test has left running."""
        for command in self._started:
            if not command.has_ended:
                command.kill()


def shell_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """What a command started in a shell would hear; nothing of this process's settings."""
    return {**{name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}, **environ}


def line(
    number: int, *, title: str | None = None, day: str = "", hour: str = "19:30", genre: str = "concert", picture: str = ""
) -> str:
    """One good row, unless told otherwise."""
    when = day or (FIRST_DAY + timedelta(days=number % 300)).isoformat()
    return ",".join([str(number), f"Evening {number}" if title is None else title, when, hour, genre, picture])


def lines(rows: int) -> list[str]:
    return [line(number) for number in range(rows)]


def evenings(rows: int) -> list[str]:
    return sorted(f"Evening {number}" for number in range(rows))


def mid_way(desk: Desk, service: Service, rows: int, *, after: int = 40, latency_ms: int = 300) -> Command:
    """Start a run, and wait until it has sent more of its rows than `after` and is at it."""
    desk.source(lines(rows))
    service.switch(latency_ms=latency_ms)
    run = desk.start_run()
    until(lambda: run.has_ended or len(service.requests()) > after)
    assert not run.has_ended
    return run


def assert_all_on_record(desk: Desk, service: Service) -> None:
    assert len(service.requests()) <= sum(row.attempts for row in desk.books.rows())


def assert_delivered(desk: Desk, service: Service, rows: int) -> None:
    assert service.titles() == evenings(rows)
    assert set(desk.states().values()) == {"delivered"}
    desk.command("state", "verify", code=0)


def untidy_runs(desk: Desk) -> Iterator[str]:
    """Yield the runs that are over and not closed, and the accounts that do not balance; each in a sentence."""
    for run in desk.command("runs", "--json", "--limit", "100000").document["runs"]:
        if run["finished_at"] is None or run["outcome"] is None:
            yield f"run {run['run_id']} is dead and not marked as ended (phase {run['phase']})"
        for kind, told in ((ReadAccount, run["read"]), (PublishAccount, run["publish"])):
            if told and kind(**told).imbalance():
                yield f"run {run['run_id']} does not balance by {kind(**told).imbalance()}: {told}"


@contextmanager
def made_desk(folder: Path, warm: WarmStart, state_url: str | None = None) -> Iterator[Desk]:
    """A desk with an empty folder, where this process's environment is not heard; its books lie there, or at `state_url`."""
    books = Books(folder, state_url or "sqlite:///state.db")
    env = {
        "EVENTSYNC_FEEDS": "feeds",
        "EVENTSYNC_FILES": ".",
        "EVENTSYNC_STATE_URL": books.url,
        "DAGSTER_HOME": str(folder / "dagster"),
    }
    desk = Desk(folder, warm, shell_environ(env), books)
    desk.mapping()
    try:
        yield desk
    finally:
        desk.end_all()
