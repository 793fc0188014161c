"""The rows of every measurement: 15 columns, 245 bytes, the same in every run; and the event that each must become.

Only the standard library is needed, so that the peers' environment can read this too. Files of rows are written here as well,
with some rows edited or all of them in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

COLUMNS = (
    *("id", "title", "category", "first", "opens", "last", "closes", "country", "city", "venue", "link", "price", "state"),
    *("organiser", "edited"),
)
CATEGORIES = ("music", "theatre", "dance", "film", "art", "market", "talks", "sport")
CITIES = ("Lisboa", "Porto", "Braga", "Coimbra", "Faro", "Évora")
TITLE, LINK = "An evening of songs, tales &amp; slow dances, number ", "https://tickets.example.org/events/"
END = "ok,Culture Club,2026-11-02T10:00"
CYCLE = 10_007
BATCH = 1000
STRIDE = 7_919
"""A prime: stepping through the rows by it meets each once, in an order that looks shuffled, without holding them."""


def cells(number: int) -> list[str]:
    """Return one row of 245 bytes: 336 days, 24 times of day, and a title and an address of its own."""
    start = (f"EV-{number:07d}", f"{TITLE}{number:07d}", *_repeated(number * STRIDE % CYCLE))
    link = f"{LINK}{number:07d}?from=ag"
    return [*start, f"Hall {number % 400} of the Old Mill", link, f"{5 + number % 40} €", *END.split(",")]


def _repeated(shuffled: int) -> tuple[str, ...]:
    """Return the cells that occur again and again: category, two moments, country and city."""
    hour, minute = 8 + shuffled % 12, 30 * (shuffled // 12 % 2)
    day = f"{1 + shuffled % 28:02d}/{1 + shuffled // 28 % 12:02d}/2027"
    kind, city = CATEGORIES[shuffled % len(CATEGORIES)], CITIES[shuffled % len(CITIES)]
    return (f"events/{kind}", day, f"{hour:02d}:{minute:02d}", day, f"{hour + 2:02d}:{minute:02d}", "PT", city)


def write_rows(path: Path, count: int, *, edition: int = 0, edited: int = 0, is_shuffled: bool = False) -> None:
    """Write `count` rows as CSV; `edited` of them, evenly spread, say in another title which edition they are of."""
    spacing = max(1, count // edited) if edited else count + 1
    changed = set(range(edition % spacing, count, spacing)[:edited]) if edited else set()
    order = _order(count, is_shuffled=is_shuffled)
    with path.open("wb") as target:
        target.write(",".join(COLUMNS).encode() + b"\r\n")
        while lines := [_line(number, edition if number in changed else 0) for number in islice(order, BATCH)]:
            target.write("".join(lines).encode())


def _line(number: int, edition: int) -> str:
    """Return the row's `cells` as a line of CSV: put together in a third of the time that csv.writer takes for them."""
    title = f"{TITLE}{number:07d}{f', edition {edition}' if edition else ''}"
    link, price = f"{LINK}{number:07d}?from=ag", 5 + number % 40
    middle = _middle(number * STRIDE % CYCLE)
    return f'EV-{number:07d},"{title}",{middle},Hall {number % 400} of the Old Mill,{link},{price} €,{END}\r\n'


@cache
def _middle(shuffled: int) -> str:
    return ",".join(_repeated(shuffled))


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
