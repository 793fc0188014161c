"""The eventsync of a measurement: a folder with a feed, its rows and its ledger, and the command as a user starts it.

How long it takes is `running.py`'s to say; what is measured is in `measures/`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rows
from running import Cost, run

from state.opening import opened_database

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from ledger_tables import enter_as_delivered

KEY = "benchmark-key-of-the-bench"
COMMAND = (sys.executable, "-c", "from pipelines.cli.entry import main; main()")
MOMENT = (
    '{{at: {{day: {{from: {}, do: {{date: "%d/%m/%Y"}}}}, clock: {{from: {}, do: {{time: "%H:%M"}}}}, zone: Europe/Lisbon}}}}'
)
FIELDS = {
    "channelId": "{channel: city-agenda}",
    "title": "{from: title, do: [html_unescape, collapse]}",
    "startAt": MOMENT.format("first", "opens"),
    "endAt": MOMENT.format("last", "closes"),
    "timezone": "Europe/Lisbon",
    "status": "published",
    "classifications": "{from: category, do: {lookup: categories.csv, take: slug}}",
    "approxLocation.city": "{lookup: cities.csv, by: [{from: country}, {from: city}]}",
    "locationName": "{from: venue, do: [trim], on_empty: omit}",
    "offers": "[{name: {from: price, do: {truncate: 40}}, url: {from: link, do: url}, availability: available}]",
}
"""Twelve fields of the event: the city gives three of them."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One feed in a folder of its own, and the service that it publishes to."""

    folder: Path
    url: str

    @property
    def source(self) -> Path:
        return self.folder / "feeds" / "rows.csv"

    def prepare(self, in_flight: int | str = 32) -> None:
        """Write the mapping file and its tables; the rows come from `rows.write_rows`."""
        feeds = self.folder / "feeds"
        feeds.mkdir(parents=True, exist_ok=True)
        rows.write_tables(feeds)
        event = "".join(f"  {name}: {value}\n" for name, value in FIELDS.items())
        head = "feed: bench\nsource: {kind: csv, path: rows.csv}\nkey: [id]\n"
        (feeds / "bench.yaml").write_text(f"{head}event:\n{event}publish: {{in_flight: {in_flight}}}\n", encoding="utf-8")

    @property
    def ledger(self) -> Path:
        return self.folder / "state.db"

    def ledger_bytes(self) -> int:
        """Return what the state DB takes on the disk, its journal included."""
        return sum(each.stat().st_size for each in self.folder.glob("state.db*"))

    def enter_as_delivered(self) -> None:
        """Enter each row that still waits as delivered, with an event of its own."""
        with opened_database(f"sqlite:///{self.ledger}") as engine:
            enter_as_delivered(engine)

    def env(self) -> dict[str, str]:
        return {
            "EVENT_API_BASE_URL": self.url,
            "EVENT_API_KEY": KEY,
            "EVENTSYNC_FEEDS": str(self.folder / "feeds"),
            "EVENTSYNC_STATE_URL": f"sqlite:///{self.ledger}",
            "DAGSTER_HOME": str(self.folder / "dagster"),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
        }

    def call(self, *words: str) -> Cost:
        return run([*COMMAND, *words], self.env(), self.folder)

    def sync(self, *words: str) -> Cost:
        """Run the feed without Dagster."""
        return self.call("run", "bench", "--no-dagster", "--json", *words)


def told(cost: Cost) -> dict[str, Any]:
    """Return the JSON document that the command printed."""
    return dict(json.loads(cost.out))
