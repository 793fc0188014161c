"""`make demo-sources`: a sheet, an org, a database and a JSON API on this machine, synced twice through Dagster.

The second time nothing is sent.

`python -m lookalikes.demo [--ui]` (with `tests` on the path).
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lookalikes.rest_api import rest_api
from lookalikes.salesforce import serving
from lookalikes.salesforce_org import Org, SObject
from lookalikes.sheets import ACCOUNT, Google, google_on
from lookalikes.sheets_book import Book, Cell, Content, Sheet, day

from pipelines.cli.output.console import Output
from pipelines.cli.run import sync_feeds
from pipelines.cli.run_report import sent_in, show_accounts, show_report
from pipelines.cli.servers import demo_service, leave_running
from pipelines.settings import read_settings

FEEDS = Path(__file__).with_name("feeds")
SHEET_ID = "1DemoTownHallProgramme000000000000000000"
_FIRST_DAY = 47968.0
"""3 May 2031, as a spreadsheet counts days."""


@dataclass(frozen=True)
class Places:
    """The servers, and the environment that leads to them."""

    google: Google
    org: Org
    environ: Mapping[str, str]
    feeds: Path

    @property
    def sheet(self) -> Sheet:
        return self.google.books[SHEET_ID].sheets[0]

    def said(self) -> list[dict[str, str]]:
        """What the sheet's own columns say of each row: its id, its status, what is wrong."""
        rows = map(_filled, self.sheet.grid[3:])
        return [{"ID": str(row[0]), "Status": str(row[6] or ""), "Problem": str(row[8] or "")} for row in rows]


def town_hall() -> Book:
    """A programme as its editor keeps it: notes above the header, typed days and hours, a row without a title, two mistakes."""
    titles = ["Jazz at nine", "The Seagull", "Night of short films", "Letters home", "Organ at noon", "", "Fado", "On bees"]
    genres = ["Concert", "Play", "Film", "Talk", "Concert", "Talk", "Concrt", "Talk"]
    grid: list[list[Content]] = [["Programme, spring. Questions: Ana"], []]
    grid.append(["ID", "Title", "Day", "From", "Genre", "Room", "Status", "Event ID", "Problem"])
    for number, (title, genre) in enumerate(zip(titles, genres, strict=True), start=1):
        hour = Cell((18 + number / 4) / 24, "TIME", "hh:mm") if number != 4 else None
        grid.append([f"01{number:02}", title, day(_FIRST_DAY + number), hour, genre, "Great Hall" if number % 2 else "Studio"])
    grid[-1][2] = "mid May"
    return Book(SHEET_ID, "Town hall", [Sheet("Programme", grid, gid=7)], writers={ACCOUNT})


def festival() -> Org:
    """Sessions at two venues, some not confirmed yet, one not public."""
    venues = [{"Id": f"a0200000000000{number}AAA", "Name": name} for number, name in enumerate(("LX Factory", "Casa da Musa"), 1)]
    sessions = [
        {
            "Id": f"a01000000000{number:03}AAA",
            "Name": f"Session {number}",
            "Start__c": f"2031-06-{number:02}T20:30:00.000+0000",
            "Public__c": number != 5,
            "Stage__c": "Confirmed" if number % 4 else "Wished",
            "Genres__c": "Concert;Family" if number % 2 else "Talk",
            "Venue__c": venues[number % 2]["Id"],
            "SystemModstamp": f"2026-05-{number:02}T08:00:00.000+0000",
            "IsDeleted": False,
        }
        for number in range(1, 13)
    ]
    fields = {"Start__c": "datetime", "Public__c": "boolean", "Stage__c": "picklist", "Genres__c": "multipicklist"}
    return Org().add(
        SObject("Session__c", fields, parents={"Venue__c": ("Venue__r", "Venue__c")}, records=sessions),
        SObject("Venue__c", {}, records=venues),
    )


def concerts(path: Path) -> str:
    """Write a database of concerts; return its address."""
    rows = [(n, f"Concert {n}", f"2031-07-{n:02}T20:00:00Z", "confirmed" if n % 3 else "wished") for n in range(1, 11)]
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE concerts (id INTEGER PRIMARY KEY, title TEXT, starts_at TEXT, state TEXT)")
        connection.executemany("INSERT INTO concerts VALUES (?, ?, ?, ?)", rows)
    return f"sqlite:///{path}"


def walks() -> list[dict[str, str]]:
    """Return walks through the old town."""
    return [{"id": f"W{n}", "name": f"Walk {n}", "day": f"2031-08-{n:02}"} for n in range(1, 9)]


@contextmanager
def running_places(folder: Path) -> Iterator[Places]:
    """Run all servers while the block lasts; `folder` is given the credentials for the sheet, the database and the feeds."""
    google, org = Google(), festival()
    google.add(town_hall())
    folder.mkdir(parents=True, exist_ok=True)
    feeds = shutil.copytree(FEEDS, folder / "feeds")
    with google_on(google), serving(org) as salesforce, rest_api("next_url", records=walks(), size=3) as api:
        own = feeds / "demo-api.yaml"
        own.write_text(own.read_text("utf-8").replace("http://127.0.0.1:8091/events", api.url), "utf-8")
        environ = {
            "GOOGLE_APPLICATION_CREDENTIALS": str(google.credentials(folder / "service-account.json")),
            "EVENTSYNC_SHEETS_URL": google.base_url,
            "SALESFORCE_USERNAME": org.username,
            "SALESFORCE_PASSWORD": org.password,
            "SALESFORCE_SECURITY_TOKEN": org.token,
            "SALESFORCE_INSTANCE_URL": salesforce.base_url,
            "SQL_DEMO": concerts(folder / "concerts.db"),
        }
        yield Places(google, org, environ, feeds)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--ui", action="store_true", help="leave the Dagster UI running until Ctrl-C")
    words.add_argument("--folder", type=Path, default=Path(".eventsync/demo-sources"), help="emptied first")
    asked, output = words.parse_args(), Output()
    with demo_service(asked.folder, FEEDS) as (sandbox, environ), running_places(asked.folder.resolve() / "access") as places:
        all_environ = {**environ, **places.environ, "EVENTSYNC_FEEDS": str(places.feeds)}
        settings = read_settings(all_environ, Path.cwd())
        first = sync_feeds(
            settings, output, "First run: a sheet, an org, a database and an API, with the outcome of every row", show_report
        )
        second = sync_feeds(settings, output, "Second run: no row has changed, so nothing is sent", show_accounts)
        output.table("what the sheet now says of its rows", places.said())
        output.note(
            f"\nSecond run: {sum(map(sent_in, second))} sent. Writes into the sheet in both runs: {len(places.google.written)}"
        )
        if asked.ui:
            return leave_running(settings, all_environ, 3000, [f"The published events: {sandbox.base_url}/"])
    is_well = all(report.exit_code == 0 for report in (*first, *second)) and not sum(map(sent_in, second))
    return 0 if is_well else 1


def _filled(row: list[Content]) -> list[Content]:
    return [*row, *[None] * (9 - len(row))]


if __name__ == "__main__":
    sys.exit(main())
