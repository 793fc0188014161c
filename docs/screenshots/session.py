"""Plays a session at a real terminal and keeps what was seen: a first feed, a bad file, a brake, the fix, a retry; a backfill that
is interrupted and gone on with. Writes session.txt and session.svg beside itself.

Needs tmux, which nothing else here needs (`apt-get install tmux`, `brew install tmux`). Then `python docs/screenshots/session.py` from
the top of the repository; a minute.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import httpx
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from pipelines.cli.servers import RunningSandbox, running_sandbox

HERE = Path(__file__).parent
WIDTH, HEIGHT = 118, 48
DEADLINE_S = 120.0
LONGEST_TITLE = 40
LATENCY_MS = 120
FIRST_DAY, DAYS, ROWS_A_DAY = date(2025, 10, 1), 14, 12

EVENT = """\
event:
  channelId: {channel: city-agenda}
  title: {from: TITLE, do: [collapse]}
  startAt: {at: {day: {from: DAY, do: [{date: "%d/%m/%Y"}]}, clock: "19:30", zone: Europe/Lisbon}}
  timezone: Europe/Lisbon
  status: published
  classifications: [music]
  approxLocation: {city: {placeId: lisboa}}
examples:
  - row: {ID: "1", TITLE: Fado at dusk, DAY: 14/05/2031}
    event: {title: Fado at dusk}
  - row: {ID: "2", TITLE: Fado at dusk, DAY: soon}
    rejected: {startAt: not_a_date}
"""
RIVERSIDE = f"feed: riverside\nsource: {{kind: csv, path: ../riverside.csv}}\nkey: [ID]\n{EVENT}"
TOWN_HALL = f'feed: town-hall\nsource: {{kind: csv, path: "../in/{{date:%Y%m%d}}.csv"}}\nkey: [ID]\n{EVENT}publish: {{in_flight: 4}}\n'
LONG = "A very long night of fado and jazz and everything in between"


def main() -> None:
    """Set the stage in a temporary folder, play, and write down what the terminal showed."""
    if shutil.which("tmux") is None:
        sys.exit("this needs tmux on the PATH: apt-get install tmux, or brew install tmux")
    with tempfile.TemporaryDirectory() as made, running_sandbox(Path(made) / "sandbox") as sandbox:
        folder = Path(made) / "riverside"
        set_stage(folder, sandbox)
        with terminal(folder) as screen:
            at_work = play(screen, folder, sandbox)
            seen, coloured = screen.seen("-J"), screen.seen("-e")
    write(seen, at_work, coloured)


def set_stage(folder: Path, sandbox: RunningSandbox) -> None:
    """Write two feeds, their files, and a service whose titles are short."""
    for name in ("feeds", "in"):
        (folder / name).mkdir(parents=True)
    (folder / ".env").write_text(
        f"EVENT_API_BASE_URL={sandbox.base_url}\nEVENT_API_KEY={sandbox.api_key}\nEVENTSYNC_FEEDS=feeds\nEVENTSYNC_FILES=.\n", "utf-8"
    )
    (folder / "feeds" / "riverside.yaml").write_text(RIVERSIDE, "utf-8")
    (folder / "feeds" / "town-hall.yaml").write_text(TOWN_HALL, "utf-8")
    write_rows(folder / "riverside.csv", [row(number) for number in range(1, 13)])
    for number in range(DAYS):
        first = 1000 + number * ROWS_A_DAY
        path = folder / "in" / f"{FIRST_DAY + timedelta(days=number):%Y%m%d}.csv"
        write_rows(path, [row(one) for one in range(first, first + ROWS_A_DAY)])
    switch(sandbox, max_title_chars=LONGEST_TITLE)


def row(number: int, title: str = "", form: str = "%d/%m/%Y") -> str:
    """One row of a partner's file."""
    day = date(2031, 5, 1) + timedelta(days=number % 180)
    return f"{number},{title or f'Evening {number}'},{day.strftime(form)}"


def write_rows(path: Path, rows: list[str]) -> None:
    path.write_text("\n".join(["ID,TITLE,DAY", *rows]) + "\n", "utf-8")


def switch(sandbox: RunningSandbox, **switches: int) -> None:
    httpx.post(f"{sandbox.base_url}/_sandbox/switches", json=switches, trust_env=False).raise_for_status()


def play(screen: Screen, folder: Path, sandbox: RunningSandbox) -> list[str]:
    """Type the session; return the last lines of the screen while the backfill was at work."""
    screen.do("# a first feed: twelve rows of a partner's file")
    screen.do("eventsync check riverside")
    screen.do("eventsync run riverside")
    screen.do("# the next file has seventeen rows, four of them with another kind of date")
    odd = [row(number, form="%Y-%m-%d") for number in range(14, 18)]
    write_rows(folder / "riverside.csv", [*(row(number) for number in range(1, 13)), row(13, LONG), *odd])
    screen.do("eventsync run riverside")
    screen.do("echo $?")
    screen.do("# nothing was sent; both kinds of dates are meant, so the mapping learns the second one")
    screen.do("""sed -i 's|date: "%d/%m/%Y"|date: ["%d/%m/%Y", "%Y-%m-%d"]|' feeds/riverside.yaml""")
    screen.do("eventsync check riverside")
    screen.do("eventsync run riverside")
    screen.do("eventsync rows riverside --state refused")
    switch(sandbox, max_title_chars=300)
    screen.do("# the service takes longer titles by now: the row goes out again as it is")
    screen.do("eventsync retry riverside")
    screen.do("eventsync run riverside --publish-only")
    screen.do("# two weeks of another feed, day by day, stopped by Ctrl-C in the middle of a day")
    switch(sandbox, latency_ms=LATENCY_MS)
    backfill = "eventsync backfill town-hall --no-dagster"
    days = f"--from {FIRST_DAY} --to {FIRST_DAY + timedelta(days=DAYS - 1)}"
    at_work = screen.interrupt(f"{backfill} {days}", lambda seen: re.search(r"\(6 of \d+\).* [3-9]/12", seen))
    screen.do("echo $?")
    screen.do(f"{backfill} --resume")
    screen.do("eventsync feeds")
    return at_work


@dataclass
class Screen:
    """A terminal in tmux, with a shell in it that says `$ `."""

    socket: str
    typed: int = 0

    def do(self, command: str) -> None:
        """Type a command and wait for the next prompt."""
        self._type(command)
        until(self._is_idle, f"the end of {command}")

    def interrupt(self, command: str, is_time: Callable[[str], object]) -> list[str]:
        """Type a command, press Ctrl-C once its screen shows something; return what it showed then."""
        self._type(command)
        until(lambda: is_time(self.seen()), f"the moment in {command}")
        seen = self.seen().splitlines()
        self.tmux("send-keys", "C-c")
        until(self._is_idle, f"the end of {command}")
        return seen

    def seen(self, *how: str) -> str:
        """Return all that was shown since the beginning; `-J`: lines that were wrapped in one, `-e`: in colours."""
        return self.tmux("capture-pane", "-p", *how, "-S", "-").rstrip("\n")

    def tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-L", self.socket, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"tmux {words[0]}: {done.stderr}")
        return done.stdout

    def _type(self, command: str) -> None:
        until(self._is_idle, "a prompt")
        self.tmux("send-keys", "-l", "--", command)
        self.tmux("send-keys", "Enter")
        self.typed += 1

    def _is_idle(self) -> bool:
        prompts = [line for line in self.seen().splitlines() if re.match(r"\$( |$)", line)]
        return len(prompts) == self.typed + 1 and prompts[-1].strip() == "$" and self.seen().endswith(prompts[-1])


@contextmanager
def terminal(folder: Path) -> Iterator[Screen]:
    """Open a terminal in the folder, for the length of the block."""
    programs = Path(sys.executable).parent
    kept = {name: os.environ[name] for name in ("HOME", "USER") if name in os.environ}
    environ = {**kept, "PATH": f"{programs}:{os.environ['PATH']}", "LANG": "C.UTF-8", "DAGSTER_DISABLE_TELEMETRY": "yes"}
    screen = Screen(f"eventsync-{os.getpid()}")
    options = ["set-option", "-g", "history-limit", "5000", ";", "set-option", "-g", "status", "off", ";"]
    size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
    shell = "exec env PS1='$ ' bash --norc --noprofile"  # a shell between us and this one would forget the prompt
    words = ["-f", "/dev/null", *options, "new-session", "-d", *size, "-c", str(folder), shell]
    subprocess.run(["tmux", "-L", screen.socket, *words], env=environ, check=True)
    try:
        yield screen
    finally:
        screen.tmux("kill-server")


def until(is_so: Callable[[], object], what: str) -> None:
    """Ask until the answer is yes."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {DEADLINE_S:.0f} s in vain for {what}")
        time.sleep(0.05)


def write(seen: str, at_work: list[str], coloured: str) -> None:
    """Write the text and the picture."""
    lines = [line.rstrip() for line in seen.splitlines()][:-1]  # the last one is a prompt
    shown = [line.rstrip() for line in at_work if line.strip()][-3:]
    head = "Played by docs/screenshots/session.py at a real terminal, with the sandbox as the service."
    told = [head, "", *lines, "", "The last lines of the terminal, just before Ctrl-C was pressed:", "", *shown]
    (HERE / "session.txt").write_text("\n".join(told) + "\n", "utf-8")
    text = Text.from_ansi("\n".join(coloured.splitlines()[:-1]))
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(text)
    # No font is fetched from elsewhere.
    form = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    svg = console.export_svg(title="eventsync", code_format=form)
    (HERE / "session.svg").write_text(svg, "utf-8")
    sys.stdout.write(f"session.txt: {len(lines)} lines; session.svg: {len(svg) // 1024} kB\n")


if __name__ == "__main__":
    main()
