"""The rows of every measurement: 15 columns, 245 bytes, the same in every run; and the event that each must become.

Only the standard library is needed, so that the peers' environment can read this too. Files of rows are written here as well,
with some rows edited or all of them in another order.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

COLUMNS = (
    *("id", "title", "category", "first", "opens", "last", "closes", "country", "city", "venue", "link", "price", "state"),
    *("organiser", "edited"),
)
CATEGORIES = ("music", "theatre", "dance", "film", "art", "market", "talks", "sport")
CITIES = ("Lisboa", "Porto", "Braga", "Coimbra", "Faro", "Évora")
STRIDE = 7_919
"""A prime: stepping through the rows by it meets each once, in an order that looks shuffled, without holding them."""


def cells(number: int) -> list[str]:
    """Return one row of 245 bytes: 336 days, 24 times of day, and a title and an address of its own."""
    shuffled = number * STRIDE % 10_007
    hour, minute = 8 + shuffled % 12, 30 * (shuffled // 12 % 2)
    day = f"{1 + shuffled % 28:02d}/{1 + shuffled // 28 % 12:02d}/2027"
    title = f"An evening of songs, tales &amp; slow dances, number {number:07d}"
    link = f"https://tickets.example.org/events/{number:07d}?from=ag"
    kind, city = CATEGORIES[shuffled % len(CATEGORIES)], CITIES[shuffled % len(CITIES)]
    times = (day, f"{hour:02d}:{minute:02d}", day, f"{hour + 2:02d}:{minute:02d}")
    start = (f"EV-{number:07d}", title, f"events/{kind}", *times, "PT", city, f"Hall {number % 400} of the Old Mill", link)
    return [*start, f"{5 + number % 40} €", "ok", "Culture Club", "2026-11-02T10:00"]


def write_rows(path: Path, count: int, *, edition: int = 0, edited: int = 0, is_shuffled: bool = False) -> None:
    """Write `count` rows as CSV; `edited` of them, evenly spread, say in another title which edition they are of."""
    spacing = max(1, count // edited) if edited else count + 1
    with path.open("w", newline="", encoding="utf-8") as target:
        writer = csv.writer(target)
        writer.writerow(COLUMNS)
        for number in _order(count, is_shuffled=is_shuffled):
            row = cells(number)
            if edited and number % spacing == edition % spacing and number // spacing < edited:
                row[1] += f", edition {edition}"
            writer.writerow(row)


def _order(count: int, *, is_shuffled: bool) -> Iterator[int]:
    """Yield each number once."""
    assert count % STRIDE, "each number would not be met once"
    return (number * STRIDE % count for number in range(count)) if is_shuffled else iter(range(count))


def write_tables(folder: Path) -> None:
    """Write the two lookup tables: what a category is called by the service, and where a city is."""
    known = "".join(f"events/{kind},{kind}\n" for kind in CATEGORIES)
    (folder / "categories.csv").write_text(f"category,slug\n{known}", encoding="utf-8")
    towns = "".join(f"PT,{city},pt-{city.lower()},{city},PT\n" for city in CITIES)
    (folder / "cities.csv").write_text(f"country,city,placeId,name,countryCode\n{towns}", encoding="utf-8")
