"""Reading from the look-alike of Salesforce as a feed does, with time that passes at once."""

from __future__ import annotations

import atexit
import itertools
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from lookalikes.salesforce import Server, serving
from lookalikes.salesforce_org import Org, SObject
from pydantic import SecretStr

from connectors.sources.contract import Access, Clock, Ending, SalesforceAccess
from connectors.sources.salesforce.source import read_salesforce
from mappings.outcome import SourceRow
from mappings.spec.source import SalesforceSource


@dataclass
class VirtualClock:
    """Time that passes while somebody sleeps."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    @property
    def clockwork(self) -> Clock:
        return Clock(lambda: self.now, lambda: self.now, self.sleep, lambda: 0.5)


@dataclass
class Read:
    rows: list[SourceRow]
    columns: tuple[str, ...]
    ending: Ending
    is_whole: bool

    @property
    def cells(self) -> list[dict[str, str]]:
        return [dict(row.cells) for row in self.rows]

    def column(self, name: str) -> list[str]:
        return [row.cells[name] for row in self.rows]


@dataclass
class Reader:
    """Reads one org, over HTTP."""

    org: Org
    server: Server
    clock: VirtualClock = field(default_factory=VirtualClock)

    def access(self, **changes: Any) -> Access:
        org = self.org
        said: dict[str, Any] = {
            "username": org.username,
            "password": SecretStr(org.password),
            "security_token": SecretStr(org.token),
            "instance_url": self.server.base_url,
        }
        return Access(salesforce=SalesforceAccess(**said | changes))

    def source(self, asked: set[str] | None = None, /, *, since: str = "", access: Access | None = None, **spec: Any) -> Any:
        words = {"kind": "salesforce"} | ({"object": "Event__c"} if "query" not in spec else {}) | spec
        model = SalesforceSource.model_validate(words)
        return read_salesforce(model, model.request(asked or set()), access or self.access(), since, self.clock.clockwork)

    def read(self, asked: set[str] | None = None, /, *, since: str = "", access: Access | None = None, **spec: Any) -> Read:
        with self.source(asked, since=since, access=access, **spec) as reading:
            rows = list(reading.rows)
            return Read(rows, reading.columns, reading.ending(), reading.is_whole)

    @property
    def queries(self) -> list[str]:
        return [asked for _, asked in self.org.asked if asked.startswith("SELECT") or " SELECT" in asked]


def reader_of(org: Org) -> Reader:
    """One server answers for all: starting and stopping it takes longer than most tests."""
    server = _running()
    server.org = org
    return Reader(org, server)


@cache
def _running() -> Server:
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(serving(Org()))


def record_id(number: int) -> str:
    return f"a01{number:012}AAA"


def events(count: int, **more: Any) -> list[dict[str, Any]]:
    return [event(number, **more) for number in range(1, count + 1)]


def event(number: int, minute: int | None = None, **more: Any) -> dict[str, Any]:
    return {
        "Id": record_id(number),
        "Name": f"Event {number}",
        "SystemModstamp": moment(number if minute is None else minute),
        "IsDeleted": False,
    } | more


def moment(minute: int) -> str:
    hours, minutes = divmod(minute, 60)
    days, hours = divmod(hours, 24)
    return f"2026-05-{1 + days:02}T{hours:02}:{minutes:02}:00.000+0000"


def org_of(records: list[dict[str, Any]], fields: dict[str, str] | None = None, **rest: Any) -> Org:
    org = Org(numbers=itertools.count(1))
    return org.add(SObject("Event__c", fields or {}, records=records, **rest))
