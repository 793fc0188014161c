"""Paginated APIs as kinds of source: one for each way from page to page, and one that reads what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.source_kinds import Grid, Kind, Stand
from lookalikes.rest_api import PAGERS, Api, cutting, rest_api
from pydantic import SecretStr

from connectors.sources.contract import Access
from mappings.spec.source import RestSource, SourceSpec

_TOKEN = "rest-token-of-ours"


@dataclass
class ApiStand:
    """An API with a record for each row. With `is_incremental` each edit has a later stamp, and a row that goes is marked."""

    base: Path
    api: Api
    is_incremental: bool = False
    access: Access = field(default_factory=lambda: Access(secrets={"REST_EXAMPLE": SecretStr(_TOKEN)}))
    environment: Mapping[str, str] = field(default_factory=lambda: {"REST_EXAMPLE": _TOKEN})
    secrets: Sequence[str] = (_TOKEN,)
    edits: int = 0
    kept: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return self.api.port

    @property
    def place(self) -> str:
        return self.api.url

    def put(self, grid: Grid) -> SourceSpec:
        records = [dict(zip(grid[0], cells, strict=True)) for cells in grid[1:]] if grid else []
        pages = {"total": "paging.total", **PAGERS[self.api.pager]}
        words: dict[str, Any] = {"kind": "rest", "url": self.api.url, "records": "data.events", "pages": pages}
        words["auth"] = {"bearer": "EXAMPLE"}
        if self.is_incremental:
            records = self._stamped(records)
            words |= {"params": {"since": "{since}"}, "incremental": {"by": "changed", "overlap": "0s", "deleted": "gone"}}
        self.api.records = records if grid else None
        return RestSource.model_validate(words)

    def _stamped(self, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the records as they stand, and those that are gone; each has the stamp of its last edit."""
        self.edits += 1
        stamp = f"2026-05-03T10:{self.edits // 60:02}:{self.edits % 60:02}Z"
        met: Counter[str] = Counter()
        kept: dict[tuple[str, int], dict[str, Any]] = {}
        for one in records:
            first = next(iter(one.values()))
            met[first] += 1
            known = self.kept.get((first, met[first]), {"gone": True})
            is_known = not known["gone"] and one.items() <= known.items()
            kept[first, met[first]] = known if is_known else {**one, "changed": stamp, "gone": False}
        for key in self.kept.keys() - kept.keys():
            known = self.kept[key]
            kept[key] = known if known["gone"] else {**known, "changed": stamp, "gone": True}
        self.kept = kept
        return list(kept.values())

    def take_away(self) -> None:
        self.api.answer = lambda _: (404, {"message": f"no such thing for {_TOKEN}"})

    def break_off(self) -> None:
        self.api.lasting = dict.fromkeys(range(1000), cutting)


def _stand(pager: str, *, is_incremental: bool = False) -> Callable[[Path], AbstractContextManager[Stand]]:
    @contextmanager
    def stand(base: Path) -> Iterator[Stand]:
        with rest_api(pager, size=100) as api:
            yield ApiStand(base, api, is_incremental)

    return stand


def _kind(name: str, pager: str, *, is_incremental: bool = False) -> Kind:
    where = _stand(pager, is_incremental=is_incremental)
    return Kind(name, where, first=1, is_grid=False, is_measured=False, is_incremental=is_incremental)


REST_KINDS = [
    *(_kind(f"rest by {pager}", pager) for pager in PAGERS),
    _kind("rest by what changed", "cursor", is_incremental=True),
]
