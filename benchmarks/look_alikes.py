"""The tests' look-alikes with many rows, each as a process of its own that says where it is and runs until it is stopped.

`look_alikes.py salesforce RECORDS`; `look_alikes.py sheets ROWS CREDENTIALS LOG`, with `tests` on the path. The service account's
credentials and each request are written into these files.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from lookalikes.salesforce import Server
from lookalikes.salesforce_org import SYSTEM, Org, SObject, Troubles, csv_cell
from lookalikes.salesforce_soql import Record, Select
from lookalikes.sheets import Google, google_on, programme
from lookalikes.threaded import app_served

FIELDS = {"Start__c": "datetime", "Day__c": "date", "Price__c": "currency", "Kinds__c": "multipicklist"}
FIELDS |= {"City__c": "string", "Text__c": "textarea"}


class Many(Sequence[Record]):
    """So many records that are made as they are asked for; none is kept."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(self.count))]
        if not 0 <= place < self.count:
            raise IndexError(place)
        return {
            "Id": f"a01{place + 1:012}AAA",
            "Name": f"Concert {place + 1}",
            "Start__c": f"2027-{1 + place % 12:02}-{1 + place % 28:02}T17:30:00.000+0000",
            "Day__c": f"2027-{1 + place % 12:02}-{1 + place % 28:02}",
            "Price__c": Decimal(place % 90) / 2,
            "Kinds__c": "Concert;Family",
            "City__c": "Lyon",
            "Text__c": f'An evening with "{place + 1}" guests,\nand a second line of text that is as long as such lines are.',
            "SystemModstamp": "2026-05-01T08:00:00.000+0000",
            "IsDeleted": False,
        }


class LargeOrg(Org):
    """An org that hands its records out as they are where nothing is asked of them."""

    def matching(self, select: Select, *, with_deleted: bool) -> Any:
        whole = self.object(select.source).records
        return whole if select.where is None else super().matching(select, with_deleted=with_deleted)


class LargeServer(Server):
    """Makes a few hundred lines of CSV once, and gives each record one of them with its own id."""

    def csv_lines(self, job: dict[str, Any], start: int, end: int) -> Iterator[str]:
        paths, kinds, rows = job["select"].fields, SYSTEM | FIELDS, job["rows"]
        yield ",".join(f'"{path}"' for path in paths) + "\n"
        made = [",".join(csv_cell(rows[place][path], kinds[path]) for path in paths) for place in range(min(336, len(rows)))]
        parts = [line.replace(f"a01{place + 1:012}AAA", "\0").partition("\0") for place, line in enumerate(made)]
        for place in range(start, end):
            before, _, after = parts[place % len(parts)]
            yield f"{before}a01{place + 1:012}AAA{after}\n"


class Logged(list[str]):
    """Requests, each written into a file as it comes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def append(self, request: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{request}\n")


def announce(**where: str) -> None:
    print(json.dumps(where), flush=True)
    threading.Event().wait()


def salesforce(records: str) -> None:
    org = LargeOrg(allowed=100_000, troubles=Troubles(polls=0)).add(SObject("Event__c", FIELDS, records=Many(int(records))))
    with app_served(LargeServer(org).app) as url:
        announce(instance_url=url, username=org.username, password=org.password, security_token=org.token)


def sheets(rows: str, credentials: str, log: str) -> None:
    google = Google(asked=Logged(Path(log)))
    book = google.add(programme(rows=int(rows)))
    with google_on(google):
        google.credentials(Path(credentials))
        announce(base_url=google.base_url, spreadsheet=book.id)


if __name__ == "__main__":
    {"salesforce": salesforce, "sheets": sheets}[sys.argv[1]](*sys.argv[2:])
