"""What `eventsync ui` shows: feeds that ran well or did not, their past, a broken file; each test has its own feed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from on_dagster.desk import HEADER, MAPPING, Desk, desk_in, eventsync_ui, line

from pipelines.before_serving import DAGSTER_YAML

KEY = "sk-live-7Qx9Kv3Rw8Zt5Lm2Hd6"
STEADY, BRAKED, LAUNCHED, DATED, BROKEN = "town-hall", "book-fair", "night-walks", "old-posters", "lost-walks"
GROWING = (10, 20, 30)
"""So many rows the steady feed's three runs find."""
BAD, ROWS = 4, 10
"""So many of the braked feed's rows have a day that is none in its second run."""
DAYS = ("2024-05-01", "2024-05-02", "2024-05-03")
"""Long ago: the UI hides days that are more than ninety days old, until they are asked for."""

_ONCE_A_YEAR = MAPPING.replace('"15 */2 * * *"', '"0 4 1 1 *"')
"""No tick comes while the pages are looked at."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The address of the UI, the desk behind it, the run that a brake has stopped, and the process of the UI."""

    ui: str
    desk: Desk
    braked_run: str
    pid: int

    def asset(self, feed: str, phase: str, query: str) -> str:
        """The address of an asset's page; `query` names its tab, and what is chosen there."""
        return f"{self.ui}/assets/{feed}/{phase}?{query}"


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """Let everything happen that is to be seen, then leave the UI running for the length of the block."""
    home = folder / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(DAGSTER_YAML, "utf-8")
    with dg.DagsterInstance.from_config(str(home)) as instance, desk_in(folder, instance, KEY) as desk:
        write_feeds(desk)
        braked_run = play(desk)
        with eventsync_ui(desk.environ, home, folder) as (process, url):
            yield Stage(url, desk, braked_run, process.pid)


def write_feeds(desk: Desk) -> None:
    for feed in (STEADY, BRAKED, LAUNCHED):
        desk.mapping(feed, source=f"{feed}.csv", text=_ONCE_A_YEAR)
    desk.mapping(BROKEN, source="lost.csv", text=_ONCE_A_YEAR.replace("  title:", "  titel:"))
    desk.mapping(DATED, text=_ONCE_A_YEAR.replace("../{source}", "../in/{{date:%Y%m%d}}.csv"))
    write_rows(desk, f"{LAUNCHED}.csv", map(line, range(200, 205)))
    (desk.folder / "in").mkdir()
    for number, day in enumerate(DAYS):
        write_rows(desk, f"in/{day.replace('-', '')}.csv", map(line, (300 + 2 * number, 301 + 2 * number)))


def write_rows(desk: Desk, name: str, lines: Iterable[str]) -> None:
    (desk.folder / name).write_text("\n".join([HEADER, *lines]) + "\n", "utf-8")


def play(desk: Desk) -> str:
    """Run one feed while it grows, and another until a brake stops it; return the id of the stopped run."""
    for count in GROWING:
        write_rows(desk, f"{STEADY}.csv", map(line, range(count)))
        assert desk.run(feed=STEADY).success
    for bad in (0, BAD):
        numbers = range(100, 100 + ROWS)
        write_rows(desk, f"{BRAKED}.csv", [line(each, day="soon") if each < 100 + bad else line(each) for each in numbers])
        result = desk.run(feed=BRAKED)
        assert result.success is (bad == 0)
    return result.run_id
