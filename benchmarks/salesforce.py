"""What it costs to read a large object of Salesforce in bulk: `python benchmarks/salesforce.py [--records 1000000]`.

The server is the tests' look-alike in a process of its own; what Salesforce itself takes to prepare a job is not in here.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from connectors.sources.contract import REAL_CLOCK, Access, SalesforceAccess
from connectors.sources.rows import ColumnRequest
from connectors.sources.salesforce.org import Org
from connectors.sources.salesforce.query import Shapes, select_object
from connectors.sources.salesforce.source import read_salesforce
from mappings.spec.source import SalesforceSource

TESTS = Path(__file__).parents[1] / "tests"
COLUMNS = frozenset({"Name", "Start__c", "Day__c", "Price__c", "Kinds__c", "City__c", "Text__c"})


@contextmanager
def running_org(records: int) -> Iterator[Access]:
    command = [sys.executable, Path(__file__).with_name("look_alikes.py"), "salesforce", str(records)]
    places = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": places}) as server:
        assert server.stdout is not None
        try:
            told = json.loads(server.stdout.readline())
            secrets = {name: SecretStr(told.pop(name)) for name in ("password", "security_token")}
            yield Access(salesforce=SalesforceAccess(**told, **secrets))
        finally:
            server.terminate()


def peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)


def floor(access: Access, api: str) -> tuple[int, float]:
    """Only the bytes: the same results, asked for and thrown away."""
    size, started = 0, time.perf_counter()
    with closing(Org(access, REAL_CLOCK)) as org:
        selection = select_object(_spec(api), ColumnRequest(COLUMNS), Shapes(org.describe))
        job = org.call("POST", "jobs/query", {"operation": "query", "query": selection.soql()})
        path, locator = f"jobs/query/{job['id']}", ""
        org.call("GET", path)
        while locator != "null":
            more: dict[str, str | int] = {"locator": locator} if locator else {}
            with org.stream(f"{path}/results", maxRecords=50_000, **more) as answer:
                size += sum(map(len, answer.iter_content(65_536)))
                locator = answer.headers["Sforce-Locator"]
    return size, time.perf_counter() - started


def read(access: Access, api: str) -> tuple[int, float, float]:
    started, cpu = time.perf_counter(), time.process_time()
    count = 0
    with read_salesforce(_spec(api), ColumnRequest(COLUMNS), access) as reading:
        for _ in reading.rows:
            count += 1
        told = reading.ending()
    assert not told.is_short
    return count, time.perf_counter() - started, time.process_time() - cpu


def used(access: Access) -> int:
    """The requests that the org has counted so far; logins are not."""
    with closing(Org(access, REAL_CLOCK)) as org:
        day = org.limits()["DailyApiRequests"]
        return int(day["Max"]) - int(day["Remaining"])


def _spec(api: str) -> SalesforceSource:
    return SalesforceSource.model_validate({"kind": "salesforce", "object": "Event__c", "api": api})


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--records", type=int, default=1_000_000)
    asked = words.parse_args()
    table = Table(
        "what",
        "rows",
        "requests",
        "s",
        "rows/s",
        "CPU us/row",
        "peak MB",
        title="Reading Salesforce (the look-alike on this machine)",
    )
    with running_org(min(1000, asked.records)) as access:
        read(access, "bulk")
        table.add_row("bulk, to warm up", "1,000", "", "", "", "", f"{peak_mb():.0f}")
    for what, api, records in (("pages", "rest", min(50_000, asked.records)), ("bulk", "bulk", asked.records)):
        with running_org(records) as access:
            count, spent_s, cpu_s = read(access, api)
            row = (
                f"{count:,}",
                str(used(access)),
                f"{spent_s:.1f}",
                f"{count / spent_s:,.0f}",
                f"{cpu_s / count * 1e6:.1f}",
                f"{peak_mb():.0f}",
            )
            table.add_row(what, *row)
    with running_org(asked.records) as access:
        size, spent_s = floor(access, "bulk")
        table.add_row(
            f"its bytes only ({size / 1e6:.0f} MB)", f"{asked.records:,}", "", f"{spent_s:.1f}", f"{asked.records / spent_s:,.0f}"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
