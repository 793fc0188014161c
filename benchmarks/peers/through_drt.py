"""drt: a project of one sync, from a query of the CSV in DuckDB to its REST destination with a key of each row; `drt run`.

The query is the mapping, as drt has it: lookups by joins, moments and their offsets in SQL. Its rate limit (ten a second unless
told) is set out of the way.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml
from drt.cli.main import app
from job import PATH, SECRET

CLOCK = "strptime(r.{day} || ' ' || r.{clock}, '%d/%m/%Y %H:%M')"
MOMENT = (
    "strftime({local}, '%Y-%m-%dT%H:%M:%S') || CASE WHEN {local} >= TIMESTAMP '2027-03-28 02:00:00'"
    " AND {local} < TIMESTAMP '2027-10-31 02:00:00' THEN '+01:00' ELSE '+00:00' END"
)
BODY = """{"channelId": 7, "title": {{ row.title | tojson_safe }}, "startAt": "{{ row.start_at }}", "endAt": "{{ row.end_at }}",
 "timezone": "Europe/Lisbon", "status": "published", "classifications": ["{{ row.slug }}"],
 "approxLocation": {"city": {"placeId": "{{ row.place }}", "name": {{ row.city | tojson_safe }}, "countryCode": "PT"}},
 "locationName": {{ row.venue | tojson_safe }},
 "offers": [{"name": {{ row.price | tojson_safe }}, "url": {{ row.link | tojson_safe }}, "availability": "available"}]}"""


def moment(day: str, clock: str) -> str:
    return MOMENT.format(local=CLOCK.format(day=day, clock=clock))


def query(folder: Path) -> str:
    files = {name: f"read_csv('{folder / name}.csv', all_varchar = true)" for name in ("rows", "categories", "cities")}
    return (
        f"SELECT r.id, replace(r.title, '&amp;', '&') AS title, {moment('first', 'opens')} AS start_at,"
        f" {moment('last', 'closes')} AS end_at, c.slug, p.placeId AS place, r.city, trim(r.venue) AS venue, r.price, r.link"
        f" FROM {files['rows']} r JOIN {files['categories']} c ON c.category = r.category"
        f" JOIN {files['cities']} p ON p.country = r.country AND p.city = r.city"
    )


def write_project(url: str, folder: Path) -> None:
    destination = {
        "type": "rest_api",
        "url": f"{url}{PATH}",
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "auth": {"type": "bearer", "token_env": "BENCH_TOKEN"},
        "body_template": BODY,
        "native_idempotency_key": "bench-{{ row.id }}",
    }
    sync = {"mode": "full", "batch_size": 1000, "rate_limit": {"requests_per_second": 1_000_000}, "on_error": "fail"}
    whole = {"name": "bench", "model": query(folder), "destination": destination, "sync": sync}
    pages = {
        folder / "drt_project.yml": {"name": "bench", "profile": "bench"},
        folder / ".drt" / "profiles.yml": {"bench": {"type": "duckdb", "database": ":memory:"}},
        folder / "syncs" / "bench.yml": whole,
    }
    for path, page in pages.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(page), encoding="utf-8")


if __name__ == "__main__":
    place = Path(sys.argv[2])
    write_project(sys.argv[1], place)
    os.environ.update(HOME=str(place), DO_NOT_TRACK="1", BENCH_TOKEN=SECRET)
    os.chdir(place)
    app(["run", "--quiet"])
