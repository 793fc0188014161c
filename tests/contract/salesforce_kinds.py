"""Salesforce as kinds of source: an object of the look-alike, read in pages, in bulk, and by what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from contract.source_kinds import Grid, Kind, Stand
from lookalikes.salesforce_org import SObject
from lookalikes.salesforce_reader import Reader, event, moment, org_of, reader_of

from connectors.masking import Mask
from connectors.sources.contract import Access
from mappings.spec.source import SalesforceSource, SourceSpec


@dataclass
class OrgStand:
    """An object with a record for each row: known by its first cell, and by its number among those with the same."""

    base: Path
    reader: Reader
    words: Mapping[str, Any]
    place: str = "Event__c"
    port: int = 0
    access: Access = field(init=False)
    environment: Mapping[str, str] = field(init=False)
    secrets: Sequence[str] = field(init=False)
    edits: int = 0
    new: Iterator[int] = field(default_factory=lambda: count(1))
    ids: dict[tuple[str, int], int] = field(default_factory=dict)
    records: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        org, url = self.reader.org, self.reader.server.base_url
        self.port = int(url.rpartition(":")[2])
        self.secrets = (org.password, org.token, "session-0001")
        self.access = Access(salesforce=self.reader.access().salesforce, mask=Mask(self.secrets[:2]))
        self.environment = {
            "SALESFORCE_USERNAME": org.username,
            "SALESFORCE_PASSWORD": org.password,
            "SALESFORCE_SECURITY_TOKEN": org.token,
            "SALESFORCE_INSTANCE_URL": url,
        }

    def put(self, grid: Grid) -> SourceSpec:
        if grid:
            self._edit([_field(name) for name in grid[0]], grid[1:])
        else:
            self.reader.org.objects["Event__c"].is_described = False
        words = {"kind": "salesforce", "object": "Event__c"} | ({"columns": {"ref": ["Key__c"]}} if grid else {})
        fields = [_field(name) for name in grid[0] if name != "ref"] if grid else []
        return SalesforceSource.model_validate(words | {"fields": fields} | self.words)

    def _edit(self, names: Sequence[str], rows: Grid) -> None:
        self.edits += 1
        numbers = self._numbers(rows)
        if numbers != sorted(numbers):
            # Rows that change their places are others: records come in the order in which they were made.
            self.ids.clear()
            numbers = self._numbers(rows)
        for number, cells in zip(numbers, rows, strict=True):
            self._write(number, dict(zip(names, (cell or None for cell in cells), strict=True)))
        for number in self.records.keys() - set(numbers):
            self._write(number, {"IsDeleted": True})
        kept = [self.records[number] for number in sorted(self.records)]
        self.reader.org.add(SObject("Event__c", dict.fromkeys(names, "string"), records=kept))

    def _numbers(self, rows: Grid) -> list[int]:
        met: Counter[str] = Counter()
        numbers = []
        for cells in rows:
            met[cells[0]] += 1
            numbers.append(self.ids.setdefault((cells[0], met[cells[0]]), next(self.new)))
        return numbers

    def _write(self, number: int, told: dict[str, Any]) -> None:
        known = self.records.get(number, {})
        told = {"IsDeleted": False} | told
        if not told.items() <= known.items():
            self.records[number] = event(number) | known | told | {"SystemModstamp": moment(self.edits)}

    def take_away(self) -> None:
        del self.reader.org.objects["Event__c"]

    def break_off(self) -> None:
        self.reader.org.troubles.lost_from_pages = 1
        self.reader.org.troubles.fails_as = "InternalServerError : Retried more than fifteen times"


def _field(name: str) -> str:
    """The names of custom fields end in `__c`."""
    return "Key__c" if name == "ref" else name


def _stand(**words: Any) -> Callable[[Path], AbstractContextManager[Stand]]:
    @contextmanager
    def stand(base: Path) -> Iterator[Stand]:
        org = org_of([])
        org.troubles.polls = 0
        yield OrgStand(base, reader_of(org), words)

    return stand


def _kind(name: str, *, is_incremental: bool = False, **words: Any) -> Kind:
    return Kind(name, _stand(**words), first=None, is_grid=False, is_incremental=is_incremental, is_measured=False)


SALESFORCE_KINDS = [
    _kind("salesforce in pages", api="rest"),
    _kind("salesforce in bulk", api="bulk"),
    _kind("salesforce by what changed", is_incremental=True, incremental={}),
]
