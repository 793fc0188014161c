"""A glance at sources elsewhere, as real servers tell of them: a request or two, nothing read, no secret told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lookalikes.sheets import Fault
from lookalikes.web_files import Web, web_server
from unit.connectors_sources.reading import SPEC
from unit.connectors_sources.sheets_at_hand import Desk, sheet_of

from connectors.sources.catalogue import SourceProbe, probe_source
from connectors.sources.contract import NO_ACCESS, SourceRefusedError


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as served:
        yield served


def glance(base: Path, **source: Any) -> SourceProbe:
    return probe_source(SPEC.validate_python({"kind": "csv", **source}), base, access=NO_ACCESS)


def test_a_file_on_the_web_costs_one_request_and_is_news_once_its_version_is_another(web: Web, tmp_path: Path) -> None:
    web.put("/agenda.csv", "id\n1\n")
    first = glance(tmp_path, path=web.address("/agenda.csv"))
    assert [asked.method for asked in web.asked] == ["HEAD"]
    assert not glance(tmp_path, path=web.address("/agenda.csv")).is_news_to(first.marks)
    web.put("/agenda.csv", "id\n2\n")
    assert glance(tmp_path, path=web.address("/agenda.csv")).is_news_to(first.marks)


def test_a_file_of_which_the_server_tells_no_version_says_nothing_either_way(web: Web, tmp_path: Path) -> None:
    web.put("/agenda.csv", "id\n1\n", etag="", changed_at=None)
    assert "agenda.csv has no version" in glance(tmp_path, path=web.address("/agenda.csv")).blind


def test_no_secret_of_an_address_is_in_what_is_told(web: Web, tmp_path: Path) -> None:
    web.instead = lambda handler: bool(handler.send_error(403)) or True
    with pytest.raises(SourceRefusedError) as refused:
        glance(tmp_path, path=web.address("/agenda.csv", user="ana:s3cret-word"))
    assert "s3cret-word" not in f"{refused.value} {refused.value.hint}"


def test_a_second_table_that_has_changed_is_news_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,town\n1,lx\n", "utf-8")
    (tmp_path / "b.csv").write_text("id,name\nlx,Lisbon\n", "utf-8")
    join = [{"source": {"kind": "csv", "path": "b.csv"}, "by": {"town": "id"}, "prefix": "town."}]
    first = glance(tmp_path, path="a.csv", join=join)
    assert not glance(tmp_path, path="a.csv", join=join).is_news_to(first.marks)
    (tmp_path / "b.csv").write_text("id,name\nlx,Lisboa\nop,Porto\n", "utf-8")
    assert glance(tmp_path, path="a.csv", join=join).is_news_to(first.marks)


def test_of_files_of_which_the_newest_counts_an_older_one_is_no_news(tmp_path: Path) -> None:
    for name in ("2031-05-01.csv", "2031-05-02.csv"):
        (tmp_path / name).write_text("id\n1\n", "utf-8")
    first = glance(tmp_path, path="*.csv", files="newest")
    (tmp_path / "2031-05-01.csv").write_text("id\n1\n2\n", "utf-8")
    assert not glance(tmp_path, path="*.csv", files="newest").is_news_to(first.marks)
    (tmp_path / "2031-05-03.csv").write_text("id\n1\n", "utf-8")
    assert glance(tmp_path, path="*.csv", files="newest").is_news_to(first.marks)


@pytest.fixture
def sheet(tmp_path: Path) -> Iterator[Desk]:
    with sheet_of(tmp_path, [["id", "title"], ["1", "Jazz"]]) as found:
        yield found


def of_sheet(desk: Desk) -> SourceProbe:
    return probe_source(desk.spec(), Path(), access=desk.access, clock=desk.clock)


def test_a_sheet_costs_one_request_and_is_news_once_somebody_has_edited_it(sheet: Desk) -> None:
    first = of_sheet(sheet)
    assert [one for one in sheet.google.asked if "/token" not in one and "/drive/v3/files/" not in one] == []
    assert not of_sheet(sheet).is_news_to(first.marks)
    sheet.sheet.put(3, 1, "2")
    assert of_sheet(sheet).is_news_to(first.marks)


def test_a_sheet_whose_version_we_may_not_ask_for_says_nothing_either_way(sheet: Desk) -> None:
    sheet.google.faults.append(Fault("/drive/", status=403))
    assert "gives no version" in of_sheet(sheet).blind


def test_records_of_an_org_are_asked_for_by_runs_only(tmp_path: Path) -> None:
    spec = SPEC.validate_python({"kind": "salesforce", "object": "Event__c"})
    assert "kind salesforce" in probe_source(spec, tmp_path, access=NO_ACCESS).blind
